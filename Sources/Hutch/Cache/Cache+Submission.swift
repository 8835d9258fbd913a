import Synchronization

/// A put in a cache with a store, by its plan: submitted under the key's stripe, then awaited.
extension Cache {
  /// A put, with its plan. Once the put has been submitted or refused, it has the result so far.
  struct SubmittedPut {
    /// The caller keeps the entry until the put is finished.
    let entry: UnownedBlock
    let hash: UInt64
    var result = PutResult()
    fileprivate(set) var plan: WritePlan
    fileprivate(set) var write: StoreWrite
    /// False: the store has not been given the write, since the put is refused or has failed.
    fileprivate var isGiven = false
    fileprivate(set) var pending: Events.Pending?
    /// The state of the stripe with the submitted write.
    fileprivate(set) var state: Stripes.State?
    /// Once the put is finished: it has to be submitted again (`Cache.carryOutDecision`).
    var looksAgain = false

    /// Whether the store decides, and memory follows.
    var isUndecided: Bool { write.condition.isOfCaller }
    /// Whether memory has carried out already what the store may refuse.
    var isAtOnce: Bool { write.condition.kind == .versionOrNone }

    @inline(__always)
    init(_ entry: UnownedBlock, _ hash: UInt64, _ plan: WritePlan) {
      self.entry = entry
      self.hash = hash
      self.plan = plan
      write = StoreWrite(.remove, entry, hash)
    }
  }

  /// The whole of a put. The caller is inside the gate and holds no lock.
  func put(
    _ entry: UnownedBlock, _ hash: UInt64, as plan: WritePlan, at moment: Moment,
    if condition: WriteCondition = .always, in scope: Tiers, by late: LateWrite? = nil,
    to storage: any Storage
  ) throws(Failure) -> PutResult {
    tellWillAdd(entry, hash, hasValue: plan.isValueInBlock, in: plan.tiers)
    while true {
      var put = SubmittedPut(entry, hash, plan)
      try submit(&put, at: moment, if: condition, in: scope, by: late, to: storage)
      finish(&put, in: storage)
      if !put.looksAgain { return put.result }
      // No reader has seen it: it comes after the write that it has met.
      entry.version = 0
    }
  }

  /// The first half of a put: everything but the wait for the commit. The caller owes `finish`,
  /// unless this call fails. The condition is about the entry that `scope` has. The listener has
  /// been told that the put will be made.
  func submit(
    _ put: inout SubmittedPut, at moment: Moment, if condition: WriteCondition = .always,
    in scope: Tiers, by late: LateWrite? = nil, to storage: any Storage
  ) throws(Failure) {
    let entry = put.entry
    let hash = put.hash
    let planned = put.plan
    // The older value is read before the stripe is taken: the read may call the host's codec.
    let old = events.wants(.didRemove) ? (try? peek(entry.key, in: .whole)) ?? nil : nil
    let stripe = Stripes.index(of: hash)
    lock(
      stripe, for: &put,
      isDecided: planned.store == .remove && storeDecides(condition, in: scope), storage)
    // A fork may have come while the put was prepared.
    let isLeft = storeDecides(condition, in: scope)
    // Where processes share, the key's counter is read before the store is.
    let mark = coherence?.mark(hash)
    let refused = try order.stripes.holding(stripe) { () throws(Failure) -> PutResult? in
      if let refused = try refusal(condition, entry, hash, at: moment, in: scope, by: late) {
        return refused
      }
      if isLeft {
        try leave(
          condition, to: &put.write, entry.key, hash, at: moment, in: scope,
          isOfMemory: planned.store == .remove, storage)
      }
      return nil
    }
    if let refused {
      order.stripes.unlock(stripe)
      put.result = refused
      return
    }
    order.noteWrite(hash, by: late)
    // The version of a load was drawn when the load began.
    if entry.version == 0 { entry.version = order.versions.draw() }
    put.result.version = entry.version
    put.pending = postPending(
      entry.key, hash, adding: entry, hasValue: planned.isValueInBlock, replacing: old.unowned,
      at: moment)
    order.stripes.beginChange(stripe)
    // Memory carries out a put that the store decides after the commit (`carryOutDecision`).
    if !put.isUndecided {
      carryOut(&put, at: moment, put.isAtOnce ? mark : coherence?.mark(hash))
    }
    if condition.kind == .version && entry.created < moment.time {
      // An increment keeps `created`, and is an access.
      put.write.accessed = moment.time
      writeBack.noteIdle(entry, hash, moment.time, in: storage)
    }
    put.write.version = put.result.version
    if let stored = put.write.entry, stored.isEncoded { stored.version = put.result.version }
    put.isGiven = true
    put.state = order.submit(&put.write, to: storage, at: moment, isInChange: true)
  }

