import CSystem

// Writes. Each is done under the lock, and is committed by one redo record.

/// A write, on its caller's stack: the request, then the result.
struct LogWrite {
  enum Kind { case put, remove, touch }

  let kind: Kind
  let key: Bytes
  var hash: UInt64
  /// A put of a block has its value, record and extended data here.
  var entry: UnownedBlock?
  /// The content file that has the value of a put; nil: `value` or the block have it.
  var file: LogFile?
  /// The value of a put; nil: the block has it.
  var value: Bytes?
  /// A touch has the new times here: created, accessed, expires and time to idle. A put of a block
  /// has `accessed`, which counts for an entry with a time to idle; one without a block its record.
  var times = Record()
  var condition = WriteCondition.always
  var copy: StoreWrite.Copy?
  /// The hash that leads to the key's counter (LogShared).
  var counterHash: UInt64
  /// True: a removal of a key that has no entry, for a read or by `copy`, does nothing, unless a
  /// loss of power or other ages might bring one back.
  var isOfExisting = false
  /// True: a removal by a put that is refused.
  var isOfRefusal = false

  /// The outcome of a put: stored; too large, or no space: then the entry that was there has been
  /// removed.
  var outcome = TierOutcome.none
  /// True if there was an entry that had not expired.
  var existed = false
  /// The version of the entry that the condition is about; 0: there was none.
  var existing: UInt64 = 0
  /// True if the condition did not hold: then nothing was done.
  var isUnmet = false
  var failure: Failure?
  /// False: the memory tier has no copy, and `mark` is not needed.
  var wantsMark = true
  /// The key's counter after the write.
  var mark: UInt32 = 1
  /// True if the write has made the key's counter odd.
  fileprivate var isMarking = false

  @inline(never)
  init(_ kind: Kind, _ key: Bytes, _ hash: UInt64) {
    self.kind = kind
    self.key = key
    self.hash = hash
    counterHash = hash
  }

  fileprivate var counter: Int { CoherenceCounters.index(of: counterHash) }
}

