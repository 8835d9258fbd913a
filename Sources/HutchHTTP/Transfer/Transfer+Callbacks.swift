import CCurl
import CHutchHTTP
import CSystem
import Synchronization

/// What libcurl calls. Each function finds the transfer by its context.
extension Transfer {
  private static func of(_ context: UnsafeMutableRawPointer?) -> Transfer {
    Unmanaged<Transfer>.fromOpaque(context!).takeUnretainedValue()
  }

  static var header: hutch_curl_bytes {
    { line, size, count, context in
      let transfer = Transfer.of(context)
      let bytes = Bytes(start: line, count: size * count)
      do throws(Failure) {
        try transfer.receiveLine(bytes)
        return bytes.count
      } catch {
        transfer.failure = error
        return 0
      }
    }
  }

  static var body: hutch_curl_bytes {
    { start, size, count, context in
      let transfer = Transfer.of(context)
      if transfer.isDropped { return size * count }
      if transfer.task.isPausing.load(ordering: .relaxed) {
        // libcurl keeps the piece, and brings it again.
        transfer.isPaused = true
        return Int(CURL_WRITEFUNC_PAUSE)
      }
      let bytes = Bytes(start: start, count: size * count)
      transfer.hasMoved()
      return transfer.receive(bytes) ? bytes.count : bytes.count == 0 ? 1 : 0
    }
  }

  static var upload: hutch_curl_bytes {
    { start, size, count, context in
      let transfer = Transfer.of(context)
      let target = UnsafeMutableRawBufferPointer(start: start, count: size * count)
      let host = transfer.request.context
      guard let body = transfer.body else { return 0 }
      do throws(Failure) {
        return try transfer.calling { () throws(Failure) in
          try body.read(into: target, context: host)
        }
      } catch {
        transfer.failure = error
        return Int(CURL_READFUNC_ABORT)
      }
    }
  }

  static var seek: hutch_curl_seek {
    { context, offset, origin in
      let transfer = Transfer.of(context)
      guard offset == 0, origin == SEEK_SET, transfer.body != nil else { return 1 }
      do throws(Failure) {
        try transfer.rewind()
        return 0
      } catch {
        transfer.failure = error
        return 1
      }
    }
  }

  static var progress: hutch_curl_progress {
    { context, receives, received, sends, sent in
      Transfer.of(context).moved(Int64(receives), Int64(received), Int64(sends), Int64(sent))
      return 0
    }
  }

  /// A connection is to be made.
  static var open: curl_opensocket_callback {
    { context, _, address in
      Transfer.of(context).getsConnection(isMade: false)
      return hutch_curl_socket(address)
    }
  }

  /// The connection is there, and the request has not been sent.
  static var ready: hutch_curl_ready {
    { context, _, _, _, _ in
      let transfer = Transfer.of(context)
      transfer.getsConnection(isMade: true)
      do throws(Failure) {
        try transfer.checkCertificate()
        return 0
      } catch {
        transfer.failure = error
        return 1
      }
    }
  }

  /// Compares the server's certificate with those that are pinned. libcurl lists the chain with the
  /// server's own certificate first.
  private func checkCertificate() throws(Failure) {
    let security = configuration.security
    guard security.certificates != nil, Address.isSecure(url) else { return }
    guard let pointer = hutch_curl_info_pointer(easy, CURLINFO_CERTINFO) else { throw .pinned }
    let chain = pointer.assumingMemoryBound(to: curl_certinfo.self)
    guard chain.pointee.num_of_certs > 0 else { throw .pinned }
    let mark: StaticString = "Cert:"
    let prefix = bytes(of: mark)
    var next = chain.pointee.certinfo?.pointee
    while let item = next {
      let text = bytes(of: item.pointee.data)
      if text.begins(with: prefix), try security.isPinned(text) { return }
      next = item.pointee.next
    }
    throw .pinned
  }

  /// The body is sent again from its first byte, which the host's function has to know.
  func rewind() throws(Failure) {
    guard let body else { return }
    let host = request.context
    try calling { () throws(Failure) in try body.rewind(context: host) }
  }

  /// Like HTTPTask's, for a body that may throw.
  private func calling<R>(_ body: () throws(Failure) -> R) throws(Failure) -> R {
    try task.calling { Result(catching: body) }.get()
  }
}
