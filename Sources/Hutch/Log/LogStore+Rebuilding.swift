import CSystem

// After a recovery the entries get their slots, in slices and by any process: first the new ones,
// from the newest segment to the oldest, and in each from the last entry to the first; then the
// kept ones. A key that has a slot keeps it. So a reader finds the newest entry of a key, or none
// yet, and never an older one.
//
// Until that is done, and with the lock held
//     - a removal has a slot, which names its record, so that no older entry gets one
//     - no entry is removed in another way. The cleaner passes the entries of segments that have no
//       slots yet, and they get none. Before it comes to a segment that has, the rebuilding is
//       given up
//     - no checkpoint is written: that of the recovery counts
// What has no slot when it ends is behind `newFrom` or `keptFrom`, and never found again.
//
// The same is done where the page table was damaged (`rebuildInPlace`). Then writes go on in the
// active segments. If that is found while the index is being made, it is begun anew.

/// The segment whose entries a process gives slots, and those entries that it has found whole.
struct LogRebuild: ~Copyable {
  fileprivate var seat = SeatWord.none
  /// The units of each from the segment's beginning.
  fileprivate var places = GrowingArray<UInt32>()
  /// How many of them have no slot yet, the first ones.
  fileprivate var left = 0
  /// Where the new entries before those of the segment end.
  fileprivate var before: LogAddress = 0
  /// The step for which all this was read (`IndexAt.rebuildStep`).
  fileprivate var step = UInt64.max
}

extension LogStore {
  var isRebuilding: Bool {
    @inline(never) get { words.load(IndexAt.rebuildNew) | words.load(IndexAt.rebuildKept) != 0 }
  }

  /// Whether entries of a segment have slots.
  func hasSlots(_ number: UInt64, _ stream: LogStream) -> Bool {
    let next = words.load(stream == .new ? IndexAt.rebuildNew : IndexAt.rebuildKept)
    return number >= next
  }

  /// The entries that get their slots with the lock held once.
  private static let slotsInSlice = 1000

  /// A slice of the work. True: there is more.
  func rebuild(_ work: inout LogRebuild, at moment: Moment) throws(Failure) -> Bool {
    guard isRebuilding else { return false }
    // First: it changes last.
    let step = words.load(IndexAt.rebuildStep)
    let newest = words.load(IndexAt.rebuildNew)
    let stream = newest != 0 ? LogStream.new : .kept
    if work.step != step {
      let number = newest != 0 ? newest : words.load(IndexAt.rebuildKept)
      try read(number, stream, step, into: &work)
    } else {
      try locked { () throws(Failure) in
        guard isAt(step), isStill(work.seat, start(of: work.seat.number)) else {
          work.step = .max
          return
        }
        giveSlots(&work, stream, at: moment)
        if work.left == 0 && isAt(step) { endSegment(&work, stream) }
      }
    }
    return isRebuilding
  }

  /// Finds the entries of the segment that is next, or goes on behind it if it does not count. What
  /// is read without the lock counts if the segment is still there afterwards.
  private func read(
    _ number: UInt64, _ stream: LogStream, _ step: UInt64, into work: inout LogRebuild
  ) throws(Failure) {
    let end = words.load(IndexAt.rebuildEnd)
    work.seat = seat(of: start(of: number)) ?? .none
    let isWhole = try collect(&work, stream, upTo: end)
    try locked { () throws(Failure) in
      guard isAt(step) else { return }
      if isWhole && isStill(work.seat, start(of: number)) {
        work.step = step
      } else {
        // The new entries before a gap are not the newest ones of their keys, perhaps.
        if stream == .new { goOn(to: 0, .new, end: end) } else { goOn(behind: number) }
      }
    }
  }

  /// Finds the whole entries of a segment. False: it is not the segment that it should be, or one
  /// of its new entries is not whole.
  private func collect(
    _ work: inout LogRebuild, _ stream: LogStream, upTo end: LogAddress
  ) throws(Failure) -> Bool {
    work.places.removeAll()
    work.left = 0
    let seat = work.seat
    guard seat != .none, seat.isKept == (stream == .kept), let beginning = beginning(seat) else {
      return false
    }
    work.before = beginning.before
    var position = start(of: seat.number)
    // What lies above a head is not there.
    let last =
      stream == .kept && active(.kept) == seat.number
      ? words.load(IndexAt.keptHead) : start(of: seat.number + 1)
    while position < (stream == .new ? min(end, last) : last), let entry = entry(seat, position),
      isWhole(entry, readsFile: false)
    {
      if entry.fields.isDisjoint(with: [.beginning, .passed]) {
        try work.places.append(UInt32(position - start(of: seat.number)))
      }
      position += entry.units
      if stream == .kept && !entry.isRecord { position += LogEntry.trailerUnits }
    }
    work.left = work.places.count
    return stream == .kept || position == end
  }

