// Group sessions.

public import CHutchHTTP
import CSystem

@_cdecl("hutch_http_session_create") @implementation
public func hutch_http_session_create(
  _ configuration: UnsafePointer<hutch_http_configuration>!,
  _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out) { () throws(Failure) in
    let given = try received(configuration, over: hutch_http_configuration())
    let session = try Session(try Configuration.checked(given))
    try session.start()
    return handOut(SessionHandle(session))
  }
}

@_cdecl("hutch_http_session_end") @implementation
public func hutch_http_session_end(_ session: OpaquePointer!, _ how: UInt32) -> hutch_status {
  with(session, SessionHandle.self) { (handle) throws(Failure) in
    guard how <= UInt32(HUTCH_HTTP_CANCEL) else {
      throw .unknown("a way to end a session is not defined", how)
    }
    handle.session.end(how == UInt32(HUTCH_HTTP_FINISH) ? .finish : .cancel)
    return .done
  }
}

@_cdecl("hutch_http_session_wait") @implementation
public func hutch_http_session_wait(
  _ session: OpaquePointer!, _ timeout: Int64
) -> hutch_status {
  with(session, SessionHandle.self) { (handle) throws(Failure) in
    try handle.session.awaitEnd(try checkedDuration(timeout))
  }
}

@_cdecl("hutch_http_session_retain") @implementation
public func hutch_http_session_retain(_ session: OpaquePointer!) -> OpaquePointer! {
  retained(session, SessionHandle.self)
}

@_cdecl("hutch_http_session_release") @implementation
public func hutch_http_session_release(_ session: OpaquePointer!) {
  release(session, SessionHandle.self)
}
