import CSystem
import Synchronization

// The two streams of segments, and how segments come, are used again, and go. With the lock held.
//
// New entries, all of them, go to the stream `new`, in the order of their writes. When the cleaner
// comes to an entry that was read twice since, or whose key had been evicted lately, it appends a
// copy to the stream `kept`; others it evicts. So entries that are asked for once pass through a
// fifth of the log, and the other entries have the rest to themselves.

enum LogStream {
  case new, kept

  // Offsets in the index.
  @inline(__always) var head: Int { self == .new ? IndexAt.head : IndexAt.keptHead }
  @inline(__always) var oldest: Int { self == .new ? IndexAt.oldest : IndexAt.keptOldest }
  @inline(__always) var cleaning: Int { self == .new ? IndexAt.cleaning : IndexAt.keptCleaning }
  @inline(__always) var active: Int { self == .new ? IndexAt.active : IndexAt.keptActive }

  /// The part of the log that new entries have, one in so many.
  static let newPart: UInt64 = 5
  /// Where there may be fewer segments, there is one stream. Other policies than the store's own
  /// have one stream too: by age (`LogStore.isToStay`).
  static let leastSegments = 6
}

extension LogStore {
  @inline(__always)
  func segmentCount(_ stream: LogStream) -> UInt64 {
    let kept = words.load(IndexAt.keptSegments)
    if stream == .kept { return kept }
    return words.load(IndexAt.segments) &- kept &- (hasSpare ? 1 : 0)
  }

  @inline(__always) var hasSpare: Bool { words.load(IndexAt.spare) != 0 }

  /// The active segment's number, if there is one.
  @inline(__always)
  func active(_ stream: LogStream) -> UInt64? {
    words.load(stream.head) == 0 ? nil : words.load(stream.active)
  }

  /// Where the new entries end.
  @inline(__always)
  var end: LogAddress {
    let head = words.load(IndexAt.head)
    return head == 0 ? words.load(IndexAt.last) : head
  }

  /// The units that can be appended to the active segment; 0 before its first entry is there.
  @inline(__always)
  func room(_ stream: LogStream) -> UInt64 {
    let filled = words.load(stream.head) & (segmentUnits - 1)
    return filled == 0 ? 0 : segmentUnits &- filled
  }

  /// The units of the oldest segment that have been cleaned.
  @inline(__always)
  func cleaned(_ stream: LogStream) -> UInt64 {
    segmentCount(stream) == 0
      ? 0 : words.load(stream.cleaning) &- start(of: words.load(stream.oldest))
  }

  /// The units from where cleaning goes on to the head.
  private func length(_ stream: LogStream) -> UInt64 {
    let count = segmentCount(stream)
    return count == 0 ? 0 : count &<< unitShift &- cleaned(stream) &- room(stream)
  }

  /// The next segment of a stream behind this one; nil: there is none. A segment may outlive
  /// rounds of the table, so there may be numbers of several rounds in it.
  func following(_ number: UInt64, _ stream: LogStream) -> UInt64? {
    let next = words.load(IndexAt.next)
    var nearest: UInt64?
    var step: UInt64 = 1
    while step < UInt64(IndexAt.seatCount) && number &+ step < next {
      let offset = SeatWord.offset(number &+ step)
      guard hasSeats(at: offset) else {
        step &+= UInt64((LogPages.pageSize - offset % LogPages.pageSize) / SeatWord.stride)
        continue
      }
      let seat = SeatWord(words.load(offset))
      if seat.number > number && seat.isKept == (stream == .kept) {
        if seat.number == number &+ step { return seat.number }
        nearest = min(nearest ?? seat.number, seat.number)
      }
      step += 1
    }
    return nearest
  }

  /// Whether the file has the page of the segment table with the word at an offset. The numbers of
  /// segments leave pages out at a clear and at a recovery. A load from a hole of the file would
  /// need room on tmpfs, and finds no segment.
  private func hasSeats(at offset: Int) -> Bool {
    let page = (offset - IndexAt.seats) / LogPages.pageSize
    if knownSeats[page >> 6] >> UInt64(page & 63) & 1 != 0 { return true }
    guard Files.hasData(indexFile.number, at: offset - offset % LogPages.pageSize) else {
      return false
    }
    knownSeats[page >> 6] |= 1 << UInt64(page & 63)
    return true
  }

  /// Every segment that is in the table, and the spare one.
  func eachSegment(_ visit: (SeatWord) -> Void) {
    func visitAll(_ stream: LogStream) {
      var number: UInt64? = segmentCount(stream) == 0 ? nil : words.load(stream.oldest)
      while let segment = number {
        visit(SeatWord(words.load(SeatWord.offset(segment))))
        number = following(segment, stream)
      }
    }
    visitAll(.new)
    visitAll(.kept)
    if hasSpare { visit(SeatWord(.new, number: 0, place: sparePlace)) }
  }

