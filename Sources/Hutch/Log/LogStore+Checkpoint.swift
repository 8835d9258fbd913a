import CSystem
import Synchronization

// Checkpoints: what a loss of power leaves of the log (LogCheckpoint).
//
// The new entries of a segment that a checkpoint needs may be overwritten later, and an entry that
// was evicted before the checkpoint may still lie in the log. A recovery may therefore forget, and
// it must not find an older value:
//
//     it reads the new entries from the newest to older ones, and ends at the first segment that
//     is not whole: so what it finds is a succession without a gap
//     a kept copy says where it was replaced or removed (LogEntry); for what is below the
//     checkpoint's end, that is on the disk; and no kept copy counts unless all that was written
//     behind that end has been met (`certainFrom`)
//     it finds nothing below `newFrom` and `keptFrom`: the cleaner had come so far
//     a key that has no entry, but may have had one that was evicted since the checkpoint, gets a
//     record of its removal all the same (`needsRecord`). With durability `process` the record
//     says in place of the key how far the cleaner has come, and serves the removals of other keys
//     up to the next eviction. What the cleaner has moved may be forgotten then. Where a removal
//     names no keys, by tag or prefix, no checkpoint counts that may bring back what was evicted
//     before it (`secureRemovals`)
//     an entry that was removed because its age had ended says so itself (`hide`)

extension LogStore {
  /// True if the log has changed since the newest checkpoint that is on the disk.
  var isAheadOfCheckpoint: Bool {
    end != words.load(IndexAt.durableEnd)
      || words.load(IndexAt.floor) != words.load(IndexAt.durableFloor)
  }

  /// Whether the removal of a key without an entry has to be recorded.
  var needsRecord: Bool {
    isRebuilding || hasEvicted && words.load(IndexAt.passed) != 1
  }

  /// Whether the cleaner has evicted an entry that the newest checkpoint may have.
  private var hasEvicted: Bool {
    let evicted = words.load(IndexAt.evicted)
    return evicted != 0 && evicted >= words.load(IndexAt.durable)
  }

  /// The cleaner is about to evict an entry. The lock is held.
  func noteEviction() {
    let passed = words.load(IndexAt.passed)
    if passed == 1 || passed == 2 && !hasEvicted { words.store(IndexAt.passed, 0) }
    let begun = words.load(IndexAt.begun)
    if words.load(IndexAt.evicted) != begun { words.store(IndexAt.evicted, begun) }
  }

  /// Whether a record of what the cleaner has passed may take the place of records of removals.
  var mayRecordPassed: Bool {
    !isRebuilding && !isDurable && words.load(IndexAt.passed) == 0
  }

  /// Appends that record. There is room for it.
  func appendPassed(_ seat: SeatWord, _ address: LogAddress) {
    // Of a stream without a segment the cleaner has passed all.
    func passed(_ stream: LogStream) -> LogAddress {
      segmentCount(stream) == 0 ? start(of: words.load(IndexAt.next)) : from(stream)
    }
    let units = writePair(.passed, passed(.new), passed(.kept), seat, address)
    var redo = RedoRecord(words)
    redo.set(IndexAt.head, address &+ units)
    redo.set(IndexAt.passed, 1)
    redo.commit()
  }

  /// Writes a checkpoint, and waits until it is on the disk. False: another thread or process
  /// writes one, or the index is being rebuilt. The lock is not held.
  @discardableResult
  func writeCheckpoint() throws(Failure) -> Bool {
    let checkpoint = LogCheckpoint()
    let hasBegun = try locked { () throws(Failure) in
      if isRebuilding || !beginCheckpoint() { return false }
      do throws(Failure) {
        try fill(checkpoint)
      } catch {
        endCheckpoint()
        throw error
      }
      return true
    }
    guard hasBegun else { return false }
    defer { endCheckpoint() }
    try finish(checkpoint)
    return true
  }

  /// As `writeCheckpoint`. False also if the file was removed, and the durability promises nothing
  /// of it.
  @discardableResult
  func writeCheckpointIfThere() throws(Failure) -> Bool {
    do throws(Failure) {
      return try writeCheckpoint()
    } catch {
      guard error.status == .tierDown, !isDurable else { throw error }
      return false
    }
  }

  /// Keeps other threads and processes from writing a checkpoint. False: one of them does. The lock
  /// is held, but the thread that has begun one does not need it to come to the end: so a holder of
  /// the lock may wait for that.
  func beginCheckpoint() -> Bool {
    guard
      isWritingCheckpoint.compareExchange(
        expected: false, desired: true, ordering: .acquiringAndReleasing
      ).exchanged
    else { return false }
    if member.tryCheckpoint() { return true }
    isWritingCheckpoint.store(false, ordering: .releasing)
    return false
  }

  func endCheckpoint() {
    member.endCheckpoint()
    isWritingCheckpoint.store(false, ordering: .releasing)
  }

