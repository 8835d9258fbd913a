// Group tasks: options, completions, and the calls on one task.

public import CHutch

/// Calls `body` with the task behind a pointer, unless it is the parent's.
@inline(never)
private func withTask(
  _ pointer: OpaquePointer?, _ body: (TaskPointer, TaskQueue) throws(Failure) -> Status
) -> hutch_status {
  guard let pointer else { return failing(.invalid("the task is NULL")) }
  let task = TaskPointer(pointer)
  return task.pointee.queue._withUnsafeGuaranteedRef { queue in
    answering { () throws(Failure) in
      if task.pointee.isParents {
        throw Failure(.forked, "the task belongs to the parent of this process")
      }
      return try body(task, queue)
    }
  }
}

private func name(_ state: TaskRecord.State, isAsked: Bool) -> UInt32 {
  switch state {
  case .held, .queued, .parked: UInt32(HUTCH_TASK_QUEUED)
  case .running: UInt32(isAsked ? HUTCH_TASK_CANCELLING : HUTCH_TASK_RUNNING)
  case .late, .ending, .ended: UInt32(HUTCH_TASK_ENDED)
  }
}

@_cdecl("hutch_task_cancel") @implementation
public func hutch_task_cancel(
  _ task: OpaquePointer!, _ was: UnsafeMutablePointer<UInt32>!
) -> hutch_status {
  withTask(task) { (task, queue) throws(Failure) in
    let before = queue.cancel(task)
    was?.pointee = name(before.state, isAsked: before.isAsked)
    return .done
  }
}

@_cdecl("hutch_task_wait") @implementation
public func hutch_task_wait(_ task: OpaquePointer!, _ timeout: Int64) -> hutch_status {
  withTask(task) { (task, queue) throws(Failure) in
    try queue.wait(for: task, try checkedDuration(timeout))
  }
}

@_cdecl("hutch_task_set_priority") @implementation
public func hutch_task_set_priority(_ task: OpaquePointer!, _ priority: Int32) -> hutch_status {
  withTask(task) { (task, queue) throws(Failure) in
    queue.setPriority(try checkedPriority(priority), of: task)
    return .done
  }
}

@_cdecl("hutch_task_status") @implementation
public func hutch_task_status(
  _ task: OpaquePointer!, _ state: UnsafeMutablePointer<UInt32>!,
  _ result: UnsafeMutablePointer<hutch_status>!
) -> hutch_status {
  withTask(task) { (task, queue) throws(Failure) in
    guard let state else { throw .invalid("state is NULL") }
    let found = queue.status(of: task)
    state.pointee = name(found.state, isAsked: found.isAsked)
    if state.pointee == UInt32(HUTCH_TASK_ENDED) { result?.pointee = found.status }
    return .done
  }
}

@_cdecl("hutch_task_retain") @implementation
public func hutch_task_retain(_ task: OpaquePointer!) -> OpaquePointer! {
  if let task { TaskPointer(task).retain() }
  return task
}

@_cdecl("hutch_task_release") @implementation
public func hutch_task_release(_ task: OpaquePointer!) {
  guard let task else { return }
  let record = TaskPointer(task)
  // The child does not touch its copy of the parent's objects.
  if record.pointee.isParents { return }
  record.drop()
}

// MARK: options

private func checkedPriority(_ priority: Int32) throws(Failure) -> Int8 {
  guard priority >= Int32(HUTCH_PRIORITY_LOW), priority <= Int32(HUTCH_PRIORITY_HIGH) else {
    throw .unknown("the priority is not defined", UInt32(bitPattern: priority))
  }
  return Int8(priority)
}

/// Calls `body` with the host's options of a task. If that fails, it releases the context: the
/// release function is called exactly once, whatever happens. `owner`: that of the callback.
@inline(never)
func submitting(
  _ options: UnsafePointer<hutch_task_options>?, for owner: UnsafeMutableRawPointer?,
  _ body: (inout TaskSpec, hutch_task_options) throws(Failure) -> Status
) -> hutch_status {
  var given = hutch_task_options()
  let status = answering { () throws(Failure) in
    try receive(options, into: &given)
    var spec = try TaskSpec(given)
    let status = try body(&spec, given)
    // The task owns the context now.
    if status == .done { given.release = nil }
    return status
  }
  ThreadState.give(given.context, back: given.release, of: owner)
  return status
}

