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
/// Times stand beside the slots of a chunk, and only if one of its entries may expire. So that a
/// search for what has expired costs nothing while nothing has, each chunk has a lower bound of
/// its times (no entry of it is due before), and the slab one of all chunks. To set a time lowers
/// them; the search raises them again: a chunk's as it has read it, the slab's when it has been
/// once around.
struct Slab: ~Copyable {
  struct Entry {
    /// The upper half of the entry's hash within the shard, but for the lowest bit, which is a
    /// mark of the policy's. Of a free slot: the next free one.
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
    var entries: UnsafeMutableRawPointer
    var times: UnsafeMutablePointer<Times>?
    /// At most the least `due` among `times`.
    var due = Record.never
  }

  /// The bytes of a slot: an `Entry`; or a hash, `Links` and a count of uses.
  private let slotSize: Int
  private var chunks: UnsafeMutablePointer<Chunk>?
  private(set) var chunkCount = 0
  private var chunkRoom = 0
  /// Of the chunks and their times.
  private(set) var bytes = 0
  /// On average, rounded down. 0: there is no chunk.
  private(set) var bytesPerSlot = 0
  private var firstFree = Slot.none
  /// Slots from here on have never been used.
  private var used = 0
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
    for i in 0..<chunkCount {
      Heap.give(chunks.unsafelyUnwrapped[i].entries)
      if let times = chunks.unsafelyUnwrapped[i].times { Heap.give(times) }
    }
    free(chunks)
  }

  @inline(__always)
  private func raw(_ slot: Slot) -> UnsafeMutableRawPointer {
    chunks.unsafelyUnwrapped[Int(slot.number &>> 8)].entries
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

  /// The bounds' invariant that does not hold, or nil. For tests.
  func violation() -> StaticString? {
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

  /// The slot that `take` will give. Fails, with nothing changed, if there is no room for it.
  mutating func reserve() throws(Failure) -> Slot {
    if !firstFree.isNone { return firstFree }
    if used == chunkCount * Slab.chunkSize { try addChunk() }
    return Slot(UInt32(truncatingIfNeeded: used))
  }

  /// Whether `take` has a slot.
  @inline(__always)
  var hasRoom: Bool { !firstFree.isNone || used < chunkCount &* Slab.chunkSize }

  @inline(__always)
  mutating func take(_ hash: UInt32) -> Slot {
    let slot: Slot
    if firstFree.isNone {
      slot = Slot(UInt32(truncatingIfNeeded: used))
      used &+= 1
    } else {
      slot = firstFree
      firstFree = Slot(self[slot].pointee.hash)
    }
    self[slot].pointee.hash = hash & ~1
    return slot
  }

  /// A slot without times.
  @inline(__always)
  mutating func give(back slot: Slot) {
    self[slot].pointee.hash = firstFree.number
    firstFree = slot
  }

  /// Makes room for the times of a slot's chunk.
  mutating func reserveTimes(_ slot: Slot) throws(Failure) {
    let chunk = chunks.unsafelyUnwrapped + Int(slot.number >> 8)
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
      let entries = chunk.pointee.entries
      if let moved = Heap.moved(entries, lines: Slab.chunkSize * slotSize / 64) {
        chunk.pointee.entries = moved
        Heap.give(entries)
      }
      guard let times = chunk.pointee.times else { continue }
      if let moved = Heap.moved(times, lines: Slab.bytesOfTimes / 64) {
        chunk.pointee.times = moved.assumingMemoryBound(to: Times.self)
        Heap.give(times)
      }
    }
  }

  /// A chunk, or the times of one, have come.
  private mutating func count(_ more: Int) {
    bytes += more
    bytesPerSlot = bytes / (chunkCount * Slab.chunkSize)
  }

  private mutating func addChunk() throws(Failure) {
    guard chunkCount < ForwardLink.slotLimit / Slab.chunkSize else { throw .noMemory }
    if chunkCount == chunkRoom {
      let room = max(4, chunkRoom * 2)
      let more = try Allocation.array(Chunk.self, room)
      if let chunks { more.update(from: chunks, count: chunkCount) }
      free(chunks)
      chunks = more
      chunkRoom = room
    }
    chunks.unsafelyUnwrapped[chunkCount] = Chunk(
      entries: try Heap.takeLines(Slab.chunkSize * slotSize / 64, seed: chunkCount), times: nil)
    chunkCount += 1
    count(Slab.chunkSize * slotSize)
  }
}
