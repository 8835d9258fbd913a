import CSystem
import Synchronization

// Reads take no lock. They store nothing but the two notes that an entry was read.

/// An entry that a lookup has found, as it was then.
struct LogMatch {
  let slot: UnsafeMutableRawPointer
  let word: SlotWord
  let page: SlotPage
  let seat: SeatWord
  let entry: LogEntry.Head
}

extension LogStore {
  /// Prefetches the lines with which a lookup of this hash begins.
  @inline(__always)
  func prefetch(_ hash: UInt64) {
    guard let page = page(for: hash) else { return }
    hutch_prefetch(page.base + SlotWord.home(hash) * LogPages.lineSize)
  }

  /// Prefetches the lines of the entry that a lookup of this hash finds, if its slot is in the
  /// first bucket.
  @inline(__always)
  func prefetchEntry(_ hash: UInt64) {
    guard let page = page(for: hash) else { return }
    let line = page.base + SlotWord.home(hash) * LogPages.lineSize
    for i in 0..<LogPages.bucketSlots {
      let word = SlotWord(SharedWords.load(line + i * 8))
      guard word.hasTag(of: hash), word.names, let seat = seatInPlace(of: word.address) else {
        continue
      }
      let start = memory(seat, word.address)
      hutch_prefetch(start)
      hutch_prefetch(start + LogPages.lineSize)
    }
  }

  /// The entry of a key, expired or not.
  @inline(never) @_optimize(speed)
  func find(_ key: Bytes, _ hash: UInt64) -> LogMatch? {
    while true {
      guard let page = pageInPlace(for: hash) else { return nil }
      var isShaken = false
      scan: for offset in 0..<LogPages.window {
        let line =
          page.base + LogPages.line(SlotWord.home(hash), offset) * LogPages.lineSize
        var isLast = false
        for i in 0..<LogPages.bucketSlots {
          let slot = line + i * 8
          let word = SlotWord(SharedWords.load(slot))
          if word.hasTag(of: hash) && word.names {
            // The entry's first lines are far from everything else, and are prefetched at once.
            if let seat = seatInPlace(of: word.address), let entry = entryAhead(seat, word.address),
              entry.key.hasSameBytes(as: key), !entry.isRecord
            {
              return LogMatch(slot: slot, word: word, page: page, seat: seat, entry: entry)
            }
            // The entry is another key's, or went while it was read. It is a miss only if the
            // slot has not changed.
            if SlotWord(SharedWords.load(slot)).address != word.address { isShaken = true }
          } else if word == .unused {
            isLast = true
          }
        }
        if isLast { break scan }
      }
      let now = PageWord(words.load(PageWord.offset(page.number)))
      if !isShaken && now == page.word { return nil }
    }
  }

  /// The newest entry with its value; nil if there is none, or it has expired.
  func get(_ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool) throws(Failure)
    -> Block?
  {
    while let match = live(key, hash, at: moment) {
      // The record of a value in a file is checked before memory is asked for: the file's size may
      // be damaged, or other bytes may have taken the entry's place. It is read before the check:
      // bytes that are sound now were the entry's then too. A size without a file is within the
      // segment in any case.
      var record = match.entry.record
      if match.entry.hasFile,
        !isSound(match.entry, hash, value: match.entry.checksum, match.entry.extended)
      {
        if !isNamed(match) || removeDamaged(match) { continue }
        break
      }
      // This reserves room for the checksum, which is known when the value has been copied.
      record.checksum = 1
      let block = try Block.allocate(key: key, record: record)
      let copy = block.unowned
      var isThere = true
      if match.entry.hasFile {
        isThere = try read(match.entry, into: copy)
        copy.setChecksum()
      } else {
        copy.copyWithChecksum(match.entry.value)
      }
      if record.extendedSize > 0 {
        memcpy(
          copy.extendedData.baseAddress!, match.entry.extended.baseAddress!,
          record.extendedSize)
      }
      let isSound = isThere && self.isSound(
        match.entry, hash, value: copy.checksum, Bytes(copy.extendedData))
      guard isStill(match.seat, match.word.address), isSound || isNamed(match) else { continue }
      guard isSound else {
        if removeDamaged(match) { continue }
        break
      }
      if isAccess { note(match, at: moment) }
      return block
    }
    if isAccess { counters.countMiss() }
    return nil
  }

