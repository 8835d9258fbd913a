/// The tiers tied together: what the store tells the cache, and what memory hands down to it.
extension Cache {
  /// Prefetches what a write of a key will need first. The caller holds the store open.
  @inline(never)
  func prefetch(_ hash: UInt64) {
    coherence?.prefetch(hash)
    storage?.prefetch(hash)
  }

  /// Entries that leave memory come to this cache from here on.
  func watchDepartures() {
    let identity = self.identity
    memory.watch.onRead = { block, cause, accessed, now in
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef {
        $0.memoryGivesUp(block, cause, accessed, at: now)
      }
    }
    memory.watch.onDirty = { block, accessed in
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef {
        $0.writeBack.stage(block, accessed)
      }
    }
    memory.onDeparture = { block, cause, accessed in
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef {
        $0.memoryGaveUp(block, cause, accessed)
      }
    }
  }

  /// Hands an access time down to the store if the life of the store's entry depends on it. The
  /// lock of the entry's shard is held, so a sweep of the store that does not find the entry in
  /// memory (`lastAccess`), and a read that does not, find the time in the store.
  private func memoryGivesUp(
    _ block: UnownedBlock, _ cause: DepartureCause, _ accessed: Int64, at now: Int64
  ) {
    guard let storage, cause != .replaced, !block.isObject,
      writeBack.isIdling(block, in: storage)
    else { return }
    if cause == .expired {
      // By memory's ages; the store's entry may go on.
      var record = block.lifetime
      record.accessed = accessed
      if record.isExpired(at: now, under: storage.ages) { return }
    }
    handDown(accessed, of: block, to: storage)
  }

  /// The caller may be outside the gate.
  private func handDown(_ accessed: Int64, of block: UnownedBlock, to storage: any Storage) {
    guard life.gate.beginLook() else { return }
    storage.noteAccess(block.key, memory.hash(block.key), at: accessed)
    life.gate.endLook()
  }

  /// Hands the access time of an evicted entry down to the store, whose choice of what goes depends
  /// on it. If the entry's life does too, the store has it.
  private func memoryGaveUp(_ block: UnownedBlock, _ cause: DepartureCause, _ accessed: Int64) {
    guard let storage, cause == .evicted || cause == .trimmed, accessed > block.created,
      !block.isObject, !writeBack.isIdling(block, in: storage)
    else { return }
    handDown(accessed, of: block, to: storage)
  }
}

extension Cache: StorageObserver {
  func storeDrops(_ key: Bytes, _ version: UInt64, _ cause: DropCause) {
    if cause == .damaged { log(LogLine(.warning, "an entry was damaged and is dropped")) }
    tellDropped(key, version, cause)
  }

  /// Memory alone has this version now.
  func storeDropped(_ key: Bytes, _ version: UInt64) {
    let hash = memory.hash(key)
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    order.stripes.noteChange(stripe)
    memory.setBacked(key, hash, version: version, false)
    order.stripes.unlock(stripe)
  }

  func storeCommits(_ key: Bytes, _ hash: UInt64, _ version: UInt64, _ mark: UInt32) {
    memory.setMark(key, hash, committed: version, mark)
  }

  // A damaged store may have an entry without a key.
  func lastAccess(of key: Bytes, _ version: UInt64) -> Int64? {
    if key.count == 0 { return nil }
    return memory.lastAccess(key, memory.hash(key), version, at: clock.momentForMaintenance())
  }

  func hasUsed(_ key: Bytes, _ version: UInt64, isOften: Bool) -> Bool {
    key.count > 0
      && memory.hasUsed(key, memory.hash(key), version, isOften: isOften)
  }

  var quietLines: UInt64 { life.gate.quietLines }

  func storeReturns(_ firstVersion: UInt64) { order.versions.raise(to: firstVersion) }

  func storeChanged(_ failure: Failure?) {
    if let failure {
      log(LogLine(.warning, "the disk tier is out of service", failure))
      post(.tierDown, .disk, status: failure.status)
    } else {
      // A caller may be waiting: maintenance does it.
      review.begin()
      log(LogLine(.info, "the disk tier is in service again"))
      post(.tierUp, .disk, status: .done)
    }
  }
}
