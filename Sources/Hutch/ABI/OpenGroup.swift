// Group open: opening, closing, references, tier views, flush.

public import CHutch

@_cdecl("hutch_open") @implementation
public func hutch_open(
  _ directory: UnsafePointer<CChar>!, _ options: UnsafePointer<hutch_options>!,
  _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  out?.pointee = nil
  return answering(about: directory) { () throws(Failure) in
    let given: hutch_options
    do throws(Failure) {
      given = try received(options, over: hutch_options())
    } catch {
      // A struct longer than the library's still has the callbacks to release.
      if let options, isLonger(options) {
        options.pointee.clock_release?(options.pointee.clock_context)
        options.pointee.codec_release?(options.pointee.codec_context)
        release(options.pointee.object_codec)
      }
      throw error
    }
    // From here on the codec and the clock own the contexts.
    let codec = Codec(
      id: given.codec_id, encode: given.codec_encode, decode: given.codec_decode,
      context: given.codec_context, release: given.codec_release)
    let clock = Clock(
      function: given.clock, context: given.clock_context, release: given.clock_release)
    let objectCodec = try ObjectCodec.given(given.object_codec)
    guard let out else { throw .invalid("out is NULL") }
    let wanted = OpenOptions()
    try wanted.take(given, codec)
    wanted.objectCodec = objectCodec
    guard let directory else {
      out.pointee = handOut(Handle(try Opening.inMemory(wanted, clock: clock), .whole))
      return .done
    }
    guard directory.pointee != 0 else { throw .invalid("the directory's path is empty") }
    let (opening, differs) = try Opening.onDirectory(directory, wanted, clock: clock)
    out.pointee = handOut(Handle(opening, .whole))
    return differs ? .optionsDiffer : .done
  }
}

@_cdecl("hutch_destroy") @implementation
public func hutch_destroy(_ directory: UnsafePointer<CChar>!) -> hutch_status {
  answering(about: directory) { () throws(Failure) in
    guard let directory, directory.pointee != 0 else {
      throw .invalid("the directory's path is NULL or empty")
    }
    return try Opening.destroy(directory) ? .done : .notFound
  }
}

@_cdecl("hutch_buffer_resize") @implementation
public func hutch_buffer_resize(
  _ buffer: OpaquePointer!, _ size: Int
) -> UnsafeMutableRawPointer! {
  guard let buffer else { return nil }
  return reference(buffer, OutputBuffer.self)._withUnsafeGuaranteedRef { $0.resize(size) }
}

@_cdecl("hutch_close") @implementation
public func hutch_close(_ cache: OpaquePointer!) -> hutch_status {
  guard let cache else { return Status.done.code }
  let handed = reference(cache, Handle.self)
  return answering { () throws(Failure) in
    let handle = handed.takeUnretainedValue()
    if handle.opening.isForked {
      // The child does not touch its copy of the parent's objects.
      throw Failure(.forked, "the cache belongs to the parent of this process")
    }
    guard handle.scope == .whole else {
      Handle.release(handed)
      return .done
    }
    if handle.cache.isWithinCallback {
      throw Failure(.deadlock, "a callback of the cache cannot close the cache")
    }
    let failure = handle.opening.close()
    Handle.release(handed)
    guard let failure else { return .done }
    throw failure.status == .closed || failure.status == .timedOut
      ? failure : failure.asUnclean
  }
}

@_cdecl("hutch_cache_retain") @implementation
public func hutch_cache_retain(_ cache: OpaquePointer!) -> OpaquePointer! {
  guard let cache else { return nil }
  Handle.retain(reference(cache, Handle.self))
  return cache
}

@_cdecl("hutch_cache_release") @implementation
public func hutch_cache_release(_ cache: OpaquePointer!) {
  guard let cache else { return }
  let handed = reference(cache, Handle.self)
  if handed._withUnsafeGuaranteedRef({ $0.opening.isForked }) { return }
  Handle.release(handed)
}

