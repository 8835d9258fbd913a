import CSystem
import Synchronization

// Segments: the way from an address to memory, and how segments come and go.

extension LogStore {
  @inline(__always)
  func start(of number: UInt64) -> LogAddress { number << unitShift }

  /// The place of an address's segment. Nil: the segment has gone, or its entries were cleared.
  @inline(__always)
  func seat(of address: LogAddress) -> SeatWord? {
    let number = address >> unitShift
    let seat = SeatWord(words.load(SeatWord.offset(number)))
    guard seat.number == number, seat.bits != 0, isThere(seat.place),
      address >= words.load(IndexAt.floor)
    else { return nil }
    return seat
  }

  /// True if an entry at this address was there all the while, from the load of `seat` until now.
  @inline(__always)
  func isStill(_ seat: SeatWord, _ address: LogAddress) -> Bool {
    atomicMemoryFence(ordering: .acquiring)
    return words.load(SeatWord.offset(seat.number)) == seat.bits
      && address >= words.load(IndexAt.floor)
  }

  /// True if the file has this place. Another process may have made the file longer since the last
  /// look.
  @inline(__always)
  private func isThere(_ place: Int) -> Bool {
    place < knownPlaces.load(ordering: .relaxed) || findPlaces(place)
  }

  @inline(never)
  private func findPlaces(_ place: Int) -> Bool {
    guard let status = Files.status(of: logFile.number) else { return false }
    let places = min(Int(status.st_size) >> segmentShift, mappedPlaces)
    knownPlaces.store(places, ordering: .relaxed)
    return place < places
  }

  @inline(__always)
  func memory(_ seat: SeatWord, _ address: LogAddress) -> UnsafeMutableRawPointer {
    logBase + (seat.place << segmentShift | Int(address & (segmentUnits - 1)) << 4)
  }

  /// The entry at an address, as far as a look at its head tells.
  @inline(__always)
  func entry(_ seat: SeatWord, _ address: LogAddress) -> LogEntry.Head? {
    let room = segmentSize - Int(address & (segmentUnits - 1)) << 4
    return LogEntry.Head(memory(seat, address), address, room: room)
  }

  /// As `entry`, and prefetches what follows the head: the key, and the beginning of the value.
  @inline(__always)
  func entryAhead(_ seat: SeatWord, _ address: LogAddress) -> LogEntry.Head? {
    let start = memory(seat, address)
    hutch_prefetch(start + LogPages.lineSize)
    hutch_prefetch(start + 2 * LogPages.lineSize)
    return entry(seat, address)
  }

  // MARK: with the lock held

  /// The next segment behind this one that is there; nil: there is none.
  func following(_ number: UInt64) -> UInt64? {
    let next = min(words.load(IndexAt.next), number &+ UInt64(IndexAt.seatCount))
    var number = number &+ 1
    while number < next {
      if SeatWord(words.load(SeatWord.offset(number))).number == number { return number }
      number &+= 1
    }
    return nil
  }

  /// The active segment's number, if there is one.
  @inline(__always)
  var active: UInt64? { words.load(IndexAt.head) == 0 ? nil : words.load(IndexAt.next) &- 1 }

  var segmentCount: Int { Int(clamping: words.load(IndexAt.segments)) }

  /// The number of segments that the limit allows.
  var allowedSegments: Int { allowed(pages: words.load(IndexAt.pages)) }

  private func allowed(pages: UInt64) -> Int {
    let limit = words.load(IndexAt.limits)
    let most = min(mappedPlaces, IndexAt.seatCount / 2)
    if limit == 0 { return most }
    let beside = indexSize(pages) &+ files
    let left = limit > beside ? limit - beside : 0
    return Int(min(max(left >> UInt64(segmentShift), 2), UInt64(most)))
  }