  /// Prepares a put, and takes its stripe. `isDecided`: see `lockDecided`.
  private func lock(
    _ stripe: Int, for put: inout SubmittedPut, isDecided: Bool, _ storage: any Storage
  ) {
    prepare(&put, storage)
    if isDecided { lockDecided(stripe, storage) } else { order.stripes.lock(stripe) }
    if put.plan.store == .removeIfThere && defersNothing {
      // A fork came after the plan was made. The listener has been told of this put already.
      order.stripes.unlock(stripe)
      put.plan = WritePlan(.through)
      prepare(&put, storage)
      order.stripes.lock(stripe)
    }
  }

  /// Makes the write of a value for the store. No lock is held.
  private func prepare(_ put: inout SubmittedPut, _ storage: any Storage) {
    guard put.plan.store == .put else { return }
    put.write = values.put(put.entry, put.hash, &put.plan.form, to: storage)
  }

  /// The result of a put that is not made, since its condition does not hold or a later write has
  /// overtaken it; nil: the put is made. The stripe is held.
  private func refusal(
    _ condition: WriteCondition, _ entry: UnownedBlock, _ hash: UInt64, at moment: Moment,
    in scope: Tiers, by late: LateWrite?
  ) throws(Failure) -> PutResult? {
    if let late, order.isOvertaken(late, tag: entry.extended.tag) { return .superseded }
    return try failedCondition(
      condition, entry.key, hash, at: moment, in: scope, inOrder: true)
  }

  /// Carries out in memory a put whose stripe is held and in a change, and sets which part is left
  /// to the store. `counter`: the key's, where processes share.
  private func carryOut(_ put: inout SubmittedPut, at moment: Moment, _ counter: UInt32?) {
    let wasDirty = carryOutInMemory(&put, at: moment, counter)
    switch put.plan.store {
    case .remove: put.result.disk = .removed
    case .removeIfThere:
      put.result.disk = put.result.memory == .stored ? .deferred : .removed
      put.write.need = put.pending == nil ? .ifHeld : .ifHeldOrUntold
      // The put of a dirty entry has removed the store's entry. That holds once its removal is
      // committed.
      if wasDirty && !review.isUnderWay { put.write.need = .ifPending }
    case .put, .nothing: break
    }
  }

  /// The part in memory of a put whose stripe is held, between `beginChange` and `endChange`.
  /// `counter`: the key's, where processes share. Returns whether the older entry was dirty.
  private func carryOutInMemory(
    _ put: inout SubmittedPut, at moment: Moment, _ counter: UInt32?
  ) -> Bool {
    let entry = put.entry
    guard put.plan.memory == .value else {
      dropFromMemory(&put, at: moment)
      return false
    }
    // An odd counter says that a commit is under way. The block comes after it, and counts when it
    // has ended.
    if let counter {
      entry.mark = counter & 1 == 0 || put.isAtOnce ? counter : counter &+ 1
    }
    if put.plan.store == .removeIfThere {
      writeBack.begin()
      entry.setDirty(true)
    }
    let wasDirty = putInMemory(&put, at: moment, isBacked: put.plan.store == .put)
    if put.plan.store == .removeIfThere && put.result.memory != .stored {
      // The limits have shrunk since the plan was made, or there is no memory for the entry. It
      // goes on disk as if memory had evicted it at once.
      writeBack.stage(entry, entry.created)
      tellLeft(entry, .evicted)
      put.result.memory = .stored
    }
    // A commit of an older write of the key may have changed the counter, and has not found the
    // block in memory (`MemoryTier.setMark`).
    var seen = counter
    while !put.isAtOnce, let old = seen, let now = coherence?.mark(put.hash), now != old {
      seen = now
      memory.setMark(entry.key, put.hash, committed: entry.version, (now &+ 1) & ~1)
    }
    return wasDirty
  }

