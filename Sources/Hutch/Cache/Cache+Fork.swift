import Synchronization

/// The steps of a fork (Forking.swift) for one cache.
extension Cache {
  /// Calls that change memory or the order of writes stand still. False: not in time.
  func lockWrites(until end: Deadline) -> Bool {
    guard parts.limitsChange.lock(until: end) else { return false }
    if parts.limitsLock.lock(until: end) {
      if order.lockAll(until: end) { return true }
      parts.limitsLock.unlock()
    }
    parts.limitsChange.unlock()
    return false
  }

  func unlockWrites() {
    order.unlockAll()
    parts.limitsLock.unlock()
    parts.limitsChange.unlock()
  }

  /// Writes what memory owes to the store. The gate is paused, and no call is inside.
  /// False: not in time, or not all of it.
  func writesAllDown(until end: Deadline) -> Bool {
    guard writeBack.mayHaveDirty, let storage else { return true }
    return writeBack.writeDirty(storage, by: end, tells: false) == nil
      && writeBack.queue.count == 0
  }

  /// In the child, with the locks held that were taken before the fork: a cache over the same
  /// tiers. This one stays as it is for ever, but for its references to what a cache frees at its
  /// end: the tiers, and the host's functions.
  func makeForChild() throws(Failure) -> Cache {
    let isLeftNow = storage != nil && fork.preparation == .memory
    let storageBelongsToParent = isLeftNow || life.storageBelongsToParent
    let newLife = try Lifecycle(
      isAsleep: storage?.forking != nil, storageBelongsToParent: storageBelongsToParent)
    let newParts = try parts.makeForChild(memory, clock, values)
    let forking = storage?.forking
    let cache = Cache(
      memory, forking == nil ? nil : storage, clock, settings, memoryLimits, pressure,
      storageBelongsToParent ? nil : coherence, newLife, newParts)
    cache.openings = openings
    cache.hasTaggedObjects.store(
      hasTaggedObjects.load(ordering: .relaxed), ordering: .relaxed)
    forking?.beginInChild(isPrepared: fork.preparation == .whole, observer: cache)
    if storageBelongsToParent { memory.share(nil) }
    memory.openHits()
    memory.unlockAll(inChild: true)
    unlockWrites()
    // The child does not learn of what the parent writes from here on.
    if isLeftNow { memory.clear(at: clock.momentForMaintenance()) }
    parts.letGo(memory, clock, values.codec)
    Unmanaged.passUnretained(memory).release()
    Unmanaged.passUnretained(clock).release()
    if let codec = values.codec { Unmanaged.passUnretained(codec).release() }
    if let codec = settings.objectCodec { Unmanaged.passUnretained(codec).release() }
    if forking != nil, let storage {
      let object: AnyObject = storage
      Unmanaged.passUnretained(object).release()
    }
    return cache
  }
}
