import CSystem

extension ShardsOf where Policy: ~Copyable {
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
      lock.lock()
      look(shard(index).pointee.entries.table, way.local(hash))
      lock.unlock()
    }
  }

  /// The version of the entry, or 0 if there is none; no access.
  @inline(__always)
  func version(_ key: Bytes, _ hash: UInt64, at: Moment) -> UInt64 {
    with(hash) { shard, shardHash in
      guard let block = shard.peek(key, shardHash, at: at), isCurrent(block, hash) else { return 0 }
      return block.version
    }
  }
}
