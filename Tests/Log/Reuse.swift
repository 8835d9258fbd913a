import CLogTests
import CSystem
import Synchronization

// Segments that are mostly dead are used again before the log grows, below its limit: the log
// stays small, little is copied, nothing is lost, and what lives of each segment is counted.

/// Keys below `hot` are put again and again; the others are put once, among the first of those.
private struct Churn {
  let keys: Int
  let hot: Int
  let limits: TierLimits
  var policy = EvictionPolicy.adaptive
  /// The segments to which the log may grow.
  var most = 32
}

/// Carries out random writes, and follows them.
private func churn(_ churn: Churn, _ random: inout Random) {
  let scratch = Scratch("reuse")
  var store = LogStore.openAt(scratch.path, churn.limits)
  store.livePolicy.store(churn.policy.rawValue, ordering: .relaxed)
  let now = LogStore.moment()
  var model = [Int](repeating: -1, count: churn.keys)
  var (put, written): (UInt64, UInt64) = (0, 0)
  func head(_ stream: LogStream) -> LogAddress { store.words.load(stream.head) }
  for step in 0..<churn.keys + 6000 {
    let key = step < churn.keys ? step : random.next(churn.hot)
    let before = (head(.new), head(.kept))
    switch step < churn.keys ? 0 : random.next(20) {
    case 0..<17:
      model[key] = step
      check(store.put(key, step, at: now).outcome == .stored, "a put")
      put += LogFormat.units(LogEntry.At.fields + 16 + Value.size(key, step))
    case 17..<19:
      model[key] = -1
      store.remove(key, at: now)
    default:
      check(store.round(key, at: now, isAccess: true) == model[key], "another value, of key", key)
    }
    // A segment that begins hides a few units.
    if head(.kept) > before.1 && head(.kept) - before.1 < store.segmentUnits {
      written += head(.kept) - before.1
    }
    if random.next(1000) == 0 {
      if random.next(2) == 0 { check(store.close() == nil, "close") }
      store = LogStore.openAt(scratch.path, nil)
      store.livePolicy.store(churn.policy.rawValue, ordering: .relaxed)
    }
  }
  for key in 0..<churn.keys {
    check(store.round(key, at: now) == model[key], "another value at the end, of key", key)
  }
  let report = trying { () throws(Failure) in try store.verify() }
  check(report.isSound, "the sums are wrong")
  let most = put / 3 + 10 * store.segmentUnits
  check(written <= most, "too much was copied", Int(written), Int(put))
  // What lives takes two to three segments, and there may be 60.
  let places = Int(store.words.load(IndexAt.places))
  check(places <= churn.most, "the log has grown, of keys, to segments", churn.keys, places)
  check(store.words.load(IndexAt.next) > UInt64(3 * places), "little was put")

  // What is left alone is given back.
  for key in 0..<churn.keys { store.remove(key, at: now) }
  giveBack(store, at: now)
  check(store.count == 0, "entries are left")
}

/// Gives back all that maintenance gives back, and looks at the slices and at the end.
private func giveBack(_ store: LogStore, at now: Moment) {
  let most = 512 * 8 + 2 * LogFormat.units(Value.size(15, 0) + 400)
  var hasMore = true
  while hasMore {
    let before = store.words.load(IndexAt.keptHead)
    hasMore = store.giveBackDead(at: now.time)
    let copied = store.words.load(IndexAt.keptHead) &- before
    // A look costs one of 512, a copy one more for each 8 units.
    check(
      copied < most || copied > store.segmentUnits, "a slice copies much", Int(copied), Int(most))
  }
  let segments = 2 * store.usedSegments + 5
  check(store.segmentCount <= segments, "dead segments stay", store.segmentCount, segments)
  let report = trying { () throws(Failure) in try store.verify() }
  check(report.isSound, "the sums are wrong after that")
}

/// What a clear leaves is given back too, and the numbers that the table has of it count for no
/// later segment: also not when the table has come round.
private func clear() {
  let scratch = Scratch("clear")
  let store = LogStore.openAt(scratch.path, TierLimits(cost: 2_000_000))
  let now = LogStore.moment()
  func fill() { for key in 0..<1000 { store.put(key, 1, at: now) } }
  fill()
  check(store.segmentCount > 8, "too little for a test", store.segmentCount)
  let next = store.words.load(IndexAt.next)
  trying { () throws(Failure) in try store.clear() }
  giveBack(store, at: now)
  store.words.store(IndexAt.next, next - 8 + UInt64(IndexAt.seatCount))
  fill()
  check(trying { () throws(Failure) in try store.verify() }.isSound, "cleared entries live")
  check(store.count == 1000, "entries are missing", Int(store.count))
}