extension LogStore {
  /// Carries out a write, which is committed when this returns without a failure. `onMark` is
  /// called with the lock held, after the commit and before the key's counter is even again.
  @_optimize(speed)
  func write(
    _ write: inout LogWrite, at moment: Moment, onMark: (borrowing LogWrite) -> Void = { _ in }
  ) {
    // Before a value is summed: no other work lasts so long before the lock. In this mapping, whose
    // pages the processor has to look up too.
    if write.kind == .put && write.entry == nil { prefetch(write.hash) }
    if marks.hasOthers { marks.prefetch(write.counter) }
    // 0: the value is summed while it is copied.
    let checksum: UInt64
    if let file = write.file {
      checksum = file.checksum
    } else if let value = write.value {
      checksum = value.count < LogPages.pageSize ? Checksum.xxh3(value) : 0
    } else if let entry = write.entry {
      checksum = entry.checksum != 0 ? entry.checksum : Checksum.xxh3(Bytes(entry.value))
    } else {
      checksum = 0
    }
    guard lock.lock() else {
      write.failure = Failure(.busy, LogStore.stoppedWords)
      write.outcome = .failed
      return
    }
    defer { unlock() }
    do throws(Failure) {
      try begin()
      try carryOut(&write, checksum, at: moment)
    } catch {
      write.failure = error
      write.outcome = TierOutcome(of: error)
      // No read may return an older value than one that could not be stored.
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
    var record = write.times
    if write.kind == .put {
      if let entry = write.entry { record = entry.record }
      record.checksum = checksum
      if let file = write.file { record.size = file.size }
      if let value = write.value { record.size = value.count }
    }
    // After the exchange of the lock, which waits for all that was begun before it, and before the
    // cleaning: meanwhile the processor fetches the lines.
    prefetchEntry(write.hash)
    var isClean = false
    if write.kind == .put && write.condition.isAlways && write.file == nil {
      isClean = cleanAhead(LogEntry.byteCount(key: write.key.count, record, nil), at: moment)
    }
    let match = find(write.key, write.hash)
    if let match {
      write.existed = !hasExpired(match.entry, at: moment)
      if write.existed && isShown(match.entry) { write.existing = match.entry.version }
    }
    // An entry that is older than the copy is that of an older directory, which has come back in
    // place of the one before.
    if let copy = write.copy, copy.version > write.existing,
      copy.mark == marks.now(write.counter)
    {
      write.existing = copy.version
    }
    guard write.condition.holds(for: write.existing) else {
      write.isUnmet = true
      return
    }
    if write.isOfExisting && write.existing == 0 {
      // The entry that is there has expired, or is of another codec: then it stays.
      let isKept = write.existed
      write.existed = false
      if isKept { return }
      if let match { noteExpired(match.entry) }
      // The counter stays: no read finds less than before, and memory may have an entry.
      remove(write.key, write.hash, match, at: moment)
      return
    }
    setMark(of: &write)
    if let match, !write.existed, write.kind != .touch { noteExpired(match.entry) }
    switch write.kind {
    case .put: try put(&write, &record, match, isClean: isClean, at: moment)
    case .remove:
      if write.existed && !write.isOfRefusal { counters.removals.countLocked() }
      remove(write.key, write.hash, match, at: moment)
    case .touch:
      guard let match, write.existed else { return }
      write.existed = try touch(match, write, at: moment)
    }
  }

  @inline(__always)
  private func put(
    _ write: inout LogWrite, _ record: inout Record, _ match: LogMatch?, isClean: Bool,
    at moment: Moment
  ) throws(Failure) {
    if record.timeToIdle != 0 || ages.timeToIdle != 0 { record.accessed = write.times.accessed }
    guard isWithinLimits(write.key.count, record, write.file) else {
      write.outcome = .tooLarge
      counters.refusals.count()
      remove(write.key, write.hash, match, at: moment)
      return
    }
    let none = Bytes(start: nil, count: 0)
    // The block may have the value too, for the memory tier.
    let value =
      write.file == nil ? write.value ?? write.entry.map { Bytes($0.value) } ?? none : none
    try append(
      write.key, write.hash, &record, value, write.file,
      write.entry.map { Bytes($0.extendedData) } ?? none, match, isClean: isClean, at: moment)
    counters.puts.countLocked()
    write.outcome = .stored
  }

  /// A write meets an entry that has expired, and takes its place.
  @inline(never)
  private func noteExpired(_ entry: LogEntry.Head) {
    counters.expirations.count()
    guard let observer else { return }
    observer.storeDrops(entry.key, entry.version, .expired)
    // Memory may keep its copy, which another age keeps alive.
    owed.add(entry.key, entry.version)
  }

  /// Begins to step the key's counter. If no other process has the directory open, the counter
  /// stays as it is: a step would make the copies of all keys that share it stale. A write with a
  /// condition steps it all the same. The step makes the copy of its own process stale too, whose
  /// memory tier follows when the condition has been decided.
  @inline(__always)
  private func setMark(of write: inout LogWrite) {
    guard marks.hasOthers || !write.condition.isAlways else {
      if write.wantsMark { write.mark = marks.now(write.counter) }
      return
    }
    marks.begin(write.counter)
    write.isMarking = true
  }

  /// True if an entry is small enough to be stored.
  func isWithinLimits(_ key: Int, _ record: Record, _ file: LogFile?) -> Bool {
    let own = LogEntry.byteCount(key: key, record, file)
    let limits = limits
    guard own <= largestEntry, record.decodedSize <= Int(UInt32.max),
      UInt64(own) &+ (file?.charge ?? 0) <= limits.largestCharge
    else { return false }
    return file.map { hasRoom(forFile: $0.size) } ?? true
  }

  /// Appends an entry and lets its key's slot name it. A record without a checksum gets that of the
  /// value, which is not small then. `isClean`: `cleanAhead` has cleaned for it.
  private func append(
    _ key: Bytes, _ hash: UInt64, _ record: inout Record, _ value: Bytes, _ file: LogFile?,
    _ extended: Bytes, _ match: LogMatch?, isClean: Bool = false, at moment: Moment
  ) throws(Failure) {
    let size = LogEntry.byteCount(key: key.count, record, file)
    let units = LogFormat.units(size)
    var match = match
    // Cleaning may move the entry that is there, or remove it.
    replaced = match?.entry.address ?? 0
    defer { replaced = 0 }
    var mayHaveMoved = try makeRoom(units, isNew: match == nil, isClean: isClean, at: moment)
    // The file comes second: a segment that the entry needs is there then, and counted.
    if let file, !(match?.entry.hasFile(file) ?? false) {
      let hasMoved = try makeRoom(forFile: file.charge, reserving: units, at: moment.time)
      mayHaveMoved = mayHaveMoved || hasMoved
    }
    if mayHaveMoved, let old = match, !isNamed(old) { match = find(key, hash) }

    let (slot, uses) = try slot(for: match, hash, at: moment)
    let address = words.load(IndexAt.head)
    let seat = try seatOfHead(.new)
    let start = memory(seat, address)
    let isLarge = value.count >= LogPages.pageSize
    let isWritten =
      isLarge && goesThroughFile(value.count, seat)
      && write(key, hash, &record, value, extended, to: start, address)
    if !isWritten {
      let isThere =
        isLarge
        && copyAhead(value, to: start + (size - extended.count - value.count), &record.checksum)
      LogEntry.write(
        to: start, address, record, key: key, value: value, file, extended: extended,
        check: check, hash, isThere ? .allButValue : .all)
    }
    noteEnd(of: record)
    let charge = units &* UInt64(LogFormat.unit) &+ (file?.charge ?? 0)
    let before = files
    let after = before &+ (file?.charge ?? 0) &- (match?.entry.fileCharge ?? 0)
    if let match {
      if !(file.map { match.entry.hasFile($0) } ?? false) { loseFile(of: match.entry) }
      noteEnd(of: match.entry, match.seat, at: address)
    }
    var redo = RedoRecord(words)
    redo.setInPlace(slot - words.base, SlotWord(hash, address, uses: uses).bits)
    redo.setInPlace(IndexAt.head, address &+ units)
    if match == nil { redo.setInPlace(IndexAt.count, count &+ 1) }
    redo.setInPlace(IndexAt.live, live &+ charge &- (match?.entry.charge ?? 0))
    if after != before { redo.setInPlace(IndexAt.files, after) }
    setLive(
      &redo, adding: units, at: address, taking: match?.entry.units ?? 0,
      at: match?.entry.address ?? 0)
    redo.commit()
    prefetchHead(address &+ units, seat)
  }

  /// The slot of a put, and how often its entry counts as read.
  @inline(__always)
  private func slot(
    for match: LogMatch?, _ hash: UInt64, at moment: Moment
  ) throws(Failure) -> (UnsafeMutableRawPointer, uses: UInt64) {
    if let match {
      let uses = SlotWord(SharedWords.load(match.slot)).uses
      return (match.slot, match.seat.isKept ? SlotWord.mostUses : uses)
    }
    let found = try slotForNew(hash, at: moment)
    return (found.slot, found.wasEvicted ? SlotWord.mostUses : 0)
  }

  /// Prefetches what the next write appends to. Else its first exchange of a word has to wait until
  /// the processor has these lines.
  @inline(__always)
  private func prefetchHead(_ address: LogAddress, _ seat: SeatWord) {
    let start = memory(seat, address)
    for line in 1...3 { hutch_prefetch(start + line * LogPages.lineSize) }
  }

  func slotForNew(
    _ hash: UInt64, at moment: Moment
  ) throws(Failure) -> FreeSlot {
    while true {
      guard let page = page(for: hash) else {
        try mend(for: hash)
        continue
      }
      if let slot = freeSlot(page, hash) { return slot }
      try divide(page, at: moment.time)
    }
  }

  /// Appends the entry's value with other times. The new entry takes over the content file. False:
  /// the entry is damaged, and has been removed.
  @inline(never)
  private func touch(
    _ match: LogMatch, _ write: LogWrite, at moment: Moment
  ) throws(Failure) -> Bool {
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
      isSound(
        match.entry, write.hash, value: file?.checksum ?? copy.checksum, Bytes(copy.extendedData))
    else {
      lose(match.slot, match.page, match.entry, .damaged)
      return false
    }
    carried = file?.name.number ?? 0
    hasLostCarried = false
    defer { carried = 0 }
    do throws(Failure) {
      try append(
        write.key, write.hash, &record, Bytes(copy.value), file, Bytes(copy.extendedData), match,
        at: moment)
      if hasLostCarried { noteLoose(-1) }
      return true
    } catch {
      if hasLostCarried, let file { dead.add(file) }
      throw error
    }
  }

  /// Removes a key's entry, and appends a record of the removal.
  private func remove(_ key: Bytes, _ hash: UInt64, _ found: LogMatch?, at moment: Moment) {
    // An entry that has lost its slot must not be found again.
    if found == nil && page(for: hash) == nil { try? mend(for: hash) }
    // A key for whose record no segment has room has never had an entry.
    guard found != nil || needsRecord && LogEntry.removalSize(key: key.count) <= largestEntry
    else { return }
    replaced = found?.entry.address ?? 0
    defer { replaced = 0 }
    let isOfPassed = found == nil && mayRecordPassed
    let units = LogFormat.units(
      isOfPassed ? LogEntry.pairSize : LogEntry.removalSize(key: key.count))
    var match = found
    do throws(Failure) {
      if try makeRoom(units, isNew: false, isRecord: true, at: moment), let found, !isNamed(found) {
        match = find(key, hash)
      }
      let slot = isRebuilding && match == nil ? try slotForNew(hash, at: moment).slot : nil
      let address = words.load(IndexAt.head)
      let seat = try seatOfHead(.new)
      if isOfPassed { return appendPassed(seat, address) }
      var record = Record()
      record.created = moment.time
      let none = Bytes(start: nil, count: 0)
      LogEntry.write(
        to: memory(seat, address), address, record, key: key, value: none, nil, extended: none,
        check: check, hash, kind: .removal)
      let end = address &+ units
      // While the index is being rebuilt the record has the slot, so that no older entry gets one.
      let word = isRebuilding ? SlotWord(hash, address, uses: 0) : nil
      if let match { return drop(match.slot, match.page, match.entry, head: end, leaving: word) }
      var redo = RedoRecord(words)
      if let slot, let word { redo.set(slot - words.base, word.bits) }
      redo.set(IndexAt.head, end)
      redo.commit()
    } catch {
      // Without room for the record the entry goes all the same, and becomes the record.
      if isRebuilding { giveUpRebuilding() }
      if let match = find(key, hash) {
        drop(match.slot, match.page, match.entry)
        hide(match.entry)
      }
      secureRemoval()
    }
  }

  /// An entry has been removed without a record: from here on it says so itself.
  func hide(_ entry: LogEntry.Head) {
    guard let seat = seat(of: entry.address) else { return }
    if seat.isKept { dropOrigin(of: entry) } else { entry.becomeRemoval() }
  }

  /// Removes an entry that no caller has asked for by its key, with a record of the removal.
  func removeRecorded(_ entry: LogEntry.Head, at moment: Moment) {
    var key = GrowingArray<UInt8>()
    guard (try? key.append(contentsOf: entry.key)) != nil else { return }
    let bytes = Bytes(key.elements)
    let hash = hash.entry(bytes)
    remove(bytes, hash, find(bytes, hash), at: moment)
  }

  /// Removes an entry: its slot names none any more, is its ghost, or has the word `leaving`.
  /// `head`: the address behind the record of the removal. `cleaned`: the address up to
  /// which a stream's oldest segment is clean after this.
  func drop(
    _ slot: UnsafeMutableRawPointer, _ page: SlotPage, _ entry: LogEntry.Head,
    head: LogAddress? = nil, cleaned: (LogStream, LogAddress)? = nil, leavesGhost: Bool = false,
    leaving: SlotWord? = nil
  ) {
    let size = entry.charge
    loseFile(of: entry)
    if cleaned != nil { noteEviction() }
    if cleaned == nil, let seat = seat(of: entry.address) {
      noteEnd(of: entry, seat, at: words.load(IndexAt.head))
    }
    var redo = RedoRecord(words)
    let word =
      leaving ?? (leavesGhost ? SlotWord(SharedWords.load(slot)).asGhost : emptied(slot, page))
    redo.setInPlace(slot - words.base, word.bits)
    redo.setInPlace(IndexAt.count, count == 0 ? 0 : count - 1)
    redo.setInPlace(IndexAt.live, live < size ? 0 : live - size)
    if entry.hasFile { redo.setInPlace(IndexAt.files, files - min(files, entry.fileCharge)) }
    setLive(&redo, adding: 0, at: 0, taking: entry.units, at: entry.address)
    if let head { redo.setInPlace(IndexAt.head, head) }
    if let cleaned { redo.setInPlace(cleaned.0.cleaning, cleaned.1) }
    redo.commit()
  }

  /// Removes every entry in one step: all of them are then below the floor. If there are content
  /// files, the whole index is searched for them first.
  func clear() throws(Failure) {
    try locked { () throws(Failure) in
      let hasOthers = marks.hasOthers
      if hasOthers { marks.beginAll() }
      defer { if hasOthers { marks.endAll() } }
      if files > 0 { loseAllFiles() }
      if isRebuilding { giveUpRebuilding() }
      let end = self.end
      var redo = RedoRecord(words)
      redo.set(IndexAt.floor, start(of: words.load(IndexAt.next)))
      redo.set(IndexAt.last, end)
      redo.set(IndexAt.head, 0)
      redo.set(IndexAt.keptHead, 0)
      redo.set(IndexAt.count, 0)
      redo.set(IndexAt.live, 0)
      redo.set(IndexAt.files, 0)
      redo.commit()
    }
  }
}
