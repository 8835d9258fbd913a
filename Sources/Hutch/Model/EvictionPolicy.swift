import Synchronization

/// How a tier chooses the entries to evict.
enum EvictionPolicy: UInt8 {
  case lru, lfu, fifo
  /// The tier's own. Memory: follows the best of several. A store: see `Storage.setPolicy`.
  case adaptive
}

extension EvictionPolicy {
  @inline(__always)
  init(_ live: borrowing Atomic<UInt8>) {
    self = EvictionPolicy(rawValue: live.load(ordering: .relaxed)) ?? .adaptive
  }
}
