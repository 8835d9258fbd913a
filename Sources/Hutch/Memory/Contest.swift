import CSystem
import Synchronization

/// The modes' contest: for each a shadow, all asked for the same sample of keys, and the leader.
///
/// A shadow is asked only whether its mode would have had hits, so it must know what its mode
/// would know: from a sketch that counts the real cache's misses and not its hits, a shadow of
/// another mode than the leader's learns that its own entries are rare. So each mode that compares
/// frequencies has a sketch of its own, thinner as the sample is, and counts what happens to it.
/// In a small tier that would take too much memory, and all share the real cache's.
final class Contest {
  private struct Entrant: ~Copyable {
    var shadow: Shadow
    /// Empty if the shadows share the real cache's, or the mode compares no frequencies.
    let sketch: FrequencySketch
  }

  /// A key belongs to the sample if it has none of these bits, which begin at bit 0.
  let sampleBits: UInt64
  /// The mode that the shards follow. Written under the selector's lock.
  let leader: Atomic<Int>
  /// One for each mode, or none. The selector's lock protects them and the fields below.
  private var entrants: UnsafeMutablePointer<Entrant>?
  private var entrantCount = 0
  private let hasSketches: Bool
  /// Hits, as many numbers as there are modes (`Mode.count`); older hits count less.
  private var scores = InlineArray<6, Double>(repeating: 0)
  private var weight = 1.0
  private let growth: Double

  /// The fewest entries of a tier whose shadows have sketches.
  private static var fewestForSketches: Int { 1025 }
  /// Shadows that are larger than the smallest need be have at most this share of the tier's
  /// entries, which bounds their part of the memory per entry, and at most so many.
  private static var share: Int { 16 }
  private static var mostEntries: Int { 4096 }
  /// Requests of the sample after which one counts 1/e of what it did: so many for each entry of
  /// a shadow, and not so few that one round of a loop decides. Where costs count fewer are hits.
  private static func memory(_ size: Int, weighs: Bool) -> Double {
    weighs ? 80 * Double(size) : max(14_000, 40 * Double(size))
  }

  /// The bytes of all shadows without entries but for a chunk of slots, and for one entry of each.
  static var emptyBytes: Int { Mode.count * (MemoryLayout<Entrant>.stride + Slab.bytesPerChunk) }
  static var bytesPerEntry: Int { Mode.count * Shadow.bytesPerEntry }

  /// No mode takes part.
  private init(leader: Int, thinning: Int, memory: Double, hasSketches: Bool) {
    self.leader = Atomic(leader)
    sampleBits = UInt64(thinning - 1)
    growth = 1 / (1 - 1 / memory)
    self.hasSketches = hasSketches
  }

  /// `capacity`: the entries of the tier; 0: not known, and no mode takes part. `leader`: the
  /// leader at first. `costLimit`: the tier's, if costs are to count; else 0. `mostEntries`: the
  /// most entries of a shadow, in a tier that is not large. Delegates: see Copying.
  convenience init(
    capacity: Int, costLimit: UInt64, leader: Int, mostEntries: Int
  ) throws(Failure) {
    let weighs = costLimit != 0
    let most =
      weighs
      ? mostEntries / 2
      : max(mostEntries, min(Contest.mostEntries, capacity / Contest.share))
    var thinning = 1
    while capacity / thinning > most { thinning *= 2 }
    let size = Contest.size(of: capacity, thinning)
    self.init(
      leader: leader, thinning: thinning, memory: Contest.memory(size, weighs: weighs),
      hasSketches: capacity >= Contest.fewestForSketches && !weighs)
    if capacity == 0 { return }
    let entrants = try Allocation.bytes(Mode.count * MemoryLayout<Entrant>.stride)
      .bindMemory(to: Entrant.self, capacity: Mode.count)
    self.entrants = entrants
    while entrantCount < Mode.count {
      let mode = Mode.number(entrantCount)
      let shadow = try Shadow(
        mode, capacity: size, costLimit: weighs ? max(1, costLimit / UInt64(thinning)) : 0,
        counts: hasSketches)
      let sketch = try FrequencySketch(
        capacity: hasSketches && mode.comparesFrequencies ? capacity : 0, thinning: thinning)
      (entrants + entrantCount).initialize(to: Entrant(shadow: shadow, sketch: sketch))
      entrantCount += 1
    }
  }

  /// The entries of a shadow. The sample has more or fewer of the popular keys than it should, by
  /// chance. With fewer, the shadows would hold all of a loop that is a little too large for the
  /// tier, and no mode would lead. So the shadows are smaller, by one standard deviation.
  private static func size(of capacity: Int, _ thinning: Int) -> Int {
    let expected = (capacity + thinning / 2) / thinning
    let deviation = (Double(expected) * (1 - 1 / Double(thinning))).squareRoot()
    return max(1, expected - Int(deviation))
  }

  deinit {
    entrants?.deinitialize(count: entrantCount)
    free(entrants)
  }

  /// Memory, all in; for tests.
  var bytes: Int {
    var sum = 0
    for i in 0..<entrantCount {
      let entrant = entrants.unsafelyUnwrapped + i
      sum += entrant.pointee.shadow.bytes + entrant.pointee.sketch.bytes
    }
    return sum
  }

  /// A key of the sample was read or put; its entry's cost, but for a miss. `sketch`: the real
  /// cache's.
  func sample(
    _ key: UInt32, cost: UInt64, _ sketch: borrowing FrequencySketch, as access: Access
  ) {
    guard let entrants else { return }
    // Growing the weight of what comes is decay of what was.
    if access != .put { weight *= growth }
    var best = 0
    for i in 0..<Mode.count {
      let entrant = entrants + i
      let isHit =
        hasSketches
        ? entrant.pointee.shadow.ask(key, cost: cost, entrant.pointee.sketch, as: access)
        : entrant.pointee.shadow.ask(key, cost: cost, sketch, as: access)
      if isHit { scores[i] += i == Mode.queue ? Mode.worthOfQueueHit * weight : weight }
      if scores[i] > scores[best] { best = i }
    }
    let now = leader.load(ordering: .relaxed)
    // In hits of this moment: fewer may be chance.
    let margin: Double = best == Mode.queue ? 32 : 3
    if best != now && scores[best] > 1.01 * scores[now] + margin * weight {
      leader.store(best, ordering: .relaxed)
    }
    if weight > 1e100 {
      for i in 0..<Mode.count { scores[i] /= weight }
      weight = 1
    }
  }

  func violation() -> StaticString? {
    for i in 0..<entrantCount {
      if let found = entrants.unsafelyUnwrapped[i].shadow.violation() { return found }
    }
    return nil
  }
}
