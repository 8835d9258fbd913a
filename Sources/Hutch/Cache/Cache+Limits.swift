internal import CHutch

/// Limits, counts and statistics of the whole and of its tiers.
extension Cache {
  func limits() -> (memory: TierLimits, disk: TierLimits) {
    (parts.limitsLock.withLock { memoryLimits }, storage?.limits ?? TierLimits())
  }

  /// Changes the fields of each tier's limits that are named; the others stay. `limitsChange` is
  /// held from the first tier to the last: of two changes one is whole before the other begins.
  func setLimits(
    memory wantedMemory: TierLimits, _ memoryFields: LimitFields,
    disk wantedDisk: TierLimits, _ diskFields: LimitFields, in scope: Tiers
  ) throws(Failure) {
    let moment = clock.current
    // Entries that have to go need not be written then, while limits are held.
    if scope != .disk, !memoryFields.isEmpty { try? writeDirty() }
    guard storage != nil, scope != .memory else {
      defer { events.deliver() }
      return try parts.limitsChange.withLock { () throws(Failure) in
        try setMemoryLimits(wantedMemory, memoryFields, at: moment)
      }
    }
    try withStorage { (storage) throws(Failure) in
      try parts.limitsChange.withLock { () throws(Failure) in
        if scope == .whole { try setMemoryLimits(wantedMemory, memoryFields, at: moment) }
        guard !diskFields.isEmpty else { return }
        try storage.setLimits(
          storage.limits.changed(diskFields, to: wantedDisk), at: moment)
        followAges(at: moment)
      }
    }
  }

  /// `limitsChange` is held.
  @inline(never)
  private func setMemoryLimits(
    _ wanted: TierLimits, _ fields: LimitFields, at moment: Moment
  ) throws(Failure) {
    if fields.isEmpty { return }
    let limits = memoryLimits.changed(fields, to: wanted)
    parts.limitsLock.withLock { memoryLimits = limits }
    setMemoryLimits(at: moment)
    if limits.ages.any { try startMaintenance() }
  }

  /// Whether entries of the store end by being idle. They live by the reads that memory answers
  /// too, whose times it keeps to about a minute otherwise.
  private var storeIdles: Bool { (storage?.ages.timeToIdle ?? 0) != 0 }

  private func setMemoryLimits(at moment: Moment) {
    var limits = memoryLimits
    limits.ages.keepsAccesses = storeIdles
    memory.setLimits(limits, at: moment)
  }

  /// Takes notice of the store's time to idle: after an opening and a change of limits, and, since
  /// another process may change it, now and then. `limitsChange` is held, or no other thread knows
  /// the cache.
  func followAges(at moment: Moment) {
    if memory.ages.keepsAccesses != storeIdles { setMemoryLimits(at: moment) }
  }

  /// Distinct keys. Nothing stands still for it. The sums are read in the order in which an entry
  /// goes down, so an entry that goes down meanwhile counts once for each sum that it passes. If
  /// entries went down, the sums are read again, a few times, and the least count is the answer.
  /// The count misses an entry of memory that the store has dropped until memory is told of it
  /// (`storeDropped`), which another thread may be about to do.
  func count(in scope: Tiers) throws(Failure) -> UInt64 {
    if storage == nil || scope == .memory { return memory.count }
    return try withStorage { (storage) throws(Failure) in
      review.end(storage)
      // Memory is all that there is.
      if scope == .whole && !storage.isUp { return memory.count }
      var least = UInt64.max
      for _ in 0..<9 {
        let unbacked = scope == .disk ? 0 : memory.unbackedCount
        let onTheirWay = order.staged.stagedCount + writeBack.queue.underWay
        least = min(least, unbacked + onTheirWay + storage.stats.count)
        let isStill = order.staged.stagedCount + writeBack.queue.underWay == onTheirWay
        if isStill && (scope == .disk || memory.unbackedCount == unbacked) { break }
      }
      return least
    }
  }

  func cost(in scope: Tiers) throws(Failure) -> UInt64 {
    (scope == .disk ? 0 : memory.cost) &+ (try storeStats(in: scope).cost)
  }

  /// The sum of the sizes of the values that calls through a handle see. A walk over all entries.
  func valueBytes(through handle: Handle) throws(Failure) -> UInt64 {
    var sum: UInt64 = 0
    let cursor = WholeWalk(handle, goesFar: true)
    while let found = try cursor.nextEntry() {
      sum &+= UInt64(found.record.valueSize)
      try handle.check()
    }
    return sum
  }

  /// The counters and sums of the store; all 0 if the call does not ask for them. The sums may have
  /// to be read from the disk, so the call is inside the gate.
  func storeStats(in scope: Tiers) throws(Failure) -> TierStats {
    guard storage != nil, scope != .memory else { return TierStats() }
    return try withStorage { (storage) throws(Failure) in
      var stats = storage.stats
      stats.hits &+= order.staged.hits
      return stats
    }
  }

  /// Applies the options of a further opening as far as it can. True if they are not all in force.
  func apply(_ options: OpenOptions) -> Bool {
    guard let storage else { return true }
    let isOtherStorage = storage.apply(options.disk)
    let memory = limits().memory
    let (policy, pressure) = parts.limitsLock.withLock { (memoryPolicy, self.pressure) }
    let (workers, change) = (self.workers, options.change)
    return policy != change.policy ?? policy
      || pressure != pressure.changed(change)
      || workers != change.workers ?? workers
      || parts.upkeep.hasThreads && options.tasks.workers == 0
      || parts.upkeep.length != options.tasks.length ?? parts.upkeep.length
      || settings.closeDeadline != options.tasks.closeDeadline ?? settings.closeDeadline
      || (try? target(of: options.writePolicy, in: .whole)) != writePolicy
      || settings.drainsReleases != options.drainsReleases
      || memory.changed(options.memoryGiven, to: options.memory) != memory
      || memory.ages.actOnTrim != options.memory.ages.actOnTrim
      || isOtherStorage
      || (options.tasks.hosts != nil && options.tasks.hosts !== parts.hosts)
  }
}
