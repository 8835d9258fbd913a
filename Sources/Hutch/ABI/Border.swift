// The border between C and the engine. Every exported function does four things: checks its
// arguments, finds its object, calls the engine, maps the error. This file has what they
// share; the others have one group of the header each, and no logic.
//
// What crosses arrives unchecked: the header has no nullability marks, so a pointer may be
// nil; a size_t arrives as Int, so a size that no object can have is negative.

internal import CHutch

/// Maps the outcome of a call on a cache: a failure becomes its status, and this thread's
/// last error.
@inline(__always)
func answering(_ body: () throws(Failure) -> Status) -> hutch_status {
  do throws(Failure) {
    return try body().code
  } catch {
    return failing(error)
  }
}

/// Notes a failure and returns its status.
@inline(never)
func failing(_ failure: Failure) -> hutch_status {
  ThreadState.note(failure, failure.detail)
  return failure.status.code
}

extension Failure {
  static func invalid(_ words: StaticString) -> Failure { Failure(.invalidArgument, words) }
}

/// Calls `body` with the handle behind a pointer.
@inline(__always)
func withHandle(
  _ pointer: OpaquePointer?, _ body: (Handle) throws(Failure) -> Status
) -> hutch_status {
  guard let pointer else { return failing(.invalid("the cache is NULL")) }
  return Unmanaged<Handle>.fromOpaque(UnsafeRawPointer(pointer))._withUnsafeGuaranteedRef {
    handle in
    answering { () throws(Failure) in try body(handle) }
  }
}

/// As `withHandle`, if the cache can be used. What a call did not find may have gone because
/// the cache was closed meanwhile: that is the answer then.
@inline(__always)
func withCache(
  _ pointer: OpaquePointer?, _ body: (Handle) throws(Failure) -> Status
) -> hutch_status {
  withHandle(pointer) { (handle) throws(Failure) in
    try handle.check()
    let status = try body(handle)
    if status == .notFound { try handle.check() }
    return status
  }
}

/// As `withHandle`, with the cache, for calls that are over in some nanoseconds: no reference
/// is counted.
@inline(__always)
func withHandleAtOnce(
  _ pointer: OpaquePointer?, _ body: (Cache, Handle) throws(Failure) -> Status
) -> hutch_status {
  guard let pointer else { return failing(.invalid("the cache is NULL")) }
  return Unmanaged<Handle>.fromOpaque(UnsafeRawPointer(pointer))._withUnsafeGuaranteedRef {
    handle in
    handle.unretained._withUnsafeGuaranteedRef { cache in
      answering { () throws(Failure) in try body(cache, handle) }
    }
  }
}

/// As `withCache`, likewise.
@inline(__always)
func withCacheAtOnce(
  _ pointer: OpaquePointer?, _ body: (Cache, Scope) throws(Failure) -> Status
) -> hutch_status {
  withHandleAtOnce(pointer) { (cache, handle) throws(Failure) in
    try handle.check()
    let status = try body(cache, handle.scope)
    if status == .notFound { try handle.check() }
    return status
  }
}

// MARK: contexts

/// Whose callbacks a call's are: the cache's, if there is one.
func owner(_ cache: OpaquePointer?) -> UnsafeMutableRawPointer? {
  guard let cache else { return nil }
  return Unmanaged<Handle>.fromOpaque(UnsafeRawPointer(cache))._withUnsafeGuaranteedRef {
    $0.cache.identity
  }
}

/// A new counted reference for the host.
func handOut(_ object: AnyObject) -> OpaquePointer {
  OpaquePointer(Unmanaged.passRetained(object).toOpaque())
}

@inline(__always)
func checkedKey(_ pointer: UnsafeRawPointer?, _ size: Int) throws(Failure) -> Bytes {
  guard let pointer else { throw .invalid("the key is NULL") }
  guard size > 0, size <= Int(HUTCH_KEY_MAX) else {
    throw .invalid(size == 0 ? "the key is empty" : "the key is longer than 65,535 bytes")
  }
  return Bytes(start: pointer, count: size)
}

@inline(__always)
func checkedBytes(
  _ pointer: UnsafeRawPointer?, _ size: Int, _ words: StaticString
) throws(Failure) -> Bytes {
  guard size >= 0, pointer != nil || size == 0 else { throw .invalid(words) }
  return Bytes(start: pointer, count: size)
}

