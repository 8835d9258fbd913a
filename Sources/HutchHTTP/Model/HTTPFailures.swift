import CCurl
import CHutchHTTP

extension Status {
  static func http(_ code: Int) -> Status { .named(Int32(code)) }

  /// The name of a status of this library; nil for those of libhutch.
  var httpName: StaticString? {
    switch Int(code) {
    case HUTCH_HTTP_NO_HOST: "HUTCH_HTTP_NO_HOST"
    case HUTCH_HTTP_NO_CONNECTION: "HUTCH_HTTP_NO_CONNECTION"
    case HUTCH_HTTP_LOST: "HUTCH_HTTP_LOST"
    case HUTCH_HTTP_BAD_RESPONSE: "HUTCH_HTTP_BAD_RESPONSE"
    case HUTCH_HTTP_TLS: "HUTCH_HTTP_TLS"
    case HUTCH_HTTP_NOT_TRUSTED: "HUTCH_HTTP_NOT_TRUSTED"
    case HUTCH_HTTP_PIN: "HUTCH_HTTP_PIN"
    case HUTCH_HTTP_REDIRECT: "HUTCH_HTTP_REDIRECT"
    case HUTCH_HTTP_UPLOAD: "HUTCH_HTTP_UPLOAD"
    case HUTCH_HTTP_CODE: "HUTCH_HTTP_CODE"
    case HUTCH_HTTP_MEDIA_TYPE: "HUTCH_HTTP_MEDIA_TYPE"
    case HUTCH_HTTP_DECODE: "HUTCH_HTTP_DECODE"
    default: nil
    }
  }
}

extension Failure {
  static func http(_ code: Int, _ words: StaticString) -> Failure { Failure(.http(code), words) }

  static var pinned: Failure {
    .http(HUTCH_HTTP_PIN, "the server's key or certificate is none of those that are pinned")
  }

  /// What a result of libcurl means. libcurl's own words come behind as the detail.
  static func curl(_ code: CURLcode) -> Failure {
    switch code {
    case CURLE_OUT_OF_MEMORY: .noMemory
    case CURLE_COULDNT_RESOLVE_HOST, CURLE_COULDNT_RESOLVE_PROXY:
      .http(HUTCH_HTTP_NO_HOST, "the name of the host has no address")
    case CURLE_COULDNT_CONNECT, CURLE_PROXY:
      .http(HUTCH_HTTP_NO_CONNECTION, "no connection could be made")
    case CURLE_OPERATION_TIMEDOUT: Failure(.timedOut, "the connection took too long")
    case CURLE_PARTIAL_FILE, CURLE_SEND_ERROR, CURLE_RECV_ERROR, CURLE_GOT_NOTHING,
      CURLE_HTTP2_STREAM:
      .http(HUTCH_HTTP_LOST, "the connection was lost")
    // A bad argument is what libcurl calls a header line without a colon. A failed write is a body
    // that cannot be decompressed, if the library's own functions have not failed.
    case CURLE_WEIRD_SERVER_REPLY, CURLE_UNSUPPORTED_PROTOCOL, CURLE_BAD_CONTENT_ENCODING,
      CURLE_WRITE_ERROR, CURLE_HTTP2, CURLE_RANGE_ERROR, CURLE_BAD_FUNCTION_ARGUMENT:
      .http(HUTCH_HTTP_BAD_RESPONSE, "the response is not valid")
    case CURLE_PEER_FAILED_VERIFICATION, CURLE_SSL_ISSUER_ERROR, CURLE_SSL_INVALIDCERTSTATUS:
      .http(HUTCH_HTTP_NOT_TRUSTED, "the server's certificate is not trusted")
    case CURLE_SSL_PINNEDPUBKEYNOTMATCH: .pinned
    case CURLE_SSL_CONNECT_ERROR, CURLE_SSL_CERTPROBLEM, CURLE_SSL_CIPHER,
      CURLE_SSL_CACERT_BADFILE, CURLE_SSL_CLIENTCERT, CURLE_SSL_ENGINE_INITFAILED,
      CURLE_USE_SSL_FAILED:
      .http(HUTCH_HTTP_TLS, "the TLS handshake failed")
    case CURLE_SEND_FAIL_REWIND:
      .http(HUTCH_HTTP_UPLOAD, "the body cannot be sent a second time")
    default: Failure(.io, "libcurl could not do the request")
    }
  }
}
