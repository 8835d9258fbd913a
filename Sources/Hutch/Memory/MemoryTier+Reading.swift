import CSystem

/// Reads.
extension MemoryTier {
  /// An access. If an entry is found, the shard's lock is held.
  @inline(never) @_optimize(speed)
  func find(
    _ key: Bytes, _ hash: UInt64, at: Moment, countsMiss: Bool
  ) -> (UnownedBlock, LockedShard)? {
    var expired = false
    let locked = lockShard(hash)
    if let coherence { coherence.prefetch(hash) }
    let found = locked.shard.pointee.access(key, locked.hash, at: at, &expired)
    if let block = found, isCurrent(block, hash) {
      locked.lock.line.pointee.hits.add(1)
      return (block, locked)
    }
    if countsMiss {
      locked.lock.line.pointee.misses.add(1)
      locked.shard.pointee.noteMiss(locked.hash)
    }
    locked.lock.unlock()
    if expired { reclaim(key, hash, at: at) }
    return nil
  }

  /// A reference to the entry's block; an access. A miss is not counted if the caller means to come
  /// back.
  @_optimize(speed)
  func get(_ key: Bytes, _ hash: UInt64, at: Moment, countsMiss: Bool = true) -> Block? {
    guard let (block, locked) = find(key, hash, at: at, countsMiss: countsMiss) else { return nil }
    let reference = block.retained()
    locked.lock.unlock()
    return reference
  }

  /// Removes an entry if it has expired.
  @inline(never)
  func reclaim(_ key: Bytes, _ hash: UInt64, at: Moment) {
    var departures = makeDepartures()
    with(hash) { shard, hash in
      shard.reclaim(key, hash, at: at, budget, into: &departures)
    }
    deliver(&departures)
  }

  /// The part that is asked for, copied if it fits, else by reference; an access either way.
  /// `countsMiss`: as above.
  @_optimize(speed)
  func look(
    _ key: Bytes, _ hash: UInt64, at: Moment, into buffer: UnsafeMutableRawBufferPointer,
    _ part: Look.Part, countsMiss: Bool
  ) -> Look {
    guard let (block, locked) = find(key, hash, at: at, countsMiss: countsMiss) else {
      return Look(.notFound)
    }
    let found = Look(block, part)
    if found.byteCount <= min(buffer.count, HitPath.smallCopy) {
      found.copy(block, into: buffer)
      locked.lock.unlock()
      return found
    }
    let reference = block.retained()
    locked.lock.unlock()
    return Look(reference, part, into: buffer)
  }

  /// Whether there is an entry; no access.
  @inline(__always)
  func has(_ key: Bytes, _ hash: UInt64, at: Moment) -> Bool {
    version(key, hash, at: at) != 0
  }

  /// The version of the entry, or 0 if there is none; no access.
  @inline(never)
  func version(_ key: Bytes, _ hash: UInt64, at: Moment) -> UInt64 {
    with(hash) { shard, shardHash in
      current(key, hash, in: &shard, shardHash, at: at)?.version ?? 0
    }
  }
}
