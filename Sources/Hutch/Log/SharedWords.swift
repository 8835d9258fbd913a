import CSystem
import Synchronization

/// Memory that processes share, as 8-byte words at offsets from a base; and the functions
/// through which EVERY store to it goes, in the index and in the log.
///
/// A load acquires and a store releases: a process that sees a word sees all that was stored before
/// it. A process may be killed between any two stores. The tests of the log store define
/// HUTCH_CRASH_POINTS and a `CrashPoint` of their own, which kills the process after the n-th
/// store.
struct SharedWords {
  typealias Word = Atomic<UInt64>

  let base: UnsafeMutableRawPointer

  @inline(__always)
  init(_ base: UnsafeMutableRawPointer) { self.base = base }

  @inline(__always)
  subscript(_ offset: Int) -> UnsafeMutablePointer<Word> {
    (base + offset).assumingMemoryBound(to: Word.self)
  }

  @inline(__always)
  func load(_ offset: Int) -> UInt64 { self[offset].pointee.load(ordering: .acquiring) }

  @inline(__always)
  func store(_ offset: Int, _ value: UInt64) { SharedWords.store(base + offset, value) }

  /// Adds to a counter that needs no lock.
  func add(_ offset: Int, _ change: Int) {
    self[offset].pointee.wrappingAdd(
      UInt64(bitPattern: Int64(change)), ordering: .acquiringAndReleasing)
    CrashPoint.pass()
  }

  @inline(__always)
  static func load(_ address: UnsafeRawPointer) -> UInt64 {
    UnsafeMutableRawPointer(mutating: address).assumingMemoryBound(to: Word.self)
      .pointee.load(ordering: .acquiring)
  }

  @inline(__always)
  static func store(_ address: UnsafeMutableRawPointer, _ value: UInt64) {
    address.assumingMemoryBound(to: Word.self).pointee.store(value, ordering: .releasing)
    CrashPoint.pass()
  }

  /// Replaces a word if it is still `old`.
  @inline(__always) @discardableResult
  static func replace(
    _ address: UnsafeMutableRawPointer, _ old: UInt64, by new: UInt64
  ) -> Bool {
    let exchanged = address.assumingMemoryBound(to: Word.self).pointee.compareExchange(
      expected: old, desired: new, ordering: .acquiringAndReleasing
    ).exchanged
    CrashPoint.pass()
    return exchanged
  }

  /// Stores bytes that no other process reads yet.
  @inline(__always)
  static func copy(_ bytes: Bytes, to address: UnsafeMutableRawPointer) {
    guard bytes.count > 0 else { return }
    memcpy(address, bytes.baseAddress.unsafelyUnwrapped, bytes.count)
    CrashPoint.pass()
  }

  /// Clears bytes that have no readers but those that began earlier. A word that was stored before
  /// tells these so: they see that word if they see any of the zeroes.
  static func clear(_ address: UnsafeMutableRawPointer, _ count: Int) {
    atomicMemoryFence(ordering: .releasing)
    memset(address, 0, count)
    CrashPoint.pass()
  }
}

#if !HUTCH_CRASH_POINTS
  /// The point at which a test may end the process. In the library it does nothing.
  enum CrashPoint {
    @inline(__always)
    static func pass() {}
  }
#endif
