import CSystem
import Synchronization

/// Writes: prepare, submit, complete; the leader's transaction.
extension DiskTier {
  /// At most this many writes, and about this many bytes, in one transaction: who leads
  /// serves others for a moment, not for ever.
  private static let mostWrites = 128
  private static let mostBytes: Int64 = 4 << 20

  // MARK: steps

  func prepare(_ write: StorageWrite) {
    guard let entry = write.entry else { return }
    let queued = QueuedWrite(write, hash: queue.hash(entry.key))
    write.storage = queued
    guard write.kind == .put else { return }
    if !isUp { reopenIfDue() }

    if let file = write.file, file.isBlockEmpty || file.content?.isWhole ?? false {
      adopt(file, queued)
      return
    }
    queued.size = entry.size
    do throws(Failure) {
      if let codec = options.codec {
        queued.encoded = try codec.encode(Bytes(entry.value))
        queued.codec = codec.id
      }
      let stored = queued.stored
      let inFile = goesIntoFile(stored.count)
      guard isWithinLimits(queued, stored: stored.count, inFile: inFile) else { return }
      queued.checksum =
        entry.checksum != 0 && queued.codec == 0 ? entry.checksum : Checksum.xxh3(stored)
      if inFile { try writeContent(queued, stored, write.file?.suffix ?? FileSuffix()) }
    } catch {
      counters.failures.add()
      queued.refusal = error.status == .noSpace ? .noSpace : .failed
      queued.refusalFailure = error
    }
  }

  /// A put whose value is in a file already, or was refused on the way there.
  private func adopt(_ file: ValueFile, _ queued: QueuedWrite) {
    queued.hasValue = !file.isBlockEmpty
    queued.size = file.size
    guard let content = file.content, content.isWhole, file.refusal == .none else {
      if file.failure != nil { counters.failures.add() }
      queued.refusal = file.refusal == .none ? .failed : file.refusal
      queued.refusalFailure = file.failure
      return
    }
    queued.checksum = content.checksum
    queued.file = content.name
    queued.directory = content.directory
    if !isWithinLimits(queued, stored: file.size, inFile: true) { discardFile(of: queued) }
  }

  /// Sets the charge; false: the entry is refused for it.
  private func isWithinLimits(_ queued: QueuedWrite, stored: Int, inFile: Bool) -> Bool {
    let entry = queued.entry!
    queued.charge = Charge.of(
      key: entry.keySize, value: stored, extended: entry.extendedSize, inFile: inFile)
    guard
      UInt64(queued.charge) > limits.largestCharge
        || (!inFile && stored > DiskTier.largestInline)
    else { return true }
    queued.refusal = .tooLarge
    return false
  }

  /// SQLite takes rows of up to 1,000,000,000 bytes (SQLITE_MAX_LENGTH, as it comes).
  static let largestInline = 900_000_000

  func goesIntoFile(_ size: Int) -> Bool {
    switch StorageKind(rawValue: counters.storage.load(ordering: .relaxed)) {
    case .sqlite: false
    case .file: true
    default: size > min(options.inlineThreshold, DiskTier.largestInline)
    }
  }

  /// What a content file waits for before its row is committed.
  var syncing: ContentFiles.Syncing {
    switch options.durability {
    case .process: .nothing
    case .power: .bytes
    case .sync: .name
    }
  }

  private func writeContent(
    _ queued: QueuedWrite, _ value: Bytes, _ suffix: FileSuffix
  ) throws(Failure) {
    let (name, directory) = try newName(suffix)
    do throws(Failure) {
      do throws(Failure) {
        try ContentFiles.write(value, name, in: directory, syncing)
      } catch {
        guard error.status == .noSpace else { throw error }
        makeRoom(Int64(value.count))
        try ContentFiles.write(value, name, in: directory, syncing)
      }
    } catch {
      land(name)
      throw error
    }
    queued.file = name
    queued.directory = directory
  }

  /// The write's content file will have no row.
  private func discardFile(of queued: QueuedWrite) {
    guard let name = queued.file, let directory = queued.directory, !queued.hasLanded else {
      return
    }
    ContentFiles.discard(name, in: directory)
    land(name)
    // Its name stays: a read that has found the write in the queue may be looking at it.
    queued.hasLanded = true
  }

