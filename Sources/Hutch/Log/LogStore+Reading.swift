import CSystem
import Synchronization

// Reads: no lock, and no store but the two that say that an entry was read.

/// An entry that a lookup has found, as it was then.
struct LogMatch {
  let slot: UnsafeMutableRawPointer
  let word: SlotWord
  let page: SlotPage
  let seat: SeatWord
  let entry: LogEntry.Head
}

extension LogStore {
  /// Asks for the lines that a lookup of this hash begins with.
  @inline(__always)
  func prefetch(_ hash: UInt64) {
    guard let page = page(for: hash) else { return }
    hutch_prefetch(page.base + SlotWord.home(hash) * LogPages.lineSize)
  }

  /// The entry that a key has; whether it has expired is for others to say.
  @inline(never) @_optimize(speed)
  func find(_ key: Bytes, _ hash: UInt64) -> LogMatch? {
    while true {
      guard let page = page(for: hash) else { return nil }
      var isShaken = false
      scan: for offset in 0..<LogPages.window {
        let line =
          page.base + LogPages.line(SlotWord.home(hash), offset) * LogPages.lineSize
        var isLast = false
        for i in 0..<LogPages.bucketSlots {
          let slot = line + i * 8
          let word = SlotWord(SharedWords.load(slot))
          if word.hasTag(of: hash) && word.names {
            if let seat = seat(of: word.address), let entry = entry(seat, word.address),
              entry.key.hasSameBytes(as: key)
            {
              return LogMatch(slot: slot, word: word, page: page, seat: seat, entry: entry)
            }
            // Another key's, or one that went while it was looked at: that is a miss only if
            // the slot says the same still.
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
    while let match = live(key, hash, at: moment, isAccess: isAccess) {
      var record = match.entry.record
      // There is room for it then; what it is, is known when the value has been copied.
      record.checksum = 1
      let block = try Block.allocate(key: key, record: record)
      let copy = block.unowned
      memcpy(copy.value.baseAddress!, match.entry.value.baseAddress!, record.size)
      if record.extendedSize > 0 {
        memcpy(
          copy.extendedData.baseAddress!, match.entry.extended.baseAddress!,
          record.extendedSize)
      }
      copy.setChecksum()
      let isSound = match.entry.isSound(
        hash, by: check, value: copy.checksum, Bytes(copy.extendedData))
      guard isStill(match.seat, match.word.address) else { continue }
      guard isSound else {
        if removeDamaged(match) { continue }
        break
      }
      if isAccess { note(match, at: moment) }
      return block
    }
    if isAccess { counters.misses.count() }
    return nil
  }

  /// As `get`, with as much of the value as there is room for in `target`. The record's size is
  /// that of the whole value, which is checked only if it is all there.
  func copy(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool,
    into target: UnsafeMutableRawBufferPointer
  ) -> Record? {
    while let match = live(key, hash, at: moment, isAccess: isAccess) {
      var record = match.entry.record
      let value = match.entry.value
      var isSound = true
      if value.count <= target.count {
        let copied = UnsafeMutableRawBufferPointer(rebasing: target[..<value.count])
        if value.count > 0 { memcpy(copied.baseAddress!, value.baseAddress!, value.count) }
        record.checksum = Checksum.xxh3(Bytes(copied))
        isSound = match.entry.isSound(
          hash, by: check, value: record.checksum, match.entry.extended)
      } else if target.count > 0 {
        memcpy(target.baseAddress!, value.baseAddress!, target.count)
      }
      guard isStill(match.seat, match.word.address) else { continue }
      guard isSound else {
        if removeDamaged(match) { continue }
        break
      }
      if isAccess { note(match, at: moment) }
      return record
    }
    if isAccess { counters.misses.count() }
    return nil
  }

  /// As `get`, the record only; never an access.
  func info(_ key: Bytes, _ hash: UInt64, at moment: Moment) -> Record? {
    while let match = live(key, hash, at: moment, isAccess: false) {
      let record = match.entry.record
      if isStill(match.seat, match.word.address) { return record }
    }
    return nil
  }

  /// A match that has not expired, or was there when it was looked at.
  @inline(__always)
  private func live(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool
  ) -> LogMatch? {
    while let match = find(key, hash) {
      guard hasExpired(match.entry, at: moment) else { return match }
      if isStill(match.seat, match.word.address) { return nil }
    }
    return nil
  }

  @inline(__always)
  func hasExpired(_ entry: LogEntry.Head, at moment: Moment) -> Bool {
    let ages = ages
    if entry.fields.isEmpty && !ages.any { return false }
    let record = entry.record
    return record.mayExpire(under: ages) && record.isExpired(at: moment.time, under: ages)
  }

  @inline(__always)
  private func note(_ match: LogMatch, at moment: Moment) {
    counters.hits.count()
    noteUse(match, at: moment.time)
  }

  /// An entry was read, here or in a tier above.
  @inline(__always)
  func noteUse(_ match: LogMatch, at time: Int64) {
    if !match.word.isUsed {
      SharedWords.replace(match.slot, match.word.bits, by: match.word.withUse.bits)
    }
    noteAccess(match, at: time)
  }

  /// Whether what a key has is what was written; if not, it is removed. Nil: it has nothing.
  func inspect(_ key: Bytes) -> Bool? {
    let hash = hash.entry(key)
    while let match = find(key, hash) {
      let isSound = match.entry.isSound(
        hash, by: check, value: Checksum.xxh3(match.entry.value), match.entry.extended)
      guard isStill(match.seat, match.word.address) else { continue }
      if isSound { return true }
      _ = removeDamaged(match, until: Deadline(at: Int64.max))
      return false
    }
    return nil
  }

  /// Notes when the entry was read. `accessed` has the entry's address beside it, so this fails
  /// if other bytes are there by now.
  func noteAccess(_ match: LogMatch, at time: Int64) {
    let isIdling = ages.timeToIdle != 0 || match.entry.fields.contains(.timeToIdle)
    match.entry.noteAccess(at: time, isIdling: isIdling)
  }

  /// An entry's bytes are not what was written: its slot is emptied, and its key has none. False:
  /// the lock is not free, and a reader does not wait; a later read will meet the entry again.
  @inline(never)
  private func removeDamaged(
    _ match: LogMatch, until end: Deadline = Deadline(after: 0)
  ) -> Bool {
    do throws(Failure) {
      try locked(until: end) { () throws(Failure) in
        guard SlotWord(SharedWords.load(match.slot)).address == match.word.address,
          words.load(PageWord.offset(match.page.number)) == match.page.word.bits
        else { return }
        lose(match.slot, match.page, match.entry, .damaged)
      }
      return true
    } catch {
      return false
    }
  }
}
