import CLogTests
import CSystem
import Synchronization

// No version is drawn twice in a directory, whatever a loss of power takes and wherever the clock
// goes: a caller that compares versions would take another entry for the one that it has seen. No
// address of a log is used twice either, up to the last one that there is.

private func checkVersions(afterCheckpoint puts: Int, clockGoes passed: Int64) {
  let scratch = Scratch("versions")
  func next(_ store: LogStore) -> UInt64 { store.nextVersion.pointee.load(ordering: .relaxed) }
  var store: LogStore? = LogStore.openAt(scratch.path, TierLimits())
  for key in 0..<50 { store!.put(key, 1, at: LogStore.moment()) }
  if passed < 0 {
    trying { () throws(Failure) in check(try store!.writeCheckpoint(), "no checkpoint") }
  }
  for key in 0..<puts { store!.put(key, 2, at: LogStore.moment()) }
  for _ in 0..<2 {
    let last = next(store!)
    store = nil
    loseIndex(scratch.path)
    TestClock.pass(passed)
    store = LogStore.openAt(scratch.path, nil)
    check(next(store!) >= last, "a version is drawn again; puts after the checkpoint", puts)
    if passed < 0 {
      var work = LogRebuild()
      trying { () throws(Failure) in while try store!.rebuild(&work, at: LogStore.moment()) {} }
      let found = store!.round(1, at: LogStore.moment())
      check(found == (puts > 1 ? 2 : 1), "an entry is lost; puts after the checkpoint", puts)
    }
  }
  TestClock.pass(-2 * passed)
}

/// A log comes to the end of its addresses: puts fail, and no entry goes for them. The next opening
/// that is alone begins a new log.
private func checkAddresses(losesPower: Bool) {
  let scratch = Scratch("addresses")
  let now = LogStore.moment()
  var store: LogStore? = LogStore.openAt(scratch.path, TierLimits(cost: 400_000))
  for key in 0..<50 { store!.put(key, 1, at: now) }
  store!.words.store(IndexAt.next, LogFormat.segmentsEnd(store!.unitShift) - 2)
  var puts = 50
  while store!.put(puts, 1, at: now).failure == nil {
    check(store!.round(puts, at: now) == 1, "a put is not found", puts)
    puts += 1
    check(puts < 10_000, "the addresses have no end")
  }
  // Smaller ones have room where the last segment ends.
  var count = store!.count
  for key in 0..<100 where store!.put(20_000 + key * 16, 1, at: now).failure == nil { count += 1 }
  check(store!.count == count && count > 50, "entries go for puts that fail", Int(count))
  check(store!.round(puts - 1, at: now) == 1, "the last entry is lost")
  check(trying { () throws(Failure) in try store!.verify() }.isSound, "the index is not sound")
  if losesPower {
    trying { () throws(Failure) in check(try store!.writeCheckpoint(), "no checkpoint") }
  } else {
    check(store!.close() == nil, "no clean end")
  }
  store = nil
  if losesPower { loseIndex(scratch.path) }
  store = LogStore.openAt(scratch.path, nil)
  check(store!.count == 0 && !store!.isRebuilding, "the log is not a new one")
  for key in 0..<1000 {
    check(store!.put(key, 2, at: now).failure == nil, "a put into the new log fails")
  }
  check(store!.round(999, at: now) == 2, "a put into the new log is lost")
}

/// log_tests versions
func versions() -> Int32 {
  TestClock.stop()
  TestClock.pass(10_000 * second)
  for puts in [0, 100] { checkVersions(afterCheckpoint: puts, clockGoes: -3600 * second) }
  // Without a checkpoint all is lost, but the clock goes on.
  checkVersions(afterCheckpoint: 100, clockGoes: second)
  for losesPower in [false, true] { checkAddresses(losesPower: losesPower) }
  print("every version")
  return 0
}
