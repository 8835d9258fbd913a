/// Reads: memory, then the store, then promotion.
extension Cache {
  /// The value, counted as an access; nil if there is none.
  @_optimize(speed)
  func get(_ key: Bytes, in scope: Tiers) throws(Failure) -> Block? {
    let moment = clock.moment()
    let hash = memory.hash(key)
    if scope != .disk {
      if let block = memory.get(key, hash, at: moment) { return block }
      // The entry may have been found expired.
      events.deliver()
      if storage == nil || scope == .memory { return nil }
    }
    return try getFromStorage(key, hash, at: moment, promoting: scope == .whole)
  }

  /// The part of an entry that is asked for, copied into `buffer` if it fits; counted as an
  /// access. `atOnce`: the store is not asked, and what only it can answer is `wouldBlock`.
  @_optimize(speed)
  func look(
    _ key: Bytes, in scope: Tiers, into buffer: UnsafeMutableRawBufferPointer, _ part: Look.Part,
    atOnce: Bool
  ) throws(Failure) -> Look {
    let moment = clock.moment()
    let hash = memory.hash(key)
    if scope != .disk {
      let isAll = storage == nil || scope == .memory
      let found = memory.look(
        key, hash, at: moment, into: buffer, part, countsMiss: isAll || !atOnce)
      if found.status == .done { return found }
      events.deliver()
      if isAll { return found }
    }
    if atOnce { return Look(.wouldBlock) }
    guard
      let block = try getFromStorage(key, hash, at: moment, promoting: scope == .whole)
    else { return Look(.notFound) }
    return Look(block, part, into: buffer)
  }

  /// Whether there is an entry; no access.
  @_optimize(speed)
  func contains(_ key: Bytes, in scope: Tiers) throws(Failure) -> Bool {
    if scope != .disk {
      if memory.has(key, memory.hash(key), at: clock.moment()) { return true }
      if storage == nil || scope == .memory { return false }
    }
    return try info(key, in: scope) != nil
  }

  @inline(never)
  private func getFromStorage(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, promoting: Bool
  ) throws(Failure) -> Block? {
    let moment = moment.read
    return try withStorage { (storage) throws(Failure) in
      let stripe = Stripes.index(of: hash)
      var rounds = 0
      while true {
        let state = order.stripes.stableState(stripe)
        // Before the store is read.
        let shared = coherence?.mark(hash)
        // One get is one hit or one miss of the store's.
        if let block = try below(key, hash, at: moment, isAccess: rounds == 0, storage) {
          if rounds > 0 { storage.noteAccess(key, hash, at: moment.time) }
          if promoting { promote(block.unowned, hash, state, shared, at: moment) }
          return block
        }
        guard promoting else { return nil }
        if let shared {
          var hasChanged = false
          if let block = stillInMemory(key, hash, shared, at: moment, &hasChanged) { return block }
          if hasChanged {
            rounds += 1
            continue
          }
          dropStale(key, hash, state, at: moment)
        }
        if try isNowhere(key, hash, since: state, &rounds, at: moment, storage) { return nil }
        // If memory has it, an access, as the first look would have been.
        if memory.has(key, hash, at: moment),
          let block = memory.get(key, hash, at: moment)
        {
          return block
        }
      }
    }
  }

  /// So often a read that has found nothing looks again because of writes of other keys of its
  /// stripe; then it holds the stripe for a last look.
  private static let mostRounds = 4

  /// True if neither tier has an entry, of a key that was found in neither since `state` was read.
  /// Between the two looks an entry may have gone from the one tier to the other: down by a write,
  /// which the stripe's word counts, or up by a promotion, which it does not count, and the store
  /// may have evicted the row since. False: the caller looks again, for the time that `rounds` says.
  func isNowhere(
    _ key: Bytes, _ hash: UInt64, since state: Stripes.State, _ rounds: inout Int,
    at moment: Moment, _ storage: any Storage
  ) throws(Failure) -> Bool {
    let stripe = Stripes.index(of: hash)
    if !memory.has(key, hash, at: moment) && order.stripes.isSettled(stripe, since: state) {
      return true
    }
    rounds += 1
    if rounds < Cache.mostRounds { return false }
    order.stripes.lock(stripe)
    defer { order.stripes.unlock(stripe) }
    // It may leave memory meanwhile, so memory is asked first.
    if memory.has(key, hash, at: moment) { return false }
    return try infoBelow(key, hash, at: moment, storage) == nil
  }