  func submit(_ write: StorageWrite) {
    if isLeft { return }
    queue.submit(queued(write))
  }

  /// The store's part of a write, made if `prepare` was left out.
  private func queued(_ write: StorageWrite) -> QueuedWrite {
    if let storage = write.storage { return unsafeDowncast(storage, to: QueuedWrite.self) }
    let queued = QueuedWrite(write, hash: write.entry.map { queue.hash($0.key) } ?? 0)
    write.storage = queued
    return queued
  }

  func abandon(_ write: StorageWrite) {
    guard let storage = write.storage else { return }
    discardFile(of: unsafeDowncast(storage, to: QueuedWrite.self))
    write.storage = nil
  }

  func complete(_ write: StorageWrite) {
    let queued = queued(write)
    if isLeft { queued.failure = downFailure }
    while !isLeft && queue.waitOrLead(for: queued) { lead() }
    // The two refer to each other.
    write.storage = nil
    conclude(write, queued)
  }

  private func conclude(_ write: StorageWrite, _ queued: QueuedWrite) {
    let wasAnnounced = queued.replaced.map { !isExpired($0, queued.key, at: write.time) } ?? false
    write.existed = queued.existed || wasAnnounced
    write.failure = queued.failure ?? queued.refusalFailure
    if let name = queued.file {
      if queued.failure == nil && queued.refusal == .none && !write.isUnmet {
        land(name)
        queued.hasLanded = true
      } else {
        discardFile(of: queued)
      }
    }
    switch write.kind {
    case .put:
      if let failure = queued.failure {
        write.outcome = failure.status == .noSpace ? .noSpace : .failed
      } else {
        write.outcome = queued.refusal == .none ? .stored : queued.refusal
      }
      switch write.outcome {
      case .stored: counters.puts.add()
      case .tooLarge, .noSpace: counters.refusals.add()
      default: break
      }
    case .remove:
      if queued.failure == nil && queued.existed { counters.removals.add() }
    default:
      break
    }
  }

  // MARK: leading

  /// Commits what is queued, up to a bound, and hands the lead on.
  func lead() {
    let limits = self.limits
    // What one transaction writes it must not have to evict.
    queue.take(
      &batch,
      most: limits.count == 0
        ? DiskTier.mostWrites : min(DiskTier.mostWrites, Int(clamping: limits.count)),
      bytes: min(DiskTier.mostBytes, Int64(clamping: DiskTier.budget(limits.cost)) / 4))
    let done = writerLock.withLock { commit(batch) }
    let finished = batch
    batch = []
    queue.finish(finished)
    for changes in done { tell(changes) }
    announce()
  }

  /// No lock is held.
  func tell(_ changes: Changes) {
    guard changes.hasDropped, let observer else { return }
    changes.forEachDropped { key, version, _ in observer.storeDropped(key, version) }
  }

  /// Every write has its results when this returns. The writer lock is held.
  private func commit(_ batch: [QueuedWrite]) -> [Changes] {
    for write in batch {
      highestVersion = max(highestVersion, write.version)
      if let time = write.write?.time, time != 0 { latestTime = time }
    }
    guard isUp, manifest != nil else {
      detach()
      let failure = downFailure
      for write in batch {
        write.failure = failure
        // What comes back may be any directory, with any versions in it.
        write.barsAll()
      }
      return []
    }
    var done: [Changes] = []
    var bytes: Int64 = 0
    for write in batch { bytes += write.charge }
    let reserve = keepReserve(bytes)
    if let made = reserve.changes { done.append(made) }
    if reserve.isShort {
      refusePuts(batch, "less than min_free is free on the file system")
    } else if isLogFull {
      refusePuts(batch, "a reader keeps the manifest's log from being moved")
    }
    var failure = attempt(batch, &done)
    if let first = failure, first.status == .noSpace, isUp {
      done.append(makeRoomLocked(bytes + (1 << 20)))
      failure = attempt(batch, &done)
    }
    if failure != nil && batch.count > 1 && isUp {
      // It may be one write's doing: each by itself.
      for write in batch { write.failure = attempt([write], &done) }
    } else if let failure {
      for write in batch { write.failure = failure }
    }
    return done
  }