  /// The bytes of the index that count: its pages, its head, and the first page of either table.
  private func indexSize(_ pages: UInt64) -> UInt64 {
    let step = UInt64(LogPages.step)
    let reserved = (pages &+ (step - 1)) / step &* step
    return (reserved &+ 3) &* UInt64(LogPages.pageSize)
  }

  /// The bytes of the directory that count against its limit.
  var taken: UInt64 {
    indexSize(words.load(IndexAt.pages)) &+ UInt64(segmentCount) << UInt64(segmentShift) &+ files
  }

  /// True if that many units can be appended to the active segment, which has begun.
  @inline(__always)
  func hasRoom(_ units: UInt64) -> Bool {
    let head = words.load(IndexAt.head)
    return head & (segmentUnits - 1) != 0 && head &+ units <= start(of: words.load(IndexAt.next))
  }

  /// The largest entry that a segment has room for, in bytes.
  var largestEntry: Int { segmentSize - LogEntry.beginningSize }

  /// A step towards a segment with room.
  func roll(at now: Int64) throws(Failure) {
    let head = words.load(IndexAt.head)
    if head != 0 && head == start(of: words.load(IndexAt.next) &- 1) { return try begin(head) }
    shrink(at: now)
    // A clear has left segments behind: they are used again first.
    let isLeft = words.load(IndexAt.oldest) < words.load(IndexAt.floor) >> unitShift
    func mayGrow() -> Bool { segmentCount == 0 || segmentCount < allowedSegments && !isLeft }
    // Content files that go leave room for a segment more.
    while files > 0 && !mayGrow() && clean(reserving: 0, at: now) == .cleaned {}
    if mayGrow() {
      do throws(Failure) {
        return try grow()
      } catch {
        // The disk is full: the store goes on with the segments that it has.
        guard error.status == .noSpace, segmentCount >= 2 else { throw error }
      }
    }
    try reuse(at: now)
  }

  /// Gives up the segments beyond the number that the limit allows once the index has `pages` more
  /// pages.
  func shrink(addingPages pages: UInt64 = 0, at now: Int64) {
    while segmentCount > 2, segmentCount > allowed(pages: words.load(IndexAt.pages) + pages) {
      if clean(reserving: segmentUnits, at: now) == .atEnd { retire() }
    }
  }

  /// Appends the first entry of a segment. Readers of the segment that had the place before may be
  /// there until the table says otherwise, so it is not part of the step that changes the table.
  private func begin(_ address: LogAddress) throws(Failure) {
    guard let seat = seat(of: address) else {
      throw Failure(.corrupt, "the log's head is in no segment")
    }
    var (end, floor) = (words.load(IndexAt.last), words.load(IndexAt.floor))
    withUnsafeBytes(of: &end) { key in
      withUnsafeBytes(of: &floor) { value in
        var record = Record()
        record.size = 8
        record.checksum = Checksum.xxh3(value)
        LogEntry.write(
          to: memory(seat, address), address, record, key: key, value: value, nil,
          extended: Bytes(start: nil, count: 0), check: check, hash.entry(key), kind: .beginning)
      }
    }
    words.store(IndexAt.head, address &+ LogFormat.units(LogEntry.beginningSize))
  }

  /// Where the entries of the newest segment end.
  private var end: LogAddress {
    let head = words.load(IndexAt.head)
    return head != 0 ? head : words.load(IndexAt.last)
  }

  /// The next segment's number: one whose word of the table is free. A segment that has outlived
  /// a whole round of the table keeps its own.
  private func nextNumber() throws(Failure) -> UInt64 {
    let next = words.load(IndexAt.next)
    var number = next
    while words.load(SeatWord.offset(number)) != 0 && number < next &+ UInt64(IndexAt.seatCount) {
      number &+= 1
    }
    let perPage = UInt64(LogPages.pageSize / 8)
    if number / perPage != (next &- 1) / perPage {
      try Files.reserve(indexFile.number, SeatWord.offset(number), 8)
      CrashPoint.pass()
    }
    return number
  }

