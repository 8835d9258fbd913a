import CSystem

/// What may be stored, and what of it (RFC 9111, section 3).
enum Storing {
  /// Codes that a heuristic may make fresh (RFC 9110, section 15.1).
  static func isCacheableByDefault(_ code: Int32) -> Bool {
    switch code {
    case 200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501: true
    default: false
    }
  }

  /// The work for a response grows with the square of this. No server that means well sends more.
  static var mostFields: Int { 1000 }

  /// The response to a GET may be stored. `control`: what decides about it; `asked`: what the
  /// request says.
  static func isAllowed(
    _ response: Response, _ control: CacheControl, _ asked: CacheControl, isShared: Bool,
    hasAuthorization: Bool
  ) -> Bool {
    let isKnown = isCacheableByDefault(response.code) || response.code == 302
      || response.code == 307
    // A proxy asks for credentials (407) whatever the URL is, and 416 is about one range.
    guard response.code >= 200, response.code != 304, response.code != 407, response.code != 416,
      !asked.hasNoStore, isKnown || !control.mustUnderstand,
      !control.hasNoStore || control.mustUnderstand, !isShared || !control.isPrivate,
      !variesAlways(response.fields), response.fields.count <= mostFields,
      !isEndless(response.fields)
    else { return false }
    if isShared, hasAuthorization, !isForOthers(control) { return false }
    return control.isPublic || control.isPrivate || control.maxAge != nil
      || hasExpires(response, control) || isCacheableByDefault(response.code)
      || (isShared && control.sharedMaxAge != nil)
  }

  /// The body has events or pictures as they happen, and no end. Others would wait for that.
  private static func isEndless(_ fields: borrowing Fields) -> Bool {
    guard let header = fields.value(of: "Content-Type") else { return false }
    let type = MediaType.type(of: header)
    return Letters.areSame(type, "text/event-stream")
      || Letters.areSame(type, "multipart/x-mixed-replace")
  }

  /// A shared cache may store it though the request had credentials (section 3.5).
  static func isForOthers(_ control: CacheControl) -> Bool {
    control.isPublic || control.mustRevalidate || control.sharedMaxAge != nil
  }

  /// A stored response may stay, with the headers that a newer response gave it.
  static func mayStay(_ stored: StoredResponse, isShared: Bool) -> Bool {
    let control = stored.control
    return (!control.hasNoStore || control.mustUnderstand) && !(isShared && control.isPrivate)
      && !variesAlways(stored.fields) && stored.fields.count <= mostFields
  }

  /// A response to POST answers a GET if it says how long, and for which URL: its own (RFC 9110,
  /// section 9.3.3). The URL is the caller's affair.
  static func isAllowedForPost(
    _ response: Response, _ control: CacheControl, isShared: Bool
  ) -> Bool {
    response.code >= 200 && response.code <= 299
      && (control.maxAge != nil || (isShared && control.sharedMaxAge != nil)
        || hasExpires(response, control))
  }

  private static func hasExpires(_ response: Response, _ control: CacheControl) -> Bool {
    !control.isTargeted && response.fields.value(of: "Expires") != nil
  }

  /// Vary has a star: no other request is answered with it.
  static func variesAlways(_ fields: borrowing Fields) -> Bool {
    fields.hasMember("Vary") { $0.count == 1 && $0[0] == 0x2A }
  }

  /// Copies the headers that are not for one connection (section 3.1). Beside Transfer-Encoding, a
  /// Content-Length is not that of the body (RFC 9112, section 6.3).
  static func copy(
    _ source: borrowing Fields, to target: inout Fields, isShared: Bool
  ) throws(Failure) {
    let isLengthWrong = source.value(of: "Transfer-Encoding") != nil
    var named = try namesOfConnection(source)
    try appendWithheld(source, isShared, to: &named)
    try target.append(contentsOf: source) {
      !isOfConnection(bytes(of: $0), named)
        && !(isLengthWrong && Letters.areSame($0, "Content-Length"))
    }
  }

  /// Appends what a directive names: `no-cache="a"`, or in a shared cache `private="a, b"`
  /// (sections 5.2.2.4 and 5.2.2.7). Such a header answers no other request; the rest of the
  /// response may.
  private static func appendWithheld(
    _ fields: borrowing Fields, _ isShared: Bool, to names: inout GrowingArray<Bytes>
  ) throws(Failure) {
    try fields.forEachMember("Cache-Control") { (member) throws(Failure) in
      guard let equals = member.firstIndex(of: 0x3D) else { return }
      let directive = Bytes(rebasing: member[..<equals])
      guard Letters.areSame(directive, "no-cache")
        || (isShared && Letters.areSame(directive, "private"))
      else { return }
      var list = ListReader(CacheControl.names(Bytes(rebasing: member[(equals + 1)...])))
      while let name = list.next() { try names.append(name) }
    }
  }

  /// The headers that Connection names. They are as long valid as `fields`.
  private static func namesOfConnection(
    _ fields: borrowing Fields
  ) throws(Failure) -> GrowingArray<Bytes> {
    var names = GrowingArray<Bytes>()
    try fields.forEachMember("Connection") { (name) throws(Failure) in try names.append(name) }
    return names
  }

  private static func isOfConnection(
    _ name: Bytes, _ named: borrowing GrowingArray<Bytes>
  ) -> Bool {
    func isNamed(_ own: StaticString) -> Bool { Letters.areSame(name, own) }
    if isNamed("Connection") || isNamed("Keep-Alive") || isNamed("Proxy-Connection")
      || isNamed("TE") || isNamed("Transfer-Encoding") || isNamed("Upgrade")
      || isNamed("Proxy-Authenticate") || isNamed("Proxy-Authentication-Info")
      || isNamed("Proxy-Authorization")
    {
      return true
    }
    for other in named.elements where Letters.areSame(other, name) { return true }
    return false
  }

  /// The headers of a stored response after a validation (section 3.2): those of the 304 in place
  /// of those of the same name, but for the ones that say how the body is encoded.
  static func updated(
    _ stored: borrowing Fields, with news: borrowing Fields, isShared: Bool
  ) throws(Failure) -> Fields {
    var all = Fields()
    func isKept(_ name: UnsafePointer<CChar>) -> Bool {
      Letters.areSame(name, "Content-Length") || Letters.areSame(name, "Content-Encoding")
        || Letters.areSame(name, "Content-Range")
    }
    // An age that came belongs to the response that had it.
    try all.append(contentsOf: stored) {
      (isKept($0) || !news.has($0)) && !Letters.areSame($0, "Age")
    }
    let named = try namesOfConnection(news)
    try all.append(contentsOf: news) { !isKept($0) && !isOfConnection(bytes(of: $0), named) }
    var result = Fields()
    try copy(all, to: &result, isShared: isShared)
    return result
  }
}
