import CSystem
import Synchronization

/// The numbers of a page of slots.
enum LogPages {
  static let pageSize = 4096
  static let lineSize = 64
  static let bucketSlots = 8
  static let buckets = pageSize / lineSize
  static let slots = buckets * bucketSlots
  /// How many buckets a lookup looks through.
  static let window = 4
  /// A bucket with so many ghosts gives one up before the next bucket is looked at.
  static let manyGhosts = 5
  /// The number of pages by which the file grows.
  static let step = 4
  /// Entries of more bytes than this, on average, are read through the file, not the mapping.
  static let farSize: UInt64 = 16 << 10

  /// The number of pages that the file has where so many have been used.
  @inline(__always)
  static func reserved(_ pages: UInt64) -> UInt64 {
    (pages &+ UInt64(step - 1)) / UInt64(step) &* UInt64(step)
  }

  /// The bucket that is `offset` buckets behind a key's home bucket.
  @inline(__always)
  static func line(_ home: Int, _ offset: Int) -> Int {
    (home + offset) & (buckets - 1)
  }
}

/// The page that has the slots of a key, as the page table named it when it was read.
///
/// Page number n of level l has the keys whose hash ends with the l bits of n. When the page is
/// divided, it keeps the keys whose next bit is 0, and the new page n + 2^l has the others. So of
/// the pages that a hash could lead to, the existing page of the highest level has the key.
struct SlotPage {
  let number: Int
  let word: PageWord
  let base: UnsafeMutableRawPointer
}

/// A slot that a new entry can have.
struct FreeSlot {
  let slot: UnsafeMutableRawPointer
  /// The key, or one with its tag, had an entry that was evicted lately.
  var wasEvicted = false
}

extension LogStore {
  /// The bits of a hash by which pages are told apart.
  @inline(__always)
  static func spread(_ hash: UInt64) -> Int { Int(hash >> 12) & (IndexAt.mostPages - 1) }

  /// No page has a higher level. The index may say anything, so the level is bounded here.
  @inline(__always)
  var top: Int { min(Int(words.load(IndexAt.top) & 31), IndexAt.highestTop) }

  /// The page that has the slots of a key; nil: the index is damaged.
  @inline(never) @_optimize(speed)
  func page(for hash: UInt64) -> SlotPage? { pageInPlace(for: hash) }

  /// The same, where each put and get needs it.
  @inline(__always)
  func pageInPlace(for hash: UInt64) -> SlotPage? {
    let spread = LogStore.spread(hash)
    var level = top
    // More than one round is needed only while the page is being divided.
    for _ in 0..<64 {
      while level >= 0 {
        let number = spread & (1 &<< level &- 1)
        let word = PageWord(words.load(PageWord.offset(number & (IndexAt.mostPages - 1))))
        if word != .none {
          guard spread & (1 &<< word.level &- 1) == number else { break }
          guard word.level <= IndexAt.highestTop, isTherePage(word.page) else { return nil }
          return SlotPage(number: number, word: word, base: slots(ofPage: word.page))
        }
        level -= 1
      }
      level = top
    }
    return nil
  }

  @inline(__always)
  func slots(ofPage page: Int) -> UnsafeMutableRawPointer {
    words.base + (IndexAt.slots + page * LogPages.pageSize)
  }

  @inline(__always)
  private func isTherePage(_ page: Int) -> Bool {
    page >= 0 && (page < knownPages.load(ordering: .relaxed) || findPages(page))
  }

  @inline(never)
  private func findPages(_ page: Int) -> Bool {
    guard let status = Files.status(of: indexFile.number) else { return false }
    let pages = min((status.size - IndexAt.slots) / LogPages.pageSize, mappedPages)
    knownPages.store(pages, ordering: .relaxed)
    return page < pages
  }

  // MARK: with the lock held

  /// A slot for a new key; nil: the page has to be divided. That is so where no bucket of the
  /// window has `manyGhosts`: ghosts then have about half of the slots, and last for about two
  /// rounds of the log.
  func freeSlot(_ page: SlotPage, _ hash: UInt64) -> FreeSlot? {
    var oldest: UnsafeMutableRawPointer?
    var oldestAddress = LogAddress.max
    for offset in 0..<LogPages.window {
      let line =
        page.base + LogPages.line(SlotWord.home(hash), offset) * LogPages.lineSize
      var free: UnsafeMutableRawPointer?
      var ghosts = 0
      for i in 0..<LogPages.bucketSlots {
        let word = SlotWord(SharedWords.load(line + i * 8))
        if word.address <= 1 {
          if free == nil { free = line + i * 8 }
        } else if word.isGhost {
          if word.hasTag(of: hash) {
            return FreeSlot(slot: line + i * 8, wasEvicted: isRecent(word.address))
          }
          ghosts += 1
          if word.address < oldestAddress { (oldest, oldestAddress) = (line + i * 8, word.address) }
        }
      }
      if let free { return FreeSlot(slot: free) }
      if ghosts >= LogPages.manyGhosts, let oldest { return FreeSlot(slot: oldest) }
    }
    return deadSlot(page, hash)
  }

