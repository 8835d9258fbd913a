import CCurl
import CHutchHTTP
import CSystem

/// The header lines of a response, and what follows from them.
extension Transfer {
  /// One line, with its end.
  func receiveLine(_ line: Bytes) throws(Failure) {
    hasMoved()
    headerBytes += UInt64(line.count)
    guard headerBytes <= configuration.maxHeaders else {
      throw Failure(.tooLarge, "the response has more bytes of headers than max_headers")
    }
    let text = Syntax.trimmed(line)
    // The trailers behind a body are not part of the response. Another response follows one that
    // libcurl itself acts on.
    if let step, step != .negotiation || !isStatusLine(text) { return }
    if isStatusLine(text) {
      beginResponse(text)
      // What most responses need.
      return try response.fields.reserve(16, bytes: 480)
    }
    // Without a connection, a proxy answers whether it makes a tunnel.
    if !isConnected, response.code != 407 { return }
    if text.count == 0 {
      if !isConnected {
        _ = try isRetried()
      } else if response.code >= 200 {
        // 100 to 199 announce another response.
        try decide()
      }
      return
    }
    if line[0] == 0x20 || line[0] == 0x09 {
      try response.fields.extendLast(text)
      return response.fields.cleanLast(text.count)
    }
    guard let start = text.baseAddress, let mark = memchr(start, 0x3A, text.count) else { return }
    let colon = UnsafeRawPointer(mark) - start
    let name = Bytes(rebasing: text[..<colon])
    let value = Syntax.trimmed(Bytes(rebasing: text[(colon + 1)...]))
    guard Syntax.isToken(name) else {
      throw .http(HUTCH_HTTP_BAD_RESPONSE, "the name of a header is malformed")
    }
    try response.fields.append(name: name, value: value)
    response.fields.cleanLast(value.count)
  }

  private func isStatusLine(_ text: Bytes) -> Bool {
    let mark: StaticString = "HTTP/"
    return text.begins(with: bytes(of: mark))
  }

  /// libcurl has checked the line.
  private func beginResponse(_ line: Bytes) {
    var parts = (Int32(0), Int32(0))
    if let space = line.firstIndex(of: 0x20) {
      for byte in line[(space + 1)...].prefix(3) where byte >= 0x30 && byte <= 0x39 {
        parts.0 = parts.0 * 10 + Int32(byte - 0x30)
      }
      for byte in line[5..<space] where byte >= 0x30 && byte <= 0x39 {
        parts.1 = min(parts.1 * 10 + Int32(byte - 0x30), 99)
      }
    }
    if step == .negotiation { metrics.requests += 1 }
    step = nil
    response.code = parts.0
    // "2" and "3" have no minor version.
    response.version = UInt32(parts.1 < 10 ? parts.1 * 10 : parts.1)
    response.fields.removeAll()
  }

  /// The headers are complete.
  func decide() throws(Failure) {
    if !response.isFromCache { try checkLength() }
    if request.decompresses, !Coding.areKnown(response.fields) { passBodyAsItIs() }
    if try isValidation() { return }
    try prepareToStore()
    switch response.code {
    case 401, 407:
      if try isRetried() { return }
    case 301, 302, 303, 307, 308:
      if request.followsRedirects, let place = response.fields.value(of: "Location"),
        try isFollowing(place)
      {
        step = .redirect
        return
      }
    default: break
    }
    try respond()
  }

  /// The request is made again, with an answer to the challenge in the response.
  private func isRetried() throws(Failure) -> Bool {
    if login.negotiation == response.code {
      login.negotiation = nil
      step = .negotiation
      return true
    }
    guard !staysOffline, try answersChallenge() else { return false }
    step = .retry
    return true
  }

  /// Of several lengths libcurl would take the last one, and a proxy perhaps the first one. A
  /// length that is too large libcurl would ignore, and of one with letters it would take the
  /// digits: a body that was cut would look complete (RFC 9112, section 6.3).
  private func checkLength() throws(Failure) {
    guard let length = response.fields.value(of: "Content-Length"),
      response.fields.value(of: "Transfer-Encoding") == nil
    else { return }
    var members = ListReader(bytes(of: length))
    guard let first = members.next() else { return }
    if response.fields.hasMember("Content-Length", where: { !$0.hasSameBytes(as: first) }) {
      throw .http(HUTCH_HTTP_BAD_RESPONSE, "the response has two lengths")
    }
    guard !hasBody || CacheControl.size(first) != nil else {
      throw .http(HUTCH_HTTP_BAD_RESPONSE, "the length of the response is no number of bytes")
    }
  }

  /// libcurl has no decoder for the body, and would fail.
  private func passBodyAsItIs() {
    _ = hutch_curl_number(easy, CURLOPT_HTTP_CONTENT_DECODING, 0)
  }

  /// The response is the final one, unless a part of a file has to be asked for as a whole.
  func respond() throws(Failure) {
    // A range that the server does not have is the library's affair.
    let isContinued = try destination.resumption() != nil
    if response.code != 416 || !isContinued {
      rejection = try request.acceptance.rejection(
        of: response, hasBody: hasBody, isContinued: isContinued)
    }
    if rejection == nil {
      guard try destination.begin(response) else {
        step = .retry
        return
      }
    }
    step = .response
    try tellCacheStatus()
    task.publish(response)
    if let call = request.onResponse {
      task.calling { call(request.context, task.pointer) }
    }
  }

  /// As far as the headers tell.
  private var hasBody: Bool {
    if response.code == 204 || response.code == 304 { return false }
    if Letters.areSame(method.start, "HEAD") { return false }
    guard let length = response.fields.value(of: "Content-Length") else { return true }
    return !Letters.areSame(length, "0")
  }

  // MARK: redirects

  /// Decides about a redirect, and notes where it leads.
  private func isFollowing(_ place: UnsafePointer<CChar>) throws(Failure) -> Bool {
    guard metrics.redirects < UInt64(configuration.redirects) else {
      throw .http(HUTCH_HTTP_REDIRECT, "there are too many redirects")
    }
    guard let target = try Address.resolve(place, against: url) else {
      throw .http(HUTCH_HTTP_REDIRECT, "a redirect leads to a URL that is not allowed")
    }
    if Address.isSecure(url), !Address.isSecure(target), !configuration.allowsInsecureRedirects {
      throw .http(HUTCH_HTTP_REDIRECT, "a redirect leads from https to http")
    }
    if let ask = request.onRedirect {
      let code = response.code
      let answer = task.calling { ask(request.context, task.pointer, code, target.start) }
      if answer != 0 { return false }
    }
    next = target
    return true
  }

  /// Makes the request that a redirect asks for (RFC 9110, section 15.4).
  func follow(_ target: Text) throws(Failure) {
    let isHead = Letters.areSame(method.start, "HEAD")
    let isPost = Letters.areSame(method.start, "POST")
    let code = response.code
    if (code == 303 && !isHead) || ((code == 301 || code == 302) && isPost) {
      method = try Text(literal("GET"))
      body = nil
      traffic = Traffic()
    }
    if !Address.haveSameOrigin(url, target) {
      isForeign = true
      login.forgetServer()
    }
    try rewind()
    go(to: target)
    try begin()
  }
}
