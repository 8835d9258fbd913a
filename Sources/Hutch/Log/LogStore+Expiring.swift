import CSystem

// The store keeps a lower bound for the times at which entries expire, so that no walk looks for
// expired entries while there can be none. It has no index of these times: a walk over all entries
// finds the expired ones, removes them, and learns the bound for the others.
//
// One process walks at a time. It stores the time until which no other process begins a walk
// (`walkEnd`), anew with each slice. If the process dies or pauses, another one begins a walk after
// that time. `expiry` is the bound for the entries written since the newest walk began,
// `expiryBefore` for the older ones. A walk that does not end leaves the second bound low, so
// another walk begins.

extension LogStore {
  /// True if an entry may have expired by then.
  func mayHaveExpired(at now: Int64) -> Bool {
    Int64(bitPattern: words.load(IndexAt.expiry)) <= now
      || Int64(bitPattern: words.load(IndexAt.expiryBefore)) <= now
  }

  /// Lowers the bound for an entry that is about to be appended. The tier's ages count, even if
  /// they act in this process's trims alone: other processes go by the bound. The lock is held.
  @inline(__always)
  func noteEnd(of record: Record) {
    let ages = ages
    guard record.mayExpire(under: ages) else { return }
    let end = record.end(at: record.created, under: ages.strict)
    if end < Int64(bitPattern: words.load(IndexAt.expiry)) {
      words.store(IndexAt.expiry, UInt64(bitPattern: end))
    }
  }

  /// The time for which a walk counts as under way after its last slice, in nanoseconds.
  private static let walkPatience: Int64 = 2_000_000_000

  /// Begins a walk, and returns its number; nil: another process walks. `monotonic`: the time by
  /// CLOCK_MONOTONIC. `isUrgent`: the walks of other processes do not count.
  func beginWalk(at monotonic: Int64, isUrgent: Bool) throws(Failure) -> UInt64? {
    try locked { () throws(Failure) in
      // A time that is too far away was stored before the machine was started again.
      let left = Int64(bitPattern: words.load(IndexAt.walkEnd)).subtractingReportingOverflow(
        monotonic
      ).partialValue
      if !isUrgent && left > 0 && left <= LogStore.walkPatience { return nil }
      let bound = min(
        Int64(bitPattern: words.load(IndexAt.expiry)),
        Int64(bitPattern: words.load(IndexAt.expiryBefore)))
      let number = words.load(IndexAt.walks) &+ 1
      // First, since a kill may come after each store: the end of an earlier walk, which has not
      // met the newest entries, sets no bound from here on.
      words.store(IndexAt.walks, number)
      words.store(IndexAt.expiryBefore, UInt64(bitPattern: bound))
      words.store(IndexAt.expiry, UInt64(bitPattern: Int64.max))
      continueWalk(at: monotonic)
      return number
    }
  }

  /// Notes that a slice of the walk begins. The lock need not be held: the time only delays the
  /// next walk.
  func continueWalk(at monotonic: Int64) {
    words.store(IndexAt.walkEnd, UInt64(bitPattern: monotonic &+ LogStore.walkPatience))
  }

  /// Ends a walk that has met all entries: those that it has left expire at `earliest` or later. If
  /// another walk has begun meanwhile, its end sets the bound.
  func endWalk(_ number: UInt64, earliest: Int64) throws(Failure) {
    try locked { () throws(Failure) in
      if words.load(IndexAt.walks) == number {
        words.store(IndexAt.expiryBefore, UInt64(bitPattern: earliest))
        words.store(IndexAt.walkEnd, 0)
      }
    }
  }
}