@inline(__always)
func checkedDuration(_ duration: Int64) throws(Failure) -> Int64 {
  guard duration >= 0 else { throw .invalid("a duration is negative") }
  return duration
}

// MARK: structs with a size

/// Larger than any struct of ours will be: a size above it was never set.
let largestStruct = 4096

/// Checks a struct's own size, and that what we do not know of it is zero. Returns how many
/// bytes of it we know.
private func knownSize(
  _ pointer: UnsafeRawPointer, _ ours: Int, _ isMissing: StaticString
) throws(Failure) -> Int {
  let size = pointer.loadUnaligned(as: Int.self)
  guard size >= MemoryLayout<Int>.size, size <= largestStruct else { throw .invalid(isMissing) }
  var offset = ours
  while offset < size {
    guard pointer.load(fromByteOffset: offset, as: UInt8.self) == 0 else {
      throw Failure(.unsupported, "a struct has a field that this library does not know")
    }
    offset += 1
  }
  return min(size, ours)
}

/// A struct from the host over `defaults`, which count for what an older header has not.
@inline(__always)
func received<T>(_ pointer: UnsafePointer<T>?, over defaults: T) throws(Failure) -> T {
  guard let pointer else { return defaults }
  let size = try knownSize(
    pointer, MemoryLayout<T>.size, "struct_size of an argument is not set")
  var value = defaults
  withUnsafeMutableBytes(of: &value) {
    $0.baseAddress!.copyMemory(from: pointer, byteCount: size)
  }
  return value
}

/// Checks a struct that is to be filled in, before anything is done.
@inline(__always)
func checkedResult<T>(_ pointer: UnsafeMutablePointer<T>?) throws(Failure) {
  guard let pointer else { return }
  _ = try knownSize(pointer, MemoryLayout<T>.size, "struct_size of a result is not set")
}

/// Fills a struct of the host's, as far as its header knows it; its struct_size stays.
@inline(__always)
func deliver<T>(_ value: T, to pointer: UnsafeMutablePointer<T>?) {
  guard let pointer else { return }
  let word = MemoryLayout<Int>.size
  let size = min(UnsafeRawPointer(pointer).loadUnaligned(as: Int.self), MemoryLayout<T>.size)
  withUnsafeBytes(of: value) {
    UnsafeMutableRawPointer(pointer).advanced(by: word)
      .copyMemory(from: $0.baseAddress! + word, byteCount: size - word)
  }
}

// MARK: records and limits

extension hutch_entry_info {
  /// `ages`: of the tier that answered.
  init(_ record: Record, at now: Int64, under ages: Ages, in scope: Scope) {
    self.init()
    version = record.version
    created = record.created
    accessed = record.accessed
    let end = record.endOfLife(at: now, under: ages)
    expires = end == Record.never ? 0 : end
    let idle = record.timeToIdle != 0 ? record.timeToIdle : ages.timeToIdle
    time_to_idle = idle == Record.never ? 0 : idle
    cost = record.cost
    size = UInt64(record.size)
    extended_size = UInt64(record.extendedSize)
    checksum = record.checksum
    tier =
      scope == .disk ? UInt32(HUTCH_TIER_DISK) : UInt32(HUTCH_TIER_MEMORY)
  }
}

extension TierLimits {
  init(_ limits: hutch_tier_limits) throws(Failure) {
    guard limits.reserved.0 == 0, limits.reserved.1 == 0 else {
      throw Failure(.unsupported, "a reserved field of the limits is set")
    }
    self.init(
      cost: limits.cost, count: limits.count, maxEntry: limits.max_entry,
      ages: Ages(
        timeToLive: try checkedDuration(limits.time_to_live),
        timeToIdle: try checkedDuration(limits.time_to_idle)),
      minFree: limits.min_free)
  }
}

extension hutch_tier_limits {
  init(_ limits: TierLimits) {
    self.init(
      cost: limits.cost, count: limits.count, max_entry: limits.maxEntry,
      time_to_live: limits.ages.timeToLive, time_to_idle: limits.ages.timeToIdle,
      min_free: limits.minFree, reserved: (0, 0))
  }
}