  /// A slot that names an entry which went with its segment. No slot of these buckets is unused.
  private func deadSlot(_ page: SlotPage, _ hash: UInt64) -> FreeSlot? {
    firstSlot(page, hash) { $0.names && seat(of: $0.address) == nil }.map { FreeSlot(slot: $0) }
  }

  /// The first slot that is wanted of those in which a key's may be. As every lookup it does not go
  /// beyond a bucket with an unused slot.
  @inline(__always)
  func firstSlot(
    _ page: SlotPage, _ hash: UInt64, where isWanted: (SlotWord) -> Bool
  ) -> UnsafeMutableRawPointer? {
    for offset in 0..<LogPages.window {
      let line =
        page.base + LogPages.line(SlotWord.home(hash), offset) * LogPages.lineSize
      var isLast = false
      for i in 0..<LogPages.bucketSlots {
        let word = SlotWord(SharedWords.load(line + i * 8))
        if isWanted(word) { return line + i * 8 }
        isLast = isLast || word == .unused
      }
      if isLast { break }
    }
    return nil
  }

  /// Whether an entry that has been evicted was put not longer ago than twice what the log holds.
  private func isRecent(_ address: LogAddress) -> Bool {
    words.load(IndexAt.head) &- address <= UInt64(segmentCount) &<< (unitShift + 1)
  }

  /// The word of a slot that no longer names an entry: unused, unless a lookup has to go on to an
  /// entry behind its bucket.
  func emptied(_ slot: UnsafeMutableRawPointer, _ page: SlotPage) -> SlotWord {
    let bucket = (slot - page.base) / LogPages.lineSize
    func hasSlot(_ bucket: Int, _ isWanted: (SlotWord) -> Bool) -> Bool {
      var next = page.base + bucket * LogPages.lineSize
      let end = next + LogPages.bucketSlots * 8
      while next < end {
        if isWanted(SlotWord(SharedWords.load(next))) { return true }
        next += 8
      }
      return false
    }
    if hasSlot(bucket, { $0 == .unused }) { return .unused }
    for offset in 1..<LogPages.window {
      let isPassed = hasSlot(LogPages.line(bucket, offset)) { other in
        // A lookup of that key passes the slot's bucket if its entry is so far from its home.
        let distance = (bucket + offset - other.home) & (LogPages.buckets - 1)
        return other.names && distance >= offset && distance < LogPages.window
      }
      if isPassed { return .free }
    }
    return .unused
  }

  /// The slot that names the entry at an address; nil: none does, and the entry is dead.
  func slot(of entry: LogEntry.Head, _ hash: UInt64) -> (UnsafeMutableRawPointer, SlotPage)? {
    guard let page = page(for: hash),
      let slot = firstSlot(page, hash, where: { $0.address == entry.address && !$0.isGhost })
    else { return nil }
    return (slot, page)
  }

  /// Divides a page: half of its keys have a page of their own afterwards.
  @inline(never)
  func divide(_ page: SlotPage, at now: Int64) throws(Failure) {
    shrink(addingPages: 2, at: now)
    let level = page.word.level
    let sibling = page.number + 1 &<< level
    guard level < IndexAt.highestTop else {
      throw Failure(.noSpace, "the index has as many entries as it can have")
    }
    if level > top || level < top && words.load(PageWord.offset(sibling)) != 0 {
      // The index is damaged: this page has old slots of keys that lead to another one.
      return try mend(for: UInt64(sibling) << 12)
    }
    let spare = Int(words.load(IndexAt.sparePage) & 0xFFFF_FFFF) - 1
    let pages = Int(words.load(IndexAt.pages) & 0xFFFF_FFFF)
    let first = spare >= 0 ? spare : pages
    let second = spare >= 0 ? pages : pages + 1
    let end = second + 1
    guard end <= mostPages else {
      throw Failure(.noSpace, "the index has as many entries as it can have")
    }
    try reserve(pages, end, top: level + 1)
    guard isTherePage(first), isTherePage(second) else {
      throw Failure(.corrupt, "the index is shorter than it says")
    }
    SharedWords.clear(slots(ofPage: first), LogPages.pageSize)
    SharedWords.clear(slots(ofPage: second), LogPages.pageSize)
    try distribute(page, first, second)

    var redo = RedoRecord(words)
    if UInt64(level + 1) > words.load(IndexAt.top) { redo.set(IndexAt.top, UInt64(level + 1)) }
    redo.set(PageWord.offset(sibling), PageWord(page: second, level: level + 1).bits)
    redo.set(PageWord.offset(page.number), PageWord(page: first, level: level + 1).bits)
    redo.set(IndexAt.pages, UInt64(end))
    redo.set(IndexAt.sparePage, UInt64(page.word.page + 1))
    redo.commit()
  }

