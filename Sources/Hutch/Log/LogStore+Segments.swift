import CSystem
import Synchronization

// Segments: the way from an address to memory, and how segments come and go.

extension LogStore {
  @inline(__always)
  func start(of number: UInt64) -> LogAddress { number &<< unitShift }

  /// The place of an address's segment. Nil: the segment has gone, or its entries were cleared.
  @inline(never)
  func seat(of address: LogAddress) -> SeatWord? { seatInPlace(of: address) }

  /// The same, where each put and get needs it.
  @inline(__always)
  func seatInPlace(of address: LogAddress) -> SeatWord? {
    let number = address &>> unitShift
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
  func isThere(_ place: Int) -> Bool {
    place < knownPlaces.load(ordering: .relaxed) || findPlaces(place)
  }

  @inline(never)
  private func findPlaces(_ place: Int) -> Bool {
    guard let status = Files.status(of: logFile.number) else { return false }
    let places = min(status.size &>> segmentShift, mappedPlaces)
    knownPlaces.store(places, ordering: .relaxed)
    return place < places
  }

  @inline(__always)
  func memory(_ seat: SeatWord, _ address: LogAddress) -> UnsafeMutableRawPointer {
    logBase + (seat.place &<< segmentShift | Int(address & (segmentUnits - 1)) << 4)
  }

  /// The entry at an address, as far as a look at its head tells.
  @inline(never)
  func entry(_ seat: SeatWord, _ address: LogAddress) -> LogEntry.Head? {
    entryInPlace(seat, address)
  }

  /// The same, where each put and get needs it.
  @inline(__always)
  func entryInPlace(_ seat: SeatWord, _ address: LogAddress) -> LogEntry.Head? {
    let room = segmentSize - Int(address & (segmentUnits - 1)) << 4
    return LogEntry.Head(memory(seat, address), address, room: room)
  }

  /// As `entry`, and prefetches what follows the head: the key, and the beginning of the value.
  @inline(__always)
  func entryAhead(_ seat: SeatWord, _ address: LogAddress) -> LogEntry.Head? {
    let start = memory(seat, address)
    hutch_prefetch(start + LogPages.lineSize)
    hutch_prefetch(start + 2 * LogPages.lineSize)
    guard let entry = entryInPlace(seat, address) else { return nil }
    // The processor notices that a value is read in order only after some of its lines.
    let lines = min(entry.byteCount / LogPages.lineSize, 16)
    if lines > 2 {
      for line in 3...lines { hutch_prefetch(start + line * LogPages.lineSize) }
    }
    return entry
  }

  // MARK: with the lock held

  /// How many segments there are, with the spare one.
  var segmentCount: Int { Int(words.load(IndexAt.segments) & 0xFFFF_FFFF) }

  /// The number of segments that the limit allows.
  var allowedSegments: Int { allowed(pages: words.load(IndexAt.pages)) }

  func allowed(pages: UInt64) -> Int {
    let limit = words.load(IndexAt.limits)
    let most = min(mostPlaces, IndexAt.seatCount / 2)
    if limit == 0 { return most }
    let beside = indexSize(pages) &+ files
    let left = limit > beside ? limit - beside : 0
    return Int(min(max(left &>> UInt64(segmentShift), 2), UInt64(most)))
  }

  /// The bytes of the index that count: its pages, its head, and the first page of either table.
  private func indexSize(_ pages: UInt64) -> UInt64 {
    (LogPages.reserved(pages) &+ 3) &* UInt64(LogPages.pageSize)
  }

  /// The bytes of the directory that count against its limit.
  var taken: UInt64 {
    indexSize(words.load(IndexAt.pages)) &+ UInt64(segmentCount) &<< UInt64(segmentShift) &+ files
  }

  /// The bytes that would be left without so many. Other processes may change `taken` at any time,
  /// so this loads it once.
  func taken(without bytes: UInt64) -> UInt64 {
    let taken = taken
    return taken - min(taken, bytes)
  }

  /// The bytes that the index and the least log have.
  var leastTaken: UInt64 {
    indexSize(words.load(IndexAt.pages)) &+ 2 &<< UInt64(segmentShift)
  }

  /// True if the limit is below the bytes of the least log. Then it holds for the bytes of the
  /// entries alone.
  var isTight: Bool {
    let limit = words.load(IndexAt.limits)
    return limit != 0 && limit < leastTaken
  }

  /// True if the limit of cost does not hold.
  var isOverCost: Bool {
    let limit = words.load(IndexAt.limits)
    if limit == 0 { return false }
    return isTight ? live > limit : files > 0 && taken > limit
  }

  /// True if a content file fits beside the least log.
  func hasRoom(forFile size: Int) -> Bool {
    let limit = words.load(IndexAt.limits)
    return limit == 0 || leastTaken &+ LogFile.charge(size) <= limit
  }

  /// The largest entry that a segment has room for, in bytes.
  var largestEntry: Int { segmentSize - LogEntry.pairSize - LogFormat.unit }

  /// How many segments there may be before puts clean. Without a limit a segment is added as long
  /// as half of the log is in use, or the log is small. 0: each put looks at the bytes of the
  /// entries.
  var cleanedFrom: Int {
    if words.load(IndexAt.limits) != 0 { return isTight ? 0 : allowedSegments }
    // Entries that have no slots yet are not dead.
    if isRebuilding { return allowedSegments }
    return min(2 * usedSegments + 8, allowedSegments)
  }

  /// The segments that what lives would fill. Also read without the lock.
  var usedSegments: Int {
    let live = live
    return Int(clamping: (live - min(live, files)) &>> UInt64(segmentShift))
  }

  /// Makes the place for a segment more.
  func newPlace() throws(Failure) -> Int {
    let place = freePlace()
    guard place < mostPlaces else {
      throw Failure(.noSpace, "the log has as many segments as it can have")
    }
    guard missingFree(beside: segmentSize) == 0 else {
      throw Failure(.noSpace, "the file system has less free than is to stay free")
    }
    try Mapping.reserve(logFile.number, place &<< segmentShift, segmentSize)
    CrashPoint.pass()
    return place
  }

  /// How much less the file system has free, without so many bytes, than is to stay free.
  @inline(never)
  func missingFree(beside bytes: Int = 0) -> UInt64 {
    let least = words.load(IndexAt.limits + 40)
    guard least > 0, let space = Files.space(of: directory.descriptor) else { return 0 }
    return least - min(least, UInt64(clamping: space.free - Int64(bytes)))
  }

  /// A place that no segment has. There is no spare segment.
  private func freePlace() -> Int {
    let places = min(Int(clamping: words.load(IndexAt.places)), mappedPlaces)
    guard segmentCount < places else { return places }
    // Rare: segments were given up, by a trim or for a lower limit.
    let taken = takenPlaces
    for place in 0..<places where !taken.contains(place) { return place }
    return places
  }

  /// The places that segments have.
  var takenPlaces: PlaceSet {
    var taken = PlaceSet()
    eachSegment { seat in _ = taken.insert(seat.place) }
    return taken
  }

  static var noAddresses: Failure { Failure(.corrupt, "the log has no addresses left") }

  /// The next segment's number: one whose word of the table is free. A segment that has outlived
  /// a whole round of the table keeps its own.
  func nextNumber() throws(Failure) -> UInt64 {
    var number = words.load(IndexAt.next)
    let end = number &+ UInt64(IndexAt.seatCount)
    while true {
      guard number < LogFormat.segmentsEnd(unitShift) else { throw LogStore.noAddresses }
      // Before the load: of a hole of the file, a load may need room for a page too (tmpfs).
      if SeatWord.offset(number) % LogPages.pageSize == 0 { try reserveSeat(number) }
      if number == end || words.load(SeatWord.offset(number)) == 0 { return number }
      number &+= 1
    }
  }

  /// Reserves the page of the segment table that has the word of a segment.
  func reserveSeat(_ number: UInt64) throws(Failure) {
    let page = SeatWord.offset(number) / LogPages.pageSize
    try Mapping.reserve(indexFile.number, page * LogPages.pageSize, LogPages.pageSize)
    CrashPoint.pass()
  }
}

/// Places of the log, a bit for each that there can be.
struct PlaceSet {
  private var words = InlineArray<1024, UInt64>(repeating: 0)

  private static func bit(_ place: Int) -> UInt64 { 1 << UInt64(place & 63) }

  func contains(_ place: Int) -> Bool { words[place >> 6] & PlaceSet.bit(place) != 0 }

  /// False: the set has it already.
  mutating func insert(_ place: Int) -> Bool {
    if contains(place) { return false }
    words[place >> 6] |= PlaceSet.bit(place)
    return true
  }
}
