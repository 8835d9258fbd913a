import CSystem
import Synchronization

/// Trims that somebody asks for, in slices: rows are looked for by a connection that reads, and
/// removed in short transactions, between which waiting writers go first. No slice
/// stops a read.
///
/// A trim looks at the rows that are there when it begins; what is written, touched or read
/// while it is under way may be spared.
extension DiskTier {
  private static let rowsInLook = 512
  private static let rowsInSlice = 128

  func trim(
    _ spec: TrimSpec, at moment: Moment, removed: inout UInt64, goOn: (UInt64, UInt64) -> Bool
  ) throws(Failure) {
    guard isUp else { throw downFailure }
    let trim = Trim(TrimRule(spec: spec, now: moment.time, ages: ages))
    defer { removed = UInt64(max(0, trim.removed)) }
    switch spec.kind {
    case .expired: try sweep(trim, goOn)
    case .toCost, .toCount: try trimByPolicy(trim, goOn)
    case .largestFirst, .leastRecent, .leastFrequent: try trimByRank(trim, goOn)
    default: try filter(trim, goOn)
    }
  }

  /// One trim on its way.
  private final class Trim {
    let rule: TrimRule
    /// Entries that have gone.
    var removed: Int64 = 0
    /// How many will go; 0: not known.
    var total: Int64 = 0
    var ids = GrowingArray<Int64>()

    init(_ rule: TrimRule) { self.rule = rule }

    func goesOn(_ goOn: (UInt64, UInt64) -> Bool) -> Bool {
      goOn(UInt64(removed), total == 0 ? 0 : UInt64(max(removed, total)))
    }

    /// Bytes or entries that may stay.
    var target: Int64 { Int64(clamping: rule.spec.amount) }

    /// How many more than that there are.
    func excess(_ meta: Meta) -> Int64 {
      (rule.countsEntries ? meta.count : meta.charges) - target
    }
  }

  // MARK: slices

  /// One transaction of a trim. Every row that is deleted in it counts as one that the trim
  /// removed, if it was an entry.
  private func slice(
    _ trim: Trim, _ body: (Manifest, inout Meta, Changes) throws(Failure) -> Void
  ) throws(Failure) {
    letWritersPast()
    let changes = Changes()
    do throws(Failure) {
      try writerLock.withLock { () throws(Failure) in
        guard isUp, manifest != nil else {
          detach()
          throw downFailure
        }
        latestTime = trim.rule.now
        var gone: Int64 = 0
        try transact(changes) { (manifest, meta) throws(Failure) in
          let before = meta.count
          try body(manifest, &meta, changes)
          gone = before - meta.count
        }
        trim.removed += gone
        _ = trash.empty(64, in: place)
      }
    } catch {
      counters.failures.add()
      announce()
      throw error
    }
    tell(changes)
    announce()
  }

  /// A thread that takes a lock again at once gets it before the threads that wait. So the queue
  /// decides: what was submitted before this is committed when it returns.
  private func letWritersPast() {
    guard !queue.isEmpty else { return }
    let barrier = QueuedWrite()
    queue.submit(barrier)
    while queue.waitOrLead(for: barrier) { lead() }
  }

  /// Shows every row that is an entry, by a connection that reads, with the accesses that have
  /// gathered. `look` may end the walk after a slice by answering false; it is called with no
  /// lock held.
  private func scan(
    _ trim: Trim, _ visit: (Row, Int64) throws(Failure) -> Void,
    look: () throws(Failure) -> Bool
  ) throws(Failure) {
    var walk = RowWalk(upTo: writerLock.withLock { manifest?.lastID ?? 0 })
    while !walk.isDone {
      let generation = shared.generation
      do throws(Failure) {
        try step(&walk, DiskTier.rowsInLook) { (key, row) throws(Failure) in
          guard row.generation == generation else { return }
          var row = row
          let gathered = accesses.gathered(key)
          row.record.accessed = max(row.record.accessed, gathered.time)
          try visit(row, row.uses &+ gathered.uses)
        }
      } catch {
        note(error)
        announce()
        throw error
      }
      guard isUp else { throw downFailure }
      if try !look() { return }
    }
  }

