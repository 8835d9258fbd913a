// Group calls: hutch_submit, the calls of a cache that have no asynchronous form of their own.

public import CHutch

@_cdecl("hutch_submit") @implementation
public func hutch_submit(
  _ cache: OpaquePointer!, _ call: UnsafePointer<hutch_call>!,
  _ options: UnsafePointer<hutch_task_options>!, _ task: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  submitting(cache, options, task) { (handle, spec, now) throws(Failure) in
    guard call != nil else { throw .invalid("call is NULL") }
    let given = try received(call, over: hutch_call())
    let condition: WriteCondition? =
      switch given.operation {
      case UInt32(HUTCH_OPERATION_ADD): .absent
      case UInt32(HUTCH_OPERATION_REPLACE): .present
      case UInt32(HUTCH_OPERATION_COMPARE_AND_SWAP): .version(given.version)
      default: nil
      }
    if let condition {
      return try submitPut(
        handle, try given.keyBytes(), given.value, given.value_size, given.put_options,
        if: condition, as: UInt8(given.operation), &spec, mayFinishNow: now)
    }
    let made = try given.made(spec.context)
    return try handle.submit(
      made.call, UInt8(given.operation), made.isOfKey ? try given.keyBytes() : nil,
      writes: made.writes, &spec)
  }
}

/// A call for a task, and what the queue has to know of it.
private struct MadeCall {
  let call: AsyncCall
  let isOfKey: Bool
  let writes: Bool
}

extension hutch_call {
  fileprivate func keyBytes() throws(Failure) -> Bytes { try checkedKey(key, key_size) }

  /// The call with copies of its arguments, which are checked here. `context`: the task's.
  fileprivate func made(_ context: UnsafeMutableRawPointer?) throws(Failure) -> MadeCall {
    let copies = ArgumentCopies()
    func reads(isOfKey: Bool = false, _ body: @escaping AsyncCall.Body) -> MadeCall {
      MadeCall(call: AsyncCall(copies, body), isOfKey: isOfKey, writes: false)
    }
    switch operation {
    case UInt32(HUTCH_OPERATION_INFO):
      let info = try copies.room(MemoryLayout<hutch_entry_info>.size)
        .bindMemory(to: hutch_entry_info.self, capacity: 1)
      return reads(isOfKey: true) { (operation, key, _) throws(Failure) in
        info.pointee = hutch_entry_info()
        info.pointee.struct_size = MemoryLayout<hutch_entry_info>.size
        let status = try informing(operation.pointee.handle, key, info)
        if status == .done { operation.pointee.call!.info = UnsafeRawPointer(info) }
        return status
      }
    case UInt32(HUTCH_OPERATION_COUNT), UInt32(HUTCH_OPERATION_COST):
      let isCost = operation == UInt32(HUTCH_OPERATION_COST)
      return reads { (operation, _, _) throws(Failure) in
        let (cache, scope) = (operation.pointee.handle.cache, operation.pointee.handle.scope)
        cache.reclaimByHostsClock()
        operation.pointee.removed = try isCost ? cache.cost(in: scope) : cache.count(in: scope)
        return .done
      }
    case UInt32(HUTCH_OPERATION_EACH):
      guard let visitor else { throw .invalid("the visitor is NULL") }
      return reads { (operation, _, task) throws(Failure) in
        let isWhole = try visit(operation.pointee.handle, visitor, context) {
          operation.isAsked(task)
        }
        return isWhole ? .done : .cancelled
      }
    case UInt32(HUTCH_OPERATION_PATH):
      return reads(isOfKey: true) { (operation, key, _) throws(Failure) in
        let handle = operation.pointee.handle
        let call = operation.pointee.call!
        try handle.cache.path(of: key, in: handle.scope) { (path) throws(Failure) in
          let text = try call.room(path.count + 1)
          text.copyMemory(from: path.baseAddress!, byteCount: path.count)
          text.storeBytes(of: 0, toByteOffset: path.count, as: UInt8.self)
          call.path = UnsafePointer(text.assumingMemoryBound(to: CChar.self))
        }
        return call.path == nil ? .notFound : .done
      }
    case UInt32(HUTCH_OPERATION_GET_MANY), UInt32(HUTCH_OPERATION_REMOVE_MANY),
      UInt32(HUTCH_OPERATION_PUT_MANY):
      return try madeOfMany(copies)
    default:
      return try madeWrite(copies)
    }
  }

