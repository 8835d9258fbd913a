import Synchronization

/// Writes but for puts and clears: remove and pop, touch, increment.
extension Cache {
  // MARK: remove, pop

  /// Removes the entry. done, or notFound; superseded: a later write than `late` has been done.
  func remove(
    _ key: Bytes, in scope: Tiers, by late: LateWrite? = nil
  ) throws(Failure) -> Status {
    if storage == nil || scope == .memory {
      var isOvertaken = false
      let block = try removeFromMemory(
        key, memory.hash(key), at: clock.moment(), by: late, &isOvertaken)
      return isOvertaken ? .superseded : block == nil ? .notFound : .done
    }
    return try withStorage { (storage) throws(Failure) in
      let moment = clock.moment()
      if late == nil,
        let existed = try removeAtOnce(key, at: moment, in: scope, from: storage)
      {
        return existed ? .done : .notFound
      }
      let removal = submitRemoval(
        key, at: moment, in: scope, wantsValue: false, by: late, to: storage)
      if removal.isSuperseded { return .superseded }
      return try finish(removal, in: storage) ? .done : .notFound
    }
  }

  /// Removes the entry and returns its value; nil: there was none. `isOvertaken`: a later write
  /// than `late` has been done, and nothing is removed.
  func pop(
    _ key: Bytes, in scope: Tiers, by late: LateWrite? = nil, _ isOvertaken: inout Bool
  ) throws(Failure) -> Block? {
    if storage == nil || scope == .memory {
      return try removeFromMemory(
        key, memory.hash(key), at: clock.moment(), by: late, &isOvertaken)
    }
    return try withStorage { (storage) throws(Failure) in
      while true {
        let removal = submitRemoval(
          key, at: clock.moment(), in: scope, wantsValue: true, by: late, to: storage)
        isOvertaken = removal.isSuperseded
        if isOvertaken { return nil }
        if try finish(removal, in: storage) { return removal.value.take() }
        if !removal.isUnmet { return nil }
      }
    }
  }

  /// Removes an entry from memory alone. A store keeps its own, with the time of the last access.
  func removeFromMemory(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, condition: WriteCondition = .always
  ) throws(Failure) -> Block? {
    var isOvertaken = false
    return try removeFromMemory(
      key, hash, at: moment, condition: condition, by: nil, &isOvertaken)
  }

  /// `isOvertaken`: the removal has not been done, for a later write of the key has.
  func removeFromMemory(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, condition: WriteCondition = .always,
    by late: LateWrite?, _ isOvertaken: inout Bool
  ) throws(Failure) -> Block? {
    guard storage == nil else {
      return try withStorage { (storage) throws(Failure) in
        removeInOrder(
          key, hash, at: moment, condition: condition, by: late, &isOvertaken, storage)
      }
    }
    guard late != nil || events.wantsEntries || order.isReserved(hash) else {
      return memory.remove(key, hash, at: moment, condition: condition)
    }
    return removeInOrder(
      key, hash, at: moment, condition: condition, by: late, &isOvertaken, nil)
  }

  /// As above, with the stripe.
  private func removeInOrder(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, condition: WriteCondition,
    by late: LateWrite?, _ isOvertaken: inout Bool, _ storage: (any Storage)?
  ) -> Block? {
    tellWillRemove(key, hash, in: .memory)
    let stripe = Stripes.index(of: hash)
    while true {
      // Memory drops only a copy: a dirty entry is written first.
      let written = writeBack.mayHaveDirty ? writeDown(key, hash, at: moment) : nil
      order.stripes.lock(stripe)
      if let late, order.isOvertaken(late) {
        order.stripes.unlock(stripe)
        isOvertaken = true
        return nil
      }
      if writeBack.mayHaveDirty {
        let resident = memory.peek(key, hash, at: moment)
        if let block = resident.unowned, block.isDirty, block.raw != written.unowned?.raw {
          // The entry has been put or touched since, and is not written. An entry that the store
          // has refused is removed all the same.
          order.stripes.unlock(stripe)
          continue
        }
      }
      if !condition.isAlways,
        !condition.holds(for: memory.version(key, hash, at: moment))
      {
        order.stripes.unlock(stripe)
        return nil
      }
      if let storage, let accessed = memory.info(key, hash, at: moment)?.accessed {
        storage.noteAccess(key, hash, at: accessed)
      }
      order.noteWrite(hash, by: late, ofCopy: storage != nil)
      if coherence != nil && memory.version(key, hash, at: moment) == 0 {
        // A copy that counts no more, unless a removal is about to take it.
        if order.stripes.state(stripe).hasNothingPending { dropCopy(key, hash, at: moment) }
        order.stripes.unlock(stripe)
        return nil
      }
      let pending = postPending(key, hash, adding: nil, replacing: nil, at: moment)
      let block = memory.remove(key, hash, at: moment, condition: condition)
      noteTaken(block.unowned, by: pending, isNewest: order.newestUndecided(stripe) == nil)
      order.stripes.unlock(stripe)
      events.resolve(pending, leftDisk: false)
      return block
    }
  }

