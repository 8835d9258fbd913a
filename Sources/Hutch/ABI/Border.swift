// The boundary between C and the engine. Every exported function does four things: checks its
// arguments, finds its object, calls the engine, maps the error. This file has the parts that they
// share; each other file has one group of the header. The folder Shared has what does not know the
// engine: the HTTP library is compiled with it too.

internal import CHutch
import CSystem

/// Records a failure and returns its status.
@inline(never)
func failing(
  _ failure: Failure, about subject: UnsafePointer<CChar>? = nil
) -> hutch_status {
  ThreadState.note(failure, failure.detail, subject)
  return failure.status.code
}

/// Calls `body` with the handle behind a pointer, and its cache. It counts no reference.
@inline(__always)
func withHandle(
  _ pointer: OpaquePointer?, about subject: UnsafePointer<CChar>? = nil,
  _ body: (Cache, Handle) throws(Failure) -> Status
) -> hutch_status {
  guard let pointer else { return failing(.invalid("the cache is NULL")) }
  return reference(pointer, Handle.self)._withUnsafeGuaranteedRef { handle in
    handle.unretained._withUnsafeGuaranteedRef { cache in
      answering(about: subject) { () throws(Failure) in try body(cache, handle) }
    }
  }
}

/// Like `withHandle`, for a cache that can be used. If a call finds no entry, a close may have
/// removed it meanwhile: then the answer is HUTCH_CLOSED.
@inline(never)
func withCache(
  _ pointer: OpaquePointer?, _ body: (Cache, Handle) throws(Failure) -> Status
) -> hutch_status {
  withHandle(pointer) { (cache, handle) throws(Failure) in
    try handle.check()
    let status = try body(cache, handle)
    if status == .notFound { try handle.check() }
    return status
  }
}

/// Like `giving`, for a cache that can be used.
func giving(
  _ out: UnsafeMutablePointer<OpaquePointer?>?, of cache: OpaquePointer?,
  _ body: (Cache, Handle) throws(Failure) -> OpaquePointer?
) -> hutch_status {
  out?.pointee = nil
  return withCache(cache) { (cache, handle) throws(Failure) in
    guard let out else { throw .invalid("out is NULL") }
    guard let object = try body(cache, handle) else { return .notFound }
    out.pointee = object
    return .done
  }
}

/// Calls `body`, which counts what it removes from a cache that can be used. `removed` gets the
/// count, also if the call fails.
func counting(
  _ removed: UnsafeMutablePointer<UInt64>?, from cache: OpaquePointer?,
  _ body: (Cache, Handle, inout UInt64) throws(Failure) -> Void
) -> hutch_status {
  removed?.pointee = 0
  return withCache(cache) { (cache, handle) throws(Failure) in
    var count: UInt64 = 0
    defer { removed?.pointee = count }
    try body(cache, handle, &count)
    return .done
  }
}

/// The short path of hits, if calls through a handle may use it.
@inline(__always)
func shortPath(_ pointer: OpaquePointer?) -> HitPath? {
  guard let pointer else { return nil }
  return Unmanaged<Handle>.fromOpaque(UnsafeRawPointer(pointer))._withUnsafeGuaranteedRef {
    $0.shortPath
  }
}

/// The straight path of hits, likewise.
@inline(__always)
func straightPath(_ pointer: OpaquePointer) -> HitPath? {
  Unmanaged<Handle>.fromOpaque(UnsafeRawPointer(pointer))._withUnsafeGuaranteedRef {
    $0.straightPath
  }
}

/// True: none of them is NULL. One test for all: their product is 0 if one is, and hardly ever
/// otherwise.
@inline(__always)
func areThere(
  _ a: OpaquePointer?, _ b: UnsafeRawPointer?, _ c: UnsafeRawPointer?,
  _ d: UnsafeRawPointer? = UnsafeRawPointer(bitPattern: 1)
) -> Bool {
  (Int(bitPattern: a) &* Int(bitPattern: b)) &* (Int(bitPattern: c) &* Int(bitPattern: d)) != 0
}

// MARK: contexts

/// The owner of a call's callbacks: the cache, if there is one.
func owner(_ cache: OpaquePointer?) -> UnsafeMutableRawPointer? {
  guard let cache else { return nil }
  return reference(cache, Handle.self)._withUnsafeGuaranteedRef {
    $0.cache.identity
  }
}

