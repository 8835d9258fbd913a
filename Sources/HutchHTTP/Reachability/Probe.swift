import CCurl
import CSystem

/// A connection to a host, which is made and closed again without a byte sent on it. libcurl looks
/// up the name in a thread of its own, and tries all addresses.
final class Probe {
  private let multi: UnsafeMutableRawPointer
  private let easy: UnsafeMutableRawPointer

  private init(_ multi: UnsafeMutableRawPointer, _ easy: UnsafeMutableRawPointer) {
    self.multi = multi
    self.easy = easy
  }

  convenience init(of url: Text, in multi: UnsafeMutableRawPointer) throws(Failure) {
    guard let easy = curl_easy_init() else { throw .noMemory }
    // Copied, as every text that libcurl takes.
    guard hutch_curl_pointer(easy, CURLOPT_URL, url.start) != 0,
      hutch_curl_number(easy, CURLOPT_CONNECT_ONLY, 1) != 0,
      hutch_curl_number(easy, CURLOPT_FRESH_CONNECT, 1) != 0,
      hutch_curl_number(easy, CURLOPT_DNS_CACHE_TIMEOUT, 0) != 0,
      hutch_curl_number(easy, CURLOPT_NOSIGNAL, 1) != 0, hutch_curl_opens(easy) != 0,
      // The monitor's deadline ends a probe.
      hutch_curl_number(easy, CURLOPT_CONNECTTIMEOUT, 100_000) != 0,
      // Else the end of a probe would wait for the look-up of its name.
      hutch_curl_number(easy, CURLOPT_QUICK_EXIT, 1) != 0,
      hutch_curl_pointer(easy, CURLOPT_PROXY, literal("")) != 0,
      curl_multi_add_handle(multi, easy) == CURLM_OK
    else {
      curl_easy_cleanup(easy)
      throw .noMemory
    }
    self.init(multi, easy)
  }

  deinit {
    curl_multi_remove_handle(multi, easy)
    curl_easy_cleanup(easy)
  }

  /// Continues the one probe of a multi handle. True: there is a connection; false: none can be
  /// made; nil: not known yet.
  static func result(in multi: UnsafeMutableRawPointer) -> Bool? {
    var running: Int32 = 0
    var left: Int32 = 0
    curl_multi_perform(multi, &running)
    while let message = curl_multi_info_read(multi, &left) {
      if message.pointee.msg == CURLMSG_DONE { return hutch_curl_result(message) == CURLE_OK }
    }
    return nil
  }
}
