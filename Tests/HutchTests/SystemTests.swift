import Testing

@testable import Hutch

@Suite struct ChecksumTests {
  @Test(arguments: [
    ("", 0xEF46_DB37_51D8_E999 as UInt64), ("a", 0xD24E_C4F1_A98C_6E5B),
    ("abc", 0x44BC_2CF5_AD77_0999),
    ("Nobody inspects the spammish repetition", 0xFBCE_A83C_8A37_8BF1),
  ])
  func agreesWithTheSpecificationsVectors(text: String, expected: UInt64) {
    let bytes = Array(text.utf8)
    bytes.withUnsafeBytes { #expect(Checksum.xxh64($0) == expected) }
  }
}
