import CSystem

/// Keys that were evicted of late, and how long ago: 4 bytes each, of which nothing is kept
/// exactly. A bucket is a cache line of 16; the oldest makes room.
struct Ghosts: ~Copyable {
  /// Nil: remembers nothing.
  private let slots: UnsafeMutablePointer<UInt32>?
  private let bucketCount: Int
  /// The age at which a key is forgotten, in insertions.
  private let memory: Int
  private let unit: Int
  /// Insertions in units, and how many make the next one.
  private var now: UInt16 = 0
  private var left: Int

  init() {
    slots = nil
    bucketCount = 0
    memory = 0
    unit = 1
    left = 1
  }

  /// Remembers about twice as many keys as there are entries.
  init(capacity: Int) throws(Failure) {
    memory = 2 * max(1, capacity)
    bucketCount = (memory + 15) / 16
    unit = max(1, capacity / 4096)
    left = unit
    slots = try Allocation.lines(bucketCount)
      .bindMemory(to: UInt32.self, capacity: bucketCount * 16)
  }

  deinit { free(slots) }

  var isNone: Bool { slots == nil }

  var bytes: Int { 64 * bucketCount }

  @inline(__always)
  private func bucket(_ hash: UInt32) -> UnsafeMutablePointer<UInt32> {
    slots.unsafelyUnwrapped
      + Int(truncatingIfNeeded: (UInt64(hash) &* UInt64(bitPattern: Int64(bucketCount))) >> 32)
      &* 16
  }

  /// Never 0, which is an empty slot.
  @inline(__always)
  private func fingerprint(_ hash: UInt32) -> UInt32 { max(1, hash & 0xFFFF) << 16 }

  /// Prefetches the memory that a look at this key will read.
  @inline(__always)
  func prefetch(_ hash: UInt32) {
    if slots != nil { hutch_prefetch(bucket(hash)) }
  }

  @inline(__always)
  private func find(_ hash: UInt32) -> UnsafeMutablePointer<UInt32>? {
    if slots == nil { return nil }
    let bucket = bucket(hash)
    let matches = hutch_match16(bucket, fingerprint(hash))
    return matches == 0 ? nil : bucket + matches.trailingZeroBitCount
  }

  /// Whether the key was evicted within the last `memory` insertions.
  @_optimize(speed)
  func contains(_ hash: UInt32) -> Bool {
    guard let slot = find(hash) else { return false }
    return Int(now &- UInt16(truncatingIfNeeded: slot.pointee)) &* unit <= memory
  }

  @inline(never)
  mutating func remove(_ hash: UInt32) { find(hash)?.pointee = 0 }

  @_optimize(speed)
  mutating func insert(_ hash: UInt32) {
    if slots == nil { return }
    left &-= 1
    if left == 0 {
      now &+= 1
      left = unit
    }
    let bucket = bucket(hash)
    let wanted = fingerprint(hash)
    // The key's own, an empty one, or the oldest. A later slot may still have the key; it is older
    // and goes first.
    let matches = hutch_match16_or_empty(bucket, wanted)
    let chosen =
      matches != 0
      ? matches.trailingZeroBitCount : Int(truncatingIfNeeded: hutch_oldest16(bucket, UInt32(now)))
    bucket[chosen] = wanted | UInt32(now)
  }
}
