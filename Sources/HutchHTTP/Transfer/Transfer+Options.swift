import CCurl
import CHutchHTTP
import CSystem

/// What libcurl is told of a request.
extension Transfer {
  /// Sets every option anew. The handle is new, or has been reset: no request has an option of
  /// another.
  func setOptions(
    _ easy: UnsafeMutableRawPointer, _ words: UnsafeMutablePointer<CChar>
  ) throws(Failure) {
    try setLines()
    let options = Options(easy)
    options.set(CURLOPT_ERRORBUFFER, words)
    options.set(CURLOPT_NOSIGNAL, 1)
    options.set(CURLOPT_URL, url.start)
    options.set(CURLOPT_PROTOCOLS_STR, literal("http,https"))
    options.set(CURLOPT_PATH_AS_IS, 1)
    options.set(CURLOPT_SHARE, session.share)
    options.set(CURLOPT_NOPROGRESS, 0)
    options.set(CURLOPT_BUFFERSIZE, session.bufferSize)
    options.set(CURLOPT_HTTPHEADER, lines)
    let connect = configuration.connectTimeout
    options.set(CURLOPT_CONNECTTIMEOUT_MS, Int(min((connect - 1) / 1_000_000 + 1, 1 << 30)))
    // Without them libcurl would look at the environment.
    options.set(CURLOPT_NOPROXY, literal(""))
    options.set(CURLOPT_PROXY, configuration.proxy.map { UnsafePointer($0.start) } ?? literal(""))
    if configuration.keepsCookies { options.set(CURLOPT_COOKIEFILE, literal("")) }
    if request.decompresses { options.set(CURLOPT_ACCEPT_ENCODING, literal("")) }
    setVersion(options)
    setMethod(options)
    setSecurity(options)
    login.set(options)
    options.set(CURLOPT_STREAM_WEIGHT, task.priority < 0 ? 4 : task.priority > 0 ? 64 : 16)
    let context = Unmanaged.passUnretained(self).toOpaque()
    let isSet = hutch_curl_callbacks(
      easy, context, Transfer.header, Transfer.body, Transfer.upload, Transfer.seek,
      Transfer.progress, Transfer.open, Transfer.ready)
    if isSet == 0 || !options.areSet { throw .noMemory }
    if options.isRefused { throw .http(HUTCH_HTTP_TLS, "libcurl has no use for a TLS setting") }
  }

