import CSystem

/// What may be stored, and what of it (RFC 9111, section 3).
enum Storing {
  /// Codes that a heuristic may make fresh (RFC 9110, section 15.1), without 206.
  static func isCacheableByDefault(_ code: Int32) -> Bool {
    switch code {
    case 200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501: true
    default: false
    }
  }

  /// The response to a GET may be stored. `asked`: what the request says.
  static func isAllowed(
    _ response: Response, _ asked: CacheControl, isShared: Bool, hasAuthorization: Bool
  ) -> Bool {
    let control = CacheControl(response.fields)
    let isKnown = isCacheableByDefault(response.code) || response.code == 302
      || response.code == 307
    guard response.code >= 200, response.code != 206, response.code != 304,
      !asked.hasNoStore, isKnown || !control.mustUnderstand,
      !control.hasNoStore || control.mustUnderstand, !isShared || !control.isPrivate,
      !variesAlways(response.fields)
    else { return false }
    if isShared, hasAuthorization, !control.isPublic, !control.mustRevalidate,
      control.sharedMaxAge == nil
    {
      return false
    }
    return control.isPublic || control.isPrivate || control.maxAge != nil
      || response.fields.value(of: "Expires") != nil || isCacheableByDefault(response.code)
      || (isShared && control.sharedMaxAge != nil)
  }

  /// Vary has a star: no other request is answered with it.
  private static func variesAlways(_ fields: borrowing Fields) -> Bool {
    var index: UInt64 = 0
    while let value = fields.value(of: literal("Vary"), skipping: index) {
      index += 1
      var names = ListReader(bytes(of: value))
      while let name = names.next() {
        if name.count == 1, name[0] == 0x2A { return true }
      }
    }
    return false
  }

  /// Copies the headers that are not for one connection (section 3.1). Beside Transfer-Encoding, a
  /// Content-Length is not that of the body (RFC 9112, section 6.3).
  static func copy(_ source: borrowing Fields, to target: inout Fields) throws(Failure) {
    let isLengthWrong = source.value(of: "Transfer-Encoding") != nil
    for index in 0..<source.count
    where !isOfConnection(source.name(index), source)
      && !(isLengthWrong && Letters.areSame(source.name(index), "Content-Length"))
    {
      try target.append(
        name: bytes(of: source.name(index)), value: bytes(of: source.value(index)))
    }
  }

  private static func isOfConnection(
    _ name: UnsafePointer<CChar>, _ fields: borrowing Fields
  ) -> Bool {
    func isNamed(_ own: StaticString) -> Bool { Letters.areSame(name, own) }
    if isNamed("Connection") || isNamed("Keep-Alive") || isNamed("Proxy-Connection")
      || isNamed("TE") || isNamed("Transfer-Encoding") || isNamed("Upgrade")
      || isNamed("Proxy-Authenticate") || isNamed("Proxy-Authentication-Info")
      || isNamed("Proxy-Authorization")
    {
      return true
    }
    var index: UInt64 = 0
    while let value = fields.value(of: literal("Connection"), skipping: index) {
      index += 1
      var names = ListReader(bytes(of: value))
      while let one = names.next() {
        if Letters.areSame(one, bytes(of: name)) { return true }
      }
    }
    return false
  }

  /// The headers of a stored response after a validation (section 3.2): those of the 304 in place
  /// of those of the same name, but for the ones that say how the body is encoded.
  static func updated(
    _ stored: borrowing Fields, with news: borrowing Fields
  ) throws(Failure) -> Fields {
    var result = Fields()
    func isKept(_ name: UnsafePointer<CChar>) -> Bool {
      Letters.areSame(name, "Content-Length") || Letters.areSame(name, "Content-Encoding")
        || Letters.areSame(name, "Content-Range")
    }
    for index in 0..<stored.count
    where isKept(stored.name(index)) || news.value(of: stored.name(index)) == nil {
      // An age that came belongs to the response that had it.
      if Letters.areSame(stored.name(index), "Age") { continue }
      try result.append(
        name: bytes(of: stored.name(index)), value: bytes(of: stored.value(index)))
    }
    for index in 0..<news.count
    where !isKept(news.name(index)) && !isOfConnection(news.name(index), news) {
      try result.append(name: bytes(of: news.name(index)), value: bytes(of: news.value(index)))
    }
    return result
  }
}
