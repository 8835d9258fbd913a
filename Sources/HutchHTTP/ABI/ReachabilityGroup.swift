// Group reachability.

public import CHutchHTTP
import CSystem

extension Monitor.Plan {
  init(_ given: hutch_http_reachability_options) throws(Failure) {
    guard given.flags == 0, given.reserved == 0 else {
      throw Failure(.unsupported, "a reserved field is set")
    }
    if let url = given.url { self.url = try Address.plain(try Address.checked(url)) }
    timeout = given.timeout == 0 ? 5_000_000_000 : try checkedDuration(given.timeout)
    interval = given.interval == 0 ? 60_000_000_000 : try checkedDuration(given.interval)
    tell = given.on_change
    context = given.context
    release = given.release
  }
}

@_cdecl("hutch_http_reachability_start") @implementation
public func hutch_http_reachability_start(
  _ options: UnsafePointer<hutch_http_reachability_options>!,
  _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  var given = hutch_http_reachability_options()
  out?.pointee = nil
  let status = answering { () throws(Failure) in
    try receive(options, into: &given)
    guard let out else { throw .invalid("out is NULL") }
    let monitor = try Monitor(try Monitor.Plan(given))
    try monitor.start()
    out.pointee = handOut(MonitorHandle(monitor))
    return .done
  }
  // The monitor owns the context now, or the host gets it back.
  if status != HUTCH_OK { ThreadState.give(given.context, back: given.release, of: nil) }
  return status
}

@_cdecl("hutch_http_reachability_state") @implementation
public func hutch_http_reachability_state(
  _ monitor: OpaquePointer!, _ state: UnsafeMutablePointer<UInt32>!
) -> hutch_status {
  with(monitor, MonitorHandle.self) { (handle) throws(Failure) in
    guard let state else { throw .invalid("state is NULL") }
    state.pointee = handle.monitor.lastState.rawValue
    return .done
  }
}

@_cdecl("hutch_http_reachability_stop") @implementation
public func hutch_http_reachability_stop(_ monitor: OpaquePointer!) -> hutch_status {
  with(monitor, MonitorHandle.self) { (handle) throws(Failure) in
    handle.monitor.stop()
    return .done
  }
}

@_cdecl("hutch_http_reachability_retain") @implementation
public func hutch_http_reachability_retain(_ monitor: OpaquePointer!) -> OpaquePointer! {
  retained(monitor, MonitorHandle.self)
}

@_cdecl("hutch_http_reachability_release") @implementation
public func hutch_http_reachability_release(_ monitor: OpaquePointer!) {
  release(monitor, MonitorHandle.self)
}
