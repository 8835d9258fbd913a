import CSystem
import Synchronization

/// Space: the limit after each commit (SpaceLedger has the sum), and a file system that is full,
/// where room is made at the expense of the least recently used entries.
///
/// To delete rows takes room too: the log grows, and moving it into the database may grow that.
/// So a small reserve is kept, and made before it is needed; where another program has taken the
/// reserve, the tier tries once with the space that is free.
extension DiskTier {
  // MARK: the limit

  func setLimits(_ limits: TierLimits, at moment: Moment) throws(Failure) {
    writerLock.withLock {
      liveLimits.set(limits)
      hasLimits = true
    }
    if limits.ages.any { idle.note(Int64.min) }
    var hasMore = true
    while hasMore {
      try writerLock.withLock { () throws(Failure) in
        try checkService()
        latestTime = moment.time
        // The turn has set those of the manifest.
        liveLimits.set(limits)
        try transact { (transaction: inout Transaction) throws(Failure) in
          transaction.hasChanged = true
          try transaction.manifest.write(limits)
          hasMore = try self.evictor.makeFit(
            &transaction, &self.sweeper, sparing: transaction.manifest.lastID, most: 256)
        }
      }
    }
    while writerLock.withLock({ isUp && keepFree() }) {}
  }

  /// Brings trash and log down to the space that the limit leaves them, after a commit. The writer
  /// lock is held.
  func holdLimit(_ manifest: Manifest) {
    let ledger = SpaceLedger(limits)
    let room = ledger.roomForTrash(sum(manifest))
    content.emptyAll(to: room, in: place)
    if ledger.mustCutLog(sum(manifest)) {
      moveLog(manifest, .truncating)
    } else if manifest.logUsed >= ledger.logToMove(free: spaceLeft) {
      moveLog(manifest, .restarting)
    }
  }

  private func sum(_ manifest: Manifest) -> SpaceLedger.Sum {
    SpaceLedger.Sum(
      rows: manifest.meta.charges, trash: content.removedBytes,
      othersTrash: content.removedBytes * (Int64(max(1, shared.members)) - 1),
      log: Int64(manifest.log))
  }

  /// True if the log has reached its ceiling, and cannot be moved.
  var isLogFull: Bool {
    guard let manifest, manifest.logUsed > SpaceLedger(limits).logCeiling else { return false }
    return !checkpoint(manifest, .restarting)
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
    guard members.lock == nil || members.mayWrite else { return false }
    do throws(Failure) {
      return try manifest.checkpoint(kind, past: readers)
    } catch {
      counters.failures.add()
      fail(error, manifest)
      return false
    }
  }

  /// Shows the numbers after a commit, to `stats` and to other members.
  func publish(_ meta: Meta) {
    counters.count.store(UInt64(meta.count), ordering: .relaxed)
    let log = manifest?.log ?? 0
    let removed = UInt64(max(0, content.removedBytes + content.heldBytes))
    counters.trash.store(removed, ordering: .releasing)
    counters.cost.store(
      UInt64(max(0, meta.charges)) + removed + UInt64(log), ordering: .relaxed)
    if let manifest {
      members.show()
      shared.publish(meta, manifest)
    }
  }

  // MARK: the file system

  /// So much may be written before the file system is looked at again.
  private static let lookEvery: Int64 = 128 << 10
  /// Below this it is looked at before every transaction.
  private static let scarce: Int64 = 16 << 20

  /// The bytes that are to stay free, beside those that the log needs to be moved into the
  /// database.
  private static func reserve(_ all: Int64) -> Int64 { min(2 << 20, all / 16) }

  /// The file system that holds the directory, asked by the directory's own descriptor.
  private var space: (free: Int64, all: Int64)? {
    spaceForTests?() ?? Files.space(of: place.descriptor)
  }

  /// Entries make room in steps of this many bytes, so that a file system that others fill does
  /// not have a writer wait for all of them.
  private static let mostAtOnce: Int64 = 64 << 20

  /// The outcome of `keepReserve`.
  struct Reserve {
    /// Something went for it.
    var hasEvicted = false
    /// Less is free than the limits want: there is nothing left to evict, or more has to go than
    /// one transaction may wait for.
    var isShort = false
  }

  /// Makes sure that the reserve, and the bytes that the limits want free, are there before `bytes`
  /// are written. The writer lock is held.
  func keepReserve(_ bytes: Int64, looks: Bool = false) -> Reserve {
    unlooked += bytes
    let minFree = Int64(clamping: min(limits.minFree, UInt64(Meta.largest)))
    guard looks || unlooked >= DiskTier.lookEvery || spaceLeft < minFree + DiskTier.scarce else {
      return Reserve()
    }
    unlooked = 0
    guard let manifest, let space else { return Reserve() }
    spaceLeft = space.free
    let wanted = max(DiskTier.reserve(space.all), minFree) + bytes
    guard space.free < wanted + Int64(manifest.logUsed) else { return Reserve() }
    content.emptyAll(in: place)
    checkpoint(manifest, .truncating)
    publish(manifest.meta)
    guard isUp, let now = self.space, now.free < wanted else { return Reserve() }
    var reserve = Reserve()
    reserve.hasEvicted = evictBytes(min(wanted - now.free, DiskTier.mostAtOnce))
    if minFree > 0, isUp, let left = self.space {
      spaceLeft = left.free
      // The content files of `bytes` are there already.
      reserve.isShort = left.free < minFree
    }
    return reserve
  }

  /// For maintenance, since no write may come that would do it. The writer lock is held. True if
  /// there is more to do.
  func keepFree() -> Bool {
    guard limits.minFree != 0 else { return false }
    let reserve = keepReserve(0, looks: true)
    return reserve.isShort && reserve.hasEvicted
  }

  /// Frees about `bytes`. No lock is held.
  func makeRoom(_ bytes: Int64) { writerLock.withLock { makeRoomLocked(bytes) } }

  /// Frees about `bytes`. The writer lock is held.
  func makeRoomLocked(_ bytes: Int64) {
    guard isUp, let manifest else { return }
    spaceLeft = 0
    content.emptyAll(in: place)
    // Not cut: its blocks may be all that the next transaction can have.
    checkpoint(manifest, .restarting)
    if isUp { _ = evictBytes(bytes) }
  }

  /// False: nothing went.
  private func evictBytes(_ bytes: Int64) -> Bool {
    guard let manifest else { return false }
    var hasEvicted = false
    do throws(Failure) {
      try transact { (transaction: inout Transaction) throws(Failure) in
        let target = transaction.meta.charges - bytes
        while transaction.meta.dead > 0 && transaction.meta.charges > target {
          guard try self.sweeper.purge(&transaction, 64) > 0 else { break }
        }
        while transaction.meta.bytes > target && transaction.meta.count > 0 {
          guard
            try self.evictor.evict(
              &transaction, &self.sweeper, sparing: transaction.manifest.lastID)
          else { break }
        }
        hasEvicted = transaction.hasChanged
      }
    } catch {
      counters.failures.add()
      return false
    }
    // Rows that are written next use the pages that became free; a content file needs them given
    // back to the file system.
    if (try? manifest.vacuum(pages: Int(bytes / 4096) + 64)) == nil { counters.failures.add() }
    checkpoint(manifest, .truncating)
    if isUp {
      content.emptyAll(in: place)
      publish(manifest.meta)
    }
    return hasEvicted
  }
}