  private var sparePlace: Int { Int(truncatingIfNeeded: words.load(IndexAt.spare) &- 1) & 0xFFFF }

  // MARK: the stream that is cleaned

  /// The stream whose oldest segment is cleaned next. `keepsAll`: the one that has the oldest
  /// segment of all. Where no segment can be added, a segment that has been begun is cleaned to
  /// its end, since only a whole one is of use. `allowed`: how many segments there may be.
  func victim(keepsAll: Bool, of allowed: Int) -> LogStream {
    if segmentCount(.kept) == 0 { return .new }
    if segmentCount(.new) == 0 { return .kept }
    let oldest = (words.load(IndexAt.oldest), words.load(IndexAt.keptOldest))
    let floor = words.load(IndexAt.floor)
    if keepsAll || start(of: min(oldest.0, oldest.1)) < floor {
      return oldest.0 < oldest.1 ? .new : .kept
    }
    if segmentCount >= allowed {
      if oldest.0 == active(.new) || !hasTwoStreams(of: allowed) { return .kept }
      if cleaned(.new) > 0 { return .new }
      if cleaned(.kept) > 0 && oldest.1 != active(.kept) { return .kept }
    }
    let (new, kept) = (length(.new), length(.kept))
    return kept == 0 || new &* LogStream.newPart > new &+ kept ? .new : .kept
  }

  /// Whether nothing is left in a stream's oldest segment, and it is not the active one.
  private func isDone(_ stream: LogStream) -> Bool {
    guard segmentCount(stream) > 0 else { return false }
    let number = words.load(stream.oldest)
    return number != active(stream)
      && (words.load(stream.cleaning) >= start(of: number &+ 1)
        || start(of: number) < words.load(IndexAt.floor))
  }

  // MARK: segments

  /// Begins a segment of new entries. `isRecord`: for one of the store's own records.
  func roll(isRecord: Bool = false, at now: Int64) throws(Failure) {
    if isBeginning(.new) { return try appendBeginning(.new) }
    shrink(at: now)
    func mayGrow() -> Bool { segmentCount == 0 || segmentCount < allowedSegments }
    // What a clear has left behind is used again first. Content files that go leave room for a
    // segment more.
    while !hasSpare && !release(asSpare: true) && files > 0 && !mayGrow()
      && clean(at: now) == .cleaned
    {}
    if hasSpare || mayGrow() {
      do throws(Failure) {
        return try begin(.new)
      } catch {
        // The disk is full: the store goes on with the segments that it has.
        guard error.status == .noSpace, segmentCount >= 2 else { throw error }
        // Where it is the segment table that needs a page, no entry goes for a record.
        if isRecord { _ = try nextNumber() }
      }
    }
    func makeSpare() throws(Failure) {
      while !hasSpare && !release(asSpare: true) {
        if clean(at: now) == .atEnd && !release(asSpare: true) { try releaseKept() }
      }
    }
    try makeSpare()
    if segmentCount > 2, !hasWaitingPlaces, (try? nextNumber()) == nil {
      // The table needs a page, and the disk has none: the spare segment makes room for it, once
      // its place is given back. While one waits for its readers, no other segment goes for that.
      giveUpSpare()
      _ = try nextNumber()
      try makeSpare()
    }
    try begin(.new)
  }

  /// Begins a segment, in the spare one's place if there is one.
  func begin(_ stream: LogStream) throws(Failure) {
    if isBeginning(stream) { return try appendBeginning(stream) }
    let number = try nextNumber()
    let usesSpare = hasSpare
    if usesSpare || segmentCount < Int(clamping: words.load(IndexAt.places)) {
      try keepForCheckpoint()
    }
    let place = usesSpare ? sparePlace : try newPlace()
    // A clear leaves numbers behind.
    if liveUnits(number) != 0 { words.store(SeatWord.liveOffset(number), 0) }
    var redo = RedoRecord(words)
    redo.set(SeatWord.offset(number), SeatWord(stream, number: number, place: place).bits)
    if segmentCount(stream) == 0 {
      redo.set(stream.oldest, number)
      redo.set(stream.cleaning, start(of: number))
    }
    if usesSpare {
      round.note(number, of: segmentCount)
      redo.set(IndexAt.spare, 0)
    } else {
      redo.set(IndexAt.segments, UInt64(segmentCount + 1))
      redo.set(IndexAt.places, max(words.load(IndexAt.places), UInt64(place + 1)))
    }
    if stream == .kept {
      redo.set(IndexAt.keptSegments, segmentCount(.kept) &+ 1)
    } else {
      redo.set(IndexAt.moved, movedBefore)
      redo.set(IndexAt.last, end)
    }
    redo.set(IndexAt.next, number &+ 1)
    redo.set(stream.active, number)
    redo.set(stream.head, start(of: number))
    redo.commit()
    try appendBeginning(stream)
  }