  private func refusePuts(_ batch: [QueuedWrite], _ words: StaticString) {
    for write in batch where write.kind == .put && write.refusal == .none {
      queue.refuse(write, .noSpace, Failure(.noSpace, words))
    }
  }

  /// Whether the log has reached its ceiling, and cannot be moved.
  private var isLogFull: Bool {
    guard let manifest, manifest.logUsed > DiskTier.logCeiling(limits.cost) else { return false }
    return !checkpoint(manifest, .restarting)
  }

  private func attempt(_ batch: [QueuedWrite], _ done: inout [Changes]) -> Failure? {
    guard isUp else { return downFailure }
    do throws(Failure) {
      done.append(try attempt(batch))
      return nil
    } catch {
      counters.failures.add()
      return error
    }
  }

  /// One transaction with these writes. Throws if it could not be committed; what became of
  /// a write that failed by itself is in the write.
  func attempt(_ batch: [QueuedWrite]) throws(Failure) -> Changes {
    let changes = Changes()
    var bars: [QueuedWrite] = []
    var barAll: UInt64 = 0
    if queue.hasBars { barAll = queue.collectBars(DiskTier.mostWrites, into: &bars) }
    try transact(changes, of: batch) { (manifest, meta) throws(Failure) in
      try self.lift(bars, barAll, manifest, &meta, changes)
      let newest = manifest.lastID
      for write in batch {
        write.failure = nil
        try self.carryOut(write, manifest, &meta, changes)
      }
      try self.makeFit(manifest, &meta, changes, sparing: newest)
    }
    if !bars.isEmpty || barAll != 0 { queue.settle(bars, barAll: barAll) }
    return changes
  }

  /// Begins a transaction, runs `body`, commits with the meta row as `body` leaves it, and does
  /// what is owed after a commit. If anything fails, nothing has happened. The writer lock is
  /// held, the tier is up. `batch`: the writes that `body` carries out.
  func transact(
    _ changes: Changes, of batch: [QueuedWrite] = [],
    _ body: (Manifest, inout Meta) throws(Failure) -> Void
  ) throws(Failure) {
    if shared != nil { try catchUp() }
    guard let manifest else { throw downFailure }
    do throws(Failure) {
      // Before files go: a read that missed one must not be shown its row again.
      defer { readers.noteCommit() }
      try manifest.begin()
      var meta = manifest.meta
      try body(manifest, &meta)
      if changes.isAny {
        meta.lastTime = shared == nil ? latestTime : max(latestTime, meta.lastTime)
        extendLease(&meta)
        shared?.willCommit()
        try manifest.commit(meta)
      } else {
        manifest.rollback()
      }
    } catch {
      manifest.rollback()
      // What it has removed is there again.
      manifest.emptyUpTo = 0
      sweep.ownUpTo = 0
      shared?.forgetTransaction()
      fail(error, manifest)
      throw error
    }
    // SQLite writes into a file that somebody has unlinked, and says OK.
    if manifest.hasMoved {
      shared?.forgetTransaction()
      goDown(Failure(.tierDown, "the directory was removed or replaced"))
      detach()
      throw downFailure
    }
    settle(manifest, changes, batch)
  }

  /// Whether an error means that the tier cannot go on.
  private func fail(_ failure: Failure, _ manifest: Manifest) {
    switch failure.status {
    case .corrupt:
      counters.damaged.add()
      goDown(failure)
    case .badDirectory:
      goDown(failure)
    default:
      if manifest.hasMoved { goDown(Failure(.tierDown, "the directory was removed")) }
    }
    if !isUp { detach() }
  }

  /// Versions are leased in blocks, so that none is handed out twice after a kill.
  private func extendLease(_ meta: inout Meta) {
    if highestVersion > meta.nextVersion &- DiskTier.versionLease / 2 {
      meta.nextVersion = highestVersion &+ DiskTier.versionLease
    }
  }

