import CCurl
import CHutchHTTP
import CSystem

/// The objects of libcurl and libhutch that a session needs.
struct Library {
  let sockets: Sockets
  let share: UnsafeMutableRawPointer
  let queue: OpaquePointer

  static func prepare(for configuration: borrowing Configuration) throws(Failure) -> Library {
    // It is not undone: libcurl cannot be unloaded while a thread may still use it.
    guard hutch_curl_init() == CURLE_OK, let information = hutch_curl_version()
    else { throw Failure(.unsupported, "libcurl could not be initialised") }
    guard information.pointee.version_num >= 0x075800 else {
      throw Failure(.unsupported, "libcurl is older than 7.88")
    }
    if configuration.version == UInt32(HUTCH_HTTP_VERSION_2),
      information.pointee.features & CURL_VERSION_HTTP2 == 0
    {
      throw Failure(.unsupported, "this libcurl has no HTTP/2")
    }
    let sockets = try Sockets()
    var options = hutch_queue_options()
    options.struct_size = MemoryLayout<hutch_queue_options>.size
    options.flags = UInt32(HUTCH_QUEUE_NO_THREADS)
    var queue: OpaquePointer?
    guard hutch_queue_create(&options, &queue) == HUTCH_OK, let queue else { throw .noMemory }
    guard let share = curl_share_init() else {
      hutch_queue_release(queue)
      throw .noMemory
    }
    // Without functions for locks: one thread uses it.
    _ = hutch_curl_share_data(share, CURL_LOCK_DATA_SSL_SESSION)
    if configuration.keepsCookies { _ = hutch_curl_share_data(share, CURL_LOCK_DATA_COOKIE) }
    let perHost = configuration.connectionsPerHost
    _ = hutch_curl_multi_number(sockets.multi, CURLMOPT_MAX_HOST_CONNECTIONS, perHost)
    return Library(sockets: sockets, share: share, queue: queue)
  }
}

/// The cookies of a session: they live in the share, where an easy handle of their own reads and
/// writes them.
struct CookieFile: ~Copyable {
  private let easy: UnsafeMutableRawPointer?

  /// Reads the file, if there is one.
  init(_ configuration: borrowing Configuration, _ share: UnsafeMutableRawPointer?) {
    guard let path = configuration.cookieFile, let easy = curl_easy_init() else {
      self.easy = nil
      return
    }
    self.easy = easy
    _ = hutch_curl_pointer(easy, CURLOPT_SHARE, share)
    _ = hutch_curl_pointer(easy, CURLOPT_COOKIEFILE, path.start)
    _ = hutch_curl_pointer(easy, CURLOPT_COOKIEJAR, path.start)
    _ = hutch_curl_pointer(easy, CURLOPT_COOKIELIST, literal("RELOAD"))
  }

  /// Writes the file.
  deinit {
    guard let easy else { return }
    _ = hutch_curl_pointer(easy, CURLOPT_COOKIELIST, literal("FLUSH"))
    _ = hutch_curl_pointer(easy, CURLOPT_SHARE, nil)
    curl_easy_cleanup(easy)
  }
}
