/// Reads: memory, then the store, then promotion.
extension Cache {
  /// The value, counted as an access; nil if there is none.
  func get(_ key: Bytes, in scope: Tiers) throws(Failure) -> Block? {
    let moment = clock.moment()
    let hash = memory.hash(key)
    if scope != .disk {
      if let block = memory.get(key, hash, at: moment) { return block }
      // The entry may have been found expired.
      events.deliver()
      if storage == nil || scope == .memory { return nil }
    }
    return try getFromStorage(key, hash, at: moment, in: scope)
  }

  /// The part of an entry that is asked for, copied into `buffer` if it fits; counted as an
  /// access. `atOnce`: the store is not asked, and what only it can answer is `wouldBlock`.
  /// `orSizes`: if the store can tell the sizes of what does not fit, the look is `bufferTooSmall`
  /// and no access.
  func look(
    _ key: Bytes, in scope: Tiers, into buffer: UnsafeMutableRawBufferPointer, _ part: Look.Part,
    atOnce: Bool, orSizes: Bool
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
    if scope == .disk {
      return try lookBelow(key, hash, at: moment, into: buffer, part, orSizes: orSizes)
    }
    guard
      let block = try getFromStorage(key, hash, at: moment, in: scope)
    else { return Look(.notFound) }
    return Look(block, part, into: buffer)
  }

  /// A look at the disk tier alone: what memory has, and does meanwhile, makes no difference.
  @inline(never)
  private func lookBelow(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, into buffer: UnsafeMutableRawBufferPointer,
    _ part: Look.Part, orSizes: Bool
  ) throws(Failure) -> Look {
    let moment = moment.read
    return try withStorage { (storage) throws(Failure) in
      // A put that memory shows already is submitted to the store before the store is read.
      _ = order.stripes.stableState(Stripes.index(of: hash))
      if order.staged.isEmpty {
        switch storage.copy(key, hash, at: moment, part, into: buffer) {
        case .copied(let look): return look
        case .absent: return Look(.notFound)
        case .tooLarge(var look):
          if orSizes {
            look.status = .bufferTooSmall
            return look
          }
        case .refused: break
        }
      }
      guard let block = try below(key, hash, at: moment, isAccess: true, storage) else {
        return Look(.notFound)
      }
      return Look(block, part, into: buffer)
    }
  }

  /// Whether there is an entry; no access.
  func contains(_ key: Bytes, in scope: Tiers) throws(Failure) -> Bool {
    if scope != .disk {
      if memory.has(key, memory.hash(key), at: clock.moment()) { return true }
      if storage == nil || scope == .memory { return false }
    }
    return try info(key, in: scope) != nil
  }

  @inline(never)
  private func getFromStorage(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers
  ) throws(Failure) -> Block? {
    let moment = moment.read
    return try withStorage { (storage) throws(Failure) in
      let round = beginRound(hash)
      if let block = try getBelow(key, hash, at: moment, in: scope, round, storage) { return block }
      if scope == .disk { return nil }
      return try getAgain(key, hash, at: moment, after: round, storage)
    }
  }

  /// The value that is below; of the whole, it is brought into memory.
  @inline(never)
  private func getBelow(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers, _ round: Round,
    _ storage: any Storage
  ) throws(Failure) -> Block? {
    let isFirst = round.number == 0
    guard let block = try below(key, hash, at: moment, isAccess: isFirst, storage) else {
      return nil
    }
    if !isFirst { storage.noteAccess(key, hash, at: moment.time) }
    if scope == .whole { promote(block.unowned, hash, round, at: moment) }
    return block
  }

  /// The value that a get of the whole finds after a round in which both tiers have missed the key.
  func getAgain(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, after missed: Round, _ storage: any Storage
  ) throws(Failure) -> Block? {
    let block = try search(
      key, hash, at: moment, after: missed, storage,
      below: { (round) throws(Failure) in
        try getBelow(key, hash, at: moment, in: .whole, round, storage)
      },
      // A hit counts as one, as the first look would have counted it; a miss has been counted.
      inMemory: {
        memory.has(key, hash, at: moment) ? memory.get(key, hash, at: moment) : nil
      }, copy: { $0 })
    if block == nil && missed.counter != nil { dropStale(key, hash, missed.state, at: moment) }
    return block
  }

  /// Brings into memory what the store has given, unless a write of its stripe was under way or
  /// has come since the round began. Where processes share, what memory has under the key is stale
  /// then, or the same. The same stays if it may have an object.
  func promote(_ entry: UnownedBlock, _ hash: UInt64, _ round: Round, at moment: Moment) {
    let stripe = Stripes.index(of: hash)
    guard round.state.hasNothingPending, (round.counter ?? 0) & 1 == 0,
      order.stripes.tryLock(stripe)
    else { return }
    if settings.objectCodec != nil,
      memory.version(entry.key, hash, at: moment) == entry.version
    {
      return order.stripes.unlock(stripe)
    }
    if order.stripes.state(stripe) == round.state {
      if let counter = round.counter { entry.mark = counter }
      // Nothing is owed to a promotion: without memory for it there is none.
      let put = try? memory.put(
        entry.retained(), hash, at: moment,
        condition: round.counter == nil ? .unlessNewer : .always, isBacked: true)
      if round.counter != nil, let old = put?.existing, old != 0, old != entry.version {
        tellGone(entry.key, hash, old, .replaced, .memory)
      }
    }
    order.stripes.unlock(stripe)
  }

  /// The value as it is now; no access, no promotion.
  func peek(_ key: Bytes, in scope: Tiers) throws(Failure) -> Block? {
    try peek(key, memory.hash(key), at: clock.moment(), in: scope)
  }

  @inline(never)
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
    if scope == .whole, let block = memory.peek(key, hash, at: moment) { return block }
    return try search(
      key, hash, at: moment, in: scope, storage,
      below: { (round) throws(Failure) in
        try below(
          key, hash, at: moment, isAccess: isAccess && round.number == 0, storage)
      }, inMemory: { memory.peek(key, hash, at: moment) }, copy: { $0 })
  }

  /// The record as it is now, and the tier that has it; no access.
  func info(_ key: Bytes, in scope: Tiers) throws(Failure) -> (record: Record, tier: Tiers)? {
    let moment = clock.current
    let hash = memory.hash(key)
    if scope != .disk, let record = memory.info(key, hash, at: moment) { return (record, .memory) }
    if storage == nil || scope == .memory { return nil }
    return try withStorage { (storage) throws(Failure) in
      try infoBelowMemory(key, hash, at: moment, in: scope, storage)
    }
  }

  /// As above, for a call that uses the store and has asked memory.
  func infoBelowMemory(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers, _ storage: any Storage
  ) throws(Failure) -> (record: Record, tier: Tiers)? {
    try search(
      key, hash, at: moment, in: scope, storage,
      below: { (_) throws(Failure) in
        try infoBelow(key, hash, at: moment, storage).map { ($0.ofValue, .disk) }
      }, inMemory: { memory.info(key, hash, at: moment).map { ($0, .memory) } },
      copy: { ($0.unowned.record, .memory) })
  }

  /// The ages that count for entries of a tier without their own, be it in a trim alone.
  func ages(of scope: Tiers) -> Ages {
    (scope == .disk ? (storage?.ages ?? Ages()) : memory.ages).strict
  }

  func flush() throws(Failure) {
    guard storage != nil else { return }
    var failure: Failure?
    do throws(Failure) { try writeDirty() } catch { failure = error }
    try withStorage { (storage) throws(Failure) in try storage.flush() }
    if let failure { throw failure }
  }
}
