/// Where processes share a directory: entries that count only while no other
/// process has written them.
extension MemoryTier {
  /// A commit ends: the entry of its version counts under this number from here on. So does a
  /// newer one that counted until the commit began: it is this process's, and its own commit is
  /// still to come. A put whose block was not in memory yet when a commit ended calls this too.
  func setMark(_ key: Bytes, _ hash: UInt64, committed version: UInt64, _ mark: UInt32) {
    with(hash) { shard, hash in
      guard let block = shard.entries.table.find(key, hash)?.pointee.block,
        block.version == version || (block.version > version && block.mark == mark &- 2)
      else { return }
      block.mark = mark
    }
  }

  /// Whether a block of a key with this hash counts. Under its shard's lock.
  @inline(__always)
  func isCurrent(_ block: UnownedBlock, _ hash: UInt64) -> Bool {
    coherence?.isCurrent(block, hash) ?? true
  }

  /// As `get`, but no access.
  func peek(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block? {
    with(hash) { shard, shardHash in
      current(key, hash, in: &shard, shardHash, at: at)?.retained()
    }
  }

  /// An entry that counts. Under its shard's lock.
  @inline(never)
  func current(
    _ key: Bytes, _ hash: UInt64, in shard: inout Shard, _ shardHash: UInt64, at: Moment
  ) -> UnownedBlock? {
    guard let block = shard.peek(key, shardHash, at: at), isCurrent(block, hash) else {
      return nil
    }
    return block
  }

  /// For a reader that has found nothing in the directory: as `peek`, but an entry counts also
  /// while the commit is under way that ends it.
  func peekDuringCommit(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block? {
    with(hash) { shard, shardHash in
      find(key, hash, in: &shard, shardHash, at: at)?.retained()
    }
  }

  /// The version and the mark, at one moment, of the entry that `peekDuringCommit` finds: the end
  /// of a commit may change the mark of a block that is in the tier.
  func copyDuringCommit(
    _ key: Bytes, _ hash: UInt64, at: Moment
  ) -> (version: UInt64, mark: UInt32)? {
    with(hash) { shard, shardHash in
      find(key, hash, in: &shard, shardHash, at: at).map { ($0.version, $0.mark) }
    }
  }

  /// An entry that counts, or whose end is being committed. Under its shard's lock.
  private func find(
    _ key: Bytes, _ hash: UInt64, in shard: inout Shard, _ shardHash: UInt64, at: Moment
  ) -> UnownedBlock? {
    guard let coherence, let block = shard.peek(key, shardHash, at: at),
      coherence.isCurrent(block, hash) || coherence.isBeingChanged(block, hash)
    else { return nil }
    return block
  }

  /// The entry's record with the time of its last access: exact for an entry with a time to
  /// idle, else within minutes. No access.
  func info(_ key: Bytes, _ hash: UInt64, at: Moment) -> Record? {
    with(hash) { shard, shardHash in
      current(key, hash, in: &shard, shardHash, at: at).map { shard.record($0, at: at.time) }
    }
  }

  /// When the entry was last read, if it has this version, which the disk tier has: reads and the
  /// put of a newer one keep no older row alive. Nil also if its own times have ended. No access.
  func lastAccess(_ key: Bytes, _ hash: UInt64, _ version: UInt64, at: Moment) -> Int64? {
    with(hash) { shard, shardHash in
      guard let place = shard.entries.table.find(key, shardHash),
        place.pointee.block.version == version, isCurrent(place.pointee.block, hash)
      else { return nil }
      // What has ended by memory's ages may go on in the store.
      var record = place.pointee.block.lifetime
      record.accessed = shard.accessed(place.pointee.block, at: at.time)
      return record.isExpired(at: at.time, under: Ages()) ? nil : record.accessed
    }
  }

  /// True if this version of the entry is here, and was read here of late. `isOften`: was read
  /// twice, where the policy counts reads.
  func hasUsed(_ key: Bytes, _ hash: UInt64, _ version: UInt64, isOften: Bool) -> Bool {
    with(hash) { shard, shardHash in
      guard let place = shard.entries.table.find(key, shardHash), place.pointee.isBacked,
        place.pointee.block.version == version
      else { return false }
      let uses = shard.policy.uses(Slot(place.pointee.block.slot), place.pointee, shard.entries)
      if !shard.policy.isAdaptive { return uses > 0 }
      let least: UInt64 = isOften ? 2 : 1
      // The sketch, if there is one yet, has counted the put of the entry.
      return place.pointee.uses >= least || uses > least
    }
  }
}
