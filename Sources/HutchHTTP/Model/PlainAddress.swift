import CSystem

/// A URL that libcurl would read and write as it is, found without libcurl: most are such ones.
///
/// That holds for a scheme in small letters; a host of small letters, digits, dots and hyphens that
/// is not a number, or four numbers as inet_ntoa writes them; a port without leading zeros; and a
/// path and a query without percent sign, fragment, or segment that begins with a dot. Any other
/// URL is libcurl's to read, so what libcurl connects to stays what was checked.
struct PlainAddress {
  let isSecure: Bool
  /// The scheme and the host.
  let origin: Bytes
  /// Nil: that of the scheme.
  let port: Bytes?
  /// From its slash.
  let path: Bytes

  init?(_ text: Bytes) {
    let https: StaticString = "https://"
    let http: StaticString = "http://"
    isSecure = text.begins(with: bytes(of: https))
    guard isSecure || text.begins(with: bytes(of: http)) else { return nil }
    let start = isSecure ? 8 : 7
    var index = start
    while index < text.count, PlainAddress.isOfHost(text[index]) { index += 1 }
    guard PlainAddress.isHost(Bytes(rebasing: text[start..<index])) else { return nil }
    origin = Bytes(rebasing: text[..<index])
    if index < text.count, text[index] == 0x3A {
      let first = index + 1
      index = first
      while index < text.count, PlainAddress.isDigit(text[index]) { index += 1 }
      let digits = Bytes(rebasing: text[first..<index])
      guard PlainAddress.isNumber(digits, most: 65_535), digits[0] != 0x30 else { return nil }
      port = digits
    } else {
      port = nil
    }
    guard index < text.count, text[index] == 0x2F else { return nil }
    path = Bytes(rebasing: text[index...])
    guard PlainAddress.isPath(path) else { return nil }
  }

  private static func isDigit(_ byte: UInt8) -> Bool { byte >= 0x30 && byte <= 0x39 }
  private static func isLetter(_ byte: UInt8) -> Bool { byte >= 0x61 && byte <= 0x7A }

  private static func isOfHost(_ byte: UInt8) -> Bool {
    isLetter(byte) || isDigit(byte) || byte == 0x2E || byte == 0x2D
  }

  /// Labels with dots between them. If the last one begins with a letter, the host is no number.
  private static func isHost(_ host: Bytes) -> Bool {
    var labels = 0
    var numbers = 0
    var start = 0
    while start <= host.count {
      var end = start
      while end < host.count, host[end] != 0x2E { end += 1 }
      guard end > start else { return false }
      labels += 1
      if isNumber(Bytes(rebasing: host[start..<end]), most: 255) { numbers += 1 }
      if end == host.count { return isLetter(host[start]) || (labels == 4 && numbers == 4) }
      start = end + 1
    }
    return false
  }

  /// Decimal, without leading zeros.
  private static func isNumber(_ digits: Bytes, most: Int) -> Bool {
    guard digits.count > 0, digits.count <= 5, digits.count == 1 || digits[0] != 0x30 else {
      return false
    }
    var value = 0
    for digit in digits {
      guard isDigit(digit) else { return false }
      value = value * 10 + Int(digit - 0x30)
    }
    return value <= most
  }

  private static func isPath(_ path: Bytes) -> Bool {
    var before: UInt8 = 0
    for byte in path {
      if byte == 0x2E, before == 0x2F { return false }
      switch byte {
      case 0x61...0x7A, 0x41...0x5A, 0x30...0x39, 0x2D, 0x2E, 0x2F, 0x5F, 0x7E: break
      case 0x3F, 0x3D, 0x26, 0x2B, 0x2C, 0x3A, 0x3B, 0x40: break
      default: return false
      }
      before = byte
    }
    // libcurl may drop an empty query.
    return before != 0x3F
  }
}
