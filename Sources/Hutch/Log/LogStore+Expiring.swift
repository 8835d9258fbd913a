import CSystem

// When entries expire: a lower bound for all of them, so that no walk looks for expired entries
// while there can be none. There is no order of expiries; a walk through all entries finds the
// expired ones, removes them, and learns the bound for the others.
//
// One process walks at a time. It says until when it is the one (`walkEnd`), and says so anew with
// each slice; if it dies or pauses, another process begins a walk after that time. `expiry` is the
// bound for what was written since the newest walk began, `expiryBefore` for what was there then. A
// walk that does not end leaves the latter low, and so another one begins.

extension LogStore {
  /// Whether an entry may have ended by then.
  func mayHaveExpired(at now: Int64) -> Bool {
    Int64(bitPattern: words.load(IndexAt.expiry)) <= now
      || Int64(bitPattern: words.load(IndexAt.expiryBefore)) <= now
  }

  /// Before an entry is there that may end. With the lock held.
  @inline(__always)
  func noteEnd(of record: Record) {
    let ages = ages
    guard record.mayExpire(under: ages) else { return }
    let end = record.end(at: record.created, under: ages)
    if end < Int64(bitPattern: words.load(IndexAt.expiry)) {
      words.store(IndexAt.expiry, UInt64(bitPattern: end))
    }
  }

  /// How long a walk is taken to be under way after its last slice, in nanoseconds.
  private static let walkPatience: Int64 = 2_000_000_000

  /// A walk begins. Its number; nil: another process walks. `monotonic`: CLOCK_MONOTONIC.
  /// `isUrgent`: other processes' walks do not count.
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
      words.store(IndexAt.expiryBefore, UInt64(bitPattern: bound))
      words.store(IndexAt.expiry, UInt64(bitPattern: Int64.max))
      words.store(IndexAt.walks, number)
      continueWalk(at: monotonic)
      return number
    }
  }

  /// A slice of the walk begins. Without the lock too: the time only delays the next walk.
  func continueWalk(at monotonic: Int64) {
    words.store(IndexAt.walkEnd, UInt64(bitPattern: monotonic &+ LogStore.walkPatience))
  }

  /// A walk has met all entries; those that it has left end at `earliest` or later. If another one
  /// has begun meanwhile, that one will say so.
  func endWalk(_ number: UInt64, earliest: Int64) throws(Failure) {
    try locked { () throws(Failure) in
      if words.load(IndexAt.walks) == number {
        words.store(IndexAt.expiryBefore, UInt64(bitPattern: earliest))
        words.store(IndexAt.walkEnd, 0)
      }
    }
  }
}