  /// A removal that has been submitted, or had nothing to remove, or failed at once.
  final class SubmittedRemoval {
    fileprivate var plan = WritePlan(.keep, .nothing)
    fileprivate var write: StoreWrite
    /// The write is to be finished, and its result counts.
    fileprivate var isGiven = false
    /// Keeps the key until the removal is finished. Nil: there was no memory for it.
    private let key: Block?
    fileprivate var value: Block?
    fileprivate var failure: Failure?
    fileprivate(set) var pending: Events.Pending?
    /// There was an entry, whatever the commit finds: the removal took memory's copy. Where
    /// processes share, that says so only while the copy's own put was being committed.
    fileprivate var hasTaken = false
    /// Memory keeps its copy until the store has decided: `finish` takes it.
    fileprivate var keepsCopy = false
    /// A later write has been done.
    fileprivate(set) var isSuperseded = false

    fileprivate init(_ key: Bytes, _ hash: UInt64) {
      let block = try? Block.allocate(key: key, record: Record())
      write = StoreWrite(.remove, block.unowned, hash)
      if block == nil { failure = .noMemory }
      self.key = block
    }

    fileprivate var stripe: Int { Stripes.index(of: write.hash) }

    /// Once it is finished: it was meant for an entry that another write has replaced or removed.
    var isUnmet: Bool { write.result.isUnmet }
  }

  /// The first half of a removal in a cache with a store: everything but the wait for the commit.
  /// The caller owes `finish`. `wanted`: the only version that is to be removed; nil: any.
  func submitRemoval(
    _ key: Bytes, at moment: Moment, in scope: Tiers, wantsValue: Bool,
    ifVersion wanted: UInt64? = nil, by late: LateWrite? = nil, to storage: any Storage
  ) -> SubmittedRemoval {
    let hash = memory.hash(key)
    prefetch(hash)
    let stripe = Stripes.index(of: hash)
    let removal = SubmittedRemoval(key, hash)
    var told = tellWillRemove(key, hash, in: scope)
    if removal.failure != nil { return removal }
    do throws(Failure) {
      while true {
        var old: Block?
        // Before the stripe is taken: the value may be large, and the host's codec may be called.
        if wantsValue || events.wants(.didRemove) {
          do throws(Failure) {
            let seen = told.unowned?.version
            if !wantsValue, let seen,
              try currentVersion(key, hash, at: moment, in: scope, inOrder: false) == seen
            {
              old = told.take()
            } else {
              old = try current(
                key, hash, at: moment, in: scope, isAccess: wantsValue, of: storage)
            }
          } catch {
            if wantsValue { throw error }
          }
        }
        order.stripes.lock(stripe)
        if let late, order.isOvertaken(late) {
          order.stripes.unlock(stripe)
          removal.isSuperseded = true
          return removal
        }
        let seen: UInt64? = wantsValue ? old.unowned?.version ?? 0 : wanted
        let plan = try order.stripes.holding(stripe) { () throws(Failure) in
          try planRemoval(
            &removal.write, key, hash, at: moment, in: scope, of: seen, storage)
        }
        if let plan {
          order.noteWrite(hash, by: late)
          removal.plan = plan
          _ = carryOut(removal, key, hash, old.unowned, at: moment, in: scope, storage)
          if wantsValue { removal.value = old.take() }
          return removal
        }
        order.stripes.unlock(stripe)
        if wanted != nil {
          removal.isSuperseded = true
          return removal
        }
      }
    } catch {
      removal.failure = error
    }
    return removal
  }

