import CSystem
import Testing

@testable import Hutch

/// Keys that are built against the constants in our own sources do not collide, beyond what chance
/// does: a folded product of one factor that runs and one that does not has two equal values in
/// one of some million sets of 300, and the secrets are random. A key that is aimed at a constant
/// collides with all of its set.
@Suite struct KeyedHashTests {
  /// Every 64-bit constant of the sources, and what a multiply-and-fold hash is weak at.
  static let constants: [UInt64] = {
    var all: [UInt64] = [
      0, 1, .max, 1 << 63, 0x5555_5555_5555_5555, 0xAAAA_AAAA_AAAA_AAAA,
      // XXH3, in Checksum.swift: its primes, and words of its secret.
      0x9E37_79B1_85EB_CA87, 0xC2B2_AE3D_27D4_EB4F, 0x1656_67B1_9E37_79F9,
      0x85EB_CA77_C2B2_AE63, 0x27D4_EB2F_1656_67C5,
      // What wyhash, rapidhash and SplitMix64 use, should they ever be taken in.
      0xA076_1D64_78BD_642F, 0xE703_7ED1_A0B4_28DB, 0x8EBC_6AF0_9C88_C6E3,
      0x5899_65CC_7537_4CC3, 0x2D35_8DCC_AA6C_78A5, 0x8BB8_4B93_962E_ACC9,
      0x4B33_A62E_D433_D4A3, 0x9E37_79B9_7F4A_7C15, 0xBF58_476D_1CE4_E5B9,
      0x94D0_49BB_1331_11EB,
    ]
    all += all.map { ~$0 } + all.map { $0.byteSwapped } + all.map { 0 &- $0 }
    return Array(Set(all)).sorted()
  }()

  /// Knowledge of the secrets makes collisions possible; these keys use the constants only.
  static func secrets() throws -> [KeyedHash] {
    var random = Random(seed: testSeed)
    return [
      try KeyedHash(), try KeyedHash(),
      KeyedHash(random.next(), random.next(), random.next(), random.next()),
    ]
  }

  private static let byChance = 2

  private func collisions(_ hash: KeyedHash, _ keys: [[UInt64]]) -> Int {
    var seen = Set<UInt64>(minimumCapacity: keys.count)
    var again = 0
    for key in keys {
      let value = key.withUnsafeBytes { hash($0) }
      if !seen.insert(value).inserted { again += 1 }
    }
    return again
  }

  /// One half is a constant, so that a factor of a product would be 0; the other runs.
  @Test func keysOfSixteenBytesDoNotCollide() throws {
    for hash in try Self.secrets() {
      for constant in Self.constants {
        let first = (0..<300).map { [constant, UInt64($0)] }
        let second = (0..<300).map { [UInt64($0), constant] }
        expect(collisions(hash, first) <= Self.byChance, "first half \(constant)")
        expect(collisions(hash, second) <= Self.byChance, "second half \(constant)")
      }
    }
  }

  /// Every pair of constants, and multiples, whose products have few bits or are 0.
  @Test func keysMadeOfConstantsOnlyDoNotCollide() throws {
    for hash in try Self.secrets() {
      var pairs: Set<[UInt64]> = []
      for a in Self.constants {
        for b in Self.constants {
          pairs.insert([a, b])
          pairs.insert([a ^ b, b])
          pairs.insert([a &* b, b])
          pairs.insert([a, a &+ b])
        }
      }
      for shift in 0..<64 {
        for other in 0..<64 { pairs.insert([1 << shift, 1 << other]) }
      }
      expect(pairs.count > 10_000)
      expect(collisions(hash, Array(pairs)) <= Self.byChance)
    }
  }

  /// Longer keys go through another path, 32 bytes at a time.
  @Test(arguments: [3, 4, 5, 6, 8, 9])
  func longerKeysDoNotCollide(words: Int) throws {
    for hash in try Self.secrets() {
      for position in 0..<words {
        for constant in Self.constants {
          var key = [UInt64](repeating: constant, count: words)
          let keys = (0..<100).map { i -> [UInt64] in
            key[position] = UInt64(i) &* 0x0101_0101_0101_0101
            return key
          }
          expect(
            collisions(hash, keys) <= Self.byChance, "position \(position), constant \(constant)")
        }
      }
    }
  }

  /// Keys of one byte value differ by their length alone.
  @Test func lengthCounts() throws {
    for hash in try Self.secrets() {
      for byte in [0, 0x55, 0xFF] as [UInt8] {
        var seen: Set<UInt64> = []
        for count in 1...300 {
          let key = [UInt8](repeating: byte, count: count)
          expect(seen.insert(key.withUnsafeBytes { hash($0) }).inserted, "\(count) of \(byte)")
        }
      }
    }
  }

  /// What the table takes of a hash, its upper bits, is as good as the whole.
  @Test func bitsAreSpread() throws {
    let hash = try KeyedHash()
    var counts = [Int](repeating: 0, count: 8 * 256)
    for i in 0..<256_000 as Range<UInt64> {
      var value = withUnsafeBytes(of: i) { hash($0) }
      for byte in 0..<8 {
        counts[byte * 256 + Int(value & 255)] += 1
        value >>= 8
      }
    }
    // 1,000 expected in each; 8 standard deviations are 253.
    for (place, count) in counts.enumerated() {
      expect(abs(count - 1000) < 253, "byte \(place / 256)")
    }
  }
}
