import CHutchHTTP
import CSystem

/// Whom a session trusts: a checked copy.
final class Security {
  let checksChain: Bool
  let checksName: Bool
  /// The pinned keys as libcurl takes them: "sha256//base64;sha256//base64".
  let keys: Text?
  /// The pinned certificates in PEM.
  let certificates: Text?
  let authorities: Text?
  let identity: Text?
  let identityKey: Text?
  let identityPassword: Text?

  private init(_ flags: UInt32, _ keys: Text?, _ certificates: Text?, _ files: Files) {
    checksChain = flags & UInt32(HUTCH_HTTP_ANY_CHAIN) == 0
    checksName = flags & UInt32(HUTCH_HTTP_ANY_NAME) == 0
    self.keys = keys
    self.certificates = certificates
    authorities = files.authorities
    identity = files.identity
    identityKey = files.key
    identityPassword = files.password
  }

  private struct Files {
    let authorities: Text?
    let identity: Text?
    let key: Text?
    let password: Text?
  }

  convenience init(_ given: hutch_http_security) throws(Failure) {
    try checkFlags(given.flags, UInt32(HUTCH_HTTP_ANY_CHAIN | HUTCH_HTTP_ANY_NAME))
    guard given.reserved == 0 else { throw Failure(.unsupported, "a reserved field is set") }
    let count = given.public_key_count
    guard count >= 0, count <= 64, given.public_keys != nil || count == 0 else {
      throw .invalid("the public keys are NULL, or more than 64")
    }
    guard count == 0 || given.certificates == nil else {
      throw .invalid("either public keys or certificates are pinned")
    }
    let keys = count == 0 ? nil : try Security.list(given.public_keys, count)
    let certificates = try Text.optional(given.certificates)
    if let certificates {
      let hasOne = try PEM.forEachCertificate(in: bytes(of: certificates.start)) {
        (digits) throws(Failure) in digits.count > 0
      }
      guard hasOne else { throw .invalid("the pinned certificates have none in PEM") }
    }
    let files = Files(
      authorities: try Text.optional(given.authorities),
      identity: try Text.optional(given.identity), key: try Text.optional(given.identity_key),
      password: try Text.optional(given.identity_password))
    self.init(given.flags, keys, certificates, files)
  }

  private static func list(_ digests: UnsafeRawPointer, _ count: Int) throws(Failure) -> Text {
    let prefix: StaticString = "sha256//"
    var text = GrowingArray<UInt8>()
    for index in 0..<count {
      if index > 0 { try text.append(0x3B) }
      try text.append(prefix)
      try PEM.encode(Bytes(start: digests + 32 * index, count: 32), to: &text)
    }
    return try Text(Bytes(text.elements))
  }

  /// True if `certificate`, in PEM, is one of those that are pinned.
  func isPinned(_ certificate: Bytes) throws(Failure) -> Bool {
    guard let certificates else { return true }
    let pinned = bytes(of: certificates.start)
    return try PEM.forEachCertificate(in: certificate) { (presented) throws(Failure) in
      try PEM.forEachCertificate(in: pinned) { (digits) throws(Failure) in
        digits.hasSameBytes(as: presented)
      }
    }
  }
}
