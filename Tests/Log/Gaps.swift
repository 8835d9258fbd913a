import CLogTests
import CSystem

// Under durability process a segment that a recovery would need may be used again. Then the log has
// a gap, and what was written in it is not met: no older value may be found instead, among the kept
// entries. The disk has everything that was written to the files, but for the marks of kept entries
// that say what became of them.

extension LogStore {
  fileprivate func match(_ key: Int) -> LogMatch? {
    withKey(key) { bytes, hash in find(bytes, hash) }
  }
}

/// What happens to the key of a kept entry.
private enum Change: Int, CaseIterable { case replaced, removed, untouched }

/// A kept entry changes after the last checkpoint. After the loss of power the segment of that
/// change is used again while the index is being made. `isTwice`: the power goes once more.
private func checkGap(_ change: Change, isTwice: Bool) {
  let scratch = Scratch("gap")
  libraryRandom = Random(5)
  let now = LogStore.moment()
  var store: LogStore? = LogStore.openAt(scratch.path, TierLimits(cost: 400_000))
  let key = 7
  var other = 1000
  func putOther(_ round: Int = 1) {
    store!.put(other * 16, round, at: now)
    other += 1
  }
  /// Puts others until the active segment is another one.
  func fillSegment() {
    let active = store!.active(.new)
    while store!.active(.new) == active { putOther() }
  }
  for _ in 0..<4000 { putOther() }
  store!.put(key, 1, at: now)
  for _ in 0..<2 { _ = store!.round(key, at: now, isAccess: true) }
  while !(store!.match(key)?.seat.isKept ?? true) { putOther() }
  guard let kept = store!.match(key) else { fail("the entry is not kept") }
  trying { () throws(Failure) in check(try store!.writeCheckpoint(), "no checkpoint") }

  fillSegment()
  let changed = store!.end
  switch change {
  case .replaced: store!.put(key, 2, at: now)
  case .removed: store!.remove(key, at: now)
  case .untouched: putOther()
  }
  if let trailer = store!.trailer(kept.entry) { SharedWords.store(trailer + 8, 0) }
  // The cleaner comes to these before it comes to the newest one.
  for _ in 0..<3 { fillSegment() }
  putOther()
  let last = (other - 1) * 16
  store = nil
  loseIndex(scratch.path)

  store = LogStore.openAt(scratch.path, nil)
  var work = LogRebuild()
  func rebuild() -> Bool {
    trying { () throws(Failure) in try store!.rebuild(&work, at: now) }
  }
  if !isTwice {
    // The newest segment.
    while store!.round(last, at: now) < 0 { check(rebuild(), "the last entry is lost") }
  }
  if change != .untouched || isTwice {
    while store!.seat(of: changed) != nil { putOther() }
    if isTwice { for _ in 0..<2 { fillSegment() } }
  }
  check(isTwice || store!.isRebuilding, "the index is made")
  if isTwice {
    work = LogRebuild()
    store = nil
    loseIndex(scratch.path)
    store = LogStore.openAt(scratch.path, nil)
  }
  while rebuild() {}
  let report = trying { () throws(Failure) in try store!.verify() }
  check(report.isSound, "the index is not sound")
  let found = store!.round(key, at: now)
  if change != .untouched {
    check(found != 1, "an older value is there; change, twice", change.rawValue, isTwice ? 1 : 0)
    check(store!.round(last, at: now) == 1, "what was written last is lost")
  } else if !isTwice {
    check(found == 1, "a kept entry is lost")
  }
}

/// log_tests gaps
func gaps() -> Int32 {
  for change in Change.allCases {
    for isTwice in [false, true] { checkGap(change, isTwice: isTwice) }
  }
  print("every gap")
  return 0
}
