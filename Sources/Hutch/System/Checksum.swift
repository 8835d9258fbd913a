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
    let count = bytes.count
    guard let p = bytes.baseAddress else { return finish(seed &+ p5, nil, 0, 0) }
    var offset = 0
    var hash: UInt64
    if count >= 32 {
      var a = seed &+ p1 &+ p2
      var b = seed &+ p2
      var c = seed
      var d = seed &- p1
      while count - offset >= 32 {
        a = round(a, p.loadUnaligned(fromByteOffset: offset, as: UInt64.self))
        b = round(b, p.loadUnaligned(fromByteOffset: offset + 8, as: UInt64.self))
        c = round(c, p.loadUnaligned(fromByteOffset: offset + 16, as: UInt64.self))
        d = round(d, p.loadUnaligned(fromByteOffset: offset + 24, as: UInt64.self))
        offset += 32
      }
      hash = rotate(a, 1) &+ rotate(b, 7) &+ rotate(c, 12) &+ rotate(d, 18)
      hash = merge(merge(merge(merge(hash, a), b), c), d)
    } else {
      hash = seed &+ p5
    }
    return finish(hash &+ UInt64(truncatingIfNeeded: count), p, offset, count)
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