  /// As `get` with an access, into a caller's buffer: no block is made, and a value in the log is
  /// copied once. If nothing was copied, the buffer may have any bytes.
  @_optimize(speed)
  func copy(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, _ part: Look.Part,
    into buffer: UnsafeMutableRawBufferPointer
  ) -> ValueCopy {
    while let match = live(key, hash, at: moment) {
      let entry = match.entry
      let size = entry.valueSize
      guard size > 0, !entry.hasFile, entry.codecID == 0 else { return .refused }
      let data =
        part == .value
        ? Bytes(start: nil, count: 0) : Extended(entry.extended, tagSize: entry.tagSize).data
      let look = Look(size, data.count, version: entry.version)
      guard look.byteCount <= buffer.count, let start = buffer.baseAddress else {
        if isStill(match.seat, match.word.address) { return .tooLarge(look) }
        continue
      }
      let checksum = Checksum.copying(entry.value, to: start)
      if let extended = data.baseAddress { memcpy(start + size, extended, data.count) }
      let isSound = self.isSound(entry, hash, value: checksum, entry.extended)
      guard isStill(match.seat, match.word.address), isSound || isNamed(match) else { continue }
      guard isSound else {
        if removeDamaged(match) { continue }
        break
      }
      note(match, at: moment)
      return .copied(look)
    }
    counters.countMiss()
    return .absent
  }

