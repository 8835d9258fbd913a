import CCurl
import CHutchHTTP
import CSystem

/// The decoders of a request, in turn. A copy, which does not change.
final class Decoders {
  private struct Decoder: BitwiseCopyable {
    let kind: UInt32
    /// A reference of this object, or nil.
    let types: Unmanaged<Text>?
    let decode: hutch_http_decode?
    let context: UnsafeMutableRawPointer?
  }

  private var chain = GrowingArray<Decoder>()

  var isEmpty: Bool { chain.isEmpty }

  private init() {}

  static func checked(
    _ given: UnsafePointer<hutch_http_decoder>?, _ count: Int
  ) throws(Failure) -> Decoders {
    let result = Decoders()
    guard count >= 0, count <= 64, given != nil || count == 0 else {
      throw .invalid("the decoders are NULL, or more than 64")
    }
    for index in 0..<count {
      let one = given![index]
      guard one.kind <= UInt32(HUTCH_HTTP_DECODE_JSON) else {
        throw .unknown("a kind of decoder is not defined", one.kind)
      }
      guard one.reserved == 0 else { throw Failure(.unsupported, "a reserved field is set") }
      guard (one.kind == UInt32(HUTCH_HTTP_DECODE_HOST)) == (one.decode != nil) else {
        throw .invalid("a decoder of the host has a function, and no other has")
      }
      let types = try Text.optional(one.media_types).map { Unmanaged.passRetained($0) }
      do throws(Failure) {
        try result.chain.append(
          Decoder(kind: one.kind, types: types, decode: one.decode, context: one.context))
      } catch {
        types?.release()
        throw error
      }
    }
    return result
  }

  deinit { for one in chain.elements { one.types?.release() } }

  /// Asks each in turn for the body of a response. Nil: one has decoded it.
  func decode(_ response: Response, for task: HTTPTask) throws(Failure) -> Outcome? {
    let type = response.fields.value(of: "Content-Type") ?? literal("none")
    var reasons = GrowingArray<UInt8>()
    for index in 0..<chain.count {
      let one = chain[index]
      if index > 0 { try reasons.append(", ") }
      if let types = one.types?.takeUnretainedValue(), !MediaType.isAny(of: types, type) {
        try reasons.append("it is not of the types of a decoder")
        continue
      }
      guard let reason = try decode(response, one, type, task) else {
        response.decoder = index
        return nil
      }
      try reasons.append(reason)
    }
    let words = try Text(Bytes(reasons.elements))
    return .failed(.http(HUTCH_HTTP_DECODE, "the body could not be decoded"), words)
  }

  /// Nil: it has decoded the body.
  private func decode(
    _ response: Response, _ one: Decoder, _ type: UnsafePointer<CChar>, _ task: HTTPTask
  ) throws(Failure) -> StaticString? {
    let body = Bytes(response.body.elements)
    switch Int(one.kind) {
    case HUTCH_HTTP_DECODE_BYTES: return nil
    case HUTCH_HTTP_DECODE_JSON:
      return JSONCheck.isValid(body) ? nil : "it is not JSON"
    case HUTCH_HTTP_DECODE_TEXT:
      let charset = try MediaType.charset(of: type)
      defer { withExtendedLifetime(charset) {} }
      guard let charset,
        !Letters.areSame(charset.start, "utf-8"), !Letters.areSame(charset.start, "us-ascii")
      else { return UTF8Check.isValid(body) ? nil : "it is not UTF-8" }
      guard let text = try Charset.convert(body, from: charset, most: task.session.configuration)
      else { return "it is not text of its charset" }
      response.text = text
      return nil
    default:
      var object: UnsafeMutableRawPointer?
      let status = task.calling {
        one.decode!(one.context, body.baseAddress, UInt64(body.count), &object)
      }
      guard status == HUTCH_OK else { return "a function of the host has refused it" }
      response.object = object
      return nil
    }
  }
}

/// UTF-8 text that a decoder made.
final class DecodedText {
  var bytes = GrowingArray<UInt8>()
}

enum Charset {
  /// The text in UTF-8; nil: it is not of the charset, or the charset is not known.
  static func convert(
    _ text: Bytes, from charset: Text, most configuration: borrowing Configuration
  ) throws(Failure) -> DecodedText? {
    // A slash would begin an option of iconv.
    for byte in bytes(of: charset.start) where byte == 0x2F { return nil }
    let converter = iconv_open(literal("UTF-8"), charset.start)
    guard let converter, Int(bitPattern: converter) != -1 else { return nil }
    defer { iconv_close(converter) }
    let result = DecodedText()
    var source = UnsafeMutablePointer(
      mutating: text.baseAddress?.assumingMemoryBound(to: CChar.self))
    var left = text.count
    let room = try Allocation.bytes(4096)
    defer { free(room) }
    var isOver = false
    while !isOver {
      var target: UnsafeMutablePointer<CChar>? = room.assumingMemoryBound(to: CChar.self)
      var space = 4096
      // The last call gets what the converter keeps: a letter that an accent could follow.
      let isLast = left == 0
      let failed = (isLast ? iconv(converter, nil, nil, &target, &space)
        : iconv(converter, &source, &left, &target, &space)) == -1
      if failed, hutch_errno() != E2BIG { return nil }
      isOver = isLast && !failed
      try result.bytes.append(contentsOf: Bytes(start: room, count: 4096 - space))
      guard UInt64(result.bytes.count) <= configuration.maxBody else {
        throw Failure(.tooLarge, "the decoded body is larger than max_body")
      }
    }
    return result
  }
}
