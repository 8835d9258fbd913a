import CSystem
import Synchronization

// Durability `power` and `sync`: what survives a loss of power.
//
//     a recovery begins at the newest checkpoint that is on the disk, and reads on from there for
//     as long as the log is whole. So what was appended is safe once the log has been synced, and
//     a clear once there is a checkpoint with its floor
//     no byte that the newest checkpoint needs changes: a segment's place is used again, or given
//     back, when a checkpoint is on the disk that was begun after the segment had left the table
//     (`released`)
//     a content file and its name are on the disk before its entry is appended, and what replaced
//     or removed the entry before the file goes
//
// `power` writes a checkpoint every 5 seconds and every 64 MB; `sync` does so too, and syncs the
// log before a write returns, once for all that wait. The word `durability` is the strongest that
// the openings ask for; the first opening of a directory that no process has open begins anew.

extension LogStore {
  var durability: Durability {
    Durability(rawValue: UInt32(clamping: words.load(IndexAt.durability))) ?? .process
  }

  @inline(__always)
  var isDurable: Bool {
    words.load(IndexAt.durability) >= UInt64(Durability.power.rawValue)
  }

  /// From here on at least this durability is in force. After a failure the one before is in force
  /// again. No other process opens or closes the directory meanwhile, so no other one raises it.
  /// `isSole`: nothing else has the directory open, and this is the process's first opening.
  func raise(to wanted: Durability, isSole: Bool = false) throws(Failure) {
    let before = durability
    let raised = isSole || wanted.rawValue > before.rawValue ? wanted : before
    if raised == before && !(isSole && isDurable) { return }
    // No checkpoint can be written before the entries have their slots.
    var work = LogRebuild()
    while raised != .process && isRebuilding {
      _ = try rebuild(&work, at: Moment.at(latestTime))
    }
    words.store(IndexAt.durability, UInt64(raised.rawValue))
    do throws(Failure) {
      // What was written before was not synced.
      if raised != .process { try Files.syncAll(at: directory.descriptor) }
      try writeNewCheckpoint()
    } catch {
      words.store(IndexAt.durability, UInt64(before.rawValue))
      throw error
    }
  }

  /// True if a checkpoint is to be written.
  var isCheckpointDue: Bool {
    guard isDurable else { return false }
    if hasSpare && needsSegmentsReleased { return true }
    guard isAheadOfCheckpoint else { return false }
    let (end, durable) = (self.end, words.load(IndexAt.durableEnd))
    if end > durable && end - durable >= LogStore.mostAhead { return true }
    return isCheckpointOlder(than: LogStore.pauseIfDurable)
  }

  /// 64 MB, in units.
  static let mostAhead: UInt64 = 1 << 22
  static let pauseIfDurable: Int64 = 5_000_000_000

  /// The time is that of all processes; after another boot it may be far away.
  func isCheckpointOlder(than pause: Int64) -> Bool {
    let last = Int64(bitPattern: words.load(IndexAt.checkpointTime))
    let passed = Clock.read(CLOCK_BOOTTIME) &- last
    return passed < 0 || passed >= pause
  }

  /// Waits until a checkpoint is on the disk that was begun after this call. Fails if another
  /// process keeps it from that for longer than a busy disk takes. The lock is not held.
  func writeNewCheckpoint() throws(Failure) {
    let begun = words.load(IndexAt.begun)
    let end = Deadline.forAnotherProcess
    while words.load(IndexAt.durable) <= begun && !isRebuilding {
      if try !writeCheckpoint() { try LogStore.awaitCheckpoint(until: end) }
    }
  }

  /// Waits until all writes that have returned survive a loss of power. The lock is not held.
  func makeDurable() throws(Failure) {
    if words.load(IndexAt.floor) != words.load(IndexAt.durableFloor) { try writeNewCheckpoint() }
    try syncLog()
  }

  /// One of the threads that wait syncs the log, for all that has been appended by then.
  private func syncLog() throws(Failure) {
    let wanted = end
    if synced.load(ordering: .acquiring) >= wanted { return }
    syncLock.lock()
    defer { syncLock.unlock() }
    if synced.load(ordering: .relaxed) >= wanted { return }
    try syncLogFile()
  }

  /// Brings the log, and the files that its entries name, to the disk. The directory's lock may be
  /// held.
  func syncData() throws(Failure) {
    // The files may be a great many. Where each was synced, all are there.
    if files > 0 && !isDurable { try Files.syncAll(at: directory.descriptor) }
    syncLock.lock()
    defer { syncLock.unlock() }
    try syncLogFile()
  }

  /// The kernel tells of bytes that it could not write once, and then forgets them: each open file
  /// that there was by then is told, a later one is not. So after a failure of any process neither
  /// a write nor a checkpoint may count on a sync, until an opening has written everything again.
  var hasFailedToSync: Bool { words.load(IndexAt.failedToSync) != 0 }

  /// With `syncLock` held.
  private func syncLogFile() throws(Failure) {
    let reached = end
    guard Files.syncData(logFile.number) else {
      words.store(IndexAt.failedToSync, 1)
      throw .system("cannot write the log")
    }
    if hasFailedToSync { throw .system("cannot write the log", errno: EIO) }
    synced.store(reached, ordering: .releasing)
  }

  /// Called by an opening, while nothing else has the directory open. Writes the log and the index
  /// to themselves, so that the kernel brings to the disk what it may have forgotten.
  func writeAgain() throws(Failure) {
    guard let status = Files.status(of: indexFile.number) else {
      throw .system("cannot look at the index")
    }
    let index = Bytes(start: words.base, count: status.size)
    var isWritten = Files.write(index, to: indexFile.number)
    eachSegment { seat in
      let place = seat.place &<< segmentShift
      let bytes = Bytes(start: logBase + place, count: segmentSize)
      isWritten = isWritten && Files.write(bytes, to: logFile.number, at: place)
    }
    guard isWritten else { throw .system("cannot write the log") }
    try Files.syncAll(at: directory.descriptor)
    words.store(IndexAt.failedToSync, 0)
  }

  // MARK: with the lock held

  /// A segment leaves the table.
  func noteRelease() {
    if isDurable { words.store(IndexAt.released, words.load(IndexAt.begun)) }
  }

  /// True if the newest checkpoint may need a segment that has left the table.
  private var needsSegmentsReleased: Bool {
    let released = words.load(IndexAt.released)
    return released != 0 && words.load(IndexAt.durable) <= released
  }

  /// Called before the place of such a segment is used again or given back: waits for a checkpoint
  /// that does not need it. Mostly a write has made one by then (`isCheckpointDue`).
  func keepForCheckpoint() throws(Failure) {
    guard isDurable else { return }
    if !needsSegmentsReleased { return }
    try whileNoneIsWritten { () throws(Failure) in
      // Perhaps the one that was waited for does not need it.
      if needsSegmentsReleased { try writeCheckpointNow() }
    }
  }

  /// Waits a millisecond of those that another thread or process may take for its checkpoint. Fails
  /// once the time is over.
  static func awaitCheckpoint(until end: Deadline) throws(Failure) {
    if end.hasPassed {
      throw Failure(.busy, "another process does not come to the end of a checkpoint")
    }
    usleep(1000)
  }
}