/// A few entries of each segment live, all of them large: slices of maintenance move them.
private func thinOut() {
  let scratch = Scratch("thin")
  let store = LogStore.openAt(scratch.path, TierLimits(cost: 32 << 20))
  let now = LogStore.moment()
  let keys = (0..<3000).map { 16 * $0 + 15 }
  for key in keys { store.put(key, 1, at: now) }
  for key in keys where key % 5 != 0 { store.remove(key, at: now) }
  giveBack(store, at: now)
  for key in keys {
    check(store.round(key, at: now) == (key % 5 == 0 ? 1 : -1), "another value, of key", key)
  }
}

/// Maintenance gives back what is dead when no segment has begun for 10 seconds.
private func wait() {
  TestClock.stop()
  let scratch = Scratch("wait")
  let storage = LogStorage.openAt(scratch.path, .process, TierLimits(cost: 2_000_000))
  let store = storage.store!
  let now = LogStore.moment()
  for key in 0..<1000 { store.put(key, 1, at: now) }
  for key in 0..<1000 { store.remove(key, at: now) }
  let segments = store.segmentCount
  check(segments > 8, "too little for a test", segments)
  func maintain() { storage.maintainAll(at: LogStore.moment()) }
  maintain()
  TestClock.pass(9 * second)
  let next = store.words.load(IndexAt.next)
  for round in 0..<100 where store.words.load(IndexAt.next) == next {
    for key in 0..<20 { store.put(key, round, at: now) }
  }
  check(store.words.load(IndexAt.next) > next, "no segment was begun")
  maintain()
  TestClock.pass(9 * second)
  maintain()
  check(store.segmentCount >= segments, "what the next puts need is given back")
  TestClock.pass(second)
  maintain()
  check(store.segmentCount <= 5, "dead segments stay", store.segmentCount)
}

/// Under `power` the place of a segment waits for a checkpoint: the log grows to 64 MB before it
/// is used again, and nothing is given back.
private func grow() {
  let scratch = Scratch("power")
  let store = LogStore.openAt(scratch.path, TierLimits(cost: 128 << 20))
  trying { () throws(Failure) in try store.raise(to: .power) }
  let now = LogStore.moment()
  let begun = store.words.load(IndexAt.begun)
  let most = Int(LogStore.mostAhead) / Int(store.segmentUnits)
  var round = 0
  func put(_ segments: UInt64) {
    let next = store.words.load(IndexAt.next) + segments
    while store.words.load(IndexAt.next) < next {
      store.put(round % 20, round, at: now)
      round += 1
    }
  }
  put(UInt64(most))
  check(store.words.load(IndexAt.begun) == begun, "the log waits for a checkpoint")
  check(!store.giveBackDead(at: now.time) && store.segmentCount == most, "it gives back")
  put(UInt64(2 * most))
  check(store.words.load(IndexAt.begun) > begun, "no checkpoint")
  check(store.segmentCount <= most + 2, "the log grows on", store.segmentCount, most)
  check(trying { () throws(Failure) in try store.verify() }.isSound, "the sums are wrong")
}

/// What lives is counted anew where the index was lost.
private func recover() {
  let scratch = Scratch("recovered")
  do {
    let store = LogStore.openAt(scratch.path, TierLimits(cost: 2_000_000))
    let now = LogStore.moment()
    for key in 0..<100 { store.put(key, key % 7, at: now) }
    for key in 0..<100 where key % 3 == 0 { store.remove(key, at: now) }
    check(store.close() == nil, "close")
  }
  unlink(scratch.path + "/hutch-index")
  let store = LogStore.openAt(scratch.path, nil)
  var work = LogRebuild()
  while trying({ () throws(Failure) in try store.rebuild(&work, at: LogStore.moment()) }) {}
  check(store.count == 66, "entries are missing", Int(store.count))
  check(trying { () throws(Failure) in try store.verify() }.isSound, "the sums are wrong")
}

/// log_tests reuse [COUNT] [SEED]
func reuse(_ arguments: Arguments) -> Int32 {
  let count = arguments[0].map { Int(atoi($0)) } ?? (getenv("HUTCH_LONG") != nil ? 200 : 8)
  var random = Random(seed(arguments[1]))
  let large = TierLimits(cost: 2_000_000)
  clear()
  thinOut()
  grow()
  recover()
  for _ in 0..<count {
    churn(Churn(keys: 60, hot: 60, limits: large), &random)
    // A few of the first entries stay, in one case a segment full of them.
    churn(Churn(keys: 120, hot: 50, limits: large), &random)
    churn(Churn(keys: 80, hot: 72, limits: large), &random)
    // Where LRU leaves the rare entries is chance: most runs need at most 22 segments, and one in
    // fifty some 34.
    churn(Churn(keys: 80, hot: 72, limits: large, policy: .lru, most: 48), &random)
    churn(Churn(keys: 60, hot: 60, limits: large, policy: .fifo, most: 52), &random)
  }
  wait()
  return 0
}