  /// The place of the active segment. If the table has lost it, there is no active segment from
  /// here on, and what is appended next begins another one.
  @inline(never)
  func seatOfHead(_ stream: LogStream) throws(Failure) -> SeatWord {
    if let seat = seat(of: words.load(stream.head)), seat.isKept == (stream == .kept) {
      return seat
    }
    var redo = RedoRecord(words)
    if stream == .new { redo.set(IndexAt.last, end) }
    redo.set(stream.head, 0)
    redo.commit()
    throw Failure(.corrupt, "the log's head is in no segment")
  }

  /// Whether the active segment has not even its first entry.
  func isBeginning(_ stream: LogStream) -> Bool {
    let head = words.load(stream.head)
    return head != 0 && head == start(of: words.load(stream.active))
  }

  /// Appends the first entry of a segment. Readers of the segment that had the place before may be
  /// there until the table says otherwise, so it is not part of the step that changes the table.
  func appendBeginning(_ stream: LogStream) throws(Failure) {
    let address = words.load(stream.head)
    let seat = try seatOfHead(stream)
    let end = stream == .new ? words.load(IndexAt.last) : 0
    // A reader that sees a byte of this segment in its place sees that the one before has gone.
    atomicMemoryFence(ordering: .releasing)
    let units = writePair(.beginning, end, words.load(IndexAt.floor), seat, address)
    words.store(stream.head, address &+ units)
  }

  /// Writes a record of two words, its key and its value, above a head. How many units it has.
  func writePair(
    _ kind: LogEntry.Fields, _ key: UInt64, _ value: UInt64, _ seat: SeatWord,
    _ address: LogAddress
  ) -> UInt64 {
    var pair: InlineArray<2, UInt64> = [key, value]
    withUnsafeBytes(of: &pair) {
      let (key, value) = (Bytes(rebasing: $0[..<8]), Bytes(rebasing: $0[8...]))
      var record = Record()
      record.size = 8
      record.checksum = Checksum.xxh3(value)
      LogEntry.write(
        to: memory(seat, address), address, record, key: key, value: value, nil,
        extended: Bytes(start: nil, count: 0), check: check, hash.entry(key), kind: kind)
    }
    return LogFormat.units(LogEntry.pairSize)
  }

  /// Takes an oldest segment in which nothing is left out of its stream. Either it becomes the
  /// spare one, or its bytes go back to the file system. False: there is none.
  func release(asSpare: Bool) -> Bool {
    if asSpare && hasSpare { return false }
    guard isDone(.new) || isDone(.kept) else { return false }
    release(isDone(.new) ? .new : .kept, asSpare: asSpare)
    return true
  }

  /// Makes the active segment of the kept stream the spare one. There is no other, and nothing is
  /// left in it.
  func releaseKept() throws(Failure) {
    guard active(.kept) == words.load(IndexAt.keptOldest), segmentCount(.kept) > 0 else {
      throw Failure(.corrupt, "no segment can be used again")
    }
    release(.kept, asSpare: true)
  }

  private func release(_ stream: LogStream, asSpare: Bool) {
    let number = words.load(stream.oldest)
    let seat = SeatWord(words.load(SeatWord.offset(number)))
    // The table may have lost it, and its place.
    let isThere = seat.number == number && isThere(seat.place)
    let becomesSpare = asSpare && isThere
    // Where nothing follows, the numbers of segments are right afterwards, whatever they were.
    var left = segmentCount
    noteRelease()
    var redo = RedoRecord(words)
    redo.set(SeatWord.offset(number), 0)
    let second = following(number, stream)
    if let second {
      redo.set(stream.oldest, second)
      redo.set(stream.cleaning, start(of: second))
    } else {
      redo.set(stream.head, 0)
      left = Int(segmentCount(stream == .new ? .kept : .new) & 0xFFFF_FFFF) + (hasSpare ? 2 : 1)
    }
    if stream == .kept {
      redo.set(IndexAt.keptSegments, second == nil ? 0 : segmentCount(.kept) &- 1)
    }
    if becomesSpare { redo.set(IndexAt.spare, UInt64(seat.place + 1)) } else { left -= 1 }
    redo.set(IndexAt.segments, UInt64(max(left, 0)))
    redo.commit()
    if isThere && !asSpare { giveBack(seat.place) }
  }

