import CSystem

/// The directives of Cache-Control (RFC 9111, section 5.2; RFC 5861; RFC 8246), of a request or a
/// response.
/// Directives that are not known have no effect. A number is in seconds; one that is malformed
/// counts as 0, which makes the response stale (section 4.2.1). Of several numbers of one name the
/// smallest counts.
struct CacheControl {
  var hasNoStore = false
  /// Not the form that names headers, which are not stored: see Storing.appendWithheld.
  var hasNoCache = false
  var isPrivate = false
  var isPublic = false
  var mustRevalidate = false
  var proxyRevalidate = false
  var mustUnderstand = false
  /// RFC 8246.
  var isImmutable = false
  var onlyIfCached = false
  /// They are those of CDN-Cache-Control, beside which Expires does not count.
  var isTargeted = false
  var maxAge: Int64?
  var sharedMaxAge: Int64?
  var minFresh: Int64?
  /// The greatest number: any staleness.
  var maxStale: Int64?
  var staleWhileRevalidate: Int64?
  var staleIfError: Int64?

  init() {}

  /// Of all headers of that name.
  init(_ fields: borrowing Fields) {
    var place = 0
    while let value = fields.next(literal("Cache-Control"), &place) {
      add(value)
    }
  }

  mutating func add(_ value: UnsafePointer<CChar>) {
    var members = ListReader(bytes(of: value))
    while let member = members.next() { add(directive: member) }
  }

  private mutating func add(directive: Bytes) {
    let equals = directive.firstIndex(of: 0x3D)
    let end = equals ?? directive.count
    let name = Syntax.trimmed(Bytes(rebasing: directive[..<end]))
    let argument = equals.map { Bytes(rebasing: directive[($0 + 1)...]) }
    // A space beside the equals sign makes the number malformed.
    let number = name.count == end ? argument.flatMap(CacheControl.number) : nil
    func least(_ now: Int64?) -> Int64 { min(now ?? Int64.max, number ?? 0) }
    func isNamed(_ wanted: StaticString) -> Bool { Letters.areSame(name, wanted) }
    let isWhole = CacheControl.names(argument).count == 0
    set(isNamed, true, isWhole: isWhole, least)
    // Those of requests.
    if isNamed("only-if-cached") { onlyIfCached = true }
    if isNamed("max-stale") { maxStale = argument == nil ? Int64.max : least(maxStale) }
    // The strictest is the largest here.
    if isNamed("min-fresh") { minFresh = max(minFresh ?? 0, number ?? CacheControl.most) }
  }

  /// Sets the directive of responses of which `isNamed` is true. `isSet`: what one without a number
  /// becomes; `isWhole`: it does not name headers, which no-cache and private may; `number`: what
  /// one with a number becomes, from what it was.
  mutating func set(
    _ isNamed: (StaticString) -> Bool, _ isSet: Bool, isWhole: Bool, _ number: (Int64?) -> Int64
  ) {
    if isNamed("no-store") { hasNoStore = isSet }
    if isNamed("no-cache"), isWhole { hasNoCache = isSet }
    if isNamed("private"), isWhole { isPrivate = isSet }
    if isNamed("public") { isPublic = isSet }
    if isNamed("must-revalidate") { mustRevalidate = isSet }
    if isNamed("proxy-revalidate") { proxyRevalidate = isSet }
    if isNamed("must-understand") { mustUnderstand = isSet }
    if isNamed("immutable") { isImmutable = isSet }
    if isNamed("max-age") { maxAge = number(maxAge) }
    if isNamed("s-maxage") { sharedMaxAge = number(sharedMaxAge) }
    if isNamed("stale-while-revalidate") { staleWhileRevalidate = number(staleWhileRevalidate) }
    if isNamed("stale-if-error") { staleIfError = number(staleIfError) }
  }

  /// The headers that an argument names, as a list; empty: none.
  static func names(_ argument: Bytes?) -> Bytes {
    guard let argument else { return Bytes(start: nil, count: 0) }
    let text = Syntax.trimmed(argument)
    guard text.count >= 2, text.first == 0x22, text.last == 0x22 else { return text }
    return Syntax.trimmed(Bytes(rebasing: text[1..<(text.count - 1)]))
  }

  /// A number that is larger counts as this one (section 1.2.2).
  static var most: Int64 { 1 << 31 }

  /// A size in bytes; nil: malformed.
  static func size(_ digits: Bytes) -> Int? {
    guard digits.count > 0, digits.count <= 18 else { return nil }
    var value = 0
    for digit in digits {
      guard digit >= 0x30, digit <= 0x39 else { return nil }
      value = value * 10 + Int(digit - 0x30)
    }
    return value
  }

  /// Seconds, with or without quotes; nil: malformed.
  static func number(_ text: Bytes) -> Int64? {
    var digits = text
    if digits.count >= 2, digits.first == 0x22, digits.last == 0x22 {
      digits = Bytes(rebasing: digits.dropFirst().dropLast())
    }
    var value: Int64 = 0
    for digit in digits {
      guard digit >= 0x30, digit <= 0x39 else { return nil }
      value = min(value * 10 + Int64(digit - 0x30), most)
    }
    return digits.count > 0 ? value : nil
  }
}

/// The members of a list in a header, which commas separate outside of quoted strings (RFC 9110,
/// section 5.6.1): trimmed, and without those that are empty.
struct ListReader {
  private var rest: Bytes

  init(_ text: Bytes) { rest = text }

  mutating func next() -> Bytes? {
    while rest.count > 0 {
      let end = ListReader.end(of: rest)
      let member = Syntax.trimmed(Bytes(rebasing: rest[..<end]))
      rest = Bytes(rebasing: rest[min(end + 1, rest.count)...])
      if member.count > 0 { return member }
    }
    return nil
  }

  private static func end(of text: Bytes) -> Int {
    var isQuoted = false
    var index = 0
    while index < text.count {
      switch text[index] {
      case 0x22: isQuoted = !isQuoted
      case 0x5C where isQuoted: index += 1
      case 0x2C where !isQuoted: return index
      default: break
      }
      index += 1
    }
    return text.count
  }
}
