// Groups queues, groups and ports.

public import CHutch

extension QueueHandle: HostHandle {
  static var isMissing: StaticString { "the queue is NULL" }
}

extension GroupHandle: HostHandle {
  static var isMissing: StaticString { "the group is NULL" }
  var forks: UInt32 { group.forks }
  func check() throws(Failure) { try group.check() }
}

extension PortHandle: HostHandle {
  static var isMissing: StaticString { "the port is NULL" }
  var forks: UInt32 { port.forks }
  func check() throws(Failure) { try port.check() }
}

@inline(never)
private func withQueue(
  _ pointer: OpaquePointer?, _ body: (TaskQueue) throws(Failure) -> Status
) -> hutch_status {
  with(pointer, QueueHandle.self) { (handle) throws(Failure) in try body(handle.queue) }
}

private func checkedWidth(_ width: UInt32) throws(Failure) -> Int {
  guard width > 0, width <= UInt32(TaskQueue.mostThreads) else {
    throw .invalid("the width of a queue is 1 to 256")
  }
  return Int(width)
}

// MARK: queues

@_cdecl("hutch_queue_create") @implementation
public func hutch_queue_create(
  _ options: UnsafePointer<hutch_queue_options>!, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out) { () throws(Failure) in
    let given = try received(options, over: hutch_queue_options())
    let none = UInt32(HUTCH_QUEUE_NO_THREADS)
    try checkFlags(given.flags, none)
    let queue = try TaskQueue(
      width: try checkedWidth(given.width == 0 ? 2 : given.width),
      hasThreads: given.flags & none == 0, length: Int(clamping: given.length),
      deliver: deliverCompletion)
    return handOut(QueueHandle(queue, isHosts: true))
  }
}

@_cdecl("hutch_cache_queue") @implementation
public func hutch_cache_queue(
  _ cache: OpaquePointer!, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out, of: cache) { (cache, _) throws(Failure) in
    handOut(cache.parts.hosts ?? QueueHandle(cache.tasks, isHosts: false))
  }
}

@_cdecl("hutch_shared_queue") @implementation
public func hutch_shared_queue(_ out: UnsafeMutablePointer<OpaquePointer?>!) -> hutch_status {
  giving(out) { () throws(Failure) in handOut(try SharedQueue.get(deliver: deliverCompletion)) }
}

@_cdecl("hutch_queue_submit") @implementation
public func hutch_queue_submit(
  _ queue: OpaquePointer!, _ work: hutch_work!, _ context: UnsafeMutableRawPointer!,
  _ release: hutch_release!,
  _ options: UnsafePointer<hutch_task_options>!, _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  task?.pointee = nil
  let owner = queue.map {
    reference($0, QueueHandle.self)._withUnsafeGuaranteedRef { $0.queue.identity }
  }
  let status = submitting(options, for: owner) { (spec, _) throws(Failure) in
    let found = try checked(queue, QueueHandle.self)
    guard let work else { throw .invalid("the work is NULL") }
    spec.operation = UInt8(HUTCH_OPERATION_WORK)
    spec.wantsHandle = task != nil
    let record = try TaskPointer.make(spec, for: found.queue)
    record.pointee.work = work
    record.pointee.workContext = context
    record.pointee.workRelease = release
    let status: Status
    do throws(Failure) {
      status = try found.queue.submit(record, spec)
    } catch {
      record.drop()
      throw error
    }
    if status == .done { task?.pointee = OpaquePointer(record) } else { record.drop() }
    return status
  }
  if status != Status.done.code { ThreadState.give(context, back: release, of: owner) }
  return status
}

@_cdecl("hutch_queue_set_width") @implementation
public func hutch_queue_set_width(_ queue: OpaquePointer!, _ width: UInt32) -> hutch_status {
  withQueue(queue) { (queue) throws(Failure) in
    queue.setWidth(try checkedWidth(width))
    return .done
  }
}

@_cdecl("hutch_queue_wait_all") @implementation
public func hutch_queue_wait_all(_ queue: OpaquePointer!, _ timeout: Int64) -> hutch_status {
  withQueue(queue) { (queue) throws(Failure) in
    try queue.waitAll(try checkedDuration(timeout))
  }
}

@_cdecl("hutch_queue_cancel_all") @implementation
public func hutch_queue_cancel_all(
  _ queue: OpaquePointer!, _ cancelled: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  withQueue(queue) { (queue) throws(Failure) in
    let count = queue.cancelAll()
    cancelled?.pointee = count
    return .done
  }
}

@_cdecl("hutch_queue_suspend") @implementation
public func hutch_queue_suspend(_ queue: OpaquePointer!) -> hutch_status {
  withQueue(queue) { (queue) throws(Failure) in
    queue.suspend()
    return .done
  }
}

@_cdecl("hutch_queue_resume") @implementation
public func hutch_queue_resume(_ queue: OpaquePointer!) -> hutch_status {
  withQueue(queue) { (queue) throws(Failure) in try resuming(queue) }
}

