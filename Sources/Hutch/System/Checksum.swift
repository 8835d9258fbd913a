/// XXH64, as its specification has it (Yann Collet, xxHash, doc/xxhash_spec.md): a checksum
/// that runs at memory speed. It guards against damage, not against an adversary.
enum Checksum {
  private static let p1: UInt64 = 0x9E37_79B1_85EB_CA87
  private static let p2: UInt64 = 0xC2B2_AE3D_27D4_EB4F
  private static let p3: UInt64 = 0x1656_67B1_9E37_79F9
  private static let p4: UInt64 = 0x85EB_CA77_C2B2_AE63
  private static let p5: UInt64 = 0x27D4_EB2F_1656_67C5

  @inline(__always)
  private static func rotate(_ x: UInt64, _ n: UInt64) -> UInt64 { x &<< n | x &>> (64 &- n) }

  @inline(__always)
  private static func round(_ accumulator: UInt64, _ lane: UInt64) -> UInt64 {
    rotate(accumulator &+ lane &* p2, 31) &* p1
  }

  @inline(__always)
  private static func merge(_ hash: UInt64, _ accumulator: UInt64) -> UInt64 {
    (hash ^ round(0, accumulator)) &* p1 &+ p4
  }

  @_optimize(speed)
  static func xxh64(_ bytes: Bytes, seed: UInt64 = 0) -> UInt64 {
    var sum = Sum(seed: seed)
    return sum.end(with: bytes)
  }

  /// A checksum of bytes that come in pieces.
  struct Sum {
    private var a: UInt64
    private var b: UInt64
    private var c: UInt64
    private var d: UInt64
    private let seed: UInt64
    private var total: UInt64 = 0
    /// What did not fill a stripe of 32 bytes.
    private var rest: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)

    init(seed: UInt64 = 0) {
      self.seed = seed
      a = seed &+ p1 &+ p2
      b = seed &+ p2
      c = seed
      d = seed &- p1
    }

    private var restCount: Int { Int(truncatingIfNeeded: total & 31) }

    /// Whole stripes of 32 bytes. Returns how many bytes they were.
    @inline(__always)
    private mutating func stripes(_ p: UnsafeRawPointer, _ from: Int, _ count: Int) -> Int {
      var offset = from
      var (a, b, c, d) = (self.a, self.b, self.c, self.d)
      while count - offset >= 32 {
        a = round(a, p.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
        b = round(b, p.loadUnaligned(fromByteOffset: offset + 8, as: UInt64.self))
        c = round(c, p.loadUnaligned(fromByteOffset: offset + 16, as: UInt64.self))
        d = round(d, p.loadUnaligned(fromByteOffset: offset + 24, as: UInt64.self))
        offset += 32
      }
      (self.a, self.b, self.c, self.d) = (a, b, c, d)
      return offset - from
    }

    @_optimize(speed)
    mutating func add(_ bytes: Bytes) {
      guard let p = bytes.baseAddress, bytes.count > 0 else { return }
      var offset = 0
      let kept = restCount
      if kept > 0 {
        offset = min(32 - kept, bytes.count)
        withUnsafeMutableBytes(of: &rest) {
          ($0.baseAddress! + kept).copyMemory(from: p, byteCount: offset)
        }
        total &+= UInt64(offset)
        guard kept + offset == 32 else { return }
        let full = rest
        withUnsafeBytes(of: full) { _ = stripes($0.baseAddress!, 0, 32) }
      }
      let done = stripes(p, offset, bytes.count)
      total &+= UInt64(bytes.count - offset)
      let left = bytes.count - offset - done
      guard left > 0 else { return }
      withUnsafeMutableBytes(of: &rest) {
        $0.baseAddress!.copyMemory(from: p + (offset + done), byteCount: left)
      }
    }

    /// The checksum of all that was added.
    var value: UInt64 {
      let last = rest
      return withUnsafeBytes(of: last) { end(of: $0.baseAddress!, 0, restCount) }
    }

    /// The checksum of these bytes alone: nothing was added before.
    @inline(__always)
    fileprivate mutating func end(with bytes: Bytes) -> UInt64 {
      guard let p = bytes.baseAddress else { return end(of: nil, 0, 0) }
      let done = stripes(p, 0, bytes.count)
      total = UInt64(truncatingIfNeeded: bytes.count)
      return end(of: p, done, bytes.count)
    }

    @inline(__always)
    private func end(of rest: UnsafeRawPointer?, _ from: Int, _ count: Int) -> UInt64 {
      var hash = seed &+ p5
      if total >= 32 {
        hash = rotate(a, 1) &+ rotate(b, 7) &+ rotate(c, 12) &+ rotate(d, 18)
        hash = merge(merge(merge(merge(hash, a), b), c), d)
      }
      return finish(hash &+ total, rest, from, count)
    }
  }

  private static func finish(
    _ start: UInt64, _ pointer: UnsafeRawPointer?, _ from: Int, _ count: Int
  ) -> UInt64 {
    var hash = start
    var offset = from
    if let p = pointer {
      while count - offset >= 8 {
        hash ^= round(0, p.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
        hash = rotate(hash, 27) &* p1 &+ p4
        offset += 8
      }
      if count - offset >= 4 {
        hash ^= UInt64(p.loadUnaligned(fromByteOffset: offset, as: UInt32.self)) &* p1
        hash = rotate(hash, 23) &* p2 &+ p3
        offset += 4
      }
      while offset < count {
        hash ^= UInt64(p.load(fromByteOffset: offset, as: UInt8.self)) &* p5
        hash = rotate(hash, 11) &* p1
        offset += 1
      }
    }
    hash ^= hash &>> 33
    hash = hash &* p2
    hash ^= hash &>> 29
    hash = hash &* p3
    return hash ^ hash &>> 32
  }
}
