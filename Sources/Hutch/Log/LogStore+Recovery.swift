import CSystem

// Recovery: a new index is made from a checkpoint and the log (LogCheckpoint), while the directory
// is being opened and no other process has it open.
//
//     1  a new index gets its name. `recovering` says that it does not count yet
//     2  the segments that are still there are found by their beginnings
//     3  the new entries are read on from the checkpoint's end, for as long as each is whole and
//        follows the one before. Where the first one is missing, the recovered log ends
//     4  all of this is brought to the disk as a checkpoint. It says that the log goes on in a new
//        segment: what lies behind the recovered end stays lost
//     5  `recovering` is removed: the directory is open
//
// A process that dies on the way leaves a directory of which the next opening thinks the same. The
// entries get their slots later (LogStore+Rebuilding): what has none yet is a miss.

/// The beginning of a segment.
struct LogBeginning {
  let seat: SeatWord
  /// Where the entries of the segment before end.
  let before: LogAddress
  let floor: LogAddress
}

extension LogStore {
  /// True if the entry is what was written. `readsFile`: its content file counts too. One that
  /// cannot be read says nothing of the entries behind: its reads will find what it is.
  func isWhole(_ entry: LogEntry.Head, readsFile: Bool) -> Bool {
    if entry.keySize == 0 { return false }
    let hash = hash.entry(entry.key)
    if entry.fields.contains(.removal) { return isSoundRemoval(entry, hash) }
    var checksum = entry.checksum
    if !entry.hasFile {
      checksum = Checksum.xxh3(entry.value)
    } else if readsFile {
      guard (try? isThereFile(entry, &checksum, readsValue: true)) ?? true else { return false }
    }
    return isSound(entry, hash, value: checksum, entry.extended)
  }

  /// The first entry of a segment; nil: the segment has not begun at that place, or it is damaged.
  func beginning(_ seat: SeatWord) -> LogBeginning? {
    guard let entry = entry(seat, start(of: seat.number)), entry.fields.contains(.beginning),
      let (before, floor) = entry.pair, isWhole(entry, readsFile: false)
    else { return nil }
    return LogBeginning(
      seat: SeatWord(before == 0 ? .kept : .new, number: seat.number, place: seat.place),
      before: before, floor: floor)
  }

  /// The segment that has begun at a place of the log. The place may be a hole of the file, to
  /// which a load from the mapping would give a page on tmpfs.
  private func beginning(atPlace place: Int) throws(Failure) -> LogBeginning? {
    var address: LogAddress = 0
    let count = withUnsafeMutableBytes(of: &address) {
      Files.read(logFile.number, into: $0, at: place &<< segmentShift)
    }
    if count == nil { throw .system("cannot read the log") }
    let number = address &>> unitShift
    guard number > 0, number < LogFormat.segmentsEnd(unitShift), address == start(of: number)
    else { return nil }
    return beginning(SeatWord(.new, number: number, place: place))
  }

  /// What may have been appended since a checkpoint, in units: 512 GB.
  private static let leap: UInt64 = 1 << 35

  /// Steps 2 to 5. The index is new, and empty.
  func recover(from checkpoint: LogCheckpoint) throws(Failure) {
    typealias At = LogCheckpoint.At
    var found = GrowingArray<LogBeginning>()
    var next = checkpoint[At.next]
    guard let status = Files.status(of: logFile.number) else {
      throw .system("cannot look at the log")
    }
    let places = min(status.size &>> segmentShift, mappedPlaces, IndexAt.seatCount)
    for place in 0..<places {
      guard let beginning = try beginning(atPlace: place) else { continue }
      next = max(next, beginning.seat.number + 1)
      if beginning.seat.number >= checkpoint[At.next] || checkpoint.has(beginning.seat) {
        try found.append(beginning)
      }
    }
    // The numbers of segments that have left only some of their pages are not used again.
    next += LogStore.leap &>> unitShift
    guard next < LogFormat.segmentsEnd(unitShift) else { throw LogStore.noAddresses }
    let active = checkpoint[At.active]
    var tail = LogTail(
      end: checkpoint[At.end], floor: checkpoint[At.floor],
      number: active != 0 ? active : (checkpoint[At.end] - 1) &>> unitShift)
    if active != 0 {
      for i in 0..<found.count where found[i].seat.number == active {
        walk(found[i].seat, to: &tail, checkpoint)
      }
    }
    readOn(&tail, from: checkpoint, found)
    try seat(found, from: checkpoint, tail, next: next)
    try writeCheckpointNow()
    words.store(IndexAt.recovering, 0)
    if !isRebuilding { endRebuilding() }
    giveBackUnused(of: places)
  }

  /// Step 3. No segment below the checkpoint's next one follows its active one.
  private func readOn(
    _ tail: inout LogTail, from checkpoint: LogCheckpoint,
    _ found: borrowing GrowingArray<LogBeginning>
  ) {
    let next = checkpoint[LogCheckpoint.At.next]
    var hasMore = true
    while hasMore {
      hasMore = false
      for i in 0..<found.count {
        let (seat, before) = (found[i].seat, found[i].before)
        guard !seat.isKept, before == tail.end, seat.number >= next, seat.number > tail.number
        else { continue }
        tail.number = seat.number
        tail.end = start(of: seat.number)
        tail.floor = max(tail.floor, found[i].floor)
        walk(seat, to: &tail, checkpoint)
        hasMore = true
        break
      }
    }
  }

