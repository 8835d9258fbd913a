import CSystem
import Synchronization

/// The leader's transactions: the queued writes are committed together, and the work that a commit
/// owes is done.
extension Committer {
  /// At most this many writes, and about this many bytes, in one transaction: a leader
  /// serves other threads for a moment, not for ever.
  private static let mostWrites = 128
  private static let mostBytes: Int64 = 4 << 20

  /// Commits queued writes, up to a bound, and hands the lead on.
  func lead() {
    let limits = self.limits
    // A transaction must not have to evict its own writes.
    queue.take(
      &batch,
      most: limits.count == 0
        ? Committer.mostWrites : min(Committer.mostWrites, Int(clamping: limits.count)),
      bytes: min(Committer.mostBytes, Int64(clamping: SpaceLedger(limits).budget) / 4))
    beginTurn()
    commit(batch)
    let dropped = endTurn()
    let finished = batch
    batch = []
    // Before the observer is told, which may write.
    queue.finish(finished)
    tell(dropped)
    service.tell(observer)
  }

  /// Every write has its results when this returns. The writer lock is held.
  private func commit(_ batch: [QueuedWrite]) {
    // A batch is decided by the time of its latest call, which may have been submitted before
    // others: what had expired when a call began is not found by it. Over batches time may go back,
    // as a host's clock may.
    var time = Int64.min
    for write in batch {
      highestVersion = max(highestVersion, write.version)
      time = max(time, write.time)
    }
    if time != .min { latestTime = time }
    do throws(Failure) {
      try checkService()
    } catch {
      for write in batch {
        write.result.failure = error
        // The directory that comes back may be any, with any versions in it.
        write.barsAll()
      }
      return
    }
    var bytes: Int64 = 0
    // A row is written to the log, and from there to the database.
    for write in batch { bytes += write.file == nil ? 2 * write.charge : write.charge }
    if keepReserve(bytes).isShort {
      refusePuts(batch, "too little is free on the file system")
    } else if bytes > 0 && isLogFull {
      refusePuts(batch, "a reader keeps the manifest's log from being moved")
    }
    var failure = attempt(counting: batch)
    if let first = failure, first.status == .noSpace, isUp {
      makeRoomLocked(bytes + (1 << 20))
      failure = attempt(counting: batch)
    }
    if failure != nil && batch.count > 1 && isUp {
      // One write may be the cause: each is tried by itself.
      for write in batch { write.result.failure = attempt(counting: [write]) }
    } else if let failure {
      for write in batch { write.result.failure = failure }
    }
    // Memory keeps the values of puts that have failed.
    if failure != nil { noteMarks(batch, ofFailed: true) }
  }

  private func refusePuts(_ batch: [QueuedWrite], _ words: StaticString) {
    for write in batch where write.kind == .put && write.refusal == .none {
      queue.refuse(write, .noSpace, Failure(.noSpace, words))
    }
  }

  private func attempt(counting batch: [QueuedWrite]) -> Failure? {
    guard isUp else { return service.failure }
    do throws(Failure) {
      try attempt(batch)
      return nil
    } catch {
      counters.failures.add()
      return error
    }
  }

  /// One transaction with these writes. Throws if it could not be committed. A write that
  /// failed by itself has its own outcome.
  func attempt(_ batch: [QueuedWrite]) throws(Failure) {
    let bars = queue.hasBars ? queue.liftBars(Committer.mostWrites) : LiftedBars()
    try transact(of: batch) { (transaction: inout Transaction) throws(Failure) in
      let before = transaction.meta
      try self.lift(bars, &transaction)
      for write in batch {
        write.result.failure = nil
        try self.carryOut(write, &transaction)
      }
      try self.evictor.makeFit(
        &transaction, &self.sweeper, sparing: transaction.oldestOwn - 1, after: before)
    }
    if !bars.isEmpty { queue.forget(bars) }
  }

