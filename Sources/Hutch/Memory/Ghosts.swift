import CSystem

/// Keys that were evicted of late, and how long ago: 4 bytes each, of which nothing is kept
/// exactly. A bucket is a cache line of 16; the oldest makes room.
struct Ghosts: ~Copyable {
  /// Nil: remembers nothing.
  private let slots: UnsafeMutablePointer<UInt32>?
  private let bucketCount: Int
  /// What counts as remembered, in insertions.
  private let memory: Int
  private let unit: Int
  private var inserted = 0

  init() {
    slots = nil
    bucketCount = 0
    memory = 0
    unit = 1
  }

  /// Remembers about twice as many keys as there are entries.
  init(capacity: Int) throws(Failure) {
    memory = 2 * max(1, capacity)
    bucketCount = (memory + 15) / 16
    unit = max(1, capacity / 4096)
    slots = try Allocation.lines(bucketCount)
      .bindMemory(to: UInt32.self, capacity: bucketCount * 16)
  }

  deinit { free(slots) }

  var isNone: Bool { slots == nil }

  var bytes: Int { 64 * bucketCount }

  @inline(__always)
  private func bucket(_ hash: UInt32) -> UnsafeMutablePointer<UInt32> {
    slots.unsafelyUnwrapped + Int((UInt64(hash) &* UInt64(bucketCount)) >> 32) * 16
  }

  /// Never 0, which is an empty slot.
  @inline(__always)
  private func fingerprint(_ hash: UInt32) -> UInt32 { max(1, hash & 0xFFFF) << 16 }

  @inline(__always)
  private var now: UInt16 { UInt16(truncatingIfNeeded: inserted / unit) }

  private func find(_ hash: UInt32) -> UnsafeMutablePointer<UInt32>? {
    if slots == nil { return nil }
    let bucket = bucket(hash)
    let wanted = fingerprint(hash)
    for i in 0..<16 where bucket[i] & 0xFFFF_0000 == wanted { return bucket + i }
    return nil
  }

  /// Whether the key was evicted within the last `memory` insertions.
  func contains(_ hash: UInt32) -> Bool {
    guard let slot = find(hash) else { return false }
    return Int(now &- UInt16(truncatingIfNeeded: slot.pointee)) * unit <= memory
  }

  mutating func remove(_ hash: UInt32) { find(hash)?.pointee = 0 }

  mutating func insert(_ hash: UInt32) {
    if slots == nil { return }
    inserted += 1
    let bucket = bucket(hash)
    let wanted = fingerprint(hash)
    // Once: it is a division.
    let now = self.now
    var chosen = 0
    var oldest = -1
    for i in 0..<16 {
      let slot = bucket[i]
      if slot == 0 || slot & 0xFFFF_0000 == wanted {
        chosen = i
        break
      }
      let age = Int(now &- UInt16(truncatingIfNeeded: slot))
      if age > oldest {
        oldest = age
        chosen = i
      }
    }
    // A later slot may still have the key; it is older and goes first.
    bucket[chosen] = wanted | UInt32(now)
  }
}