  /// Goes from one whole entry of a segment to the next, and to the end of the last one. A content
  /// file that was synced before its entry is missing only if a later write has removed it.
  private func walk(_ seat: SeatWord, to tail: inout LogTail, _ checkpoint: LogCheckpoint) {
    while tail.end < start(of: seat.number + 1), let entry = entry(seat, tail.end),
      isWhole(entry, readsFile: !checkpoint.hasSyncedFiles)
    {
      tail.end += entry.units
      tail.version = max(tail.version, entry.version)
      if entry.fields.contains(.passed), let (new, kept) = entry.pair {
        tail.newFrom = max(tail.newFrom, new)
        tail.keptFrom = max(tail.keptFrom, kept)
      }
    }
  }

  /// Gives the segments that are still there their words of the table.
  private func seat(
    _ found: borrowing GrowingArray<LogBeginning>, from checkpoint: LogCheckpoint,
    _ tail: LogTail, next: UInt64
  ) throws(Failure) {
    var counts = (new: UInt64(0), kept: UInt64(0))
    var oldest = (new: UInt64.max, kept: UInt64.max)
    var newestKept: UInt64 = 0
    var places = 0
    for i in 0..<found.count {
      let seat = found[i].seat
      let offset = SeatWord.offset(seat.number)
      // What was written to a segment of new entries behind the recovered end is lost.
      guard start(of: seat.number) >= tail.floor, seat.isKept || seat.number <= tail.number
      else { continue }
      try reserveSeat(seat.number)
      guard words.load(offset) == 0 else { continue }
      words.store(offset, seat.bits)
      places = max(places, seat.place + 1)
      if seat.isKept {
        counts.kept += 1
        oldest.kept = min(oldest.kept, seat.number)
        newestKept = max(newestKept, seat.number)
      } else {
        counts.new += 1
        oldest.new = min(oldest.new, seat.number)
      }
    }
    // `nextNumber` takes this page for reserved.
    try reserveSeat(next)
    func set(_ offset: Int, _ value: UInt64) { words.store(offset, value) }
    if counts.new > 0 {
      set(IndexAt.oldest, oldest.new)
      set(IndexAt.cleaning, start(of: oldest.new))
    }
    if counts.kept > 0 {
      set(IndexAt.keptOldest, oldest.kept)
      set(IndexAt.keptCleaning, start(of: oldest.kept))
    }
    set(IndexAt.segments, counts.new + counts.kept)
    set(IndexAt.keptSegments, counts.kept)
    set(IndexAt.places, UInt64(places))
    set(IndexAt.rebuildNew, counts.new > 0 ? (tail.end - 1) &>> unitShift : 0)
    set(IndexAt.rebuildEnd, tail.end)
    set(IndexAt.rebuildKept, newestKept)
    setState(from: checkpoint, tail, next: next)
  }

  /// Sets the rest of the state.
  private func setState(from checkpoint: LogCheckpoint, _ tail: LogTail, next: UInt64) {
    typealias At = LogCheckpoint.At
    func set(_ offset: Int, _ value: UInt64) { words.store(offset, value) }
    set(IndexAt.next, next)
    set(IndexAt.last, tail.end)
    set(IndexAt.floor, tail.floor)
    set(IndexAt.newFrom, max(checkpoint[At.newFrom], tail.newFrom))
    set(IndexAt.keptFrom, max(checkpoint[At.keptFrom], tail.keptFrom))
    set(IndexAt.begun, checkpoint[At.number])
    set(IndexAt.durable, checkpoint[At.number])
    // An earlier loss whose traces are still in the log counts with this one.
    let isFirst = checkpoint[At.lostTo] == 0
    set(IndexAt.lostFrom, isFirst ? tail.end : min(checkpoint[At.lostFrom], tail.end))
    set(IndexAt.lostTo, start(of: next))
    // What replaced or removed a kept entry is not met where the cleaner had passed it. 0: never. A
    // recovery that was not certain has told the kept entries so, but its checkpoint is of before.
    let known = checkpoint[isFirst ? At.end : At.certainFrom]
    let certainFrom = max(known, tail.floor)
    set(IndexAt.certainFrom, known == 0 || tail.newFrom > certainFrom ? 0 : certainFrom)
    let version = max(words.load(IndexAt.versions), checkpoint[At.version], tail.version)
    set(IndexAt.versions, min(version, 1 << 62) + 1)
  }

  /// Gives places that no segment has back to the file system.
  private func giveBackUnused(of places: Int) {
    let taken = takenPlaces
    for place in 0..<places where !taken.contains(place) {
      Files.punch(logFile.number, place &<< segmentShift, segmentSize)
    }
  }
}

/// Where the recovered log ends.
private struct LogTail {
  var end: LogAddress
  /// Entries below have been cleared.
  var floor: LogAddress
  /// The segment in which the log ends.
  var number: UInt64
  /// No entry that was read has a higher version.
  var version: UInt64 = 0
  /// How far the cleaner had come in either stream.
  var newFrom: LogAddress = 0
  var keptFrom: LogAddress = 0
}

extension LogCheckpoint {
  /// Whether a segment was at this place, and in this stream.
  func has(_ seat: SeatWord) -> Bool {
    for i in 0..<seatCount where self.seat(i) == seat { return true }
    return false
  }
}
