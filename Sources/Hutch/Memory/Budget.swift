import CSystem
import Synchronization

/// The tier's limits and what counts against them: one budget for all shards.
///
/// A put reserves before it stores, so the sums never exceed the limits, whatever the number of
/// threads. Limits and sums are on lines of their own: every get reads the tier's fields, and
/// every put writes the sums.
///
/// OVERRUN. The charges are the memory of entries. Beside them a tier has memory that no entry
/// uses: holes between blocks that the heap cannot give back, beyond what it may keep (Heap.swift),
/// of which the tier answers for as much as it has of the bytes in use; and slots and words whose
/// entries have gone, after larger entries have replaced many small ones. Both together lower the
/// limit in force by what they are more than a 48th of the limit and 64 KB, or, with what the heap
/// may keep, more than five 64ths of the limit. So do the times of entries that only the tier's
/// ages end, which no charge has, by what they are more than a 32nd of the limit. New limits pay
/// for idle slots and words at once. A put lowers the limit to at most its own charge, and at most
/// 8 KB or a half of its charge, below what is held, so each evicts a little more for a while, and
/// none much. It raises it by at most a quarter of its charge. The limit in force is at least a
/// half of the limit, and all of it once an entry came with a cost of its own, which need not be
/// bytes.
///
/// Meanwhile puts close the holes (`Shard.tighten`), and so do trims and new limits; they also give
/// back slots whose neighbours are idle (`Slab.shrink`). A value of 64 KB needs its room in one
/// piece, and the hundreds of small entries that go for it leave as many holes. So the more room
/// the holes have, the more lines of its table a put looks at: holes are closed as fast as they
/// come, and the limit in force stays near the limit. A put that evicts more than a few entries
/// leaves so many holes that such puts in a row could come to a fifth of the limit. So it closes
/// holes after each few entries that it evicts: the more, the larger it is and the more holes there
/// are. One of up to 64 KB allows for a few holes, which small puts close if it is one among such.
/// At most the last large value is above that: it is in memory before the entries have gone.
///
/// RESERVE. A put of the charge of hundreds of entries would evict as many at once. So the limit in
/// force of a tier that is not small is below the limit by a reserve, a 1,024th of it and at most
/// 256 KB. A put that has evicted many entries gets the rest of its charge from the reserve. The
/// puts after it restore that: each evicts a little more.
///
/// SMALL TIERS. What a tier has at any size, what the heap may keep, and what small entries leave
/// idle when larger ones take their place, is more than a few percent of a small limit. So a tier
/// of less than 64 MB pays for all that its memory is more than its charges and a 16th of the
/// limit. What it pays hardly changes while it is full of entries of the same sizes: it is the
/// `base` of the limit in force, which is reviewed once in some puts, and in each put of the charge
/// of several entries. Below 8 MB small puts close holes slowly. So when new limits make a tier
/// small it pays at once, and the holes of what goes for that are closed before the call returns. A
/// tier of less than half a megabyte does not pay, because little would be left for its entries.
struct Budget: ~Copyable {
  private struct Limits: ~Copyable {
    let cost = Atomic<UInt64>(0)
    let count = Atomic<UInt64>(0)
    let largest = Atomic<UInt64>(0)
    /// At most `cost`, and on its way to `target`, which is at most `base`.
    let costInForce = Atomic<UInt64>(0)
    let target = Atomic<UInt64>(0)
    let base = Atomic<UInt64>(0)
    /// The bytes of the slabs and tables of all shards.
    let places = Atomic<Int>(0)
    /// The limit in force is not `base`.
    let isLowered = Atomic<Bool>(false)
    let hasOwnCosts = Atomic<Bool>(false)
    /// All entries have times, for which those that have only the tier's ages are not charged.
    let hasAges = Atomic<Bool>(false)
    /// As it counts in the heap: a `Heap.TierSize`.
    let size = Atomic<Int8>(0)
  }

  private struct Sums: ~Copyable {
    let cost = Atomic<UInt64>(0)
    let count = Atomic<UInt64>(0)
  }

  /// So many bytes no tier pays for.
  private static var small: Int { 64 << 10 }
  static var mostOfSmallTier: UInt64 { 8 << 20 }
  private static var mostThatPaysAll: UInt64 { 64 << 20 }
  private static var leastThatPaysAll: UInt64 { 512 << 10 }
  private static var mostOfReserve: UInt64 { 256 << 10 }
  private static var leastOfStep: UInt64 { 8 << 10 }
  /// A put looks at so many lines of its table, times the share of the holes in the bytes in use.
  private static var linesForAll: Int { 1 << 10 }
  /// What a memory tier and its cache have before the first entry, and what is touched of the
  /// library's data.
  private static var bytesOfEmptyTier: Int { 48 << 10 }

