import Synchronization

/// The state of a key beside its entry: whether a write is submitted and not committed.
extension DiskTier {
  /// Whether a write has to be carried out (`StoreWrite.Need`).
  func isNeeded(_ write: borrowing StoreWrite) -> Bool {
    guard write.need != .always, let key = write.entry?.key else { return true }
    if write.need == .ifPending { return isPending(key, write.hash) }
    if mayHold(key, write.hash) { return true }
    // After the look: a read that misses a row which a commit has dropped sees the flag.
    return write.need == .ifHeldOrUntold && committer.dropsUntold.load(ordering: .acquiring)
  }

  func pendingVersion(_ key: Bytes, _ hash: UInt64) -> UInt64 {
    queue.isOverlaid ? queue.newestVersion(key, hash) : 0
  }

  private func isPending(_ key: Bytes, _ hash: UInt64) -> Bool {
    queue.isOverlaid && queue.concerns(key, hash)
  }

  private func mayHold(_ key: Bytes, _ hash: UInt64) -> Bool {
    // The queue first: a write leaves it when its row is committed.
    guard !isPending(key, hash), isUp, committer.isSameManifest else { return true }
    let generation = shared.generation
    var isThere = false
    do throws(Failure) {
      var entry = FoundEntry()
      try withReader { (reader) throws(Failure) in
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
}
