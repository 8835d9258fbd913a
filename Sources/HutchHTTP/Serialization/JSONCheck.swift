import CSystem

/// Checks that bytes are one JSON text (RFC 8259). It makes nothing of it: the host has a parser of
/// its own.
struct JSONCheck {
  private let text: Bytes
  private var place = 0

  /// Arrays and objects within each other: a bound, since the check calls itself.
  private static var mostDepth: Int { 512 }

  static func isValid(_ text: Bytes) -> Bool {
    var check = JSONCheck(text: text)
    guard UTF8Check.isValid(text), check.value(depth: 0) else { return false }
    check.skipBlanks()
    return check.place == text.count
  }

  private var next: UInt8? { place < text.count ? text[place] : nil }

  private mutating func take(_ byte: UInt8) -> Bool {
    guard next == byte else { return false }
    place += 1
    return true
  }

  private mutating func take(_ word: StaticString) -> Bool {
    let count = word.utf8CodeUnitCount
    guard text.count - place >= count,
      memcmp(text.baseAddress! + place, word.utf8Start, count) == 0
    else { return false }
    place += count
    return true
  }

  private mutating func skipBlanks() {
    while let byte = next, byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D {
      place += 1
    }
  }

  private mutating func value(depth: Int) -> Bool {
    guard depth <= JSONCheck.mostDepth else { return false }
    skipBlanks()
    switch next {
    case 0x7B: return members(0x7D, depth, areNamed: true)
    case 0x5B: return members(0x5D, depth, areNamed: false)
    case 0x22: return string()
    case 0x74: return take("true")
    case 0x66: return take("false")
    case 0x6E: return take("null")
    default: return number()
    }
  }

  /// An object or an array, from its first bracket to `end`.
  private mutating func members(_ end: UInt8, _ depth: Int, areNamed: Bool) -> Bool {
    place += 1
    skipBlanks()
    if take(end) { return true }
    while true {
      skipBlanks()
      if areNamed {
        guard string() else { return false }
        skipBlanks()
        guard take(0x3A) else { return false }
      }
      guard value(depth: depth + 1) else { return false }
      skipBlanks()
      if take(end) { return true }
      guard take(0x2C) else { return false }
    }
  }

  private mutating func string() -> Bool {
    guard take(0x22) else { return false }
    while let byte = next {
      place += 1
      switch byte {
      case 0x22: return true
      case 0..<0x20: return false
      case 0x5C: if !escape() { return false }
      default: continue
      }
    }
    return false
  }

  private mutating func escape() -> Bool {
    guard let byte = next else { return false }
    place += 1
    switch byte {
    case 0x22, 0x5C, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74: return true
    case 0x75:
      for _ in 0..<4 {
        guard let digit = next, Letters.isHexadecimal(digit) else { return false }
        place += 1
      }
      return true
    default: return false
    }
  }

  private mutating func digits() -> Bool {
    let start = place
    while let byte = next, byte >= 0x30, byte <= 0x39 { place += 1 }
    return place > start
  }

  private mutating func number() -> Bool {
    _ = take(0x2D)
    if !take(0x30), !digits() { return false }
    if take(0x2E), !digits() { return false }
    if take(0x65) || take(0x45) {
      if !take(0x2B) { _ = take(0x2D) }
      return digits()
    }
    return true
  }
}

enum UTF8Check {
  /// No byte of another encoding, no surrogate, no form that is longer than it needs to be
  /// (RFC 3629).
  static func isValid(_ text: Bytes) -> Bool {
    var index = 0
    while index < text.count {
      let byte = text[index]
      if byte < 0x80 {
        index += 1
        continue
      }
      let count: Int
      var low: UInt8 = 0x80
      var high: UInt8 = 0xBF
      switch byte {
      case 0xC2...0xDF: count = 1
      case 0xE0...0xEF:
        count = 2
        if byte == 0xE0 { low = 0xA0 }
        if byte == 0xED { high = 0x9F }
      case 0xF0...0xF4:
        count = 3
        if byte == 0xF0 { low = 0x90 }
        if byte == 0xF4 { high = 0x8F }
      default: return false
      }
      guard index + count < text.count else { return false }
      for offset in 1...count {
        let more = text[index + offset]
        guard more >= low, more <= high else { return false }
        low = 0x80
        high = 0xBF
      }
      index += count + 1
    }
    return true
  }
}
