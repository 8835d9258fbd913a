/// Where other processes write the directory too: what memory has counts only while its counter
/// says so (CoherenceCounters), and conditions are decided in the store's transaction.
///
/// What is read of memory or of the store is right at the moment of reading, so a condition that
/// does not hold then is refused at once. One that holds goes with the write, which nobody sees
/// before it is decided; memory follows afterwards.
///
/// An entry that memory alone has is this process's. A condition is decided on it here, and the
/// store has to have none still. It goes when another process writes a key of the same counter.
extension Cache {
  /// What the store has to decide of a condition that holds as far as can be seen. The stripe is
  /// held.
  func conditionInStore(
    _ condition: PutCondition, _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Scope,
    _ storage: any Storage
  ) throws(Failure) -> WriteCondition {
    guard scope != .memory else { return .none }
    switch condition {
    // Loads are each process's own: what others wrote meanwhile sets no flag here.
    case .always, .unlessNewer, .unlessSet: return .none
    case .ifAbsent: return .absent
    // A load that nobody here has overtaken: where there was none, there must be none still.
    case .unlessSet: return try storage.info(key, at: moment) == nil ? .absent : .none
    case .ifPresent:
      return try storage.info(key, at: moment) == nil ? .absent : .present
    case .ifVersion(let version):
      return try storage.info(key, at: moment) == nil ? .absent : .version(version)
    }
  }

  /// What became of a put, in the first place in memory.
  struct Decision {
    /// Set: its condition did not hold.
    var refused: PutResult?
    var memory = TierOutcome.none
  }

  /// After the commit, before the stripe is told of its end. Nil: a put without condition.
  func decision(on put: SubmittedPut, _ write: StorageWrite) -> Decision? {
    guard let entry = write.entry, let submission = put.mark else { return nil }
    guard write.condition != .none else {
      if write.failure == nil && put.target != .disk {
        memory.setMark(entry.key, put.hash, version: put.result.version, write.mark)
      }
      return nil
    }
    var decision = Decision()
    if write.failure != nil { return decision }
    if write.isUnmet {
      var refused = PutResult()
      refused.version = write.existing
      refused.isUndecided = put.condition.holds(for: write.existing)
      refused.status = put.condition.refusal(of: write.existing)
      decision.refused = refused
      return decision
    }
    let moment = clock.moment()
    let stripe = Stripes.index(of: put.hash)
    stripes.lock(stripe)
    defer { stripes.unlock(stripe) }
    let outside = write.file?.memoryOutcome ?? .none
    if outside == .none && put.target != .disk && stripes.mark(stripe).hasNoWrite(since: submission) {
      // Nobody else has the block any more.
      entry.mark = write.mark
      do throws(Failure) {
        let stored = try memory.put(
          entry.retained(), put.hash, at: moment, isBacked: write.outcome == .stored)
        put.owed?.wasInMemory = stored.existing != 0
        decision.memory = stored.outcome == .stored ? .stored : .tooLarge
      } catch {
        let old = memory.remove(entry.key, put.hash, at: moment)
        put.owed?.wasInMemory = old != nil
        decision.memory = .failed
      }
    } else {
      let old = memory.remove(
        entry.key, put.hash, at: moment, condition: .upTo(put.result.version))
      put.owed?.wasInMemory = old != nil
      decision.memory = put.target == .disk ? .removed : outside
    }
    return decision
  }

  // MARK: reads

  /// The store has none: what memory may have is stale.
  func dropStale(_ key: Bytes, _ hash: UInt64, _ mark: Stripes.Mark, at moment: Moment) {
    let stripe = Stripes.index(of: hash)
    guard mark.isQuiet, stripes.tryLock(stripe) else { return }
    if stripes.mark(stripe) == mark && memory.info(key, hash, at: moment) == nil {
      _ = memory.remove(key, hash, at: moment)
    }
    stripes.unlock(stripe)
  }

  // MARK: touch

  /// As `touch`, of the whole or of the store.
  func touchShared(
    _ key: Bytes, _ hash: UInt64, timeToLive: Int64, timeToIdle: Int64, at moment: Moment,
    in scope: Scope, _ storage: any Storage
  ) throws(Failure) -> Bool {
    let stripe = Stripes.index(of: hash)
    while true {
      let write = StorageWrite(.touch, try Block.allocate(key: key, record: Record()))
      stripes.lock(stripe)
      let stored: Record?
      do throws(Failure) {
        stored = try storage.info(key, at: moment)
      } catch {
        stripes.unlock(stripe)
        throw error
      }
      guard let stored else {
        stripes.unlock(stripe)
        guard scope == .whole else { return false }
        return try touch(key, timeToLive: timeToLive, timeToIdle: timeToIdle, in: .memory)
      }
      write.record = stored.touched(
        at: moment.time, timeToLive: timeToLive, timeToIdle: timeToIdle)
      write.condition = .version(stored.version)
      write.version = versions.draw()
      // The next read finds it with its new times.
      _ = memory.remove(key, hash, at: moment)
      commit(write, to: storage, at: moment, unlocking: stripe)
      if let failure = write.failure { throw failure }
      if !write.isUnmet { return write.existed }
      if write.existing == 0 { return false }
    }
  }
}