  /// The calls that write an entry.
  private func madeWrite(_ copies: ArgumentCopies) throws(Failure) -> MadeCall {
    func writes(_ body: @escaping AsyncCall.Body) -> MadeCall {
      MadeCall(call: AsyncCall(copies, body), isOfKey: true, writes: true)
    }
    switch operation {
    case UInt32(HUTCH_OPERATION_TOUCH):
      let timeToLive = try checkedDuration(time_to_live)
      let timeToIdle = try checkedDuration(time_to_idle)
      return writes { (operation, key, _) throws(Failure) in
        let handle = operation.pointee.handle
        let isThere = try handle.cache.touch(
          key, timeToLive: timeToLive, timeToIdle: timeToIdle, in: handle.scope)
        return isThere ? .done : .notFound
      }
    case UInt32(HUTCH_OPERATION_INCREMENT):
      let spec = try copies.copy(try .given(put_options))
      let (delta, initial) = (delta, initial)
      return writes { (operation, key, _) throws(Failure) in
        let handle = operation.pointee.handle
        var sum: Int64 = 0
        operation.pointee.put = try handle.cache.increment(
          key, by: delta, initial: initial, spec, in: handle.scope, late: operation.late,
          sum: &sum)
        if let failure = operation.pointee.put.failure { throw failure }
        operation.pointee.call!.number = sum
        return operation.pointee.put.status
      }
    case UInt32(HUTCH_OPERATION_POP):
      return writes { (operation, key, _) throws(Failure) in
        let handle = operation.pointee.handle
        var isOvertaken = false
        operation.pointee.block = try handle.cache.pop(
          key, in: handle.scope, by: operation.late, &isOvertaken)?.leak()
        if isOvertaken { return .superseded }
        return operation.pointee.block == nil ? .notFound : .done
      }
    case UInt32(HUTCH_OPERATION_PUT_FILE):
      guard let path, path.pointee != 0 else { throw .invalid("the path is NULL or empty") }
      guard let chosen = Cache.FileUse(rawValue: use) else {
        throw .unknown("the use of the file is not defined", use)
      }
      let file = try copies.copy(path)
      let spec = try copies.copy(try .given(put_options))
      return writes { (operation, key, _) throws(Failure) in
        let handle = operation.pointee.handle
        operation.pointee.put = try handle.cache.putFile(
          key, file, chosen, spec, in: handle.scope, by: operation.late)
        if let failure = operation.pointee.put.failure { throw failure }
        return operation.pointee.put.status
      }
    default: throw .unknown("hutch_submit does not make this operation", operation)
    }
  }

  /// The calls on many keys.
  private func madeOfMany(_ copies: ArgumentCopies) throws(Failure) -> MadeCall {
    let isWrite = operation != UInt32(HUTCH_OPERATION_GET_MANY)
    func made(
      _ body: @escaping (Handle) throws(Failure) -> Batch
    ) -> MadeCall {
      let call = AsyncCall(copies) { (operation, _, _) throws(Failure) in
        operation.pointee.call!.batch = try body(operation.pointee.handle)
        return .done
      }
      return MadeCall(call: call, isOfKey: false, writes: isWrite)
    }
    let keys = try copies.copy(try checkedMany(self.keys, key_sizes, count, areKeys: true))
    switch operation {
    case UInt32(HUTCH_OPERATION_GET_MANY):
      return made { (handle) throws(Failure) in try handle.cache.get(keys, in: handle.scope) }
    case UInt32(HUTCH_OPERATION_REMOVE_MANY):
      return made { (handle) throws(Failure) in try handle.cache.remove(keys, in: handle.scope) }
    default:
      let values = try copies.copy(try checkedMany(values, value_sizes, count, areKeys: false))
      let spec = try copies.copy(try .given(put_options))
      return made { (handle) throws(Failure) in
        try handle.cache.put(keys, values, spec, in: handle.scope)
      }
    }
  }
}
