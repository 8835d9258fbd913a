import CLogTests
import CSystem

// An entry that has ended by the age of its tier is removed without a record. The clocks stand
// still but where a test moves them.

extension LogStore {
  /// Whether the cleaner has kept a key's entry.
  fileprivate func isKept(_ key: Int) -> Bool {
    withKey(key) { bytes, hash in find(bytes, hash)?.seat.isKept ?? false }
  }
}

/// The ages do not count any more after a loss of power, and the entry has been removed before.
/// `isKept`: it is among those that the cleaner has kept.
private func checkOtherAges(_ durability: Durability, isKept: Bool) {
  let scratch = Scratch("ages")
  let cost: UInt64 = 300_000
  var limits = TierLimits(cost: cost)
  limits.ages.timeToLive = 60 * second
  var storage: LogStorage? = LogStorage.openAt(scratch.path, durability, limits)
  let key = 7
  func put(_ key: Int) { _ = storage!.write(.put, key, 1, at: LogStore.moment()) }
  // Once round the log, there is room for what is kept.
  for other in 100..<(isKept ? 2000 : 100) { put(other * 16) }
  put(key)
  if isKept {
    for _ in 0..<2 { _ = storage!.store!.round(key, at: LogStore.moment(), isAccess: true) }
    var other = 2000
    while !storage!.store!.isKept(key) {
      put(other * 16)
      other += 1
      check(other < 4000, "the entry is not kept")
    }
  }
  func writeCheckpoint() {
    trying { () throws(Failure) in check(try storage!.store!.writeCheckpoint(), "no checkpoint") }
  }
  TestClock.pass(61 * second)
  storage!.maintainAll(at: LogStore.moment())
  check(storage!.store!.count == 0, "entries are there that have expired")
  writeCheckpoint()
  _ = storage!.write(.remove, key, at: LogStore.moment())
  trying { () throws(Failure) in
    try storage!.setLimits(TierLimits(cost: cost), at: LogStore.moment())
  }
  _ = storage!.write(.put, 8, 1, at: LogStore.moment())
  writeCheckpoint()
  storage = nil
  loseIndex(scratch.path)
  storage = LogStorage.openAt(scratch.path, durability, TierLimits(cost: cost))
  storage!.maintainAll(at: LogStore.moment())
  let now = LogStore.moment()
  check(storage!.store!.round(8, at: now) == 1, "an entry is lost")
  check(storage!.store!.round(key, at: now) < 0, "a removed entry is back", isKept ? 1 : 0)
}

/// log_tests expirations
func expirations() -> Int32 {
  TestClock.stop()
  TestClock.pass(1000 * second)
  for durability in [Durability.process, .power] {
    for isKept in [false, true] { checkOtherAges(durability, isKept: isKept) }
  }
  print("every expiration")
  return 0
}
