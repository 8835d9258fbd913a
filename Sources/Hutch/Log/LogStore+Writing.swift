import CSystem

// Writes: under the lock, each a redo record.

/// A write, on its caller's stack: first the request, then its result.
struct LogWrite {
  enum Kind { case put, remove, touch }

  let kind: Kind
  let key: Bytes
  let hash: UInt64
  /// Of a put: the key, the value, and the record.
  var entry: UnownedBlock?
  /// Of a put: the content file that has the value; nil: the block has it.
  var file: LogFile?
  /// Of a touch: created, accessed, expires and time to idle.
  var times = Record()
  var condition = WriteCondition.always
  var copy: StoreWrite.Copy?
  /// Until when the lock is waited for; nil: as long as the lock's own patience lasts.
  var end: Deadline?
  /// The hash that leads to the key's counter (LogShared).
  var counterHash: UInt64
  /// A put of an older version than the one that is there is not carried out.
  var yieldsToNewer = true

  /// Of a put: stored, superseded by a newer version (`none`), or too large, or without room; then
  /// the entry that was there has been removed.
  var outcome = TierOutcome.none
  /// Whether there was an entry that had not expired.
  var existed = false
  /// Its version; 0: there was none.
  var existing: UInt64 = 0
  /// The condition did not hold, and nothing was done.
  var isUnmet = false
  var failure: Failure?
  /// The key's counter after the write.
  var mark: UInt32 = 1
  /// The counter is odd.
  fileprivate var isMarking = false

  init(_ kind: Kind, _ key: Bytes, _ hash: UInt64) {
    self.kind = kind
    self.key = key
    self.hash = hash
    counterHash = hash
  }

  fileprivate var counter: Int { CoherenceCounters.index(of: counterHash) }
}

extension LogStore {
  /// Carries a write out: it is committed when this returns without a failure. `onMark` is called
  /// with the lock held, after the commit and before the key's counter shows it.
  @_optimize(speed)
  func write(
    _ write: inout LogWrite, at moment: Moment, onMark: (borrowing LogWrite) -> Void = { _ in }
  ) {
    let checksum: UInt64
    if let file = write.file {
      checksum = file.checksum
    } else if let entry = write.entry {
      checksum = entry.checksum != 0 ? entry.checksum : Checksum.xxh3(Bytes(entry.value))
    } else {
      checksum = 0
    }
    guard lock.lock(until: write.end) else {
      write.failure = Failure(.busy, LogStore.stoppedWords)
      write.outcome = .failed
      return
    }
    defer { lock.unlock() }
    do throws(Failure) {
      try begin()
      try carryOut(&write, checksum, at: moment)
    } catch {
      write.failure = error
      write.outcome = error.status == .noSpace ? .noSpace : .failed
      // No older value is given out for one that could not be stored.
      if write.kind == .put, hasBegun {
        remove(write.key, write.hash, find(write.key, write.hash), at: moment)
      }
    }
    if write.isMarking {
      write.mark = marks.after(write.counter)
      onMark(write)
      marks.end(write.counter)
    }
  }

  @inline(__always)
  private func carryOut(
    _ write: inout LogWrite, _ checksum: UInt64, at moment: Moment
  ) throws(Failure) {
    let match = find(write.key, write.hash)
    if let match {
      write.existed = !hasExpired(match.entry, at: moment)
      if write.existed && isShown(match.entry) { write.existing = match.entry.version }
    }
    if let copy = write.copy, write.existing == 0, copy.mark == marks.now(write.counter) {
      write.existing = copy.version
    }
    guard write.condition.holds(for: write.existing) else {
      write.isUnmet = true
      return
    }
    mark(&write)
    switch write.kind {
    case .put:
      let entry = write.entry.unsafelyUnwrapped
      // The newest version wins, whichever comes first.
      if write.yieldsToNewer && write.existing > entry.version { return }
      var record = entry.record
      record.checksum = checksum
      if let file = write.file { record.size = file.size }
      guard isWithinLimits(write.key, record, write.file) else {
        write.outcome = .tooLarge
        counters.refusals.count()
        remove(write.key, write.hash, match, at: moment)
        return
      }
      // The block may have the value too, for the memory tier.
      let value = write.file == nil ? Bytes(entry.value) : Bytes(start: nil, count: 0)
      try append(
        write.key, write.hash, record, value, write.file, Bytes(entry.extendedData), match,
        at: moment)
      counters.puts.count()
      write.outcome = .stored
    case .remove:
      if write.existed { counters.removals.count() }
      remove(write.key, write.hash, match, at: moment)
    case .touch:
      guard let match, write.existed else { return }
      try touch(match, write, at: moment)
    }
  }

