// Group entries: get, contains, info, touch, remove, clear, and the common part of puts.

public import CHutch
import CSystem

/// The common part of hutch_put and the conditional puts. Not inlined: the time of a put is spent
/// elsewhere.
@inline(never)
func putting(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int,
  _ value: UnsafeRawPointer?, _ value_size: Int, _ options: UnsafePointer<hutch_put_options>?,
  _ result: UnsafeMutablePointer<hutch_put_result>?, if condition: WriteCondition
) -> hutch_status {
  withHandle(cache) { (cache, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    let value = try checkedBytes(value, value_size, "the value is NULL, or its size is not valid")
    let spec = try Cache.PutSpec.given(options)
    try begin(result)
    try handle.check()
    let status = try answer(
      try cache.put(key, value, spec, if: condition, in: handle.scope), result)
    if status == .notFound { try handle.check() }
    return status
  }
}

/// The result of a put that has not been made.
@inline(never)
func begin(_ result: UnsafeMutablePointer<hutch_put_result>?) throws(Failure) {
  try checkedResult(result)
  clear(result)
}

/// Reports the result of a put.
@inline(never)
func answer(
  _ outcome: Cache.PutResult, _ result: UnsafeMutablePointer<hutch_put_result>?
) throws(Failure) -> Status {
  if result != nil {
    deliver(
      hutch_put_result(
        struct_size: 0, version: outcome.version, memory: outcome.memory.rawValue,
        disk: outcome.disk.rawValue), to: result)
  }
  if let failure = outcome.failure { throw failure }
  return outcome.status
}

extension Cache.PutSpec {
  /// Not inlined: the commonest put, of the short path, does not come here.
  @inline(never)
  @_optimize(speed)
  static func given(
    _ options: UnsafePointer<hutch_put_options>?
  ) throws(Failure) -> Cache.PutSpec {
    var spec = Cache.PutSpec()
    if let options { try spec.take(options) }
    return spec
  }

  @inline(never)
  private mutating func take(_ options: UnsafePointer<hutch_put_options>) throws(Failure) {
    let given = try received(options, over: hutch_put_options())
    timeToLive = try checkedDuration(given.time_to_live)
    timeToIdle = try checkedDuration(given.time_to_idle)
    cost = given.cost
    try checkReserved(given.reserved == 0)
    writePolicy = try WritePolicy(given.write_policy)
    let data = try checkedBytes(
      given.extended, given.extended_size, "the extended data are NULL, or their size is not valid")
    guard data.count <= 65_535 else {
      throw .invalid("the extended data are longer than 65,535 bytes")
    }
    extended =
      given.tag_size == 0
      ? Extended(data) : Extended(data, tag: try checkedTag(given.tag, given.tag_size))
    guard let text = given.suffix, text.pointee != 0 else { return }
    guard let suffix = FileSuffix(text) else {
      throw .invalid("the suffix is longer than 15 bytes, or has a slash")
    }
    self.suffix = suffix
  }
}

@_cdecl("hutch_get") @implementation
@_optimize(speed)
public func hutch_get(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  if _fastPath(HitPath.isShort(key_size)), _fastPath(areThere(cache, key, out)),
    let path = shortPath(cache.unsafelyUnwrapped)
  {
    let outcome = path.pin(key.unsafelyUnwrapped, key_size, .short, out.unsafelyUnwrapped)
    if _fastPath(outcome == .done) { return Status.done.code }
    if outcome == .absent {
      out.pointee = nil
      if shortPath(cache) != nil { return Status.notFound.code }
    }
    return getting(cache, key, key_size, out)
  }
  return gettingAnyhow(cache, key, key_size, out)
}

@inline(never)
@_optimize(speed)
private func gettingAnyhow(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int,
  _ out: UnsafeMutablePointer<OpaquePointer?>?
) -> hutch_status {
  if let key, let out, UInt(bitPattern: key_size &- 1) < UInt(HUTCH_KEY_MAX),
    let path = shortPath(cache)
  {
    switch path.pinAnyhow(key, key_size, path.hash(key, key_size), out) {
    case .done: return Status.done.code
    case .absent:
      out.pointee = nil
      if shortPath(cache) != nil { return Status.notFound.code }
    case .unusual: break
    }
  }
  return getting(cache, key, key_size, out)
}

/// The slow path.
@inline(never)
private func getting(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int,
  _ out: UnsafeMutablePointer<OpaquePointer?>?
) -> hutch_status {
  out?.pointee = nil
  return withCache(cache) { (cache, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    guard let out else { throw .invalid("out is NULL") }
    guard let block = try cache.get(key, in: handle.scope) else { return .notFound }
    out.pointee = OpaquePointer(block.leak().raw)
    return .done
  }
}

@_cdecl("hutch_get_into") @implementation
@_optimize(speed)
public func hutch_get_into(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ buffer: UnsafeMutableRawPointer!, _ capacity: Int, _ size: UnsafeMutablePointer<Int>!
) -> hutch_status {
  if _fastPath(HitPath.isShort(key_size)), _fastPath(areThere(cache, key, buffer, size)),
    let path = straightPath(cache.unsafelyUnwrapped)
  {
    let target = HitPath.Target(
      buffer: buffer.unsafelyUnwrapped, capacity: capacity, size: size.unsafelyUnwrapped)
    switch path.copyStraight(key.unsafelyUnwrapped, key_size, to: target) {
    case .done: return Status.done.code
    case .awaited(let lock): return waking(lock)
    case .open(let ending): return ended(ending)
    case .large(let ending, let source, let count):
      return copied(target.buffer, source, count, ending)
    case .absent(let lock, let hash): return missing(cache, lock, hash)
    case .held(let lock):
      let held = HitPath.HeldKey(lock, key_size)
      return gettingIntoHeld(cache, key, held, buffer, capacity, size)
    case .detour: break
    }
  }
  return gettingIntoAnyhow(cache, key, key_size, buffer, capacity, size)
}

/// The last steps of a hit of the straight path. They return what the compiler does not know, so
/// that it jumps to them.
@inline(never)
private func waking(_ lock: ShardLock) -> hutch_status {
  lock.wake()
  return hutch_unknown(Status.done.code)
}

@inline(never)
private func ended(_ ending: HitPath.Ending) -> hutch_status {
  HitPath.end(ending)
  return hutch_unknown(Status.done.code)
}

@inline(never)
private func copied(
  _ buffer: UnsafeMutableRawPointer, _ source: UnsafeRawPointer, _ count: Int,
  _ ending: HitPath.Ending
) -> hutch_status {
  HitPath.end(ending, copying: source, count, to: buffer)
  return hutch_unknown(Status.done.code)
}

/// The straight path has left the look to another one, and holds the lock.
@inline(never)
@_optimize(speed)
private func gettingIntoHeld(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ held: HitPath.HeldKey,
  _ buffer: UnsafeMutableRawPointer!, _ capacity: Int, _ size: UnsafeMutablePointer<Int>!
) -> hutch_status {
  // An error is no miss.
  if capacity < 0 {
    held.lock.unlock()
    return gettingInto(cache, key, held.size, buffer, capacity, size)
  }
  let target = HitPath.Target(
    buffer: buffer.unsafelyUnwrapped, capacity: capacity, size: size.unsafelyUnwrapped)
  let outcome = held.lock.line.pointee.path.copySlowly(
    key.unsafelyUnwrapped, held.size, held.lock.reading, to: target)
  if _fastPath(outcome == .done) { return Status.done.code }
  if outcome == .absent { return missing(cache) }
  return gettingInto(cache, key, held.size, buffer, capacity, size)
}

/// The straight path has found no entry, and holds the lock.
@inline(never)
@_optimize(speed)
private func missing(
  _ cache: OpaquePointer?, _ lock: ShardLock, _ hash: UInt64
) -> hutch_status {
  HitPath.endMiss(lock, hash)
  return missing(cache)
}

/// There is no entry; an error if a close has removed it meanwhile.
@inline(never)
@_optimize(speed)
private func missing(_ cache: OpaquePointer?) -> hutch_status {
  if _fastPath(isMissing(cache)) { return Status.notFound.code }
  return withCache(cache) { (_, _) throws(Failure) in .notFound }
}

@inline(never)
@_optimize(speed)
private func gettingIntoAnyhow(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int,
  _ buffer: UnsafeMutableRawPointer?, _ capacity: Int, _ size: UnsafeMutablePointer<Int>?
) -> hutch_status {
  if let key, let buffer, let size, UInt(bitPattern: key_size &- 1) < UInt(HUTCH_KEY_MAX),
    capacity >= 0, let path = shortPath(cache)
  {
    let target = HitPath.Target(buffer: buffer, capacity: capacity, size: size)
    let outcome =
      _fastPath(HitPath.isSmall(key_size))
      ? path.copy(key, key_size, .small, to: target)
      : path.copyAnyhow(key, key_size, to: target)
    if _fastPath(outcome == .done) { return Status.done.code }
    if outcome == .absent { return missing(cache) }
  }
  return gettingInto(cache, key, key_size, buffer, capacity, size)
}

/// The slow path.
@inline(never)
private func gettingInto(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int,
  _ buffer: UnsafeMutableRawPointer?, _ capacity: Int, _ size: UnsafeMutablePointer<Int>?
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    guard let size else { throw .invalid("size is NULL") }
    let found = try cache.look(
      key, in: handle.scope, into: try checkedBuffer(buffer, capacity), .value, atOnce: false,
      orSizes: false)
    if found.status != .done { return found.status }
    size.pointee = found.size
    guard let reference = found.reference else { return .done }
    _ = Block(owning: reference)
    return .bufferTooSmall
  }
}

@_cdecl("hutch_look") @implementation
@_optimize(speed)
public func hutch_look(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int, _ flags: UInt32,
  _ buffer: UnsafeMutableRawPointer!, _ capacity: Int, _ out: UnsafeMutablePointer<hutch_found>!
) -> hutch_status {
  if _fastPath(HitPath.isSmall(key_size)), _fastPath(areThere(cache, key, buffer, out)),
    _fastPath(isPlain(flags, capacity, out)), let path = shortPath(cache.unsafelyUnwrapped)
  {
    let out = out.unsafelyUnwrapped
    let outcome = path.copy(
      key.unsafelyUnwrapped, key_size, .small,
      to: target(buffer.unsafelyUnwrapped, capacity, flags, out))
    if _fastPath(outcome == .done) {
      out.pointee.value = nil
      return Status.done.code
    }
    if outcome == .absent && isMissing(cache, out) { return Status.notFound.code }
    return looking(cache, key, key_size, flags, buffer, capacity, out)
  }
  return lookingAnyhow(cache, key, key_size, flags, buffer, capacity, out)
}

@inline(never)
private func lookingAnyhow(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ flags: UInt32,
  _ buffer: UnsafeMutableRawPointer?, _ capacity: Int, _ out: UnsafeMutablePointer<hutch_found>?
) -> hutch_status {
  if let key, let buffer, let out, UInt(bitPattern: key_size &- 1) < UInt(HUTCH_KEY_MAX),
    isPlain(flags, capacity, out), let path = shortPath(cache)
  {
    switch path.copyAnyhow(key, key_size, to: target(buffer, capacity, flags, out)) {
    case .done:
      out.pointee.value = nil
      return Status.done.code
    case .absent: if isMissing(cache, out) { return Status.notFound.code }
    case .unusual: break
    }
  }
  return looking(cache, key, key_size, flags, buffer, capacity, out)
}

private var lookFlags: UInt32 {
  UInt32(HUTCH_LOOK_AT_ONCE | HUTCH_LOOK_KNOWN | HUTCH_LOOK_OR_SIZES)
}

/// The answer that there is no entry holds: no close has removed it meanwhile.
@inline(__always)
private func isMissing(_ cache: OpaquePointer?) -> Bool { shortPath(cache) != nil }

/// As above; then `out` says so.
@inline(never)
private func isMissing(
  _ cache: OpaquePointer?, _ out: UnsafeMutablePointer<hutch_found>
) -> Bool {
  guard isMissing(cache) else { return false }
  tell(out, Look(.notFound))
  return true
}

/// True if flags and capacity are valid and the result has the size that this library knows.
@inline(__always)
private func isPlain(
  _ flags: UInt32, _ capacity: Int, _ out: UnsafeMutablePointer<hutch_found>
) -> Bool {
  flags & ~lookFlags == 0 && capacity >= 0
    && out.pointee.struct_size == MemoryLayout<hutch_found>.size
}

/// What is found goes where the result has it. Without HUTCH_LOOK_KNOWN no version is known.
@inline(__always)
private func target(
  _ buffer: UnsafeMutableRawPointer, _ capacity: Int, _ flags: UInt32,
  _ out: UnsafeMutablePointer<hutch_found>
) -> HitPath.Target {
  if flags & UInt32(HUTCH_LOOK_KNOWN) == 0 { out.pointee.version = 0 }
  // All of hutch_found but struct_size.
  let found = (UnsafeMutableRawPointer(out) + MemoryLayout<Int>.size)
    .assumingMemoryBound(to: HitPath.Result.self)
  return HitPath.Target(
    buffer: buffer, capacity: capacity,
    size: UnsafeMutableRawPointer(found).assumingMemoryBound(to: Int.self), found: found)
}

/// The slow path.
@inline(never)
private func looking(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int, _ flags: UInt32,
  _ buffer: UnsafeMutableRawPointer?, _ capacity: Int, _ out: UnsafeMutablePointer<hutch_found>?
) -> hutch_status {
  clear(out)
  return withCache(cache) { (cache, handle) throws(Failure) in
    guard let out else { throw .invalid("out is NULL") }
    try checkedResult(out)
    let key = try checkedKey(key, key_size)
    try checkFlags(flags, lookFlags)
    let found = try cache.look(
      key, in: handle.scope, into: try checkedBuffer(buffer, capacity), .valueAndExtended,
      atOnce: flags & UInt32(HUTCH_LOOK_AT_ONCE) != 0,
      orSizes: flags & UInt32(HUTCH_LOOK_OR_SIZES) != 0)
    tell(out, found)
    return found.status
  }
}

@inline(never)
private func tell(_ out: UnsafeMutablePointer<hutch_found>, _ found: Look) {
  let answer = hutch_found(
    struct_size: MemoryLayout<hutch_found>.size, size: found.size,
    extended_size: found.extendedSize, value: found.reference.map { OpaquePointer($0.raw) },
    version: found.version)
  // Almost always true.
  if out.pointee.struct_size == answer.struct_size {
    out.pointee = answer
  } else {
    deliver(answer, to: out)
    // A struct without a field for the reference passes none on.
    if told(answer, by: out, over: hutch_found()).value == nil { found.reference?.release() }
  }
}

@_cdecl("hutch_contains") @implementation
@_optimize(speed)
public func hutch_contains(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int
) -> hutch_status {
  if _fastPath(HitPath.isSmall(key_size)), let key, let cache, let path = straightPath(cache) {
    switch path.containsStraight(key, key_size) {
    case .done: return Status.done.code
    case .absent: return missing(cache)
    case .unusual: break
    }
  }
  return containingAnyhow(cache, key, key_size)
}

@inline(never)
@_optimize(speed)
private func containingAnyhow(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int
) -> hutch_status {
  if let key, UInt(bitPattern: key_size &- 1) < UInt(HUTCH_KEY_MAX), let path = shortPath(cache) {
    let outcome =
      _fastPath(HitPath.isSmall(key_size))
      ? path.contains(key, key_size, .small) : path.containsAnyhow(key, key_size)
    if _fastPath(outcome == .done) { return Status.done.code }
    if outcome == .absent { return missing(cache) }
  }
  return containing(cache, key, key_size)
}

/// The slow path.
@inline(never)
private func containing(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    try cache.contains(try checkedKey(key, key_size), in: handle.scope) ? .done : .notFound
  }
}