extension TaskSpec {
  fileprivate init(_ options: hutch_task_options) throws(Failure) {
    self.init()
    priority = try checkedPriority(options.priority)
    let now = UInt32(HUTCH_TASK_MAY_FINISH_NOW)
    let wait = UInt32(HUTCH_TASK_WAIT)
    try checkFlags(options.flags, now | wait)
    waitsForRoom = options.flags & wait != 0
    if options.flags & now != 0 {
      guard let result = options.now else { throw .invalid("now is NULL") }
      try checkedResult(result)
      deliver(hutch_completion(), to: result)
    }
    deadline = try checkedDuration(options.deadline)
    complete = unsafeBitCast(options.complete, to: UnsafeRawPointer?.self)
    progress = options.progress
    context = options.context
    release = options.release
    if options.port != nil { port = try checked(options.port, PortHandle.self).port }
    if options.group != nil { group = try checked(options.group, GroupHandle.self).group }
    identifier = try checkedBytes(
      options.identifier, options.identifier_size,
      "the identifier is NULL, or its size is not valid")
    guard (options.identifier == nil) == (identifier.count == 0), identifier.count <= 65_535
    else { throw .invalid("an identifier has 1 to 65,535 bytes") }
    merge = options.merge
  }
}

// MARK: completions

extension hutch_completion {
  /// The result of a task, without its error.
  init(_ task: TaskPointer) {
    self.init()
    struct_size = MemoryLayout<hutch_completion>.size
    status = task.pointee.status
    operation = UInt32(task.pointee.operation)
    switch operation {
    case UInt32(HUTCH_OPERATION_WORK): break
    case UInt32(HUTCH_OPERATION_GROUP):
      let tally = task.pointee.workContext!.load(as: WorkGroup.Tally.self)
      count = tally.count
      cancelled = tally.cancelled
    default:
      let operation = AsyncOperation.of(task)
      if operation.pointee.kind != .put, let block = operation.pointee.block
      {
        value = OpaquePointer(block.raw)
      }
      version = operation.pointee.put.version
      memory = operation.pointee.put.memory.rawValue
      disk = operation.pointee.put.disk.rawValue
      count = operation.pointee.removed
      guard let call = operation.pointee.call else { break }
      number = call.number
      info = call.info?.assumingMemoryBound(to: hutch_entry_info.self)
      batch = call.batch.map { OpaquePointer(Unmanaged.passUnretained($0).toOpaque()) }
      path = call.path
    }
  }
}

private typealias Completion = @convention(c) (
  UnsafeMutableRawPointer?, UnsafePointer<hutch_completion>?
) -> Void

/// Reports the result of a task to the host; queues get this function.
func deliverCompletion(_ pointer: UnsafeMutableRawPointer) {
  let task = pointer.assumingMemoryBound(to: TaskRecord.self)
  let complete = unsafeBitCast(task.pointee.complete!, to: Completion.self)
  var completion = hutch_completion(task)
  if completion.operation != UInt32(HUTCH_OPERATION_GROUP) {
    completion.task = OpaquePointer(task)
  }
  guard let failure = failure(of: task) else {
    complete(task.pointee.context, &completion)
    return
  }
  var error = hutch_error(failure)
  // A function of the host may return statuses of its own.
  if completion.status < 0 { error.status = completion.status }
  withUnsafePointer(to: &error) {
    completion.error = $0
    complete(task.pointee.context, &completion)
  }
}

/// The failure of a task that has ended: of one with a status below 0, or the last one within a
/// batch.
private func failure(of task: TaskPointer) -> Failure? {
  let isOperation = task.pointee.operation > UInt8(HUTCH_OPERATION_GROUP)
  guard task.pointee.status < 0 else {
    return isOperation ? AsyncOperation.of(task).pointee.call?.batch?.lastFailure : nil
  }
  if isOperation, let failure = AsyncOperation.of(task).pointee.failure { return failure }
  let status = Status.named(task.pointee.status)
  if status == .noMemory { return .noMemory }
  let hasDeadline = task.hasExtras && task.extras.pointee.deadline != 0
  return status == .timedOut && (isOperation || hasDeadline)
    ? Failure(status, "the deadline passed while the task waited")
    : Failure(status, "the function of the task returned this status")
}

extension hutch_error {
  init(_ failure: Failure) {
    self.init()
    struct_size = MemoryLayout<hutch_error>.size
    status = failure.status.code
    system_error = failure.system
    sqlite_error = failure.sqlite
    withUnsafeMutableBytes(of: &words) { ThreadState.compose(failure, failure.detail, into: $0) }
  }
}