  /// The units beyond their share, a third of a segment, that entries have taken which were
  /// appended once more.
  private var movedBefore: UInt64 {
    let (moved, share) = (words.load(IndexAt.moved), segmentUnits / 3)
    return moved > share ? moved - share : 0
  }

  /// Adds a segment.
  private func grow() throws(Failure) {
    let number = try nextNumber()
    let place = freePlace()
    let minFree = words.load(IndexAt.limits + 40)
    let least = minFree.addingReportingOverflow(UInt64(segmentSize)).partialValue
    if minFree > 0, let space = Files.space(of: logFile.number),
      UInt64(clamping: space.free) < least
    {
      throw Failure(.noSpace, "the file system has less free than is to stay free")
    }
    try Files.reserve(logFile.number, place << segmentShift, segmentSize)
    CrashPoint.pass()
    var redo = RedoRecord(words)
    redo.set(SeatWord.offset(number), SeatWord(number: number, place: place).bits)
    if segmentCount == 0 {
      redo.set(IndexAt.oldest, number)
      redo.set(IndexAt.cleaning, start(of: number))
    }
    redo.set(IndexAt.segments, UInt64(segmentCount + 1))
    redo.set(IndexAt.places, max(words.load(IndexAt.places), UInt64(place + 1)))
    redo.set(IndexAt.next, number &+ 1)
    redo.set(IndexAt.moved, movedBefore)
    redo.set(IndexAt.last, end)
    redo.set(IndexAt.head, start(of: number))
    redo.commit()
  }

  /// A place in the log that no segment has.
  private func freePlace() -> Int {
    let places = min(Int(clamping: words.load(IndexAt.places)), mappedPlaces)
    guard segmentCount < places else { return places }
    // This is rare: segments were given up, by a trim or for a lower limit.
    var isTaken = InlineArray<1024, UInt64>(repeating: 0)
    var number: UInt64? = words.load(IndexAt.oldest)
    while let taken = number {
      let place = SeatWord(words.load(SeatWord.offset(taken))).place
      isTaken[place >> 6] |= 1 << UInt64(place & 63)
      number = following(taken)
    }
    for place in 0..<places where isTaken[place >> 6] & 1 << UInt64(place & 63) == 0 {
      return place
    }
    return places
  }

  /// Gives the oldest segment's place to a new one. It is not the active one.
  private func reuse(at now: Int64) throws(Failure) {
    let number = try nextNumber()
    while clean(reserving: 0, at: now) == .cleaned {}
    let victim = words.load(IndexAt.oldest)
    let place = SeatWord(words.load(SeatWord.offset(victim))).place
    let second = following(victim) ?? number
    var redo = RedoRecord(words)
    redo.set(SeatWord.offset(victim), 0)
    redo.set(SeatWord.offset(number), SeatWord(number: number, place: place).bits)
    redo.set(IndexAt.oldest, second)
    redo.set(IndexAt.cleaning, start(of: second))
    redo.set(IndexAt.next, number &+ 1)
    redo.set(IndexAt.moved, movedBefore)
    redo.set(IndexAt.last, end)
    redo.set(IndexAt.head, start(of: number))
    redo.commit()
  }

  /// Gives up the oldest segment, which has no entry left and is not the active one, and returns
  /// its bytes to the file system.
  func retire() {
    let victim = words.load(IndexAt.oldest)
    let place = SeatWord(words.load(SeatWord.offset(victim))).place
    let second = following(victim)
    var redo = RedoRecord(words)
    redo.set(SeatWord.offset(victim), 0)
    redo.set(IndexAt.oldest, second ?? words.load(IndexAt.next))
    redo.set(IndexAt.cleaning, second.map { start(of: $0) } ?? 0)
    redo.set(IndexAt.segments, UInt64(max(segmentCount - 1, 0)))
    redo.commit()
    Files.punch(logFile.number, place << segmentShift, segmentSize)
    CrashPoint.pass()
  }
}
