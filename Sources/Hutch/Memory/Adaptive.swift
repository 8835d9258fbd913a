import CSystem
import Synchronization

/// The default: a segmented queue in the mode that suits what the tier is asked for now.
///
/// No fixed policy is best on all loads: what wins on loops loses on recency, and what wins
/// on the web loses on block traces. Here six small shadow caches, on a sample of the keys,
/// try one mode each, and the shards follow the best (see Contest.swift, SegmentedQueue.swift).
/// A hit is a count of two bits in a line that is touched anyway.
///
/// READS. The aim is that reads are hits, so reads alone are uses, and alone decide between the
/// modes: also those that miss and put nothing. A write gives a mode an entry and no hit.
///
/// COST. The aim is hits, and an entry that takes the room of a hundred has to be worth
/// a hundred. Where a limit on cost is what binds, and entries differ in cost by more than a
/// factor of two, costs count: in the order of the queues (CostLists.swift), in comparisons of
/// frequency, and in the shadows, which then have a limit on cost too. So the choice of a mode is
/// one for hits under the costs as they are. Where entries cost about the same, or the limit is
/// one of count, cost changes nothing.
///
/// MEMORY. Per entry: its link, 4 bytes; 2 to 4 of the sketch; up to 9 of the contest's shadows and
/// sketches; and 4 of ghosts. Beyond that at most 128 KiB in all: the sketch of a small tier,
/// its shadows and what each shard has, so where there are very many shards the shadows are
/// smaller (Contest.swift, Selector.swift).
struct Adaptive: ~Copyable {
  private var queue = SegmentedQueue()
  private var ghosts: Ghosts
  private let position: ShardPosition
  private let selector: Selector
  private var tuning: Tuning
  private var generation = 0
  /// What is left before the capacity is looked at again: an entry, or 2^unit bytes, count for one.
  private var left: Int32 = 0
  private var unit: UInt8 = 63
  /// How many new entries there have been, of 64 in which changes are counted.
  private var calls: UInt8 = 0
  /// That of the contest's leader, as this shard has seen it last.
  private var mode = Mode.number(Mode.first)
  /// The sample's bits, and what hits are compared with: all bits while the credit is used up.
  private var sampled = UInt64.max
  /// `sampleMask`. Reads that share a shard look at it while one of them changes it.
  private let mask = Atomic<UInt64>(.max)
  /// How many sampled hits the shadows are still told of. Where nearly everything hits there is
  /// nothing to choose, and a hit in a small cache costs no more than in a large one.
  private var credit = 0
  private static var creditForMiss: Int { 32 }
  private static var mostCredit: Int { 4096 }
  /// True if a limit on cost is known. Without it no entry has a class.
  private var hasCosts = false
  /// The class of the last new entry, and how many of late were far from the one before.
  private var lastClass: UInt32 = 0
  private var changes = 0
  private static var manyChanges: Int { 4 }

  init(_ position: ShardPosition, _ common: Selector) {
    ThreadState.assertLock()
    self.position = position
    selector = common
    tuning = common.tuning()
    ghosts = Ghosts()
    follow()
  }

  func hasSelector(_ common: Selector) -> Bool { selector === common }

  /// A read or a write of a key whose hash has none of these bits is told to the policy.
  @inline(__always)
  private(set) var sampleMask: UInt64 {
    get { mask.load(ordering: .relaxed) }
    nonmutating set { mask.store(newValue, ordering: .relaxed) }
  }

  /// `Policy.tell` is called for every hit: of another policy, beside which this is idle.
  func tellAll() { sampleMask = 0 }

  /// The memory of the policy in all shards, about.
  @inline(never)
  var bytes: Int { tuning.sizes &+ ghosts.bytes &<< Int(position.bits) }

  // MARK: capacity

  /// A tier that may hold so few entries is tuned before it has any.
  private static var small: UInt64 { 8192 }

  /// The capacity and the leader are looked at once in 64 new entries; and, unless the tier is
  /// small, once in a 64th of its limit on cost: a few large entries in place of many small ones
  /// leave the policy more memory than it needs.
  private static var mostCalls: UInt8 { 64 }