@_cdecl("hutch_tier") @implementation
public func hutch_tier(
  _ cache: OpaquePointer!, _ tier: UInt32, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out, of: cache) { (handle) throws(Failure) in
    switch tier {
    case UInt32(HUTCH_TIER_MEMORY): return handOut(Handle(handle.opening, .memory))
    case UInt32(HUTCH_TIER_DISK):
      guard handle.cache.storage != nil else {
        throw Failure(.unsupported, "a cache in memory has no disk tier")
      }
      return handOut(Handle(handle.opening, .disk))
    default: throw .unknown("there is no such tier", tier)
    }
  }
}

@_cdecl("hutch_directory") @implementation
public func hutch_directory(_ cache: OpaquePointer!) -> UnsafePointer<CChar>! {
  guard let cache else { return nil }
  return reference(cache, Handle.self)._withUnsafeGuaranteedRef {
    $0.opening.path.map { UnsafePointer($0) }
  }
}

@_cdecl("hutch_flush") @implementation
public func hutch_flush(_ cache: OpaquePointer!) -> hutch_status {
  withCache(cache) { (cache, scope) throws(Failure) in
    if cache.isWithinCallback {
      throw Failure(.deadlock, "a callback of the cache cannot flush the cache")
    }
    if scope != .memory { try cache.flush() }
    return .done
  }
}

extension Failure {
  /// The answer does not tell which step failed: the close was not clean.
  fileprivate var asUnclean: Failure {
    with(.io)
  }
}

/// True if a struct is one of the header with a longer end, and not one whose size was never set.
private func isLonger<T>(_ options: UnsafePointer<T>) -> Bool {
  let size = UnsafeRawPointer(options).load(as: Int.self)
  return size > MemoryLayout<T>.size && size <= largestStruct
}

/// Releases the context of an object codec that is not used.
private func release(_ codec: UnsafePointer<hutch_object_codec>?) {
  guard let codec, codec.pointee.struct_size >= MemoryLayout<hutch_object_codec>.size,
    codec.pointee.struct_size <= largestStruct
  else { return }
  codec.pointee.context_release?(codec.pointee.context)
}

extension ObjectCodec {
  /// From here on it owns the context. If this fails, the context has been released.
  fileprivate static func given(
    _ codec: UnsafePointer<hutch_object_codec>?
  ) throws(Failure) -> ObjectCodec? {
    guard let codec else { return nil }
    let given: hutch_object_codec
    do throws(Failure) {
      given = try received(codec, over: hutch_object_codec())
      guard given.encode != nil, given.decode != nil else {
        throw .invalid("an object codec needs encode and decode")
      }
    } catch {
      release(codec)
      throw error
    }
    let told = try Allocation.one(hutch_object_codec.self)
    told.initialize(to: given)
    told.pointee.struct_size = MemoryLayout<hutch_object_codec>.size
    told.pointee.context_release = nil
    return ObjectCodec(
      UnsafeMutableRawPointer(told), encode: given.encode, decode: given.decode,
      releaseObject: given.release, context: given.context, release: given.context_release)
  }
}

