/// Limits, counts and statistics of the whole and of its tiers.
extension Cache {
  func limits() -> (memory: TierLimits, disk: TierLimits) {
    (limitsLock.withLock { memoryLimits }, storage?.limits ?? TierLimits())
  }

  /// Changes the fields of each tier's limits that are named; the others stay.
  func setLimits(
    memory wantedMemory: TierLimits, _ memoryFields: LimitFields,
    disk wantedDisk: TierLimits, _ diskFields: LimitFields, in scope: Tiers
  ) throws(Failure) {
    let moment = clock.moment()
    // What has to go need not be written then, while limits are held.
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
      return try limitsLock.withLock { () throws(Failure) in try setMemory() }
    }
    try withStorage { (storage) throws(Failure) in
      try limitsLock.withLock { () throws(Failure) in
        try setMemory()
        guard !diskFields.isEmpty else { return }
        try storage.setLimits(
          storage.limits.changed(diskFields, to: wantedDisk), at: moment)
      }
    }
  }

  /// Distinct keys. Nothing stands still for it: the sums are read in the order in which an entry
  /// goes down, so one that goes down meanwhile counts twice rather than not at all; and again if some did.
  func count(in scope: Tiers) -> UInt64 {
    guard let storage, scope != .memory else { return memory.count }
    var unbacked: UInt64 = 0
    for _ in 0..<8 {
      unbacked = scope == .disk ? 0 : memory.unbackedCount
      let onTheWay = storage.announcedCount + leavings.underWay
      let count = unbacked + onTheWay + storage.stats.count
      if scope == .disk || memory.unbackedCount == unbacked { return count }
    }
    return unbacked + storage.announcedCount + leavings.underWay + storage.stats.count
  }

  func cost(in scope: Tiers) -> UInt64 {
    guard let storage, scope != .memory else { return memory.cost }
    let stored = storage.stats.cost
    return scope == .disk ? stored : stored &+ memory.cost
  }

  func differs(from options: OpenOptions) -> Bool {
    guard let storage else { return true }
    let memory = limits().memory
    return policy != options.policy ?? policy || drainsReleases != options.drainsReleases
      || memory.changed(options.memoryGiven, to: options.memory) != memory
      || storage.differs(from: options.disk)
  }
}
