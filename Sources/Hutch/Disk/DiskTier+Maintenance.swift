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
    var hasMore = committer.idle.run(in: self, at: moment)
    hasMore = sweepOrphans() || hasMore

    committer.withTurn {
      guard isUp, let manifest = committer.manifest else {
        committer.detach()
        hasMore = false
        return
      }
      committer.latestTime = moment.time
      lookAfterOthers()
      hasMore = committer.keepFree() || hasMore
      guard isUp else { return }
      do throws(Failure) {
        hasMore = try maintain(manifest) || hasMore
      } catch {
        counters.failures.add()
        hasMore = false
      }
    }
    service.tell(observer)
    return hasMore
  }

  /// One transaction for the work on rows, then the work on files. The writer lock is held.
  private func maintain(_ manifest: Manifest) throws(Failure) -> Bool {
    // With no transaction under way, no commit would notice it.
    if manifest.hasMoved {
      service.goDown(Failure(.tierDown, "the directory was removed or replaced"))
      committer.detach()
      return false
    }
    var hasMore = false
    let most = DiskTier.rowsInSlice
    if !committer.upkeep.hasBegun {
      committer.upkeep.hasBegun = true
      ManifestFile.removeOldDamaged(in: place)
    }
    if !committer.upkeep.hasSynced && !manifest.meta.isClean {
      committer.upkeep.hasSynced = true
      if committer.durability == .process { manifest.syncUnclean(in: place) }
    }
    if queue.hasBars {
      try committer.attempt([])
      hasMore = queue.hasBars
    }
    try committer.transact { (transaction: inout Transaction) throws(Failure) in
      let expired = try self.committer.sweeper.sweepExpired(&transaction, most)
      let purged = try self.committer.sweeper.purge(&transaction, most)
      let isPast = try self.committer.sweeper.redateNewest(&transaction, most)
      let isTight = try self.committer.evictor.makeFit(
        &transaction, &self.committer.sweeper, sparing: transaction.manifest.lastID,
        to: SpaceLedger(transaction.limits), most: most)
      hasMore =
        hasMore || committer.sweeper.isBehind || expired >= most || purged >= most || isPast
          || isTight
    }

    let monotonic = Clock.read(CLOCK_MONOTONIC)
    if accesses.isHalfFull || monotonic - committer.upkeep.lastFlush >= DiskTier.flushPeriod {
      committer.upkeep.isFlushing = true
    }
    if committer.upkeep.isFlushing {
      committer.upkeep.isFlushing = try committer.flushAccesses(DiskTier.accessesInSlice)
      committer.upkeep.lastFlush = monotonic
      hasMore = hasMore || committer.upkeep.isFlushing
    }
    guard isUp else { return false }

    hasMore = content.empty(DiskTier.filesInSlice, in: place) || hasMore
    hasMore = content.emptyOlder(DiskTier.filesInSlice, in: place) || hasMore
    // The first one is synced (see Manifest.checkpoint): early, while there is little to sync,
    // and here rather than in a put.
    let due = manifest.hasSynced ? min(2 << 20, SpaceLedger(limits).logBound / 2) : 512 << 10
    if manifest.logUsed >= due { committer.checkpoint(manifest, .restarting) }
    guard isUp else { return false }
    // A few free pages are used again soon; many are given back.
    let pages = try manifest.pages
    if pages.free > 256 && pages.free > pages.all / 4 {
      hasMore = try manifest.vacuum(pages: 256) || hasMore
    }
    committer.publish(manifest)
    return hasMore
  }

  // MARK: orphans

  /// A slice of the sweep, if one is under way. True if there is more.
  func sweepOrphans() -> Bool {
    // Neither listing nor reading rows needs the writers to stand still, but how far it has
    // come does; slices are small, and there is nothing to do after a clean end.
    committer.withTurn {
      guard isUp, content.maySweep else { return false }
      do throws(Failure) {
        if let after = content.orphans.wantsRowsAfter {
          var reached: RowScan.Reached?
          try withReader { (reader) throws(Failure) in
            reached = try reader.walk(after: after, limit: OrphanSweep.rowsInSlice) {
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
  /// True if clean = 0 has been synced.
  var hasSynced = false
  /// Whether access times are being written out.
  var isFlushing = false
  // CLOCK_MONOTONIC.

  /// When access times were last written out.
  var lastFlush = Clock.read(CLOCK_MONOTONIC)
}
