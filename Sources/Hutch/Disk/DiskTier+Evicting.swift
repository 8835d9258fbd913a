import CSystem
import Synchronization

/// The entries that are next to be evicted: those read or written longest ago, of all rows
/// if there are few, else of a random sample.
///
/// A sample is made for 64 evictions, not for each: the 64 oldest of 1,024, runs of 16 rows from
/// random places, come close to the true order (as Redis's eviction pool does with far smaller
/// samples). Of all rows it is the true order: accesses only grow, so a row that was not among
/// the 64 oldest cannot come before them.
///
/// Where a run begins is chosen by RowDensity: each row is as likely to be met as any other.
struct EvictionCandidates: ~Copyable {
  struct Candidate {
    var accessed: Int64
    var id: Int64

    func isOlder(than other: Candidate) -> Bool {
      accessed != other.accessed ? accessed < other.accessed : id < other.id
    }
  }

  static let room = 64
  /// Up to this many rows all are looked at.
  static let exact: Int64 = 4096
  static let runs = 64
  static let runLength: Int64 = 16

  /// The oldest last.
  private var candidates = GrowingArray<Candidate>()
  private var random = UInt64(bitPattern: Clock.read(CLOCK_MONOTONIC))

  init() {}

  mutating func pop() -> Candidate? { candidates.popLast() }

  mutating func forget() { candidates.removeAll() }

  mutating func offer(_ candidate: Candidate) throws(Failure) {
    let count = candidates.count
    if count == EvictionCandidates.room && !candidate.isOlder(than: candidates[0]) { return }
    // Two runs may have met.
    for one in candidates.elements where one.id == candidate.id { return }
    if count == EvictionCandidates.room {
      var i = 0
      while i + 1 < count && candidate.isOlder(than: candidates[i + 1]) {
        candidates[i] = candidates[i + 1]
        i += 1
      }
      candidates[i] = candidate
      return
    }
    try candidates.append(candidate)
    var i = count
    while i > 0 && candidates[i - 1].isOlder(than: candidate) {
      candidates[i] = candidates[i - 1]
      i -= 1
    }
    candidates[i] = candidate
  }

  /// A number in 0..<bound (SplitMix64, Vigna).
  mutating func randomNumber(below bound: Int64) -> Int64 {
    random &+= 0x9E37_79B9_7F4A_7C15
    var z = random
    z = (z ^ z &>> 30) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ z &>> 27) &* 0x94D0_49BB_1331_11EB
    z ^= z &>> 31
    return Int64(z.multipliedFullWidth(by: UInt64(bound)).high)
  }
}

/// Room for the limits: dead rows go first, then what has expired, then the least recently
/// used.
extension DiskTier {
  /// Removes rows until the limits hold, within a transaction; at most `most` of them. Rows
  /// with ids above `newest` stay: they are what room is made for. True if more has to go.
  @discardableResult
  func makeFit(
    _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes, sparing newest: Int64,
    most: Int = Int.max
  ) throws(Failure) -> Bool {
    let ledger = SpaceLedger(limits)
    var done = 0
    // Nothing more expires while this runs.
    var mayExpire = true
    while ledger.isOver(meta) && done < most {
      if !ledger.hasTooMany(meta) && meta.dead > 0 {
        let purged = try purge(manifest, &meta, changes, 64)
        if purged > 0 {
          done += purged
          continue
        }
        // No such row is there: the sum was wrong.
        meta.dead = 0
        changes.isAny = true
        continue
      }
      if mayExpire {
        let expired = try sweepExpired(manifest, &meta, changes, 16, sparing: newest)
        mayExpire = expired > 0
        done += expired
        continue
      }
      guard try evict(manifest, &meta, changes, sparing: newest) else { return false }
      done += 1
    }
    return ledger.isOver(meta)
  }