  /// The plan of a removal; nil: another write has come, and the caller looks again. The stripe is
  /// held. `seen`: the version that is to be removed; of a pop that of the value that it has read,
  /// 0 if it has found none.
  @inline(never)
  private func planRemoval(
    _ write: inout StoreWrite, _ key: Bytes, _ hash: UInt64,
    at moment: Moment, in scope: Tiers, of seen: UInt64?, _ storage: any Storage
  ) throws(Failure) -> WritePlan? {
    do throws(Failure) {
      // An entry that is staged after the look was not on disk then, and stays: a removal with its
      // version leaves it its place (WriteBackQueue.makeWay). Memory is asked first.
      let resident =
        scope == .disk && writeBack.mayHaveDirty ? memory.version(key, hash, at: moment) : 0
      var version = versionInMemory(key, hash, at: moment, in: scope)
      var hasExpired = false
      if version == 0 {
        (version, hasExpired) = try versionBelow(key, hash, at: moment, in: scope, storage)
      }
      write.version = version == 0 ? resident : 0
      if version == 0 && seen ?? 0 == 0 {
        // A key without an entry costs no commit. If it has none because of a write that is not
        // committed, or because the entry has expired, this removal is committed too: its answer
        // must hold after a kill, for other processes, and under other ages. A store that is out of
        // service cannot tell, and must not have the entry when it is back in service.
        let isUp = storage.isUp
        if !isUp && seen != nil { return WritePlan(.keep, .nothing) }
        write.need = isUp && !hasExpired ? .ifPending : .ifHeld
        if seen != nil && coherence != nil {
          try leave(.absent, to: &write, key, hash, at: moment, in: scope, storage)
        }
        // A removal from a disk tier that has no entry drops nothing in memory.
        return WritePlan(scope == .whole ? .drop : .keep, .removeIfThere)
      }
      if let seen, version == 0 || seen != version { return nil }
      if seen != nil && coherence != nil {
        try leave(.version(version), to: &write, key, hash, at: moment, in: scope, storage)
      }
      return WritePlan(.drop, .remove)
    } catch {
      if seen != nil { throw error }
      // The store could not be read and may have an entry: its removal bars the key.
      return WritePlan(.drop, .remove)
    }
  }

  /// Carries out a removal's plan, and lets the stripe go. `old`: the entry that the look before
  /// has found. Returns the block that memory had, which the caller frees without the stripe.
  @inline(never)
  private func carryOut(
    _ removal: SubmittedRemoval, _ key: Bytes, _ hash: UInt64, _ old: UnownedBlock?,
    at moment: Moment, in scope: Tiers, _ storage: any Storage
  ) -> Block? {
    let stripe = removal.stripe
    if removal.plan.store == .nothing {
      order.stripes.unlock(stripe)
      return nil
    }
    if removal.write.version == 0 { removal.write.version = order.versions.draw() }
    let isOfEntry = removal.plan.store == .remove
    if isOfEntry {
      removal.pending = postPending(key, hash, adding: nil, replacing: old, at: moment)
    } else if scope == .whole {
      // Other processes may have copies of an entry that was evicted on disk.
      coherence?.dropCopies(hash)
    }
    // The store is asked before memory: the end of a commit tells memory, then leaves the queue.
    let pendingVersion =
      coherence == nil || order.stripes.state(stripe).hasNothingPending
      ? 0 : storage.pendingVersion(key, hash)
    // Memory may have had a newer entry than the store: one that it owes to a store that has come
    // back in another state.
    order.stripes.beginChange(stripe)
    // Memory follows a decision of the store (`finish`). A copy that counts no more stays while
    // another removal may be about to take it.
    let dropsCopy =
      removal.plan.memory == .drop && !removal.write.condition.isOfCaller
      && (isOfEntry || coherence == nil || order.stripes.state(stripe).hasNothingPending)
    let copy = dropsCopy ? memory.remove(key, hash, at: moment) : nil
    // As of the store's entry: under other ages it would be back.
    if !dropsCopy && removal.plan.memory == .drop { memory.reclaim(key, hash, at: moment) }
    if let copy = copy.unowned, !isOfEntry {
      // A copy that counts no more.
      tellGone(key, hash, copy.version, .replaced, .memory)
    }
    noteCarriedOut(removal.pending, had: copy.unowned?.version ?? 0, key, hash, at: moment)
    removal.keepsCopy = isOfEntry && coherence != nil && removal.write.condition.isOfCaller
    if isOfEntry, let taken = copy.unowned {
      removal.hasTaken = coherence == nil || taken.version == pendingVersion
      if scope == .whole && coherence != nil {
        removal.write.copy = StoreWrite.Copy(version: taken.version, mark: taken.mark)
      } else if scope == .whole && taken.isDirty && !review.isUnderWay {
        // Beneath a dirty entry the store has nothing, once that is committed.
        removal.write.need = .ifPending
      }
    }
    if removal.keepsCopy {
      // The commit changes the number of the key's counter. Until `finish` has taken memory's copy,
      // no read drops it as one that counts no more.
      order.stripes.beginWrite(stripe)
    }
    order.submit(&removal.write, to: storage, at: moment, isInChange: true)
    // As a rule nothing is there: then nothing is left to finish.
    removal.isGiven = isOfEntry || removal.write.mayHaveRemoved
    return copy
  }

