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

/// What writes and evictions need of each entry: the hash, by which its word is found, and the
/// policy's node. Addressed by number, so links are 4 bytes and stay good as the slab grows,
/// which it does 256 slots at a time.
///
/// Times stand beside the slots of a chunk, and only if one of its entries may expire.
struct Slab<Node: BitwiseCopyable>: ~Copyable {
  struct Entry {
    /// The upper half of the entry's hash within the shard, but for the lowest bit, which is a
    /// mark of the policy's. Of a free slot: the next free one.
    var hash: UInt32
    var node: Node

    @inline(__always)
    var isMarked: Bool { hash & 1 != 0 }
  }

  /// Of an entry that may expire.
  struct Times {
    /// Not before this is it expired. `Record.never`: nothing to look for.
    var due: Int64
    /// When it was last read, if it has a time to idle; else 0.
    var accessed: Int64
    static var none: Times { Times(due: Record.never, accessed: 0) }
  }

  static var chunkSize: Int { 256 }

  private struct Chunk {
    var entries: UnsafeMutablePointer<Entry>
    var times: UnsafeMutablePointer<Times>?
  }

  private var chunks: UnsafeMutablePointer<Chunk>?
  private(set) var chunkCount = 0
  private var chunkRoom = 0
  private var firstFree = Slot.none
  /// Slots from here on have never been used.
  private var used = 0

  init() {}

  deinit {
    for i in 0..<chunkCount {
      free(chunks.unsafelyUnwrapped[i].entries)
      free(chunks.unsafelyUnwrapped[i].times)
    }
    free(chunks)
  }

  @inline(__always)
  subscript(_ slot: Slot) -> UnsafeMutablePointer<Entry> {
    chunks.unsafelyUnwrapped[Int(slot.number &>> 8)].entries + Int(slot.number & 255)
  }

  /// Sets the policy's mark of a slot. No setter of `isMarked`: Swift 6.3.1 cannot instrument
  /// one for ThreadSanitizer when it is reached through a subscript.
  @inline(__always)
  func mark(_ slot: Slot, _ isMarked: Bool) {
    let entry = self[slot]
    let hash = entry.pointee.hash
    entry.pointee.hash = isMarked ? hash | 1 : hash & ~1
  }

  /// Nil if no entry of the chunk may expire.
  @inline(__always)
  func times(_ slot: Slot) -> UnsafeMutablePointer<Times>? {
    guard let times = chunks.unsafelyUnwrapped[Int(slot.number &>> 8)].times else { return nil }
    return times + Int(slot.number & 255)
  }

  func times(ofChunk chunk: Int) -> UnsafeMutablePointer<Times>? {
    chunk < chunkCount ? chunks.unsafelyUnwrapped[chunk].times : nil
  }

  /// The slot that `take` will give. Fails, with nothing changed, if there is no room for it.
  mutating func reserve() throws(Failure) -> Slot {
    if !firstFree.isNone { return firstFree }
    if used == chunkCount * Slab.chunkSize { try addChunk() }
    return Slot(UInt32(truncatingIfNeeded: used))
  }

  mutating func take(_ hash: UInt32) -> Slot {
    let slot: Slot
    if firstFree.isNone {
      slot = Slot(UInt32(truncatingIfNeeded: used))
      used += 1
    } else {
      slot = firstFree
      firstFree = Slot(self[slot].pointee.hash)
    }
    self[slot].pointee.hash = hash & ~1
    return slot
  }

  mutating func give(back slot: Slot) {
    times(slot)?.pointee = .none
    self[slot].pointee.hash = firstFree.number
    firstFree = slot
  }

  /// Makes room for the times of a slot's chunk.
  mutating func reserveTimes(_ slot: Slot) throws(Failure) {
    let chunk = chunks.unsafelyUnwrapped + Int(slot.number >> 8)
    if chunk.pointee.times != nil { return }
    let times = try Allocation.array(Times.self, Slab.chunkSize)
    times.initialize(repeating: .none, count: Slab.chunkSize)
    chunk.pointee.times = times
  }

  private mutating func addChunk() throws(Failure) {
    guard chunkCount < Links.slotLimit / Slab.chunkSize else { throw .noMemory }
    if chunkCount == chunkRoom {
      let room = max(4, chunkRoom * 2)
      let more = try Allocation.array(Chunk.self, room)
      if let chunks { more.update(from: chunks, count: chunkCount) }
      free(chunks)
      chunks = more
      chunkRoom = room
    }
    // Pages of a chunk that are never used are never touched.
    let memory = try Allocation.bytes(Slab.chunkSize * MemoryLayout<Entry>.stride)
    chunks.unsafelyUnwrapped[chunkCount] = Chunk(
      entries: memory.bindMemory(to: Entry.self, capacity: Slab.chunkSize), times: nil)
    chunkCount += 1
  }
}