  private let memory: UnsafeMutableRawPointer

  init(_ limits: TierLimits) throws(Failure) {
    memory = try Allocation.lines(2)
    self.limits.initialize(to: Limits())
    used.initialize(to: Sums())
    set(limits)
  }

  deinit {
    setSize(of: .max)
    free(memory)
  }

  @inline(__always)
  private var limits: UnsafeMutablePointer<Limits> { memory.assumingMemoryBound(to: Limits.self) }
  @inline(__always)
  private var used: UnsafeMutablePointer<Sums> { (memory + 64).assumingMemoryBound(to: Sums.self) }

  /// The caller brings the charges down to the new limits, and makes sure that no reservation is
  /// under way that knows the old limits only.
  func set(_ new: TierLimits) {
    let cost = new.cost == 0 ? .max : new.cost
    limits.pointee.cost.store(cost, ordering: .relaxed)
    let base = cost - reserve
    limits.pointee.costInForce.store(base, ordering: .relaxed)
    limits.pointee.target.store(base, ordering: .relaxed)
    limits.pointee.base.store(base, ordering: .relaxed)
    setSize(of: hasOwnCosts ? .max : cost)
    limits.pointee.count.store(new.count == 0 ? .max : new.count, ordering: .relaxed)
    limits.pointee.largest.store(new.largestCharge, ordering: .relaxed)
    limits.pointee.hasAges.store(new.ages.any, ordering: .relaxed)
  }

  @inline(__always) var cost: UInt64 { used.pointee.cost.load(ordering: .relaxed) }
  @inline(__always) var count: UInt64 { used.pointee.count.load(ordering: .relaxed) }
  @inline(__always) var largestCharge: UInt64 { limits.pointee.largest.load(ordering: .relaxed) }
  var costLimit: UInt64 { limits.pointee.cost.load(ordering: .relaxed) }
  @inline(__always)
  var costInForce: UInt64 { limits.pointee.costInForce.load(ordering: .relaxed) }
  var countLimit: UInt64 { limits.pointee.count.load(ordering: .relaxed) }

  /// Of the entries that are there; 0: there is none.
  @inline(__always)
  private var averageCharge: UInt64 { cost / max(1, count) }

  var capacity: TierCapacity {
    let costLimit = self.costLimit
    let average = max(1, averageCharge)
    return TierCapacity(
      byCount: countLimit, byCost: costLimit == .max ? .max : costLimit / average,
      costLimit: costLimit)
  }

  var isWithinLimits: Bool { cost <= costLimit && count <= countLimit }

  // MARK: overrun

  private var hasOwnCosts: Bool { limits.pointee.hasOwnCosts.load(ordering: .relaxed) }

  /// An entry with a cost of its own comes.
  func noteOwnCost() {
    if hasOwnCosts { return }
    limits.pointee.hasOwnCosts.store(true, ordering: .relaxed)
    setSize(of: .max)
    // A put with a lowered limit takes the long way, on which the limit comes into force.
    limits.pointee.base.store(costLimit, ordering: .relaxed)
    limits.pointee.isLowered.store(true, ordering: .relaxed)
  }

  /// Whether it is a tier that pays for all of its memory.
  private var paysAll: Bool { paysForMore && costLimit < Budget.mostThatPaysAll }

  /// Whether the tier pays for more than what it has lost.
  private var paysForMore: Bool { costLimit >= Budget.leastThatPaysAll && !hasOwnCosts }

  /// See RESERVE.
  private var reserve: UInt64 {
    let limit = costLimit
    if limit < Budget.mostOfSmallTier || limit == .max || hasOwnCosts { return 0 }
    return min(limit / 1024, Budget.mostOfReserve)
  }

  private func setSize(of cost: UInt64) {
    let most = Budget.mostOfSmallTier
    let new = cost < most ? Heap.TierSize.small : cost < 4 * most ? .modest : .large
    let old = limits.pointee.size.exchange(new.rawValue, ordering: .relaxed)
    Heap.countTier(new, 1)
    Heap.countTier(Heap.TierSize(rawValue: old).unsafelyUnwrapped, -1)
  }

  /// Whether the limit in force is, or has to become, another one than the limit.
  @inline(__always)
  var isPaying: Bool {
    (Heap.isTight && !hasOwnCosts) || limits.pointee.isLowered.load(ordering: .relaxed)
  }

  /// The slab and the table of a shard have so many bytes more, or fewer.
  func addPlaces(_ bytes: Int) { limits.pointee.places.wrappingAdd(bytes, ordering: .relaxed) }

  /// The bytes of slabs and tables that no entry uses, if each entry uses so many. Below 0 if
  /// entries stand closer than that.
  @inline(__always)
  func idle(_ bytesPerEntry: Int) -> Int {
    limits.pointee.places.load(ordering: .relaxed)
      &- Int(truncatingIfNeeded: count) &* bytesPerEntry
  }

