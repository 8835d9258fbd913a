import CSQLite

/// One write within the leader's transaction: the rows, and through Transaction the sums of the
/// meta row and the work that the commit owes. The writer lock is held.
extension Committer {
  /// Removes the rows of barred keys. The bars end if the transaction is committed.
  func lift(
    _ bars: borrowing LiftedBars, _ transaction: inout Transaction
  ) throws(Failure) {
    if bars.all != 0 { clear(&transaction) }
    for index in 0..<bars.count { try remove(bars[index], &transaction) }
  }

  /// Removes the row of a barred key if it is not a later write's.
  private func remove(
    _ bar: Bars.Bar, _ transaction: inout Transaction
  ) throws(Failure) {
    var old = OldRow()
    try transaction.manifest.find(bar.key, into: &old)
    guard old.isThere, old.row.record.version <= bar.version else { return }
    try shared.touch(bar.hash)
    // Memory's own copy, if it has one, is what the write that failed has put, or newer. It counts
    // after the removal if it did before.
    let counter = shared.counters.mark(bar.hash)
    if counter & 1 != 0 { observer?.storeCommits(bar.key, bar.hash, 0, counter &+ 1) }
    try transaction.delete(old)
    try transaction.drop(bar.key, old.row.record.version, bar.isOfDamage ? .damaged : .barred)
  }

  private func clear(_ transaction: inout Transaction) {
    shared.touchAll()
    transaction.clear()
  }

  @inline(never)
  func carryOut(_ write: QueuedWrite, _ transaction: inout Transaction) throws(Failure) {
    var old = OldRow()
    write.expired = 0
    write.result.existed = false
    if write.entry != nil {
      let manifest = transaction.manifest
      var isHeld = false
      if write.kind == .touch {
        try manifest.find(write.key, into: &old)
      } else {
        // Whatever becomes of a put whose condition holds, the old row goes, or the put is in its
        // place.
        try manifest.delete(write.key, into: &old) { old in
          isHeld = holds(write, old.pointee, transaction)
          return isHeld && !transaction.staysInPlace(old.pointee.row, write)
        }
      }
      if write.kind == .touch || !old.isThere { isHeld = holds(write, old, transaction) }
      guard isHeld else { return }
      // A removal that was to find nothing leaves memory the entries that it alone has.
      if write.removesNothing && !old.isThere { return }
      try shared.touch(write.hash, isForAll: write.isUndecided)
    }
    switch write.kind {
    case .put, .remove:
      if old.isThere, !write.result.existed, old.row.generation == transaction.meta.generation {
        if write.kind == .put {
          write.expired = old.row.record.version
        } else {
          try transaction.drop(write.key, old.row.record.version, .expired)
        }
      }
      if write.kind == .put && write.refusal == .none {
        if let file = write.file, file.directory !== place {
          // The tier has moved since the content file was written.
          throw service.failure
        }
        do throws(Failure) {
          return try put(write, replacing: old, &transaction)
        } catch {
          // An error of the statement alone: the entry is not stored, its neighbours are.
          guard transaction.manifest.isInTransaction, error.status != .noSpace,
            error.status != .corrupt,
            error.status != .io || error.sqlite & 0xFF == SQLITE_CONSTRAINT
          else { throw error }
          counters.failures.add()
          queue.refuse(write, error.status == .tooLarge ? .tooLarge : .failed, error)
        }
      }
      try transaction.delete(old)
    case .touch:
      try touch(write, old, &transaction)
    case .clear:
      write.result.existed = transaction.meta.count > 0
      clear(&transaction)
    case nil:
      break
    }
  }

  /// Whether the condition of a write holds for the entry that is there; its version is in the
  /// write, and whether it is alive. That is asked once for a write: a read may revive the entry at
  /// any time.
  @inline(never)
  private func holds(
    _ write: QueuedWrite, _ old: OldRow, _ transaction: borrowing Transaction
  ) -> Bool {
    var version: UInt64 = 0
    let isAlive = old.isThere && transaction.isAlive(old.row, write.key)
    // An entry of a codec that is not here is none for this cache.
    if isAlive, options.knows(old.row.record.codec) {
      version = old.row.record.version
    }
    // The number is odd if this transaction has written the key before. A row that is older than
    // the copy is that of an older directory, which has come back in place of the one before.
    if let copy = write.copy, copy.version > version,
      shared.counters.mark(write.hash) == copy.mark
    {
      version = copy.version
    }
    write.result.existing = version
    write.result.isUnmet = !write.condition.holds(for: version)
    write.result.existed = isAlive && !write.result.isUnmet
    return !write.result.isUnmet
  }

  private func put(
    _ write: QueuedWrite, replacing old: OldRow, _ transaction: inout Transaction
  ) throws(Failure) {
    let entry = write.entry!
    let salt = Seal.salt(
      key: entry.key, version: entry.version, generation: transaction.meta.generation,
      extended: Bytes(entry.extendedData), tagSize: entry.tagSize)
    try transaction.put(write, replacing: old, seal: write.checksum ^ salt)
    noteEnd(entry.record, &transaction)
    noteOutOfOrder(write, &transaction)
  }

  /// An entry that a tier above has kept until now is out of the order of ids: the walk for idle
  /// entries looks for these too.
  private func noteOutOfOrder(_ write: QueuedWrite, _ transaction: inout Transaction) {
    guard let record = write.entry?.record, record.expires == 0,
      Record.difference(write.time, record.created) > mostDelay
    else { return }
    transaction.meta.mayIdle = true
    idle.note(record.endOfLife(at: record.created, under: transaction.ages))
  }

  private func touch(
    _ write: QueuedWrite, _ old: OldRow, _ transaction: inout Transaction
  ) throws(Failure) {
    guard old.isThere else { return }
    let found = old.row
    if let barred = write.barredBase, found.record.version <= barred {
      write.result.existed = false
      return try transaction.delete(found)
    }
    guard write.result.existed else { return }
    let record = write.times
    try transaction.touch(found, record)
    noteEnd(record, &transaction)
  }

  private func noteEnd(_ record: Record, _ transaction: inout Transaction) {
    if record.timeToIdle != 0 && record.timeToIdle != Record.never {
      transaction.meta.mayIdle = true
    }
    idle.note(record.endOfIdle(at: record.created, under: transaction.ages))
  }
}
