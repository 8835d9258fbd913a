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
  /// lock, since a table may be freed without it; it counts nothing.
  @_optimize(speed)
  func fetch(_ hashes: UnsafeBufferPointer<UInt64>) {
    for hash in hashes {
      let held = hold(hash)
      held.shard.pointee.entries.table.prefetch(held.hash)
      held.lock.unlock()
    }
    for hash in hashes {
      let held = hold(hash)
      var isAbsent = false
      let place = held.shard.pointee.entries.table.guess(held.hash, isAbsent: &isAbsent)
      if let place, !place.pointee.isVacant {
        let block = place.pointee.block
        hutch_prefetch(block.raw)
        block.prefetchValue()
      }
      held.lock.unlock()
    }
  }

  /// Whether there is an entry; no access.
  @_optimize(speed)
  func has(_ key: Bytes, _ hash: UInt64, at: Moment) -> Bool {
    with(hash) { shard, shardHash in
      guard let block = shard.peek(key, shardHash, at: at) else { return false }
      return isCurrent(block, hash)
    }
  }
}
