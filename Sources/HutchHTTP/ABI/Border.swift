// The boundary between C and the sessions, with what libhutch's boundary shares (ABI/Shared).

public import CHutchHTTP
import CSystem

/// Records a failure and returns its status.
@inline(never)
func failing(
  _ failure: Failure, about subject: UnsafePointer<CChar>? = nil
) -> hutch_status {
  ThreadState.note(failure, nil, subject)
  return failure.status.code
}

extension SessionHandle: HostHandle {
  static var isMissing: StaticString { "the session is NULL" }
  var forks: UInt32 { session.forks }
  func check() throws(Failure) { try session.check() }
}

extension HTTPTask: HostHandle {
  static var isMissing: StaticString { "the task is NULL" }
}

extension hutch_http_progress {
  init(_ traffic: Traffic) {
    self.init()
    struct_size = MemoryLayout<hutch_http_progress>.size
    sent = traffic.sent
    expected_to_send = traffic.expectedToSend
    received = traffic.received
    expected = traffic.expected
  }
}

// MARK: the last failure

@_cdecl("hutch_http_status_name") @implementation
public func hutch_http_status_name(_ status: hutch_status) -> UnsafePointer<CChar>! {
  Status.named(status).httpName.map { literal($0) } ?? Status.named(status).name
}

@_cdecl("hutch_http_error_words") @implementation
public func hutch_http_error_words() -> UnsafePointer<CChar>! { ThreadState.words }

@_cdecl("hutch_http_last_error") @implementation
public func hutch_http_last_error(_ out: UnsafeMutablePointer<hutch_error>!) -> hutch_status {
  giveLastError(to: out)
}
