import CSystem
import Synchronization

/// What can wait, in slices: no slice holds the writer lock for long, and none stops a read.
extension DiskTier {
  private static let rowsInSlice = 128
  private static let accessesInSlice = 256
  private static let filesInSlice = 64
  /// How long access times gather, in nanoseconds.
  private static let flushPeriod: Int64 = 60_000_000_000

  func maintain(at moment: Moment) -> Bool {
    guard isUp || reopen() else { return false }
    list()
    let now = moment.time
    var hasMore = findIdle(at: now)
    hasMore = sweepOrphans() || hasMore

    let changes = Changes()
    var made: [Changes] = []
    writerLock.withLock {
      guard isUp, let manifest else {
        detach()
        hasMore = false
        return
      }
      latestTime = now
      lookAfterOthers()
      hasMore = keepFree(&made) || hasMore
      guard isUp else { return }
      do throws(Failure) {
        hasMore = try maintain(manifest, changes) || hasMore
      } catch {
        counters.failures.add()
        hasMore = false
      }
    }
    for one in made { tell(one) }
    tell(changes)
    announce()
    return hasMore
  }

  /// One transaction of what has to do with rows, then files. The writer lock is held.
  private func maintain(_ manifest: Manifest, _ changes: Changes) throws(Failure) -> Bool {
    // With no transaction under way, no commit would notice it.
    if manifest.hasMoved {
      goDown(Failure(.tierDown, "the directory was removed or replaced"))
      detach()
      return false
    }
    var hasMore = false
    let most = DiskTier.rowsInSlice
    if !sweep.hasBegun {
      sweep.hasBegun = true
      ManifestFile.removeOldDamaged(in: place)
      if durability == .process { manifest.syncMark(in: place) }
    }
    if queue.hasBars {
      let lifted = try attempt([])
      changes.tellAlso(lifted)
      hasMore = queue.hasBars
    }
    let rest = Changes()
    try transact(rest) { (manifest, meta) throws(Failure) in
      let expired = try self.sweepExpired(manifest, &meta, rest, most)
      let purged = try self.purge(manifest, &meta, rest, most)
      if purged == 0 && meta.dead > 0 {
        meta.dead = 0
        rest.isAny = true
      }
      let isPast = try self.redateNewest(manifest, rest, most)
      let isTight = try self.makeFit(
        manifest, &meta, rest, sparing: manifest.lastID, most: most)
      hasMore =
        hasMore || self.sweep.isBehind || expired >= most || purged >= most || isPast || isTight
    }
    changes.tellAlso(rest)

    let monotonic = Clock.read(CLOCK_MONOTONIC)
    if accesses.isHalfFull || monotonic - sweep.lastFlush >= DiskTier.flushPeriod {
      sweep.isFlushing = true
    }
    if sweep.isFlushing {
      sweep.isFlushing = try flushAccesses(DiskTier.accessesInSlice)
      sweep.lastFlush = monotonic
      hasMore = hasMore || sweep.isFlushing
    }
    guard isUp else { return false }

    hasMore = trash.empty(DiskTier.filesInSlice, in: place) || hasMore
    hasMore = trash.emptyOlder(DiskTier.filesInSlice, in: place) || hasMore
    // The first one is synced (see Manifest.checkpoint): early, while there is little to sync,
    // and here rather than in somebody's put.
    let due = manifest.isMarked ? min(2 << 20, SpaceLedger(limits).logBound / 2) : 512 << 10
    if manifest.logUsed >= due { checkpoint(manifest, .restarting) }
    guard isUp else { return false }
    // A few free pages are used again soon; many are given back.
    let pages = try manifest.pages
    if pages.free > 256 && pages.free > pages.all / 4 {
      hasMore = try manifest.vacuum(pages: 256) || hasMore
    }
    publish(manifest.meta)
    return hasMore
  }

  /// Tells of a change of state, once, with no lock held.
  func announce() {
    guard let observer else { return }
    let failure = stateLock.withLock { () -> Failure? in
      guard !isUp, !isTold else { return nil }
      isTold = true
      return reason
    }
    if let failure { observer.storeChanged(failure) }
  }

  // MARK: idle entries

  /// An entry can have been idle for too long at this time.
  func noteIdle(_ time: Int64) {
    if time != Record.never { idleFrom.min(time, ordering: .relaxed) }
  }

