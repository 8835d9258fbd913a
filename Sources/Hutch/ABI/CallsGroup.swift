// Group calls: hutch_submit, the calls of a cache that have no asynchronous form of their own.

public import CHutch

@_cdecl("hutch_submit") @implementation
public func hutch_submit(
  _ cache: OpaquePointer!, _ call: UnsafePointer<hutch_call>!,
  _ options: UnsafePointer<hutch_task_options>!, _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  submitting(cache, options, task) { (cache, handle, spec, now) throws(Failure) in
    guard call != nil else { throw .invalid("call is NULL") }
    var given = try received(call, over: hutch_call())
    let operation = UInt8(truncatingIfNeeded: given.operation)
    let condition: WriteCondition? =
      switch given.operation {
      case UInt32(HUTCH_OPERATION_ADD): .absent
      case UInt32(HUTCH_OPERATION_REPLACE): .present
      case UInt32(HUTCH_OPERATION_COMPARE_AND_SWAP): .version(given.version)
      default: nil
      }
    if let condition {
      return try submitPut(
        cache, handle, try given.keyBytes(), given.value, given.value_size, given.put_options,
        if: condition, as: operation, &spec, mayFinishNow: now)
    }
    let copies = ArgumentCopies()
    let put = try given.copyArguments(to: copies)
    let made = AsyncCall(copies) {
      [given, context = spec.context] (operation, cache, key, task) throws(Failure) in
      try given.make(operation, cache, key, task, put, context)
    }
    return try cache.submit(
      made, operation, given.isOfKey ? try given.keyBytes() : nil, writes: given.isWrite,
      through: handle, &spec)
  }
}

extension hutch_call {
  fileprivate func keyBytes() throws(Failure) -> Bytes { try checkedKey(key, key_size) }

  fileprivate func `is`(_ operations: UInt64) -> Bool { 1 << UInt64(operation) & operations != 0 }

  /// True if the call is about one key.
  fileprivate var isOfKey: Bool {
    `is`(
      1 << HUTCH_OPERATION_INFO | 1 << HUTCH_OPERATION_TOUCH | 1 << HUTCH_OPERATION_INCREMENT
        | 1 << HUTCH_OPERATION_POP | 1 << HUTCH_OPERATION_PUT_FILE | 1 << HUTCH_OPERATION_PATH)
  }

  fileprivate var isWrite: Bool {
    `is`(
      1 << HUTCH_OPERATION_TOUCH | 1 << HUTCH_OPERATION_INCREMENT | 1 << HUTCH_OPERATION_POP
        | 1 << HUTCH_OPERATION_PUT_FILE | 1 << HUTCH_OPERATION_PUT_MANY
        | 1 << HUTCH_OPERATION_REMOVE_MANY)
  }

  /// Checks the arguments, and has them point to copies. Returns the options of a put.
  @inline(never)
  fileprivate mutating func copyArguments(
    to copies: ArgumentCopies
  ) throws(Failure) -> Cache.PutSpec {
    switch operation {
    case UInt32(HUTCH_OPERATION_INFO), UInt32(HUTCH_OPERATION_COUNT),
      UInt32(HUTCH_OPERATION_COST), UInt32(HUTCH_OPERATION_POP), UInt32(HUTCH_OPERATION_PATH):
      return Cache.PutSpec()
    case UInt32(HUTCH_OPERATION_EACH):
      guard visitor != nil else { throw .invalid("the visitor is NULL") }
      return Cache.PutSpec()
    case UInt32(HUTCH_OPERATION_TOUCH):
      _ = try checkedDuration(time_to_live)
      _ = try checkedDuration(time_to_idle)
      return Cache.PutSpec()
    case UInt32(HUTCH_OPERATION_INCREMENT): break
    case UInt32(HUTCH_OPERATION_PUT_FILE):
      guard let path, path.pointee != 0 else { throw .invalid("the path is NULL or empty") }
      guard Cache.FileUse(rawValue: use) != nil else {
        throw .unknown("the use of the file is not defined", use)
      }
      self.path = try copies.copy(path)
    case UInt32(HUTCH_OPERATION_GET_MANY), UInt32(HUTCH_OPERATION_REMOVE_MANY),
      UInt32(HUTCH_OPERATION_PUT_MANY):
      let keys = try copies.copy(try checkedMany(self.keys, key_sizes, count, areKeys: true))
      (self.keys, key_sizes) = (keys.pointers, keys.sizes)
      if operation != UInt32(HUTCH_OPERATION_PUT_MANY) { return Cache.PutSpec() }
      let values = try copies.copy(try checkedMany(values, value_sizes, count, areKeys: false))
      (self.values, value_sizes) = (values.pointers, values.sizes)
    default: throw .unknown("hutch_submit does not make this operation", operation)
    }
    return try copies.copy(try .given(put_options))
  }

