import CSystem

/// What a request may contain (RFC 9110, section 5). A text that passes these checks cannot end the
/// line that it is written to.
enum Syntax {
  /// A method, or the name of a header.
  static func isToken(_ text: Bytes) -> Bool {
    for byte in text {
      switch byte {
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: continue
      case 0x21, 0x23...0x27, 0x2A, 0x2B, 0x2D, 0x2E, 0x5E...0x60, 0x7C, 0x7E: continue
      default: return false
      }
    }
    return text.count > 0
  }

  /// The value of a header: no control character but the tab.
  static func isValue(_ text: Bytes) -> Bool {
    for byte in text where (byte < 0x20 && byte != 0x09) || byte == 0x7F { return false }
    return true
  }

  /// The characters of a URL: visible ASCII.
  static func isAddress(_ text: Bytes) -> Bool {
    for byte in text where byte <= 0x20 || byte >= 0x7F { return false }
    return text.count > 0
  }

  /// The bytes without spaces and tabs at both ends.
  static func trimmed(_ bytes: Bytes) -> Bytes {
    var low = 0
    var high = bytes.count
    while low < high, isBlank(bytes[low]) { low += 1 }
    while high > low, isBlank(bytes[high - 1]) { high -= 1 }
    return Bytes(rebasing: bytes[low..<high])
  }

  private static func isBlank(_ byte: UInt8) -> Bool {
    byte == 0x20 || byte == 0x09 || byte == 0x0D || byte == 0x0A
  }
}
