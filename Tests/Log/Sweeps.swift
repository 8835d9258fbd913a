internal import CHutch
import CLogTests
import CSystem
import Synchronization

// What maintenance finds and removes: the entries that have expired, all of them, and no other;
// and when it looks for them. The clocks stand still but where a test moves them.

/// A tier above the store, which has reads that the store does not know of.
final class TierAbove: StorageObserver {
  /// When it last read each entry; nil: it has none.
  var lastAccess: Int64?
  /// The number of a key whose entry it has, and answers reads with.
  var read: Int?
  /// What happens while it is asked.
  var whileAsked: () -> Void = {}
  private(set) var drops = [0, 0, 0, 0]

  var identity: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }
  func storeDrops(_ key: Bytes, _ version: UInt64, _ cause: DropCause) {
    drops[Int(cause.rawValue)] += 1
  }
  func storeDropped(_ key: Bytes, _ version: UInt64) {}
  func storeCommits(_ key: Bytes, _ hash: UInt64, _ version: UInt64, _ mark: UInt32) {}
  func lastAccess(of key: Bytes, _ version: UInt64) -> Int64? {
    whileAsked()
    return lastAccess
  }
  func hasUsed(_ key: Bytes, _ version: UInt64, isOften: Bool) -> Bool {
    read.map { key.loadUnaligned(as: UInt64.self) == UInt64($0) } ?? false
  }
  var quietLines: UInt64 { .max }
  func storeReturns(_ firstVersion: UInt64) {}
  func storeChanged(_ failure: Failure?) {}
  func log(_ line: LogLine) {}
}

extension LogStorage {
  fileprivate var walks: UInt64 { store!.words.load(IndexAt.walks) }
  fileprivate var count: Int { Int(store!.count) }
  fileprivate func maintain() { maintainAll(at: LogStore.moment()) }

  /// Entries that end after so many seconds, or, if nobody reads them, after `idle` seconds.
  fileprivate func put(_ keys: Range<Int>, endingAfter life: Int64 = 0, idle: Int64 = 0) {
    let now = LogStore.moment()
    for key in keys {
      store!.put(key * 16, 1, at: now) {
        $0.accessed = now.time
        if life > 0 { $0.expires = now.time + life * second }
        $0.timeToIdle = idle * second
      }
    }
  }
}

/// So much later maintenance leaves so many entries.
private func check(_ storage: LogStorage, _ time: Int64, leaves left: Int, _ words: StaticString) {
  TestClock.pass(time)
  storage.maintain()
  check(storage.count == left, words, storage.count, left)
}

private func open(_ scratch: borrowing Scratch, _ limits: TierLimits = TierLimits()) -> LogStorage {
  LogStorage.openAt(scratch.path, .process, limits)
}

/// Each entry goes at the first maintenance after its end. A walk that has removed entries is
/// followed by another one, which finds that none was kept alive, and then there is none before the
/// next end.
private func checkEnds() {
  let scratch = Scratch("ends")
  let storage = open(scratch)
  storage.put(0..<10)
  storage.put(10..<30, endingAfter: 10)
  storage.put(30..<60, endingAfter: 20)
  let steps = [
    (9, 60, 0), (2, 40, 1), (1, 40, 2), (1, 40, 2), (9, 10, 3), (1000, 10, 4), (1000, 10, 4),
  ]
  for (passed, left, walks) in steps {
    check(storage, Int64(passed) * second, leaves: left, "entries after a walk")
    check(storage.walks == UInt64(walks), "walks", Int(storage.walks), walks)
  }
  check(storage.stats.expirations == 50 && storage.stats.evictions == 0, "what the entries went of")
}

/// Over many pages a walk takes more than one slice, and between two of them entries come.
private func checkSlices() {
  let scratch = Scratch("slices")
  let storage = open(scratch)
  storage.put(0..<4000, endingAfter: 10)
  storage.put(4000..<8000, endingAfter: 30)
  TestClock.pass(11 * second)
  var slices = 1
  while storage.maintain(at: LogStore.moment()) {
    if slices == 1 {
      check(storage.count < 8000 && storage.count > 4000, "after a slice", storage.count)
      storage.put(8000..<8100, endingAfter: 5)
    }
    slices += 1
  }
  check(slices > 2 && storage.walks == 1, "slices", slices, Int(storage.walks))
  check(storage.count == 4100, "after a walk in slices", storage.count)
  check(storage, 6 * second, leaves: 4000, "what came during the walk")
  check(storage, 14 * second, leaves: 0, "what the walk has met and left")
}

/// A walk whose process dies is begun anew, and finds what it would have found.
private func checkDeadWalker() {
  let scratch = Scratch("walker")
  let (first, other) = (open(scratch), open(scratch))
  first.put(0..<8000, endingAfter: 10)
  TestClock.pass(11 * second)
  check(first.maintain(at: LogStore.moment()), "a walk in one slice")
  let left = other.count
  other.maintain()
  check(other.count == left && other.walks == 1, "two walks at a time")
  TestClock.pass(3 * second)
  other.maintain()
  check(other.count == 0 && other.walks == 2, "after a walker that has died", other.count)
}

