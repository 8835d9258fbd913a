// Group options: the options in force, and the change of those that can be changed in use.

public import CHutch

@_cdecl("hutch_get_options") @implementation
public func hutch_get_options(
  _ cache: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_options>!
) -> hutch_status {
  withCache(cache) { (cache, _) throws(Failure) in
    try filling(out) {
      var options = hutch_options()
      options.describe(cache)
      return options
    }
  }
}

@_cdecl("hutch_set_options") @implementation
public func hutch_set_options(
  _ cache: OpaquePointer!, _ options: UnsafePointer<hutch_options>!
) -> hutch_status {
  withCache(cache) { (cache, _) throws(Failure) in
    guard options != nil else { throw .invalid("options is NULL") }
    let given = try received(options, over: hutch_options())
    try checkChangeable(given)
    try cache.change(try Cache.OptionChange(given))
    return .done
  }
}

extension hutch_options {
  /// Sets the options in force in a struct of zeroes. Not an initializer: that would keep all
  /// fields beside the struct.
  @inline(never)
  fileprivate mutating func describe(_ cache: Cache) {
    let limits = cache.limits()
    let (chosen, shrinks) = cache.parts.limitsLock.withLock {
      (cache.memoryPolicy, cache.pressure)
    }
    policy = number(of: chosen)
    memory = hutch_tier_limits(limits.memory)
    on_memory_warning = shrinks.onMemoryWarning.rawValue
    on_background = shrinks.onBackground.rawValue
    low_water = UInt32(shrinks.lowWater)
    write_policy = cache.writePolicy.rawValue
    if cache.settings.drainsReleases { flags |= UInt32(HUTCH_OPEN_DRAIN_RELEASES) }
    if limits.memory.ages.actOnTrim { flags |= UInt32(HUTCH_OPEN_AGES_ON_TRIM) }
    let upkeep = cache.parts.upkeep
    if !upkeep.hasThreads { flags |= UInt32(HUTCH_OPEN_NO_THREADS) }
    if let hosts = cache.parts.hosts {
      queue = OpaquePointer(Unmanaged.passUnretained(hosts).toOpaque())
    } else {
      workers = UInt32(cache.workers)
      queue_length = upkeep.length == 0 ? UInt64.max : UInt64(upkeep.length)
    }
    close_deadline = cache.settings.closeDeadline
    clock = cache.clock.function
    clock_context = cache.clock.context
    if let codec = cache.settings.values.codec {
      codec_id = codec.id
      codec_encode = codec.encoding
      codec_decode = codec.decoding
      codec_context = codec.context
    }
    object_codec = cache.settings.objectCodec.map {
      UnsafePointer($0.told.assumingMemoryBound(to: hutch_object_codec.self))
    }
    guard let store = cache.storage?.optionsInForce else { return }
    disk = hutch_tier_limits(limits.disk)
    disk_policy = number(of: store.policy ?? .adaptive)
    storage = store.kind.rawValue
    durability = store.durability.rawValue
    sharing = store.sharing.rawValue
    checksums = UInt32(store.checksChecksums ? HUTCH_CHECKSUMS_ALWAYS : HUTCH_CHECKSUMS_NEVER)
    inline_threshold =
      store.inlineThreshold == Int.max ? UInt64.max : UInt64(store.inlineThreshold)
    if store.allowsNetworkDirectory { flags |= UInt32(HUTCH_OPEN_NETWORK_DIRECTORY) }
    if store.isOptional { flags |= UInt32(HUTCH_OPEN_DISK_OPTIONAL) }
    if store.allowsNonempty { flags |= UInt32(HUTCH_OPEN_NONEMPTY) }
    if store.mustExist { flags |= UInt32(HUTCH_OPEN_EXISTING) }
  }
}

/// Checks that no option is set but those that can be changed in an open cache.
private func checkChangeable(_ options: hutch_options) throws(Failure) {
  var rest = options
  rest.struct_size = 0
  rest.policy = 0
  rest.disk_policy = 0
  rest.workers = 0
  rest.on_memory_warning = 0
  rest.on_background = 0
  rest.low_water = 0
  guard isZero(rest) else {
    throw Failure(.unsupported, "an option is set that cannot be changed in an open cache")
  }
}

extension Cache.OptionChange {
  @inline(never)
  init(_ options: hutch_options) throws(Failure) {
    policy = try evictionPolicy(options.policy, "options.policy is not defined")
    diskPolicy = try evictionPolicy(options.disk_policy, "options.disk_policy is not defined")
    onMemoryWarning = try shrinkResponse(options.on_memory_warning)
    onBackground = try shrinkResponse(options.on_background)
    guard options.low_water <= 100 else { throw .invalid("options.low_water is above 100") }
    if options.low_water != 0 { lowWater = UInt64(options.low_water) }
    guard options.workers <= UInt32(TaskQueue.mostThreads) else {
      throw .invalid("options.workers is above 256")
    }
    if options.workers != 0 { workers = Int(options.workers) }
  }
}

private func evictionPolicy(
  _ number: UInt32, _ words: StaticString
) throws(Failure) -> EvictionPolicy? {
  switch number {
  case UInt32(HUTCH_POLICY_DEFAULT): nil
  case UInt32(HUTCH_POLICY_ADAPTIVE): .adaptive
  case UInt32(HUTCH_POLICY_LRU): .lru
  case UInt32(HUTCH_POLICY_LFU): .lfu
  case UInt32(HUTCH_POLICY_FIFO): .fifo
  default: throw .unknown(words, number)
  }
}

private func number(of policy: EvictionPolicy) -> UInt32 {
  switch policy {
  case .adaptive: UInt32(HUTCH_POLICY_ADAPTIVE)
  case .lru: UInt32(HUTCH_POLICY_LRU)
  case .lfu: UInt32(HUTCH_POLICY_LFU)
  case .fifo: UInt32(HUTCH_POLICY_FIFO)
  }
}

private func shrinkResponse(_ number: UInt32) throws(Failure) -> Pressure.Response? {
  if number == UInt32(HUTCH_SHRINK_DEFAULT) { return nil }
  guard let response = Pressure.Response(rawValue: number) else {
    throw .unknown("the HUTCH_SHRINK_* option is not defined", number)
  }
  return response
}
