import CLogTests
import CSystem
import Synchronization

// No version is drawn twice in a directory, whatever a loss of power takes and wherever the clock
// goes: a caller that compares versions would take another entry for the one that it has seen.

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

/// log_tests versions
func versions() -> Int32 {
  TestClock.stop()
  TestClock.pass(10_000 * second)
  for puts in [0, 100] { checkVersions(afterCheckpoint: puts, clockGoes: -3600 * second) }
  // Without a checkpoint all is lost, but the clock goes on.
  checkVersions(afterCheckpoint: 100, clockGoes: second)
  print("every version")
  return 0
}
