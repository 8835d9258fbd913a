import CSystem

/// The number of a slot in its shard's slab.
struct Slot: Equatable {
  let number: UInt32
  @inline(__always) init(_ number: UInt32) { self.number = number }
  static let none = Slot(UInt32.max)
  @inline(__always) var isNone: Bool { number == UInt32.max }
  @inline(__always)
  static func == (a: Slot, b: Slot) -> Bool { a.number == b.number }
}

/// What writes and evictions need of each entry: the hash, by which its word is found, and its
/// place in the policy's lists. For the default policy that is one link, and a slot is 8 bytes; for
/// the others two, and a count of uses: 16 bytes. Addressed by number, so links are 4 bytes and
/// stay good as the slab grows, which it does 256 slots at a time.
///
/// A chunk keeps a list of its free slots, and the slab one of the chunks that have any. So a chunk
/// of which no slot is in use is known, and `shrink` gives it back.
///
/// Times stand beside the slots of a chunk, and only if one of its entries may expire. So that a
/// search for what has expired costs nothing while nothing has, each chunk has a lower bound of
/// its times (no entry of it is due before), and the slab one of all chunks. To set a time lowers
/// them; the search raises them again: a chunk's as it has read it, the slab's when it has been
/// once around.
struct Slab: ~Copyable {
  struct Entry {
    /// The upper half of the entry's hash within the shard, but for the lowest bit, which is a
    /// mark of the policy's. Of a free slot: the place of the next free one in its chunk.
    var hash: UInt32
    var link: ForwardLink

    @inline(__always)
    var isMain: Bool { hash & 1 != 0 }
  }

  /// The times of an entry that may expire.
  struct Times {
    /// Not before this is it expired. `Record.never`: nothing to look for.
    var due: Int64
    /// When it was last read, if it has a time to idle; else 0.
    var accessed: Int64
    static var none: Times { Times(due: Record.never, accessed: 0) }
  }

  static var chunkSize: Int { 256 }
  /// Of slots without a count of uses.
  static var bytesPerChunk: Int { chunkSize * MemoryLayout<Entry>.stride }

  private static var bytesOfTimes: Int { chunkSize * MemoryLayout<Times>.stride }

  private struct Chunk {
    /// Nil: it has been given back.
    var entries: UnsafeMutableRawPointer?
    var times: UnsafeMutablePointer<Times>?
    /// At most the least `due` among `times`.
    var due = Record.never
    /// The place of the first free slot, if there is one.
    var firstFree: UInt16 = 0
    var freeCount = UInt16(Slab.chunkSize)
    /// The next one that has free slots, or the next one that has been given back.
    var next: UInt32
  }

  /// The bytes of a slot: an `Entry`; or a hash, `Links` and a count of uses.
  private let slotSize: Int
  private var chunks: UnsafeMutablePointer<Chunk>?
  /// With those that have been given back.
  private(set) var chunkCount = 0
  private var chunkRoom = 0
  /// Of the chunks and their times.
  private(set) var bytes = 0
  /// On average, rounded down. 0: there is no chunk.
  private(set) var bytesPerSlot = 0
  /// The first chunk that has free slots. All ones: none.
  private var firstFree = UInt32.max
  /// The first chunk that has been given back, likewise, and how many have.
  private var firstGone = UInt32.max
  private var goneCount = 0
  /// At most the least `due` of all times.
  private(set) var earliestDue = Record.never
  /// The chunk that the search for expired entries looks at next.
  private(set) var searched = 0
  /// At most the least `due` among the chunks before that one.
  private var earliestSearched = Record.never

  private static var offsetOfLinks: Int { MemoryLayout<UInt32>.stride }
  private static var offsetOfUses: Int { offsetOfLinks + MemoryLayout<Links>.stride }

  /// `counts`: each slot has two links and a count of uses.
  init(counts: Bool) {
    slotSize = counts ? Slab.offsetOfUses + MemoryLayout<UInt32>.stride : MemoryLayout<Entry>.stride
  }

