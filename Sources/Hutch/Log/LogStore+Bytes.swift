import CSystem

// How the bytes of an entry that is not small come to the log: by a write to the file, or by stores
// to the mapping. A store to a page that was never written costs a fault and a page of zeroes, and
// a write neither. So the first use of a segment's place is by writes. Later a store costs half of
// a write if this process has stored to the page lately. Else it faults, and costs two to four
// times as much as a write on ext4, and less on tmpfs. The kernel writes a page to the disk, and
// has the next store fault, after 30 seconds. So on a disk only quick rounds are made by stores,
// and in the first of them an entry's pages are asked for in one call.

extension LogStore {
  /// From this size on a copy goes past the processor's caches: so little of the log fits into
  /// them that the place is not there.
  private static let farSize = 32 << 10

  /// From this size on a write costs less than stores that fault.
  private static let faultingSize = 8 << 10

  /// Whether an entry that is not small is written through the file. The lock is held.
  @inline(__always)
  func goesThroughFile(_ size: Int, _ seat: SeatWord) -> Bool {
    seat.isFirstUse || size >= LogStore.faultingSize && !isInMemory && !round.isQuick
  }

  /// The most bytes of an entry before its value that are put together before they are written.
  private static let headRoom = 512

  /// Writes an entry with a value that is not small through the file. Computes the checksum, unless
  /// it is there. False: the entry is yet to be written.
  @inline(never)
  func write(
    _ key: Bytes, _ hash: UInt64, _ record: inout Record, _ value: Bytes, _ extended: Bytes,
    to start: UnsafeMutableRawPointer, _ address: LogAddress
  ) -> Bool {
    let head = LogEntry.byteCount(key: key.count, record, nil) - value.count - extended.count
    guard head <= LogStore.headRoom else { return false }
    if record.checksum == 0 { record.checksum = Checksum.xxh3(value) }
    var room = InlineArray<64, UInt64>(repeating: 0)
    return withUnsafeMutableBytes(of: &room) {
      let place = $0.baseAddress.unsafelyUnwrapped
      LogEntry.write(
        to: place, address, record, key: key, value: value, nil, extended: extended,
        check: check, hash, .head)
      return writeThroughFile(
        Bytes(start: place, count: head), value, extended, to: start)
    }
  }

  /// Writes the copy of an entry that is not small. False: it is yet to be stored to the mapping.
  func copy(
    _ entry: LogEntry.Head, to start: UnsafeMutableRawPointer, _ address: LogAddress,
    _ seat: SeatWord
  ) -> Bool {
    guard goesThroughFile(entry.byteCount, seat) else {
      mapAhead(start, entry.byteCount)
      return false
    }
    var room = InlineArray<5, UInt64>(repeating: 0)
    return withUnsafeMutableBytes(of: &room) {
      LogEntry.copy(entry, to: $0.baseAddress.unsafelyUnwrapped, address, isWhole: false)
      return writeThroughFile(Bytes($0), LogEntry.rest(of: entry), to: start)
    }
  }

  /// Writes runs of bytes, one behind the other, to a place in the mapping by way of the file.
  func writeThroughFile(
    _ first: Bytes, _ second: Bytes, _ third: Bytes = Bytes(start: nil, count: 0),
    to start: UnsafeMutableRawPointer
  ) -> Bool {
    let isWritten = Files.write(
      first, second, third, to: logFile.number, at: start - logBase)
    CrashPoint.pass()
    return isWritten
  }

  /// Copies a value that is not small to the mapping. Computes the checksum, unless it is there.
  /// False: the value is yet to be copied.
  @inline(never)
  func copyAhead(
    _ value: Bytes, to place: UnsafeMutableRawPointer, _ checksum: inout UInt64
  ) -> Bool {
    let isFar = value.count >= LogStore.farSize
    mapAhead(place, value.count)
    if checksum != 0 && !isFar { return false }
    let sum = isFar ? Checksum.copyingFar(value, to: place) : Checksum.copying(value, to: place)
    if checksum == 0 { checksum = sum }
    CrashPoint.pass()
    return true
  }

  /// Maps bytes that are about to be stored to. On tmpfs the fault of a load maps the 64 KB around
  /// it, and that of a store a page (Linux, `fault_around_bytes`). Elsewhere a store to a page that
  /// a load has mapped costs a fault once more. The call for a whole range costs less than the
  /// faults of its pages; where they are mapped already, it costs what stores save.
  @inline(never)
  func mapAhead(_ start: UnsafeMutableRawPointer, _ count: Int) {
    guard isInMemory else {
      let lead = Int(bitPattern: start) & (LogPages.pageSize - 1)
      // MADV_POPULATE_WRITE, since Linux 5.14.
      if round.isFirst { madvise(start - lead, lead + count, 23) }
      return
    }
    let first = Int(bitPattern: start) & ~7
    let last = (first + count - 1) & ~7
    for address in stride(from: first, to: last, by: LogStore.farSize) {
      _ = SharedWords.load(UnsafeRawPointer(bitPattern: address).unsafelyUnwrapped)
    }
    _ = SharedWords.load(UnsafeRawPointer(bitPattern: last).unsafelyUnwrapped)
  }
}

/// How quickly this process comes round in the log, as the last whole round says.
struct LogRound {
  private(set) var isQuick = false
  /// The round under way is quick, and the last one was not.
  private(set) var isFirst = false
  /// The number of the segment with which the round ends; 0: none has begun.
  private var end: UInt64 = 0
  private var began: Int64 = 0
  /// Several of these pass before the kernel writes a page to the disk; nanoseconds.
  private static let quick: Int64 = 3_000_000_000

  /// A segment of this number begins, of so many, in a place that has been used before.
  mutating func note(_ number: UInt64, of count: Int) {
    guard number >= end else { return }
    let now = Clock.read(CLOCK_MONOTONIC_COARSE)
    let wasQuick = isQuick
    isQuick = end != 0 && now - began < LogRound.quick
    isFirst = isQuick && !wasQuick
    end = number &+ UInt64(count)
    began = now
  }
}
