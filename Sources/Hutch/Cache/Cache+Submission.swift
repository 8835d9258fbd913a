import Synchronization

/// A put in a cache with a store, by its plan: submitted under the key's stripe, then awaited.
extension Cache {
  /// A put that has been submitted, or refused.
  struct SubmittedPut {
    var result = PutResult()
    fileprivate(set) var plan = WritePlan(.keep, .nothing)
    /// Nil: refused, or nothing to do for the store.
    fileprivate(set) var write: StoreWrite?
    /// Keeps the entry until the put is finished, if the caller does not.
    var block: BlockBox?
    fileprivate(set) var hash: UInt64 = 0
    /// The block with the value, where the write has an encoded one.
    fileprivate(set) var value: BlockBox?
    fileprivate(set) var pending: Events.Pending?
    /// Where processes share: decided by the store; and of the stripe, once it is submitted.
    fileprivate(set) var condition = WriteCondition.always
    fileprivate(set) var state: Stripes.State?

    init() {}

    init(_ refused: PutResult) { result = refused }

    init(failed failure: Failure) {
      result.status = failure.status
      result.reason = FailureBox(failure)
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
      let submitted = try submit(
        entry, hash, as: plan, at: moment, if: condition, in: scope, by: late, isTold: isTold,
        to: storage)
      isTold = true
      let result = finish(submitted, in: storage)
      if !result.isUndecided { return result }
      // Nobody has seen it: it comes after what it has met.
      entry.version = 0
    }
  }

  /// The first half: everything but the wait for the commit. `finish` is owed. The condition is
  /// about what `scope` has. `isTold`: the listener knows already that the put will be made.
  func submit(
    _ entry: UnownedBlock, _ hash: UInt64, as planned: WritePlan, at moment: Moment,
    if condition: WriteCondition = .always, in scope: Tiers, by late: LateWrite? = nil,
    isTold: Bool = false, to storage: any Storage
  ) throws(Failure) -> SubmittedPut {
    var put = SubmittedPut()
    put.plan = planned
    put.hash = hash
    if !isTold {
      tellWillAdd(entry, hash, hasValue: planned.isValueInBlock, in: planned.tiers)
    }
    // A value is read before the stripe is taken: a codec of the host's may be called.
    let old = events.wants(.didRemove) ? (try? peek(entry.key, in: .whole)) ?? nil : nil
    let stripe = Stripes.index(of: hash)
    prepare(&put, entry, storage)
    lock(for: put, entry.key, storage)
    if put.plan.store == .removeIfThere && isFamily {
      // There has been a fork, before which the host was told of this put.
      order.stripes.unlock(stripe)
      put.plan = WritePlan(.through)
      prepare(&put, entry, storage)
      lock(for: put, entry.key, storage)
    }
    // Where processes share: the key's counter, before the store is read.
    let mark = coherence?.mark(hash)
    do throws(Failure) {
      if let refused = try refusal(condition, entry, hash, at: moment, in: scope, by: late) {
        order.stripes.unlock(stripe)
        return SubmittedPut(refused)
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
      let wasDirty = carryOutInMemory(&put, entry, at: moment, counter)
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
      return put
    }
    put.write!.version = put.result.version
    if let stored = put.write!.entry, stored.isEncoded { stored.version = put.result.version }
    put.state = order.submit(&put.write!, to: storage, at: moment, isInPut: true)
    return put
  }

  /// Makes what the store is given, but for what may turn out to be nothing. No lock is held.
  private func prepare(_ put: inout SubmittedPut, _ entry: UnownedBlock, _ storage: any Storage) {
    if put.plan.store == .removeIfThere { return }
    guard put.plan.store == .put else {
      put.write = StoreWrite(.remove, entry, put.hash)
      return
    }
    let write = values.put(entry, put.hash, put.plan.form, to: storage)
    put.write = write
    put.value = write.entry?.isEncoded ?? false ? BlockBox(entry.retained()) : nil
  }

  private func lock(for put: SubmittedPut, _ key: Bytes, _ storage: any Storage) {
    if coherence != nil && put.plan.store == .remove {
      lockDecided(key, put.hash, storage)
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
    _ put: inout SubmittedPut, _ entry: UnownedBlock, at moment: Moment, _ counter: UInt32?
  ) -> Bool {
    guard put.plan.memory == .value else {
      dropFromMemory(&put, entry.key, at: moment)
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
    return putInMemory(&put, entry, at: moment, isBacked: put.plan.store == .put)
  }

  /// Where memory cannot store the value, the older one goes. Returns whether that was dirty.
  @discardableResult
  func putInMemory(
    _ put: inout SubmittedPut, _ entry: UnownedBlock, at moment: Moment, isBacked: Bool
  ) -> Bool {
    do throws(Failure) {
      let stored = try memory.put(entry.retained(), put.hash, at: moment, isBacked: isBacked)
      put.pending?.wasInMemory = stored.existing != 0
      put.result.memory = stored.outcome == .stored ? .stored : .tooLarge
      return stored.wasDirty
    } catch {
      dropFromMemory(&put, entry.key, at: moment)
      put.result.memory = .failed
      return false
    }
  }

  /// What memory has of a put's key goes, if it meets the condition.
  func dropFromMemory(
    _ put: inout SubmittedPut, _ key: Bytes, at moment: Moment,
    if condition: WriteCondition = .always
  ) {
    let wasThere = memory.remove(key, put.hash, at: moment, condition: condition) != nil
    put.pending?.wasInMemory = wasThere
    put.result.memory = put.plan.memory == .drop ? put.plan.outcome : .none
  }

  /// The second half: waits for the commit, and resolves what came of the put. A call that has
  /// submitted several finishes all before it waits for the events of one: they may come after
  /// those of another.
  func finish(
    _ submitted: consuming SubmittedPut, in storage: any Storage, waits: Bool = true
  ) -> PutResult {
    var put = submitted
    guard var write = put.write.take() else {
      events.resolve(put.pending, leftDisk: false, storedIn: put.result.tiers, waits: waits)
      return put.result
    }
    order.complete(&write, in: storage)
    let refused = coherence == nil ? nil : carryOutDecision(on: &put, write)
    order.stripes.endWrite(Stripes.index(of: put.hash))
    if let refused {
      events.resolve(put.pending, leftDisk: false, waits: waits)
      return refused
    }
    if put.plan.store == .put {
      put.result.disk = write.result.outcome
      if write.result.outcome != .stored, let key = write.entry?.key {
        memory.setBacked(key, put.hash, version: put.result.version, false)
      }
    } else if write.result.failure != nil {
      put.result.disk = .failed
    }
    put.result.conclude(write.result.failure)
    switch put.result.disk {
    case .failed, .noSpace, .tooLarge: logUnstored(write)
    default: break
    }
    events.resolve(
      put.pending, leftDisk: write.result.existed || write.result.failure != nil,
      storedIn: put.result.tiers, waits: waits)
    return put.result
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
