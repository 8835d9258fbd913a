// Group many: batches of keys, and their results.

public import CHutch

/// The keys of a batch, or its values (which may be empty); checks each.
@inline(never)
func checkedMany(
  _ pointers: UnsafePointer<UnsafeRawPointer?>?, _ sizes: UnsafePointer<Int>?, _ count: Int,
  areKeys: Bool
) throws(Failure) -> ManyBytes {
  guard count >= 0, count <= Int(HUTCH_MANY_MAX) else {
    throw .invalid("count is larger than HUTCH_MANY_MAX")
  }
  guard count == 0 || (pointers != nil && sizes != nil) else {
    throw .invalid("an array of the batch is NULL")
  }
  for index in 0..<count {
    if areKeys {
      _ = try checkedKey(pointers![index], sizes![index])
    } else {
      _ = try checkedBytes(
        pointers![index], sizes![index], "a value is NULL, or its size is not valid")
    }
  }
  return ManyBytes(pointers: pointers, sizes: sizes, count: count)
}

/// Returns the batch that `body` makes for the keys to the host.
private func batching(
  _ cache: OpaquePointer?, _ keys: UnsafePointer<UnsafeRawPointer?>?,
  _ sizes: UnsafePointer<Int>?, _ count: Int, _ out: UnsafeMutablePointer<OpaquePointer?>?,
  _ body: (ManyBytes, Cache, Handle) throws(Failure) -> Batch
) -> hutch_status {
  giving(out, of: cache) { (cache, handle) throws(Failure) in
    handOut(try body(try checkedMany(keys, sizes, count, areKeys: true), cache, handle))
  }
}

@_cdecl("hutch_get_many") @implementation
public func hutch_get_many(
  _ cache: OpaquePointer!, _ keys: UnsafePointer<UnsafeRawPointer?>!,
  _ key_sizes: UnsafePointer<Int>!, _ count: Int, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  batching(cache, keys, key_sizes, count, out) { (keys, cache, handle) throws(Failure) in
    try cache.get(keys, in: handle.scope)
  }
}

@_cdecl("hutch_info_many") @implementation
public func hutch_info_many(
  _ cache: OpaquePointer!, _ keys: UnsafePointer<UnsafeRawPointer?>!,
  _ key_sizes: UnsafePointer<Int>!, _ count: Int, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  batching(cache, keys, key_sizes, count, out) { (keys, cache, handle) throws(Failure) in
    try cache.info(keys, in: handle.scope)
  }
}

@_cdecl("hutch_put_many") @implementation
public func hutch_put_many(
  _ cache: OpaquePointer!, _ keys: UnsafePointer<UnsafeRawPointer?>!,
  _ key_sizes: UnsafePointer<Int>!, _ values: UnsafePointer<UnsafeRawPointer?>!,
  _ value_sizes: UnsafePointer<Int>!, _ count: Int,
  _ options: UnsafePointer<hutch_put_options>!, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  batching(cache, keys, key_sizes, count, out) { (keys, cache, handle) throws(Failure) in
    try cache.put(
      keys, try checkedMany(values, value_sizes, count, areKeys: false),
      try .given(options), in: handle.scope)
  }
}

@_cdecl("hutch_remove_many") @implementation
public func hutch_remove_many(
  _ cache: OpaquePointer!, _ keys: UnsafePointer<UnsafeRawPointer?>!,
  _ key_sizes: UnsafePointer<Int>!, _ count: Int, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  batching(cache, keys, key_sizes, count, out) { (keys, cache, handle) throws(Failure) in
    try cache.remove(keys, in: handle.scope)
  }
}

@_cdecl("hutch_remove_prefix") @implementation
public func hutch_remove_prefix(
  _ cache: OpaquePointer!, _ prefix: UnsafeRawPointer!, _ prefix_size: Int,
  _ removed: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  counting(removed, from: cache) { (cache, handle, count) throws(Failure) in
    let prefix = try checkedKey(prefix, prefix_size)
    try cache.remove(prefix: prefix, through: handle, removed: &count)
  }
}