  /// What is owed after a commit: files that lost their rows go, the limit and the bound on
  /// the log hold again, the numbers are shown.
  private func settle(_ manifest: Manifest, _ changes: Changes, _ batch: [QueuedWrite]) {
    if changes.hasDropped, let observer {
      changes.forEachDropped { observer.storeDrops($0, $1, $2) }
    }
    counters.evictions.add(changes.evictions)
    counters.expirations.add(changes.expirations)
    for file in changes.files.elements { trash.add(file, in: place) }
    generation.store(manifest.meta.generation, ordering: .releasing)
    noteMarks(batch)
    shared?.ended()
    holdLimit(manifest)
    publish(manifest.meta)
    endSharing()
  }

  /// Brings trash and log down to what the limit leaves them.
  func holdLimit(_ manifest: Manifest) {
    let limit = limits.cost
    let cost = limit == 0 ? Int64.max : Int64(clamping: limit)
    // As much for each of those who share.
    let others = Int64(max(1, shared?.members ?? 1)) - 1
    let rows = manifest.meta.bytes + manifest.meta.dead + trash.bytes * others
    if rows + Int64(manifest.log) + trash.bytes > cost {
      let room = max(0, cost - rows - Int64(manifest.log))
      while trash.bytes > room, trash.empty(64, to: room, in: place) {}
    }
    let bound = DiskTier.logBound(limit)
    if rows + Int64(manifest.log) + trash.bytes > cost || manifest.log > bound {
      moveLog(manifest, .truncating)
    } else if manifest.logUsed >= logToMove(bound) {
      moveLog(manifest, .restarting)
    }
  }

  /// A checkpoint that a commit owes. A reader that stays, such as a check of everything or another
  /// program's, keeps it from its end: then it is tried again after a pause, longer each time, and
  /// not with every commit.
  private func moveLog(_ manifest: Manifest, _ kind: Manifest.Checkpoint) {
    if logPause.length != 0, Clock.read(CLOCK_MONOTONIC) < logPause.end { return }
    if checkpoint(manifest, kind) {
      logPause = (0, 0)
    } else {
      let length = min(max(1_000_000, 2 * logPause.length), 250_000_000)
      logPause = (length, Clock.read(CLOCK_MONOTONIC) + length)
    }
  }

  /// False: a reader was in the way, or it failed.
  @discardableResult
  func checkpoint(_ manifest: Manifest, _ kind: Manifest.Checkpoint) -> Bool {
    // Beside another process's commit it would spoil the database.
    guard directoryLock?.mayWrite ?? true else { return false }
    do throws(Failure) {
      return try manifest.checkpoint(kind, past: readers)
    } catch {
      counters.failures.add()
      fail(error, manifest)
      return false
    }
  }

  func publish(_ meta: Meta) {
    counters.count.store(UInt64(meta.count), ordering: .relaxed)
    let log = manifest?.log ?? 0
    let removed = UInt64(max(0, trash.bytes + trash.heldBytes))
    counters.trash.store(removed, ordering: .relaxed)
    counters.cost.store(
      UInt64(max(0, meta.bytes + meta.dead)) + removed + UInt64(log), ordering: .relaxed)
    if let shared, let manifest { shared.publish(meta, manifest) }
  }

  // MARK: one write within the transaction

  /// Removes what is barred, and so ends the bars if the transaction is committed.
  private func lift(
    _ bars: [QueuedWrite], _ barAll: UInt64, _ manifest: Manifest, _ meta: inout Meta,
    _ changes: Changes
  ) throws(Failure) {
    if barAll != 0 { clear(&meta, changes) }
    for bar in bars { try remove(bar, upTo: bar.version, manifest, &meta, changes) }
  }

  /// Removes the row of a barred key if it is not a later write's.
  private func remove(
    _ write: QueuedWrite, upTo version: UInt64, _ manifest: Manifest, _ meta: inout Meta,
    _ changes: Changes
  ) throws(Failure) {
    guard let found = try manifest.find(write.key), found.record.version <= version else {
      return
    }
    try shared?.touch(write.key)
    try delete(found, manifest, &meta, changes)
    try changes.drop(write.key, found.record.version, write.isOfDamage ? .damaged : .barred)
  }

  private func clear(_ meta: inout Meta, _ changes: Changes) {
    changes.isAny = true
    shared?.touchAll()
    meta.generation += 1
    meta.dead = min(Meta.largest - 1, meta.dead + meta.bytes)
    meta.count = 0
    meta.bytes = 0
  }

