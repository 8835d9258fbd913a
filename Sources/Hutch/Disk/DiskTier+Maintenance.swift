import CSystem
import Synchronization

/// Work that can wait, in slices: no slice holds the writer lock for long, and no slice stops a
/// read.
extension DiskTier {
  private static let rowsInSlice = 128
  private static let accessesInSlice = 256
  private static let filesInSlice = 64
  /// How long access times gather, in nanoseconds.
  private static let flushPeriod: Int64 = 60_000_000_000

  func maintain(at moment: Moment) -> Bool {
    guard isUp || reopen() else { return false }
    service.list(observer)
    var hasMore = idle.run(in: self, at: moment)
    hasMore = sweepOrphans() || hasMore

    writerLock.withLock {
      guard isUp, let manifest else {
        detach()
        hasMore = false
        return
      }
      latestTime = moment.time
      lookAfterOthers()
      hasMore = keepFree() || hasMore
      guard isUp else { return }
      do throws(Failure) {
        hasMore = try maintain(manifest) || hasMore
      } catch {
        counters.failures.add()
        hasMore = false
      }
    }
    tellState()
    return hasMore
  }

  /// One transaction for the work on rows, then the work on files. The writer lock is held.
  private func maintain(_ manifest: Manifest) throws(Failure) -> Bool {
    // With no transaction under way, no commit would notice it.
    if manifest.hasMoved {
      goDown(Failure(.tierDown, "the directory was removed or replaced"))
      detach()
      return false
    }
    var hasMore = false
    let most = DiskTier.rowsInSlice
    if !upkeep.hasBegun {
      upkeep.hasBegun = true
      ManifestFile.removeOldDamaged(in: place)
      if durability == .process { manifest.syncMark(in: place) }
    }
    if queue.hasBars {
      try attempt([])
      hasMore = queue.hasBars
    }
    try transact { (transaction: inout Transaction) throws(Failure) in
      let expired = try self.sweeper.sweepExpired(&transaction, most)
      let purged = try self.sweeper.purge(&transaction, most)
      let isPast = try self.sweeper.redateNewest(&transaction, most)
      let isTight = try self.evictor.makeFit(
        &transaction, &self.sweeper, sparing: transaction.manifest.lastID, most: most)
      hasMore =
        hasMore || self.sweeper.isBehind || expired >= most || purged >= most || isPast || isTight
    }

    let monotonic = Clock.read(CLOCK_MONOTONIC)
    if accesses.isHalfFull || monotonic - upkeep.lastFlush >= DiskTier.flushPeriod {
      upkeep.isFlushing = true
    }
    if upkeep.isFlushing {
      upkeep.isFlushing = try flushAccesses(DiskTier.accessesInSlice)
      upkeep.lastFlush = monotonic
      hasMore = hasMore || upkeep.isFlushing
    }
    guard isUp else { return false }

    hasMore = content.empty(DiskTier.filesInSlice, in: place) || hasMore
    hasMore = content.emptyOlder(DiskTier.filesInSlice, in: place) || hasMore
    // The first one is synced (see Manifest.checkpoint): early, while there is little to sync,
    // and here rather than in a put.
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
  func tellState() {
    guard let observer, let failure = service.takeUntold() else { return }
    observer.storeChanged(failure)
  }

  // MARK: orphans

  /// A slice of the sweep, if one is under way. True if there is more.
  func sweepOrphans() -> Bool {
    // Neither listing nor reading rows needs the writers to stand still, but how far it has
    // come does; slices are small, and there is nothing to do after a clean end.
    writerLock.withLock {
      guard isUp, content.maySweep else { return false }
      do throws(Failure) {
        if let after = content.orphans.wantsRowsAfter {
          let reached = try withReader { (reader) throws(Failure) in
            try reader.walk(after: after, limit: OrphanSweep.rowsInSlice) {
              (_, row) throws(Failure) in
              if let name = row.file { content.orphans.strike(name) }
            }
          }
          if let reached { content.orphans.noteRows(upTo: reached.isEnd ? nil : reached.last) }
        } else {
          try content.orphans.step(in: place) { name in
            content.isOnItsWay(name, in: place, isAlone: members.isAlone)
          }
        }
      } catch {
        note(error)
        return false
      }
      if content.orphans.isDone { shared.owesSweep = false }
      return !content.orphans.isDone
    }
  }
}

/// How far maintenance of this opening has come. Under the tier's writer lock.
struct Upkeep {
  /// True after the first maintenance.
  var hasBegun = false
  /// Whether access times are being written out.
  var isFlushing = false
  // CLOCK_MONOTONIC.

  /// When access times were last written out.
  var lastFlush = Clock.read(CLOCK_MONOTONIC)
}