@_cdecl("hutch_info") @implementation
public func hutch_info(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ out: UnsafeMutablePointer<hutch_entry_info>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    try informing(cache, handle.scope, try checkedKey(key, key_size), out)
  }
}

/// Fills `out` with the current record of a key's entry. No key: it has none.
@inline(never)
func informing(
  _ cache: Cache, _ scope: Tiers, _ key: Bytes?, _ out: UnsafeMutablePointer<hutch_entry_info>?
) throws(Failure) -> Status {
  try filling(out) { () throws(Failure) in
    guard let key, let found = try cache.info(key, in: scope) else { return nil }
    return hutch_entry_info(
      found.record, at: cache.clock.now, under: cache.ages(of: found.tier), in: found.tier)
  }
}

@_cdecl("hutch_tag") @implementation
public func hutch_tag(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ buffer: UnsafeMutableRawPointer!, _ capacity: Int, _ size: UnsafeMutablePointer<Int>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    let key = try checkedKey(key, key_size)
    guard let size else { throw .invalid("size is NULL") }
    let buffer = try checkedBuffer(buffer, capacity)
    var status = Status.notFound
    try cache.tag(of: key, in: handle.scope) { _, tag in
      size.pointee = tag.count
      status = tag.count <= buffer.count ? .done : .bufferTooSmall
      if status == .done && tag.count > 0 { buffer.copyMemory(from: tag) }
    }
    return status
  }
}

@_cdecl("hutch_touch") @implementation
public func hutch_touch(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int, _ time_to_live: Int64,
  _ time_to_idle: Int64
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    let isThere = try cache.touch(
      try checkedKey(key, key_size), timeToLive: try checkedDuration(time_to_live),
      timeToIdle: try checkedDuration(time_to_idle), in: handle.scope)
    return isThere ? .done : .notFound
  }
}

@_cdecl("hutch_remove") @implementation
public func hutch_remove(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    try cache.remove(try checkedKey(key, key_size), in: handle.scope)
  }
}

@_cdecl("hutch_clear") @implementation
public func hutch_clear(_ cache: OpaquePointer!) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    try cache.clear(in: handle.scope)
    return .done
  }
}