  private func carryOut(
    _ write: QueuedWrite, _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes
  ) throws(Failure) {
    let old = write.entry == nil ? nil : try manifest.find(write.key)
    if let shared, let entry = write.entry {
      // Even, but for what this transaction has done itself.
      write.write?.markBefore = shared.counters.mark(shared.hash.entry(entry.key)) & ~1
      guard try holds(write, old, meta) else { return }
      try shared.touch(entry.key, isForAll: write.isUndecided)
    }
    switch write.kind {
    case .put, .remove:
      write.existed = old != nil && isAlive(old!, write.key, meta)
      if write.kind == .put && write.refusal == .none {
        if let directory = write.directory, directory !== place {
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
      write.existed = meta.count > 0
      clear(&meta, changes)
    case nil:
      break
    }
  }

  private func put(
    _ write: QueuedWrite, replacing old: Found?, _ manifest: Manifest, _ meta: inout Meta,
    _ changes: Changes
  ) throws(Failure) {
    let entry = write.entry!
    let salt = Seal.salt(
      key: entry.key, version: entry.version, generation: meta.generation,
      extended: Bytes(entry.extendedData))
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
    guard let record = write.entry?.record, record.expires == 0, let time = write.write?.time,
      Record.difference(time, record.created) > 1_000_000_000
    else { return }
    meta.mayIdle = true
    noteIdle(record.endOfLife(at: record.created, under: ages))
  }

  /// Deletes a row; its content file goes when the transaction is committed.
  func delete(
    _ found: Found, _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes
  ) throws(Failure) {
    try manifest.delete(found)
    try lose(found, &meta, changes)
  }

  private func lose(_ found: Found, _ meta: inout Meta, _ changes: Changes) throws(Failure) {
    if let file = found.file { try changes.lose(file, size: found.record.size) }
    meta.subtract(charge: found.charge, generation: found.generation)
    changes.isAny = true
  }

  private func touch(
    _ write: QueuedWrite, _ found: Found?, _ manifest: Manifest, _ meta: inout Meta,
    _ changes: Changes
  ) throws(Failure) {
    write.existed = false
    guard let found else { return }
    if let barred = write.barredBase, found.record.version <= barred {
      try delete(found, manifest, &meta, changes)
      return
    }
    guard isAlive(found, write.key, meta), let record = write.write?.record else { return }
    try manifest.touch(found, record, accessed: max(record.accessed, record.created))
    write.existed = true
    changes.isAny = true
    noteIdle(record, &meta)
  }

  private func noteIdle(_ record: Record, _ meta: inout Meta) {
    if record.timeToIdle != 0 && record.timeToIdle != Record.never { meta.mayIdle = true }
    noteIdle(record.endOfIdle(at: record.created, under: ages))
  }

  /// Whether a reader would find the entry of this row, at the time of the last write.
  func isAlive(_ found: Found, _ key: Bytes, _ meta: Meta) -> Bool {
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

  // MARK: access times

  /// Writes gathered access times into their rows, in a transaction. True if there are more.
  func flushAccesses(_ limit: Int) throws(Failure) -> Bool {
    guard !accesses.isEmpty else { return false }
    var hasMore = false
    let changes = Changes()
    changes.isAny = true
    // What fails is not tried again: a second round would not know where it was.
    defer { accesses.settle() }
    try transact(changes) { (manifest, _) throws(Failure) in
      hasMore = try self.accesses.drain(limit) { (key, time, uses) throws(Failure) in
        try manifest.noteAccess(key, at: time, uses: uses)
      }
    }
    return hasMore
  }

  func flush(at moment: Moment) throws(Failure) {
    if isLeft { throw downFailure }
    let barrier = QueuedWrite()
    queue.submit(barrier)
    while queue.waitOrLead(for: barrier) { lead() }
    if let failure = barrier.failure { throw failure }
    // Twice: what gathered while an earlier round was being written is the second one.
    for _ in 0..<2 {
      var hasMore = true
      while hasMore {
        try writerLock.withLock { () throws(Failure) in
          guard isUp else { throw downFailure }
          hasMore = try flushAccesses(256)
        }
      }
    }
  }
}
