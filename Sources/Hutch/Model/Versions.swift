import Synchronization

/// The source of versions; it draws each once.
final class Versions {
  private let own: Atomic<UInt64>
  /// Where processes share a directory: the source of all of them. Nil: `own`. A change holds every
  /// lock under which a version is drawn.
  private var shared: UnsafeMutablePointer<Atomic<UInt64>>?

  /// More than threads draw while the memory that they draw from is replaced. What takes its place
  /// goes on so far above the last version that was seen.
  static let mostDuringChange: UInt64 = 1 << 32

  init(from first: UInt64, shared: UnsafeMutablePointer<Atomic<UInt64>>? = nil) {
    own = Atomic(first)
    self.shared = shared
  }

  /// A version for a write that is about to be submitted.
  @inline(__always)
  func draw() -> UInt64 {
    // Relaxed: the lock under which two writes of a key are made decides which one is newer.
    if let shared { return shared.pointee.wrappingAdd(1, ordering: .relaxed).oldValue }
    return own.wrappingAdd(1, ordering: .relaxed).oldValue
  }

  /// From here on every draw comes from there.
  func share(_ shared: UnsafeMutablePointer<Atomic<UInt64>>) {
    shared.pointee.max(own.load(ordering: .relaxed), ordering: .relaxed)
    self.shared = shared
  }

  /// From here on no version below `first` is drawn.
  func raise(to first: UInt64) {
    if let shared {
      shared.pointee.max(first, ordering: .relaxed)
    } else {
      own.max(first, ordering: .relaxed)
    }
  }

  /// The last version that was drawn.
  var last: UInt64 {
    (shared?.pointee.load(ordering: .relaxed) ?? own.load(ordering: .relaxed)) &- 1
  }
}
