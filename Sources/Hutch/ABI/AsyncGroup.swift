// Group async: the calls of a cache as tasks; and maintenance.

public import CHutch

/// Submits what `body` makes for a cache, and returns the task or the result to the host.
func submitting(
  _ cache: OpaquePointer?, _ options: UnsafePointer<hutch_task_options>?,
  _ out: UnsafeMutablePointer<OpaquePointer?>?,
  _ body: (Cache, Handle, inout TaskSpec, _ mayFinishNow: Bool) throws(Failure) -> Cache.Submitted
) -> hutch_status {
  out?.pointee = nil
  guard let cache else {
    return submitting(options, for: nil) { (_, _) throws(Failure) in
      throw .invalid("the cache is NULL")
    }
  }
  return reference(cache, Handle.self)._withUnsafeGuaranteedRef { handle in
    handle.unretained._withUnsafeGuaranteedRef { cache in
      submitting(options, for: cache.identity) { (spec, given) throws(Failure) in
        spec.wantsHandle = out != nil
        let now = given.flags & UInt32(HUTCH_TASK_MAY_FINISH_NOW) != 0
        switch try body(cache, handle, &spec, now) {
        case .task(let task):
          out?.pointee = OpaquePointer(task)
          return .done
        case .refused(let status): return status
        case .done(let task):
          finish(task, spec, given.now, of: cache)
          return .done
        }
      }
    }
  }
}

/// Returns to the host what a task has done that has no completion.
@inline(never)
private func finish(
  _ task: TaskPointer, _ spec: borrowing TaskSpec, _ now: UnsafeMutablePointer<hutch_completion>?,
  of cache: Cache
) {
  let completion = hutch_completion(task)
  let operation = AsyncOperation.of(task)
  if let failure = operation.pointee.failure { ThreadState.note(failure, failure.detail) }
  // The caller owns the value, if its struct has a field for it.
  if let now, told(completion, by: now, over: hutch_completion()).value != nil {
    operation.pointee.block = nil
  }
  task.end()
  deliver(completion, to: now)
  ThreadState.give(spec.context, back: spec.release, of: cache.identity)
}

@_cdecl("hutch_get_async") @implementation
public func hutch_get_async(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ options: UnsafePointer<hutch_task_options>!, _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  submittingOnKey(.get, cache, key, key_size, options, task)
}

@_cdecl("hutch_put_async") @implementation
public func hutch_put_async(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ value: UnsafeRawPointer!, _ value_size: Int,
  _ put_options: UnsafePointer<hutch_put_options>!,
  _ options: UnsafePointer<hutch_task_options>!, _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  submitting(cache, options, task) { (cache, handle, spec, now) throws(Failure) in
    try submitPut(
      cache, handle, try checkedKey(key, key_size), value, value_size, put_options, &spec,
      mayFinishNow: now)
  }
}

/// Submits a put, with or without a condition.
@inline(never)
func submitPut(
  _ cache: Cache, _ handle: Handle, _ key: Bytes, _ value: UnsafeRawPointer?, _ value_size: Int,
  _ put_options: UnsafePointer<hutch_put_options>?, if condition: WriteCondition = .always,
  as operation: UInt8? = nil, _ spec: inout TaskSpec, mayFinishNow: Bool
) throws(Failure) -> Cache.Submitted {
  let value = try checkedBytes(value, value_size, "the value is NULL, or its size is not valid")
  let put = try Cache.PutSpec.given(put_options)
  try handle.check()
  let block = try put.block(
    key, value, at: cache.clock.moment(), wantsChecksum: cache.storage != nil)
  return try cache.submit(
    .put, key, block, storing: try cache.target(of: put.writePolicy, in: handle.scope),
    suffix: put.suffix, if: condition, as: operation, through: handle, &spec,
    mayFinishNow: mayFinishNow)
}

@_cdecl("hutch_remove_async") @implementation
public func hutch_remove_async(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ options: UnsafePointer<hutch_task_options>!, _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  submittingOnKey(.remove, cache, key, key_size, options, task)
}

@_cdecl("hutch_contains_async") @implementation
public func hutch_contains_async(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ options: UnsafePointer<hutch_task_options>!, _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  submittingOnKey(.contains, cache, key, key_size, options, task)
}

