import CSystem

/// XXH3 with 64 bits, without a seed, as its specification has it (Yann Collet, xxHash,
/// doc/xxhash_spec.md): a checksum that runs at memory speed. It guards against damage, not
/// against an adversary.
enum Checksum {
  private static let prime32_1: UInt64 = 0x9E37_79B1
  private static let prime32_2: UInt64 = 0x85EB_CA77
  private static let prime32_3: UInt64 = 0xC2B2_AE3D
  private static let prime64_1: UInt64 = 0x9E37_79B1_85EB_CA87
  private static let prime64_2: UInt64 = 0xC2B2_AE3D_27D4_EB4F
  private static let prime64_3: UInt64 = 0x1656_67B1_9E37_79F9
  private static let prime64_4: UInt64 = 0x85EB_CA77_C2B2_AE63
  private static let prime64_5: UInt64 = 0x27D4_EB2F_1656_67C5
  private static let primeMix1: UInt64 = 0x1656_6791_9E37_79F9
  private static let primeMix2: UInt64 = 0x9FB2_1C65_1E98_DF25

  private typealias Secret = InlineArray<24, UInt64>

  /// The default secret's 192 bytes, as words.
  private static let secret: Secret = [
    0xBE4B_A423_396C_FEB8, 0x1CAD_21F7_2C81_017C, 0xDB97_9083_E96D_D4DE,
    0x1F67_B3B7_A4A4_4072, 0x78E5_C0CC_4EE6_79CB, 0x2172_FFCC_7DD0_5A82,
    0x8E24_43F7_7446_08B8, 0x4C26_3A81_E690_35E0, 0xCB00_C391_BB52_283C,
    0xA32E_531B_8B65_D088, 0x4EF9_0DA2_9748_6471, 0xD8AC_DEA9_46EF_1938,
    0x3F34_9CE3_3F76_FAA8, 0x1D4F_0BC7_C7BB_DCF9, 0x3159_B4CD_4BE0_518A,
    0x6473_78D9_C97E_9FC8, 0xC3EB_D334_83AC_C5EA, 0xEB63_13FA_FFA0_81C5,
    0x49DA_F0B7_51DD_0D17, 0x9E68_D429_2655_16D3, 0xFCA1_477D_58BE_162B,
    0xCE31_D07A_D1B8_F88F, 0x2804_1695_8F3A_CB45, 0x7E40_4BBB_CAFB_D7AF,
  ]

  /// The word of the secret that starts at that byte.
  @inline(__always)
  private static func secret(at byte: Int) -> UInt64 {
    let word = byte >> 3
    let bits = UInt64(truncatingIfNeeded: (byte & 7) << 3)
    if bits == 0 { return secret[word] }
    return secret[word] &>> bits | secret[word + 1] &<< (64 &- bits)
  }

  @inline(__always)
  private static func avalanche(_ x: UInt64) -> UInt64 {
    var x = x
    x ^= x &>> 37
    x = x &* primeMix1
    return x ^ x &>> 32
  }

  /// The last step of XXH64. It is one-to-one: different inputs give different outputs.
  @inline(__always)
  static func mix(_ x: UInt64) -> UInt64 {
    var x = x
    x ^= x &>> 33
    x = x &* prime64_2
    x ^= x &>> 29
    x = x &* prime64_3
    return x ^ x &>> 32
  }

  @_optimize(speed)
  static func xxh3(_ bytes: Bytes) -> UInt64 {
    guard let p = bytes.baseAddress, bytes.count > 0 else { return mix(secret[7] ^ secret[8]) }
    if bytes.count <= 16 { return small(p, bytes.count) }
    if bytes.count <= 240 { return medium(p, bytes.count) }
    var lanes = Lanes()
    lanes.add(p, stripes: (bytes.count - 1) / 64)
    return lanes.end(last: p + (bytes.count - 64), total: UInt64(bytes.count))
  }

  /// Copies the bytes to a place that has room for them, and sums the copy. Where the processor
  /// can, both is done in one pass.
  @_optimize(speed)
  static func copying(_ bytes: Bytes, to target: UnsafeMutableRawPointer) -> UInt64 {
    var lanes = Lanes()
    // The last stripes are summed with the end.
    let stripes = bytes.count > 0 ? (bytes.count - 1) / 64 : 0
    var done = 0
    if bytes.count > 240 {
      done = lanes.addCopying(bytes.baseAddress!, to: target, stripes: stripes) * 64
    }
    if bytes.count > done {
      (target + done).copyMemory(from: bytes.baseAddress! + done, byteCount: bytes.count - done)
    }
    if done == 0 { return xxh3(Bytes(start: target, count: bytes.count)) }
    lanes.add(target + done, stripes: stripes - done / 64)
    return lanes.end(last: target + (bytes.count - 64), total: UInt64(bytes.count))
  }

