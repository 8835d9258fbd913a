import Synchronization

/// The numbers that `stats` shows. Relaxed throughout: each number is right by itself.
final class DiskCounters {
  let storage = Atomic<UInt32>(0)
  let count = Atomic<UInt64>(0)
  let cost = Atomic<UInt64>(0)
  /// The part of `cost` for content files that have been removed and are not unlinked yet.
  let trash = Atomic<UInt64>(0)
  let hits = Atomic<UInt64>(0)
  let misses = Atomic<UInt64>(0)
  let puts = Atomic<UInt64>(0)
  let removals = Atomic<UInt64>(0)
  let evictions = Atomic<UInt64>(0)
  let expirations = Atomic<UInt64>(0)
  let refusals = Atomic<UInt64>(0)
  let failures = Atomic<UInt64>(0)
  let damaged = Atomic<UInt64>(0)

  var current: TierStats {
    TierStats(
      count: count.load(ordering: .relaxed), cost: cost.load(ordering: .relaxed),
      hits: hits.load(ordering: .relaxed), misses: misses.load(ordering: .relaxed),
      puts: puts.load(ordering: .relaxed), removals: removals.load(ordering: .relaxed),
      evictions: evictions.load(ordering: .relaxed),
      expirations: expirations.load(ordering: .relaxed),
      refusals: refusals.load(ordering: .relaxed), failures: failures.load(ordering: .relaxed),
      damaged: damaged.load(ordering: .relaxed))
  }
}

extension Atomic where Value == UInt64 {
  @inline(__always)
  func add(_ n: UInt64 = 1) { wrappingAdd(n, ordering: .relaxed) }
}
