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

  /// Sees to it that the reserve is there before `bytes` are written. The writer lock is held.
  /// Returns what it dropped.
  func keepReserve(_ bytes: Int64) -> Changes? {
    unlooked += bytes
    guard unlooked >= DiskTier.lookEvery || spaceLeft < DiskTier.scarce else { return nil }
    unlooked = 0
    guard let manifest, let space = Files.space(of: place.descriptor) else { return nil }
    spaceLeft = space.free
    let wanted = DiskTier.reserve(space.all) + bytes
    guard space.free < wanted + Int64(manifest.logUsed) else { return nil }
    while trash.empty(1024, in: place) {}
    checkpoint(manifest, .truncating)
    guard isUp, let now = Files.space(of: place.descriptor), now.free < wanted else {
      return nil
    }
    return evictBytes(wanted - now.free)
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
    if isUp { while trash.empty(1024, in: place) {} }
    return changes
  }
}
