import Synchronization

/// Where versions come from: each is drawn once.
final class Versions {
  /// Relaxed: which of two writes is newer is decided under a lock of theirs.
  private let following: Atomic<UInt64>

  init(from first: UInt64) { following = Atomic(first) }

  /// A version for a write that is about to be submitted.
  @inline(__always)
  func draw() -> UInt64 { following.wrappingAdd(1, ordering: .relaxed).oldValue }

  /// None below `first` is drawn any more.
  func raise(to first: UInt64) {
    following.max(first, ordering: .relaxed)
  }

  /// The last one that was drawn.
  var last: UInt64 { following.load(ordering: .relaxed) &- 1 }
}
