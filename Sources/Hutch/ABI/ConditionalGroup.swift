// Group conditional: add, replace, compare_and_swap, increment, pop.

public import CHutch

@_cdecl("hutch_add") @implementation
public func hutch_add(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ value: UnsafeRawPointer!, _ value_size: Int,
  _ options: UnsafePointer<hutch_put_options>!, _ result: UnsafeMutablePointer<hutch_put_result>!
) -> hutch_status {
  putting(cache, key, key_size, value, value_size, options, result, if: .absent)
}

@_cdecl("hutch_replace") @implementation
public func hutch_replace(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ value: UnsafeRawPointer!, _ value_size: Int,
  _ options: UnsafePointer<hutch_put_options>!, _ result: UnsafeMutablePointer<hutch_put_result>!
) -> hutch_status {
  putting(cache, key, key_size, value, value_size, options, result, if: .present)
}

@_cdecl("hutch_compare_and_swap") @implementation
public func hutch_compare_and_swap(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int, _ version: UInt64,
  _ value: UnsafeRawPointer!, _ value_size: Int,
  _ options: UnsafePointer<hutch_put_options>!, _ result: UnsafeMutablePointer<hutch_put_result>!
) -> hutch_status {
  putting(cache, key, key_size, value, value_size, options, result, if: .version(version))
}

@_cdecl("hutch_increment") @implementation
public func hutch_increment(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int, _ delta: Int64,
  _ initial: Int64, _ options: UnsafePointer<hutch_put_options>!,
  _ result: UnsafeMutablePointer<Int64>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    let spec = try Cache.PutSpec.given(options)
    var sum: Int64 = 0
    let outcome = try cache.increment(
      key, by: delta, initial: initial, spec, in: handle.scope, sum: &sum)
    if let failure = outcome.failure { throw failure }
    result?.pointee = sum
    return outcome.status
  }
}

@_cdecl("hutch_pop") @implementation
public func hutch_pop(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out, of: cache) { (cache, handle) throws(Failure) in
    var isOvertaken = false
    let block = try cache.pop(
      try checkedKey(key, key_size), in: handle.scope, &isOvertaken)
    guard let block else { return nil }
    return OpaquePointer(block.leak().raw)
  }
}
