import CHutchHTTP
import CSystem

/// What a task is made with: a checked copy, which does not change, and the host's callbacks.
struct Request: ~Copyable {
  let url: Text
  let method: Text
  /// Nil: there is none.
  let body: Body?
  /// The Content-Type of the body, unless the host's headers have one.
  let mediaType: Text?
  let acceptance: Acceptance
  let decoders: Decoders
  let download: Text?
  let flags: UInt32
  /// 0: the session's.
  let cacheMode: UInt32
  let idleTimeout: Int64
  let totalTimeout: Int64
  let complete: hutch_http_complete?
  let onProgress: hutch_http_on_progress?
  let onResponse: hutch_http_on_response?
  let onBody: hutch_http_on_body?
  let onRedirect: hutch_http_on_redirect?
  let onChallenge: hutch_http_on_challenge?
  let context: UnsafeMutableRawPointer?
  let release: hutch_release?
  let fields: Fields
  /// References of their own, or nil.
  let port: OpaquePointer?
  let queue: OpaquePointer?

  var followsRedirects: Bool { flags & UInt32(HUTCH_HTTP_NO_REDIRECTS) == 0 }
  var acceptsCompressed: Bool { flags & UInt32(HUTCH_HTTP_COMPRESSED) != 0 }
  /// A range of compressed bytes could not be decompressed: it is asked for as it is.
  var decompresses: Bool { acceptsCompressed && fields.value(of: "Range") == nil }
  /// libcurl decompresses the body of a response with these headers.
  func decodes(_ fields: borrowing Fields) -> Bool { decompresses && Coding.areKnown(fields) }

  var isResumable: Bool { flags & UInt32(HUTCH_HTTP_RESUME) != 0 }

  static func checked(
    _ given: hutch_http_request, for configuration: borrowing Configuration
  ) throws(Failure) -> Request {
    guard let address = given.url else { throw .invalid("the URL is NULL") }
    try checkFlags(
      given.flags,
      UInt32(
        HUTCH_HTTP_NO_REDIRECTS | HUTCH_HTTP_COMPRESSED | HUTCH_HTTP_RESUME | HUTCH_HTTP_JSON
          | HUTCH_HTTP_ANY_THREAD))
    let (body, mediaType) = try content(given)
    let method = given.method ?? literal(body == nil ? "GET" : "POST")
    guard Syntax.isToken(bytes(of: method)) else { throw .invalid("the method is malformed") }
    let isDownload = given.download != nil
    if isDownload {
      guard given.on_body == nil, given.flags & UInt32(HUTCH_HTTP_COMPRESSED) == 0 else {
        throw .invalid("a download has no on_body, and is not compressed")
      }
    }
    let isResumable = given.flags & UInt32(HUTCH_HTTP_RESUME) != 0
    if isResumable {
      guard isDownload, body == nil, Letters.areSame(method, "GET") else {
        throw .invalid("what is resumed is a download by GET")
      }
    }
    guard given.port == nil || given.queue == nil else {
      throw .invalid("a completion has a port or a queue")
    }
    let idle = try checkedDuration(given.idle_timeout)
    let total = try checkedDuration(given.total_timeout)
    let decoders = try Decoders.checked(given.decoders, given.decoder_count)
    guard decoders.isEmpty || (!isDownload && given.on_body == nil) else {
      throw .invalid("what is decoded is in memory: no download, no on_body")
    }
    guard given.reserved == 0 else { throw Failure(.unsupported, "a reserved field is set") }
    let fields = try fields(given, configuration.fields)
    guard !isResumable || fields.value(of: "Range") == nil else {
      throw .invalid("what is resumed has no range of its own")
    }
    return Request(
      url: try Encoding.address(address, given.query, given.query_count),
      method: try Text(method),
      body: body,
      mediaType: mediaType,
      acceptance: try Acceptance(given),
      decoders: decoders,
      download: try Text.optional(given.download),
      flags: given.flags,
      cacheMode: try HTTPCache.checkedMode(given.cache_mode),
      idleTimeout: idle == 0 ? configuration.idleTimeout : idle,
      totalTimeout: total == 0 ? configuration.totalTimeout : total,
      complete: given.complete,
      onProgress: given.on_progress,
      onResponse: given.on_response,
      onBody: given.on_body,
      onRedirect: given.on_redirect,
      onChallenge: given.on_challenge,
      context: given.context,
      release: given.release,
      fields: fields,
      // Nothing throws from here on.
      port: hutch_port_retain(given.port),
      queue: hutch_queue_retain(given.queue))
  }

  /// A transfer of the request runs code of the host.
  var callsHost: Bool {
    let calls =
      complete != nil || onProgress != nil || onResponse != nil || onBody != nil
      || onRedirect != nil || onChallenge != nil || release != nil
    return calls || body != nil || port != nil || queue != nil || !decoders.isEmpty
  }

  deinit {
    hutch_port_release(port)
    hutch_queue_release(queue)
  }

  /// The headers of the request, and those of the session that it does not have itself.
  private static func fields(
    _ given: hutch_http_request, _ sessions: borrowing Fields
  ) throws(Failure) -> Fields {
    var all = try checkedFields(given.headers, given.header_count)
    let own = all.count
    for index in 0..<sessions.count {
      let name = sessions.name(index)
      if (0..<own).contains(where: { Letters.areSame(all.name($0), name) }) { continue }
      try all.append(name: bytes(of: name), value: bytes(of: sessions.value(index)))
    }
    return all
  }

  /// The body, and its media type if that is the library's to say.
  private static func content(
    _ given: hutch_http_request
  ) throws(Failure) -> (body: Body?, type: Text?) {
    let isPlain =
      given.body != nil || given.body_size != 0 || given.body_file != nil || given.read != nil
    let isForm = given.form != nil || given.form_count != 0
    let isMultipart = given.parts != nil || given.part_count != 0
    let kinds = (isPlain ? 1 : 0) + (isForm ? 1 : 0) + (isMultipart ? 1 : 0)
    guard kinds <= 1 else { throw .invalid("a request has one body") }
    let isJSON = given.flags & UInt32(HUTCH_HTTP_JSON) != 0
    if isJSON {
      let text = try checkedBytes(given.body, given.body_size, "the bytes of a body are NULL")
      guard JSONCheck.isValid(text) else { throw .invalid("the body is not JSON") }
    }
    guard kinds == 1 else { return (nil, nil) }
    let body = Body()
    if isForm {
      var text = GrowingArray<UInt8>()
      try Encoding.append(given.form, given.form_count, isForm: true, to: &text)
      try body.append(copying: Bytes(text.elements))
      return (body, try Text(literal("application/x-www-form-urlencoded")))
    }
    if isMultipart {
      return (body, try Encoding.append(given.parts, given.part_count, to: body))
    }
    try body.append(
      oneOf: given.body, given.body_size, file: given.body_file, given.read, given.read_size)
    return (body, isJSON ? try Text(literal("application/json")) : nil)
  }

  /// The host's priority; -1, 0 or 1.
  static func checkedPriority(_ priority: Int32) throws(Failure) -> Int {
    guard priority >= -1, priority <= 1 else {
      throw .unknown("a priority is not defined", UInt32(bitPattern: priority))
    }
    return Int(priority)
  }
}