  // MARK: with the lock held

  /// Nothing has begun another segment, or ended the work.
  private func isAt(_ step: UInt64) -> Bool { words.load(IndexAt.rebuildStep) == step }

  private func commitStep(_ redo: consuming RedoRecord) {
    redo.set(IndexAt.rebuildStep, words.load(IndexAt.rebuildStep) &+ 1)
    redo.commit()
  }

  /// No page is in force (`forgetPages`). The entries that the log has get slots again, from the
  /// newest one on, as after a recovery that has lost no write.
  func rebuildInPlace() {
    var newestKept: UInt64 = 0
    eachSegment { seat in if seat.isKept { newestKept = max(newestKept, seat.number) } }
    words.store(IndexAt.sparePage, 0)
    var redo = RedoRecord(words)
    redo.set(IndexAt.newFrom, from(.new))
    redo.set(IndexAt.keptFrom, from(.kept))
    // What replaced or removed a kept entry has said so in the log, but for lost writes.
    if !isRebuilding { redo.set(IndexAt.certainFrom, .max) }
    redo.set(IndexAt.rebuildNew, segmentCount(.new) > 0 ? (end &- 1) &>> unitShift : 0)
    redo.set(IndexAt.rebuildKept, newestKept)
    redo.set(IndexAt.rebuildEnd, end)
    redo.set(IndexAt.top, 0)
    redo.set(IndexAt.pages, 1)
    redo.set(PageWord.offset(0), PageWord(page: 0, level: 0).bits)
    commitStep(redo)
  }

  /// Gives the next entries of the segment their slots, from the last one on.
  private func giveSlots(_ work: inout LogRebuild, _ stream: LogStream, at moment: Moment) {
    let step = work.step
    for _ in 0..<min(work.left, LogStore.slotsInSlice) where isAt(step) {
      work.left -= 1
      let address = start(of: work.seat.number) + UInt64(work.places[work.left])
      guard let entry = entry(work.seat, address) else { continue }
      do throws(Failure) {
        if stream == .new {
          _ = try giveSlot(to: entry, of: .new, step, at: moment)
        } else {
          try giveSlot(toKept: entry, step, at: moment)
        }
      } catch {
        // The index has no room for more.
        giveUpRebuilding()
      }
    }
  }

  /// The entries of the segment have their slots: the segment before it is next.
  private func endSegment(_ work: inout LogRebuild, _ stream: LogStream) {
    let number = work.seat.number
    if stream == .kept { return goOn(behind: number) }
    let least = max(words.load(IndexAt.floor), words.load(IndexAt.newFrom), segmentUnits)
    // The first entries of the oldest segment have no slots if the cleaner has passed them.
    let passed = words.load(IndexAt.cleaning)
    let isPassed = passed > start(of: number)
    let end = isPassed ? passed : work.before
    goOn(to: !isPassed && end > least ? (end - 1) &>> unitShift : 0, .new, end: end)
  }

  /// Gives an entry, or the record of a removal, a slot if its key has none. False: it has one, or
  /// the rebuilding has been given up for the limit, or was begun anew.
  private func giveSlot(
    to entry: LogEntry.Head, of stream: LogStream, _ step: UInt64, at moment: Moment
  ) throws(Failure) -> Bool {
    let hash = hash.entry(entry.key)
    guard entry.address >= max(from(stream), words.load(IndexAt.floor)),
      !hasSlot(entry.key, hash)
    else {
      return false
    }
    let slot = try slotForNew(hash, at: moment).slot
    // A page of slots more may have cost segments, also that of the entry.
    guard isAt(step) else { return false }
    let uses: UInt64 = stream == .kept ? 1 : 0
    var redo = RedoRecord(words)
    redo.set(slot - words.base, SlotWord(hash, entry.address, uses: uses).bits)
    if !entry.isRecord {
      noteEnd(of: entry.record)
      redo.set(IndexAt.count, count &+ 1)
      redo.set(IndexAt.live, live &+ entry.charge)
      if entry.hasFile { redo.set(IndexAt.files, files &+ entry.fileCharge) }
      setLive(&redo, adding: entry.units, at: entry.address)
    }
    redo.commit()
    return true
  }