  /// A removal could not be recorded behind what was written before it. What is appended later must
  /// not survive a loss of power without the removal, so no earlier checkpoint counts any more.
  /// Under `power` and `sync` there is another one at once, else maintenance writes one. The
  /// directory's lock is held.
  func secureRemoval() {
    do throws(Failure) {
      try whileNoneIsWritten { () throws(Failure) in
        if isDurable {
          try writeCheckpointNow()
        } else if words.load(IndexAt.durable) != 0 {
          // First of all the next checkpoint has something new to say, whatever a kill leaves.
          words.store(IndexAt.durableEnd, 0)
          try LogCheckpoint.void(in: directory)
          words.store(IndexAt.durable, 0)
        }
      }
    } catch {
      counters.failures.count()
    }
  }

  /// Removals of all entries of some kind are over. One that was evicted before has no record: no
  /// checkpoint counts any more that may have it. The lock is not held.
  func secureRemovals() throws(Failure) {
    guard isRebuilding || hasEvicted else { return }
    if isDurable { return try writeNewCheckpoint() }
    try locked { () throws(Failure) in if words.load(IndexAt.durable) != 0 { secureRemoval() } }
  }

  /// Runs `body` while nothing else writes a checkpoint. The lock is held.
  func whileNoneIsWritten(_ body: () throws(Failure) -> Void) throws(Failure) {
    let end = Deadline(after: LogStore.pauseIfDurable)
    while !beginCheckpoint() { try LogStore.awaitCheckpoint(until: end) }
    defer { endCheckpoint() }
    try body()
  }

  /// Writes a checkpoint. The lock is held, and nothing else writes one.
  func writeCheckpointNow() throws(Failure) {
    let checkpoint = LogCheckpoint()
    try fill(checkpoint)
    try finish(checkpoint)
  }

  /// Notes the state of the log. The lock is held.
  func fill(_ checkpoint: LogCheckpoint) throws(Failure) {
    typealias At = LogCheckpoint.At
    guard let log = Files.status(of: logFile.number) else {
      throw .system("cannot look at the log")
    }
    checkpoint[At.seats] = UInt64(durability.rawValue) << 32
    checkpoint[At.log] = log.identity.inode
    checkpoint[At.format] = words.load(IndexAt.format)
    for i in 0..<4 { checkpoint[At.secrets + i] = words.load(IndexAt.secrets + i * 8) }
    for i in 0..<6 { checkpoint[At.limits + i] = words.load(IndexAt.limits + i * 8) }
    // A segment that has no entry yet, not even its beginning, is found if it has it by then.
    let isBeginning = isBeginning(.new)
    let active = active(.new) ?? 0
    checkpoint[At.end] = isBeginning ? words.load(IndexAt.last) : end
    checkpoint[At.active] = isBeginning ? 0 : active
    checkpoint[At.next] = isBeginning ? active : words.load(IndexAt.next)
    checkpoint[At.floor] = words.load(IndexAt.floor)
    checkpoint[At.newFrom] = from(.new)
    checkpoint[At.keptFrom] = from(.kept)
    checkpoint[At.lostFrom] = words.load(IndexAt.lostFrom)
    checkpoint[At.lostTo] = words.load(IndexAt.lostTo)
    checkpoint[At.certainFrom] = words.load(IndexAt.certainFrom)
    checkpoint[At.version] = words.load(IndexAt.versions)
    checkpoint[At.bootOffset] = words.load(IndexAt.bootOffset)
    var failure: Failure?
    eachSegment { seat in
      guard seat.number != 0 else { return }
      do throws(Failure) { try checkpoint.add(seat) } catch { failure = error }
    }
    if let failure { throw failure }
    var number = words.load(IndexAt.begun) &+ 1
    // One that has failed, or whose process died, has left a number out. The place of the newest
    // that is on the disk stays.
    if (number ^ words.load(IndexAt.durable)) & 1 == 0 { number &+= 1 }
    checkpoint[At.number] = number
    words.store(IndexAt.begun, number)
    words.store(IndexAt.checkpointTime, UInt64(bitPattern: Clock.read(CLOCK_BOOTTIME)))
  }

  /// The address below which no entry of a stream is found any more.
  func from(_ stream: LogStream) -> LogAddress {
    let known = words.load(stream == .new ? IndexAt.newFrom : IndexAt.keptFrom)
    return segmentCount(stream) == 0 ? known : max(known, words.load(stream.cleaning))
  }

  /// Brings what the checkpoint names to the disk, then the checkpoint itself.
  func finish(_ checkpoint: LogCheckpoint) throws(Failure) {
    typealias At = LogCheckpoint.At
    try syncData()
    try checkpoint.write(in: directory, isFirst: words.load(IndexAt.durable) == 0)
    words.store(IndexAt.durableEnd, checkpoint[At.end])
    words.store(IndexAt.durableFloor, checkpoint[At.floor])
    words.store(IndexAt.durable, checkpoint[At.number])
    // Other limits have been set meanwhile: the next checkpoint has something new to say. The
    // limits change before `setLimits` notes that, so this finds them if it comes later.
    for i in 0..<6 where checkpoint[At.limits + i] != words.load(IndexAt.limits + i * 8) {
      words.store(IndexAt.durableEnd, 0)
    }
  }
}
