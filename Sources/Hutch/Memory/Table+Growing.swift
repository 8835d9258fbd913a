import CSystem

/// How a table grows: a segment gets more lines, or splits, and the directory doubles. It shrinks
/// by segments that get fewer lines.
extension Table {
  /// A segment of this many lines splits rather than grows.
  private static var mostLines: Int { 64 }
  /// One of so many that will not split again, if all goes as expected, does.
  private static var mostLinesAtLast: Int { 80 }
  private static var mostDepth: Int { 16 }

  /// Whether one more entry of this hash has room.
  @inline(__always)
  func hasRoom(_ hash: UInt64) -> Bool {
    guard let directory else { return false }
    let at = index(hash)
    let segment = directory[at]
    return Int(fills.unsafelyUnwrapped[firstIndex(at, segment)]) < segment.room
  }

  /// Makes room for one more entry of this hash. The slots of the entries keep their hashes.
  /// `expected`: of how many entries the full tier is about; `isFull`: it is full now.
  mutating func reserve(
    _ hash: UInt64, _ slab: borrowing Slab, expected: Int = .max, isFull: Bool = false
  ) throws(Failure) {
    guard let directory else { return try begin() }
    let at = index(hash)
    let segment = directory[at]
    let fill = Int(fills.unsafelyUnwrapped[firstIndex(at, segment)])
    if fill < (isFull ? segment.roomIfFull : segment.room) { return }
    try grow(at, segment, slab, expected: expected)
  }

  /// The lines for a segment's share of the entries that are expected, and one standard deviation
  /// more; nil: it will split.
  private static func linesAtLast(_ expected: Int, depth: Int) -> Int? {
    let share = expected >> depth
    if share > mostLines * 7 { return nil }
    return (share + Int(Double(share).squareRoot())) * 4 / 27 + 1
  }

  private mutating func begin() throws(Failure) {
    let directory = try Table.makeDirectory(1)
    do throws(Failure) {
      directory[0] = Segment(try Heap.takeLines(1, seed: 0), count: 1, depth: 0)
    } catch {
      free(directory)
      throw error
    }
    self.directory = directory
    fills = Table.fills(of: directory, 1)
    bytes = 64
  }

  private static func makeDirectory(_ count: Int) throws(Failure)
    -> UnsafeMutablePointer<Segment>
  {
    // Entries of 8 bytes, then counts of 4.
    let memory = try Allocation.array(UInt32.self, 3 * count)
    return UnsafeMutableRawPointer(memory).bindMemory(to: Segment.self, capacity: count)
  }

  private static func fills(
    of directory: UnsafeMutablePointer<Segment>, _ count: Int
  ) -> UnsafeMutablePointer<UInt32> {
    (UnsafeMutableRawPointer(directory) + 8 * count).assumingMemoryBound(to: UInt32.self)
  }

  @inline(never)
  private mutating func grow(
    _ at: Int, _ segment: Segment, _ slab: borrowing Slab, expected: Int
  ) throws(Failure) {
    let lines = segment.lineCount
    let last = Table.linesAtLast(expected, depth: segment.depth)
    let most = last == nil ? Table.mostLines : Table.mostLinesAtLast
    if lines >= most && segment.depth < Table.mostDepth {
      try split(at, segment, slab, expected: expected)
    } else {
      // Beyond the deepest directory segments only grow; keys of one hash are not worth more.
      // A segment grows in one step from the size that a split leaves to the largest. Smaller steps
      // would save a byte an entry, and would place each word four times.
      let more: Int
      if let last, lines >= 32 && lines < most {
        more = lines < last ? last : lines + 4
      } else {
        more = lines < 32 ? lines * 2 : lines < Table.mostLines ? Table.mostLines : lines * 2
      }
      guard more <= 0x8000 else { throw .noMemory }
      try resize(at, segment, to: more)
    }
  }

  /// Gives a segment another number of lines. Fails with nothing changed.
  private mutating func resize(
    _ at: Int, _ segment: Segment, to lines: Int
  ) throws(Failure) {
    let memory = try Heap.takeLines(lines, seed: at)
    let resized = Segment(memory, count: lines, depth: segment.depth)
    for lane in 0..<segment.lineCount * Table.wordsPerLine where !segment.words[lane].isVacant {
      Table.place(segment.words[lane], in: resized)
    }
    set(resized, at: at)
    Heap.give(segment.words)
    bytes += (lines - segment.lineCount) * 64
  }