  /// A kept copy counts if its original is not among the lost writes, and if it was replaced or
  /// removed by none but those. Another one is never found again. A write behind the end of the
  /// last checkpoint may have replaced or removed it, and its mark need not be on the disk; or it
  /// was evicted, and its key written since. So it counts only if all of these writes have been
  /// met: the cleaner may have been faster than this, or faster than an earlier recovery.
  private func giveSlot(
    toKept entry: LogEntry.Head, _ step: UInt64, at moment: Moment
  ) throws(Failure) {
    if slot(of: entry, hash.entry(entry.key)) != nil { return }
    guard let trailer = trailer(entry), let origin = trailerAddress(0, of: entry),
      let end = trailerAddress(8, of: entry)
    else { return }
    let lost = (from: words.load(IndexAt.lostFrom), to: words.load(IndexAt.lostTo))
    func isLost(_ address: LogAddress) -> Bool { address >= lost.from && address < lost.to }
    // The marks of an earlier loss are right if all new entries since then have their slots.
    let isEndLost = isLost(end) && words.load(IndexAt.rebuildEnd) <= lost.from
    let isCertain = words.load(IndexAt.rebuildEnd) <= words.load(IndexAt.certainFrom)
    var counts = isCertain && !isLost(origin) && (end == 0 || isEndLost)
    if counts { counts = try giveSlot(to: entry, of: .kept, step, at: moment) }
    // Its segment may have gone, and its place is a hole of the file.
    guard isAt(step) else { return }
    if counts {
      SharedWords.store(trailer + 8, 0)
    } else {
      SharedWords.store(trailer, 0)
    }
  }

  /// Whether a slot names an entry of a key, or the record of its removal.
  private func hasSlot(_ key: Bytes, _ hash: UInt64) -> Bool {
    guard let page = page(for: hash) else { return false }
    let slot = firstSlot(page, hash) { word in
      guard word.hasTag(of: hash), word.names, let seat = seat(of: word.address),
        let entry = entry(seat, word.address)
      else { return false }
      return entry.key.hasSameBytes(as: key)
    }
    return slot != nil
  }

  /// The kept segment before `number` is next.
  private func goOn(behind number: UInt64) {
    var next: UInt64 = 0
    var segment: UInt64? = segmentCount(.kept) == 0 ? nil : words.load(IndexAt.keptOldest)
    while let found = segment, found < number {
      next = found
      segment = following(found, .kept)
    }
    goOn(to: next, .kept, end: words.load(IndexAt.rebuildEnd))
  }

  /// Goes on with another segment of a stream; 0: the stream is done.
  private func goOn(to number: UInt64, _ stream: LogStream, end: LogAddress) {
    let isLast = number == 0 && (stream == .kept || words.load(IndexAt.rebuildKept) == 0)
    if isLast && stream == .new { words.store(IndexAt.rebuildEnd, end) }
    if isLast { return endRebuilding() }
    var redo = RedoRecord(words)
    redo.set(stream == .new ? IndexAt.rebuildNew : IndexAt.rebuildKept, number)
    redo.set(IndexAt.rebuildEnd, end)
    commitStep(redo)
  }

  /// Nothing else gets a slot: the segments are not looked at again.
  func giveUpRebuilding() {
    words.store(IndexAt.keptFrom, max(words.load(IndexAt.keptFrom), words.load(IndexAt.lostTo)))
    endRebuilding()
  }

  func endRebuilding() {
    var redo = RedoRecord(words)
    redo.set(
      IndexAt.newFrom, max(words.load(IndexAt.newFrom), words.load(IndexAt.rebuildEnd)))
    redo.set(IndexAt.rebuildNew, 0)
    redo.set(IndexAt.rebuildKept, 0)
    redo.set(IndexAt.lostFrom, 0)
    redo.set(IndexAt.lostTo, 0)
    // What is behind was perhaps never met, as if the cleaner had evicted it.
    redo.set(IndexAt.evicted, words.load(IndexAt.begun))
    redo.set(IndexAt.passed, 2)
    // The next checkpoint has something new to say.
    redo.set(IndexAt.durableEnd, 0)
    commitStep(redo)
  }
}