  var counts: Bool { slotSize > MemoryLayout<Entry>.stride }

  deinit {
    for i in 0..<chunkCount { Slab.give(chunks.unsafelyUnwrapped[i]) }
    free(chunks)
  }

  @inline(__always)
  private func raw(_ slot: Slot) -> UnsafeMutableRawPointer {
    chunks.unsafelyUnwrapped[Int(slot.number &>> 8)].entries.unsafelyUnwrapped
      + Int(slot.number & 255) &* slotSize
  }

  @inline(__always)
  subscript(_ slot: Slot) -> UnsafeMutablePointer<Entry> {
    raw(slot).assumingMemoryBound(to: Entry.self)
  }

  /// (Embedded Swift has no key paths to ask for the offset.)
  @inline(__always)
  func link(_ slot: Slot) -> UnsafeMutablePointer<ForwardLink> {
    (raw(slot) + Slab.offsetOfLinks).assumingMemoryBound(to: ForwardLink.self)
  }

  /// Of a slot that has two.
  @inline(__always)
  func links(_ slot: Slot) -> UnsafeMutablePointer<Links> {
    (raw(slot) + Slab.offsetOfLinks).assumingMemoryBound(to: Links.self)
  }

  /// How often the entry was used since it was stored, if the policy counts that.
  @inline(__always)
  func uses(_ slot: Slot) -> UnsafeMutablePointer<UInt32> {
    (raw(slot) + Slab.offsetOfUses).assumingMemoryBound(to: UInt32.self)
  }

  /// Sets the policy's mark of a slot. No setter of `isMain`: Swift 6.3.1 cannot instrument
  /// one for ThreadSanitizer when it is reached through a subscript.
  @inline(__always)
  func setMain(_ slot: Slot, _ isMain: Bool) {
    let entry = self[slot]
    let hash = entry.pointee.hash
    entry.pointee.hash = isMain ? hash | 1 : hash & ~1
  }

  /// Nil if no entry of the chunk may expire.
  @inline(__always)
  func times(_ slot: Slot) -> UnsafeMutablePointer<Times>? {
    guard let times = chunks.unsafelyUnwrapped[Int(slot.number &>> 8)].times else { return nil }
    return times + Int(slot.number & 255)
  }

  /// Sets the times of a slot whose chunk has times, for it has been reserved; else nothing is set.
  mutating func set(_ slot: Slot, _ new: Times) {
    guard let times = times(slot) else { return }
    times.pointee = new
    let chunk = chunks.unsafelyUnwrapped + Int(slot.number &>> 8)
    if new.due < chunk.pointee.due { chunk.pointee.due = new.due }
    earliestDue = min(earliestDue, new.due)
    earliestSearched = min(earliestSearched, new.due)
  }

  // MARK: expired entries

  /// The times of a chunk with an entry that may be due; nil: it has none.
  func times(ofChunk chunk: Int, dueAt now: Int64) -> UnsafeMutablePointer<Times>? {
    guard chunk < chunkCount, chunks.unsafelyUnwrapped[chunk].due <= now else { return nil }
    return chunks.unsafelyUnwrapped[chunk].times
  }

  /// The due entries of the chunk have been removed or have new times: sets its bound by its times.
  mutating func updateBound(ofChunk chunk: Int) {
    guard let times = chunks.unsafelyUnwrapped[chunk].times else { return }
    var due = Record.never
    for i in 0..<Slab.chunkSize { due = min(due, times[i].due) }
    chunks.unsafelyUnwrapped[chunk].due = due
  }

  /// Of so many chunks' bounds one step of the search reads at most.
  private static var chunksOfStep: Int { 64 }

  /// The next chunk with an entry that may be due, of a few; the search is there then. Nil: none.
  mutating func searchDue(at now: Int64) -> Int? {
    for _ in 0..<Slab.chunksOfStep {
      if now < earliestDue { return nil }
      if searched >= chunkCount {
        earliestDue = earliestSearched
        earliestSearched = Record.never
        searched = 0
        continue
      }
      if chunks.unsafelyUnwrapped[searched].due <= now { return searched }
      passChunk()
    }
    return nil
  }