  /// Whether fewer than a third of the words have entries.
  @inline(__always) var isSparse: Bool { bytes > 24 &* count &+ 4096 }

  /// Gives the segment of a hash fewer lines, if less than a third of its words have entries; else
  /// moves it, if it is in an evacuated window of the heap. Without memory it stays as it is.
  mutating func tighten(_ hash: UInt64) {
    guard let directory, let fills else { return }
    let at = index(hash)
    let segment = directory[at]
    let fill = Int(fills[firstIndex(at, segment)])
    if segment.lineCount <= 8 || segment.lineCount * 8 < fill * 3 {
      guard let moved = Heap.moved(segment.words, lines: segment.lineCount) else { return }
      set(Segment(moved, count: segment.lineCount, depth: segment.depth), at: at)
      return Heap.give(segment.words)
    }
    do throws(Failure) {
      try resize(at, segment, to: Table.lines(for: fill, atLast: nil))
    } catch {}
  }

  /// Sets the segment at all its indices.
  private func set(_ segment: Segment, at index: Int) {
    let first = firstIndex(index, segment)
    for i in first..<first + 1 << (depth - segment.depth) {
      directory.unsafelyUnwrapped[i] = segment
    }
  }

  @inline(never)
  private mutating func split(
    _ at: Int, _ segment: Segment, _ slab: borrowing Slab, expected: Int
  ) throws(Failure) {
    var at = at
    if segment.depth == depth {
      try widen()
      at *= 2
    }
    let words = segment.words
    let laneCount = segment.lineCount * Table.wordsPerLine
    let first = firstIndex(at, segment)
    let total = Int(fills.unsafelyUnwrapped[first])
    // A hash is two reads away, of the block and of its slot: each loop asks for what the next one
    // reads. The bit that is now shared, by the tag; the bit that comes into the tag, by the hash.
    var high = 0
    for lane in 0..<laneCount {
      hutch_prefetch(words[lane].block0)
      high &+= Int(truncatingIfNeeded: words[lane].tag &>> (Table.tagBits &- 1))
    }
    for lane in 0..<laneCount where !words[lane].isVacant {
      hutch_prefetch(slab[Slot(words[lane].block.slot)])
    }
    let newDepth = segment.depth + 1
    let last = Table.linesAtLast(expected, depth: newDepth)
    let lowLines = Table.lines(for: total - high, atLast: last)
    let highLines = Table.lines(for: high, atLast: last)
    let low = Segment(try Heap.takeLines(lowLines, seed: at), count: lowLines, depth: newDepth)
    let upper: Segment
    do throws(Failure) {
      upper = Segment(try Heap.takeLines(highLines, seed: at), count: highLines, depth: newDepth)
    } catch {
      Heap.give(low.words)
      throw error
    }
    for lane in 0..<laneCount where !words[lane].isVacant {
      let word = words[lane]
      let hash = UInt64(slab[Slot(word.block.slot)].pointee.hash) << 32
      let target = word.tag >> (Table.tagBits - 1) == 0 ? low : upper
      Table.place(word.with(tag: target.tag(hash)), in: target)
    }
    let half = 1 << (depth - newDepth)
    set(low, at: first)
    set(upper, at: first + half)
    fills.unsafelyUnwrapped[first] = UInt32(total - high)
    fills.unsafelyUnwrapped[first + half] = UInt32(high)
    bytes += (lowLines + highLines - segment.lineCount) * 64
    Heap.give(words)
  }

  /// As many lines as leave a part of a split segment at a load of 0.7, or as it will need at last,
  /// if that is less.
  private static func lines(for count: Int, atLast last: Int?) -> Int {
    let lines = max(8, (count * 10 / 56 + 7) & ~7)
    guard let last else { return lines }
    return min(lines, max(last, count / 7 + 1))
  }

  /// Doubles the directory.
  private mutating func widen() throws(Failure) {
    let old = directory.unsafelyUnwrapped
    let oldFills = fills.unsafelyUnwrapped
    let count = 1 << depth
    let new = try Table.makeDirectory(2 * count)
    let newFills = Table.fills(of: new, 2 * count)
    for i in 0..<count {
      new[2 * i] = old[i]
      new[2 * i + 1] = old[i]
      newFills[2 * i] = oldFills[i]
    }
    free(old)
    directory = new
    fills = newFills
    depth += 1
  }
}
