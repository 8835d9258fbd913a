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
    let clock = Clock(
      function: given.clock, context: given.clock_context, release: given.clock_release)
    let wanted = OpenOptions()
    wanted.codec = Codec(
      id: given.codec_id, encode: given.codec_encode, decode: given.codec_decode,
      context: given.codec_context, release: given.codec_release)
    wanted.objectCodec = try ObjectCodec.given(given.object_codec)
    guard let out else { throw .invalid("out is NULL") }
    try wanted.take(given)
    let opening: Opening
    var differs = false
    if let directory {
      (opening, differs) = try Opening.onDirectory(directory, wanted, clock: clock)
    } else {
      opening = try Opening.inMemory(wanted, clock: clock)
    }
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
    // Else the answer does not tell which step failed: the close was not clean.
    throw failure.status == .closed || failure.status == .timedOut ? failure : failure.with(.io)
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
  giving(out, of: cache) { (cache, handle) throws(Failure) in
    switch tier {
    case UInt32(HUTCH_TIER_MEMORY): return handOut(Handle(handle.opening, .memory))
    case UInt32(HUTCH_TIER_DISK):
      guard cache.storage != nil else {
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
  withCache(cache) { (cache, handle) throws(Failure) in
    if cache.isWithinCallback {
      throw Failure(.deadlock, "a callback of the cache cannot flush the cache")
    }
    if handle.scope != .memory { try cache.flush() }
    return .done
  }
}

/// True if a struct is one of the header with a longer end, and not one whose size was never set.
private func isLonger<T>(_ options: UnsafePointer<T>) -> Bool {
  let size = UnsafeRawPointer(options).load(as: Int.self)
  return size > MemoryLayout<T>.size && isStructSize(size)
}

/// Releases the context of an object codec that is not used.
private func release(_ codec: UnsafePointer<hutch_object_codec>?) {
  guard let codec, codec.pointee.struct_size >= MemoryLayout<hutch_object_codec>.size,
    isStructSize(codec.pointee.struct_size)
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
    let told: UnsafeMutablePointer<hutch_object_codec>
    do throws(Failure) {
      given = try received(codec, over: hutch_object_codec())
      guard given.encode != nil, given.decode != nil else {
        throw .invalid("an object codec needs encode and decode")
      }
      told = try Allocation.one(hutch_object_codec.self)
    } catch {
      release(codec)
      throw error
    }
    told.initialize(to: given)
    told.pointee.struct_size = MemoryLayout<hutch_object_codec>.size
    told.pointee.context_release = nil
    return ObjectCodec(
      UnsafeMutableRawPointer(told), encode: given.encode, decode: given.decode,
      releaseObject: given.release, context: given.context, release: given.context_release)
  }
}

extension hutch_options {
  /// Whether a flag of HUTCH_OPEN_* is set.
  fileprivate func has(_ flag: Int) -> Bool { flags & UInt32(flag) != 0 }
}

extension OpenOptions {
  @inline(never)
  fileprivate func take(_ options: hutch_options) throws(Failure) {
    if options.codec_id == 0 && options.codec_encode == nil && options.codec_decode == nil {
      codec = nil
    } else if options.codec_id == 0 || options.codec_encode == nil || options.codec_decode == nil {
      throw .invalid("a codec needs codec_encode, codec_decode and a codec_id other than 0")
    }
    disk.codecID = options.codec_id
    try checkFlags(
      options.flags,
      UInt32(
        HUTCH_OPEN_NETWORK_DIRECTORY | HUTCH_OPEN_DISK_OPTIONAL | HUTCH_OPEN_DRAIN_RELEASES
          | HUTCH_OPEN_NO_THREADS | HUTCH_OPEN_NONEMPTY | HUTCH_OPEN_EXISTING
          | HUTCH_OPEN_AGES_ON_TRIM))
    try checkReserved(options.reserved == 0)
    change = try Cache.OptionChange(options)
    memory = try TierLimits(options.memory, over: .defaultMemory)
    memoryGiven = LimitFields(options.memory)
    memory.ages.actOnTrim = options.has(HUTCH_OPEN_AGES_ON_TRIM)
    drainsReleases = options.has(HUTCH_OPEN_DRAIN_RELEASES)
    try disk.take(options)
    disk.policy = change.diskPolicy
    writePolicy = try WritePolicy(options.write_policy)
    if writePolicy == .onEviction {
      guard options.sharing != UInt32(HUTCH_SHARING_SHARED) else {
        throw .invalid("HUTCH_WRITE_ON_EVICTION cannot be used with HUTCH_SHARING_SHARED")
      }
      disk.sharing = .exclusive
      disk.chosen.insert(.sharing)
    }
    tasks.workers = change.workers ?? tasks.workers
    try tasks.take(options)
  }
}

extension StorageOptions {
  @inline(never)
  fileprivate mutating func take(_ options: hutch_options) throws(Failure) {
    // The default is HUTCH_DURABILITY_PROCESS, which is 1.
    guard let durability = Durability(rawValue: max(options.durability, 1)) else {
      throw .unknown("options.durability is not defined", options.durability)
    }
    self.durability = durability
    guard options.checksums <= UInt32(HUTCH_CHECKSUMS_NEVER) else {
      throw .unknown("options.checksums is not defined", options.checksums)
    }
    checksChecksums = options.checksums != UInt32(HUTCH_CHECKSUMS_NEVER)
    switch options.sharing {
    case UInt32(HUTCH_SHARING_DEFAULT): break
    case UInt32(HUTCH_SHARING_EXCLUSIVE): sharing = .exclusive
    case UInt32(HUTCH_SHARING_SHARED): sharing = .shared
    default: throw .unknown("options.sharing is not defined", options.sharing)
    }
    guard let kind = StorageKind(rawValue: options.storage) else {
      throw .unknown("options.storage is not defined", options.storage)
    }
    self.kind = kind
    limits = try TierLimits(options.disk, over: .defaultDisk)
    given = LimitFields(options.disk)
    limits.ages.actOnTrim = options.has(HUTCH_OPEN_AGES_ON_TRIM)
    chosen = []
    if options.durability != 0 { chosen.insert(.durability) }
    if options.checksums != 0 { chosen.insert(.checksums) }
    if options.sharing != 0 { chosen.insert(.sharing) }
    if options.inline_threshold != 0 {
      chosen.insert(.inlineThreshold)
      inlineThreshold = Int(clamping: options.inline_threshold)
    }
    mustExist = options.has(HUTCH_OPEN_EXISTING)
    isOptional = options.has(HUTCH_OPEN_DISK_OPTIONAL)
    isMaintained = !options.has(HUTCH_OPEN_NO_THREADS)
    allowsNetworkDirectory = options.has(HUTCH_OPEN_NETWORK_DIRECTORY)
    allowsNonempty = options.has(HUTCH_OPEN_NONEMPTY)
  }
}

extension TaskOptions {
  @inline(never)
  fileprivate mutating func take(_ options: hutch_options) throws(Failure) {
    deliver = deliverCompletion
    if options.has(HUTCH_OPEN_NO_THREADS) {
      guard options.workers == 0 else {
        throw .invalid("options.workers is set together with HUTCH_OPEN_NO_THREADS")
      }
      workers = 0
    }
    if let queue = options.queue {
      guard options.workers == 0, options.queue_length == 0 else {
        throw .invalid("options.workers or queue_length is set together with options.queue")
      }
      let hosts = try checked(queue, QueueHandle.self)
      guard hosts.isHosts else {
        throw .invalid("options.queue is a cache's own, which ends with that cache")
      }
      self.hosts = hosts
    }
    if options.queue_length != 0 {
      length = options.queue_length == UInt64.max ? 0 : Int(clamping: options.queue_length)
    }
    let deadline = try checkedDuration(options.close_deadline)
    if deadline != 0 { closeDeadline = deadline }
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