  /// Learns when tiers above have last read these rows' entries. No lock is held while they are
  /// asked.
  private func askAbove(_ trim: Trim, from start: Int, to end: Int) throws(Failure) {
    guard trim.rule.goesByAccess, let observer else { return }
    var keys = KeyList()
    _ = try withReader { (reader) throws(Failure) in
      for i in start..<end {
        let id = trim.ids[i]
        try reader.walk(after: id - 1, limit: 1) { (key, row) throws(Failure) in
          if row.id == id && key.count > 0 { try keys.append(key, row.record.accessed) }
        }
      }
    }
    keys.forEach { key, accessed in
      if let time = observer.lastAccess(of: key), time > accessed {
        accesses.note(key, hash.entry(key), at: time)
      }
    }
  }

  /// Removes the rows with the ids that have gathered, in slices, those that `isWanted` still
  /// wants, until `isDone`. False: it is to stop.
  private func remove(
    _ trim: Trim, _ goOn: (UInt64, UInt64) -> Bool, until isDone: (Meta) -> Bool,
    if isWanted: (Int, Record) -> Bool
  ) throws(Failure) -> Bool {
    var start = 0
    while start < trim.ids.count {
      let end = min(start + DiskTier.rowsInSlice, trim.ids.count)
      try askAbove(trim, from: start, to: end)
      var isEnough = false
      try slice(trim) { (manifest, meta, changes) throws(Failure) in
        for i in start..<end {
          isEnough = isDone(meta)
          if isEnough { return }
          let generation = meta.generation
          var victim: Row?
          _ = try manifest.find(id: trim.ids[i]) { (found, key) throws(Failure) in
            guard found.generation == generation else { return }
            var record = found.record
            record.accessed = max(record.accessed, self.accesses.latest(key))
            guard isWanted(i, record) else { return }
            let isExpired = record.isExpired(at: self.latestTime, under: trim.rule.ages)
            try changes.drop(key, record.version, isExpired ? .expired : .evicted)
            victim = found
          }
          if let victim { try self.delete(victim, manifest, &meta, changes) }
        }
      }
      guard trim.goesOn(goOn) else { return false }
      if isEnough { break }
      start = end
    }
    return true
  }

  // MARK: kinds

  /// What has expired: by the order of ids and the index, as maintenance does; those that were
  /// idle for too long by a scan, if there can be any.
  private func sweep(_ trim: Trim, _ goOn: (UInt64, UInt64) -> Bool) throws(Failure) {
    var hasMore = true
    var mayIdle = ages.timeToIdle != 0
    while hasMore {
      try slice(trim) { (manifest, meta, changes) throws(Failure) in
        let done = try self.sweepExpired(manifest, &meta, changes, DiskTier.rowsInSlice)
        hasMore = done >= DiskTier.rowsInSlice || self.sweep.isBehind
        mayIdle = mayIdle || meta.mayIdle
      }
      guard trim.goesOn(goOn) else { return }
    }
    if mayIdle { try filter(trim, goOn) }
  }

  private func filter(_ trim: Trim, _ goOn: (UInt64, UInt64) -> Bool) throws(Failure) {
    let rule = trim.rule
    try scan(
      trim,
      { (row, _) throws(Failure) in
        if rule.wants(row.record) { try trim.ids.append(row.id) }
      },
      look: { () throws(Failure) in
        defer { trim.ids.removeAll() }
        if trim.ids.isEmpty { return trim.goesOn(goOn) }
        return try remove(trim, goOn, until: { _ in false }, if: { rule.wants($1) })
      })
  }

  /// As room is made for the limits: of few entries by samples, and of many, where looking at
  /// every row costs less, by rank.
  private func trimByPolicy(_ trim: Trim, _ goOn: (UInt64, UInt64) -> Bool) throws(Failure) {
    let isCount = trim.rule.countsEntries
    if !isCount, try fitsWithoutRows(trim, goOn) { return }
    let (excess, all) = writerLock.withLock { () -> (Int64, Int64) in
      guard let meta = manifest?.meta else { return (0, 0) }
      return (trim.excess(meta), isCount ? meta.count : meta.charges)
    }
    if isCount { trim.total = max(0, excess) }
    if excess > all / DiskTier.rowsInSample {
      guard try sweepUntilFit(trim, goOn) else { return }
      return try trimByRank(trim, goOn)
    }
    var isDone = false
    while !isDone {
      try slice(trim) { (manifest, meta, changes) throws(Failure) in
        // The time is the same for the whole slice.
        var mayExpire = true
        for _ in 0..<DiskTier.rowsInSlice {
          isDone = trim.excess(meta) <= 0
          if isDone { return }
          if mayExpire {
            mayExpire =
              try self.sweepExpired(manifest, &meta, changes, 1, sparing: manifest.lastID) > 0
            if mayExpire { continue }
          }
          guard try self.evict(manifest, &meta, changes, sparing: manifest.lastID) else {
            isDone = true
            return
          }
        }
      }
      guard trim.goesOn(goOn) else { break }
    }
    if !isCount { _ = try fitsWithoutRows(trim, goOn) }
  }

