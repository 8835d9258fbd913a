/// Puts that reads see before they are submitted (see `Storage.announce`).
extension DiskTier {
  func announce(_ write: StorageWrite) -> Bool {
    guard let entry = write.entry else { return false }
    let queued = QueuedWrite(write, hash: queue.hash(entry.key))
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

  func isUndecided(_ key: Bytes) -> Bool { queue.undecided(key) != nil }

  func awaitDecision(_ key: Bytes) {
    guard let write = queue.undecided(key) else { return }
    while queue.waitOrLead(for: write) { lead() }
  }

  var announcedCount: UInt64 { queue.isOverlaid ? queue.announcedCount : 0 }

  func isAnnounced(_ key: Bytes) -> Bool { queue.isOverlaid && queue.isAnnounced(key) }
}
