import CSystem
import Synchronization

/// The tier's limits and what counts against them: one budget for all shards.
///
/// A put reserves before it stores, so the sums never exceed the limits, whatever the number of
/// threads. Limits and sums are on lines of their own: every get reads the tier's fields, and
/// every put writes the sums.
///
/// OVERRUN. The charges are the memory of entries. Beside them a tier has memory that no entry
/// uses: holes between blocks that the heap cannot give back, beyond what it may keep
/// (Heap.swift), of which the tier answers for as much as it has of the bytes in use; and slots
/// and words whose entries have gone, after larger entries have replaced many small ones. Both
/// together lower the limit in force by what they are more than a 32nd of the limit and 64 KB.
/// Meanwhile puts close the holes (`Shard.tighten`). A put lowers the limit to at most its own
/// charge below what is held, so each evicts a little more for a while, and none much. It raises
/// it by at most a quarter of its charge. The limit in force is at least a half of the limit, and
/// all of it once an entry came with a cost of its own, which need not be bytes.
struct Budget: ~Copyable {
  private struct Limits: ~Copyable {
    let cost = Atomic<UInt64>(0)
    let count = Atomic<UInt64>(0)
    let largest = Atomic<UInt64>(0)
    /// At most `cost`, and on its way to `target`.
    let costInForce = Atomic<UInt64>(0)
    let target = Atomic<UInt64>(0)
    /// The bytes of the slabs and tables of all shards.
    let places = Atomic<Int>(0)
    let isLowered = Atomic<Bool>(false)
    let hasOwnCosts = Atomic<Bool>(false)
  }

  private struct Sums: ~Copyable {
    let cost = Atomic<UInt64>(0)
    let count = Atomic<UInt64>(0)
  }

  /// So many bytes no tier pays for.
  private static var small: Int { 64 << 10 }

  private let memory: UnsafeMutableRawPointer

  init(_ limits: TierLimits) throws(Failure) {
    memory = try Allocation.lines(2)
    self.limits.initialize(to: Limits())
    used.initialize(to: Sums())
    set(limits)
  }

  deinit { free(memory) }

  @inline(__always)
  private var limits: UnsafeMutablePointer<Limits> { memory.assumingMemoryBound(to: Limits.self) }
  @inline(__always)
  private var used: UnsafeMutablePointer<Sums> { (memory + 64).assumingMemoryBound(to: Sums.self) }

  /// The caller brings the charges down to the new limits, and makes sure that no reservation is
  /// under way that knows the old limits only.
  func set(_ new: TierLimits) {
    let cost = new.cost == 0 ? .max : new.cost
    limits.pointee.cost.store(cost, ordering: .relaxed)
    limits.pointee.costInForce.store(cost, ordering: .relaxed)
    limits.pointee.target.store(cost, ordering: .relaxed)
    limits.pointee.count.store(new.count == 0 ? .max : new.count, ordering: .relaxed)
    limits.pointee.largest.store(new.largestCharge, ordering: .relaxed)
  }

  @inline(__always) var cost: UInt64 { used.pointee.cost.load(ordering: .relaxed) }
  @inline(__always) var count: UInt64 { used.pointee.count.load(ordering: .relaxed) }
  @inline(__always) var largestCharge: UInt64 { limits.pointee.largest.load(ordering: .relaxed) }
  var costLimit: UInt64 { limits.pointee.cost.load(ordering: .relaxed) }
  @inline(__always)
  private var costInForce: UInt64 { limits.pointee.costInForce.load(ordering: .relaxed) }
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
  func noteOwnCost() { limits.pointee.hasOwnCosts.store(true, ordering: .relaxed) }

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
  @inline(__always)
  func isTooMuch(_ idle: Int) -> Bool { idle > Budget.small && UInt64(idle) > costLimit / 32 }

  /// A put with this charge, under its shard's lock, sets the limit in force. `idle`: see there. Of
  /// two puts at once one may be without effect.
  @inline(never)
  func pay(with charge: UInt64, _ idle: Int) {
    let limit = costLimit
    let cost = self.cost
    // No machine has so much memory, and sums stay within 64 bits.
    if limit > 1 << 62 || hasOwnCosts {
      limits.pointee.costInForce.store(limit, ordering: .relaxed)
      return limits.pointee.isLowered.store(false, ordering: .relaxed)
    }
    let (used, excess) = Heap.excess
    let holes = Double(max(0, excess)) * min(1, Double(cost) / Double(max(used, 1)))
    // Small tiers do not pay for what others have left.
    let lost = min(cost, UInt64(holes)) + UInt64(max(0, idle))
    let free = limit / 32 + UInt64(Budget.small)
    let least = limit - min(limit / 2, lost - min(lost, free))
    let before = min(limit, limits.pointee.target.load(ordering: .relaxed))
    let target = min(least, before + charge / 4)
    let floor = charge > cost ? 0 : cost - charge
    limits.pointee.target.store(target, ordering: .relaxed)
    // There must be room for this put, once all else has gone.
    limits.pointee.costInForce.store(min(limit, max(target, floor, charge)), ordering: .relaxed)
    limits.pointee.isLowered.store(target < limit, ordering: .relaxed)
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