@_cdecl("hutch_remove_tagged") @implementation
public func hutch_remove_tagged(
  _ cache: OpaquePointer!, _ tag: UnsafeRawPointer!, _ tag_size: Int,
  _ removed: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  counting(removed, from: cache) { (cache, handle, count) throws(Failure) in
    let tag = try checkedTag(tag, tag_size)
    try cache.remove(tagged: tag, through: handle, removed: &count)
  }
}

// MARK: results

private func results(_ pointer: OpaquePointer?) -> Batch? {
  pointer.map { reference($0, Batch.self).takeUnretainedValue() }
}

/// Where the results of a batch are. The host's reference keeps them: a retain of each call would
/// cost more than the call.
@inline(__always)
private func items(_ pointer: OpaquePointer?) -> UnsafeMutableBufferPointer<Batch.Item> {
  guard let pointer else { return UnsafeMutableBufferPointer(start: nil, count: 0) }
  return reference(pointer, Batch.self)._withUnsafeGuaranteedRef { $0.items.elements }
}

@inline(__always)
private func item(_ pointer: OpaquePointer?, _ index: Int) -> Batch.Item? {
  let items = items(pointer)
  return UInt(bitPattern: index) < UInt(bitPattern: items.count) ? items[index] : nil
}

/// Calls `body` with a batch and the item at an index, if both exist.
@inline(never)
private func withItem(
  _ pointer: OpaquePointer?, _ index: Int,
  _ body: (Batch, Batch.Item) throws(Failure) -> Status
) -> hutch_status {
  answering { () throws(Failure) in
    guard let batch = results(pointer), let item = item(pointer, index) else {
      throw .invalid("the batch is NULL, or has no such index")
    }
    return try body(batch, item)
  }
}

@_cdecl("hutch_batch_count") @implementation
public func hutch_batch_count(_ batch: OpaquePointer!) -> Int {
  items(batch).count
}

@_cdecl("hutch_batch_status") @implementation
public func hutch_batch_status(_ batch: OpaquePointer!, _ index: Int) -> hutch_status {
  item(batch, index)?.status ?? Status.invalidArgument.code
}

@_cdecl("hutch_batch_value") @implementation
public func hutch_batch_value(_ batch: OpaquePointer!, _ index: Int) -> OpaquePointer! {
  item(batch, index)?.value.map { OpaquePointer($0) }
}

@_cdecl("hutch_batch_info") @implementation
public func hutch_batch_info(
  _ batch: OpaquePointer!, _ index: Int, _ out: UnsafeMutablePointer<hutch_entry_info>!
) -> hutch_status {
  withItem(batch, index) { (batch, item) throws(Failure) in
    try filling(out) { () throws(Failure) in
      guard batch.kind == .infos, item.status == Status.done.code else { return nil }
      return hutch_entry_info(
        batch.records[index], at: batch.time,
        under: item.isOnDisk ? batch.diskAges : batch.memoryAges,
        in: item.isOnDisk ? .disk : .memory)
    }
  }
}

@_cdecl("hutch_batch_put_result") @implementation
public func hutch_batch_put_result(
  _ batch: OpaquePointer!, _ index: Int, _ out: UnsafeMutablePointer<hutch_put_result>!
) -> hutch_status {
  withItem(batch, index) { (batch, item) throws(Failure) in
    try filling(out) { () throws(Failure) in
      guard batch.kind == .puts else { return nil }
      return hutch_put_result(
        struct_size: 0, version: item.version, memory: item.memory, disk: item.disk)
    }
  }
}

@_cdecl("hutch_batch_retain") @implementation
public func hutch_batch_retain(_ batch: OpaquePointer!) -> OpaquePointer! {
  if let batch = results(batch) { _ = Unmanaged.passRetained(batch) }
  return batch
}

@_cdecl("hutch_batch_release") @implementation
public func hutch_batch_release(_ batch: OpaquePointer!) {
  guard let batch else { return }
  reference(batch, Batch.self).release()
}