  func giveUpSpare() {
    let place = sparePlace
    var redo = RedoRecord(words)
    redo.set(IndexAt.spare, 0)
    redo.set(IndexAt.segments, UInt64(max(segmentCount - 1, 0)))
    redo.commit()
    giveBack(place)
  }

  /// Gives up what is more than there may be, or is after `pages` more pages of the index: two
  /// segments at most, for what lowered limits have made too many goes in slices (`setLimits`). A
  /// number of more segments than places is wrong, and comes right once all have gone.
  func shrink(addingPages pages: UInt64 = 0, at now: Int64) {
    let isWrong = segmentCount > Int(clamping: words.load(IndexAt.places))
    let least = isWrong ? 2 : max(segmentCount - 2, 2)
    while segmentCount > least, segmentCount > allowed(pages: words.load(IndexAt.pages) &+ pages) {
      if hasSpare {
        giveUpSpare()
      } else if clean(reserving: segmentUnits, at: now) == .atEnd && !release(asSpare: false) {
        return
      }
    }
  }

  // MARK: what the cleaner appends

  /// A word behind a kept entry, of an address and bits by which it is known to be one.
  private func trailerWord(_ address: LogAddress, behind entry: LogAddress) -> UInt64 {
    Folding.fold(address ^ check.secrets.0, entry ^ check.secrets.1) & ~LogFormat.addressMask
      | address
  }

  /// What follows a kept entry; nil: the segment has no room for it, and is damaged.
  func trailer(_ entry: LogEntry.Head) -> UnsafeMutableRawPointer? {
    let end = entry.address & (segmentUnits - 1) &+ entry.units
    return end < segmentUnits ? entry.start + Int(entry.units) * LogFormat.unit : nil
  }

  /// The address in a word behind a kept entry; nil: the word is damaged.
  func trailerAddress(_ offset: Int, of entry: LogEntry.Head) -> LogAddress? {
    guard let trailer = trailer(entry) else { return nil }
    let word = SharedWords.load(trailer + offset)
    let address = word & LogFormat.addressMask
    if word == 0 && offset > 0 { return 0 }
    return trailerWord(address, behind: entry.address) == word ? address : nil
  }

  /// The address that an entry of the stream had among the new ones.
  private func origin(of entry: LogEntry.Head, _ stream: LogStream) -> LogAddress {
    guard stream == .kept, let trailer = trailer(entry) else { return entry.address }
    return SharedWords.load(trailer) & LogFormat.addressMask
  }

  /// Writes a copy of an entry of `stream` to where `address` is, above the head of `target`. How
  /// many units it has.
  func copy(
    _ entry: LogEntry.Head, of stream: LogStream, to seat: SeatWord, _ address: LogAddress
  ) -> UInt64 {
    let start = memory(seat, address)
    if entry.byteCount < LogPages.pageSize || !copy(entry, to: start, address, seat) {
      LogEntry.copy(entry, to: start, address)
    }
    guard seat.isKept else { return entry.units }
    let trailer = start + Int(entry.units) * LogFormat.unit
    SharedWords.store(trailer, trailerWord(origin(of: entry, stream), behind: address))
    SharedWords.store(trailer + 8, 0)
    return entry.units &+ LogEntry.trailerUnits
  }

  /// A kept entry is about to be replaced or removed, by what is appended at `end`. A kill before
  /// that is done leaves an entry that a loss of power may take.
  func noteEnd(of entry: LogEntry.Head, _ seat: SeatWord, at end: LogAddress) {
    guard seat.isKept, let trailer = trailer(entry) else { return }
    SharedWords.store(trailer + 8, trailerWord(end, behind: entry.address))
  }

  /// A kept entry has been removed, and there is no record of that.
  func dropOrigin(of entry: LogEntry.Head) {
    if let trailer = trailer(entry) { SharedWords.store(trailer, 0) }
  }

  /// What was appended beyond its share when a segment of new entries is full.
  private var movedBefore: UInt64 {
    let (moved, share) = (words.load(IndexAt.moved), segmentUnits * 3 / 10)
    return moved > share ? moved - share : 0
  }

  /// Whether the cleaner may append so many units: they are no more than 0.3 of what is put. What
  /// it has left is saved for later, up to half of the log.
  func mayMove(_ units: UInt64) -> Bool {
    words.load(IndexAt.moved) &+ units <= UInt64(max(segmentCount, 2)) &<< (unitShift - 1)
  }

  /// Where what is kept goes.
  var keptTarget: LogStream { hasTwoStreams(of: allowedSegments) ? .kept : .new }

  /// False: what is kept goes to the new entries, and what the kept stream still has goes first.
  /// `allowed`: how many segments there may be.
  func hasTwoStreams(of allowed: Int) -> Bool {
    allowed >= LogStream.leastSegments && policy == .adaptive
  }
}
