/// One write within the leader's transaction: the rows, the sums of the meta row, and what is owed
/// after the commit. The writer lock is held.
extension DiskTier {
  /// Removes what is barred, and so ends the bars if the transaction is committed.
  func lift(
    _ bars: borrowing LiftedBars, _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes
  ) throws(Failure) {
    if bars.all != 0 { clear(&meta, changes) }
    for index in 0..<bars.count { try remove(bars[index], manifest, &meta, changes) }
  }

  /// Removes the row of a barred key if it is not a later write's.
  private func remove(
    _ bar: Bars.Bar, _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes
  ) throws(Failure) {
    guard let found = try manifest.find(bar.key), found.record.version <= bar.version else {
      return
    }
    try shared.touch(bar.hash)
    try delete(found, manifest, &meta, changes)
    try changes.drop(bar.key, found.record.version, bar.isOfDamage ? .damaged : .barred)
  }

  func clear(_ meta: inout Meta, _ changes: Changes) {
    changes.isAny = true
    shared.touchAll()
    meta.generation += 1
    meta.dead = min(Meta.largest - 1, meta.dead + meta.bytes)
    meta.count = 0
    meta.bytes = 0
  }

  func carryOut(
    _ write: QueuedWrite, _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes
  ) throws(Failure) {
    let old = write.entry == nil ? nil : try manifest.find(write.key)
    if write.entry != nil {
      if mayHaveOthers {
        // Even, but for what this transaction has done itself.
        write.result.markBefore = shared.counters.mark(write.hash) & ~1
      }
      guard try holds(write, old, meta) else { return }
      try shared.touch(write.hash, isForAll: write.isUndecided)
    }
    switch write.kind {
    case .put, .remove:
      write.result.existed = old != nil && isAlive(old!, write.key, meta)
      if write.kind == .put && write.refusal == .none {
        if let file = write.file, file.directory !== place {
          // The tier has moved since the content file was written.
          throw downFailure
        }
        do throws(Failure) {
          return try put(write, replacing: old, manifest, &meta, changes)
        } catch {
          // An error of the statement alone: the entry is not stored, its neighbours are.
          guard manifest.isInTransaction, error.status != .noSpace, error.status != .corrupt,
            error.status != .io
          else { throw error }
          counters.failures.add()
          queue.refuse(write, error.status == .tooLarge ? .tooLarge : .failed, error)
        }
      }
      if let old { try delete(old, manifest, &meta, changes) }
    case .touch:
      try touch(write, old, manifest, &meta, changes)
    case .clear:
      write.result.existed = meta.count > 0
      clear(&meta, changes)
    case nil:
      break
    }
  }

  private func put(
    _ write: QueuedWrite, replacing old: Row?, _ manifest: Manifest, _ meta: inout Meta,
    _ changes: Changes
  ) throws(Failure) {
    let entry = write.entry!
    let salt = Seal.salt(
      key: entry.key, version: entry.version, generation: meta.generation,
      extended: Bytes(entry.extendedData), tagSize: entry.tagSize)
    try manifest.put(
      write, replacing: old, generation: meta.generation, seal: write.checksum ^ salt)
    if let old { try lose(old, &meta, changes) }
    changes.isAny = true
    meta.count += 1
    meta.bytes += write.charge
    noteIdle(entry.record, &meta)
    noteLate(write, &meta)
  }

  /// An entry that a tier above has kept until now is out of the order of ids: the walk for idle
  /// entries looks for these too.
  private func noteLate(_ write: QueuedWrite, _ meta: inout Meta) {
    guard let record = write.entry?.record, record.expires == 0,
      Record.difference(write.time, record.created) > 1_000_000_000
    else { return }
    meta.mayIdle = true
    idle.note(record.endOfLife(at: record.created, under: ages))
  }

  /// Deletes a row; its content file goes when the transaction is committed.
  func delete(
    _ found: Row, _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes
  ) throws(Failure) {
    try manifest.delete(found)
    try lose(found, &meta, changes)
  }

  private func lose(_ found: Row, _ meta: inout Meta, _ changes: Changes) throws(Failure) {
    if let file = found.file { try changes.lose(file, size: found.record.size) }
    meta.subtract(charge: found.charge, generation: found.generation)
    changes.isAny = true
  }

  private func touch(
    _ write: QueuedWrite, _ found: Row?, _ manifest: Manifest, _ meta: inout Meta,
    _ changes: Changes
  ) throws(Failure) {
    write.result.existed = false
    guard let found else { return }
    if let barred = write.barredBase, found.record.version <= barred {
      try delete(found, manifest, &meta, changes)
      return
    }
    guard isAlive(found, write.key, meta) else { return }
    let record = write.times
    try manifest.touch(found, record, accessed: max(record.accessed, record.created))
    write.result.existed = true
    changes.isAny = true
    noteIdle(record, &meta)
  }

  private func noteIdle(_ record: Record, _ meta: inout Meta) {
    if record.timeToIdle != 0 && record.timeToIdle != Record.never { meta.mayIdle = true }
    idle.note(record.endOfIdle(at: record.created, under: ages))
  }

  /// Whether a reader would find the entry of this row, at the time of the last write.
  func isAlive(_ found: Row, _ key: Bytes, _ meta: Meta) -> Bool {
    found.generation == meta.generation && !isExpired(found.record, key, at: latestTime)
  }

  /// With the accesses that have gathered and are not yet in the row.
  func isExpired(_ record: Record, _ key: Bytes, at now: Int64) -> Bool {
    let ages = self.ages
    guard record.isExpired(at: now, under: ages) else { return false }
    var record = record
    record.accessed = max(record.accessed, accesses.latest(key))
    return record.isExpired(at: now, under: ages)
  }
}
