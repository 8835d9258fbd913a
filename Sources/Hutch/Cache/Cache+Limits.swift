/// Limits, counts and statistics of the whole and of its tiers.
extension Cache {
  func limits() -> (memory: TierLimits, disk: TierLimits) {
    (parts.limitsLock.withLock { memoryLimits }, storage?.limits ?? TierLimits())
  }

  /// Changes the fields of each tier's limits that are named; the others stay.
  func setLimits(
    memory wantedMemory: TierLimits, _ memoryFields: LimitFields,
    disk wantedDisk: TierLimits, _ diskFields: LimitFields, in scope: Tiers
  ) throws(Failure) {
    let moment = clock.moment().read
    // Entries that have to go need not be written then, while limits are held.
    if scope != .disk, !memoryFields.isEmpty { try? writeDirty() }
    func setMemory() throws(Failure) {
      guard scope != .disk, !memoryFields.isEmpty else { return }
      let newMemory = memoryLimits.changed(memoryFields, to: wantedMemory)
      memory.setLimits(newMemory, at: moment)
      memoryLimits = newMemory
      if newMemory.ages.any { try startMaintenance() }
    }
    guard storage != nil, scope != .memory else {
      defer { events.deliver() }
      return try parts.limitsLock.withLock { () throws(Failure) in try setMemory() }
    }
    try withStorage { (storage) throws(Failure) in
      try parts.limitsLock.withLock { () throws(Failure) in
        try setMemory()
        guard !diskFields.isEmpty else { return }
        try storage.setLimits(
          storage.limits.changed(diskFields, to: wantedDisk), at: moment)
      }
    }
  }

  /// Distinct keys. Nothing stands still for it: the sums are read in the order in which an entry
  /// goes down, so one that goes down meanwhile counts twice rather than not at all; and again if
  /// some did.
  func count(in scope: Tiers) throws(Failure) -> UInt64 {
    if storage == nil || scope == .memory { return memory.count }
    return try withStorage { (storage) throws(Failure) in
      review.end(storage)
      var count: UInt64 = 0
      for _ in 0..<9 {
        let unbacked = scope == .disk ? 0 : memory.unbackedCount
        count =
          unbacked + order.staged.stagedCount + writeBack.queue.underWay + storage.stats.count
        if scope == .disk || memory.unbackedCount == unbacked { break }
      }
      return count
    }
  }

  func cost(in scope: Tiers) throws(Failure) -> UInt64 {
    (scope == .disk ? 0 : memory.cost) &+ (try storeStats(in: scope)?.cost ?? 0)
  }

  /// The counters and sums of the store; nil: the call does not ask for them. The sums may have
  /// to be read from the disk, so the call is inside the gate.
  func storeStats(in scope: Tiers) throws(Failure) -> TierStats? {
    guard storage != nil, scope != .memory else { return nil }
    return try withStorage { (storage) throws(Failure) in
      var stats = storage.stats
      stats.hits &+= order.staged.hits
      return stats
    }
  }

  func differs(from options: OpenOptions) -> Bool {
    guard let storage else { return true }
    let memory = limits().memory
    return settings.policy != options.policy ?? settings.policy
      || settings.drainsReleases != options.drainsReleases
      || memory.changed(options.memoryGiven, to: options.memory) != memory
      || storage.differs(from: options.disk)
  }
}
