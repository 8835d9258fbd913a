import Synchronization

/// A put in a cache with a store, by its plan: submitted under the key's stripe, then awaited.
extension Cache {
  /// A put: what it is to do, and, once it has been submitted or refused, what came of it so far.
  struct SubmittedPut {
    /// The caller keeps the entry until the put is finished.
    let entry: UnownedBlock
    let hash: UInt64
    var result = PutResult()
    fileprivate(set) var plan: WritePlan
    /// Nil: refused, or nothing to do for the store.
    fileprivate(set) var write: StoreWrite?
    fileprivate(set) var pending: Events.Pending?
    /// Where processes share: decided by the store; and of the stripe, once it is submitted.
    fileprivate(set) var condition = WriteCondition.always
    fileprivate(set) var state: Stripes.State?

    init(_ entry: UnownedBlock, _ hash: UInt64, _ plan: WritePlan) {
      self.entry = entry
      self.hash = hash
      self.plan = plan
    }
  }

  /// The whole of it, by a call that uses the store.
  func put(
    _ entry: UnownedBlock, _ hash: UInt64, as plan: WritePlan, at moment: Moment,
    if condition: WriteCondition = .always, in scope: Tiers, by late: LateWrite? = nil,
    to storage: any Storage
  ) throws(Failure) -> PutResult {
    var isTold = false
    while true {
      var put = SubmittedPut(entry, hash, plan)
      try submit(
        &put, at: moment, if: condition, in: scope, by: late, isTold: isTold, to: storage)
      finish(&put, in: storage)
      if !put.result.isUndecided { return put.result }
      isTold = true
      // No reader has seen it: it comes after the write that it has met.
      entry.version = 0
    }
  }

  /// The first half: everything but the wait for the commit. `finish` is owed, unless this fails.
  /// The condition is about what `scope` has. `isTold`: the listener knows already that the put
  /// will be made.
  func submit(
    _ put: inout SubmittedPut, at moment: Moment, if condition: WriteCondition = .always,
    in scope: Tiers, by late: LateWrite? = nil, isTold: Bool = false, to storage: any Storage
  ) throws(Failure) {
    let entry = put.entry
    let hash = put.hash
    let planned = put.plan
    if !isTold {
    tellWillAdd(entry, hash, hasValue: planned.isValueInBlock, in: planned.tiers)
    }
    // A value is read before the stripe is taken: a codec of the host's may be called.
    let old = events.wants(.didRemove) ? (try? peek(entry.key, in: .whole)) ?? nil : nil
    let stripe = Stripes.index(of: hash)
    prepare(&put, storage)
    lock(for: put, storage)
    if put.plan.store == .removeIfThere && isFamily {
      // There has been a fork, before which the host was told of this put.
      order.stripes.unlock(stripe)
      put.plan = WritePlan(.through)
      prepare(&put, storage)
      lock(for: put, storage)
    }
    // Where processes share: the key's counter, before the store is read.
    let mark = coherence?.mark(hash)
    do throws(Failure) {
      if let refused = try refusal(condition, entry, hash, at: moment, in: scope, by: late) {
        order.stripes.unlock(stripe)
        put.result = refused
        put.write = nil
        return
      }
      if coherence != nil {
        try decide(&put, condition, entry.key, hash, at: moment, in: scope, storage)
      }
    } catch {
      order.stripes.unlock(stripe)
      throw error
    }
    order.noteWrite(hash, by: late)
    // A load's was drawn when it began.
    if entry.version == 0 { entry.version = order.versions.draw() }
    put.result.version = entry.version
    put.pending = postPending(
      entry.key, hash, adding: entry, hasValue: planned.isValueInBlock, replacing: old.unowned,
      at: moment)
    order.stripes.beginPut(stripe)
    // What the store has to decide first, memory does afterwards.
    if put.condition.isAlways {
      let counter = put.write?.isShown ?? false ? mark : coherence?.mark(hash)
      let wasDirty = carryOutInMemory(&put, at: moment, counter)
      switch put.plan.store {
      case .remove: put.result.disk = .removed
      case .removeIfThere:
        put.result.disk = put.result.memory == .stored ? .deferred : .removed
        // Beneath a dirty entry the store has nothing, once that is committed.
        let isBare = wasDirty && !review.isUnderWay
        if isBare ? storage.isPending(entry.key, hash) : storage.mayHold(entry.key, hash) {
          put.write = StoreWrite(.remove, entry, hash)
        } else if !order.staged.isEmpty {
          _ = order.staged.makeWay(
            for: .remove, entry.key, hash, entry.version, at: moment, under: Ages())
        }
      case .put, .nothing: break
      }
    }
    if put.write == nil {
      order.stripes.endPut(stripe)
      order.stripes.unlock(stripe)
      put.result.conclude(nil)
      return
    }
    put.write!.version = put.result.version
    if let stored = put.write!.entry, stored.isEncoded { stored.version = put.result.version }
    put.state = order.submit(&put.write!, to: storage, at: moment, isInPut: true)
  }

  /// Makes what the store is given, but for what may turn out to be nothing. No lock is held.
  private func prepare(_ put: inout SubmittedPut, _ storage: any Storage) {
    if put.plan.store == .removeIfThere { return }
    put.write =
      put.plan.store == .put
      ? values.put(put.entry, put.hash, &put.plan.form, to: storage)
      : StoreWrite(.remove, put.entry, put.hash)
  }