  /// Whether each hash leads to one page, and each page but the spare one to hashes of its own.
  var hasSoundPages: Bool {
    let (top, pages) = (top, words.load(IndexAt.pages))
    guard pages <= UInt64(mostPages) else { return false }
    var highest = 0
    var keys = 0
    // The squares of the pages that there are, less those of the pages that are found.
    var left: UInt64 = 0
    func add(_ page: UInt64) { left &+= page &* page }
    for page in 0..<pages { add(page &+ 1) }
    left = 0 &- left
    add(words.load(IndexAt.sparePage))
    for number in 0..<1 << top {
      guard let page = page(for: UInt64(number) << 12), page.word.level <= top else { return false }
      if page.number != number { continue }
      highest = max(highest, page.word.level)
      keys += 1 << (top - page.word.level)
      add(UInt64(page.word.page + 1))
    }
    return highest == top && keys == 1 << top && left == 0
  }

  /// No hash leads to a page any more. `rebuildInPlace` follows: until then the table is not sound,
  /// whatever a kill leaves.
  func forgetPages() {
    // The segment is read from its first entry.
    if isBeginning(.new) { try? appendBeginning(.new) }
    for number in 0..<1 << top where words.load(PageWord.offset(number)) != 0 {
      words.store(PageWord.offset(number), 0)
    }
    SharedWords.clear(slots(ofPage: 0), LogPages.pageSize)
  }

  /// Reserves the file's bytes for these pages, and for the page table's words of that level.
  private func reserve(_ pages: Int, _ end: Int, top: Int) throws(Failure) {
    let step = LogPages.step
    for page in pages..<end where page % step == 0 {
      try Mapping.reserve(
        indexFile.number, IndexAt.slots + page * LogPages.pageSize, step * LogPages.pageSize)
      CrashPoint.pass()
    }
    guard UInt64(top) > words.load(IndexAt.top) else { return }
    let first = 1 << (top - 1)
    try Mapping.reserve(indexFile.number, PageWord.offset(first), first * 8)
    CrashPoint.pass()
    // An index that was damaged may have had a higher top.
    SharedWords.clear(words.base + PageWord.offset(first), first * 8)
  }

  /// Fills two pages with the slots of one, without the dead ones. Small entries are prefetched
  /// first; large ones each have pages of their own.
  private func distribute(_ page: SlotPage, _ first: Int, _ second: Int) throws(Failure) {
    let isFar = live / LogPages.farSize > count
    if !isFar { prefetchEntries(of: page) }
    for i in 0..<LogPages.slots {
      let slot = SlotWord(SharedWords.load(page.base + i * 8))
      guard slot.names, let seat = seat(of: slot.address),
        let hash = hashOfEntry(at: slot.address, seat, isFar: isFar)
      else { continue }
      let isSecond = LogStore.spread(hash) &>> page.word.level & 1 != 0
      guard place(slot, in: slots(ofPage: isSecond ? second : first)) else {
        throw Failure(.noSpace, "too many keys have the same hash")
      }
    }
  }

  /// The entries of a page lie all over the log.
  func prefetchEntries(of page: SlotPage) {
    for i in 0..<LogPages.slots {
      let address = SlotWord(SharedWords.load(page.base + i * 8)).address
      if let seat = seat(of: address) { hutch_prefetch(memory(seat, address)) }
    }
  }

  /// The hash of the key of the entry at an address; nil: no entry is there. A value that is not
  /// small is written through the file, and a load from a page that this process has not mapped
  /// costs four times as much as a read of the entry's beginning: `isFar`.
  private func hashOfEntry(at address: LogAddress, _ seat: SeatWord, isFar: Bool) -> UInt64? {
    if isFar {
      var room = InlineArray<32, UInt64>(repeating: 0)
      let found = withUnsafeMutableBytes(of: &room) { bytes -> UInt64? in
        let start = bytes.baseAddress.unsafelyUnwrapped
        guard let count = Files.read(
            logFile.number, into: bytes, at: memory(seat, address) - logBase),
          let entry = LogEntry.Head(start, address, room: segmentSize),
          entry.keySize > 0, entry.value.baseAddress.unsafelyUnwrapped <= start + count
        else { return nil }
        return hash.entry(entry.key)
      }
      if let found { return found }
    }
    guard let entry = entry(seat, address), entry.keySize > 0 else { return nil }
    return hash.entry(entry.key)
  }

  private func place(_ slot: SlotWord, in base: UnsafeMutableRawPointer) -> Bool {
    for offset in 0..<LogPages.window {
      let line = base + LogPages.line(slot.home, offset) * LogPages.lineSize
      for i in 0..<LogPages.bucketSlots where SharedWords.load(line + i * 8) == 0 {
        SharedWords.store(line + i * 8, slot.bits)
        return true
      }
    }
    return false
  }
}
