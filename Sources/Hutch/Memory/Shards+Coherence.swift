/// Where processes share a directory: entries that count only while nobody else has written them.
extension ShardsOf where Policy: ~Copyable {
  func setMark(_ key: Bytes, _ hash: UInt64, version: UInt64, _ mark: UInt32) {
    with(hash) { shard, hash in
      guard let place = shard.entries.table.find(key, hash),
        place.pointee.block.version == version
      else { return }
      place.pointee.block.mark = mark
    }
  }

  /// Whether a block of a key with this hash counts. Under its shard's lock.
  @inline(__always)
  func isCurrent(_ block: UnownedBlock, _ hash: UInt64) -> Bool {
    coherence?.isCurrent(block, hash) ?? true
  }

  func peek(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block? {
    with(hash) { shard, shardHash in
      guard let block = shard.peek(key, shardHash, at: at), isCurrent(block, hash) else {
        return nil
      }
      return block.retained()
    }
  }

  func peekDuringCommit(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block? {
    guard let coherence else { return nil }
    return with(hash) { shard, shardHash in
      guard let block = shard.peek(key, shardHash, at: at),
        coherence.isCurrent(block, hash) || coherence.isBeingChanged(block, hash)
      else { return nil }
      return block.retained()
    }
  }

  func info(_ key: Bytes, _ hash: UInt64, at: Moment) -> Record? {
    with(hash) { shard, shardHash in
      guard let block = shard.peek(key, shardHash, at: at), isCurrent(block, hash) else {
        return nil
      }
      return shard.record(block, at: at.time)
    }
  }
}
