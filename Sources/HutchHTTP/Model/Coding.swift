import CCurl
import CSystem

/// The codings of Content-Encoding that libcurl decodes (RFC 9110, section 8.4.1).
enum Coding {
  /// All that a response names; also if it names none. Otherwise the host gets the body as it is.
  static func areKnown(_ fields: borrowing Fields) -> Bool {
    !fields.hasMember("Content-Encoding") { !isKnown($0) }
  }

  private static func isKnown(_ name: Bytes) -> Bool {
    func isNamed(_ wanted: StaticString) -> Bool { Letters.areSame(name, wanted) }
    func has(_ feature: Int32) -> Bool {
      hutch_curl_version().pointee.features & feature != 0
    }
    if isNamed("identity") { return true }
    if isNamed("deflate") || isNamed("gzip") || isNamed("x-gzip") { return has(CURL_VERSION_LIBZ) }
    if isNamed("br") { return has(CURL_VERSION_BROTLI) }
    return isNamed("zstd") && has(CURL_VERSION_ZSTD)
  }
}