  /// Puts the block into memory. If memory cannot store it, memory drops the older entry. Returns
  /// true if the older entry was dirty.
  @discardableResult
  func putInMemory(_ put: inout SubmittedPut, at moment: Moment, isBacked: Bool) -> Bool {
    do throws(Failure) {
      let stored = try memory.put(put.entry.retained(), put.hash, at: moment, isBacked: isBacked)
      noteCarriedOut(in: put, had: stored.existing, at: moment)
      put.result.memory = stored.outcome == .stored ? .stored : .tooLarge
      return stored.wasDirty
    } catch {
      dropFromMemory(&put, at: moment)
      put.result.memory = .failed
      return false
    }
  }

  private func noteCarriedOut(in put: borrowing SubmittedPut, had: UInt64, at moment: Moment) {
    // A read may have brought the entry of the put into memory before.
    noteCarriedOut(
      put.pending, had: had == put.result.version ? 0 : had,
      replaced: put.isUndecided ? put.write.result.existing : nil, put.entry.key, put.hash,
      at: moment)
  }

  /// Drops the entry that memory has of a put's key, if the entry meets the condition.
  func dropFromMemory(
    _ put: inout SubmittedPut, at moment: Moment, if condition: WriteCondition = .always
  ) {
    let copy = memory.remove(put.entry.key, put.hash, at: moment, condition: condition)
    noteCarriedOut(in: put, had: copy.unowned?.version ?? 0, at: moment)
    put.result.memory = put.plan.memory == .drop ? put.plan.outcome : .none
    if put.result.memory == .tooLarge { memory.noteRefusal(put.hash, hadEntry: copy != nil) }
  }

  /// The second half of a put: waits for the commit, and resolves the result and the event. A call
  /// that has submitted several puts finishes all of them before it waits for an event: the event
  /// of one put may come after that of another.
  func finish(_ put: inout SubmittedPut, in storage: any Storage, waits: Bool = true) {
    guard put.isGiven else {
      events.resolve(put.pending, leftDisk: false, storedIn: put.result.tiers, waits: waits)
      return
    }
    order.complete(&put.write, in: storage)
    let done = put.write.result
    if coherence != nil, let refused = carryOutDecision(on: &put, done) {
      put.result = refused
      events.resolve(put.pending, leftDisk: false, waits: waits)
      return
    }
    if put.plan.store == .put {
      put.result.disk = done.outcome
      if done.outcome != .stored {
        writeBack.noteRefusal(put.entry.key, put.hash, put.result.version)
      }
    } else if let failure = done.failure {
      put.result.disk = TierOutcome(of: failure)
    }
    put.result.setStatus(storageFailure: done.failure)
    switch put.result.disk {
    case .failed, .noSpace, .tooLarge: logUnstored(put.write.kind, done)
    default: break
    }
    events.resolve(
      put.pending, leftDisk: hasLeftDisk(put.pending, put.write, .replaced),
      storedIn: put.result.tiers, waits: waits)
  }

  @inline(never)
  func logUnstored(_ kind: StoreWrite.Kind, _ result: StoreWrite.Result) {
    let words: StaticString
    switch result.outcome {
    case _ where result.failure != nil && kind == .remove:
      words = "an older value was not removed from disk; it is barred there"
    case _ where result.failure != nil:
      words = "a value was not stored on disk; an older one of its key is barred there"
    case .noSpace: words = "a value was not stored on disk: there is no space"
    case .tooLarge: words = "a value was not stored on disk: it is too large"
    default: words = "a value was not stored on disk"
    }
    log(LogLine(.warning, words, result.failure))
  }
}