  /// Whether so many idle bytes of the tier are more than nothing much.
  func isTooMuch(_ idle: Int) -> Bool { idle > Budget.small && UInt64(idle) > freeOfIdle }

  private var freeOfIdle: UInt64 {
    costLimit < Budget.mostThatPaysAll ? costLimit / 64 : costLimit / 32
  }

  /// The bytes in memory because of the tier: its part of the heap, by what it has of the bytes in
  /// use there, and what is not in the heap. Without holes, which grow when the limit in force is
  /// lower: `pay` is for them.
  private func memory(with charge: UInt64, _ policyBytes: Int) -> Int {
    let (all, room, excess) = Heap.excess
    let used = max(0, all &- Int(truncatingIfNeeded: charge))
    // Of the overhead in a charge the heap's header is the block's.
    let besideBlocks = MemoryTier.overhead - UInt64(HeapSpan.header)
    let own =
      limits.pointee.places.load(ordering: .relaxed) &+ policyBytes
      &+ Int(truncatingIfNeeded: cost &- count &* besideBlocks)
    let kept = min(room, max(0, all &- used &+ room &+ excess), 1 << 30)
    let part = own < used ? kept &* max(0, own) / max(used, 1) : kept
    return min(own, used) &+ part &+ Budget.bytesOfEmptyTier
  }

  /// New limits have come into force, and entries that had to go have left so many bytes idle.
  /// Lowers the limit in force, as puts would. True: the caller evicts what is above it.
  func payIdle(_ idle: Int) -> Bool {
    let limit = costLimit
    if !isTooMuch(idle) || hasOwnCosts { return false }
    let inForce = limit - reserve - min(limit / 2, UInt64(idle) - freeOfIdle)
    limits.pointee.target.store(inForce, ordering: .relaxed)
    limits.pointee.costInForce.store(inForce, ordering: .relaxed)
    limits.pointee.isLowered.store(true, ordering: .relaxed)
    return true
  }

  /// Likewise for all that a tier has beside its entries.
  func payAll(idle: Int, policyBytes: Int) -> Bool {
    if !paysAll { return false }
    review(with: 0, idle: idle, policyBytes: policyBytes)
    let base = limits.pointee.base.load(ordering: .relaxed)
    let inForce = min(costInForce, base)
    limits.pointee.target.store(inForce, ordering: .relaxed)
    limits.pointee.costInForce.store(inForce, ordering: .relaxed)
    return cost > inForce
  }

  /// Called once in some puts, with the charge of one whose memory has been taken: looks whether
  /// the limit in force has to change. `policyBytes`: the memory of the policy.
  @inline(never)
  func review(with charge: UInt64, idle: Int, policyBytes: Int) {
    let limit = costLimit
    let most = limit - reserve
    var base = most
    if paysAll {
      let beside =
        memory(with: charge, policyBytes) &- Int(truncatingIfNeeded: cost &+ limit / 16)
      base &-= min(limit / 2, UInt64(max(0, beside)))
    } else if paysForMore && limits.pointee.hasAges.load(ordering: .relaxed) {
      let times = min(count, limit) &* MemoryTier.overheadOfTimes
      base &-= min(limit / 2, times &- min(times, limit / 32))
    }
    let before = min(most, limits.pointee.base.load(ordering: .relaxed))
    let change = base > before ? base - before : before - base
    let isOff = change > limit / 256 || base == most && change > 0
    if isOff { limits.pointee.base.store(base, ordering: .relaxed) }
    if isOff || isTooMuch(idle) { limits.pointee.isLowered.store(true, ordering: .relaxed) }
  }

  /// A put with this charge, under its shard's lock, sets the limit in force. `idle`: see there. Of
  /// two puts at once one may be without effect. Returns at how many lines of its table the put
  /// looks because of the holes. None while there is a small tier: then each look at a block takes
  /// an arena's lock.
  @inline(never)
  func pay(with charge: UInt64, idle: Int) -> Int {
    let (used, room, excess) = Heap.excess
    let cost = Double(self.cost)
    // Small tiers do not pay for what others have left.
    let share = min(1, cost / Double(max(used, 1)))
    let holes = min(cost, Double(max(0, excess)) * share)
    pay(
      with: charge, lost: UInt64(holes) + UInt64(max(0, idle)),
      room: UInt64(Double(max(0, room)) * share))
    if !Heap.isEvacuating || Heap.hasSmallTiers { return 0 }
    return max(0, excess) &* Budget.linesForAll / max(used, 1)
  }

