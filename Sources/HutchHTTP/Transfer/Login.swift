import CCurl
import CHutchHTTP
import CSystem

/// The answers to challenges of a server and of a proxy.
struct Login: ~Copyable {
  struct Answer {
    var user: Text?
    var password: Text?
    var isDigest = false
    var attempts: UInt32 = 0
  }

  var server = Answer()
  var proxy = Answer()
  /// The request was made to get the numbers that a digest needs: libcurl repeats it itself.
  var isNegotiating = false

  mutating func forgetServer() { server = Answer() }

  func set(_ options: Options) {
    if let user = server.user {
      options.set(CURLOPT_HTTPAUTH, server.isDigest ? 2 : 1)
      options.set(CURLOPT_USERNAME, user.start)
      options.set(CURLOPT_PASSWORD, server.password?.start)
    }
    if let user = proxy.user {
      options.set(CURLOPT_PROXYAUTH, proxy.isDigest ? 2 : 1)
      options.set(CURLOPT_PROXYUSERNAME, user.start)
      options.set(CURLOPT_PROXYPASSWORD, proxy.password?.start)
    }
  }
}

extension Transfer {
  private static var mostAttempts: UInt32 { 3 }

  /// Asks the host for an answer to a 401 or 407. False: there is none.
  func answersChallenge() throws(Failure) -> Bool {
    let isProxy = response.code == 407
    guard let ask = request.onChallenge else { return false }
    var answer = isProxy ? login.proxy : login.server
    guard answer.attempts < Transfer.mostAttempts,
      let challenge = try Challenge(in: response, isProxy: isProxy)
    else { return false }
    answer.attempts += 1
    var told = hutch_http_challenge()
    told.struct_size = MemoryLayout<hutch_http_challenge>.size
    told.attempt = answer.attempts
    told.is_proxy = isProxy ? 1 : 0
    told.url = UnsafePointer(url.start)
    told.scheme = literal(challenge.isDigest ? "digest" : "basic")
    told.realm = UnsafePointer(challenge.realm.start)
    var credentials = hutch_http_credentials()
    credentials.struct_size = MemoryLayout<hutch_http_credentials>.size
    // They do not stay on the stack.
    defer { withUnsafeMutableBytes(of: &credentials) { hutch_explicit_clear($0) } }
    // The struct points to it.
    let realm = challenge.realm
    defer { withExtendedLifetime(realm) {} }
    let refusal = task.calling { ask(request.context, task.pointer, &told, &credentials) }
    guard refusal == 0 else { return false }
    answer.user = try withUnsafeBytes(of: &credentials.user) { (field) throws(Failure) in
      try Transfer.text(field)
    }
    answer.password = try withUnsafeBytes(of: &credentials.password) {
      (field) throws(Failure) in try Transfer.text(field)
    }
    answer.isDigest = challenge.isDigest
    if isProxy { login.proxy = answer } else { login.server = answer }
    login.isNegotiating = challenge.isDigest
    return true
  }

  /// A field of the host's that ends with NUL.
  private static func text(_ field: Bytes) throws(Failure) -> Text {
    guard let end = field.firstIndex(of: 0) else {
      throw .invalid("a user or a password does not end with NUL")
    }
    return try Text(Bytes(rebasing: field[..<end]))
  }
}

private func hutch_explicit_clear(_ bytes: UnsafeMutableRawBufferPointer) {
  explicit_bzero(bytes.baseAddress!, bytes.count)
}

/// A challenge that the library can answer: the strongest of those in the response.
private struct Challenge {
  var isDigest = false
  let realm: Text

  init?(in response: Response, isProxy: Bool) throws(Failure) {
    let name = literal(isProxy ? "Proxy-Authenticate" : "WWW-Authenticate")
    var best: UnsafePointer<CChar>?
    var index: UInt64 = 0
    while let value = response.fields.value(of: name, skipping: index) {
      index += 1
      if Challenge.begins(value, with: "Digest") {
        isDigest = true
        best = value
      } else if best == nil, Challenge.begins(value, with: "Basic") {
        best = value
      }
    }
    guard let best else { return nil }
    realm = try Text(Challenge.realm(in: bytes(of: best)))
  }

  private static func begins(_ value: UnsafePointer<CChar>, with name: StaticString) -> Bool {
    let text = bytes(of: value)
    let count = name.utf8CodeUnitCount
    guard text.count >= count else { return false }
    return Letters.areSame(
      Bytes(rebasing: text[..<count]), Bytes(start: name.utf8Start, count: count))
  }

  /// The text between the quotes behind `realm=`; without a backslash as it stands.
  private static func realm(in text: Bytes) -> Bytes {
    let mark: StaticString = "realm=\""
    let count = mark.utf8CodeUnitCount
    let wanted = Bytes(start: mark.utf8Start, count: count)
    let nothing = Bytes(rebasing: text[..<0])
    guard text.count > count else { return nothing }
    for start in 0..<(text.count - count)
    where Letters.areSame(Bytes(rebasing: text[start..<(start + count)]), wanted) {
      let rest = Bytes(rebasing: text[(start + count)...])
      guard let end = rest.firstIndex(of: 0x22) else { return nothing }
      return Bytes(rebasing: rest[..<end])
    }
    return nothing
  }
}
