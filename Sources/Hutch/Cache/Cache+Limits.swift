/// Limits, counts and statistics of the whole and of its tiers.
extension Cache {
  func limits() -> (memory: TierLimits, disk: TierLimits) {
    (limitsLock.withLock { memoryLimits }, storage?.limits ?? TierLimits())
  }

  func setLimits(
    memory newMemory: TierLimits, disk newDisk: TierLimits, in scope: Scope
  ) throws(Failure) {
    let moment = clock.moment()
    // What has to go need not be written then, while limits are held.
    if scope != .disk, newMemory != limits().memory { try? writeDirty() }
    func setMemory() throws(Failure) {
      guard scope != .disk else { return }
      memory.setLimits(newMemory, at: moment)
      memoryLimits = newMemory
      if newMemory.ages.any { try startMaintenance() }
    }
    guard storage != nil, scope != .memory else {
      defer { events.deliver() }
      return try limitsLock.withLock { () throws(Failure) in try setMemory() }
    }
    try withStorage { (storage) throws(Failure) in
      try limitsLock.withLock { () throws(Failure) in
        try setMemory()
        try storage.setLimits(newDisk, at: moment)
      }
    }
  }

  /// Distinct keys.
  func count(in scope: Scope) -> UInt64 {
    guard let storage, scope != .memory else { return memory.count }
    let stored = storage.stats.count + storage.announcedCount + leavings.underWay
    return scope == .disk ? stored : stored + memory.unbackedCount
  }

  func cost(in scope: Scope) -> UInt64 {
    guard let storage, scope != .memory else { return memory.cost }
    let stored = storage.stats.cost
    return scope == .disk ? stored : stored &+ memory.cost
  }

  func differs(from options: OpenOptions) -> Bool {
    guard let storage else { return true }
    return policy != options.policy || drainsReleases != options.drainsReleases
      || limits().memory != options.memory
      || storage.differs(from: options.disk)
  }

  /// Ties the tiers together: the store tells which entries it has dropped, and learns the
  /// accesses that memory answered.
  func watch(_ disk: DiskTier) {
    let identity = self.identity
    disk.owner = identity
    disk.options.codec?.owner = identity
    disk.onDropped = { key, version, _ in
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef {
        $0.storeDropped(key, version)
      }
    }
    disk.onLeaving = { key, version, cause in
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef {
        if cause == .damaged { $0.log(LogLine(.warning, "an entry was damaged and is dropped")) }
        $0.tellDropped(key, version, cause)
      }
    }
    // Not counted: it is the tier's own closure.
    let tier = Unmanaged.passUnretained(disk)
    disk.onStateChange = { failure in
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef {
        if failure == nil, let storage = $0.storage { $0.storeCameBack(storage) }
        $0.log(
          failure == nil
            ? LogLine(.info, "the disk tier is in service again")
            : LogLine(.warning, "the disk tier is out of service", failure))
        if failure == nil { tier._withUnsafeGuaranteedRef { [cache = $0] in cache.log($0.met) } }
        $0.post(failure == nil ? .tierUp : .tierDown, .disk, status: failure?.status ?? .done)
      }
    }
    disk.lastAccess = { key in
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef {
        $0.memory.info(key, $0.memory.hash(key), at: $0.clock.momentForMaintenance())?.accessed
      }
    }
    memory.watch.onDirty = { block, accessed in
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef {
        $0.giveDown(block, accessed)
      }
    }
    memory.onDeparture = { block, cause, accessed in
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef {
        $0.memoryGaveUp(block, cause, accessed)
      }
    }
  }

  /// The store is in service again, on a directory that may not be what it was: versions go on
  /// above what it has seen, and memory learns which of its entries the store has.
  private func storeCameBack(_ storage: any Storage) {
    versions.raise(to: storage.firstVersion)
    let moment = clock.momentForMaintenance()
    var position: UInt64 = 0
    while memory.keys(
      after: &position, limit: 64, at: moment,
      visit: { key in
        let hash = memory.hash(key)
        let stripe = Stripes.index(of: hash)
        stripes.lock(stripe)
        if let version = memory.info(key, hash, at: moment)?.version {
          // Where the store cannot tell, it has not.
          let stored = (try? storage.info(key, at: moment)) ?? nil
          memory.setBacked(key, hash, version: version, stored?.version == version)
          // Beneath a dirty entry the store has nothing.
          if let stored, stored.version != version,
            memory.peek(key, hash, at: moment).unowned?.isDirty ?? false,
            let block = try? Block.allocate(key: key, record: Record())
          {
            let write = StorageWrite(.remove, block)
            write.version = versions.draw()
            commit(write, to: storage, at: moment, unlocking: stripe)
            return
          }
        }
        stripes.unlock(stripe)
      }) > 0
    {}
  }

  /// Hands an access time down to the store: always for an evicted entry, since the store's
  /// choice of what goes depends on it, else if its life does.
  private func memoryGaveUp(_ block: UnownedBlock, _ cause: DepartureCause, _ accessed: Int64) {
    guard let storage, accessed > block.created, !block.isObject else { return }
    let idle = block.timeToIdle != 0 ? block.timeToIdle : storage.limits.ages.timeToIdle
    let matters =
      switch cause {
      case .evicted, .trimmed: true
      case .cleared: idle != 0 && idle != Record.never
      default: false
      }
    if matters {
      storage.noteAccess(block.key, at: accessed)
    }
  }

  /// The store no longer has this version: what memory has of it, it has alone now.
  private func storeDropped(_ key: Bytes, _ version: UInt64) {
    let hash = memory.hash(key)
    let stripe = Stripes.index(of: hash)
    stripes.lock(stripe)
    stripes.bump(stripe)
    memory.setBacked(key, hash, version: version, false)
    walks.storeDropped(key, hash)
    stripes.unlock(stripe)
  }
}
