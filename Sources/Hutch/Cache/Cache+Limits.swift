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
}