  private func setVersion(_ options: Options) {
    switch Int(configuration.version) {
    case HUTCH_HTTP_VERSION_1: options.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1)
    case HUTCH_HTTP_VERSION_2:
      options.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2_PRIOR_KNOWLEDGE)
      // libcurl 7.88 starts HTTP/2 again on a connection that has it (curl's request 10643).
      if hutch_curl_version().pointee.version_num < 0x080000 {
        options.set(CURLOPT_FRESH_CONNECT, 1)
        options.set(CURLOPT_FORBID_REUSE, 1)
        return
      }
    default: options.set(CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_2TLS)
    }
    // A second request waits to hear whether it can be a stream of the first one's connection. TLS
    // says so before a response; without TLS it would wait for the first one's response.
    let isTold = configuration.version == UInt32(HUTCH_HTTP_VERSION_2) || Address.isSecure(url)
    options.set(CURLOPT_PIPEWAIT, isTold ? 1 : 0)
    // libcurl looks at every connection to the host for one that is idle: with the first thousand
    // requests of a session half a million times, and for nothing.
    if !isTold, !session.mayHaveIdle, session.transfers.count <= configuration.connectionsPerHost {
      options.set(CURLOPT_FRESH_CONNECT, 1)
    }
  }

  private func setMethod(_ options: Options) {
    if let body {
      options.set(CURLOPT_UPLOAD, 1)
      options.set(size: CURLOPT_INFILESIZE_LARGE, body.size.map { Int64($0) } ?? -1)
    } else if Letters.areSame(method.start, "HEAD") {
      options.set(CURLOPT_NOBODY, 1)
    } else if Letters.areSame(method.start, "POST") || Letters.areSame(method.start, "PUT") {
      // These say that their body is empty (RFC 9110, section 8.6).
      options.set(CURLOPT_UPLOAD, 1)
      options.set(size: CURLOPT_INFILESIZE_LARGE, 0)
    } else {
      options.set(CURLOPT_HTTPGET, 1)
    }
    // What HTTPGET asks for.
    if body == nil, strcmp(method.start, literal("GET")) == 0 { return }
    options.set(CURLOPT_CUSTOMREQUEST, method.start)
  }

  private func setSecurity(_ options: Options) {
    let security = configuration.security
    options.set(CURLOPT_SSL_VERIFYPEER, security.checksChain ? 1 : 0)
    options.set(CURLOPT_SSL_VERIFYHOST, security.checksName ? 2 : 0)
    if let keys = security.keys { options.set(tls: CURLOPT_PINNEDPUBLICKEY, keys.start) }
    if security.certificates != nil {
      // The certificates are known on the connection of the request that made it, see `ready`.
      options.set(tls: CURLOPT_CERTINFO, 1)
      options.set(CURLOPT_FRESH_CONNECT, 1)
      options.set(CURLOPT_FORBID_REUSE, 1)
      options.set(CURLOPT_SSL_SESSIONID_CACHE, 0)
    }
    if let file = security.authorities {
      options.set(tls: CURLOPT_CAINFO, file.start)
      options.set(tls: CURLOPT_CAPATH, nil)
    }
    if let file = security.identity { options.set(tls: CURLOPT_SSLCERT, file.start) }
    if let file = security.identityKey ?? security.identity {
      options.set(tls: CURLOPT_SSLKEY, file.start)
    }
    if let word = security.identityPassword { options.set(tls: CURLOPT_KEYPASSWD, word.start) }
  }

  // MARK: header lines

  private func setLines() throws(Failure) {
    curl_slist_free_all(lines)
    lines = nil
    for index in 0..<request.fields.count {
      try add(request.fields.name(index), request.fields.value(index))
    }
    func has(_ name: StaticString) -> Bool { request.fields.value(of: name) != nil }
    if let type = request.mediaType, body != nil, !has("Content-Type") {
      try add("Content-Type", type)
    }
    if !has("User-Agent") { try add(literal("User-Agent"), literal("libhutch_http/0.1.0")) }
    if let part = try destination.resumption() {
      try add("Range", try range(from: part.offset))
      try add("If-Range", part.validator)
    }
    try exchange?.forEachCondition(hasControl: has("Cache-Control")) {
      (name, value) throws(Failure) in
      try add(literal(name), value)
    }
    // libcurl would wait a second for servers that do not know it.
    if !has("Expect") { try append(literal("Expect:")) }
  }

  /// "bytes=N-".
  private func range(from offset: UInt64) throws(Failure) -> Text {
    var text = GrowingArray<UInt8>()
    try text.append("bytes=")
    try text.append(number: Int64(offset))
    try text.append("-")
    return try Text(Bytes(text.elements))
  }

  /// True for a header that a foreign origin does not get.
  func isPrivate(_ name: UnsafePointer<CChar>) -> Bool {
    Letters.areSame(name, "Authorization") || Letters.areSame(name, "Cookie")
      || Letters.areSame(name, "Proxy-Authorization") || Letters.areSame(name, "Host")
  }

  /// True for a header that says something about a body.
  private func isOfBody(_ name: UnsafePointer<CChar>) -> Bool {
    Letters.areSame(name, "Content-Type") || Letters.areSame(name, "Content-Encoding")
      || Letters.areSame(name, "Content-Language") || Letters.areSame(name, "Content-Location")
  }

  private func add(
    _ name: UnsafePointer<CChar>, _ value: UnsafePointer<CChar>
  ) throws(Failure) {
    if isForeign && isPrivate(name) { return }
    if request.body != nil && body == nil && isOfBody(name) { return }
    var line = GrowingArray<UInt8>()
    try line.reserve(strlen(name) + strlen(value) + 3)
    try line.append(contentsOf: bytes(of: name))
    // libcurl leaves out a header that ends with the colon, and sends one with a semicolon empty.
    try line.append(value.pointee == 0 ? 0x3B : 0x3A)
    if value.pointee != 0 { try line.append(0x20) }
    try line.append(contentsOf: bytes(of: value))
    try line.append(0)
    try append(
      UnsafeRawPointer(line.elements.baseAddress!).assumingMemoryBound(to: CChar.self))
  }

  private func add(_ name: StaticString, _ value: Text) throws(Failure) {
    try add(literal(name), value.start)
    // What uses the pointer does not keep the text.
    withExtendedLifetime(value) {}
  }

  private func append(_ line: UnsafePointer<CChar>) throws(Failure) {
    guard let longer = curl_slist_append(lines, line) else { throw .noMemory }
    lines = longer
  }
}

/// Sets options of an easy handle, and remembers whether libcurl took them all.
final class Options {
  private let easy: UnsafeMutableRawPointer
  private(set) var areSet = true
  /// libcurl refused one about TLS: its TLS library does not have it.
  private(set) var isRefused = false

  init(_ easy: UnsafeMutableRawPointer) { self.easy = easy }

  func set(_ option: CURLoption, _ number: Int) {
    if hutch_curl_number(easy, option, number) == 0 { areSet = false }
  }

  func set(size option: CURLoption, _ size: Int64) {
    if hutch_curl_size(easy, option, size) == 0 { areSet = false }
  }

  func set(_ option: CURLoption, _ pointer: UnsafeRawPointer?) {
    if hutch_curl_pointer(easy, option, pointer) == 0 { areSet = false }
  }

  func set(tls option: CURLoption, _ pointer: UnsafeRawPointer?) {
    if hutch_curl_pointer(easy, option, pointer) == 0 { isRefused = true }
  }

  func set(tls option: CURLoption, _ number: Int) {
    if hutch_curl_number(easy, option, number) == 0 { isRefused = true }
  }
}
