import CSystem

/// Keys that were evicted of late, about as many as twice the entries: 2 bytes each, of which
/// nothing is kept exactly. A bucket is a cache line, whose keys stand in the order of their
/// evictions: a new one moves the others on, and the last is forgotten.
struct Ghosts: ~Copyable {
  /// Nil: remembers nothing.
  private let keys: UnsafeMutablePointer<UInt16>?
  private let bucketCount: Int
  /// Of a bucket's 32 places those that are used.
  private let places: UInt32

  init() {
    keys = nil
    bucketCount = 0
    places = 0
  }

  init(capacity: Int) throws(Failure) {
    let memory = 2 * max(1, capacity)
    bucketCount = (memory + 31) / 32
    places = UInt32((memory + bucketCount - 1) / bucketCount)
    keys = try Heap.takeLines(bucketCount, seed: bucketCount)
      .bindMemory(to: UInt16.self, capacity: bucketCount * 32)
  }

  deinit { if let keys { Heap.give(keys) } }

  var isNone: Bool { keys == nil }

  var bytes: Int { 64 * bucketCount }

  @inline(__always)
  private func bucket(_ hash: UInt32) -> UnsafeMutablePointer<UInt16> {
    keys.unsafelyUnwrapped
      + Int(truncatingIfNeeded: (UInt64(hash) &* UInt64(bitPattern: Int64(bucketCount))) >> 32)
      &* 32
  }

  /// Never 0, which is an empty place. The lowest bit of a hash is always 0.
  @inline(__always)
  private func fingerprint(_ hash: UInt32) -> UInt32 { max(1, hash &>> 1 & 0xFFFF) }

  /// Prefetches the memory that a look at this key will read.
  @inline(__always)
  func prefetch(_ hash: UInt32) {
    if keys != nil { hutch_prefetch(bucket(hash)) }
  }

  /// Whether the key was evicted of late.
  @_optimize(speed)
  func contains(_ hash: UInt32) -> Bool {
    keys != nil && hutch_match32(bucket(hash), fingerprint(hash)) != 0
  }

  @inline(never)
  mutating func remove(_ hash: UInt32) {
    if keys == nil { return }
    let matches = hutch_match32(bucket(hash), fingerprint(hash))
    if matches != 0 { bucket(hash)[matches.trailingZeroBitCount] = 0 }
  }

  @_optimize(speed)
  mutating func insert(_ hash: UInt32) {
    if keys == nil { return }
    let bucket = bucket(hash)
    let key = fingerprint(hash)
    // It takes the place of its own, an empty one, or the last. A later place may still have the
    // key; it is older and goes first.
    let matches = hutch_match32(bucket, key) | hutch_match32(bucket, 0)
    let last = min(UInt32(truncatingIfNeeded: matches.trailingZeroBitCount), places &- 1)
    hutch_push32(bucket, key, last)
  }
}
