import CHutchHTTP
import CSystem

/// What a session is made with: a checked copy, which does not change.
struct Configuration: ~Copyable {
  let flags: UInt32
  let version: UInt32
  let connectionsPerHost: Int
  let width: Int
  let redirects: Int
  /// Nanoseconds; `totalTimeout` 0: none.
  let connectTimeout: Int64
  let idleTimeout: Int64
  let totalTimeout: Int64
  let progressInterval: Int64
  let maxHeaders: UInt64
  let maxBody: UInt64
  let proxy: Text?
  let cookieFile: Text?
  let security: Security
  /// Nil: there is none.
  let cache: HTTPCache?
  let fields: Fields

  var keepsCookies: Bool { flags & UInt32(HUTCH_HTTP_COOKIES) != 0 }
  var allowsInsecureRedirects: Bool { flags & UInt32(HUTCH_HTTP_INSECURE_REDIRECTS) != 0 }

  static func checked(_ given: hutch_http_configuration) throws(Failure) -> Configuration {
    try checkFlags(given.flags, UInt32(HUTCH_HTTP_COOKIES | HUTCH_HTTP_INSECURE_REDIRECTS))
    guard given.version <= UInt32(HUTCH_HTTP_VERSION_2) else {
      throw .unknown("a version of HTTP is not defined", given.version)
    }
    guard given.reserved == 0 else { throw Failure(.unsupported, "a reserved field is set") }
    let interval = given.progress_interval
    let cookieFile = try Text.optional(given.cookie_file)
    if cookieFile != nil, given.flags & UInt32(HUTCH_HTTP_COOKIES) == 0 {
      throw .invalid("a cookie file is named, but cookies are off")
    }
    return Configuration(
      flags: given.flags,
      version: given.version,
      connectionsPerHost: try count(given.connections_per_host, else: 6),
      width: try count(given.width, else: 256),
      redirects: try count(given.redirects, else: 20),
      connectTimeout: try duration(given.connect_timeout, else: 30),
      idleTimeout: try duration(given.idle_timeout, else: 60),
      totalTimeout: try checkedDuration(given.total_timeout),
      progressInterval: interval == 0 ? 100_000_000 : try checkedDuration(interval),
      maxHeaders: given.max_headers == 0 ? 256 << 10 : given.max_headers,
      maxBody: given.max_body == 0 ? 64 << 20 : given.max_body,
      proxy: try proxy(given),
      cookieFile: cookieFile,
      security: try Security(try received(given.security, over: hutch_http_security())),
      cache: try HTTPCache.optional(given),
      fields: try checkedFields(given.headers, given.header_count))
  }

  private static func proxy(_ given: hutch_http_configuration) throws(Failure) -> Text? {
    let proxy = try Text.optional(given.proxy)
    if let proxy, !Syntax.isAddress(bytes(of: proxy.start)) {
      throw .invalid("the URL of the proxy is malformed")
    }
    return proxy
  }

  private static func count(_ number: UInt32, else value: Int) throws(Failure) -> Int {
    guard number <= 65_536 else { throw .invalid("a number of the configuration is too large") }
    return number == 0 ? value : Int(number)
  }

  private static func duration(_ given: Int64, else seconds: Int64) throws(Failure) -> Int64 {
    given == 0 ? seconds * 1_000_000_000 : try checkedDuration(given)
  }
}

/// Headers of the host. Those that decide where a body ends are the library's.
func checkedFields(
  _ headers: UnsafePointer<hutch_http_header>?, _ count: Int
) throws(Failure) -> Fields {
  guard count >= 0, count <= 4096, headers != nil || count == 0 else {
    throw .invalid("the headers are NULL, or more than 4,096")
  }
  var fields = Fields()
  for index in 0..<count {
    guard let name = headers![index].name, let value = headers![index].value,
      Syntax.isToken(bytes(of: name)), Syntax.isValue(bytes(of: value))
    else { throw .invalid("the name or the value of a header is malformed") }
    if Letters.areSame(name, "Content-Length") || Letters.areSame(name, "Transfer-Encoding") {
      throw .invalid("Content-Length and Transfer-Encoding follow from the body")
    }
    try fields.append(name: bytes(of: name), value: Syntax.trimmed(bytes(of: value)))
  }
  return fields
}
