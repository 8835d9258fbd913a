import CHutchHTTP
import CSystem

/// Which responses a request accepts.
final class Acceptance {
  private let first: UInt32
  private let last: UInt32
  private let types: Text?

  private init(_ first: UInt32, _ last: UInt32, _ types: Text?) {
    self.first = first
    self.last = last
    self.types = types
  }

  convenience init(_ given: hutch_http_request) throws(Failure) {
    guard given.first_code <= given.last_code else {
      throw .invalid("the accepted codes end before they begin")
    }
    self.init(given.first_code, given.last_code, try Text.optional(given.media_types))
  }

  /// Makes another request accept the same; `given` is valid as long as this object.
  func copy(to given: inout hutch_http_request) {
    given.first_code = first
    given.last_code = last
    given.media_types = types.map { UnsafePointer($0.start) }
  }

  /// Why a response is not accepted; nil: it is. Every reason is in the words, and the first one
  /// gives the status. `isContinued`: the library has asked for the rest of a file, which has code
  /// 206.
  func rejection(
    of response: Response, hasBody: Bool, isContinued: Bool
  ) throws(Failure) -> Outcome? {
    let type = response.fields.value(of: "Content-Type") ?? literal("none")
    let isCode = last == 0 || (isContinued && response.code == 206)
      || (first...last).contains(UInt32(response.code))
    let isType = !hasBody || types.map { MediaType.isAny(of: $0, type) } ?? true
    if isCode, isType { return nil }
    var words = GrowingArray<UInt8>()
    if !isCode {
      try words.append("its code is ")
      try words.append(number: Int64(response.code))
    }
    if !isType {
      try words.append(isCode ? "its media type is " : ", and its media type is ")
      try words.append(contentsOf: bytes(of: type))
    }
    let status = isCode ? HUTCH_HTTP_MEDIA_TYPE : HUTCH_HTTP_CODE
    return .failed(
      .http(status, "the response is not accepted"), try Text(Bytes(words.elements)))
  }
}

enum MediaType {
  /// The type of a Content-Type, without its parameters.
  static func type(of header: UnsafePointer<CChar>) -> Bytes {
    let whole = bytes(of: header)
    let semicolon = whole.firstIndex(of: 0x3B) ?? whole.count
    return Syntax.trimmed(Bytes(rebasing: whole[..<semicolon]))
  }

  /// True if the type of a Content-Type is one of a list: "application/json, text/*".
  static func isAny(of list: Text, _ header: UnsafePointer<CChar>) -> Bool {
    defer { withExtendedLifetime(list) {} }
    let type = type(of: header)
    var rest = bytes(of: list.start)
    while true {
      let end = rest.firstIndex(of: 0x2C) ?? rest.count
      if matches(Syntax.trimmed(Bytes(rebasing: rest[..<end])), type) { return true }
      if end == rest.count { return false }
      rest = Bytes(rebasing: rest[(end + 1)...])
    }
  }

  private static func matches(_ pattern: Bytes, _ type: Bytes) -> Bool {
    // "*/*", "text/*"
    guard pattern.count >= 2, pattern[pattern.count - 1] == 0x2A,
      pattern[pattern.count - 2] == 0x2F
    else { return Letters.areSame(pattern, type) }
    guard pattern.count > 3 || pattern[0] != 0x2A else { return true }
    let stem = pattern.count - 1
    return type.count > stem
      && Letters.areSame(Bytes(rebasing: pattern[..<stem]), Bytes(rebasing: type[..<stem]))
  }

  /// The charset of a Content-Type; nil: none.
  static func charset(of header: UnsafePointer<CChar>) throws(Failure) -> Text? {
    let mark: StaticString = "charset="
    let count = mark.utf8CodeUnitCount
    let wanted = bytes(of: mark)
    var rest = bytes(of: header)
    while let semicolon = rest.firstIndex(of: 0x3B) {
      rest = Syntax.trimmed(Bytes(rebasing: rest[(semicolon + 1)...]))
      guard rest.count > count, Letters.areSame(Bytes(rebasing: rest[..<count]), wanted) else {
        continue
      }
      var value = Bytes(rebasing: rest[count..<(rest.firstIndex(of: 0x3B) ?? rest.count)])
      value = Syntax.trimmed(value)
      if value.count >= 2, value.first == 0x22, value.last == 0x22 {
        value = Bytes(rebasing: value.dropFirst().dropLast())
      }
      return try Text(value)
    }
    return nil
  }
}
