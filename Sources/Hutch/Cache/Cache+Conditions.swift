/// Conditions of writes: hutch_add, hutch_replace, hutch_compare_and_swap, a pop, and the removal
/// of one version. A condition is about the entry that the scope of the call has.
///
/// THE LOOK (`failedCondition`). With the key's stripe held, the call looks into memory, into the
/// write-back queue and into the store, which shows the writes that this process has submitted. It
/// counts every clear that was submitted. A condition that does not hold then fails the call,
/// which has changed nothing. A condition that holds is decided as follows:
///
///   cache, scope                    decided by       reads of this process see the write
///   without a store, memory's view  the look (1)     from the look on
///   no other process may write      the look (2)     from the submission on
///   others may, value in the store  the store (3)    from the commit on; memory follows
///   others may, a removal           the store (3)    from the commit on; memory follows
///   others may, memory's value      the look, and    from the look on
///   alone                           the store (4)
///
///   (1) Without a store the look and the write are one step under the lock of the key's shard.
///   (2) A write of the key takes the stripe, so none comes between the look and the submission,
///       and the store carries out the writes of a key in the order of their submission. An entry
///       that waits to be written on eviction is found by the look, and makes way for the write
///       (`WriteOrder.give`). Only such a cache writes on eviction.
///   (3) The condition goes with the write, and with it the copy that memory has of the entry
///       (`StoreWrite.copy`): the store may have evicted the entry, or never had it. The copy is
///       the entry if its counter still has its number when the write is carried out. The commit
///       changes that number, also for this process, so of two writes that are decided by one copy
///       the second one fails. Nothing is changed in memory before the store has decided.
///   (4) No tier would have an entry between the commit and memory's part of it, so memory's part
///       comes first. The store is asked that it still has the entry of the look, or none. If
///       another process has put one meanwhile, that one stays, as if it had come later: hutch.h
///       promises no more. A write of this process that is not yet decided would be in the way
///       unseen; so the put first waits for those of its stripe (`lockDecided`).
///
/// A store that commits at once decides in `Storage.write`; then nothing is ever undecided.
extension Cache {
  // MARK: the look

  /// The result of a put whose condition does not hold; nil if it does. An expired entry
  /// counts as none.
  func failedCondition(
    _ condition: WriteCondition, _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers,
    inOrder: Bool
  ) throws(Failure) -> PutResult? {
    if condition.isAlways { return nil }
    return refusal(
      by: condition, try currentVersion(key, hash, at: moment, in: scope, inOrder: inOrder))
  }

  /// The result of a put whose condition does not hold for this version; nil if it does.
  func refusal(by condition: WriteCondition, _ version: UInt64) -> PutResult? {
    guard !condition.holds(for: version) else { return nil }
    var result = PutResult()
    result.status = condition.refusal(of: version)
    result.version = version
    return result
  }

  /// Carries out the clears that are under way for one key. A clear may be a task that waits, and a
  /// write whose condition is decided now comes after the clear. A copy that does not count now,
  /// for another write of its coherence counter is being committed, goes too: it could count again.
  func carryOutClears(of key: Bytes, _ hash: UInt64, at moment: Moment) {
    guard let clearing = order.clearing else { return }
    memory.clear(key, hash, upTo: clearing.all, backedUpTo: clearing.backed, at: moment)
  }

  /// The version of the existing entry; 0: there is none. `inOrder`: the caller holds the stripe.
  func currentVersion(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers, inOrder: Bool
  ) throws(Failure) -> UInt64 {
    let version = versionInMemory(key, hash, at: moment, in: scope)
    if version != 0 { return version }
    guard let storage, scope != .memory else { return 0 }
    assert(ThreadState.isInside)
    return try inOrder
      ? versionBelow(key, hash, at: moment, in: scope, storage).version
      : infoBelowMemory(key, hash, at: moment, in: scope, storage)?.record.version ?? 0
  }

  /// As above, if memory has the entry; else 0.
  func versionInMemory(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers
  ) -> UInt64 {
    carryOutClears(of: key, hash, at: moment)
    return scope == .disk ? 0 : memory.version(key, hash, at: moment)
  }

  // MARK: the store

  /// Whether the store has the last word on a condition.
  @inline(__always)
  func storeDecides(_ condition: WriteCondition, in scope: Tiers) -> Bool {
    coherence != nil && scope != .memory && condition.isOfCaller
  }

  /// Leaves to the store a condition that holds by the look. The stripe is held. `isOfMemory`: of a
  /// put that memory alone carries out.
  func leave(
    _ condition: WriteCondition, to write: inout StoreWrite, _ key: Bytes, _ hash: UInt64,
    at moment: Moment, in scope: Tiers, isOfMemory: Bool = false, _ storage: any Storage
  ) throws(Failure) {
    if isOfMemory {
      write.condition = .versionOrNone(
        try infoBelow(key, hash, at: moment, storage)?.version ?? 0)
      return
    }
    write.condition = condition
    guard scope == .whole else { return }
    write.copy = memory.copyDuringCommit(key, hash, at: moment).map {
      StoreWrite.Copy(version: $0.version, mark: $0.mark)
    }
  }

  /// Locks a stripe when the store has decided all of its writes.
  func lockDecided(_ stripe: Int, _ storage: any Storage) {
    order.stripes.lock(stripe)
    while let newest = order.newestUndecided(stripe) {
      order.stripes.unlock(stripe)
      storage.doOwedWork()
      order.stripes.lock(stripe)
      order.noteDecided(stripe, upTo: newest)
    }
  }

  /// Memory's part of a put that the store has decided, after the commit. Returns the result if the
  /// condition did not hold.
  func carryOutDecision(
    on put: inout SubmittedPut, _ done: StoreWrite.Result
  ) -> PutResult? {
    let entry = put.entry
    if put.isAtOnce {
      if done.isUnmet {
        _ = memory.remove(
          entry.key, put.hash, at: clock.moment(), condition: .version(put.result.version))
      }
      return nil
    }
    guard put.isUndecided, done.failure == nil, let submission = put.state else { return nil }
    let moment = clock.moment()
    if done.isUnmet {
      var refused = PutResult()
      refused.version = done.existing
      refused.status = put.write.condition.refusal(of: done.existing)
      // The copy may have counted under another number by then, and a later put on disk alone may
      // have taken its place since.
      put.looksAgain = done.existing == 0 && put.write.copy != nil
      return refused
    }
    let stripe = Stripes.index(of: put.hash)
    order.stripes.lock(stripe)
    defer { order.stripes.unlock(stripe) }
    if put.plan.memory == .value, order.stripes.state(stripe).hasNoWrite(since: submission) {
      // No other thread has the block any more.
      entry.mark = done.mark
      putInMemory(&put, at: moment, isBacked: done.outcome == .stored)
    } else {
      dropFromMemory(&put, at: moment, if: .upTo(put.result.version))
    }
    return nil
  }
}
