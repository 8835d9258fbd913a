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

  /// Whether there is an entry; no access.
  @_optimize(speed)
  func has(_ key: Bytes, _ hash: UInt64, at: Moment) -> Bool {
    with(hash) { shard, shardHash in
      guard let block = shard.peek(key, shardHash, at: at) else { return false }
      return isCurrent(block, hash)
    }
  }
}