/// Entries that were written before the directory had this age end by it.
private func checkNewAges() {
  let scratch = Scratch("new-ages")
  let storage = open(scratch)
  storage.put(0..<20)
  TestClock.pass(30 * second)
  storage.maintain()
  check(storage.walks == 0, "a walk for what does not end")
  var limits = TierLimits()
  limits.ages.timeToLive = 60 * second
  trying { () throws(Failure) in try storage.setLimits(limits, at: LogStore.moment()) }
  storage.put(20..<30)
  check(storage, 31 * second, leaves: 10, "by a new age")
  check(storage, 30 * second, leaves: 0, "by a new age, later")
}

/// What the tier above has read stays until it is idle there, too.
private func checkAbove() {
  let scratch = Scratch("above")
  let storage = open(scratch)
  let above = TierAbove()
  storage.watch(by: above)
  storage.put(0..<20, idle: 10)
  TestClock.pass(11 * second)
  above.lastAccess = LogStore.moment().time - second
  storage.maintain()
  check(storage.count == 20, "what is read above stays", storage.count)
  above.lastAccess = nil
  check(storage, 5 * second, leaves: 20, "it stays as long as after another read")
  TestClock.pass(6 * second)
  storage.maintain()
  check(storage.count == 0 && above.drops == [0, 20, 0, 0], "it ends later", storage.count)
}

/// After a long walk the next one waits, under the system's clock.
private func checkPause(hasHostsClock: Bool) {
  let scratch = Scratch("pause")
  let storage: LogStorage
  if hasHostsClock {
    storage = trying { () throws(Failure) in
      var options = StorageOptions()
      options.kind = .log
      options.limits = TierLimits()
      let text = strdup(scratch.path)!
      defer { free(text) }
      return try LogStorage.open(
        directory: try Directory.open(path: text), options: options,
        clock: Clock(function: { _ in LogStore.moment().time }, context: nil, release: nil))
    }
  } else {
    storage = open(scratch)
  }
  let above = TierAbove()
  storage.watch(by: above)
  storage.put(0..<2, idle: 10)
  let millisecond: Int64 = 1_000_000
  // Each of the two entries takes so long.
  above.whileAsked = { TestClock.pass(5 * millisecond) }
  TestClock.pass(11 * second)
  storage.maintain()
  check(storage.count == 0 && storage.walks == 1, "a long walk", storage.count)
  storage.put(0..<1, endingAfter: 0, idle: 0)
  let now = LogStore.moment()
  storage.store!.put(16, 1, at: now) { $0.expires = now.time + 20 * millisecond }
  check(storage, 140 * millisecond, leaves: hasHostsClock ? 1 : 2, "within the pause")
  check(storage, 20 * millisecond, leaves: 1, "after the pause")
}

/// While entries get their slots after a loss of power no walk begins: it would not meet them all.
/// Afterwards it finds those that have ended.
private func checkRecovered() {
  let scratch = Scratch("recovered")
  var storage: LogStorage? = open(scratch)
  storage!.put(0..<3000, endingAfter: 10)
  storage!.put(3000..<3100, endingAfter: 100)
  trying { () throws(Failure) in
    check(try storage!.store!.writeCheckpoint(), "no checkpoint")
  }
  storage = nil
  loseIndex(scratch.path)
  TestClock.pass(11 * second)
  storage = open(scratch)
  while storage!.store!.isRebuilding {
    check(storage!.walks == 0, "a walk before the slots are there")
    _ = storage!.maintain(at: LogStore.moment())
  }
  storage!.maintain()
  check(storage!.count == 100, "after a recovery", storage!.count)
  check(storage!, 100 * second, leaves: 0, "after a recovery, later")
}

/// A trim of the expired walks, if anything may have expired, or if it is asked for by itself; and
/// a walk of a cursor meets none that has.
private func checkCallers() {
  let scratch = Scratch("callers")
  let storage = open(scratch)
  storage.put(0..<10)
  storage.put(10..<30, endingAfter: 10)
  func mustWalk(_ goal: TrimGoal?) -> Bool {
    trying { () throws(Failure) in
      try storage.removeExpired(to: goal, at: LogStore.moment()).mustWalk
    }
  }
  let goal = TrimGoal(amount: 5, countsEntries: true)
  check(mustWalk(nil) && !mustWalk(goal), "before the first end")
  TestClock.pass(11 * second)
  check(mustWalk(nil) && mustWalk(goal), "after the first end")
  for (moment, count) in [(LogStore.moment(), 10), (nil, 30)] as [(Moment?, Int)] {
    var met = 0
    var place = WalkPlace()
    trying { () throws(Failure) in
      while !place.isAtEnd { try storage.walk(&place, at: moment) { _, _ in met += 1 } }
    }
    check(met == count, "the entries that a cursor meets", met, count)
  }
}

/// log_tests sweeps
func sweeps() -> Int32 {
  TestClock.stop()
  TestClock.pass(1000 * second)
  checkEnds()
  checkSlices()
  checkDeadWalker()
  checkNewAges()
  checkAbove()
  for hasHostsClock in [false, true] { checkPause(hasHostsClock: hasHostsClock) }
  checkRecovered()
  checkCallers()
  print("every sweep")
  return 0
}
