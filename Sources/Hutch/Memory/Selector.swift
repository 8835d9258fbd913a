import CSystem
import Synchronization

/// Which mode all shards of a tier follow: the one whose shadow has had the most hits of late
/// (Contest.swift). A switch moves no entry: it changes what becomes of the next ones.
final class Selector {
  /// Protects `current` and every contest. Taken under a shard's lock, which is
  /// the order. A sample that finds it taken is dropped; only a shard that takes up a new
  /// tuning waits.
  private let lock = Lock()
  private var current: Tuning
  /// Which tuning is current: grows by one.
  let generation = Atomic<Int>(0)
  /// The most entries of a shadow in a tier that is not large.
  private let mostEntries: Int

  /// The policy's memory beyond that for each entry.
  static var mostBytes: Int { 128 << 10 }

  private init(_ tuning: Tuning, mostEntries: Int) {
    current = tuning
    self.mostEntries = mostEntries
  }

  /// The shadows get the memory that the sketch and so many shards leave. Delegates: see Copying.
  convenience init(shardBits: UInt32) throws(Failure) {
    let taken =
      FrequencySketch.fewestBytes + Policy.size << Int(shardBits) + Contest.emptyBytes
    let left = Selector.mostBytes - taken
    self.init(
      try Tuning(capacity: 0, costLimit: 0, isFilling: false, after: nil, mostEntries: 0),
      mostEntries: max(64, min(Shadow.mostEntries, left / Contest.bytesPerEntry)))
  }

  /// The mode that a shard follows from now on. Under a shard's lock: a fork, which takes those,
  /// finds this lock free only because of that.
  func tuning() -> Tuning { lock.withLock { current } }

  /// Begins anew for another capacity, or, where that is the same, goes on with what a tier needs
  /// that has been filled. If memory ends, things stay as they are.
  /// `costLimit`: of the tier, if costs are to count; else 0.
  func tune(for capacity: Int, costLimit: UInt64, isFilling: Bool) {
    lock.withLock {
      guard current.isOff(capacity, costLimit, isFilling: isFilling) else { return }
      do throws(Failure) {
        current = try Tuning(
          capacity: capacity, costLimit: costLimit, isFilling: isFilling, after: current,
          mostEntries: mostEntries)
        generation.store(generation.load(ordering: .relaxed) + 1, ordering: .relaxed)
      } catch {}
    }
  }

  /// See Contest.
  func sample(_ key: UInt32, cost: UInt64, _ tuning: Tuning, as access: Access) {
    guard lock.tryLock() else { return }
    tuning.contest.sample(key, cost: cost, tuning.sketch, as: access)
    lock.unlock()
  }

  /// The shadows' invariant that does not hold, or nil. For tests.
  func violation() -> StaticString? { lock.withLock { current.contest.violation() } }
}

/// The state for a tier of one capacity: the sketch and the contest.
final class Tuning {
  /// The capacity of the tier in entries; 0: nothing is known, and there is neither.
  let capacity: Int
  /// Whether costs count.
  let weighs: Bool
  /// Whether nothing has to go for a while, so that there is a contest and no sketch.
  let isFilling: Bool
  let sketch: FrequencySketch
  let contest: Contest

  /// Whether a tier that is full has all it needs.
  var isComplete: Bool { capacity > 0 && !isFilling }

  /// Memory, all in; for tests.
  var bytes: Int { sketch.bytes + contest.bytes }

  /// The same, about, by what does not change.
  @inline(__always)
  var sizes: Int {
    sketch.bytes &+ Contest.emptyBytes &+ Contest.bytesPerEntry &* min(capacity, Shadow.mostEntries)
  }

  private init(
    capacity: Int, weighs: Bool, isFilling: Bool, _ sketch: consuming FrequencySketch,
    _ contest: Contest
  ) {
    self.capacity = capacity
    self.weighs = weighs
    self.isFilling = isFilling
    self.sketch = sketch
    self.contest = contest
  }

  /// `mostEntries`: of a shadow, in a tier that is not large. Delegates: see Copying.
  convenience init(
    capacity: Int, costLimit: UInt64, isFilling: Bool, after last: Tuning?, mostEntries: Int
  ) throws(Failure) {
    let weighs = costLimit != 0
    let sketch = try FrequencySketch(capacity: isFilling ? 0 : capacity)
    // Where costs count the capacity is an estimate, which moves as the policy does its work.
    if let last, weighs { sketch.take(from: last.sketch) }
    let contest: Contest
    if let last, last.isFilling, !weighs, !last.isOff(capacity, costLimit, isFilling: true) {
      contest = last.contest
    } else {
      var leader = weighs ? Mode.firstByCost : Mode.first
      if let last, last.weighs == weighs { leader = last.contest.leader.load(ordering: .relaxed) }
      contest = try Contest(
        capacity: capacity, costLimit: costLimit, leader: leader, mostEntries: mostEntries)
    }
    self.init(capacity: capacity, weighs: weighs, isFilling: isFilling, sketch, contest)
  }

  /// Whether this is not for such a tier any more.
  func isOff(_ other: Int, _ costLimit: UInt64, isFilling: Bool) -> Bool {
    other > 2 * capacity || other < capacity / 2 || weighs != (costLimit != 0)
      || self.isFilling != isFilling
  }
}
