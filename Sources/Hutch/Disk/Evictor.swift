import CSystem
import Synchronization

extension EvictionPolicy {
  /// The SQLite store's own policy is LRU.
  var ofRows: EvictionPolicy { self == .adaptive ? .lru : self }
}

/// The entries that are next to be evicted: those that come first by the policy, of all rows if
/// there are few, else of a random sample.
///
/// A sample is made for 64 evictions, not for each: the first 64 of 1,024, runs of 16 rows from
/// random places, come close to the true order (as Redis's eviction pool does with far smaller
/// samples). Of all rows it is the true order: accesses and their number only grow, so a row that
/// was not among the first 64 cannot come before them. A row that was written since can by LFU; it
/// is offered too (`Evictor.lookAtNew`).
///
/// Runs are in the order of slots, in which a scan passes over no row. Where a run begins is chosen
/// by RowDensity: each row is as likely to be met as any other. By FIFO no sample is needed, since
/// ids are in the order of writes.
struct EvictionCandidates: ~Copyable {
  struct Candidate {
    /// By LFU the number of accesses, else 0. The lowest goes first; of those, the one that was
    /// accessed, or else written, longest ago.
    var uses: Int64
    var accessed: Int64
    var id: Int64

    func goes(before other: Candidate) -> Bool {
      if uses != other.uses { return uses < other.uses }
      return accessed != other.accessed ? accessed < other.accessed : id < other.id
    }
  }

  static let room = 64
  /// Up to this many rows all are looked at.
  static let exact: Int64 = 4096
  static let runs = 64
  static let runLength: Int64 = 16

  /// The first to go is the last.
  private var candidates = GrowingArray<Candidate>()
  private var random = UInt64(bitPattern: Clock.read(CLOCK_MONOTONIC))

  init() {}

  mutating func pop() -> Candidate? { candidates.popLast() }

  mutating func forget() { candidates.removeAll() }

  var isEmpty: Bool { candidates.isEmpty }

  mutating func offer(_ candidate: Candidate) throws(Failure) {
    let count = candidates.count
    if count == EvictionCandidates.room && !candidate.goes(before: candidates[0]) { return }
    // Two runs may have met.
    for one in candidates.elements where one.id == candidate.id { return }
    if count == EvictionCandidates.room {
      var i = 0
      while i + 1 < count && candidate.goes(before: candidates[i + 1]) {
        candidates[i] = candidates[i + 1]
        i += 1
      }
      candidates[i] = candidate
      return
    }
    try candidates.append(candidate)
    var i = count
    while i > 0 && candidates[i - 1].goes(before: candidate) {
      candidates[i] = candidates[i - 1]
      i -= 1
    }
    candidates[i] = candidate
  }

  /// A number in 0..<bound (SplitMix64, Vigna).
  @inline(never)
  mutating func randomNumber(below bound: Int64) -> Int64 {
    random &+= 0x9E37_79B9_7F4A_7C15
    var z = random
    z = (z ^ z &>> 30) &* 0xBF58_476D_1CE4_E5B9
    z = (z ^ z &>> 27) &* 0x94D0_49BB_1331_11EB
    z ^= z &>> 31
    return Int64(z.multipliedFullWidth(by: UInt64(bound)).high)
  }
}

/// Makes room for the limits, within transactions: rows that a clear has left go first, then those
/// that have expired, then those that the policy chooses. Used under the tier's writer lock.
///
///           goes first                                 an entry that memory has used
///     LRU   accessed longest ago                       counts as read now
///     LFU   fewest accesses, then accessed longest ago  has one access more
///     FIFO  written or touched longest ago             goes as any other
///
/// Reads that the memory tier answers are not in the rows. So the tier is asked about a candidate,
/// and one that it has used counts as read now (Jaleel et al., "Achieving Non-Inclusive Cache
/// Performance with Inclusive Caches", MICRO 2010: query based selection). A memory tier may have
/// used every row: then `credit` bounds the candidates that are spared.
struct Evictor: ~Copyable {
  private var candidates = EvictionCandidates()
  private var density = RowDensity()
  /// The policy that chose the candidates, and the newest row that was there then.
  private var policy = EvictionPolicy.lru
  private var newestOffered: Int64 = 0
  /// How many candidates may be spared. Each eviction adds to it.
  private var credit = Evictor.mostCredit

  private static let creditPerEviction = 2
  private static let mostCredit = 256

  init() {}

  /// Ids of candidates may name other rows now.
  mutating func forgetCandidates() { candidates.forget() }

  /// So many rows of those that lowered limits have made too many go with a commit.
  private static let mostOfOthers = 256

  /// Makes room for what a commit has written. `before`: the sums without that. If the limits did
  /// not hold then, for they have been lowered, no commit does all of it while other writes wait:
  /// it leaves no more than there was, and a few rows less. The call that lowers limits removes the
  /// rest in slices, or maintenance does.
  mutating func makeFit(
    _ transaction: inout Transaction, _ sweeper: inout Sweeper, sparing newest: Int64,
    after before: Meta
  ) throws(Failure) {
    let ledger = SpaceLedger(transaction.limits)
    var most = Int.max
    if ledger.isOver(before) {
      let lenient = SpaceLedger(transaction.limits, notBelow: before)
      try makeFit(&transaction, &sweeper, sparing: newest, to: lenient, most: most)
      most = Evictor.mostOfOthers
    }
    try makeFit(&transaction, &sweeper, sparing: newest, to: ledger, most: most)
  }

