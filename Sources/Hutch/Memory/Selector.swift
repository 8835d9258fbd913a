import CSystem
import Synchronization

/// Which mode all shards of a tier follow: the one whose shadow has had the most hits of late.
///
/// Every shadow is asked for the same sample of keys, thin enough that it has at most 512
/// entries for the tier's capacity, or fewer where there are very many shards. A switch moves no
/// entry: it changes what becomes of the next ones.
final class Selector {
  /// Protects `current` and the shadows of every tuning. Taken under a shard's lock, which is
  /// the order. A sample that finds it taken is dropped; only a shard that takes up a new
  /// tuning waits.
  private let lock: Lock
  private var current: Tuning
  /// Which tuning is current: grows by one.
  let generation = Atomic<Int>(0)
  /// Of the largest shadow.
  private let mostEntries: Int

  /// The policy's memory beyond what it has for each entry.
  static var mostBytes: Int { 128 << 10 }

  /// What is left by the sketch and so many shards is the shadows'.
  init(shardBits: UInt32) throws(Failure) {
    lock = try Lock()
    current = try Tuning(capacity: 0, costLimit: 0, after: nil, mostEntries: 0)
    let taken =
      FrequencySketch.fewestBytes + Adaptive.size << Int(shardBits) + Tuning.emptyBytes
    let left = Selector.mostBytes - taken
    mostEntries = max(64, min(Shadow.mostEntries, left / Tuning.bytesPerEntry))
  }

  /// What a shard is to go by from now on.
  func tuning() -> Tuning { lock.withLock { current } }

  /// Begins anew for another capacity. If memory ends, things stay as they are.
  /// `costLimit`: of the tier, if costs are to count; else 0.
  func tune(for capacity: Int, costLimit: UInt64) {
    lock.withLock {
      guard current.isOff(capacity, costLimit) else { return }
      do throws(Failure) {
        current = try Tuning(
          capacity: capacity, costLimit: costLimit, after: current, mostEntries: mostEntries)
        generation.store(generation.load(ordering: .relaxed) + 1, ordering: .relaxed)
      } catch {}
    }
  }

  /// A key of the sample was asked for; its entry's cost.
  func sample(_ key: UInt32, cost: UInt64, _ tuning: Tuning) {
    guard lock.tryLock() else { return }
    tuning.sample(key, cost: cost)
    lock.unlock()
  }

  /// What is wrong with the shadows, or nil. For tests.
  func violation() -> StaticString? { lock.withLock { current.violation() } }
}

/// The sketch and the shadows for one capacity.
final class Tuning {
  /// Of the tier, in entries; 0: nothing is known, and there is neither.
  let capacity: Int
  /// Whether costs count.
  let weighs: Bool
  let sketch: FrequencySketch
  let leader: Atomic<Int>
  /// A key belongs to the sample if it has none of these bits, which begin at bit 0.
  let sampleBits: UInt64
  private let shadows: UnsafeMutablePointer<Shadow>?
  /// Hits, of which the older ones count less.
  private var scores = InlineArray<5, Double>(repeating: 0)
  private var weight = 1.0
  private let growth: Double

  /// What all shadows take without entries, and for one entry of each.
  static var emptyBytes: Int { Mode.count * MemoryLayout<Shadow>.stride }
  static var bytesPerEntry: Int { Mode.count * Shadow.bytesPerEntry }

  /// Memory, all in; for tests.
  var bytes: Int {
    var sum = sketch.bytes
    if let shadows { for i in 0..<Mode.count { sum += shadows[i].bytes } }
    return sum
  }

  /// `mostEntries`: of a shadow.
  init(
    capacity: Int, costLimit: UInt64, after last: Tuning?, mostEntries: Int
  ) throws(Failure) {
    self.capacity = capacity
    weighs = costLimit != 0
    if let last, last.weighs == weighs {
      leader = Atomic(last.leader.load(ordering: .relaxed))
    } else {
      leader = Atomic(weighs ? Mode.firstByCost : Mode.first)
    }
    sketch = try FrequencySketch(capacity: capacity)
    // Where costs count the capacity is an estimate, which moves as the policy does its work.
    if let last, weighs { sketch.take(from: last.sketch) }
    let most = weighs ? mostEntries / 2 : mostEntries
    var thinning = 1
    while capacity / thinning > most { thinning *= 2 }
    let size = max(1, (capacity + thinning / 2) / thinning)
    sampleBits = UInt64(thinning - 1)
    growth = 1 / (1 - 1 / (80 * Double(size)))
    guard capacity > 0 else {
      shadows = nil
      return
    }
    let memory = UnsafeMutableRawPointer(
      try Allocation.array(UInt64.self, Mode.count * MemoryLayout<Shadow>.stride / 8 + 8)
    )
    .bindMemory(to: Shadow.self, capacity: Mode.count)
    var made = 0
    do throws(Failure) {
      while made < Mode.count {
        (memory + made).initialize(
          to: try Shadow(
            .number(made), capacity: size,
            costLimit: weighs ? max(1, costLimit / UInt64(thinning)) : 0))
        made += 1
      }
    } catch {
      memory.deinitialize(count: made)
      free(memory)
      throw error
    }
    shadows = memory
  }

  deinit {
    guard let shadows else { return }
    shadows.deinitialize(count: Mode.count)
    free(shadows)
  }

  @inline(__always)
  var mode: Mode { .number(leader.load(ordering: .relaxed)) }

  /// Whether the capacity is not about this one any more.
  func isOff(_ other: Int, _ costLimit: UInt64) -> Bool {
    other > 2 * capacity || other < capacity / 2 || weighs != (costLimit != 0)
  }

  func violation() -> StaticString? {
    guard let shadows else { return nil }
    for i in 0..<Mode.count {
      if let found = shadows[i].violation() { return found }
    }
    return nil
  }

  /// Under the selector's lock.
  func sample(_ key: UInt32, cost: UInt64) {
    guard let shadows else { return }
    // Growing the weight of what comes is decay of what was.
    weight *= growth
    var best = 0
    for i in 0..<Mode.count {
      if shadows[i].ask(key, cost: cost, sketch) { scores[i] += weight }
      if scores[i] > scores[best] { best = i }
    }
    let now = leader.load(ordering: .relaxed)
    if best != now && scores[best] > 1.01 * scores[now] + 3 * weight {
      leader.store(best, ordering: .relaxed)
    }
    if weight > 1e100 {
      for i in 0..<Mode.count { scores[i] /= weight }
      weight = 1
    }
  }
}
