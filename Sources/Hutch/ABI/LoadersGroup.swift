// Group loaders: hutch_load, and its open form.

public import CHutch

extension LoadSpec {
  init(_ options: hutch_load_options) throws(Failure) {
    self.init()
    try checkFlags(options.flags, UInt32(HUTCH_LOAD_STALE_IF_ERROR))
    try checkReserved(options.reserved == 0)
    let given = try checkedDuration(options.timeout)
    if given != 0 { timeout = given }
    softTimeToLive = try checkedDuration(options.soft_time_to_live)
    negativeTimeToLive = try checkedDuration(options.negative_time_to_live)
    servesStale = options.flags != 0
  }
}

extension Loading: HostHandle {
  static var isMissing: StaticString { "the loading is NULL" }
  func check() throws(Failure) {
    try checkOwn()
    try handle.check()
  }
}

/// A loading of this process; its cache may be closed.
func parentLoading(_ options: hutch_load_options) throws(Failure) -> Loading? {
  let parent = options.parent.map { reference($0, Loading.self).takeUnretainedValue() }
  try parent?.checkOwn()
  return parent
}

/// Writes the value of an answer to `out`, and returns the answer's status.
@inline(__always)
private func deliver(
  _ answer: consuming Cache.LoadAnswer, _ out: UnsafeMutablePointer<OpaquePointer?>
) throws(Failure) -> Status {
  let status = answer.status
  if status == .timedOut { throw Failure(.timedOut, "the load took too long") }
  if let value = answer.value.take() { out.pointee = OpaquePointer(value.leak().raw) }
  return status
}

@_cdecl("hutch_load") @implementation
public func hutch_load(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int, _ loader: hutch_loader!,
  _ context: UnsafeMutableRawPointer!, _ options: UnsafePointer<hutch_load_options>!,
  _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  out?.pointee = nil
  return withHandle(cache) { (cache, handle) throws(Failure) in
    try handle.check()
    let key = try checkedKey(key, key_size)
    guard let out, let loader else { throw .invalid("loader or out is NULL") }
    var spec = LoadSpec()
    var parent: Loading?
    if let options {
      let given = try loadOptions(options)
      spec = try LoadSpec(given)
      parent = try parentLoading(given)
    }
    var found = try cache.get(key, in: handle.scope)
    // Without options no value is stale.
    if options == nil, let block = found.take() {
      out.pointee = OpaquePointer(block.leak().raw)
      return .done
    }
    return try deliver(
      try cache.load(key, spec, parent: parent, found, for: handle, loader, context), out)
  }
}

@inline(never)
func loadOptions(
  _ options: UnsafePointer<hutch_load_options>?
) throws(Failure) -> hutch_load_options {
  try received(options, over: hutch_load_options())
}

@_cdecl("hutch_load_begin") @implementation
public func hutch_load_begin(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ options: UnsafePointer<hutch_load_options>!, _ value: UnsafeMutablePointer<OpaquePointer?>!,
  _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  value?.pointee = nil
  out?.pointee = nil
  return withCache(cache) { (cache, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    guard let value, let out else { throw .invalid("value or loading is NULL") }
    let options = try loadOptions(options)
    var answer = try cache.beginLoad(
      key, try LoadSpec(options), parent: try parentLoading(options), for: handle)
    if let joined = answer.loading.take() { out.pointee = handOut(joined) }
    return try deliver(answer, value)
  }
}

@_cdecl("hutch_loading_wait") @implementation
public func hutch_loading_wait(
  _ loading: OpaquePointer!, _ timeout: Int64, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  out?.pointee = nil
  return with(loading, Loading.self) { (loading) throws(Failure) in
    guard let out else { throw .invalid("out is NULL") }
    return try deliver(
      try loading.cache.wait(loading, timeout: try checkedDuration(timeout)), out)
  }
}

@_cdecl("hutch_loading_fulfil") @implementation
public func hutch_loading_fulfil(
  _ loading: OpaquePointer!, _ value: UnsafeRawPointer!, _ value_size: Int,
  _ options: UnsafePointer<hutch_put_options>!
) -> hutch_status {
  with(loading, Loading.self) { (loading) throws(Failure) in
    let value = try checkedBytes(value, value_size, "the value is NULL, or its size is not valid")
    let result = try loading.cache.fulfil(loading, value, try .given(options))
    if let failure = result.failure { throw failure }
    return result.status
  }
}

@_cdecl("hutch_loading_fail") @implementation
public func hutch_loading_fail(
  _ loading: OpaquePointer!, _ code: Int32, _ words: UnsafePointer<CChar>!
) -> hutch_status {
  with(loading, Loading.self) { (loading) throws(Failure) in
    try loading.cache.fail(loading, code, words)
  }
}

@_cdecl("hutch_loading_abandon") @implementation
public func hutch_loading_abandon(_ loading: OpaquePointer!) -> hutch_status {
  with(loading, Loading.self) { (loading) throws(Failure) in
    loading.leave()
    return .done
  }
}

@_cdecl("hutch_loading_wanted") @implementation
public func hutch_loading_wanted(_ loading: OpaquePointer!) -> hutch_status {
  with(loading, Loading.self) { (loading) throws(Failure) in
    loading.cache.loads.isWanted(loading) ? .done : .cancelled
  }
}

@_cdecl("hutch_loading_retain") @implementation
public func hutch_loading_retain(_ pointer: OpaquePointer!) -> OpaquePointer! {
  if let pointer { reference(pointer, Loading.self)._withUnsafeGuaranteedRef { $0.noteRetain() } }
  return retained(pointer, Loading.self)
}

@_cdecl("hutch_loading_release") @implementation
public func hutch_loading_release(_ pointer: OpaquePointer!) {
  if let pointer {
    reference(pointer, Loading.self)._withUnsafeGuaranteedRef {
      if !Process.isParents($0.forks) { $0.noteRelease() }
    }
  }
  release(pointer, Loading.self)
}
