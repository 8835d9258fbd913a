import CSystem

/// Certificates as text (RFC 7468), and base64.
enum PEM {
  /// Appends the base64 text of `bytes`.
  static func encode(_ bytes: Bytes, to text: inout GrowingArray<UInt8>) throws(Failure) {
    let digits: StaticString = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    var index = 0
    while index < bytes.count {
      let left = bytes.count - index
      let group =
        UInt32(bytes[index]) << 16 | (left > 1 ? UInt32(bytes[index + 1]) << 8 : 0)
        | (left > 2 ? UInt32(bytes[index + 2]) : 0)
      for digit in 0..<4 {
        let isPadding = digit > left
        let value = Int(group >> UInt32(18 - 6 * digit) & 63)
        try text.append(isPadding ? 0x3D : digits.utf8Start[value])
      }
      index += 3
    }
  }

  /// Calls `body` with the base64 text of each certificate, without line ends; it returns true to
  /// stop. Returns whether it did.
  static func forEachCertificate(
    in text: Bytes, _ body: (Bytes) throws(Failure) -> Bool
  ) throws(Failure) -> Bool {
    let begin: StaticString = "-----BEGIN CERTIFICATE-----"
    let end: StaticString = "-----END CERTIFICATE-----"
    var rest = text
    var digits = GrowingArray<UInt8>()
    while let start = find(begin, in: rest) {
      rest = Bytes(rebasing: rest[(start + begin.utf8CodeUnitCount)...])
      guard let stop = find(end, in: rest) else { return false }
      digits.removeAll()
      for byte in rest[..<stop] where byte > 0x20 { try digits.append(byte) }
      if try body(Bytes(digits.elements)) { return true }
      rest = Bytes(rebasing: rest[(stop + end.utf8CodeUnitCount)...])
    }
    return false
  }

  private static func find(_ mark: StaticString, in text: Bytes) -> Int? {
    let count = mark.utf8CodeUnitCount
    guard text.count >= count else { return nil }
    for start in 0...(text.count - count)
    where memcmp(text.baseAddress! + start, mark.utf8Start, count) == 0 {
      return start
    }
    return nil
  }
}
