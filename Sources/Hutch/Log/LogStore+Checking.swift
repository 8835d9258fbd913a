internal import CHutch
import CSystem

/// The check of the index and the segment table, and their repair. The entries themselves are
/// looked at one by one, without the lock (`inspect`).
extension LogStore {
  /// Looks through everything with the lock held, empties slots that name no entry that a lookup
  /// would find, and sets the sums right. Writers wait meanwhile: 0.1 s for a million entries.
  ///
  /// In the report, `damaged` counts the entries that no lookup finds. `manifest` counts the
  /// segments whose place is another one's too, or behind the end of the file, and such an index
  /// does not count for the next opening; and 1 if a word of the page table was wrong. Then no page
  /// counts any more, since the slots of a page that was not found may name entries that have been
  /// replaced. What the log has is found again (`rebuildInPlace`).
  func verifyIndex() throws(Failure) -> CheckReport {
    try locked { () throws(Failure) in try verifyLocked() }
  }

  /// The directory is being opened, and no other process has it open.
  func mendIfDamaged() {
    if !hasSoundPages { _ = try? verifyIndex() }
  }

  /// A hash leads to no page of slots: the index is damaged, and is set right. The lock is held.
  @inline(never)
  func mend(for hash: UInt64) throws(Failure) {
    _ = try verifyLocked()
    if page(for: hash) == nil { throw Failure(.corrupt, "the index has no page for a key") }
  }

  private func verifyLocked() throws(Failure) -> CheckReport {
    var units = GrowingArray<UInt64>()
    try units.append(0, IndexAt.seatCount)
    let misplaced = misplacedSegments()
    let hasLostPages = !hasSoundPages
    if hasLostPages { forgetPages() }
    let found = verifySlots(units: &units)
    var report = found.report
    report.manifest = misplaced + (hasLostPages ? 1 : 0)
    // What cannot be set right here is made anew by the next opening that is alone.
    if misplaced > 0 { words.store(IndexAt.recovering, 1) }
    if setSums(found, units) { report.counters = 1 }
    if hasLostPages { rebuildInPlace() }
    return report
  }

  /// What the slots name.
  private struct Found {
    var report = CheckReport()
    /// The bytes of the entries, and of their content files.
    var live: UInt64 = 0
    var files: UInt64 = 0
  }

  /// Looks through all slots, and empties those that name no entry that a lookup would find.
  /// `units`: those of each segment's entries are added here.
  private func verifySlots(units: inout GrowingArray<UInt64>) -> Found {
    var found = Found()
    // The closure does not use `units.elements`: that breaks Swift 6.3.1's thread sanitizer.
    let sums = units.elements
    eachPage { page in
      prefetchEntries(of: page)
      for i in 0..<LogPages.slots {
        let slot = page.base + i * 8
        let word = SlotWord(SharedWords.load(slot))
        guard word.names, let seat = seat(of: word.address) else { continue }
        let entry = entry(seat, word.address)
        if let entry, entry.isRecord { continue }
        guard let entry, entry.keySize > 0,
          find(entry.key, hash.entry(entry.key))?.slot == slot
        else {
          found.report.damaged &+= 1
          SharedWords.store(slot, emptied(slot, page).bits)
          continue
        }
        found.report.entries &+= 1
        found.live &+= entry.charge
        found.files &+= entry.fileCharge
        sums[Int(seat.number) & (IndexAt.seatCount - 1)] &+= entry.units
      }
    }
    return found
  }

  /// Sets the sums right. False: they were.
  private func setSums(_ found: Found, _ units: borrowing GrowingArray<UInt64>) -> Bool {
    var wereWrong = found.report.entries != count || found.live != live || found.files != files
    if wereWrong {
      var redo = RedoRecord(words)
      redo.set(IndexAt.count, found.report.entries)
      redo.set(IndexAt.live, found.live)
      redo.set(IndexAt.files, found.files)
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
      wereWrong = true
      words.store(SeatWord.liveOffset(seat.number), live)
    }
    return wereWrong
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