  private mutating func consider(_ tier: TierCapacity, count: Int) {
    hasCosts = tier.costLimit != .max
    left = Int32(Adaptive.mostCalls)
    if tier.costLimit >= Budget.mostOfSmallTier {
      unit = UInt8(51 - Int(position.bits) - tier.costLimit.leadingZeroBitCount)
    }
    // Once costs count, entries become cheaper and more.
    let costBinds = tier.byCost / 2 <= (tuning.weighs ? tier.byCount : tier.byCount / 2)
    let weighs = hasCosts && costBinds && (tuning.weighs || changes >= Adaptive.manyChanges)
    if calls >= Adaptive.mostCalls { (calls, changes) = (0, 0) }
    let capacity = tier.entries
    let inTier = UInt64(count) << UInt64(position.bits)
    var entries = Int(clamping: min(capacity, 1 << 40))
    var isFilling = false
    if capacity > Adaptive.small && inTier < capacity / 2 {
      // Before it is half full nothing has to go for a while. If the limit is one of count, the
      // contest can begin; an estimate from what is there means little yet, but whether costs
      // count can be seen.
      isFilling =
        !weighs && tier.byCount <= tier.byCost && tier.byCount < 1 << 40 && !tuning.isComplete
      if !isFilling && weighs == tuning.weighs { return }
      if !isFilling { entries = tuning.capacity }
    }
    let limit = weighs ? tier.costLimit : 0
    if tuning.isOff(entries, limit, isFilling: isFilling) {
      selector.tune(for: entries, costLimit: limit, isFilling: isFilling)
    }
  }

  @inline(__always)
  private func costClass(_ charge: UInt64) -> UInt32 {
    hasCosts ? CostLists.costClass(charge) : CostLists.unknownClass
  }

  /// Takes up the current tuning.
  private mutating func follow() {
    generation = selector.generation.load(ordering: .relaxed)
    tuning = selector.tuning()
    queue.weighs = tuning.weighs
    mode = .number(tuning.contest.leader.load(ordering: .relaxed))
    if tuning.capacity == 0 { return }
    sampled = tuning.contest.sampleBits << UInt64(12 + position.bits)
    if tuning.isFilling { return }
    do throws(Failure) {
      ghosts = try Ghosts(capacity: max(1, tuning.capacity >> Int(position.bits)))
    } catch {
      ghosts = Ghosts()
    }
  }

  // MARK: accesses, puts and removals

  /// `isFull`: something has to go for the entry.
  @_optimize(speed)
  mutating func prepare(
    _ hash: UInt64, charge: UInt64, isFull: Bool, _ budget: borrowing Budget,
    _ entries: borrowing Entries
  ) {
    if _slowPath(left <= 0) {
      mode = .number(tuning.contest.leader.load(ordering: .relaxed))
      consider(budget.capacity, count: entries.count)
      budget.review(
        with: charge, idle: budget.idle(entries.bytesPerEntry), policyBytes: bytes)
    }
    calls &+= 1
    left &-= 1 &+ Int32(truncatingIfNeeded: min(charge &>> UInt64(unit), 64))
    if _slowPath(selector.generation.load(ordering: .relaxed) != generation) { follow() }
    let costClass = costClass(charge)
    if hasCosts {
      // Neighbouring classes may be one kind of entry.
      if costClass > lastClass &+ 1 || costClass &+ 1 < lastClass { changes &+= 1 }
      lastClass = costClass
    }
    credit = min(credit &+ Adaptive.creditForMiss, Adaptive.mostCredit)
    sampleMask = sampled
    let local = Adaptive.local(hash)
    if hash & sampleMask == 0 { sample(hash, charge: charge, as: .put) }
    let key = position.key(local)
    tuning.sketch.increment(key)
    queue.prepare(
      key, ghost: local, costClass: costClass, isFull: isFull, mode, tuning.sketch, &ghosts,
      entries)
  }

  mutating func sample(_ hash: UInt64, charge: UInt64, as access: Access) {
    credit -= 1
    if credit <= 0 { sampleMask = .max }
    selector.sample(position.key(Adaptive.local(hash)), cost: charge, tuning, as: access)
  }

  /// The part of a hash that a slot keeps.
  @inline(__always)
  private static func local(_ hash: UInt64) -> UInt32 {
    UInt32(truncatingIfNeeded: hash >> 32) & ~1
  }

  func uses(_ slot: Slot, _ word: Word, _ entries: borrowing Entries) -> UInt64 {
    tuning.sketch.estimate(entries.key(slot)) + word.uses
  }

  @inline(__always)
  mutating func admit(_ slot: Slot, charge: UInt64, _ entries: borrowing Entries) {
    queue.admit(slot, costClass: costClass(charge), mode, tuning.sketch, entries)
  }

