// Group limits: limits, counts, costs, statistics.

public import CHutch

@_cdecl("hutch_limits") @implementation
public func hutch_limits(
  _ cache: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_cache_limits>!
) -> hutch_status {
  withCache(cache) { (cache, _) throws(Failure) in
    try filling(out) { hutch_cache_limits(cache) }
  }
}

@_cdecl("hutch_set_limits") @implementation
public func hutch_set_limits(
  _ cache: OpaquePointer!, _ limits: UnsafePointer<hutch_cache_limits>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    guard limits != nil else { throw .invalid("limits is NULL") }
    let wanted = try received(limits, over: hutch_cache_limits())
    try cache.setLimits(
      memory: try TierLimits(wanted.memory, over: TierLimits()), LimitFields(wanted.memory),
      disk: try TierLimits(wanted.disk, over: TierLimits()), LimitFields(wanted.disk),
      in: handle.scope)
    return .done
  }
}

@_cdecl("hutch_count") @implementation
public func hutch_count(
  _ cache: OpaquePointer!, _ count: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    guard let count else { throw .invalid("count is NULL") }
    cache.reclaimByHostsClock()
    count.pointee = try cache.count(in: handle.scope)
    return .done
  }
}

@_cdecl("hutch_cost") @implementation
public func hutch_cost(
  _ cache: OpaquePointer!, _ cost: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    guard let cost else { throw .invalid("cost is NULL") }
    cache.reclaimByHostsClock()
    cost.pointee = try cache.cost(in: handle.scope)
    return .done
  }
}

@_cdecl("hutch_value_bytes") @implementation
public func hutch_value_bytes(
  _ cache: OpaquePointer!, _ bytes: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    guard let bytes else { throw .invalid("bytes is NULL") }
    bytes.pointee = try cache.valueBytes(through: handle)
    return .done
  }
}

@_cdecl("hutch_stats") @implementation
public func hutch_stats(
  _ cache: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_cache_stats>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    try filling(out) { () throws(Failure) in
      try hutch_cache_stats(cache, of: handle.scope)
    }
  }
}

extension hutch_cache_stats {
  fileprivate init(_ cache: Cache, of scope: Tiers) throws(Failure) {
    cache.reclaimByHostsClock()
    self.init()
    if scope != .disk {
      memory = cache.memory.stats
      memory.waiting = cache.releases.waiting
    }
    disk = try cache.storeStats(in: scope)
  }
}

extension hutch_cache_limits {
  fileprivate init(_ cache: Cache) {
    let limits = cache.limits()
    self.init()
    memory = hutch_tier_limits(limits.memory)
    if cache.storage != nil { disk = hutch_tier_limits(limits.disk) }
  }
}