  /// How many rows a sample reads for one that it gives up.
  private static let rowsInSample: Int64 = 16

  /// What has expired goes before what has not. False: it is to stop.
  private func sweepUntilFit(
    _ trim: Trim, _ goOn: (UInt64, UInt64) -> Bool
  ) throws(Failure) -> Bool {
    var hasMore = true
    while hasMore {
      try slice(trim) { (manifest, meta, changes) throws(Failure) in
        var done = 0
        while done < DiskTier.rowsInSlice && trim.excess(meta) > 0 {
          guard try self.sweepExpired(manifest, &meta, changes, 1) > 0 else { break }
          done += 1
        }
        hasMore = done == DiskTier.rowsInSlice
      }
      guard trim.goesOn(goOn) else { return false }
    }
    return true
  }

  private func trimByRank(_ trim: Trim, _ goOn: (UInt64, UInt64) -> Bool) throws(Failure) {
    let rule = trim.rule
    if !rule.countsEntries, try fitsWithoutRows(trim, goOn) { return }
    // Rounds that remove nothing: all that was found was read again meanwhile.
    var idle = 0
    while idle < 3 {
      let (excess, rows) = writerLock.withLock { () -> (Int64, Int64) in
        guard let meta = manifest?.meta else { return (0, 0) }
        return (trim.excess(meta), meta.count)
      }
      guard excess > 0 else { break }
      var candidates = TrimScan(needing: excess, of: rows)
      var goesOn = true
      try scan(
        trim,
        { (row, uses) throws(Failure) in
          try candidates.offer(rule.item(row, uses: uses))
        },
        look: {
          goesOn = trim.goesOn(goOn)
          return goesOn
        })
      guard goesOn, candidates.count > 0 else { break }
      candidates.sort()
      trim.ids.removeAll()
      for i in 0..<candidates.count { try trim.ids.append(candidates[i].tag) }
      let before = trim.removed
      goesOn = try remove(
        trim, goOn, until: { trim.excess($0) <= 0 },
        if: { (i, record) in
          // What was read since it was looked at has another rank.
          switch rule.spec.kind {
          case .largestFirst: true
          case .leastFrequent: record.accessed <= candidates[i].second
          default: record.accessed <= candidates[i].first
          }
        })
      guard goesOn else { break }
      idle = trim.removed == before ? idle + 1 : 0
    }
    if !rule.countsEntries { _ = try fitsWithoutRows(trim, goOn) }
  }

  /// What is no entry and counts all the same goes before entries do: rows that a clear has
  /// left, removed files, the log. True if that is enough.
  private func fitsWithoutRows(
    _ trim: Trim, _ goOn: (UInt64, UInt64) -> Bool
  ) throws(Failure) -> Bool {
    let target = trim.target
    var tries = 0
    while true {
      guard counters.cost.load(ordering: .relaxed) > UInt64(target) else { return true }
      var hasMore = false
      try slice(trim) { (manifest, meta, changes) throws(Failure) in
        hasMore = try self.purge(manifest, &meta, changes, DiskTier.rowsInSlice) > 0
      }
      writerLock.withLock {
        hasMore = trash.empty(64, in: place) || hasMore
        guard isUp, let manifest else { return }
        if !hasMore && manifest.log > 0 { checkpoint(manifest, .truncating) }
        // A reader that is in the way is gone in a moment.
        if isUp && manifest.log > 0 && tries < 8 {
          hasMore = true
          tries += 1
        }
        if isUp { publish(manifest.meta) }
      }
      guard hasMore, trim.goesOn(goOn) else {
        return counters.cost.load(ordering: .relaxed) <= UInt64(target)
      }
    }
  }
}

extension TrimRule {
  /// Rows with the lower rank go first.
  func item(_ row: Row, uses: Int64) -> RankedHeap.Item {
    let rank: (Int64, Int64) =
      switch spec.kind {
      case .largestFirst: (-row.charge, row.id)
      case .leastFrequent: (uses, row.record.accessed)
      default: (row.record.accessed, row.id)
      }
    return RankedHeap.Item(
      first: rank.0, second: rank.1, tag: row.id, weight: countsEntries ? 1 : row.charge)
  }
}