  /// Removes the least recently used row. False: there is none that may go.
  func evict(
    _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes, sparing newest: Int64
  ) throws(Failure) -> Bool {
    var fills = 0
    while true {
      guard let candidate = candidates.pop() else {
        fills += 1
        if fills > 2 { return false }
        try fill(manifest, meta, upTo: newest)
        continue
      }
      guard candidate.id <= newest else { continue }
      let generation = meta.generation
      var victim: Row?
      _ = try manifest.find(id: candidate.id) { (found, key) throws(Failure) in
        guard found.generation == generation else { return }
        // It was read since it was sampled. Not asked after a second sample: reads must not
        // be able to keep everything.
        let accessed = max(found.record.accessed, self.accesses.latest(key))
        if fills < 2 && accessed > candidate.accessed { return }
        try changes.drop(
          key, found.record.version,
          self.isExpired(found.record, key, at: self.latestTime) ? .expired : .evicted)
        victim = found
      }
      if let victim {
        try delete(victim, manifest, &meta, changes)
        return true
      }
    }
  }

  private func fill(_ manifest: Manifest, _ meta: Meta, upTo newest: Int64) throws(Failure) {
    let before = try lastDead(manifest, meta)
    let generation = meta.generation
    func look(after id: Int64, _ limit: Int64) throws(Failure) -> RowScan.Reached {
      try manifest.walk(after: id, limit: limit) { (found, key) throws(Failure) in
        guard found.id <= newest else { return false }
        if found.generation == generation {
          let accessed = max(found.record.accessed, self.accesses.latest(key))
          try self.candidates.offer(
            EvictionCandidates.Candidate(accessed: accessed, id: found.id))
        }
        return true
      }
    }
    if meta.count <= EvictionCandidates.exact {
      var reached = RowScan.Reached(last: before, isEnd: false)
      while !reached.isEnd && reached.last <= newest {
        reached = try look(after: reached.last, Int64.max)
      }
    } else {
      // Nothing is below the first row.
      var first = before
      _ = try manifest.walk(after: before, limit: 1) { (found, _) throws(Failure) in
        first = found.id - 1
        return false
      }
      density.cover(from: first, to: newest)
      for run in 0..<EvictionCandidates.runs {
        let start = density.place { candidates.randomNumber(below: $0) } evenly: { run % 8 == 0 }
        let reached = try look(after: start, EvictionCandidates.runLength)
        density.note(
          EvictionCandidates.runLength, after: start, upTo: reached.isEnd ? newest : reached.last)
      }
    }
  }

  /// The id up to which rows are of older generations. Generations never fall along the ids,
  /// so it can be found by halves.
  private func lastDead(_ manifest: Manifest, _ meta: Meta) throws(Failure) -> Int64 {
    guard meta.dead > 0 else { return 0 }
    if sweep.dead.generation == meta.generation { return sweep.dead.upTo }
    var low: Int64 = 0
    var high = manifest.lastID
    while low < high {
      let middle = low + (high - low) / 2
      var next: Row?
      _ = try manifest.walk(after: middle, limit: 1) { (found, _) throws(Failure) in
        next = found
        return false
      }
      if let next, next.generation < meta.generation {
        low = next.id
      } else {
        high = middle
      }
    }
    sweep.dead = (meta.generation, low)
    return low
  }

  // MARK: limits

  func setLimits(_ limits: TierLimits, at moment: Moment) throws(Failure) {
    let time = moment.time
    writerLock.withLock {
      liveLimits.set(limits)
      hasLimits = true
    }
    if limits.ages.any { idle.note(Int64.min) }
    var hasMore = true
    while hasMore {
      let changes = Changes()
      try writerLock.withLock { () throws(Failure) in
        guard isUp, manifest != nil else {
          detach()
          throw downFailure
        }
        latestTime = time
        liveLimits.set(limits)
        try transact(changes) { (manifest, meta) throws(Failure) in
          changes.isAny = true
          try manifest.write(limits)
          hasMore = try self.makeFit(
            manifest, &meta, changes, sparing: manifest.lastID, most: 256)
        }
      }
      tell(changes)
    }
    hasMore = true
    while hasMore {
      var made: [Changes] = []
      hasMore = writerLock.withLock { isUp && keepFree(&made) }
      for one in made { tell(one) }
    }
  }
}
