/// Caches whose directory other processes write too. An entry in memory counts only while its
/// counter says so (CoherenceCounters), and the store decides conditions in its transaction.
///
/// A look into memory or the store is right at the moment of the look, so a condition that does
/// not hold then is refused at once. A condition that holds goes with the write. No reader sees the
/// write before the store has decided it; then memory carries it out.
///
/// An entry that memory alone has belongs to this process. A condition on it is decided here, and
/// the store decides that it still has no entry of the key. The entry is dropped when another
/// process writes a key of the same counter, or when this process writes such a key under a
/// condition.
///
/// A put into memory alone is decided at once, by the entry that the store has at that moment. If
/// another process puts a value before the store has carried out its part of the put, that value
/// stays, as if it had come later. A put into memory alone first waits for the writes of its key
/// that this process has submitted and the store has not decided: their commit would drop the
/// entry. A pop of an entry that memory alone has waits for them too.
extension Cache {
  /// The condition that the store decides, for a condition that holds by a look into the tiers. The
  /// stripe is held.
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
    // A load belongs to its process: a write of another process overtakes no reservation here.
    default: return .always
    }
  }

  /// Locks a key's stripe when the store has decided all writes of the key.
  func lockDecided(_ key: Bytes, _ hash: UInt64, _ storage: any Storage) {
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    while storage.isUndecided(key, hash) {
      order.stripes.unlock(stripe)
      storage.awaitDecision(key, hash)
      order.stripes.lock(stripe)
    }
  }

  /// Memory's part of a put that the store has decided, after the commit. Returns the result if the
  /// condition did not hold.
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
      // The store may have evicted an entry that memory still has.
      refused.isUndecided =
        put.condition.holds(for: done.existing)
        || (done.existing == 0 && memory.has(entry.key, put.hash, at: moment))
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

  /// The store has no entry of the key, and the key's counter was read before the store. Memory may
  /// have an entry that counts until a commit ends. `hasChanged`: a commit has ended, and the
  /// caller looks again.
  func stillInMemory(
    _ key: Bytes, _ hash: UInt64, _ counter: UInt32, at moment: Moment, _ hasChanged: inout Bool
  ) -> Block? {
    if let block = memory.peekDuringCommit(key, hash, at: moment) { return block }
    hasChanged = coherence.unsafelyUnwrapped.mark(hash) != counter
    return nil
  }

  /// The store has no entry of the key, so an entry that memory may have is stale.
  func dropStale(_ key: Bytes, _ hash: UInt64, _ state: Stripes.State, at moment: Moment) {
    let stripe = Stripes.index(of: hash)
    guard state.hasNothingPending, order.stripes.tryLock(stripe) else { return }
    if order.stripes.state(stripe) == state && !memory.has(key, hash, at: moment) {
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
        if scope == .whole { carryOutClears(of: key, hash, at: moment) }
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
      if result.existing == 0 && (scope == .disk || !memory.has(key, hash, at: moment)) {
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
