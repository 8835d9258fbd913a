import CSystem

/// A full file system: room is made at the expense of the least recently used entries.
///
/// To delete rows takes room too: the log grows, and moving it into the database may grow that.
/// So a small reserve is kept, and looked after before it is needed; where somebody else has
/// taken it, what can be had is tried once.
extension DiskTier {
  /// So much may be written before the file system is looked at again.
  private static let lookEvery: Int64 = 128 << 10
  /// Below this it is looked at before every transaction.
  private static let scarce: Int64 = 16 << 20

  /// What is to stay free, beside what the log needs to be moved into the database.
  private static func reserve(_ all: Int64) -> Int64 { min(2 << 20, all / 16) }

  /// How much of the log is used before it is moved: less where space is scarce.
  func logToMove(_ bound: Int) -> Int {
    min(4 << 20, bound / 4 * 3, max(64 << 10, Int(clamping: spaceLeft / 4)))
  }

  /// The file system that holds the directory, asked by the directory's own descriptor.
  private var space: (free: Int64, all: Int64)? {
    spaceForTests?() ?? Files.space(of: place.descriptor)
  }

  /// Entries make room in steps of this many bytes, so that a file system that others fill does
  /// not have a writer wait for all of them.
  private static let mostAtOnce: Int64 = 64 << 20

  /// What has become of the reserve.
  struct Reserve {
    /// What went for it.
    var changes: Changes?
    /// What the limits want free is not, and there is nothing left to make room with, or
    /// more has to go than one transaction may wait for.
    var isShort = false
  }

  /// Sees to it that the reserve, and what the limits want free, is there before `bytes` are
  /// written. The writer lock is held.
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
    while trash.empty(1024, in: place) {}
    checkpoint(manifest, .truncating)
    publish(manifest.meta)
    guard isUp, let now = self.space, now.free < wanted else { return Reserve() }
    var reserve = Reserve()
    reserve.changes = evictBytes(min(wanted - now.free, DiskTier.mostAtOnce))
    if minFree > 0, isUp, let left = self.space {
      spaceLeft = left.free
      // The content files of `bytes` are there already.
      reserve.isShort = left.free < minFree
    }
    return reserve
  }

  /// As a writer would, who may not come: for maintenance. The writer lock is held. True if
  /// there is more to do.
  func keepFree(_ changes: inout [Changes]) -> Bool {
    guard limits.minFree != 0 else { return false }
    let reserve = keepReserve(0, looks: true)
    guard let made = reserve.changes else { return false }
    changes.append(made)
    return reserve.isShort && made.isAny
  }

  /// Frees about `bytes`. No lock is held.
  func makeRoom(_ bytes: Int64) {
    let changes = writerLock.withLock { makeRoomLocked(bytes) }
    tell(changes)
  }

  /// Frees about `bytes`. The writer lock is held. Returns what it dropped.
  func makeRoomLocked(_ bytes: Int64) -> Changes {
    guard isUp, let manifest else { return Changes() }
    spaceLeft = 0
    while trash.empty(1024, in: place) {}
    // Not cut: its blocks may be all that the next transaction can have.
    checkpoint(manifest, .restarting)
    return isUp ? evictBytes(bytes) : Changes()
  }

  private func evictBytes(_ bytes: Int64) -> Changes {
    let changes = Changes()
    guard let manifest else { return changes }
    do throws(Failure) {
      try transact(changes) { (manifest, meta) throws(Failure) in
        let target = meta.bytes + meta.dead - bytes
        while meta.dead > 0 && meta.bytes + meta.dead > target {
          guard try self.purge(manifest, &meta, changes, 64) > 0 else { break }
        }
        while meta.bytes > target && meta.count > 0 {
          guard try self.evict(manifest, &meta, changes, sparing: manifest.lastID) else { break }
        }
      }
    } catch {
      counters.failures.add()
      return Changes()
    }
    // The pages that became free are used again by what is written next; what is to be
    // written to a file needs them given back.
    if (try? manifest.vacuum(pages: Int(bytes / 4096) + 64)) == nil { counters.failures.add() }
    checkpoint(manifest, .truncating)
    if isUp {
      while trash.empty(1024, in: place) {}
      publish(manifest.meta)
    }
    return changes
  }
}