  /// The second half of a removal: waits for the commit. False: there was no entry.
  func finish(
    _ removal: SubmittedRemoval, in storage: any Storage, waits: Bool = true
  ) throws(Failure) -> Bool {
    if let failure = removal.failure { throw failure }
    guard removal.isGiven else { return false }
    order.complete(&removal.write, in: storage)
    let result = removal.write.result
    let condition = removal.write.condition
    var isThere = removal.hasTaken || result.existing != 0
    if condition.isOfCaller && !result.isUnmet && result.failure == nil,
      let key = removal.write.entry?.key
    {
      let copy = memory.remove(key, removal.write.hash, at: clock.moment(), condition: condition)
      noteTaken(copy.unowned, by: removal.pending)
      // Where processes share, memory may have lost the copy since the store's decision, of which
      // the listener has been told: the removal has found it all the same.
      isThere = copy != nil || coherence != nil && isThere
    }
    if removal.keepsCopy { order.stripes.endWrite(removal.stripe) }
    events.resolve(
      removal.pending, leftDisk: hasLeftDisk(removal.pending, removal.write, .removed),
      waits: waits)
    if let failure = result.failure { throw failure }
    if result.isUnmet { return false }
    if removal.plan.store == .removeIfThere { return result.existed }
    // The tiers may have evicted the entry since it was seen: the listener has been told of that.
    // Where processes share, another process may have removed the entry first. It cannot have
    // removed one that was being put when this removal was submitted; and the store does not know
    // that one by its copy, since the put's commit has changed the number of its counter.
    return isThere || result.existed
  }

  // MARK: touch

  /// Sets the times of an entry anew. False: there is none.
  func touch(
    _ key: Bytes, timeToLive: Int64, timeToIdle: Int64, in scope: Tiers
  ) throws(Failure) -> Bool {
    var new = NewTimes(timeToLive: timeToLive, timeToIdle: timeToIdle, at: clock.current)
    guard try touch(key, &new, in: scope) else { return false }
    if new.isEarly {
      new.renew(at: clock.current)
      _ = try touch(key, &new, in: scope)
    }
    return true
  }

  private func touch(_ key: Bytes, _ new: inout NewTimes, in scope: Tiers) throws(Failure) -> Bool {
    let hash = memory.hash(key)
    guard storage != nil else {
      // An entry may grow with its times, so that it or others are evicted.
      defer { events.deliver() }
      return try touchInMemory(key, hash, &new)
    }
    if scope == .memory {
      return try withStorage { (_) throws(Failure) in try touchInMemory(key, hash, &new) }
    }
    return try withStorage { (storage) throws(Failure) in
      coherence == nil
        ? try touchInStore(key, hash, &new, in: scope, storage)
        : try touchShared(key, hash, &new, in: scope, storage)
    }
  }

