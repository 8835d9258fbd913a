internal import CHutch
import CSystem

/// The check of the index and the segment table, and their repair. The entries themselves are
/// looked at one by one, without the lock (`inspect`).
extension LogStore {
  /// Looks through everything with the lock held, empties slots that name no entry that a lookup
  /// would find, and sets the sums right. Writers wait meanwhile: 0.1 s for a million entries,
  /// unless values are read too, which tests want.
  ///
  /// In the report, `damaged` counts the entries whose bytes have changed since they were written,
  /// and those that no lookup finds. `manifest` counts the segments whose place is another one's
  /// too, or behind the end of the file, and such an index does not count for the next opening; and
  /// 1 if there were keys to which no page of slots belongs. They get an empty one, and what the
  /// log has of them is found again (`rebuildInPlace`).
  func verify(readsValues: Bool = true) throws(Failure) -> CheckReport {
    try locked { () throws(Failure) in try verifyLocked(readsValues: readsValues) }
  }

  /// A hash leads to no page of slots: the index is damaged, and is set right. The lock is held.
  @inline(never)
  func mend(for hash: UInt64) throws(Failure) {
    // Else that has failed before.
    if words.load(IndexAt.recovering) == 0 { _ = try verifyLocked(readsValues: false) }
    if page(for: hash) == nil { throw Failure(.corrupt, "the index has no page for a key") }
  }

  private func verifyLocked(readsValues: Bool) throws(Failure) -> CheckReport {
    var report = CheckReport()
    var live: UInt64 = 0
    var files: UInt64 = 0
    var units = GrowingArray<UInt64>()
    try units.append(0, IndexAt.seatCount)
    // The closure does not use `units.elements`: that breaks Swift 6.3.1's thread sanitizer.
    let sums = units.elements
    // How many hashes lead to a page: each does, or puts of its keys fail.
    var reached = 0
    eachPage { page in
      reached += 1 << (IndexAt.highestTop - page.word.level)
      for i in 0..<LogPages.buckets * LogPages.bucketSlots {
        let word = SlotWord(SharedWords.load(page.base + i * 8))
        guard word.names, let seat = seat(of: word.address) else { continue }
        let slot = page.base + i * 8
        let entry = entry(seat, word.address)
        if let entry, entry.isRecord { continue }
        guard let entry, entry.keySize > 0,
          find(entry.key, hash.entry(entry.key))?.slot == slot
        else {
          report.damaged += 1
          SharedWords.store(slot, emptied(slot, page).bits)
          continue
        }
        if readsValues,
          !isSound(
            entry, hash.entry(entry.key),
            value: entry.hasFile ? entry.checksum : Checksum.xxh3(entry.value), entry.extended)
        {
          report.damaged += 1
        }
        report.entries += 1
        report.bytes += UInt64(entry.record.size)
        live += entry.charge
        files += entry.fileCharge
        sums[Int(seat.number) & (IndexAt.seatCount - 1)] += entry.units
      }
    }
    let misplaced = misplacedSegments()
    report.manifest = misplaced + (reached == IndexAt.mostPages ? 0 : 1)
    if misplaced == 0 && reached != IndexAt.mostPages {
      // Before the keys have a page: after a kill the next check does the rest.
      try rebuildInPlace()
      try? fillHoles()
      reached = 0
      eachPage { reached += 1 << (IndexAt.highestTop - $0.word.level) }
    }
    // What cannot be set right here is made anew by the next opening that is alone.
    if misplaced > 0 || reached != IndexAt.mostPages { words.store(IndexAt.recovering, 1) }
    if report.entries != count || live != self.live || files != self.files {
      report.counters = 1
      var redo = RedoRecord(words)
      redo.set(IndexAt.count, report.entries)
      redo.set(IndexAt.live, live)
      redo.set(IndexAt.files, files)
      redo.commit()
    }
    eachSegment { seat in
      let live = units[Int(seat.number) & (IndexAt.seatCount - 1)]
      // What was cleared is not counted.
      if seat.number == 0 || start(of: seat.number) < words.load(IndexAt.floor)
        || live == liveUnits(seat.number)
      {
        return
      }
      report.counters = 1
      words.store(SeatWord.liveOffset(seat.number), live)
    }
    return report
  }

  /// Every page that is in force.
  func eachPage(_ visit: (SlotPage) -> Void) {
    for number in 0..<1 << top {
      let word = PageWord(words.load(PageWord.offset(number)))
      // Any hash that ends with the page's number leads to the page.
      if word != .none, let page = page(for: UInt64(number) << 12), page.number == number {
        visit(page)
      }
    }
  }

  private func misplacedSegments() -> UInt64 {
    var taken = PlaceSet()
    var misplaced: UInt64 = 0
    var found = 0
    eachSegment { seat in
      found += 1
      if !taken.insert(seat.place) || seat.place >= Int(clamping: words.load(IndexAt.places)) {
        misplaced += 1
      }
    }
    return misplaced + (found == segmentCount ? 0 : 1)
  }
}
