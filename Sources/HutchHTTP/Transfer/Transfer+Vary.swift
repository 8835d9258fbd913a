import CHutchHTTP
import CSystem

/// What a request sends in the headers that Vary names (RFC 9111, section 4.1).
extension Transfer {
  /// The request at hand has a header that the host has set.
  func sends(_ name: StaticString) -> Bool {
    request.fields.value(of: name) != nil && !(isForeign && isPrivate(literal(name)))
  }

  /// libcurl chooses what is sent: a cookie of the jar, the answer to a challenge, or the user in
  /// the URL. It is not known here, so it cannot be compared.
  private func isUnseen(_ name: UnsafePointer<CChar>) -> Bool {
    if Letters.areSame(name, "Cookie") { return configuration.keepsCookies }
    return Letters.areSame(name, "Authorization") && hasUser
  }

  /// libcurl sends credentials of its own accord.
  var hasUser: Bool { login.server.user != nil || Address.hasUser(url) }

  /// Appends "=" and the values of a header, joined; nothing: it is not sent.
  private func appendSent(
    _ name: UnsafePointer<CChar>, to text: inout GrowingArray<UInt8>
  ) throws(Failure) {
    if isForeign && isPrivate(name) { return }
    try append(request.fields, name, to: &text)
    // What libcurl sends of itself is the same for all requests with the flag.
    if text.isEmpty, request.acceptsCompressed, Letters.areSame(name, "Accept-Encoding") {
      try text.append("=*")
    }
  }

  /// Two ways to write a list are one: on several lines, with other blanks beside its commas. So
  /// are languages, codings and charsets in capitals, with other blanks, and in another order:
  /// their weights say what is preferred (RFC 9110, sections 12.4.2 and 12.5).
  private func append(
    _ fields: borrowing Fields, _ name: UnsafePointer<CChar>, to text: inout GrowingArray<UInt8>
  ) throws(Failure) {
    var header = 0
    let isWeighted = Letters.areSame(name, "Accept-Language")
      || Letters.areSame(name, "Accept-Encoding") || Letters.areSame(name, "Accept-Charset")
    var found = GrowingArray<Bytes>()
    while let value = fields.next(name, &header) {
      if text.isEmpty { try text.append("=") }
      var members = ListReader(bytes(of: value))
      while let member = members.next() {
        try found.append(member)
        var place = found.count - 1
        while isWeighted, place > 0, Transfer.isBefore(member, found[place - 1]) {
          found[place] = found[place - 1]
          place -= 1
        }
        found[place] = member
      }
    }
    for member in found.elements {
      if text.count > 1 { try text.append(", ") }
      for byte in member where !isWeighted || byte != 0x20 && byte != 0x09 {
        try text.append(isWeighted ? Letters.lower(byte) : byte)
      }
    }
  }

  /// In the order of the alphabet, whatever the case; blanks do not count.
  private static func isBefore(_ one: Bytes, _ other: Bytes) -> Bool {
    var (left, right) = (0, 0)
    func skip(_ text: Bytes, _ index: inout Int) {
      while index < text.count, text[index] == 0x20 || text[index] == 0x09 { index += 1 }
    }
    while true {
      skip(one, &left)
      skip(other, &right)
      guard right < other.count else { return false }
      guard left < one.count else { return true }
      let letters = (Letters.lower(one[left]), Letters.lower(other[right]))
      if letters.0 != letters.1 { return letters.0 < letters.1 }
      left += 1
      right += 1
    }
  }

  /// Notes in a response to be stored what the request sent. False: it cannot be compared with
  /// another request.
  func noteVariance(_ draft: StoredResponse) throws(Failure) -> Bool {
    var place = 0
    while let value = draft.fields.next(literal("Vary"), &place) {
      var names = ListReader(bytes(of: value))
      while let name = names.next() {
        let text = try Text(name)
        defer { withExtendedLifetime(text) {} }
        guard Syntax.isToken(name), !isUnseen(text.start) else { return false }
        var sent = GrowingArray<UInt8>()
        try appendSent(text.start, to: &sent)
        try draft.variance.append(name: name, value: Bytes(sent.elements))
      }
    }
    return true
  }

  /// The stored response is one for requests like this.
  func isAnswered(by stored: StoredResponse) throws(Failure) -> Bool {
    if stored.fields.value(of: "Content-Encoding") != nil,
      stored.isDecoded != request.decodes(stored.fields)
    {
      return false
    }
    for index in 0..<stored.variance.count {
      if isUnseen(stored.variance.name(index)) { return false }
      var sent = GrowingArray<UInt8>()
      try appendSent(stored.variance.name(index), to: &sent)
      guard Bytes(sent.elements).hasSameBytes(as: bytes(of: stored.variance.value(index))) else {
        return false
      }
    }
    return true
  }
}