  /// The search has done with its chunk.
  mutating func passChunk() {
    earliestSearched = min(earliestSearched, chunks.unsafelyUnwrapped[searched].due)
    searched += 1
  }

  /// The invariant that does not hold, or nil. For tests.
  func violation() -> StaticString? {
    violationOfBounds() ?? violationOfLists()
  }

  private func violationOfLists() -> StaticString? {
    var withFree = 0
    var number = firstFree
    while number != .max && withFree <= chunkCount {
      let chunk = chunk(number).pointee
      withFree += 1
      if chunk.entries == nil { return "a chunk that has been given back has free slots" }
      if chunk.freeCount == 0 { return "a chunk without free slots is on their list" }
      var place = UInt32(chunk.firstFree)
      for _ in 1..<max(1, chunk.freeCount) where place < Slab.chunkSize {
        place = self[Slot(number &<< 8 | place)].pointee.hash
      }
      if place >= Slab.chunkSize { return "a list of free slots is too short" }
      number = chunk.next
    }
    var gone = 0
    for i in 0..<chunkCount {
      let chunk = chunks.unsafelyUnwrapped[i]
      if chunk.entries == nil { gone += 1 } else if chunk.freeCount > 0 { withFree -= 1 }
    }
    if withFree != 0 { return "the list of chunks with free slots is wrong" }
    return gone == goneCount ? nil : "the count of chunks that have been given back is wrong"
  }

  private func violationOfBounds() -> StaticString? {
    for chunk in 0..<chunkCount {
      guard let times = chunks.unsafelyUnwrapped[chunk].times else { continue }
      for i in 0..<Slab.chunkSize {
        let due = times[i].due
        if due < chunks.unsafelyUnwrapped[chunk].due { return "an entry is due before its chunk" }
        if due < earliestDue { return "an entry is due before the earliest" }
        if chunk < searched && due < earliestSearched {
          return "an entry is due before the earliest of those searched"
        }
      }
    }
    return nil
  }

  // MARK: slots

  /// The slot that `take` will give. Fails, with nothing changed, if there is no room for it.
  mutating func reserve() throws(Failure) -> Slot {
    if !hasRoom { try addChunk() }
    return Slot(firstFree &<< 8 | UInt32(chunk(firstFree).pointee.firstFree))
  }

  /// Whether `take` has a slot.
  @inline(__always)
  var hasRoom: Bool { firstFree != .max }

  @inline(__always)
  mutating func take(_ hash: UInt32) -> Slot {
    let chunk = chunk(firstFree)
    let slot = Slot(firstFree &<< 8 | UInt32(chunk.pointee.firstFree))
    let entry = self[slot]
    chunk.pointee.firstFree = UInt16(truncatingIfNeeded: entry.pointee.hash)
    chunk.pointee.freeCount &-= 1
    if chunk.pointee.freeCount == 0 { firstFree = chunk.pointee.next }
    entry.pointee.hash = hash & ~1
    return slot
  }

  /// A slot without times.
  @inline(__always)
  mutating func give(back slot: Slot) {
    let number = slot.number &>> 8
    let chunk = chunk(number)
    self[slot].pointee.hash = UInt32(chunk.pointee.firstFree)
    chunk.pointee.firstFree = UInt16(truncatingIfNeeded: slot.number & 255)
    if chunk.pointee.freeCount == 0 {
      chunk.pointee.next = firstFree
      firstFree = number
    }
    chunk.pointee.freeCount &+= 1
  }

  @inline(__always)
  private func chunk(_ number: UInt32) -> UnsafeMutablePointer<Chunk> {
    chunks.unsafelyUnwrapped + Int(number)
  }

  // MARK: chunks

