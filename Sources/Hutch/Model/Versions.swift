import Synchronization

/// Where versions come from: each is drawn once.
final class Versions {
  private let own: Atomic<UInt64>
  /// Where processes share a directory: for all of them. Nil: `own`. Changed with every lock
  /// held under which a version is drawn.
  private var shared: UnsafeMutablePointer<Atomic<UInt64>>?

  init(from first: UInt64, shared: UnsafeMutablePointer<Atomic<UInt64>>? = nil) {
    own = Atomic(first)
    self.shared = shared
  }

  /// A version for a write that is about to be submitted.
  @inline(__always)
  func draw() -> UInt64 {
    // Relaxed: which of two writes is newer is decided under a lock of theirs.
    if let shared { return shared.pointee.wrappingAdd(1, ordering: .relaxed).oldValue }
    return own.wrappingAdd(1, ordering: .relaxed).oldValue
  }

  /// From here on all draw from there.
  func share(_ shared: UnsafeMutablePointer<Atomic<UInt64>>) {
    shared.pointee.max(own.load(ordering: .relaxed), ordering: .relaxed)
    self.shared = shared
  }

  /// None below `first` is drawn any more.
  func raise(to first: UInt64) {
    if let shared {
      shared.pointee.max(first, ordering: .relaxed)
    } else {
      own.max(first, ordering: .relaxed)
    }
  }

  /// The last one that was drawn.
  var last: UInt64 {
    (shared?.pointee.load(ordering: .relaxed) ?? own.load(ordering: .relaxed)) &- 1
  }
}