  /// The same, by what is lost, and what the heap may keep besides.
  func pay(with charge: UInt64, lost: UInt64, room: UInt64 = 0) {
    let limit = costLimit
    let cost = self.cost
    // No machine has so much memory, and sums stay within 64 bits.
    if limit > 1 << 62 || hasOwnCosts {
      limits.pointee.costInForce.store(limit, ordering: .relaxed)
      return limits.pointee.isLowered.store(false, ordering: .relaxed)
    }
    let base = min(limit, limits.pointee.base.load(ordering: .relaxed))
    let besideRoom = paysForMore ? limit / 64 * 5 - min(room, limit / 16) : .max
    // The base of a tier that pays for all has what the heap may keep. Its limit falls a tenth
    // below that at most: evictions leave holes too, and it would fall because it falls.
    let (free, most) =
      paysAll
      ? (limit / 64, limit / 10)
      : (min(limit / 48 + UInt64(Budget.small), besideRoom), base / 2)
    let least = base - min(most, lost - min(lost, free))
    let before = min(limit, limits.pointee.target.load(ordering: .relaxed))
    // By a step at most: what the heap has for a moment, before a review gives it back, counts for
    // little.
    let step = min(charge, max(Budget.leastOfStep, charge / 2))
    let target = max(min(least, before + charge / 4), before - min(before, step))
    let floor = cost - min(cost, step)
    limits.pointee.target.store(target, ordering: .relaxed)
    // There must be room for this put, once all else has gone.
    let inForce = min(limit, max(target, floor, charge))
    limits.pointee.costInForce.store(inForce, ordering: .relaxed)
    limits.pointee.isLowered.store(inForce != base || target != base, ordering: .relaxed)
  }

  /// A put that needs so much has evicted many entries: lets it have the rest from the reserve.
  /// False: that is too little.
  func lend(cost more: UInt64, count moreCount: UInt64) -> Bool {
    let most = min(costLimit, limits.pointee.target.load(ordering: .relaxed) &+ reserve)
    guard more <= most, cost <= most - more, moreCount <= countLimit - min(countLimit, count)
    else { return false }
    limits.pointee.costInForce.store(most, ordering: .relaxed)
    limits.pointee.isLowered.store(true, ordering: .relaxed)
    return true
  }

  /// Takes this much, all or nothing. A sum that no 64 bits hold does not fit either.
  @inline(__always)
  func reserve(cost: UInt64, count: UInt64) -> Bool {
    guard Budget.add(cost, to: used.pointee.cost, limits.pointee.costInForce) else { return false }
    if count == 0 { return true }
    if Budget.add(count, to: used.pointee.count, limits.pointee.count) { return true }
    used.pointee.cost.wrappingSubtract(cost, ordering: .relaxed)
    return false
  }

  @inline(__always)
  func hasRoom(cost more: UInt64, count moreCount: UInt64) -> Bool {
    let costLimit = costInForce
    let countLimit = self.countLimit
    return more <= costLimit && cost <= costLimit &- more
      && moreCount <= countLimit && count <= countLimit &- moreCount
  }

  /// Whether so much is the charge of several entries, as they are on average.
  @inline(__always)
  func isMuch(_ more: UInt64) -> Bool {
    more > 1 << 10 && more / 4 > averageCharge
  }

  @inline(__always)
  func release(cost: UInt64, count: UInt64) {
    used.pointee.cost.wrappingSubtract(cost, ordering: .relaxed)
    if count > 0 { used.pointee.count.wrappingSubtract(count, ordering: .relaxed) }
  }

  @inline(__always)
  private static func add(
    _ amount: UInt64, to sum: borrowing Atomic<UInt64>, _ limit: borrowing Atomic<UInt64>
  ) -> Bool {
    if amount == 0 { return true }
    var current = sum.load(ordering: .relaxed)
    while true {
      let (next, overflow) = current.addingReportingOverflow(amount)
      if overflow || next > limit.load(ordering: .relaxed) { return false }
      let (exchanged, original) = sum.weakCompareExchange(
        expected: current, desired: next, ordering: .relaxed)
      if exchanged { return true }
      current = original
    }
  }
}

/// The capacity that the limits allow.
struct TierCapacity {
  /// Entries.
  var byCount: UInt64
  /// Entries at the present average charge.
  var byCost: UInt64
  /// Both: `UInt64.max`: no limit.
  var costLimit: UInt64

  var entries: UInt64 { min(byCount, byCost) }
}

/// A number that one thread at a time writes, under its shard's lock, and any thread reads.
struct Counter: ~Copyable {
  private let number = Atomic<UInt64>(0)

  @inline(__always) var value: UInt64 { number.load(ordering: .relaxed) }
  @inline(__always)
  func add(_ amount: UInt64) { number.store(value &+ amount, ordering: .relaxed) }
  @inline(__always)
  func subtract(_ amount: UInt64) { number.store(value &- amount, ordering: .relaxed) }
}