  private func lock(for put: borrowing SubmittedPut, _ storage: any Storage) {
    if coherence != nil && put.plan.store == .remove {
      lockDecided(put.entry.key, put.hash, storage)
    } else {
      order.stripes.lock(Stripes.index(of: put.hash))
    }
  }

  /// Where processes share: leaves to the store what is its to decide. The stripe is held.
  private func decide(
    _ put: inout SubmittedPut, _ condition: WriteCondition, _ key: Bytes, _ hash: UInt64,
    at moment: Moment, in scope: Tiers, _ storage: any Storage
  ) throws(Failure) {
    guard put.write != nil else { return }
    if put.plan.store == .remove && scope != .memory && condition.isOfCaller {
      put.write!.condition = .versionOrNone(
        try infoBelow(key, hash, at: moment, storage)?.version ?? 0)
      put.write!.isShown = true
    } else {
      put.write!.condition = try conditionInStore(
        condition, key, hash, at: moment, in: scope, storage)
      if !put.write!.condition.isAlways { put.condition = condition }
    }
  }

  /// What a put answers that is not to be: its condition does not hold, or it has been overtaken.
  /// Nil: it is to be. The stripe is held.
  private func refusal(
    _ condition: WriteCondition, _ entry: UnownedBlock, _ hash: UInt64, at moment: Moment,
    in scope: Tiers, by late: LateWrite?
  ) throws(Failure) -> PutResult? {
    if let late, order.isOvertaken(late, tag: entry.extended.tag) { return .superseded }
    return try failedCondition(condition, entry.key, hash, at: moment, in: scope)
  }

  /// The part in memory of a put whose stripe is held, between `beginPut` and `endPut`.
  /// `counter`: the key's, where processes share. Returns whether the older entry was dirty.
  private func carryOutInMemory(
    _ put: inout SubmittedPut, at moment: Moment, _ counter: UInt32?
  ) -> Bool {
    let entry = put.entry
    guard put.plan.memory == .value else {
      dropFromMemory(&put, at: moment)
      return false
    }
    // During a commit: it counts when that has ended, for it comes later.
    if let counter {
      entry.mark = counter & 1 == 0 || put.write?.isShown ?? false ? counter : counter &+ 1
    }
    if put.plan.store == .removeIfThere {
      writeBack.begin()
      entry.setDirty(true)
    }
    return putInMemory(&put, at: moment, isBacked: put.plan.store == .put)
  }

  /// Where memory cannot store the value, the older one goes. Returns whether that was dirty.
  @discardableResult
  func putInMemory(_ put: inout SubmittedPut, at moment: Moment, isBacked: Bool) -> Bool {
    do throws(Failure) {
      let stored = try memory.put(put.entry.retained(), put.hash, at: moment, isBacked: isBacked)
      put.pending?.wasInMemory = stored.existing != 0
      put.result.memory = stored.outcome == .stored ? .stored : .tooLarge
      return stored.wasDirty
    } catch {
      dropFromMemory(&put, at: moment)
      put.result.memory = .failed
      return false
    }
  }

  /// What memory has of a put's key goes, if it meets the condition.
  func dropFromMemory(
    _ put: inout SubmittedPut, at moment: Moment, if condition: WriteCondition = .always
  ) {
    let copy = memory.remove(put.entry.key, put.hash, at: moment, condition: condition)
    put.pending?.wasInMemory = copy != nil
    put.result.memory = put.plan.memory == .drop ? put.plan.outcome : .none
  }

  /// The second half: waits for the commit, and resolves what came of the put. A call that has
  /// submitted several finishes all before it waits for the events of one: they may come after
  /// those of another.
  func finish(_ put: inout SubmittedPut, in storage: any Storage, waits: Bool = true) {
    guard put.write != nil else {
      events.resolve(put.pending, leftDisk: false, storedIn: put.result.tiers, waits: waits)
      return
    }
    order.complete(&put.write!, in: storage)
    let done = put.write!.result
    if coherence != nil, let refused = carryOutDecision(on: &put, done) {
      put.result = refused
      events.resolve(put.pending, leftDisk: false, waits: waits)
      return
    }
    if put.plan.store == .put {
      put.result.disk = done.outcome
      if done.outcome != .stored {
        memory.setBacked(put.entry.key, put.hash, version: put.result.version, false)
      }
    } else if done.failure != nil {
      put.result.disk = .failed
    }
    put.result.conclude(done.failure)
    switch put.result.disk {
    case .failed, .noSpace, .tooLarge: logUnstored(put.write!)
    default: break
    }
    events.resolve(
      put.pending, leftDisk: done.existed || done.failure != nil,
      storedIn: put.result.tiers, waits: waits)
  }

  @inline(never)
  private func logUnstored(_ write: StoreWrite) {
    let words: StaticString
    switch write.result.outcome {
    case _ where write.result.failure != nil && write.kind == .remove:
      words = "an older value was not removed from disk; it is barred there"
    case _ where write.result.failure != nil:
      words = "a value was not stored on disk; an older one of its key is barred there"
    case .noSpace: words = "a value was not stored on disk: there is no space"
    case .tooLarge: words = "a value was not stored on disk: it is too large"
    default: words = "a value was not stored on disk"
    }
    log(LogLine(.warning, words, write.result.failure))
  }
}