  /// Brings into memory what the store has given, unless a write of its stripe was under way or
  /// has come since the state was read.
  /// Where processes share, `shared` is the key's counter, read before the store was: what memory
  /// has under the key is stale then, or the same.
  func promote(
    _ entry: UnownedBlock, _ hash: UInt64, _ state: Stripes.State, _ shared: UInt32?,
    at moment: Moment
  ) {
    let stripe = Stripes.index(of: hash)
    guard state.hasNothingPending, (shared ?? 0) & 1 == 0, order.stripes.tryLock(stripe) else {
      return
    }
    if order.stripes.state(stripe) == state {
      if let shared { entry.mark = shared }
      // Nothing is owed to a promotion: without memory for it there is none.
      _ = try? memory.put(
        entry.retained(), hash, at: moment, condition: shared == nil ? .unlessNewer : .always,
        isBacked: true)
    }
    order.stripes.unlock(stripe)
  }

  /// The value as it is now; no access, no promotion.
  func peek(_ key: Bytes, in scope: Tiers) throws(Failure) -> Block? {
    try peek(key, memory.hash(key), at: clock.moment(), in: scope)
  }

  @inline(__always)
  func peek(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers
  ) throws(Failure) -> Block? {
    if scope != .disk, let block = memory.peek(key, hash, at: moment) { return block }
    if storage == nil || scope == .memory { return nil }
    return try withStorage { (storage) throws(Failure) in
      try current(key, hash, at: moment.read, in: scope, isAccess: false, of: storage)
    }
  }

  /// The value as it is now, for a call that uses the store; no promotion.
  func current(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers, isAccess: Bool,
    of storage: any Storage
  ) throws(Failure) -> Block? {
    let stripe = Stripes.index(of: hash)
    var rounds = 0
    while true {
      let state = order.stripes.stableState(stripe)
      if scope == .whole, let block = memory.peek(key, hash, at: moment) { return block }
      let shared = coherence?.mark(hash)
      let block = try below(key, hash, at: moment, isAccess: isAccess, storage)
      if block != nil || scope == .disk { return block }
      if let shared {
        var hasChanged = false
        if let block = stillInMemory(key, hash, shared, at: moment, &hasChanged) { return block }
        if hasChanged { continue }
      }
      if try isNowhere(key, hash, since: state, &rounds, at: moment, storage) { return nil }
    }
  }

  /// The record as it is now, and the tier that has it; no access.
  func info(_ key: Bytes, in scope: Tiers) throws(Failure) -> (record: Record, tier: Tiers)? {
    let moment = clock.moment()
    let hash = memory.hash(key)
    if storage == nil || scope == .memory {
      return memory.info(key, hash, at: moment).map { ($0, .memory) }
    }
    if scope != .disk, let record = memory.info(key, hash, at: moment) { return (record, .memory) }
    return try withStorage { (storage) throws(Failure) in
      try info(key, hash, at: moment.read, in: scope, of: storage)
    }
  }

  private func info(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers, of storage: any Storage
  ) throws(Failure) -> (record: Record, tier: Tiers)? {
    let stripe = Stripes.index(of: hash)
    var rounds = 0
    while true {
      let state = order.stripes.stableState(stripe)
      if scope == .whole, let record = memory.info(key, hash, at: moment) {
        return (record, .memory)
      }
      let shared = coherence?.mark(hash)
      if let stored = try infoBelow(key, hash, at: moment, storage) {
        return (stored.ofValue, .disk)
      }
      if scope == .disk { return nil }
      if let shared {
        var hasChanged = false
        if let block = stillInMemory(key, hash, shared, at: moment, &hasChanged) {
          return (block.unowned.record, .memory)
        }
        if hasChanged { continue }
      }
      if try isNowhere(key, hash, since: state, &rounds, at: moment, storage) { return nil }
    }
  }

  /// The ages that count for entries of a tier without their own.
  func ages(of scope: Tiers) -> Ages {
    scope == .disk
      ? (storage?.limits.ages ?? Ages()) : parts.limitsLock.withLock { memoryLimits.ages }
  }

  func flush() throws(Failure) {
    guard storage != nil else { return }
    let moment = clock.moment().read
    try withStorage { (storage) throws(Failure) in
      let failure = writeBack.writeDirty(storage, by: Deadline(after: Int64.max))
      try storage.flush(at: moment)
      if let failure { throw failure }
    }
  }
}