  /// A touch where processes do not share. Not of memory alone.
  private func touchInStore(
    _ key: Bytes, _ hash: UInt64, _ new: inout NewTimes, in scope: Tiers, _ storage: any Storage
  ) throws(Failure) -> Bool {
    let moment = new.moment
    let stripe = Stripes.index(of: hash)
    while true {
      order.stripes.lock(stripe)
      guard let done = try writeBack.touchDirty(key, hash, &new, in: scope, storage) else { break }
      if done { return true }
    }
    var isInMemory = false
    let named = try order.stripes.holding(stripe) { () throws(Failure) -> Block? in
      if scope == .whole, let named = try touchResident(key, hash, &new, storage) {
        isInMemory = true
        return named
      }
      // An entry that memory has staged since `touchDirty` was not on disk then.
      guard let stored = try storage.info(key, hash, at: moment) else { return nil }
      let named = try touchBlock(key, new.set(stored))
      if scope == .disk { dropCopy(key, hash, touchedAt: moment, storage) }
      return named
    }
    guard let entry = named.unowned else {
      order.stripes.unlock(stripe)
      return false
    }
    let result = commitTouch(entry, hash, at: moment, to: storage, isInChange: isInMemory)
    _ = consume named
    if let failure = result.failure { throw failure }
    // The store may have dropped its entry since the look, or have found it damaged.
    return isInMemory || result.existed
  }

  /// Touches memory's entry, for a touch that then goes to the store too, and returns the block for
  /// that. The stripe is held, and is in a change afterwards. Nil: memory has no entry.
  private func touchResident(
    _ key: Bytes, _ hash: UInt64, _ new: inout NewTimes, _ storage: any Storage
  ) throws(Failure) -> Block? {
    let moment = new.moment
    guard let resident = memory.peek(key, hash, at: moment) else { return nil }
    let touched = try new.touched(resident.unowned)
    let named = try touchBlock(key, touched.unowned.lifetime)
    // The touch is an access: it finds the store's entry too if that has been idle for too long
    // there. A later access would bring that entry back with its old times.
    storage.noteAccess(key, hash, at: moment.time)
    let stripe = Stripes.index(of: hash)
    order.stripes.beginChange(stripe)
    do throws(Failure) {
      _ = try memory.put(
        touched, hash, at: moment, condition: .version(resident.unowned.version))
    } catch {
      order.stripes.endChange(stripe)
      throw error
    }
    return named
  }

  /// A block with the key and the times, for a touch of the store's entry.
  func touchBlock(_ key: Bytes, _ times: Record) throws(Failure) -> Block {
    var record = Record()
    record.created = times.created
    record.expires = times.expires
    record.timeToIdle = times.timeToIdle
    return try Block.allocate(key: key, record: record)
  }

  /// Sets the times of the store's entry. The stripe is held, and let go. `isInChange`: as in
  /// `WriteOrder.give`.
  func commitTouch(
    _ named: UnownedBlock, _ hash: UInt64, at moment: Moment,
    if condition: WriteCondition = .always, to storage: any Storage, isInChange: Bool = false
  ) -> StoreWrite.Result {
    var write = StoreWrite(.touch, named, hash)
    write.condition = condition
    write.version = order.versions.draw()
    order.commit(&write, to: storage, at: moment, isInChange: isInChange)
    return write.result
  }

  /// Touches memory's entry. The record is part of an immutable block: a touch makes a new block
  /// with the same version, and begins again if another write has come between. `isInOrder`: the
  /// caller holds the stripe.
  func touchInMemory(
    _ key: Bytes, _ hash: UInt64, _ new: inout NewTimes, isInOrder: Bool = false
  ) throws(Failure) -> Bool {
    let moment = new.moment
    let stripe = Stripes.index(of: hash)
    // An entry becomes clean under its stripe, or leaves memory, or gets an object.
    let takesStripe = !isInOrder && (storage != nil || settings.objectCodec != nil)
    while true {
      if takesStripe { order.stripes.lock(stripe) }
      defer { if takesStripe { order.stripes.unlock(stripe) } }
      guard let block = memory.peek(key, hash, at: moment) else { return false }
      let result = try memory.put(
        try new.touched(block.unowned), hash, at: moment,
        condition: .version(block.unowned.version))
      if result.outcome == .stored || result.outcome == .tooLarge { return true }
    }
  }
}