  /// Makes the call, with the copies of its arguments. `context`: the task's.
  @inline(never)
  fileprivate func make(
    _ task: UnsafeMutablePointer<AsyncOperation>, _ cache: Cache, _ key: Bytes,
    _ record: TaskPointer, _ spec: Cache.PutSpec, _ context: UnsafeMutableRawPointer?
  ) throws(Failure) -> Status {
    let scope = task.pointee.scope
    let keys = ManyBytes(pointers: self.keys, sizes: key_sizes, count: count)
    switch operation {
    case UInt32(HUTCH_OPERATION_INFO):
      let info = try task.pointee.call!.room(MemoryLayout<hutch_entry_info>.size)
        .bindMemory(to: hutch_entry_info.self, capacity: 1)
      info.initialize(to: hutch_entry_info())
      info.pointee.struct_size = MemoryLayout<hutch_entry_info>.size
      let status = try informing(cache, scope, key, info)
      if status == .done { task.pointee.call!.info = UnsafeRawPointer(info) }
      return status
    case UInt32(HUTCH_OPERATION_COUNT), UInt32(HUTCH_OPERATION_COST):
      cache.reclaimByHostsClock()
      let isCost = operation == UInt32(HUTCH_OPERATION_COST)
      task.pointee.removed = try isCost ? cache.cost(in: scope) : cache.count(in: scope)
    case UInt32(HUTCH_OPERATION_EACH):
      let isWhole = try visit(task.pointee.handle, visitor!, context) { task.isAsked(record) }
      return isWhole ? .done : .cancelled
    case UInt32(HUTCH_OPERATION_PATH):
      let call = task.pointee.call!
      try cache.path(of: key, in: scope) { (path) throws(Failure) in
        let text = try call.room(path.count + 1)
        text.copyMemory(from: path.baseAddress!, byteCount: path.count)
        text.storeBytes(of: 0, toByteOffset: path.count, as: UInt8.self)
        call.path = UnsafePointer(text.assumingMemoryBound(to: CChar.self))
      }
      return call.path == nil ? .notFound : .done
    case UInt32(HUTCH_OPERATION_TOUCH):
      let isThere = try cache.touch(
        key, timeToLive: time_to_live, timeToIdle: time_to_idle, in: scope)
      return isThere ? .done : .notFound
    case UInt32(HUTCH_OPERATION_INCREMENT):
      var sum: Int64 = 0
      task.pointee.put = try cache.increment(
        key, by: delta, initial: initial, spec, in: scope, late: task.late, sum: &sum)
      task.pointee.call!.number = sum
      return try task.pointee.answer()
    case UInt32(HUTCH_OPERATION_POP):
      var isOvertaken = false
      task.pointee.block = try cache.pop(key, in: scope, by: task.late, &isOvertaken)?.leak()
      if isOvertaken { return .superseded }
      return task.pointee.block == nil ? .notFound : .done
    case UInt32(HUTCH_OPERATION_PUT_FILE):
      task.pointee.put = try cache.putFile(
        key, path, Cache.FileUse(rawValue: use)!, spec, in: scope, by: task.late)
      return try task.pointee.answer()
    case UInt32(HUTCH_OPERATION_GET_MANY):
      task.pointee.call!.batch = try cache.get(keys, in: scope)
    case UInt32(HUTCH_OPERATION_REMOVE_MANY):
      task.pointee.call!.batch = try cache.remove(keys, in: scope)
    default:
      let values = ManyBytes(pointers: self.values, sizes: value_sizes, count: count)
      task.pointee.call!.batch = try cache.put(keys, values, spec, in: scope)
    }
    return .done
  }
}