func resuming(_ queue: TaskQueue) throws(Failure) -> Status {
  guard queue.resume() else { throw .invalid("the cache or the queue is not suspended") }
  return .done
}

@_cdecl("hutch_queue_run") @implementation
public func hutch_queue_run(
  _ queue: OpaquePointer!, _ budget: Int64, _ ran: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  withQueue(queue) { (queue) throws(Failure) in
    let end = Deadline(budget: try checkedDuration(budget))
    try queue.checkMayWait()
    let count = queue.runForHost(until: end)
    ran?.pointee = count
    return .done
  }
}

@_cdecl("hutch_queue_retain") @implementation
public func hutch_queue_retain(_ queue: OpaquePointer!) -> OpaquePointer! {
  retained(queue, QueueHandle.self)
}

@_cdecl("hutch_queue_release") @implementation
public func hutch_queue_release(_ queue: OpaquePointer!) {
  release(queue, QueueHandle.self)
}

// MARK: groups

private func withGroup(
  _ pointer: OpaquePointer?, _ body: (WorkGroup) throws(Failure) -> Status
) -> hutch_status {
  with(pointer, GroupHandle.self) { (handle) throws(Failure) in try body(handle.group) }
}

@_cdecl("hutch_group_create") @implementation
public func hutch_group_create(
  _ queue: OpaquePointer!, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out) { () throws(Failure) in
    handOut(GroupHandle(WorkGroup(by: try checked(queue, QueueHandle.self).queue)))
  }
}

@_cdecl("hutch_group_start") @implementation
public func hutch_group_start(
  _ group: OpaquePointer!, _ options: UnsafePointer<hutch_task_options>!
) -> hutch_status {
  let owner = group.map {
    reference($0, GroupHandle.self)._withUnsafeGuaranteedRef { $0.group.queue.identity }
  }
  return submitting(options, for: owner) { (spec, given) throws(Failure) in
    let group = try checked(group, GroupHandle.self).group
    var own = TaskSpec()
    own.complete = spec.complete
    own.context = spec.context
    own.release = spec.release
    own.port = spec.port
    own.operation = UInt8(HUTCH_OPERATION_GROUP)
    return try group.start(own) ? .done : .exists
  }
}

@_cdecl("hutch_group_cancel") @implementation
public func hutch_group_cancel(_ group: OpaquePointer!) -> hutch_status {
  withGroup(group) { (group) throws(Failure) in
    group.cancel()
    return .done
  }
}

@_cdecl("hutch_group_wait") @implementation
public func hutch_group_wait(_ group: OpaquePointer!, _ timeout: Int64) -> hutch_status {
  withGroup(group) { (group) throws(Failure) in
    try group.wait(try checkedDuration(timeout))
  }
}

@_cdecl("hutch_group_retain") @implementation
public func hutch_group_retain(_ group: OpaquePointer!) -> OpaquePointer! {
  retained(group, GroupHandle.self)
}

@_cdecl("hutch_group_release") @implementation
public func hutch_group_release(_ group: OpaquePointer!) {
  release(group, GroupHandle.self)
}

// MARK: ports

private func withPort(
  _ pointer: OpaquePointer?, _ body: (CompletionPort) throws(Failure) -> Status
) -> hutch_status {
  with(pointer, PortHandle.self) { (handle) throws(Failure) in try body(handle.port) }
}

@_cdecl("hutch_port_create") @implementation
public func hutch_port_create(_ out: UnsafeMutablePointer<OpaquePointer?>!) -> hutch_status {
  giving(out) { () throws(Failure) in handOut(PortHandle(try CompletionPort())) }
}

@_cdecl("hutch_port_fd") @implementation
public func hutch_port_fd(_ port: OpaquePointer!) -> Int32 {
  guard let port else { return -1 }
  return reference(port, PortHandle.self)._withUnsafeGuaranteedRef { $0.port.descriptor }
}

@_cdecl("hutch_port_drain") @implementation
public func hutch_port_drain(
  _ port: OpaquePointer!, _ most: UInt64, _ drained: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  withPort(port) { (port) throws(Failure) in
    let count = try port.drain(most)
    drained?.pointee = count
    return .done
  }
}

@_cdecl("hutch_port_close") @implementation
public func hutch_port_close(_ port: OpaquePointer!, _ how: UInt32) -> hutch_status {
  withPort(port) { (port) throws(Failure) in
    guard how <= UInt32(HUTCH_PORT_DISCARD) else {
      throw .unknown("the way to close the port is not defined", how)
    }
    guard port.close(discarding: how == UInt32(HUTCH_PORT_DISCARD)) else {
      throw Failure(.closed, "the port has been closed")
    }
    return .done
  }
}

@_cdecl("hutch_port_retain") @implementation
public func hutch_port_retain(_ port: OpaquePointer!) -> OpaquePointer! {
  retained(port, PortHandle.self)
}

@_cdecl("hutch_port_release") @implementation
public func hutch_port_release(_ port: OpaquePointer!) {
  release(port, PortHandle.self)
}