@inline(never)
func checkedKey(_ pointer: UnsafeRawPointer?, _ size: Int) throws(Failure) -> Bytes {
  guard let pointer else { throw .invalid("the key is NULL") }
  guard size > 0, size <= Int(HUTCH_KEY_MAX) else {
    throw .invalid(size == 0 ? "the key is empty" : "the key is longer than 65,535 bytes")
  }
  return Bytes(start: pointer, count: size)
}

@inline(never)
func checkedTag(_ pointer: UnsafeRawPointer?, _ size: Int) throws(Failure) -> Bytes {
  guard let pointer else { throw .invalid("the tag is NULL") }
  guard size > 0, size <= Int(HUTCH_TAG_MAX) else {
    throw .invalid(size == 0 ? "the tag is empty" : "the tag is longer than 255 bytes")
  }
  return Bytes(start: pointer, count: size)
}

@inline(__always)
func checkedBuffer(
  _ buffer: UnsafeMutableRawPointer?, _ capacity: Int
) throws(Failure) -> UnsafeMutableRawBufferPointer {
  guard capacity >= 0, buffer != nil || capacity == 0 else {
    throw .invalid("the buffer is NULL, or its capacity is not a valid size")
  }
  return UnsafeMutableRawBufferPointer(start: buffer, count: capacity)
}

/// Refuses a struct of the host whose reserved fields are not zero.
@inline(never)
func checkReserved(_ isZero: Bool) throws(Failure) {
  guard isZero else { throw Failure(.unsupported, "a reserved field of a struct is set") }
}

// MARK: records and limits

extension hutch_entry_info {
  /// `ages`: those of the tier that answered.
  @inline(never)
  init(_ record: Record, at now: Int64, under ages: Ages, in tier: Tiers) {
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
    extended_size = UInt64(record.extendedSize - Int(record.tagSize))
    tag_size = UInt32(record.tagSize)
    checksum = record.checksum
    self.tier = tier.rawValue
  }
}

/// In the header, 0 means 'not set' and the largest number means 'no limit'. In the engine, 0 means
/// 'no limit', and `LimitFields` has the fields that are set.
extension TierLimits {
  /// `defaults`, except for the fields that the host has set.
  init(_ limits: hutch_tier_limits, over defaults: TierLimits) throws(Failure) {
    try checkReserved(isZero(limits.reserved))
    func size(_ number: UInt64) -> UInt64 { number == UInt64.max ? 0 : number }
    func duration(_ duration: Int64) throws(Failure) -> Int64 {
      try checkedDuration(duration) == Int64.max ? 0 : duration
    }
    let largest = limits.max_entry
    let wanted = TierLimits(
      cost: size(limits.cost), count: size(limits.count),
      maxEntry: largest == UInt64.max - 1 ? TierLimits.quarter : size(largest),
      ages: Ages(
        timeToLive: try duration(limits.time_to_live),
        timeToIdle: try duration(limits.time_to_idle)),
      minFree: size(limits.min_free))
    self = defaults.changed(LimitFields(limits), to: wanted)
  }
}

extension LimitFields {
  /// The fields that are not zero.
  @inline(never)
  init(_ limits: hutch_tier_limits) {
    self = []
    if limits.cost != 0 { insert(.cost) }
    if limits.count != 0 { insert(.count) }
    if limits.max_entry != 0 { insert(.maxEntry) }
    if limits.time_to_live != 0 { insert(.timeToLive) }
    if limits.time_to_idle != 0 { insert(.timeToIdle) }
    if limits.min_free != 0 { insert(.minFree) }
  }
}

extension hutch_tier_limits {
  init(_ limits: TierLimits) {
    func size(_ number: UInt64) -> UInt64 { number == 0 ? UInt64.max : number }
    func duration(_ duration: Int64) -> Int64 { duration == 0 ? Int64.max : duration }
    let isQuarter = limits.maxEntry == TierLimits.quarter
    self.init()
    cost = size(limits.cost)
    count = size(limits.count)
    max_entry = isQuarter ? UInt64.max - 1 : size(limits.maxEntry)
    time_to_live = duration(limits.ages.timeToLive)
    time_to_idle = duration(limits.ages.timeToIdle)
    min_free = size(limits.minFree)
  }
}