  /// Where no other process has the directory open, the counter stays as it is: of keys that share
  /// a counter, each write would end the copies of the others. A write with a condition steps it
  /// all the same. It ends the copy of its own process too, whose memory tier follows when the
  /// condition has been decided.
  @inline(__always)
  private func mark(_ write: inout LogWrite) {
    guard marks.hasOthers || !write.condition.isAlways else {
      write.mark = marks.now(write.counter)
      return
    }
    marks.begin(write.counter)
    write.isMarking = true
  }

  /// Whether an entry is stored, as far as its size says.
  private func isWithinLimits(_ key: Bytes, _ record: Record, _ file: LogFile?) -> Bool {
    let own = LogEntry.byteCount(key: key.count, record, file)
    return own <= largestEntry && record.decodedSize <= Int(UInt32.max)
      && UInt64(own) &+ (file?.charge ?? 0) <= limits.largestCharge
  }

  /// Appends an entry and lets its key's slot name it.
  private func append(
    _ key: Bytes, _ hash: UInt64, _ record: Record, _ value: Bytes, _ file: LogFile?,
    _ extended: Bytes, _ match: LogMatch?, at moment: Moment
  ) throws(Failure) {
    let units = LogFormat.units(LogEntry.byteCount(key: key.count, record, file))
    var match = match
    // Cleaning may move the entry that is there, or take it away.
    replaced = match?.entry.address ?? 0
    defer { replaced = 0 }
    var mayHaveMoved = false
    if let file, !(match?.entry.hasFile(file) ?? false) {
      mayHaveMoved = try makeRoom(forFile: file.charge, at: moment.time)
    }
    if try makeRoom(units, isNew: match == nil, at: moment) || mayHaveMoved {
      match = find(key, hash)
    }

    let slot: UnsafeMutableRawPointer
    if let match {
      slot = match.slot
    } else {
      slot = try slotForNew(hash, at: moment)
    }
    let address = words.load(IndexAt.head)
    guard let seat = seat(of: address) else {
      throw Failure(.corrupt, "the log's head is in no segment")
    }
    LogEntry.write(
      to: memory(seat, address), address, record, key: key, value: value, file,
      extended: extended, check: check, hash
    ) { writesAhead(value, to: $0, seat) }
    noteEnd(of: record)
    let charge = units &* UInt64(LogFormat.unit) &+ (file?.charge ?? 0)
    let before = files
    let after = before &+ (file?.charge ?? 0) &- (match?.entry.file?.charge ?? 0)
    if let match, !(file.map { match.entry.hasFile($0) } ?? false) { loseFile(of: match.entry) }
    var redo = RedoRecord(words)
    redo.set(slot - words.base, SlotWord(hash, address).bits)
    redo.set(IndexAt.head, address &+ units)
    if match == nil { redo.set(IndexAt.count, count &+ 1) }
    redo.set(IndexAt.live, live &+ charge &- (match?.entry.charge ?? 0))
    if after != before { redo.set(IndexAt.files, after) }
    redo.commit()
  }

  /// Writes a value through the file, if that costs less than to store it to the mapping: each new
  /// page of a file that is stored to costs a fault, and a page that is written costs none.
  @inline(__always)
  private func writesAhead(
    _ value: Bytes, to place: UnsafeMutableRawPointer, _ seat: SeatWord
  ) -> Bool {
    guard value.count >= LogPages.pageSize, seat.isFirstUse,
      Files.write(value, to: logFile.number, at: place - logBase)
    else { return false }
    CrashPoint.pass()
    return true
  }

  private func slotForNew(
    _ hash: UInt64, at moment: Moment
  ) throws(Failure) -> UnsafeMutableRawPointer {
    while true {
      guard let page = page(for: hash) else {
        throw Failure(.corrupt, "the index has no page for a key")
      }
      if let slot = freeSlot(page, hash) { return slot }
      try divide(page, at: moment.time)
    }
  }

