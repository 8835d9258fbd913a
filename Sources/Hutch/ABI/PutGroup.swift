// Group entries: put, and the short path that most puts take (Memory/ShortPuts.swift).

public import CHutch

@_cdecl("hutch_put") @implementation
@_optimize(speed)
public func hutch_put(
  _ cache: OpaquePointer!, _ key: UnsafeRawPointer!, _ key_size: Int,
  _ value: UnsafeRawPointer!, _ value_size: Int,
  _ options: UnsafePointer<hutch_put_options>!, _ result: UnsafeMutablePointer<hutch_put_result>!
) -> hutch_status {
  if _fastPath(result == nil),
    let given = options == nil ? ShortOptions() : shortOptions(options),
    let status = puttingShortly(cache, key, key_size, value, value_size, given)
  {
    return status
  }
  return putting(cache, key, key_size, value, value_size, options, result, if: .always)
}

/// The options of a short put.
private struct ShortOptions {
  var extended = Bytes(start: nil, count: 0)
  /// As hutch_put_options has it; not HUTCH_FOREVER.
  var timeToLive: Int64 = 0
}

/// Nil: the options set anything else, or are not valid.
@inline(never)
private func shortOptions(_ options: UnsafePointer<hutch_put_options>) -> ShortOptions? {
  guard options.pointee.struct_size == MemoryLayout<hutch_put_options>.size else { return nil }
  let given = options.pointee
  guard given.time_to_live >= 0, given.time_to_live != Record.never, given.time_to_idle == 0,
    given.cost | UInt64(given.write_policy | given.reserved) == 0, given.tag_size == 0,
    given.suffix == nil, given.extended_size >= 0,
    given.extended != nil || given.extended_size == 0
  else { return nil }
  return ShortOptions(
    extended: Bytes(start: given.extended, count: given.extended_size),
    timeToLive: given.time_to_live)
}

/// Nil: the put needs the slow path, and nothing has been done.
@inline(__always)
private func puttingShortly(
  _ cache: OpaquePointer?, _ key: UnsafeRawPointer?, _ key_size: Int,
  _ value: UnsafeRawPointer?, _ value_size: Int, _ given: ShortOptions
) -> hutch_status? {
  guard _fastPath(UInt(bitPattern: key_size &- 1) < UInt(HUTCH_KEY_MAX)),
    _fastPath(areThere(cache, key, value)), _fastPath(value_size >= 0)
  else { return nil }
  let cache = cache.unsafelyUnwrapped
  let key = key.unsafelyUnwrapped
  let value = value.unsafelyUnwrapped
  guard let path = shortPath(cache), _fastPath(path.takesPuts) else { return nil }
  let hash = path.hash(key, key_size)
  let isAlone = Unmanaged<Handle>.fromOpaque(UnsafeRawPointer(cache))._withUnsafeGuaranteedRef {
    $0.unretained._withUnsafeGuaranteedRef { cache in
      // Only without a listener for entries, and without a reservation to overtake.
      !cache.events.wantsEntries && !cache.order.isReserved(hash)
    }
  }
  if _slowPath(!isAlone) { return nil }
  return path.tier._withUnsafeGuaranteedRef { tier in
    let now = path.now
    let entry = ShortEntry(
      key: key, keySize: key_size, value: value, valueSize: value_size, extended: given.extended,
      expires: _fastPath(given.timeToLive == 0) ? 0 : Record.end(of: given.timeToLive, from: now))
    switch tier.putShortly(entry, hash, at: now) {
    case .done:
      return _slowPath(tier.mayDivide || tier.wantsUpkeep)
        ? growing(cache, tier, now) : Status.done.code
    case .unusual: return nil
    case .unfinished(let block): return finishing(tier, block, hash, now)
    }
  }
}

/// The tier has become so large that it is divided, or wants background work.
@inline(never)
private func growing(_ cache: OpaquePointer, _ tier: MemoryTier, _ now: Int64) -> hutch_status {
  withHandle(cache) { (cache, _) throws(Failure) in
    if tier.mayDivide { tier.divide(at: .at(now)) }
    if tier.wantsUpkeep { try? cache.startMaintenance() }
    return .done
  }
}

/// The rest of a put that was begun shortly.
@inline(never)
private func finishing(
  _ tier: MemoryTier, _ block: UnownedBlock, _ hash: UInt64, _ now: Int64
) -> hutch_status {
  answering { () throws(Failure) in
    try tier.finishShort(Block(owning: block), hash, at: .at(now))
    return .done
  }
}
