import CSystem

// When entries expire: a lower bound for all of them, so that no walk looks for expired entries
// while there can be none. There is no order of expiries; a walk through all entries finds the
// expired ones, removes them, and learns the bound for the others.
//
// A walk is a process's own, and several may be under way. `expiry` is the bound for what was
// written since the newest began, `expiryBefore` for what was there then. A walk that is killed
// leaves the latter low, and so another one begins.

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

  /// A walk begins. Its number.
  func beginWalk() throws(Failure) -> UInt64 {
    try locked { () throws(Failure) in
      let bound = min(
        Int64(bitPattern: words.load(IndexAt.expiry)),
        Int64(bitPattern: words.load(IndexAt.expiryBefore)))
      let number = words.load(IndexAt.walks) &+ 1
      words.store(IndexAt.expiryBefore, UInt64(bitPattern: bound))
      words.store(IndexAt.expiry, UInt64(bitPattern: Int64.max))
      words.store(IndexAt.walks, number)
      return number
    }
  }

  /// A walk has met all entries; those that it has left end at `earliest` or later. If another one
  /// has begun meanwhile, that one will say so.
  func endWalk(_ number: UInt64, earliest: Int64) throws(Failure) {
    try locked { () throws(Failure) in
      if words.load(IndexAt.walks) == number {
        words.store(IndexAt.expiryBefore, UInt64(bitPattern: earliest))
      }
    }
  }
}
