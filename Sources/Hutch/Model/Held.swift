import CSystem
import Synchronization

/// How many blocks, and how many bytes, are held by others after they left a memory tier.
///
/// Counted when a block departs that somebody else holds, and when the last of those lets it
/// go: a hit has nothing to do with it. A departed block refers to the counts, so they live until
/// the tier and the last such block have gone.
struct HeldCounts {
  private struct Counts: ~Copyable {
    /// The tier, and each block that is counted.
    let references = Atomic<UInt64>(1)
    let count = Atomic<UInt64>(0)
    let bytes = Atomic<UInt64>(0)
  }

  fileprivate let raw: UnsafeMutableRawPointer

  private var counts: UnsafeMutablePointer<Counts> {
    raw.assumingMemoryBound(to: Counts.self)
  }

  /// The tier's reference, to be given up by `release`.
  init() throws(Failure) {
    raw = try Allocation.lines(1)
    raw.bindMemory(to: Counts.self, capacity: 1).initialize(to: Counts())
  }

  fileprivate init(_ raw: UnsafeMutableRawPointer) { self.raw = raw }

  var count: UInt64 { counts.pointee.count.load(ordering: .relaxed) }
  var bytes: UInt64 { counts.pointee.bytes.load(ordering: .relaxed) }

  fileprivate func add(_ byteCount: Int) {
    _ = counts.pointee.references.wrappingAdd(1, ordering: .relaxed)
    _ = counts.pointee.count.wrappingAdd(1, ordering: .relaxed)
    _ = counts.pointee.bytes.wrappingAdd(UInt64(byteCount), ordering: .relaxed)
  }

  fileprivate func subtract(_ byteCount: Int) {
    _ = counts.pointee.count.wrappingSubtract(1, ordering: .relaxed)
    _ = counts.pointee.bytes.wrappingSubtract(UInt64(byteCount), ordering: .relaxed)
    release()
  }

  func release() {
    let left = counts.pointee.references.wrappingSubtract(1, ordering: .acquiringAndReleasing)
    if left.newValue == 0 { free(raw) }
  }
}

extension UnownedBlock {
  /// The tier that held the block is about to let go of it. If it is not the last to hold it,
  /// the block is counted until that one does. `slot` and `stamp`, which mean nothing to anybody
  /// from here on, say where.
  func depart(_ counts: HeldCounts) {
    guard isShared else { return }
    counts.add(byteCount)
    // Aligned to 16, below 2^48.
    let address = UInt64(UInt(bitPattern: counts.raw)) >> 4
    slot = UInt32(truncatingIfNeeded: address)
    stamp = UInt16(truncatingIfNeeded: address >> 32)
    setDeparted(true)
  }

  /// The block is in a memory tier again, or gone.
  func endDeparture() {
    let address = UInt(stamp) << 32 | UInt(slot)
    HeldCounts(UnsafeMutableRawPointer(bitPattern: address << 4).unsafelyUnwrapped)
      .subtract(byteCount)
  }
}