  /// Removes rows until `ledger` is kept to; at most `most` of them. Rows with ids above `newest`
  /// stay: room is made for them. True if more has to go.
  @discardableResult
  @inline(never)
  mutating func makeFit(
    _ transaction: inout Transaction, _ sweeper: inout Sweeper, sparing newest: Int64,
    to ledger: SpaceLedger, most: Int
  ) throws(Failure) -> Bool {
    var done = 0
    // Nothing more expires while this runs.
    var mayExpire = true
    while ledger.isOver(transaction.meta) && done < most {
      if !ledger.hasTooMany(transaction.meta) && transaction.meta.dead > 0 {
        done += try sweeper.purge(&transaction, 64)
      } else if mayExpire {
        let expired = try sweeper.sweepExpired(&transaction, 16, sparing: newest)
        mayExpire = expired > 0
        done += expired
      } else {
        guard try evict(&transaction, &sweeper, sparing: newest) else { return false }
        done += 1
      }
    }
    return ledger.isOver(transaction.meta)
  }

  /// Removes the row that comes first by the policy. False: there is none that may go.
  mutating func evict(
    _ transaction: inout Transaction, _ sweeper: inout Sweeper, sparing newest: Int64
  ) throws(Failure) -> Bool {
    let (now, ages) = (transaction.now, transaction.ages)
    let (observer, accesses) = (transaction.observer, transaction.accesses)
    credit = min(credit + Evictor.creditPerEviction, Evictor.mostCredit)
    if policy != transaction.policy {
      policy = transaction.policy
      candidates.forget()
    }
    if policy == .lfu { try lookAtNew(transaction, upTo: newest) }
    let sparesReads = policy != .fifo
    var fills = 0
    while true {
      guard let candidate = candidates.pop() else {
        fills += 1
        if fills > 2 { return false }
        try fill(transaction, &sweeper, upTo: newest)
        continue
      }
      guard candidate.id <= newest else { continue }
      var isSpared = false
      let isGone = try transaction.drop(id: candidate.id) { record, key in
        var record = record
        let known = record.accessed
        if record.isExpired(at: now, under: ages, key, asking: observer) { return .expired }
        if record.accessed > known {
          accesses.note(key, accesses.hash.entry(key), at: record.accessed)
        }
        if !sparesReads { return .evicted }
        // It was read since it was sampled. Not asked after a second sample: reads must not
        // be able to keep everything.
        if fills < 2 && record.accessed > candidate.accessed { return nil }
        isSpared =
          credit > 0
          && observer?.hasUsed(key, record.version, isOften: false) == true
        if !isSpared { return .evicted }
        // The row counts as read now, unless its life depends on when it was.
        let isIdling = ages.mayIdle(own: record.timeToIdle)
        let read =
          isIdling ? observer?.lastAccess(of: key, record.version) ?? record.accessed : now
        accesses.note(key, accesses.hash.entry(key), at: read)
        return nil
      }
      if isSpared {
        credit -= 1
        fills = min(fills, 1)
      }
      if isGone { return true }
    }
  }

  /// Offers the rows that were written since the candidates were chosen.
  private mutating func lookAtNew(
    _ transaction: borrowing Transaction, upTo newest: Int64
  ) throws(Failure) {
    if newest - newestOffered > EvictionCandidates.exact { candidates.forget() }
    guard !candidates.isEmpty, newest > newestOffered else { return }
    _ = try look(transaction, after: newestOffered, Int64.max, upTo: newest)
    newestOffered = newest
  }

  private mutating func fill(
    _ transaction: borrowing Transaction, _ sweeper: inout Sweeper, upTo newest: Int64
  ) throws(Failure) {
    newestOffered = newest
    let before = try sweeper.lastDead(transaction)
    if policy == .fifo {
      _ = try look(transaction, after: before, Int64(EvictionCandidates.room), upTo: newest)
      return
    }
    if transaction.meta.count <= EvictionCandidates.exact {
      var reached = RowScan.Reached(last: before, isEnd: false)
      while !reached.isEnd && reached.last <= newest {
        reached = try look(transaction, after: reached.last, Int64.max, upTo: newest)
      }
      return
    }
    // Nothing is below the first slot. Those of dead rows are below the others', as their ids are.
    var first = before
    _ = try transaction.manifest.walk(after: before, bySlot: true, limit: 1) {
      (row, _) throws(Failure) in
      first = row.slot - 1
      return false
    }
    let last = try transaction.manifest.lastSlot()
    density.cover(from: first, to: last)
    for run in 0..<EvictionCandidates.runs {
      let start = density.place { candidates.randomNumber(below: $0) } evenly: { run % 8 == 0 }
      let reached = try look(
        transaction, after: start, bySlot: true, EvictionCandidates.runLength, upTo: newest)
      density.note(
        EvictionCandidates.runLength, after: start, upTo: reached.isEnd ? last : reached.last)
    }
  }

  /// Offers a run of rows.
  @inline(never)
  private mutating func look(
    _ transaction: borrowing Transaction, after id: Int64, bySlot: Bool = false, _ limit: Int64,
    upTo newest: Int64
  ) throws(Failure) -> RowScan.Reached {
    try transaction.manifest.walk(after: id, bySlot: bySlot, limit: limit) {
      (row, key) throws(Failure) in
      guard row.id <= newest else { return bySlot }
      if row.generation == transaction.meta.generation {
        try candidates.offer(candidate(row, key, transaction.accesses))
      }
      return true
    }
  }

  private func candidate(
    _ row: Row, _ key: Bytes, _ accesses: AccessTimes
  ) -> EvictionCandidates.Candidate {
    var candidate = EvictionCandidates.Candidate(uses: 0, accessed: 0, id: row.id)
    if policy == .fifo { return candidate }
    let gathered = accesses.gathered(key)
    candidate.accessed = max(row.record.accessed, gathered.time)
    if policy == .lfu { candidate.uses = Record.sum(row.uses, gathered.uses) }
    return candidate
  }
}
