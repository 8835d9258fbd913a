import CSystem
import Synchronization

/// The tier's limits and what counts against them: one budget for all shards.
///
/// A put reserves before it stores, so the sums never exceed the limits, whatever the number of
/// threads. Limits and sums are on lines of their own: every get reads the tier's fields, and
/// every put writes the sums.
struct Budget: ~Copyable {
  private struct Line: ~Copyable {
    let cost: Atomic<UInt64>
    let count: Atomic<UInt64>
    let largest: Atomic<UInt64>
  }

  private let memory: UnsafeMutableRawPointer

  init(_ limits: TierLimits) throws(Failure) {
    memory = try Allocation.lines(2)
    for line in 0..<2 {
      (memory + line * 64).bindMemory(to: Line.self, capacity: 1).initialize(
        to: Line(cost: Atomic(0), count: Atomic(0), largest: Atomic(0)))
    }
    set(limits)
  }

  deinit { free(memory) }

  @inline(__always)
  private var limits: UnsafeMutablePointer<Line> { memory.assumingMemoryBound(to: Line.self) }
  @inline(__always)
  private var used: UnsafeMutablePointer<Line> { (memory + 64).assumingMemoryBound(to: Line.self) }

  /// The caller brings the charges down to the new limits, and makes sure that no reservation is
  /// under way that knows the old limits only.
  func set(_ new: TierLimits) {
    limits.pointee.cost.store(new.cost == 0 ? .max : new.cost, ordering: .relaxed)
    limits.pointee.count.store(new.count == 0 ? .max : new.count, ordering: .relaxed)
    limits.pointee.largest.store(new.largestCharge, ordering: .relaxed)
  }

  @inline(__always) var cost: UInt64 { used.pointee.cost.load(ordering: .relaxed) }
  @inline(__always) var count: UInt64 { used.pointee.count.load(ordering: .relaxed) }
  @inline(__always) var largestCharge: UInt64 { limits.pointee.largest.load(ordering: .relaxed) }
  var costLimit: UInt64 { limits.pointee.cost.load(ordering: .relaxed) }
  var countLimit: UInt64 { limits.pointee.count.load(ordering: .relaxed) }

  var capacity: TierCapacity {
    let costLimit = self.costLimit
    let average = max(1, cost / max(1, count))
    return TierCapacity(
      byCount: countLimit, byCost: costLimit == .max ? .max : costLimit / average,
      costLimit: costLimit)
  }

  var isWithinLimits: Bool { cost <= costLimit && count <= countLimit }

  /// Takes this much, all or nothing. A sum that no 64 bits hold does not fit either.
  @inline(__always)
  func reserve(cost: UInt64, count: UInt64) -> Bool {
    guard Budget.add(cost, to: used.pointee.cost, limits.pointee.cost) else { return false }
    if count == 0 { return true }
    if Budget.add(count, to: used.pointee.count, limits.pointee.count) { return true }
    used.pointee.cost.wrappingSubtract(cost, ordering: .relaxed)
    return false
  }

  @inline(__always)
  func hasRoom(cost more: UInt64, count moreCount: UInt64) -> Bool {
    let costLimit = self.costLimit
    let countLimit = self.countLimit
    return more <= costLimit && cost <= costLimit &- more
      && moreCount <= countLimit && count <= countLimit &- moreCount
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
