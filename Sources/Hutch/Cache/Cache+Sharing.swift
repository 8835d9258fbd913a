/// Where other processes write the directory too: what memory has counts only while its counter
/// says so (CoherenceCounters), and conditions are decided in the store's transaction.
///
/// What is read of memory or of the store is right at the moment of reading, so a condition that
/// does not hold then is refused at once. One that holds goes with the write, which nobody sees
/// before it is decided; memory follows afterwards.
///
/// An entry that memory alone has is this process's. A condition is decided on it here, and the
/// store has to have none still. It goes when another process writes a key of the same counter, or
/// this one under a condition.
///
/// A put into memory alone is decided at once, by what the store is seen to have: if another
/// process puts a value before the store's part of it is carried out, that one stays, as if it
/// had come later. What this process itself has still to decide is awaited first, by every put into
/// memory alone, for that commit would end its entry; so it is before an entry that memory alone
/// has is taken out of it by a pop.
extension Cache {
  /// What the store has to decide of a condition that holds as far as can be seen. The stripe is
  /// held.
  func conditionInStore(
    _ condition: WriteCondition, _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers,
    _ storage: any Storage
  ) throws(Failure) -> WriteCondition {
    guard scope != .memory else { return .always }
    switch condition {
    case .absent: return .absent
    case .present:
      return try infoBelow(key, hash, at: moment, storage) == nil ? .absent : .present
    case .version(let version):
      return try infoBelow(key, hash, at: moment, storage) == nil ? .absent : .version(version)
    // Loads are each process's own: what others write meanwhile overtakes no reservation here.
    default: return .always
    }
  }

  /// Locks a key's stripe when nothing of the key is undecided.
  func lockDecided(_ key: Bytes, _ hash: UInt64, _ storage: any Storage) {
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    while storage.isUndecided(key, hash) {
      order.stripes.unlock(stripe)
      storage.awaitDecision(key, hash)
      order.stripes.lock(stripe)
    }
  }

  /// After the commit: what memory does once the store has
  /// decided. Returns what is answered if the condition did not hold.
  func carryOutDecision(
    on put: inout SubmittedPut, _ done: StoreWrite.Result
  ) -> PutResult? {
    guard let submission = put.state else { return nil }
    let entry = put.entry
    guard !put.condition.isAlways else {
      if done.isUnmet {
        _ = memory.remove(
          entry.key, put.hash, at: clock.moment(), condition: .version(put.result.version))
      }
      return nil
    }
    if done.failure != nil { return nil }
    let moment = clock.moment()
    if done.isUnmet {
      var refused = PutResult()
      refused.version = done.existing
      // The store may have evicted what memory has still.
      refused.isUndecided =
        put.condition.holds(for: done.existing)
        || (done.existing == 0 && memory.info(entry.key, put.hash, at: moment) != nil)
      refused.status = put.condition.refusal(of: done.existing)
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

  // MARK: reads

  /// The store has none, whose counter was read before it. Memory may have an entry that counts
  /// until a commit has ended. `hasChanged`: one has, and everything is to be looked at again.
  func stillInMemory(
    _ key: Bytes, _ hash: UInt64, _ counter: UInt32, at moment: Moment, _ hasChanged: inout Bool
  ) -> Block? {
    if let block = memory.peekDuringCommit(key, hash, at: moment) { return block }
    hasChanged = coherence.unsafelyUnwrapped.mark(hash) != counter
    return nil
  }

  /// The store has none: what memory may have is stale.
  func dropStale(_ key: Bytes, _ hash: UInt64, _ state: Stripes.State, at moment: Moment) {
    let stripe = Stripes.index(of: hash)
    guard state.hasNothingPending, order.stripes.tryLock(stripe) else { return }
    if order.stripes.state(stripe) == state && memory.info(key, hash, at: moment) == nil {
      _ = memory.remove(key, hash, at: moment)
    }
    order.stripes.unlock(stripe)
  }

  // MARK: touch

  /// As `touch`, of the whole or of the store.
  func touchShared(
    _ key: Bytes, _ hash: UInt64, _ touched: (Record) -> Record, at moment: Moment,
    in scope: Tiers, _ storage: any Storage
  ) throws(Failure) -> Bool {
    let stripe = Stripes.index(of: hash)
    while true {
      order.stripes.lock(stripe)
      let stored: Record?
      // An entry that its reads in memory have kept alive is so in the store too.
      if scope == .whole, let accessed = memory.info(key, hash, at: moment)?.accessed {
        storage.noteAccess(key, hash, at: accessed)
      }
      do throws(Failure) {
        stored = try infoBelow(key, hash, at: moment, storage)
      } catch {
        order.stripes.unlock(stripe)
        throw error
      }
      guard let stored else {
        let isUndecided = storage.isUndecided(key, hash)
        order.stripes.unlock(stripe)
        if isUndecided {
          storage.awaitDecision(key, hash)
          continue
        }
        guard scope == .whole else { return false }
        return try touchInMemory(key, hash, touched, at: moment, storage)
      }
      let times = touched(stored)
      let named: Block
      do throws(Failure) {
        named = try touchBlock(key, times)
      } catch {
        order.stripes.unlock(stripe)
        throw error
      }
      // The commit ends the validity of memory's copy.
      let result = commitTouch(
        named.unowned, hash, at: moment, if: .version(stored.version), to: storage)
      _ = consume named
      if let failure = result.failure { throw failure }
      if !result.isUnmet {
        if result.existed && scope == .whole {
          touchCopy(key, stored.version, times, result.mark, hash, at: moment)
        }
        return result.existed
      }
      if result.existing == 0 && (scope == .disk || memory.info(key, hash, at: moment) == nil) {
        return false
      }
    }
  }

  /// Memory has the entry, with its times before a touch: it counts again, with the new ones.
  private func touchCopy(
    _ key: Bytes, _ version: UInt64, _ times: Record, _ mark: UInt32, _ hash: UInt64,
    at moment: Moment
  ) {
    guard mark & 1 == 0 else { return }
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    defer { order.stripes.unlock(stripe) }
    let copy = memory.peek(key, hash, at: moment)
    guard let copy = copy.unowned, copy.version == version else { return }
    do throws(Failure) {
      let stored = try storage?.info(key, hash, at: moment)
      _ = try memory.put(
        try copy.copied(with: times), hash, at: moment, condition: .version(version),
        isBacked: stored?.version == version)
    } catch {
      _ = memory.remove(key, hash, at: moment, condition: .version(version))
    }
  }
}
