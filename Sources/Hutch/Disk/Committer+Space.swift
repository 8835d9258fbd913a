import CSystem
import Synchronization

/// Space: the limit after each commit (SpaceLedger has the sum), and a file system that is full,
/// where room is made at the expense of the least recently used entries (FreeSpace). The writer
/// lock is held.
extension Committer {
  // MARK: the limit

  /// Brings trash and log down to the space that the limit leaves them, after a commit.
  func holdLimit(_ manifest: Manifest) {
    let ledger = SpaceLedger(limits)
    let room = ledger.roomForTrash(sum(manifest))
    content.emptyAll(to: room, in: place)
    if ledger.mustCutLog(sum(manifest)) {
      moveLog(manifest, .truncating)
    } else if manifest.logUsed >= ledger.logToMove(free: space.free) {
      moveLog(manifest, .restarting)
    }
  }

  private func sum(_ manifest: Manifest) -> SpaceLedger.Sum {
    SpaceLedger.Sum(
      rows: manifest.meta.charges, trash: content.removedBytes,
      othersTrash: content.removedBytes * (Int64(max(1, shared.members)) - 1),
      log: Int64(manifest.log))
  }

  /// True if the log has reached its ceiling, and cannot be moved. A reader within a statement may
  /// have to wait for a processor: it gets a quarter of a second. One that stays for longer costs
  /// writes that time again after a pause alone.
  var isLogFull: Bool {
    guard let manifest, manifest.logUsed > SpaceLedger(limits).logCeiling else { return false }
    var tries = fullPause.isUnderWay ? 1 : 250
    while !checkpoint(manifest, .restarting) {
      tries -= 1
      if tries == 0 || !isUp {
        fullPause.lengthen(from: 250_000_000)
        return true
      }
      usleep(1000)
    }
    fullPause.end()
    return false
  }

  /// A checkpoint that a commit owes. A reader that stays, such as a check of everything or another
  /// program's, keeps it from its end: then it is tried again after a pause, longer each time, and
  /// not with every commit.
  private func moveLog(_ manifest: Manifest, _ kind: Manifest.Checkpoint) {
    if logPause.isUnderWay { return }
    if checkpoint(manifest, kind) { logPause.end() } else { logPause.lengthen() }
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
  func publish(_ manifest: Manifest) {
    let meta = manifest.meta
    counters.count.store(UInt64(meta.count), ordering: .relaxed)
    accesses.keepsAll.store(
      meta.mayIdle || limits.ages.timeToIdle != 0, ordering: .relaxed)
    let removed = UInt64(max(0, content.removedBytes + content.heldBytes))
    counters.trash.store(removed, ordering: .releasing)
    counters.cost.store(
      UInt64(max(0, meta.charges)) + removed + UInt64(manifest.log), ordering: .relaxed)
    if members.mayWrite {
      members.show()
      shared.publish(manifest)
    }
  }

  // MARK: the file system

  /// Entries make room in steps of this many bytes, so that a file system that others fill does
  /// not have a writer wait for all of them.
  private static let mostAtOnce: Int64 = 64 << 20

  /// The outcome of `keepReserve`.
  struct Reserve {
    /// Something went for it.
    var hasEvicted = false
    /// Less is free than the limits want, or than the log needs to be moved: there is nothing left
    /// to evict, or more has to go than one turn may wait for.
    var isShort = false
  }

  /// Makes sure that the reserve, and the bytes that the limits want free, are there before `bytes`
  /// are written. The writer lock is held.
  func keepReserve(_ bytes: Int64, looks: Bool = false) -> Reserve {
    let minFree = Int64(clamping: min(limits.minFree, UInt64(Meta.largest)))
    guard space.isLookDue(toWrite: bytes, keeping: minFree) || looks else { return Reserve() }
    guard let manifest, let now = space.look(in: place) else { return Reserve() }
    let wanted = max(FreeSpace.reserve(now.all), minFree) + bytes
    guard now.free < wanted + Int64(manifest.logUsed) else { return Reserve() }
    content.emptyAll(in: place)
    checkpoint(manifest, .truncating)
    publish(manifest)
    guard isUp, let now = space.look(in: place), now.free < wanted else { return Reserve() }
    var reserve = Reserve()
    reserve.hasEvicted = evictBytes(min(wanted - now.free, Committer.mostAtOnce))
    if isUp, let left = space.look(in: place) {
      // The content files of `bytes` are there already.
      reserve.isShort = left.free < max(minFree, FreeSpace.reserve(left.all) / 4)
    }
    return reserve
  }

  /// Whether `bytes` can be written to the log beside the reserve. The writer lock is held.
  func hasRoom(_ bytes: Int64) -> Bool {
    guard space.isLookDue(toWrite: bytes, keeping: 0), let manifest else { return true }
    var hasMoved = false
    while true {
      guard let now = space.look(in: place) else { return true }
      let wanted = FreeSpace.reserve(now.all) + bytes
      if now.free >= wanted + Int64(manifest.logUsed) { return true }
      if hasMoved { return false }
      checkpoint(manifest, .truncating)
      hasMoved = true
    }
  }

  /// For maintenance, since no write may come that would do it. The writer lock is held. True if
  /// there is more to do.
  func keepFree() -> Bool {
    guard limits.minFree != 0 else { return false }
    let reserve = keepReserve(0, looks: true)
    return reserve.isShort && reserve.hasEvicted
  }

  /// Frees about `bytes`. No lock is held.
  func makeRoom(_ bytes: Int64) { withTurn { makeRoomLocked(bytes) } }

  /// Frees about `bytes`. The writer lock is held.
  func makeRoomLocked(_ bytes: Int64) {
    guard isUp, let manifest else { return }
    space.free = 0
    content.emptyAll(in: place)
    // Not cut: its blocks may be all that the next transaction can have.
    checkpoint(manifest, .restarting)
    if isUp { _ = evictBytes(bytes) }
  }

  /// In steps, each of which ends with an empty log: to remove rows takes a multiple of their bytes
  /// in the log, and that has to fit into what is free. False: nothing went.
  private func evictBytes(_ bytes: Int64) -> Bool {
    let most = max(64 << 10, space.free / 16)
    var left = bytes
    while left > 0, evictStep(min(left, most)) { left -= most }
    return left < bytes
  }

  /// One transaction of `evictBytes`.
  private func evictStep(_ bytes: Int64) -> Bool {
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
      publish(manifest)
    }
    return hasEvicted
  }
}
