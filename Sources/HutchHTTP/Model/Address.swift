import CCurl
import CSystem

/// URLs, as libcurl reads them: what it connects to is what was checked.
enum Address {
  /// The URL of a request.
  static func checked(_ text: UnsafePointer<CChar>) throws(Failure) -> Text {
    if PlainAddress(bytes(of: text)) != nil { return try Text(text) }
    guard Syntax.isAddress(bytes(of: text)), let url = Parsed(text), url.isHTTP else {
      throw .invalid("the URL is not an absolute one of http or https")
    }
    return try Text(text)
  }

  /// The URL that a reference in a response to `base` means, with the user of `base` if both have
  /// one origin; nil: it is none of http or https, or has a user of its own.
  static func resolve(
    _ reference: UnsafePointer<CChar>, against base: Text
  ) throws(Failure) -> Text? {
    guard Syntax.isAddress(bytes(of: reference)), let before = Parsed(base.start),
      let url = Parsed(base.start)
    else { return nil }
    url.removeUser()
    guard url.set(reference), url.isHTTP, !url.has(CURLUPART_USER), !url.has(CURLUPART_PASSWORD)
    else { return nil }
    if url.hasSameOrigin(as: before) {
      url.copy(CURLUPART_USER, of: before)
      url.copy(CURLUPART_PASSWORD, of: before)
    }
    guard let whole = url.part(CURLUPART_URL) else { throw .noMemory }
    defer { curl_free(whole) }
    return try Text(whole)
  }

  /// The URL http://host:port of a URL.
  static func plain(_ url: Text) throws(Failure) -> Text {
    guard let url = Parsed(url.start), let host = url.part(CURLUPART_HOST) else { throw .noMemory }
    defer { curl_free(host) }
    guard let port = url.part(CURLUPART_PORT) else { throw .noMemory }
    defer { curl_free(port) }
    guard let made = Parsed(literal("http://host")), made.set(CURLUPART_HOST, host),
      made.set(CURLUPART_PORT, port), let whole = made.part(CURLUPART_URL)
    else { throw .noMemory }
    defer { curl_free(whole) }
    return try Text(whole)
  }

  /// Appends one text for all URLs of one resource: with its port, without user and fragment, its
  /// scheme and host in small letters.
  static func append(
    canonical url: Text, to target: inout GrowingArray<UInt8>
  ) throws(Failure) {
    defer { withExtendedLifetime(url) {} }
    try target.reserve(target.count + url.count + 8)
    guard let plain = PlainAddress(Bytes(start: url.start, count: url.count)) else {
      let text = try canonical(url)
      try target.append(contentsOf: Bytes(start: text.start, count: text.count))
      return withExtendedLifetime(text) {}
    }
    try target.append(contentsOf: plain.origin)
    if let port = plain.port {
      try target.append(0x3A)
      try target.append(contentsOf: port)
    } else {
      try target.append(plain.isSecure ? ":443" : ":80")
    }
    try target.append(contentsOf: plain.path)
  }

  /// The same, as libcurl reads and writes it.
  private static func canonical(_ url: Text) throws(Failure) -> Text {
    guard let parsed = Parsed(url.start) else { throw .noMemory }
    parsed.remove(CURLUPART_FRAGMENT)
    parsed.removeUser()
    guard let whole = parsed.part(CURLUPART_URL) else { throw .noMemory }
    defer { curl_free(whole) }
    let text = try Text(whole)
    var slashes = 0
    for index in 0..<text.count where slashes < 3 {
      let byte = UInt8(bitPattern: text.start[index])
      if byte == 0x2F { slashes += 1 }
      text.start[index] = CChar(bitPattern: Letters.lower(byte))
    }
    return text
  }

  /// True if the URL has a user, which becomes a header Authorization.
  static func hasUser(_ url: Text) -> Bool { Parsed(url.start)?.has(CURLUPART_USER) ?? false }

  static func isSecure(_ url: Text) -> Bool {
    // As libcurl writes it, which most are: then there is no need to read the rest.
    if strncmp(url.start, literal("https://"), 8) == 0 { return true }
    if strncmp(url.start, literal("http://"), 7) == 0 { return false }
    return Parsed(url.start)?.isSecure ?? false
  }

  /// True if both have one scheme, host and port.
  static func haveSameOrigin(_ a: Text, _ b: Text) -> Bool {
    guard let a = Parsed(a.start), let b = Parsed(b.start) else { return false }
    return a.hasSameOrigin(as: b)
  }
}

/// A URL in parts: the handle of libcurl's parser.
private final class Parsed {
  private let handle: OpaquePointer

  init?(_ text: UnsafePointer<CChar>) {
    guard let handle = curl_url() else { return nil }
    self.handle = handle
    if !set(text) { return nil }
  }

  deinit { curl_url_cleanup(handle) }

  /// Sets the URL, or one that is relative to the current one.
  func set(_ text: UnsafePointer<CChar>) -> Bool {
    curl_url_set(handle, CURLUPART_URL, text, 0) == CURLUE_OK
  }

  func set(_ part: CURLUPart, _ text: UnsafePointer<CChar>) -> Bool {
    curl_url_set(handle, part, text, 0) == CURLUE_OK
  }

  func remove(_ part: CURLUPart) { curl_url_set(handle, part, nil, 0) }

  func removeUser() {
    remove(CURLUPART_USER)
    remove(CURLUPART_PASSWORD)
  }

  func copy(_ part: CURLUPart, of other: Parsed) {
    guard let text = other.part(part) else { return }
    _ = set(part, text)
    curl_free(text)
  }

  /// The caller frees the text with `curl_free`.
  func part(_ part: CURLUPart) -> UnsafeMutablePointer<CChar>? {
    var text: UnsafeMutablePointer<CChar>?
    let code = curl_url_get(handle, part, &text, UInt32(CURLU_DEFAULT_PORT))
    return code == CURLUE_OK ? text : nil
  }

  func has(_ part: CURLUPart) -> Bool {
    guard let text = self.part(part) else { return false }
    curl_free(text)
    return true
  }

  private func isScheme(_ name: StaticString) -> Bool {
    guard let scheme = part(CURLUPART_SCHEME) else { return false }
    defer { curl_free(scheme) }
    return Letters.areSame(scheme, name)
  }

  var isSecure: Bool { isScheme("https") }
  var isHTTP: Bool { (isSecure || isScheme("http")) && has(CURLUPART_HOST) }

  func hasSameOrigin(as other: Parsed) -> Bool {
    isSecure == other.isSecure && hasSame(CURLUPART_HOST, as: other)
      && hasSame(CURLUPART_PORT, as: other)
  }

  private func hasSame(_ part: CURLUPart, as other: Parsed) -> Bool {
    let mine = self.part(part)
    let others = other.part(part)
    defer {
      curl_free(mine)
      curl_free(others)
    }
    guard let mine, let others else { return false }
    return Letters.areSame(mine, others)
  }
}
