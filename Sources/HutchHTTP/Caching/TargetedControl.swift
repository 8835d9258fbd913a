import CSystem

/// CDN-Cache-Control (RFC 9213): the directives for the caches that work for an origin server. Such
/// a cache follows them in place of Cache-Control and Expires.
extension CacheControl {
  /// The directives of a response. `isTargeted`: the cache works for the origin server.
  init(of fields: borrowing Fields, isTargeted: Bool) {
    if isTargeted, let targeted = CacheControl(targeted: fields) {
      self = targeted
    } else {
      self.init(fields)
    }
  }

  /// Nil: there is no such header, it is empty or it is malformed (RFC 9213, section 2.2).
  private init?(targeted fields: borrowing Fields) {
    self.init()
    var place = 0
    // The lines are one dictionary; none of them may end within a member.
    while let value = fields.next(literal("CDN-Cache-Control"), &place) {
      var members = DictionaryReader(bytes(of: value))
      while let member = members.next() { add(member) }
      if members.isMalformed { return nil }
    }
    if !isTargeted { return nil }
  }

  /// The later of two members of one name counts. A value of another type than the directive has
  /// counts as 0 for a number, and else as the directive.
  private mutating func add(_ member: DictionaryReader.Member) {
    isTargeted = true
    var number: Int64 = 0
    if case .integer(let value) = member.value { number = max(0, min(value, CacheControl.most)) }
    var isSet = true
    if case .no = member.value { isSet = false }
    set({ member.name.hasSameBytes(as: bytes(of: $0)) }, isSet, isWhole: true) { _ in number }
  }
}

/// The members of a dictionary of structured fields (RFC 8941, sections 3.2 and 4.2.2). Parameters,
/// and values of other types than those of cache directives, are checked and left out.
struct DictionaryReader {
  enum Value {
    case yes, no
    case integer(Int64)
    case other
  }

  struct Member {
    let name: Bytes
    let value: Value
  }

  private let text: Bytes
  private var index = 0
  private(set) var isMalformed = false

  init(_ text: Bytes) { self.text = text }

  mutating func next() -> Member? {
    guard !isMalformed else { return nil }
    let isFirst = index == 0
    skip(isFirst ? " " : " \t")
    if index == text.count { return nil }
    if !isFirst {
      // A comma has a member behind it.
      guard take(0x2C) else { return fail() }
      skip(" \t")
    }
    guard let name = key() else { return fail() }
    var value = Value.yes
    if take(0x3D) {
      guard let found = peek == 0x28 ? innerList() : bareItem() else { return fail() }
      value = found
    }
    guard takesParameters() else { return fail() }
    return Member(name: name, value: value)
  }

  private mutating func fail() -> Member? {
    isMalformed = true
    return nil
  }

  /// 0 behind the end: no character of a structured field.
  private var peek: UInt8 { index < text.count ? text[index] : 0 }

  private mutating func take(_ byte: UInt8) -> Bool {
    guard index < text.count, text[index] == byte else { return false }
    index += 1
    return true
  }

  private mutating func skip(_ blanks: StaticString) {
    let blanks = bytes(of: blanks)
    while index < text.count, blanks.contains(text[index]) { index += 1 }
  }

  private mutating func key() -> Bytes? {
    let start = index
    guard (0x61...0x7A).contains(peek) || peek == 0x2A else { return nil }
    while true {
      switch peek {
      case 0x61...0x7A, 0x30...0x39, 0x5F, 0x2D, 0x2E, 0x2A: index += 1
      default: return Bytes(rebasing: text[start..<index])
      }
    }
  }

  private mutating func takesParameters() -> Bool {
    while take(0x3B) {
      skip(" ")
      guard key() != nil else { return false }
      if take(0x3D), bareItem() == nil { return false }
    }
    return true
  }

  private mutating func innerList() -> Value? {
    index += 1
    while true {
      skip(" ")
      if take(0x29) { return .other }
      guard bareItem() != nil, takesParameters(), peek == 0x20 || peek == 0x29 else { return nil }
    }
  }

  private mutating func bareItem() -> Value? {
    switch peek {
    case 0x2D, 0x30...0x39: return number()
    case 0x22: return string()
    case 0x3A: return byteSequence()
    case 0x3F:
      index += 1
      return take(0x31) ? .yes : take(0x30) ? .no : nil
    case 0x2A, 0x41...0x5A, 0x61...0x7A: return token()
    default: return nil
    }
  }

  private mutating func digits(_ value: inout Int64) -> Int {
    let start = index
    while (0x30...0x39).contains(peek), index - start < 16 {
      value = value * 10 + Int64(peek - 0x30)
      index += 1
    }
    return index - start
  }

  /// At most 15 digits; or 12, a period and at most 3.
  private mutating func number() -> Value? {
    let isNegative = take(0x2D)
    var value: Int64 = 0
    let count = digits(&value)
    guard count > 0, count <= 15 else { return nil }
    guard take(0x2E) else { return .integer(isNegative ? -value : value) }
    let fraction = digits(&value)
    return count <= 12 && fraction > 0 && fraction <= 3 ? .other : nil
  }

  private mutating func string() -> Value? {
    index += 1
    while (0x20...0x7E).contains(peek) {
      if take(0x22) { return .other }
      if take(0x5C), peek != 0x22, peek != 0x5C { return nil }
      index += 1
    }
    return nil
  }

  private mutating func token() -> Value {
    index += 1
    while peek == 0x3A || peek == 0x2F
      || index < text.count && Syntax.isToken(Bytes(rebasing: text[index...index]))
    {
      index += 1
    }
    return .other
  }

  private mutating func byteSequence() -> Value? {
    index += 1
    while true {
      switch peek {
      case 0x3A:
        index += 1
        return .other
      case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2B, 0x2F, 0x3D: index += 1
      default: return nil
      }
    }
  }
}
