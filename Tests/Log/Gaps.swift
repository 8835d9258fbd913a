import CLogTests
import CSystem

// Under durability process a segment that a recovery would need may be used again, or the cleaner
// may have passed its first entries. Then the log has a gap, and what was written in it is not met:
// no older value may be found instead, among the kept entries. The disk has everything that was
// written to the files, but for the marks of kept entries that say what became of them.

extension LogStore {
  fileprivate func match(_ key: Int) -> LogMatch? {
    withKey(key) { bytes, hash in find(bytes, hash) }
  }
}

/// What happens to the key of a kept entry.
private enum Change: Int, CaseIterable { case replaced, removed, untouched }

/// What happens to the segment of that change while the index is being made. `usedTwice`: the power
/// goes once more after that. `usedAgain`: the power goes once more when the index has been made,
/// and what that has noted of the kept entry is not on the disk. `passedBefore`: the same, and the
/// cleaner has passed the change before the first loss of power, which the log says.
private enum Gap: Int, CaseIterable { case used, usedTwice, usedAgain, passed, passedBefore }

/// A kept entry changes after the last checkpoint. After the loss of power the log has a gap there.
private func checkGap(_ change: Change, _ gap: Gap) {
  let isTwice = gap == .usedTwice
  let isPassed = gap == .passed || gap == .passedBefore
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
  // A checkpoint ends in the segment of the change, if that is the one that is passed in part.
  if isPassed { fillSegment() }
  guard let kept = store!.match(key) else { fail("the entry is not kept") }
  trying { () throws(Failure) in check(try store!.writeCheckpoint(), "no checkpoint") }

  if !isPassed { fillSegment() }
  let changed = store!.end
  switch change {
  case .replaced: store!.put(key, 2, at: now)
  case .removed: store!.remove(key, at: now)
  case .untouched: putOther()
  }
  let address = kept.entry.address
  guard let trailer = store!.trailer(kept.entry) else { fail("the entry is not kept") }
  let origin = SharedWords.load(trailer)
  SharedWords.store(trailer + 8, 0)
  func passIt() {
    while store!.words.load(IndexAt.cleaning) <= changed { putOther() }
    check(store!.seat(of: changed) != nil, "the segment has gone")
  }
  // The cleaner comes to these before it comes to the newest one.
  for _ in 0..<3 { fillSegment() }
  if gap == .passedBefore {
    passIt()
    store!.remove(1, at: now)
  }
  putOther()
  let last = (other - 1) * 16
  store = nil
  loseIndex(scratch.path)

  store = LogStore.openAt(scratch.path, nil)
  var work = LogRebuild()
  func rebuild() -> Bool {
    trying { () throws(Failure) in try store!.rebuild(&work, at: now) }
  }
  if !isTwice && gap != .passedBefore {
    // The newest segment.
    while store!.round(last, at: now) < 0 { check(rebuild(), "the last entry is lost") }
  }
  if gap == .passed {
    passIt()
  } else if gap != .passedBefore && (change != .untouched || isTwice) {
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
  if gap == .passed {
    // What the cleaner has passed has no slot: the counts are right when the segment has gone.
    while store!.seat(of: changed) != nil { putOther() }
  }
  let report = trying { () throws(Failure) in try store!.verify() }
  check(report.isSound, "the index is not sound; change, gap", change.rawValue, gap.rawValue)
  let found = store!.round(key, at: now)
  if change != .untouched {
    check(found != 1, "an older value is there; change, gap", change.rawValue, gap.rawValue)
    check(store!.round(last, at: now) == 1, "what was written last is lost")
  } else if gap == .used {
    check(found == 1, "a kept entry is lost")
  }
  guard gap == .usedAgain || gap == .passedBefore else { return }
  if let seat = store!.seat(of: address), let entry = store!.entry(seat, address),
    let trailer = store!.trailer(entry)
  {
    SharedWords.store(trailer, origin)
    SharedWords.store(trailer + 8, 0)
  }
  store = nil
  loseIndex(scratch.path)
  store = LogStore.openAt(scratch.path, nil)
  work = LogRebuild()
  while rebuild() {}
  check(
    change == .untouched || store!.round(key, at: now) != 1,
    "the next recovery finds an older value; change, gap", change.rawValue, gap.rawValue)
}

/// log_tests gaps
func gaps() -> Int32 {
  for change in Change.allCases {
    for gap in Gap.allCases { checkGap(change, gap) }
  }
  print("every gap")
  return 0
}
