// Group tasks.

public import CHutchHTTP
import CSystem

/// Calls `body` with a task that can be used.
private func withTask(
  _ pointer: OpaquePointer?, _ body: (HTTPTask) throws(Failure) -> Status
) -> hutch_status {
  with(pointer, HTTPTask.self, body)
}

@_cdecl("hutch_http_task_create") @implementation
public func hutch_http_task_create(
  _ session: OpaquePointer!, _ request: UnsafePointer<hutch_http_request>!,
  _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  task?.pointee = nil
  var given = hutch_http_request()
  let status = answering { () throws(Failure) in
    try receive(request, into: &given)
    guard let task else { throw .invalid("out is NULL") }
    let handle = try checked(session, SessionHandle.self)
    let session = handle.session
    let priority = try Request.checkedPriority(given.priority)
    let made = HTTPTask(
      try Request.checked(given, for: session.configuration), of: session, priority: priority)
    try session.add(made)
    task.pointee = handOut(made)
    return .done
  }
  // The task owns the context now, or the host gets it back.
  if status != HUTCH_OK { ThreadState.give(given.context, back: given.release, of: nil) }
  return status
}

@_cdecl("hutch_http_task_resume") @implementation
public func hutch_http_task_resume(_ task: OpaquePointer!) -> hutch_status {
  withTask(task) { (task) throws(Failure) in
    task.resume()
    return .done
  }
}

@_cdecl("hutch_http_task_suspend") @implementation
public func hutch_http_task_suspend(_ task: OpaquePointer!) -> hutch_status {
  withTask(task) { (task) throws(Failure) in
    task.suspend()
    return .done
  }
}

@_cdecl("hutch_http_task_cancel") @implementation
public func hutch_http_task_cancel(
  _ task: OpaquePointer!, _ was: UnsafeMutablePointer<UInt32>!
) -> hutch_status {
  withTask(task) { (task) throws(Failure) in
    let before = task.cancel()
    was?.pointee = before.rawValue
    return .done
  }
}

@_cdecl("hutch_http_task_set_priority") @implementation
public func hutch_http_task_set_priority(
  _ task: OpaquePointer!, _ priority: Int32
) -> hutch_status {
  withTask(task) { (task) throws(Failure) in
    task.setPriority(try Request.checkedPriority(priority))
    return .done
  }
}

@_cdecl("hutch_http_task_status") @implementation
public func hutch_http_task_status(
  _ task: OpaquePointer!, _ state: UnsafeMutablePointer<UInt32>!,
  _ result: UnsafeMutablePointer<hutch_status>!
) -> hutch_status {
  withTask(task) { (task) throws(Failure) in
    guard let state else { throw .invalid("state is NULL") }
    let (now, status) = task.session.lock.withLock { (task.state, task.status) }
    state.pointee = now.rawValue
    if now == .ended { result?.pointee = status }
    return .done
  }
}

@_cdecl("hutch_http_task_wait") @implementation
public func hutch_http_task_wait(_ task: OpaquePointer!, _ timeout: Int64) -> hutch_status {
  withTask(task) { (task) throws(Failure) in
    try task.session.wait(try checkedDuration(timeout)) { task.isDelivered }
  }
}

@_cdecl("hutch_http_task_retain") @implementation
public func hutch_http_task_retain(_ task: OpaquePointer!) -> OpaquePointer! {
  guard let task else { return nil }
  reference(task, HTTPTask.self)._withUnsafeGuaranteedRef { $0.addHost() }
  return retained(task, HTTPTask.self)
}

@_cdecl("hutch_http_task_release") @implementation
public func hutch_http_task_release(_ task: OpaquePointer!) {
  guard let task else { return }
  reference(task, HTTPTask.self)._withUnsafeGuaranteedRef { object in
    if !Process.isParents(object.forks) { object.removeHost() }
  }
  release(task, HTTPTask.self)
}

// MARK: results

@_cdecl("hutch_http_task_error") @implementation
public func hutch_http_task_error(
  _ task: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_error>!
) -> hutch_status {
  withTask(task) { (task) throws(Failure) in
    try filling(out) { () throws(Failure) in
      let error = task.session.lock.withLock { task.error }
      return error.status < 0 ? error : nil
    }
  }
}

@_cdecl("hutch_http_task_progress") @implementation
public func hutch_http_task_progress(
  _ task: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_http_progress>!
) -> hutch_status {
  withTask(task) { (task) throws(Failure) in
    try filling(out) { () throws(Failure) in
      hutch_http_progress(task.session.lock.withLock { task.traffic })
    }
  }
}

@_cdecl("hutch_http_task_metrics") @implementation
public func hutch_http_task_metrics(
  _ task: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_http_metrics>!
) -> hutch_status {
  withTask(task) { (task) throws(Failure) in
    guard let out else { throw .invalid("out is NULL") }
    try checkedResult(out)
    let (state, metrics) = task.session.lock.withLock { (task.state, task.metrics) }
    if state != .ended { return .wouldBlock }
    var told = hutch_http_metrics()
    told.name_lookup = metrics.nameLookup
    told.connect = metrics.connect
    told.tls = metrics.tls
    told.first_byte = metrics.firstByte
    told.total = metrics.total
    told.bytes_sent = metrics.bytesSent
    told.bytes_received = metrics.bytesReceived
    told.requests = metrics.requests
    told.connections = metrics.connections
    told.from_cache = metrics.fromCache
    deliver(told, to: out)
    return .done
  }
}