  /// The same, to a place that is in none of the processor's caches. The bytes do not change
  /// meanwhile.
  @inline(never)
  static func copyingFar(_ bytes: Bytes, to target: UnsafeMutableRawPointer) -> UInt64 {
    let blocks = (bytes.count - 1) / 1024
    guard blocks > 0, hutch_has_wide_vectors() != 0 else { return copying(bytes, to: target) }
    var lanes = Lanes()
    lanes.addCopyingFar(bytes.baseAddress!, to: target, blocks: blocks)
    let done = blocks * 1024
    (target + done).copyMemory(from: bytes.baseAddress! + done, byteCount: bytes.count - done)
    lanes.add(target + done, stripes: (bytes.count - 1) / 64 - blocks * 16)
    return lanes.end(last: target + (bytes.count - 64), total: UInt64(bytes.count))
  }

  /// 1 to 16 bytes.
  @inline(__always)
  private static func small(_ p: UnsafeRawPointer, _ count: Int) -> UInt64 {
    let size = UInt64(truncatingIfNeeded: count)
    if count > 8 {
      let low = secret[3] ^ secret[4] ^ Folding.word(p, 0)
      let high = secret[5] ^ secret[6] ^ Folding.word(p, count - 8)
      return avalanche(size &+ low.byteSwapped &+ high &+ Folding.fold(low, high))
    }
    if count >= 4 {
      var x = secret[1] ^ secret[2] ^ (Folding.half(p, count - 4) | Folding.half(p, 0) &<< 32)
      x ^= (x &<< 49 | x &>> 15) ^ (x &<< 24 | x &>> 40)
      x = x &* primeMix2
      x ^= (x &>> 35) &+ size
      x = x &* primeMix2
      return x ^ x &>> 28
    }
    let key = (secret[0] ^ secret[0] &>> 32) & 0xFFFF_FFFF
    let ends = Folding.byte(p, count - 1) | Folding.byte(p, 0) &<< 16
    return mix(key ^ (ends | size &<< 8 | Folding.byte(p, count >> 1) &<< 24))
  }

  /// 17 to 240 bytes.
  @_optimize(speed)
  private static func medium(_ p: UnsafeRawPointer, _ count: Int) -> UInt64 {
    @inline(__always)
    func mixed(_ offset: Int, _ key: Int) -> UInt64 {
      Folding.fold(
        Folding.word(p, offset) ^ secret(at: key),
        Folding.word(p, offset + 8) ^ secret(at: key + 8))
    }
    var sum = UInt64(truncatingIfNeeded: count) &* prime64_1
    if count <= 128 {
      for i in 0...(count - 1) >> 5 {
        sum = sum &+ mixed(i * 16, i * 32) &+ mixed(count - i * 16 - 16, i * 32 + 16)
      }
    } else {
      for i in 0..<8 { sum = sum &+ mixed(i * 16, i * 16) }
      sum = avalanche(sum)
      for i in 8..<count >> 4 { sum = sum &+ mixed(i * 16, (i - 8) * 16 + 3) }
      sum = sum &+ mixed(count - 16, 119)
    }
    return avalanche(sum)
  }

  /// More than 240 bytes: eight sums over stripes of 64 bytes.
  private struct Lanes {
    typealias Vector = SIMD8<UInt64>

    private static let stripesInBlock = 16
    private var sums = Vector(
      prime32_3, prime64_1, prime64_2, prime64_3, prime64_4, prime32_2, prime64_5, prime32_1)
    /// How many stripes of the block have been added.
    private var filled = 0

    @inline(__always)
    private static func secretWords(at byte: Int) -> Vector {
      var words = Vector()
      for i in 0..<8 { words[i] = secret(at: byte + i * 8) }
      return words
    }

    /// Adds the whole blocks at the beginning of these stripes, and copies them. The stripes that
    /// these are; 0: the processor has no instructions for it.
    @inline(__always)
    mutating func addCopying(
      _ p: UnsafeRawPointer, to target: UnsafeMutableRawPointer, stripes: Int
    ) -> Int {
      let blocks = stripes / Lanes.stripesInBlock
      guard blocks > 0, hutch_has_wide_vectors() != 0 else { return 0 }
      withUnsafeBytes(of: secret) { secret in
        withUnsafeMutableBytes(of: &sums) {
          hutch_add_blocks($0.baseAddress, p, blocks, secret.baseAddress, target)
        }
      }
      return blocks * Lanes.stripesInBlock
    }

    @inline(__always)
    mutating func addCopyingFar(
      _ p: UnsafeRawPointer, to target: UnsafeMutableRawPointer, blocks: Int
    ) {
      withUnsafeBytes(of: secret) { secret in
        withUnsafeMutableBytes(of: &sums) {
          hutch_stream_blocks($0.baseAddress, p, blocks, secret.baseAddress, target)
        }
      }
    }

