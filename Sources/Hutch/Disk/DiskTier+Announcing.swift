import Synchronization

/// What a store is asked of a key beside its entry: what is submitted and not committed, and puts
/// that reads see before they are submitted (see `Storage.announce`).
extension DiskTier {
  func isPending(_ key: Bytes, _ hash: UInt64) -> Bool {
    queue.isOverlaid && queue.concerns(key, hash)
  }

  func mayHold(_ key: Bytes, _ hash: UInt64) -> Bool {
    // The queue first: a write leaves it when its row is committed.
    guard !isPending(key, hash), isUp, isSameManifest else { return true }
    let generation = shared.generation
    var isThere = false
    do throws(Failure) {
      var entry = FoundEntry()
      _ = try withReader { (reader) throws(Failure) in
        _ = try reader.find(key, into: &entry) { (row) throws(Failure) in
          isThere = row.generation >= generation
          return false
        }
      }
      return isThere || !isUp
    } catch {
      note(error)
      return true
    }
  }

  func announce(_ write: StorageWrite) -> Bool {
    guard let entry = write.entry else { return false }
    let queued = QueuedWrite(write)
    queued.size = entry.size
    queued.checksum = entry.checksum
    guard queue.announce(queued) else { return false }
    write.storage = queued
    return true
  }

  func isAnnounced(_ write: StorageWrite) -> Bool {
    guard let storage = write.storage else { return false }
    return queue.isAnnounced(unsafeDowncast(storage, to: QueuedWrite.self))
  }

  func isUndecided(_ key: Bytes, _ hash: UInt64) -> Bool { queue.undecided(key, hash) != nil }

  func awaitDecision(_ key: Bytes, _ hash: UInt64) {
    guard let write = queue.undecided(key, hash) else { return }
    while queue.waitOrLead(for: write) { lead() }
  }

  var announcedCount: UInt64 { queue.isOverlaid ? queue.announcedCount : 0 }

  func isAnnounced(_ key: Bytes, _ hash: UInt64) -> Bool {
    queue.isOverlaid && queue.isAnnounced(key, hash)
  }
}
