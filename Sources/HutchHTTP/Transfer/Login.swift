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
  /// With this code the server or the proxy tells the numbers that a digest needs: libcurl repeats
  /// the request itself.
  var negotiation: Int32?

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
    defer { withUnsafeMutableBytes(of: &credentials) { explicit_bzero($0.baseAddress!, $0.count) } }
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
    // The rest of the name would be a part of the password (RFC 7617, section 2).
    if !answer.isDigest, let user = answer.user, bytes(of: user.start).contains(0x3A) {
      throw .invalid("a user for basic has a colon")
    }
    if isProxy { login.proxy = answer } else { login.server = answer }
    login.negotiation = challenge.isDigest ? response.code : nil
    return true
  }

  /// A field of the host's that ends with NUL.
  private static func text(_ field: Bytes) throws(Failure) -> Text {
    guard let end = field.firstIndex(of: 0) else {
      throw .invalid("a user or a password does not end with NUL")
    }
    let text = Bytes(rebasing: field[..<end])
    // libcurl puts the user into a header as it is.
    guard Syntax.isValue(text) else {
      throw .invalid("a user or a password has a control character")
    }
    return try Text(text)
  }
}

/// A challenge that the library can answer: the strongest of those in the response.
private struct Challenge {
  let isDigest: Bool
  let realm: Text

  init?(in response: Response, isProxy: Bool) throws(Failure) {
    var isFound = false
    var isStrong = false
    // The parameters at hand are of the challenge that was chosen.
    var isChosen = false
    var chosen = Bytes(start: nil, count: 0)
    let name: StaticString = isProxy ? "Proxy-Authenticate" : "WWW-Authenticate"
    // The commas between challenges are those between their parameters (RFC 9110, section 11.6.1).
    try response.fields.forEachMember(name) { (member) throws(Failure) in
      var parameter = member
      if let scheme = Challenge.scheme(of: member) {
        let isStronger = Letters.areSame(scheme, "Digest")
        isChosen = isStronger ? !isStrong : !isFound && Letters.areSame(scheme, "Basic")
        if isChosen {
          isFound = true
          isStrong = isStronger
          chosen = Bytes(start: nil, count: 0)
        }
        parameter = Syntax.trimmed(Bytes(rebasing: member[scheme.count...]))
      }
      if isChosen, let found = Challenge.realm(in: parameter) { chosen = found }
    }
    guard isFound else { return nil }
    isDigest = isStrong
    realm = try Text(chosen)
  }

  /// The scheme with which a challenge begins; nil: it is one more parameter.
  private static func scheme(of member: Bytes) -> Bytes? {
    guard let end = member.firstIndex(where: { $0 == 0x3D || $0 == 0x20 || $0 == 0x09 }) else {
      return member
    }
    let rest = Syntax.trimmed(Bytes(rebasing: member[end...]))
    return rest.first == 0x3D ? nil : Bytes(rebasing: member[..<end])
  }

  /// The value of `realm="..."`, with its backslashes; nil: it is another parameter.
  private static func realm(in parameter: Bytes) -> Bytes? {
    guard let equals = parameter.firstIndex(of: 0x3D),
      Letters.areSame(Syntax.trimmed(Bytes(rebasing: parameter[..<equals])), "realm")
    else { return nil }
    let value = Syntax.trimmed(Bytes(rebasing: parameter[(equals + 1)...]))
    guard value.first == 0x22 else { return value }
    let rest = Bytes(rebasing: value.dropFirst())
    return rest.last == 0x22 ? Bytes(rebasing: rest.dropLast()) : Bytes(rebasing: rest[..<0])
  }
}
