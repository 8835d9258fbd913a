import CSystem

/// A hash of keys against which an attacker cannot construct collisions.
///
/// Multiply-and-fold over 64-bit halves, as wyhash and rapidhash do (Wang Yi, Vladimir Makarov),
/// with one difference. There, both factors of a product are public constants mixed with input, so
/// a half that equals the constant makes the product 0, and all keys with that half collide. Here,
/// every factor is mixed with a secret of its own, which the cache draws from the system, so an
/// attacker cannot know that half.
struct KeyedHash {
  private let s0: UInt64
  private let s1: UInt64
  private let s2: UInt64
  private let s3: UInt64

  init(_ s0: UInt64, _ s1: UInt64, _ s2: UInt64, _ s3: UInt64) {
    self.s0 = s0
    self.s1 = s1
    self.s2 = s2
    self.s3 = s3
  }

  /// So that another process computes the same hashes.
  var secrets: (UInt64, UInt64, UInt64, UInt64) { (s0, s1, s2, s3) }

  /// True if it gives every key the same hash.
  func isSame(as other: KeyedHash) -> Bool {
    s0 == other.s0 && s1 == other.s1 && s2 == other.s2 && s3 == other.s3
  }

  /// With secrets drawn from the system.
  init() throws(Failure) {
    self.init(
      try Entropy.number(), try Entropy.number(), try Entropy.number(), try Entropy.number())
  }

  /// `bytes` is not empty.
  @inline(__always)
  func callAsFunction(_ bytes: Bytes) -> UInt64 {
    self(bytes.baseAddress.unsafelyUnwrapped, bytes.count)
  }

  /// `count` is not 0.
  @inline(__always)
  func callAsFunction(_ p: UnsafeRawPointer, _ count: Int) -> UInt64 {
    var state = s2
    let a: UInt64
    let b: UInt64
    if count <= 16 {
      if count >= 8 {
        a = Folding.word(p, 0)
        b = Folding.word(p, count &- 8)
      } else if count >= 4 {
        a = Folding.half(p, 0)
        b = Folding.half(p, count &- 4)
      } else {
        a =
          Folding.byte(p, 0) << 16 | Folding.byte(p, count &>> 1) << 8
          | Folding.byte(p, count &- 1)
        b = 0
      }
    } else {
      state = longState(p, count)
      a = Folding.word(p, count &- 16)
      b = Folding.word(p, count &- 8)
    }
    return hash(a, b, state, count)
  }

  /// `a` and `b`: the key's first and last bytes; `state`: the fold of the bytes before.
  @inline(__always)
  private func hash(_ a: UInt64, _ b: UInt64, _ state: UInt64, _ count: Int) -> UInt64 {
    let product = (a ^ s0).multipliedFullWidth(by: b ^ state)
    return Folding.fold(product.low ^ s3, product.high ^ s1 ^ UInt64(truncatingIfNeeded: count))
  }

  /// The lowest bits of a hash in the memory tier say what the entry is; all zero means a value. A
  /// shard sees them shifted up by at most 10.
  static let kindBits: UInt64 = 0xFFF

  /// The place of a hash in a table of `mask + 1` places, a power of two. The kind is left out:
  /// it is the same for all values.
  @inline(__always)
  static func place(of hash: UInt64, mask: Int) -> Int {
    Int(truncatingIfNeeded: hash &>> 12) & mask
  }

  /// The hash of a value's entry.
  @_optimize(speed)
  func entry(_ key: Bytes) -> UInt64 { self(key) & ~KeyedHash.kindBits }

  @inline(__always)
  func entry(_ key: UnsafeRawPointer, _ count: Int) -> UInt64 {
    self(key, count) & ~KeyedHash.kindBits
  }

  /// The same, for a key of 8 to 16 bytes.
  @inline(__always)
  func shortEntry(_ key: UnsafeRawPointer, _ count: Int) -> UInt64 {
    shortStart(key, count) & ~KeyedHash.kindBits
  }

  /// The same, but for the lowest bits, which say nothing.
  @inline(__always)
  func shortStart(_ key: UnsafeRawPointer, _ count: Int) -> UInt64 {
    hash(Folding.word(key, 0), Folding.word(key, count &- 8), s2, count)
  }

  /// The same, for a key of 4 to 16 bytes.
  @inline(__always)
  func smallEntry(_ key: UnsafeRawPointer, _ count: Int) -> UInt64 {
    if count >= 8 { return shortEntry(key, count) }
    return hash(Folding.half(key, 0), Folding.half(key, count &- 4), s2, count)
      & ~KeyedHash.kindBits
  }

  /// The hash of a host object's entry, in a key space of its own.
  func object(_ key: Bytes) -> UInt64 { ~self(key) & ~KeyedHash.kindBits | 1 }

  /// Folds all but the last 16 bytes (these may overlap bytes already folded).
  @inline(never)
  private func longState(_ p: UnsafeRawPointer, _ count: Int) -> UInt64 {
    var state = s2
    var other = s3
    var offset = 0
    while count - offset > 32 {
      state = Folding.fold(Folding.word(p, offset) ^ s0, Folding.word(p, offset + 8) ^ state)
      other = Folding.fold(Folding.word(p, offset + 16) ^ s1, Folding.word(p, offset + 24) ^ other)
      offset += 32
    }
    if count - offset > 16 {
      state = Folding.fold(Folding.word(p, offset) ^ s0, Folding.word(p, offset + 8) ^ state)
    }
    return state ^ other
  }
}

/// Random bits from the system.
enum Entropy {
  @inline(never)
  static func number() throws(Failure) -> UInt64 {
    var value: UInt64 = 0
    while true {
      let got = getrandom(&value, 8, 0)
      if got == 8 { return value }
      if got < 0 && hutch_errno() != EINTR { throw .system("no random bits from the system") }
    }
  }
}

#if hasFeature(Embedded)
  /// Swift's Dictionary and Set import this from glibc 2.36 and later only.
  @_cdecl("arc4random_buf")
  func systemRandomBytes(_ buffer: UnsafeMutableRawPointer, _ count: Int) {
    var done = 0
    while done < count {
      let got = getrandom(buffer + done, count - done, 0)
      if got > 0 { done += got } else if hutch_errno() != EINTR { abort() }
    }
  }
#endif
