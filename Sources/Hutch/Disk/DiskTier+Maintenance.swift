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
    var hasMore = idle.run(in: self, at: moment)
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
          let reached = try withReader { (reader) throws(Failure) in
            try reader.walk(after: after, limit: OrphanSweep.rowsInSlice) { (_, row) throws(Failure) in
              if let name = row.file { orphans.strike(name) }
            }
          }
          if let reached { orphans.noteRows(upTo: reached.isEnd ? nil : reached.last) }
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
