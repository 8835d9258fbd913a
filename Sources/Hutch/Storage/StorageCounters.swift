internal import CHutch
import Synchronization

/// The counters of a store since its opening. Relaxed throughout: each number is right by itself.
class StorageCounters {
  /// The hits and the misses, words of each line: each get counts one of them.
  private final let reads: ThreadLines
  final let puts = Atomic<UInt64>(0)
  final let removals = Atomic<UInt64>(0)
  final let evictions = Atomic<UInt64>(0)
  final let expirations = Atomic<UInt64>(0)
  final let refusals = Atomic<UInt64>(0)
  final let failures = Atomic<UInt64>(0)
  final let damaged = Atomic<UInt64>(0)

  init(_ reads: consuming ThreadLines) { self.reads = reads }

  /// Delegates: see Copying.
  convenience init() throws(Failure) { self.init(try ThreadLines()) }

  @inline(__always)
  final func countHit() { reads.own(0).pointee.add() }

  @inline(__always)
  final func countMiss() { reads.own(1).pointee.add() }

  /// The statistics of a store that has these entries. Count and cost: 0 unless it is in service.
  @inline(never)
  final func stats(isUp: Bool, count: UInt64, cost: UInt64) -> TierStats {
    func load(_ counter: borrowing Atomic<UInt64>) -> UInt64 { counter.load(ordering: .relaxed) }
    var stats = TierStats(isUp: isUp)
    stats.count = isUp ? count : 0
    stats.cost = isUp ? cost : 0
    stats.hits = reads.sum(0)
    stats.misses = reads.sum(1)
    stats.puts = load(puts)
    stats.removals = load(removals)
    stats.evictions = load(evictions)
    stats.expirations = load(expirations)
    stats.refusals = load(refusals)
    stats.failures = load(failures)
    stats.damaged = load(damaged)
    return stats
  }
}

extension Atomic where Value == UInt64 {
  @inline(__always)
  func add(_ n: UInt64 = 1) { wrappingAdd(n, ordering: .relaxed) }
}
