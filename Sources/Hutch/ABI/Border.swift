// The boundary between C and the engine. Every exported function does four things: checks its
// arguments, finds its object, calls the engine, maps the error. This file has the parts that they
// share; each other file has one group of the header.
//
// The arguments arrive unchecked. The header has no nullability marks, so a pointer may be nil. A
// size_t arrives as Int, so a size that no object can have is negative.

internal import CHutch
import CSystem

/// Maps the result of a call on a cache: a failure becomes its status, and this thread's last
/// error. `subject`: the path that a failure is about.
@inline(__always)
func answering(
  about subject: UnsafePointer<CChar>? = nil, _ body: () throws(Failure) -> Status
) -> hutch_status {
  do throws(Failure) {
    return try body().code
  } catch {
    return failing(error, about: subject)
  }
}

/// Records a failure and returns its status.
@inline(never)
func failing(
  _ failure: Failure, about subject: UnsafePointer<CChar>? = nil
) -> hutch_status {
  ThreadState.note(failure, failure.detail, subject)
  return failure.status.code
}

/// Checks flags, of which a caller may set only those that are `defined`.
@inline(__always)
func checkFlags(_ flags: UInt32, _ defined: UInt32) throws(Failure) {
  if flags & ~defined != 0 { throw .unknown("a flag is not defined", flags & ~defined) }
}

extension Failure {
  static func invalid(_ words: StaticString) -> Failure { Failure(.invalidArgument, words) }
}

/// Calls `body` with the handle behind a pointer. Not inlined, for calls that take longer than a
/// closure costs.
@inline(never)
func withHandle(
  _ pointer: OpaquePointer?, about subject: UnsafePointer<CChar>? = nil,
  _ body: (Handle) throws(Failure) -> Status
) -> hutch_status {
  guard let pointer else { return failing(.invalid("the cache is NULL")) }
  return reference(pointer, Handle.self)._withUnsafeGuaranteedRef {
    handle in
    answering(about: subject) { () throws(Failure) in try body(handle) }
  }
}

/// Like `withHandle`, for a cache that can be used. If a call finds no entry, a close may have
/// removed it meanwhile: then the answer is HUTCH_CLOSED.
@inline(never)
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

/// Like `withHandle`, with the cache, for calls that end within some nanoseconds: it counts no
/// reference.
@inline(__always)
func withHandleAtOnce(
  _ pointer: OpaquePointer?, _ body: (Cache, Handle) throws(Failure) -> Status
) -> hutch_status {
  guard let pointer else { return failing(.invalid("the cache is NULL")) }
  return reference(pointer, Handle.self)._withUnsafeGuaranteedRef {
    handle in
    handle.unretained._withUnsafeGuaranteedRef { cache in
      answering { () throws(Failure) in try body(cache, handle) }
    }
  }
}

/// Like `withCache`, and counts no reference either.
@inline(__always)
func withCacheAtOnce(
  _ pointer: OpaquePointer?, _ body: (Cache, Tiers) throws(Failure) -> Status
) -> hutch_status {
  withHandleAtOnce(pointer) { (cache, handle) throws(Failure) in
    try handle.check()
    let status = try body(cache, handle.scope)
    if status == .notFound { try handle.check() }
    return status
  }
}

/// Like `withCacheAtOnce`, for calls that take longer than a closure costs.
@inline(never)
func withCache(
  _ pointer: OpaquePointer?, _ body: (Cache, Tiers) throws(Failure) -> Status
) -> hutch_status {
  withCacheAtOnce(pointer, body)
}

/// The short path of hits, if calls through a handle may use it.
@inline(__always)
func shortPath(_ pointer: OpaquePointer?) -> HitPath? {
  guard let pointer else { return nil }
  return Unmanaged<Handle>.fromOpaque(UnsafeRawPointer(pointer))._withUnsafeGuaranteedRef {
    $0.shortPath
  }
}

/// True if none of them is NULL: one test for all. (Addresses end below 2^63.)
@inline(__always)
func areThere(
  _ a: UnsafeRawPointer?, _ b: UnsafeRawPointer?, _ c: UnsafeRawPointer?
) -> Bool {
  (Int(bitPattern: a) &- 1) | (Int(bitPattern: b) &- 1) | (Int(bitPattern: c) &- 1) >= 0
}