  /// Begins a transaction, runs `body`, commits with the meta row as `body` leaves it, and does
  /// the work that a commit owes. If anything fails, nothing has happened. The writer lock is
  /// held, the tier is up. `batch`: the writes that `body` carries out.
  func transact(
    of batch: [QueuedWrite] = [], _ body: (inout Transaction) throws(Failure) -> Void
  ) throws(Failure) {
    try catchUp()
    guard let manifest else { throw service.failure }
    members.beginTransaction()
    defer { members.endTransaction() }
    var transaction = Transaction(manifest, at: latestTime, limits, policy, accesses, observer)
    do throws(Failure) {
      // Before files go: a read that missed a file must not see its row again.
      defer { readers.noteCommit() }
      try manifest.begin()
      try body(&transaction)
      // SQLite writes into a file that has been unlinked or moved, and says OK.
      if manifest.hasMoved { throw Committer.hasMoved }
      if transaction.hasChanged {
        transaction.meta.lastTime = max(latestTime, transaction.meta.lastTime)
        // The mark of a clean end stays until the first change.
        if transaction.meta.isClean && !transaction.isOfAccesses {
          let first = max(transaction.meta.nextVersion, highestVersion &+ 1)
          transaction.meta.markInUse(durability, from: first)
        }
        extendLease(&transaction.meta)
        shared.willCommit()
        dropsUntold.store(!transaction.dropped.isEmpty, ordering: .releasing)
        try manifest.commit(transaction.meta, sparingRow: transaction.sparesMeta)
      } else {
        manifest.rollback()
      }
    } catch {
      manifest.rollback()
      sweeper.noteRollback()
      shared.forgetTransaction()
      fail(error, manifest)
      throw error
    }
    afterCommit(transaction, batch)
  }

  /// Versions are leased in blocks, so that none is handed out twice after a kill.
  static let versionLease: UInt64 = 1 << 40

  private func extendLease(_ meta: inout Meta) {
    if highestVersion > meta.nextVersion &- Committer.versionLease / 2 {
      meta.nextVersion = highestVersion &+ Committer.versionLease
    }
  }

  /// The work that a commit owes: files that lost their rows go, the limit and the bound on the log
  /// hold again, the numbers are shown.
  private func afterCommit(_ transaction: borrowing Transaction, _ batch: [QueuedWrite]) {
    let manifest = transaction.manifest
    transaction.dropped.forEach { key, version, cause in
      observer?.storeDrops(key, version, cause)
      try? untold.append(key, version, cause)
    }
    // A commit that has failed leaves it true until the next one: writes then wait for nothing.
    dropsUntold.store(false, ordering: .releasing)
    for write in batch where write.expired != 0 {
      counters.expirations.add()
      observer?.storeDrops(write.key, write.expired, .expired)
    }
    counters.evictions.add(transaction.evictions)
    counters.expirations.add(transaction.expirations)
    content.remove(transaction.files, in: place)
    shared.generation = manifest.meta.generation
    noteMarks(batch)
    shared.ended()
    holdLimit(manifest)
    publish(manifest)
    members.noteLearnt()
  }

  // MARK: access times

  /// Writes gathered access times into their rows, in a transaction. True if there are more. No
  /// entry goes for them: where the file system is short of space, they are forgotten.
  func flushAccesses(_ limit: Int) throws(Failure) -> Bool {
    guard !accesses.isEmpty else { return false }
    // A page for each.
    guard hasRoom(Int64(min(limit, accesses.count)) << 12) else {
      accesses.forget()
      return false
    }
    var hasMore = false
    try transact { (transaction: inout Transaction) throws(Failure) in
      transaction.hasChanged = true
      transaction.isOfAccesses = true
      let manifest = transaction.manifest
      hasMore = try self.accesses.drain(limit) { (key, time, uses) throws(Failure) in
        try manifest.noteAccess(key, at: time, uses: uses)
      }
    }
    accesses.endRound()
    return hasMore
  }
}