private func submittingOnKey(
  _ kind: AsyncOperation.Kind, _ cache: OpaquePointer?, _ key: UnsafeRawPointer?,
  _ key_size: Int, _ options: UnsafePointer<hutch_task_options>?,
  _ task: UnsafeMutablePointer<OpaquePointer?>?
) -> hutch_status {
  submitting(cache, options, task) { (cache, handle, spec, now) throws(Failure) in
    try cache.submit(
      kind, try checkedKey(key, key_size), nil, through: handle, &spec, mayFinishNow: now)
  }
}

@_cdecl("hutch_clear_async") @implementation
public func hutch_clear_async(
  _ cache: OpaquePointer!, _ options: UnsafePointer<hutch_task_options>!,
  _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  submitting(cache, options, task) { (cache, handle, spec, _) throws(Failure) in
    try cache.submit(.clear, through: handle, &spec)
  }
}

@_cdecl("hutch_flush_async") @implementation
public func hutch_flush_async(
  _ cache: OpaquePointer!, _ options: UnsafePointer<hutch_task_options>!,
  _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  submitting(cache, options, task) { (cache, handle, spec, _) throws(Failure) in
    try cache.submit(.flush, through: handle, &spec)
  }
}

@_cdecl("hutch_trim_async") @implementation
public func hutch_trim_async(
  _ cache: OpaquePointer!, _ trim: UnsafePointer<hutch_trim_spec>!,
  _ options: UnsafePointer<hutch_task_options>!, _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  submitting(cache, options, task) { (cache, handle, spec, _) throws(Failure) in
    guard trim != nil else { throw .invalid("spec is NULL") }
    let given = try received(trim, over: hutch_trim_spec())
    guard given.progress == nil else {
      throw .invalid("spec->progress is set: a task reports to options->progress")
    }
    return try cache.submit(.trim, trim: try TrimSpec(given), through: handle, &spec)
  }
}

@_cdecl("hutch_load_async") @implementation
public func hutch_load_async(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int, _ loader: hutch_loader!,
  _ context: UnsafeMutableRawPointer!, _ release: hutch_release!,
  _ load_options: UnsafePointer<hutch_load_options>!,
  _ options: UnsafePointer<hutch_task_options>!, _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  // From here on the work owns the context, and releases it also if this call fails.
  let work = LoadWork(loader ?? { _, _, _, _ in 0 }, context, release, of: owner(cache))
  return submitting(cache, options, task) { (cache, handle, spec, now) throws(Failure) in
    let key = try checkedKey(key, key_size)
    guard loader != nil else { throw .invalid("loader is NULL") }
    let given = try loadOptions(load_options)
    work.spec = try LoadSpec(given)
    work.parent = try parentLoading(given)
    return try cache.submit(
      .load, key, nil, load: work, through: handle, &spec, mayFinishNow: now)
  }
}

@_cdecl("hutch_wait_all") @implementation
public func hutch_wait_all(_ cache: OpaquePointer!, _ timeout: Int64) -> hutch_status {
  withCache(cache) { (cache, _) throws(Failure) in
    let timeout = try checkedDuration(timeout)
    let tasks = cache.tasks
    if let guest = cache.settings.guest { return try tasks.waitAll(of: guest, timeout) }
    return try tasks.waitAll(timeout)
  }
}

// MARK: maintenance

@_cdecl("hutch_suspend") @implementation
public func hutch_suspend(_ cache: OpaquePointer!) -> hutch_status {
  withCache(cache) { (cache, _) throws(Failure) in
    cache.parts.upkeep.suspend()
    return .done
  }
}

@_cdecl("hutch_resume") @implementation
public func hutch_resume(_ cache: OpaquePointer!) -> hutch_status {
  withCache(cache) { (cache, _) throws(Failure) in try resuming(cache.parts.upkeep) }
}

@_cdecl("hutch_maintain") @implementation
public func hutch_maintain(_ cache: OpaquePointer!, _ budget: Int64) -> hutch_status {
  withCache(cache) { (cache, _) throws(Failure) in
    let end = Deadline(budget: try checkedDuration(budget))
    if cache.isWithinCallback {
      throw Failure(.deadlock, "a callback of the cache cannot do its maintenance")
    }
    cache.maintain(until: end)
    return .done
  }
}
