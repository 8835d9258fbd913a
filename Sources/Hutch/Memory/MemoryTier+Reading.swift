import CSystem

/// Reads.
extension MemoryTier {
  /// An access. If an entry is found, the shard's lock is held.
  @inline(never) @_optimize(speed)
  func find(
    _ key: Bytes, _ hash: UInt64, at: Moment, countsMiss: Bool = true
  ) -> (UnownedBlock, Held)? {
    var expired = false
    let held = hold(hash)
    if let coherence { coherence.prefetch(hash) }
    let found = held.shard.pointee.access(key, held.hash, at: at, &expired)
    if let block = found, isCurrent(block, hash) {
      held.lock.line.pointee.hits.add(1)
      return (block, held)
    }
    if countsMiss { held.lock.line.pointee.misses.add(1) }
    held.lock.unlock()
    if expired { reclaim(key, hash, at: at) }
    return nil
  }

  /// A reference to the entry's block; an access.
  @_optimize(speed)
  func get(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block? {
    guard let (block, held) = find(key, hash, at: at) else { return nil }
    let reference = block.retained()
    held.lock.unlock()
    return reference
  }

  /// Removes an entry that a read found expired.
  @inline(never)
  private func reclaim(_ key: Bytes, _ hash: UInt64, at: Moment) {
    var departures = makeDepartures()
    with(hash) { shard, hash in
      shard.reclaim(key, hash, at: at, budget, into: &departures)
    }
    deliver(&departures)
  }

  /// The part that is asked for, copied if it fits, else by reference; an access either way. A
  /// miss is not counted if the caller means to come back.
  @_optimize(speed)
  func look(
    _ key: Bytes, _ hash: UInt64, at: Moment, into buffer: UnsafeMutableRawBufferPointer,
    _ part: Look.Part, countsMiss: Bool
  ) -> Look {
    guard let (block, held) = find(key, hash, at: at, countsMiss: countsMiss) else {
      return Look(.notFound)
    }
    let found = Look(block, part)
    if found.byteCount <= min(buffer.count, HitPath.smallCopy) {
      found.copy(block, into: buffer)
      held.lock.unlock()
      return found
    }
    let reference = block.retained()
    held.lock.unlock()
    return Look(reference, part, into: buffer)
  }

  /// Prefetches the memory that accesses of these hashes will read: the lines of words of all, then
  /// the blocks of all, so that the misses of many entries overlap. Each look takes its shard's
  /// lock, since a table may be freed without it; it counts nothing. A shard that was divided
  /// meanwhile is the wrong one: then the prefetch is of no use.
  ///
  /// The two looks cost half as much again as the access of an entry that the processor's caches
  /// have. Keys of recent batches are therefore left out, and so are all in a tier with one shard,
  /// whose few thousand words and headers the caches hold.
  @_optimize(speed)
  func fetch(_ found: UnsafeMutableBufferPointer<FoundBlock>) {
    let way = front.way
    guard way.bits > 0 else { return }
    var cold: UInt32 = 0
    for i in 0..<found.count {
      if recent.isNew(found[i].hash) { cold |= 1 &<< UInt32(truncatingIfNeeded: i) }
    }
    if cold == 0 { return }
    forEachTable(cold, found, way) { $0.prefetch($1) }
    forEachTable(cold, found, way) { $0.prefetchBlock($1) }
  }

  /// Calls `look` with the table and the local hash of each key whose bit is set, its shard's lock
  /// held.
  @inline(__always)
  private func forEachTable(
    _ bits: UInt32, _ found: UnsafeMutableBufferPointer<FoundBlock>, _ way: HitPath.Way,
    _ look: (borrowing Table, UInt64) -> Void
  ) {
    var bits = bits
    while bits != 0 {
      let hash = found[bits.trailingZeroBitCount].hash
      bits &= bits &- 1
      let index = way.shard(hash)
      let lock = lock(index)
      let reading = lock.lockToReadShared()
      look(lock.shard.pointee.entries.table, way.local(hash))
      reading.unlock()
    }
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
      guard let block = shard.peek(key, shardHash, at: at), isCurrent(block, hash) else { return 0 }
      return block.version
    }
  }
}