  /// Whether an entry belongs to another list now.
  func isOff(_ slot: Slot, charge: UInt64, _ entries: borrowing Entries) -> Bool {
    costClass(charge) != entries.link(slot).pointee.costClass
  }

  /// The entry of a slot that is to be forgotten has this slot now, whose hash and mark are set.
  mutating func move(
    from old: Slot, to slot: Slot, charge: UInt64, _ entries: borrowing Entries
  ) {
    let level = entries.link(old).pointee.level
    entries.link(slot).pointee.tag(costClass: costClass(charge), level: level)
    queue.adopt(slot, isMain: entries.isMain(slot), entries)
  }

  mutating func adopt(_ slot: Slot, _ link: ForwardLink, _ entries: borrowing Entries) {
    entries.link(slot).pointee.tag(costClass: link.costClass, level: link.level)
    queue.adopt(slot, isMain: entries.isMain(slot), entries)
  }

  /// The entry goes before its turn: it is removed, or has expired. If it was used, its key is
  /// remembered as an evicted one is: the next value of the key is likely to be used as well.
  @inline(never)
  mutating func remember(_ slot: Slot, _ place: Table.Place, _ entries: borrowing Entries) {
    let uses = place.pointee.uses
    if uses == 0 && !entries.isMain(slot) { return }
    for _ in 0..<uses { tuning.sketch.increment(entries.key(slot)) }
    ghosts.insert(entries.ghost(slot))
  }

  /// Whether the slot is free; if not, `takeFreed` will give it.
  @inline(__always)
  mutating func forget(_ slot: Slot, _ entries: borrowing Entries) -> Bool {
    queue.forget(slot, isMain: entries.isMain(slot), entries)
  }

  @inline(__always)
  mutating func takeFreed(_ entries: borrowing Entries) -> Slot? { queue.takeFreed(entries) }

  @inline(never)
  @_optimize(speed)
  mutating func victim(
    sparing spared: Slot, _ entries: borrowing Entries, _ ahead: UnsafeMutablePointer<LookAhead>?
  ) -> Victim? {
    victimAtOnce(sparing: spared, entries, ahead)
  }

  /// The same, inlined.
  @inline(__always)
  mutating func victimAtOnce(
    sparing spared: Slot, _ entries: borrowing Entries, _ ahead: UnsafeMutablePointer<LookAhead>?
  ) -> Victim? {
    let victim = queue.victim(mode, sparing: spared, tuning.sketch, &ghosts, entries, ahead)
    if ahead == nil, let victim { entries.lookAhead(from: victim.slot) }
    return victim
  }

  // Mutating, though it changes nothing: Swift 6.3.1 copies a struct to borrow it here.
  mutating func prefetch(_ hash: UInt64) {
    let local = Adaptive.local(hash)
    ghosts.prefetch(local)
    tuning.sketch.prefetch(position.key(local))
  }

  func forEach(_ entries: borrowing Entries, _ body: (Slot) -> Void) {
    queue.forEach(entries, body)
  }

  func violation(_ entries: borrowing Entries) -> StaticString? {
    if queue.count != entries.count { return "the queues have not every entry once" }
    return queue.violation(entries) ?? selector.violation()
  }
}

extension Entries {
  /// The order of victims is known: the words of the next, and the slot of the one after, are
  /// asked for while there is time.
  @inline(__always)
  func lookAhead(from victim: Slot) {
    let next = newer(victim)
    if next.isNone { return }
    table.prefetch(UInt64(slab[next].pointee.hash) &<< 32)
    let after = newer(next)
    if !after.isNone { hutch_prefetch(slab[after]) }
  }
}

/// What the queues know of an entry.
extension Entries {
  /// The key in the sketch.
  @inline(__always) func key(_ slot: Slot) -> UInt32 { position.key(ghost(slot)) }
  /// The key among the ghosts.
  @inline(__always) func ghost(_ slot: Slot) -> UInt32 { slab[slot].pointee.hash & ~1 }
  /// The block is read when the entry goes.
  @inline(__always)
  func uses(_ place: Table.Place) -> UInt64 {
    let word = place.pointee
    hutch_prefetch(word.block0)
    return word.uses
  }
  @inline(__always)
  func set(_ place: Table.Place, uses: UInt64) { place.pointee.uses = uses }
  @inline(__always) func isMain(_ slot: Slot) -> Bool { slab[slot].pointee.isMain }
}
