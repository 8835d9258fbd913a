import CSystem
import Synchronization

/// The number of blocks, and of bytes, that are referenced after they left a memory tier.
///
/// A block is counted when it departs while another holder has it, and no longer when the last of
/// its holders releases it: a hit does not touch the counts. A departed block refers to the counts,
/// so they live until the tier and the last such block are gone.
struct HeldCounts {
  private struct Counts: ~Copyable {
    /// One reference of the tier, and one of each block that is counted.
    let references = Atomic<UInt64>(1)
    let count = Atomic<UInt64>(0)
    let bytes = Atomic<UInt64>(0)
  }

  fileprivate let raw: UnsafeMutableRawPointer

  private var counts: UnsafeMutablePointer<Counts> {
    raw.assumingMemoryBound(to: Counts.self)
  }

  /// The tier's reference, which the caller gives up by `release`.
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
  /// The tier that held the block is about to release it. If another holder remains, the block is
  /// counted until the last one releases it. From here on `slot` and `stamp`, which have no other
  /// use any more, store where.
  func depart(_ counts: HeldCounts) {
    guard isShared else { return }
    counts.add(byteCount)
    // Aligned to 16, below 2^48.
    let address = UInt64(UInt(bitPattern: counts.raw)) >> 4
    slot = UInt32(truncatingIfNeeded: address)
    stamp = UInt16(truncatingIfNeeded: address >> 32)
    setDeparted(true)
  }

  /// The block is in a memory tier again, or freed.
  func endDeparture() {
    let address = UInt(stamp) << 32 | UInt(slot)
    HeldCounts(UnsafeMutableRawPointer(bitPattern: address << 4).unsafelyUnwrapped)
      .subtract(byteCount)
  }
}