  /// Makes room for the times of a slot's chunk.
  mutating func reserveTimes(_ slot: Slot) throws(Failure) {
    let chunk = chunk(slot.number &>> 8)
    if chunk.pointee.times != nil { return }
    let times = try Heap.takeLines(Slab.bytesOfTimes / 64, seed: chunkCount).bindMemory(
      to: Times.self, capacity: Slab.chunkSize)
    times.initialize(repeating: .none, count: Slab.chunkSize)
    chunk.pointee.times = times
    count(Slab.bytesOfTimes)
  }

  /// Moves chunks and their times that are in an evacuated window of the heap: of a walk over all
  /// hashes, the chunks of the part from one to another. Nil: to the end.
  func tighten(from: UInt64, to: UInt64?) {
    func place(_ hash: UInt64) -> Int {
      Int(hash.multipliedFullWidth(by: UInt64(chunkCount)).high)
    }
    for index in place(from)..<(to.map(place) ?? chunkCount) {
      let chunk = chunks.unsafelyUnwrapped + index
      if let entries = chunk.pointee.entries {
        chunk.pointee.entries = Slab.moved(entries, Slab.chunkSize * slotSize)
      }
      if let times = chunk.pointee.times {
        chunk.pointee.times = Slab.moved(times, Slab.bytesOfTimes)
          .assumingMemoryBound(to: Times.self)
      }
    }
  }

  private static func moved(
    _ memory: UnsafeMutableRawPointer, _ bytes: Int
  ) -> UnsafeMutableRawPointer {
    guard let moved = Heap.moved(memory, lines: bytes / 64) else { return memory }
    Heap.give(memory)
    return moved
  }

  /// Gives the chunks back of which no slot is in use.
  mutating func shrink() {
    var next = firstFree
    firstFree = .max
    while next != .max {
      let number = next
      let chunk = chunk(number)
      next = chunk.pointee.next
      if chunk.pointee.freeCount < Slab.chunkSize {
        chunk.pointee.next = firstFree
        firstFree = number
      } else {
        Slab.give(chunk.pointee)
        let times = chunk.pointee.times == nil ? 0 : Slab.bytesOfTimes
        chunk.pointee = Chunk(next: firstGone)
        firstGone = number
        goneCount += 1
        count(-(Slab.chunkSize * slotSize + times))
      }
    }
  }

  @inline(never)
  private static func give(_ chunk: Chunk) {
    if let entries = chunk.entries { Heap.give(entries) }
    if let times = chunk.times { Heap.give(times) }
  }

  /// So many bytes of chunks, or of their times, have come; below 0: have gone.
  private mutating func count(_ more: Int) {
    bytes += more
    bytesPerSlot = bytes / max(1, (chunkCount - goneCount) * Slab.chunkSize)
  }

  /// A chunk whose slots are all free. It gets the number of one that has been given back, if there
  /// is one. Fails with nothing changed.
  private mutating func addChunk() throws(Failure) {
    if firstGone == .max { try addNumber() }
    let number = firstGone
    let chunk = chunk(number)
    let entries = try Heap.takeLines(Slab.chunkSize * slotSize / 64, seed: Int(number))
    firstGone = chunk.pointee.next
    goneCount -= 1
    chunk.pointee = Chunk(entries: entries, next: firstFree)
    firstFree = number
    for place in 0..<UInt32(Slab.chunkSize) {
      self[Slot(number &<< 8 | place)].pointee.hash = place &+ 1
    }
    count(Slab.chunkSize * slotSize)
  }

  /// Makes room for a chunk that has none yet.
  private mutating func addNumber() throws(Failure) {
    guard chunkCount < ForwardLink.slotLimit / Slab.chunkSize else { throw .noMemory }
    if chunkCount == chunkRoom {
      let room = max(4, chunkRoom * 2)
      let more = try Allocation.array(Chunk.self, room)
      if let chunks { more.update(from: chunks, count: chunkCount) }
      free(chunks)
      chunks = more
      chunkRoom = room
    }
    chunks.unsafelyUnwrapped[chunkCount] = Chunk(next: firstGone)
    firstGone = UInt32(truncatingIfNeeded: chunkCount)
    chunkCount += 1
    goneCount += 1
  }
}
