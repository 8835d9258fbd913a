import CSystem
import Testing

@testable import Hutch

@Suite struct ChecksumTests {
  /// As xxHash 0.8.4 gives them for bytes i * 131 + (i >> 8) * 29 + 7: every way of the
  /// specification, and the bounds between them.
  static let vectors: [(Int, UInt64)] = [
    (0, 0x2D06_8005_38D3_94C2 as UInt64), (1, 0x4C5C_CA45_D0F4_811F), (2, 0x29C6_0963_CBFA_4E6E),
    (3, 0x6E3E_2670_E611_06AC), (4, 0x5C4C_6313_3443_D03F), (5, 0x49F5_EB31_1128_0B63),
    (8, 0xF9FD_4DD0_B04D_78F5), (9, 0x7C20_DF97_12C2_6EDF), (15, 0xB345_A7B2_698B_A575),
    (16, 0x86AB_F6BA_CCEA_0858), (17, 0xB58B_F5DC_5022_D071), (31, 0x4844_2FCD_5518_B086),
    (32, 0xE371_2ED8_4C04_A66E), (33, 0xA4DE_E99B_093E_1F73), (64, 0x1291_D2D4_0423_30DD),
    (128, 0x10D1_7F72_C0CC_BA41), (129, 0x1648_BDC3_DB49_D1A2), (144, 0xB46D_BFC6_D9E3_1ABA),
    (145, 0x3641_1DE3_3538_4CFB), (239, 0xF0D1_5481_9ADB_16CD), (240, 0xB6CF_AF34_3FAB_81E6),
    (241, 0x956C_AE59_2C67_279E), (256, 0xB15E_5507_33C5_DFAC), (257, 0xD3ED_E574_CE12_D6E7),
    (319, 0xE0B8_A5AA_56C8_1D3E), (320, 0xD421_0021_D860_887A), (321, 0x198D_D1DE_C318_537C),
    (511, 0x73EC_6B39_34D7_4D01), (512, 0xB383_E80B_91C3_9DC3), (1023, 0x43F7_F4BF_40DB_4027),
    (1024, 0x9BB6_8F1F_C0D4_408C), (1025, 0x98E8_EC13_F4C9_2D1A), (1087, 0xD4D4_F9C7_DD12_5B67),
    (1088, 0x5A95_7B4C_ADB9_2D4E), (2048, 0xC145_4E2A_F970_6E53), (2049, 0xB421_67A2_7D38_22E4),
    (4096, 0x92BE_38F0_2E49_386E), (65613, 0x65FA_36A1_C0A5_7AE6),
  ]

  static func bytes(_ count: Int) -> [UInt8] {
    (0..<count).map { UInt8(truncatingIfNeeded: $0 * 131 + ($0 >> 8) * 29 + 7) }
  }

  @Test(arguments: vectors)
  func agreesWithTheSpecification(count: Int, expected: UInt64) {
    ChecksumTests.bytes(count).withUnsafeBytes { expect(Checksum.xxh3($0) == expected) }
  }

  @Test(arguments: vectors)
  func aCopyIsWholeAndHasTheChecksum(count: Int, expected: UInt64) {
    let original = ChecksumTests.bytes(count)
    for shift in 0..<128 {
      var target = [UInt8](repeating: 0xA5, count: shift + count + 64)
      let sum = original.withUnsafeBytes { bytes in
        target.withUnsafeMutableBytes {
          shift < 64
            ? Checksum.copying(bytes, to: $0.baseAddress! + shift)
            : Checksum.copyingFar(bytes, to: $0.baseAddress! + shift)
        }
      }
      expect(sum == expected)
      expect(Array(target[shift..<shift + count]) == original)
      expect(target[..<shift].allSatisfy { $0 == 0xA5 })
      expect(target[(shift + count)...].allSatisfy { $0 == 0xA5 })
    }
  }

  @Test(arguments: vectors)
  func bytesInPiecesHaveTheChecksumOfTheWhole(count: Int, expected: UInt64) {
    var random = Random(seed: testSeed &+ UInt64(count))
    ChecksumTests.bytes(count).withUnsafeBytes { bytes in
      for longest in [1, 63, 64, 65, 255, 257, 1100, 1 << 16] {
        var sum = Checksum.Sum()
        var done = 0
        while done < count {
          let piece = min(count - done, 1 + Int(random.next() % UInt64(longest)))
          sum.add(Bytes(rebasing: bytes[done..<done + piece]))
          done += piece
        }
        expect(sum.value == expected, "pieces of up to \(longest) bytes")
      }
    }
  }
}

@Suite struct ClockTests {
  /// To a later opening of a directory, entries of an earlier one are not of the future.
  @Test func clocksWithOneAnchorGiveOneTime() {
    let anchor: Int64 = 1_700_000_000_000_000_000
    var last = Int64.min
    for _ in 0..<2000 {
      let clock = Clock(function: nil, context: nil, release: nil)
      clock.setAnchor(anchor)
      let now = clock.now
      expect(now >= last)
      last = now
    }
  }

  @Test func aMeasurementMovesNoTime() {
    let clock = Clock(function: nil, context: nil, release: nil)
    var last = Int64.min
    for _ in 0..<2000 {
      clock.refresh()
      let now = clock.now
      expect(now >= last && now - Clock.read(CLOCK_REALTIME) < 1_000_000_000)
      last = now
    }
  }
}
