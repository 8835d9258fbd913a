// Group objects: host pointers, in the memory tier alone, or with an object codec in both.

public import CHutch

@_cdecl("hutch_put_object") @implementation
public func hutch_put_object(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ object: UnsafeMutableRawPointer!,
  _ release: hutch_release!,
  _ options: UnsafePointer<hutch_put_options>!
) -> hutch_status {
  var isTaken = false
  let status = withCache(cache) { (cache, handle) throws(Failure) in
    try checkObjects(cache, handle.scope)
    let key = try checkedKey(key, key_size)
    let spec = try Cache.PutSpec.given(options)
    if let codec = cache.settings.objectCodec {
      return try answer(
        try cache.putObject(
          key, object, release, spec, by: codec, in: handle.scope, &isTaken), nil)
    }
    guard spec.extended.data.count == 0 else { throw .invalid("an object has no extended data") }
    try cache.putObject(key, object, release, spec)
    return .done
  }
  if status != Status.done.code && !isTaken {
    ThreadState.give(object, back: release, of: owner(cache))
  }
  return status
}

@_cdecl("hutch_get_object") @implementation
public func hutch_get_object(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out, of: cache) { (cache, handle) throws(Failure) in
    try checkObjects(cache, handle.scope)
    let key = try checkedKey(key, key_size)
    let block: Block? =
      if let codec = cache.settings.objectCodec {
        try cache.getObject(key, by: codec, in: handle.scope)
      } else {
        cache.getObject(key)
      }
    guard let block else { return nil }
    return OpaquePointer(block.leak().raw)
  }
}

@_cdecl("hutch_remove_object") @implementation
public func hutch_remove_object(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    try checkObjects(cache, handle.scope)
    let key = try checkedKey(key, key_size)
    if cache.settings.objectCodec != nil {
      return try cache.remove(key, in: handle.scope)
    }
    return cache.removeObject(key) ? .done : .notFound
  }
}

@_cdecl("hutch_drain_releases") @implementation
public func hutch_drain_releases(
  _ cache: OpaquePointer!, _ max: UInt64, _ drained: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  counting(drained, from: cache) { (cache, _, count) throws(Failure) in
    count = cache.releaseObjects(most: max == 0 ? .max : max)
  }
}

/// Checks the handle of a call on objects. Without an object codec it needs the memory tier.
private func checkObjects(_ cache: Cache, _ scope: Tiers) throws(Failure) {
  guard scope != .disk || cache.settings.objectCodec != nil else {
    throw Failure(.unsupported, "objects are in the memory tier only")
  }
}

@_cdecl("hutch_object_pointer") @implementation
public func hutch_object_pointer(_ object: OpaquePointer!) -> UnsafeMutableRawPointer! {
  object.flatMap { HostObject(block: UnownedBlock(UnsafeMutableRawPointer($0))).pointer }
}

@_cdecl("hutch_object_retain") @implementation
public func hutch_object_retain(_ object: OpaquePointer!) -> OpaquePointer! {
  hutch_value_retain(object)
}

@_cdecl("hutch_object_release") @implementation
public func hutch_object_release(_ object: OpaquePointer!) {
  hutch_value_release(object)
}