  /// Looks for entries that have been idle for too long: there is no index for it, so rows are
  /// read in slices, by a connection that reads, and only when the earliest that is known of
  /// can have come. True if there are more rows.
  private func findIdle(at now: Int64) -> Bool {
    guard maintenanceLock.tryLock() else { return false }
    defer { maintenanceLock.unlock() }
    if !idleScan.isUnderWay {
      // With a host's clock the host calls maintenance, and counts are exact.
      guard now >= idleFrom.load(ordering: .relaxed), clock.isHosts || idleScan.mayBegin
      else { return false }
      idleFrom.store(Record.never, ordering: .relaxed)
      idleScan.begin()
    }
    let ages = self.ages
    let generation = shared.generation
    // Apart from the scan, which the visit changes, too.
    var walk = idleScan.walk
    do throws(Failure) {
      try step(&walk, IdleScan.rowsInSlice) { (key, row) throws(Failure) in
        guard row.generation == generation else { return }
        var record = row.record
        record.accessed = max(record.accessed, accesses.latest(key))
        var end = record.endOfIdle(at: now, under: ages)
        // What is in the order of ids, the sweep finds.
        if record.expires == 0 && record.created < idleScan.latest {
          end = min(end, record.endOfLife(at: now, under: ages))
        }
        idleScan.latest = max(idleScan.latest, record.created)
        if now >= end {
          try idleScan.keys.append(key, record.accessed)
        } else {
          noteIdle(end)
        }
      }
    } catch {
      note(error)
      idleScan.end()
      idleFrom.store(Int64.min, ordering: .relaxed)
      return false
    }
    idleScan.walk = walk
    removeIdle(at: now)
    if walk.isDone { idleScan.end() }
    return !walk.isDone
  }

  /// Of the entries found, those that no tier above has read since. No lock is held while
  /// that one is asked.
  private func removeIdle(at now: Int64) {
    guard !idleScan.keys.isEmpty else { return }
    defer { idleScan.keys.removeAll() }
    if let observer {
      idleScan.keys.forEach { key, accessed in
        if let time = observer.lastAccess(of: key), time > accessed {
          accesses.note(key, hash.entry(key), at: time)
        }
      }
    }
    let changes = Changes()
    writerLock.withLock {
      guard isUp, manifest != nil else { return }
      latestTime = now
      do throws(Failure) {
        try transact(changes) { (manifest, meta) throws(Failure) in
          var failure: Failure?
          self.idleScan.keys.forEach { key, _ in
            guard failure == nil else { return }
            do throws(Failure) {
              guard let found = try manifest.find(key) else { return }
              if try !self.expire(found.id, manifest, &meta, changes) {
                // Read in the meantime.
                self.noteIdle(now)
              }
            } catch { failure = error }
          }
          if let failure { throw failure }
        }
      } catch { counters.failures.add() }
    }
    tell(changes)
  }

  // MARK: orphans

  /// A slice of the sweep, if one is under way. True if there is more.
  func sweepOrphans() -> Bool {
    // Neither listing nor reading rows needs the writers to stand still, but how far it has
    // come does; slices are small, and there is nothing to do after a clean end.
    writerLock.withLock {
      // A file that is held looks like an orphan.
      guard isUp, !orphans.isDone, trash.holds == 0 else { return false }
      do throws(Failure) {
        if let after = orphans.wantsRowsAfter {
          let last = try withReader {
            (reader) throws(Failure) in
            try reader.names(after: after, limit: OrphanSweep.rowsInSlice) { orphans.strike($0) }
          }
          if let last { orphans.noteRows(upTo: last) }
        } else {
          try orphans.step(in: place) { name in
            inFlight.contains(name) || mayBeOnItsWay(name)
          }
        }
      } catch {
        note(error)
        return false
      }
      if orphans.isDone { shared.owesSweep = false }
      return !orphans.isDone
    }
  }
}

/// A walk over all rows for idle ones. Under the tier's maintenance lock.
struct IdleScan: ~Copyable {
  static let rowsInSlice = 512

  private(set) var isUnderWay = false
  var walk = RowWalk()
  /// The latest `created` of the rows before.
  var latest = Int64.min
  var keys = KeyList()
  /// CLOCK_MONOTONIC.
  private var began: Int64 = 0
  private var next = Int64.min

  init() {}

  /// A walk that took long must not follow on the heels of the last one.
  var mayBegin: Bool { Clock.read(CLOCK_MONOTONIC) >= next }

  mutating func begin() {
    isUnderWay = true
    walk = RowWalk()
    latest = Int64.min
    began = Clock.read(CLOCK_MONOTONIC)
  }

  mutating func end() {
    isUnderWay = false
    let now = Clock.read(CLOCK_MONOTONIC)
    let took = now - began
    next = took < 10_000_000 ? now : now + 20 * took
  }
}