  /// The descriptor of the content file that has the newest entry's value. Nil: there is no entry,
  /// or its value has no file.
  func openFile(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Int32? {
    while let match = live(key, hash, at: moment), match.entry.fileOfValue != nil {
      var opened: Int32?
      if let file = match.entry.file {
        opened = try ContentFiles.open(
          file.name, ofSize: match.entry.record.size, in: directory)
      }
      let whole = Descriptor(owning: opened ?? -1)
      guard isNamed(match) else { continue }
      if whole.number >= 0 {
        note(match, at: moment)
        return whole.take()
      }
      if !removeDamaged(match) { return nil }
    }
    return nil
  }

  /// Reads an entry's content file into its block. False: it is not there, or not of the right
  /// size.
  private func read(_ entry: LogEntry.Head, into copy: UnownedBlock) throws(Failure) -> Bool {
    guard let file = entry.file else { return false }
    return try ContentFiles.read(file.name, into: copy.value, in: directory)
  }

  /// True if the key still has this entry. A content file that was not found is lost only in that
  /// case: an entry goes before its file does.
  func isNamed(_ match: LogMatch) -> Bool {
    let word = SlotWord(SharedWords.load(match.slot))
    return word.address == match.word.address && !word.isGhost
      && words.load(PageWord.offset(match.page.number)) == match.page.word.bits
      && isStill(match.seat, match.word.address)
  }

  /// As `get`, the record only; never an access.
  func info(_ key: Bytes, _ hash: UInt64, at moment: Moment) -> Record? {
    look(key, hash, at: moment) { $0.record }
  }

  /// What `body` takes from the newest entry's head; it may be called more than once.
  @inline(__always)
  func look<R>(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, _ body: (LogEntry.Head) -> R
  ) -> R? {
    while let match = live(key, hash, at: moment) {
      let result = body(match.entry)
      if isStill(match.seat, match.word.address) { return result }
    }
    return nil
  }

  /// Calls `visit` with the version and the tag of the newest entry, if there is one. The value is
  /// not read.
  func tag(
    of key: Bytes, _ hash: UInt64, at moment: Moment, visit: (UInt64, Bytes) -> Void
  ) {
    while let match = live(key, hash, at: moment) {
      let entry = match.entry
      // Room for `Extended.longestTag`.
      var room = InlineArray<32, UInt64>(repeating: 0)
      let tag = Extended(entry.extended, tagSize: entry.tagSize).tag
      withUnsafeMutableBytes(of: &room) { $0.copyMemory(from: tag) }
      let isSound = self.isSound(entry, hash, value: entry.checksum, entry.extended)
      guard isStill(match.seat, match.word.address), isSound || isNamed(match) else { continue }
      if isSound {
        return withUnsafeBytes(of: &room) {
          visit(entry.version, Bytes(rebasing: $0[0..<Int(entry.tagSize)]))
        }
      }
      if !removeDamaged(match) { return }
    }
  }

  /// The entry of a key, if it has not expired and is not of a codec that is not here.
  @inline(never) @_optimize(speed)
  private func live(_ key: Bytes, _ hash: UInt64, at moment: Moment) -> LogMatch? {
    while let match = find(key, hash) {
      if !hasExpired(match.entry, at: moment) && isShown(match.entry) { return match }
      if isStill(match.seat, match.word.address) { return nil }
    }
    return nil
  }

  @inline(__always)
  func isShown(_ entry: LogEntry.Head) -> Bool {
    let codec = entry.codecID
    return codec == 0 || codec == codecID
  }

  /// Removes the entry with this version, whose value a codec has found damaged.
  func noteDamage(_ key: Bytes, _ hash: UInt64, _ version: UInt64) {
    if let match = find(key, hash), match.entry.version == version { _ = removeDamaged(match) }
  }

  @inline(__always)
  func hasExpired(_ entry: LogEntry.Head, at moment: Moment) -> Bool {
    let ages = ages
    if entry.fields.isEmpty && !ages.any { return false }
    return hasEnded(entry, at: moment.time, under: ages)
  }

  @inline(__always)
  private func note(_ match: LogMatch, at moment: Moment) {
    counters.countHit()
    noteUse(match, at: moment.time)
  }

  /// Notes that an entry was read, here or in a tier above.
  @inline(__always)
  func noteUse(_ match: LogMatch, at time: Int64) {
    if match.word.uses < SlotWord.mostUses {
      SharedWords.replace(match.slot, match.word.bits, by: match.word.withUse.bits)
    }
    noteAccess(match, at: time)
  }

  /// True if the entry of a key is what was written; if it is not, it is removed. Nil: the key has
  /// no entry. If a content file is not read, its size alone is compared.
  func inspect(_ key: Bytes, readsValues: Bool = true) throws(Failure) -> Bool? {
    let hash = hash.entry(key)
    while let match = find(key, hash) {
      let entry = match.entry
      var checksum = entry.checksum
      var isThere = true
      if entry.hasFile {
        isThere = try isThereFile(entry, &checksum, readsValue: readsValues)
      } else if readsValues {
        checksum = Checksum.xxh3(entry.value)
      }
      let isSound = isThere && self.isSound(entry, hash, value: checksum, entry.extended)
      guard isStill(match.seat, match.word.address), isSound || isNamed(match) else { continue }
      if isSound { return true }
      _ = removeDamaged(match, until: nil)
      return false
    }
    return nil
  }

  /// True if an entry's content file is there and has the right size. `checksum` receives the
  /// file's if `readsValue` is true.
  func isThereFile(
    _ entry: LogEntry.Head, _ checksum: inout UInt64, readsValue: Bool
  ) throws(Failure) -> Bool {
    guard let file = entry.file,
      try ContentFiles.size(file.name, in: directory) == file.size
    else { return false }
    guard readsValue else { return true }
    let buffer = OutputBuffer()
    guard try ContentFiles.read(file.name, into: buffer, in: directory) else { return false }
    checksum = Checksum.xxh3(buffer.bytes)
    return true
  }

  /// Notes the time of a read. The word `accessed` has bits of the entry's address, so the exchange
  /// fails if other bytes have taken the entry's place.
  func noteAccess(_ match: LogMatch, at time: Int64) {
    match.entry.noteAccess(at: time, isIdling: ages.mayIdle(own: match.entry.timeToIdle))
  }

  /// Empties the slot of an entry whose bytes are not what was written: its key has no entry then.
  /// False: the lock is not free, and a reader does not wait. The entry is counted then, and noted:
  /// the end of a call removes it (`removeNoted`).
  @inline(never)
  private func removeDamaged(
    _ match: LogMatch, until end: Deadline? = Deadline(after: 0)
  ) -> Bool {
    do throws(Failure) {
      try locked(until: end) { () throws(Failure) in
        guard isNamed(match) else { return }
        // One that is noted has been counted.
        let isCounted = owed.isNoted(match.entry.address)
        lose(match.slot, match.page, match.entry, .damaged, isCounted: isCounted)
      }
      return true
    } catch {
      let noted = LogOwed.Damaged(
        address: match.entry.address, hash: hash.entry(match.entry.key))
      if isNamed(match) && owed.add(noted) { counters.damaged.count() }
      return false
    }
  }

  /// Removes the damaged entries that were noted, if the lock is free and they are still there.
  func removeNoted() {
    guard owed.hasDamaged else { return }
    _ = try? locked(until: Deadline(after: 0)) { () throws(Failure) in
      while let noted = owed.takeDamaged() {
        guard let seat = seat(of: noted.address), let entry = entry(seat, noted.address),
          entry.keySize > 0, let (slot, page) = slot(of: entry, noted.hash)
        else { continue }
        lose(slot, page, entry, .damaged, isCounted: true)
      }
    }
  }
}