    @inline(__always)
    private static func products(_ x: Vector) -> Vector { (x & 0xFFFF_FFFF) &* (x &>> 32) }

    /// Each lane is added to its neighbour.
    @inline(__always)
    private static func swapped(_ x: Vector) -> Vector {
      var swapped = x
      swapped.evenHalf = x.oddHalf
      swapped.oddHalf = x.evenHalf
      return swapped
    }

    @_optimize(speed)
    mutating func add(_ p: UnsafeRawPointer, stripes count: Int) {
      var p = p
      var left = count
      withUnsafeBytes(of: secret) { secret in
        while left > 0 {
          if filled == 0 && left >= Lanes.stripesInBlock && hutch_has_wide_vectors() != 0 {
            let blocks = left / Lanes.stripesInBlock
            withUnsafeMutableBytes(of: &sums) {
              hutch_add_blocks($0.baseAddress, p, blocks, secret.baseAddress, nil)
            }
            p += blocks * Lanes.stripesInBlock * 64
            left %= Lanes.stripesInBlock
            continue
          }
          let now = min(left, Lanes.stripesInBlock - filled)
          var products = Vector()
          var lanes = Vector()
          var key = secret.baseAddress! + filled * 8
          for _ in 0..<now {
            let stripe = p.loadUnaligned(as: Vector.self)
            products &+= Lanes.products(stripe ^ key.loadUnaligned(as: Vector.self))
            lanes &+= stripe
            p += 64
            key += 8
          }
          sums &+= products &+ Lanes.swapped(lanes)
          left -= now
          filled += now
          if filled == Lanes.stripesInBlock { scramble() }
        }
      }
    }

    @inline(__always)
    private mutating func scramble() {
      sums ^= sums &>> 47
      sums ^= Lanes.secretWords(at: 128)
      sums = sums &* prime32_1
      filled = 0
    }

    /// `last`: the last 64 bytes, of which some may have been added already.
    func end(last: UnsafeRawPointer, total: UInt64) -> UInt64 {
      let stripe = last.loadUnaligned(as: Vector.self)
      let ended =
        sums &+ Lanes.products(stripe ^ Lanes.secretWords(at: 121)) &+ Lanes.swapped(stripe)
      let keyed = ended ^ Lanes.secretWords(at: 11)
      var sum = total &* prime64_1
      for i in 0..<4 { sum = sum &+ Folding.fold(keyed[2 * i], keyed[2 * i + 1]) }
      return avalanche(sum)
    }
  }

  /// A checksum of bytes that come in pieces.
  struct Sum {
    private typealias Kept = InlineArray<32, UInt64>

    private static let room = 256
    private var lanes = Lanes()
    private var total: UInt64 = 0
    /// The last bytes, not yet added. Inputs up to 240 bytes are summed in another way, so they are
    /// all kept. Of a longer input, at least 64 bytes are kept, since the end is summed over the
    /// last 64 again.
    private var kept = Kept(repeating: 0)
    private var keptCount = 0

    mutating func add(_ bytes: Bytes) {
      guard let p = bytes.baseAddress, bytes.count > 0 else { return }
      total &+= UInt64(bytes.count)
      let fill = min(bytes.count, Sum.room - keptCount)
      keep(p, fill)
      let left = bytes.count - fill
      guard left > 0 else { return }
      // The room is full of whole stripes.
      let direct = left / 64 - 1
      if direct >= 0 {
        Sum.add(kept, stripes: 4, to: &lanes)
        lanes.add(p + fill, stripes: direct)
        keptCount = 0
      } else {
        Sum.add(kept, stripes: 3, to: &lanes)
        for i in 0..<8 { kept[i] = kept[24 + i] }
        keptCount = 64
      }
      let done = fill + max(direct, 0) * 64
      keep(p + done, bytes.count - done)
    }

    private mutating func keep(_ p: UnsafeRawPointer, _ count: Int) {
      withUnsafeMutableBytes(of: &kept) { [keptCount] in
        ($0.baseAddress! + keptCount).copyMemory(from: p, byteCount: count)
      }
      keptCount += count
    }

    private static func add(_ kept: Kept, stripes: Int, to lanes: inout Lanes) {
      withUnsafeBytes(of: kept) { lanes.add($0.baseAddress!, stripes: stripes) }
    }

    /// The checksum of all bytes that were added.
    var value: UInt64 {
      withUnsafeBytes(of: kept) { kept in
        if total <= 240 { return xxh3(Bytes(rebasing: kept[..<keptCount])) }
        var lanes = lanes
        lanes.add(kept.baseAddress!, stripes: (keptCount - 1) / 64)
        return lanes.end(last: kept.baseAddress! + (keptCount - 64), total: total)
      }
    }
  }
}