  /// The entry's value, appended with other times. A content file goes from one entry to the next.
  private func touch(
    _ match: LogMatch, _ write: LogWrite, at moment: Moment
  ) throws(Failure) {
    var record = match.entry.record
    record.created = write.times.created
    record.accessed = write.times.accessed
    record.expires = write.times.expires
    record.timeToIdle = write.times.timeToIdle
    // Making room may evict the entry or put another in its place, so it is copied first.
    let block = try Block.copying(
      key: write.key, value: match.entry.value,
      extended: Extended(match.entry.extended, tagSize: record.tagSize), record: record,
      wantsChecksum: true)
    let copy = block.unowned
    let file = match.entry.file
    guard match.entry.hasFile == (file != nil),
      match.entry.isSound(
        write.hash, by: check, value: file?.checksum ?? copy.checksum, Bytes(copy.extendedData))
    else {
      counters.damaged.count()
      return drop(match.slot, match.page, match.entry)
    }
    carried = file?.name.number ?? 0
    hasLostCarried = false
    defer { carried = 0 }
    do throws(Failure) {
      try append(
        write.key, write.hash, record, Bytes(copy.value), file, Bytes(copy.extendedData), match,
        at: moment)
      if hasLostCarried { noteLoose(-1) }
    } catch {
      if hasLostCarried, let file { dead.add(file) }
      throw error
    }
  }

  /// Takes a key's entry away, and appends a record that says so.
  private func remove(_ key: Bytes, _ hash: UInt64, _ found: LogMatch?, at moment: Moment) {
    guard let found else { return }
    replaced = found.entry.address
    defer { replaced = 0 }
    let units = LogFormat.units(LogEntry.removalSize(key: key.count))
    var match: LogMatch? = found
    do throws(Failure) {
      if try makeRoom(units, isNew: false, at: moment) { match = find(key, hash) }
      let address = words.load(IndexAt.head)
      guard let seat = seat(of: address) else { throw Failure(.corrupt, "") }
      var record = Record()
      record.created = moment.time
      let none = Bytes(start: nil, count: 0)
      LogEntry.write(
        to: memory(seat, address), address, record, key: key, value: none, nil, extended: none,
        check: check, hash, kind: .removal)
      let end = address &+ units
      guard let match else { return words.store(IndexAt.head, end) }
      drop(match.slot, match.page, match.entry, head: end)
    } catch {
      // Without room for the record the entry goes all the same.
      if let match = find(key, hash) { drop(match.slot, match.page, match.entry) }
    }
  }

  /// Takes an entry away: its slot says nothing any more. `head`: behind the record that says so.
  /// `cleaned`: up to where the segment
  /// of the entry has been cleaned by it.
  func drop(
    _ slot: UnsafeMutableRawPointer, _ page: SlotPage, _ entry: LogEntry.Head,
    head: LogAddress? = nil, cleaned: LogAddress? = nil
  ) {
    let size = entry.charge
    loseFile(of: entry)
    var redo = RedoRecord(words)
    redo.set(slot - words.base, emptied(slot, page).bits)
    redo.set(IndexAt.count, count == 0 ? 0 : count - 1)
    redo.set(IndexAt.live, live < size ? 0 : live - size)
    if let file = entry.file { redo.set(IndexAt.files, files - min(files, file.charge)) }
    if let head { redo.set(IndexAt.head, head) }
    if let cleaned { redo.set(IndexAt.cleaning, cleaned) }
    redo.commit()
  }

  /// Every entry goes, at once: they are below the floor. Content files are looked for before that,
  /// in the whole index, if there are any.
  func clear(until end: Deadline? = nil) throws(Failure) {
    try locked(until: end) { () throws(Failure) in
      let hasOthers = marks.hasOthers
      if hasOthers { marks.beginAll() }
      defer { if hasOthers { marks.endAll() } }
      if files > 0 { loseAllFiles() }
      var redo = RedoRecord(words)
      redo.set(IndexAt.floor, start(of: words.load(IndexAt.next)))
      redo.set(IndexAt.head, 0)
      redo.set(IndexAt.count, 0)
      redo.set(IndexAt.live, 0)
      redo.set(IndexAt.files, 0)
      redo.commit()
    }
  }
}