// MARK: contexts

/// The owner of a call's callbacks: the cache, if there is one.
func owner(_ cache: OpaquePointer?) -> UnsafeMutableRawPointer? {
  guard let cache else { return nil }
  return reference(cache, Handle.self)._withUnsafeGuaranteedRef {
    $0.cache.identity
  }
}

@inline(__always)
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
func checkedBytes(
  _ pointer: UnsafeRawPointer?, _ size: Int, _ words: StaticString
) throws(Failure) -> Bytes {
  guard size >= 0, pointer != nil || size == 0 else { throw .invalid(words) }
  return Bytes(start: pointer, count: size)
}

@inline(never)
func checkedDuration(_ duration: Int64) throws(Failure) -> Int64 {
  guard duration >= 0 else { throw .invalid("a duration is negative") }
  return duration
}

// MARK: structs with a size

/// Larger than any struct of the header will ever be: a larger size was never set.
let largestStruct = 4096

/// The size that a struct states.
@inline(never)
private func statedSize(
  _ pointer: UnsafeRawPointer, _ isMissing: StaticString
) throws(Failure) -> Int {
  let size = pointer.loadUnaligned(as: Int.self)
  guard size >= MemoryLayout<Int>.size, size <= largestStruct else { throw .invalid(isMissing) }
  return size
}

/// Checks that the part of a struct that this library does not know is zero. Returns how many bytes
/// of the struct the library knows.
@inline(never)
private func knownSize(_ pointer: UnsafeRawPointer, _ ours: Int) throws(Failure) -> Int {
  let size = try statedSize(pointer, "struct_size of an argument is not set")
  var offset = ours
  while offset < size {
    guard pointer.load(fromByteOffset: offset, as: UInt8.self) == 0 else {
      throw Failure(.unsupported, "a struct has a field that this library does not know")
    }
    offset += 1
  }
  return min(size, ours)
}

/// A struct from the host. Fields that NULL or the struct of an older header leave out are as in
/// `zero`, which has zero in every field: the default.
@inline(__always)
func received<T>(_ pointer: UnsafePointer<T>?, over zero: T) throws(Failure) -> T {
  guard let pointer else { return zero }
  let size = try knownSize(pointer, MemoryLayout<T>.size)
  var value = zero
  withUnsafeMutableBytes(of: &value) { _ = memcpy($0.baseAddress!, pointer, size) }
  return value
}

/// Checks a struct that the call fills in, before it does anything else.
@inline(__always)
func checkedResult<T>(_ pointer: UnsafeMutablePointer<T>?) throws(Failure) {
  guard let pointer else { return }
  _ = try statedSize(pointer, "struct_size of a result is not set")
}

/// Fills in a struct of the host, as far as its header knows it; its struct_size stays. The part
/// that only a newer header knows is set to zero.
@inline(__always)
func deliver<T>(_ value: T, to pointer: UnsafeMutablePointer<T>?) {
  guard let pointer else { return }
  withUnsafeBytes(of: value) { fill(UnsafeMutableRawPointer(pointer), $0) }
}

@inline(never)
private func fill(_ target: UnsafeMutableRawPointer, _ source: UnsafeRawBufferPointer) {
  let word = MemoryLayout<Int>.size
  let size = target.loadUnaligned(as: Int.self)
  memcpy(target + word, source.baseAddress! + word, min(size, source.count) - word)
  if size > source.count { memset(target + source.count, 0, size - source.count) }
}

// MARK: records and limits

extension hutch_entry_info {
  /// `ages`: those of the tier that answered.
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
    guard isZero(limits.reserved) else {
      throw Failure(.unsupported, "a reserved field of the limits is set")
    }
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

/// True if a field, or an array of fields, is zero.
func isZero<T>(_ field: T) -> Bool {
  withUnsafeBytes(of: field) { bytes in
    for byte in bytes where byte != 0 { return false }
    return true
  }
}