extension OpenOptions {
  fileprivate func take(_ options: hutch_options, _ codec: Codec) throws(Failure) {
    if options.codec_id != 0 || options.codec_encode != nil || options.codec_decode != nil {
      guard codec.isWhole else {
        throw .invalid("a codec needs codec_encode, codec_decode and a codec_id other than 0")
      }
      self.codec = codec
      disk.codecID = codec.id
    }
    func check(
      _ number: UInt32, upTo last: UInt32, _ words: StaticString
    ) throws(Failure) {
      guard number <= last else { throw .unknown(words, number) }
    }
    let network = UInt32(HUTCH_OPEN_NETWORK_DIRECTORY)
    let optional = UInt32(HUTCH_OPEN_DISK_OPTIONAL)
    let drains = UInt32(HUTCH_OPEN_DRAIN_RELEASES)
    let noThreads = UInt32(HUTCH_OPEN_NO_THREADS)
    let nonempty = UInt32(HUTCH_OPEN_NONEMPTY)
    let existing = UInt32(HUTCH_OPEN_EXISTING)
    let agesOnTrim = UInt32(HUTCH_OPEN_AGES_ON_TRIM)
    try checkFlags(
      options.flags, network | optional | drains | noThreads | nonempty | existing | agesOnTrim)
    guard options.reserved == 0 else {
      throw Failure(.unsupported, "a reserved field of the options is set")
    }
    disk.mustExist = options.flags & existing != 0
    policy = try evictionPolicy(options.policy, "options.policy is not defined")
    disk.policy = try evictionPolicy(
      options.disk_policy, "options.disk_policy is not defined")
    try check(
      options.durability, upTo: UInt32(HUTCH_DURABILITY_SYNC),
      "options.durability is not defined")
    try check(
      options.checksums, upTo: UInt32(HUTCH_CHECKSUMS_NEVER), "options.checksums is not defined")
    disk.durability = Durability(rawValue: options.durability) ?? .process
    disk.checksChecksums = options.checksums != UInt32(HUTCH_CHECKSUMS_NEVER)
    switch options.sharing {
    case UInt32(HUTCH_SHARING_DEFAULT): break
    case UInt32(HUTCH_SHARING_EXCLUSIVE): disk.sharing = .exclusive
    case UInt32(HUTCH_SHARING_SHARED): disk.sharing = .shared
    default: throw .unknown("options.sharing is not defined", options.sharing)
    }
    guard let storage = StorageKind(rawValue: options.storage) else {
      throw .unknown("options.storage is not defined", options.storage)
    }
    pressure = try Pressure(options)
    writePolicy = try WritePolicy(options.write_policy)
    if writePolicy == .onEviction {
      guard options.sharing != UInt32(HUTCH_SHARING_SHARED) else {
        throw .invalid("HUTCH_WRITE_ON_EVICTION cannot be used with HUTCH_SHARING_SHARED")
      }
      disk.sharing = .exclusive
    }
    memory = try TierLimits(options.memory, over: .defaultMemory)
    memoryGiven = LimitFields(options.memory)
    disk.limits = try TierLimits(options.disk, over: .defaultDisk)
    disk.given = LimitFields(options.disk)
    memory.ages.actOnTrim = options.flags & agesOnTrim != 0
    disk.limits.ages.actOnTrim = memory.ages.actOnTrim
    disk.kind = storage
    if options.inline_threshold != 0 {
      disk.inlineThreshold = Int(clamping: options.inline_threshold)
    }
    disk.chosen = []
    if options.durability != 0 { disk.chosen.insert(.durability) }
    if options.checksums != 0 { disk.chosen.insert(.checksums) }
    if options.sharing != 0 { disk.chosen.insert(.sharing) }
    if options.inline_threshold != 0 { disk.chosen.insert(.inlineThreshold) }
    disk.isOptional = options.flags & optional != 0
    tasks.workers = try workersOf(options) ?? tasks.workers
    if options.flags & noThreads != 0 {
      guard options.workers == 0 else {
        throw .invalid("options.workers is set together with HUTCH_OPEN_NO_THREADS")
      }
      tasks.workers = 0
      disk.isMaintained = false
    }
    if let queue = options.queue {
      guard options.workers == 0, options.queue_length == 0 else {
        throw .invalid("options.workers or queue_length is set together with options.queue")
      }
      let hosts = try checked(queue, QueueHandle.self)
      guard hosts.isHosts else {
        throw .invalid("options.queue is a cache's own, which ends with that cache")
      }
      tasks.hosts = hosts
    }
    // 0 is the default: any number of tasks, for the queue too.
    if options.queue_length != UInt64.max { tasks.length = Int(clamping: options.queue_length) }
    let deadline = try checkedDuration(options.close_deadline)
    if deadline != 0 { tasks.closeDeadline = deadline }
    tasks.deliver = deliverCompletion
    disk.allowsNetworkDirectory = options.flags & network != 0
    disk.allowsNonempty = options.flags & nonempty != 0
    drainsReleases = options.flags & drains != 0
  }
}

extension WritePolicy {
  init(_ number: UInt32) throws(Failure) {
    guard let policy = WritePolicy(rawValue: number) else {
      throw .unknown("the write policy is not defined", number)
    }
    self = policy
  }
}

extension Pressure {
  fileprivate init(_ options: hutch_options) throws(Failure) {
    self.init()
    onMemoryWarning = try shrinkResponse(options.on_memory_warning) ?? onMemoryWarning
    onBackground = try shrinkResponse(options.on_background) ?? onBackground
    lowWater = try lowWaterPercent(options) ?? lowWater
  }
}
