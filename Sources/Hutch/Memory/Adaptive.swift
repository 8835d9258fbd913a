import Synchronization

/// The default: a segmented queue in the mode that suits what the tier is asked for now.
///
/// No fixed policy is best on all loads: what wins on loops loses on recency, and what wins
/// on the web loses on block traces. Here five small shadow caches, on a sample of the keys,
/// try one mode each, and the shards follow the best (see Selector.swift, SegmentedQueue.swift).
/// A hit is a count of two bits in a line that is touched anyway.
struct Adaptive: EvictionPolicy, ~Copyable {
  typealias Node = Links

  private var queue = SegmentedQueue()
  private var ghosts: Ghosts
  private let position: ShardPosition
  private let selector: Selector
  private var tuning: Tuning
  private var generation = 0
  private var calls = 0
  /// The sample's bits, and what hits are compared with: all bits while the credit is used up.
  private var sampled = UInt64.max
  private(set) var sampleMask = UInt64.max
  /// How many sampled hits the shadows are still told of. Where nearly everything hits there is
  /// nothing to choose, and a hit in a small cache costs no more than in a large one.
  private var credit = 0
  private static var creditForMiss: Int { 32 }
  private static var mostCredit: Int { 4096 }

  static var seesHits: Bool { false }
  static var samples: Bool { true }

  init(_ position: ShardPosition, _ common: Selector) {
    self.position = position
    selector = common
    tuning = common.tuning()
    ghosts = Ghosts()
    follow()
  }

  // MARK: capacity

  /// A tier that may hold so few entries is tuned before it has any.
  private static var small: UInt64 { 8192 }

  /// The capacity is looked at once in 64 new entries.
  var wantsCapacity: Bool { calls & 63 == 0 }

  private mutating func consider(_ capacity: UInt64, count: Int) {
    let inTier = UInt64(count) << UInt64(position.bits)
    // Before it is half full, an estimate from what is there means little, and nothing has to
    // go for a while.
    guard capacity <= Adaptive.small || inTier >= capacity / 2 else { return }
    let entries = Int(clamping: min(capacity, 1 << 40))
    if tuning.isOff(entries) { selector.tune(for: entries) }
  }

  /// Takes up the current tuning.
  private mutating func follow() {
    generation = selector.generation.load(ordering: .relaxed)
    tuning = selector.tuning()
    if tuning.capacity == 0 { return }
    do throws(Failure) {
      ghosts = try Ghosts(capacity: max(1, tuning.capacity >> Int(position.bits)))
    } catch {
      ghosts = Ghosts()
    }
    sampled = tuning.sampleBits << UInt64(12 + position.bits)
  }

  // MARK: what happens

  mutating func prepare(
    _ hash: UInt64, isFull: Bool, capacity: UInt64, _ entries: borrowing Entries<Links>
  ) {
    if wantsCapacity { consider(capacity, count: entries.count) }
    calls &+= 1
    if selector.generation.load(ordering: .relaxed) != generation { follow() }
    credit = min(credit + Adaptive.creditForMiss, Adaptive.mostCredit)
    sampleMask = sampled
    let local = Adaptive.local(hash)
    if hash & sampleMask == 0 { sample(hash) }
    queue.prepare(
      position.key(local), ghost: local, isFull: isFull, tuning.mode, tuning.sketch, &ghosts,
      entries)
  }

  mutating func sample(_ hash: UInt64) {
    credit -= 1
    if credit <= 0 { sampleMask = .max }
    selector.sample(position.key(Adaptive.local(hash)), tuning)
  }

  /// What a slot keeps of a hash.
  @inline(__always)
  private static func local(_ hash: UInt64) -> UInt32 {
    UInt32(truncatingIfNeeded: hash >> 32) & ~1
  }

  func uses(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Links>) -> UInt64 {
    tuning.sketch.estimate(entries.key(slot)) + word.uses
  }

  mutating func admit(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Links>) {
    queue.admit(slot, tuning.mode, entries)
  }

  mutating func adopt(
    _ slot: Slot, _ word: Word, _ node: Links, _ entries: borrowing Entries<Links>
  ) {
    queue.adopt(slot, isMain: entries.isMain(slot), entries)
  }

  mutating func forget(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Links>) {
    queue.forget(slot, isMain: entries.isMain(slot), entries)
  }

  mutating func victim(sparing spared: Slot, _ entries: borrowing Entries<Links>) -> Slot? {
    queue.victim(tuning.mode, sparing: spared, tuning.sketch, &ghosts, entries)
  }

  func forEach(_ entries: borrowing Entries<Links>, _ body: (Slot) -> Void) {
    queue.forEach(entries, body)
  }

  func violation(_ entries: borrowing Entries<Links>) -> StaticString? {
    queue.count == entries.count
      ? queue.violation(entries) : "the queues have not every entry once"
  }
}

extension Entries: QueueStore where Node: LinkedNode {
  static var counts: Bool { true }
  @inline(__always) func key(_ slot: Slot) -> UInt32 { position.key(ghost(slot)) }
  @inline(__always) func ghost(_ slot: Slot) -> UInt32 { slab[slot].pointee.hash & ~1 }
  @inline(__always) func uses(_ slot: Slot) -> UInt64 { place(of: slot).pointee.uses }
  @inline(__always)
  func set(_ slot: Slot, uses: UInt64) { place(of: slot).pointee.uses = uses }
  @inline(__always) func isMain(_ slot: Slot) -> Bool { slab[slot].pointee.isMarked }
  @inline(__always)
  func set(_ slot: Slot, isMain: Bool) { slab.mark(slot, isMain) }
}
