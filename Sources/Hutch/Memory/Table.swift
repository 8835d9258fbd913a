import CSystem

/// The entries of a shard by hash. A lookup reads one cache line of words (seldom the one
/// beside it) and then the block.
///
/// The table is a directory of segments, as in extendible hashing (Fagin, Nievergelt,
/// Pippenger, Strong, 1979): the first `depth` bits of the hash choose the segment, the next 15
/// are the word's tag. A segment is up to 64 lines of 8 words. The tag chooses the home line
/// by multiplication, so the lines of a segment are in the order of the tags, and a segment
/// of n lines can grow to any number of them: load stays between 0.55 and 0.875, and no step of
/// growth moves more than 600 words. Hashes in order are also what a cursor over a growing
/// table needs.
///
/// If it is known how many entries the full tier will have, a segment that will not split again has
/// as many lines as its share of them needs, and a few entries more by chance: load is about 0.80
/// then. In a full tier the number of a segment's entries goes up and down by chance alone, and a
/// segment may be filled to 15/16 before it grows. It shrinks when fewer than a third of its words
/// have entries, and memory is wanted (`tighten`).
///
/// A line is packed: its words stand at the left. An entry that found its home line full is
/// in the next one that was not, so a lookup ends at the first line that is not full; a
/// removal moves entries back (Knuth, 6.4, algorithm R).
///
/// Only the upper 31 bits of a hash are used, which the slot keeps: a segment that splits
/// needs one bit of each entry that its tag has not.
struct Table: ~Copyable {
  static let wordsPerLine = 8
  static let tagBits: UInt64 = 15

  typealias Line = UnsafeMutablePointer<Word>
  /// Valid until the next insertion or removal.
  typealias Place = UnsafeMutablePointer<Word>

  /// A run of lines and how many bits of the hash its entries share.
  ///     63..48 lines, 47..6 address, 5..0 depth
  struct Segment {
    let bits: UInt64

    @inline(__always)
    init(_ lines: UnsafeMutableRawPointer, count: Int, depth: Int) {
      bits = UInt64(count) << 48 | UInt64(UInt(bitPattern: lines)) | UInt64(depth)
    }

    @inline(__always) var depth: Int { Int(bits & 63) }
    @inline(__always) var lineCount: Int { Int(truncatingIfNeeded: bits &>> 48) }
    @inline(__always)
    var words: UnsafeMutablePointer<Word> {
      UnsafeMutablePointer(bitPattern: UInt(bits & 0xFFFF_FFFF_FFC0)).unsafelyUnwrapped
    }
    @inline(__always) func line(_ index: Int) -> Line { words + index &* Table.wordsPerLine }

    @inline(__always) func tag(_ hash: UInt64) -> UInt64 { (hash &<< (bits & 63)) >> 49 }
    @inline(__always)
    func home(_ tag: UInt64) -> Int {
      Int(truncatingIfNeeded: (tag &* (bits &>> 48)) &>> Table.tagBits)
    }
    /// The least tag whose home is this line.
    func firstTag(ofLine line: Int) -> UInt64 {
      (UInt64(line) << Table.tagBits + UInt64(lineCount) - 1) / UInt64(lineCount)
    }
    /// The words that fit before it has to grow: 7 of 8.
    @inline(__always) var room: Int { lineCount &* 7 }
    /// In a full tier: 15 of 16.
    var roomIfFull: Int { lineCount * 15 / 2 }
  }

  /// 2^depth segments, each at every index that begins with its bits; behind them as many
  /// counts, of which the one at a segment's first index is kept. Nil until the first entry.
  var directory: UnsafeMutablePointer<Segment>?
  var fills: UnsafeMutablePointer<UInt32>?
  var depth = 0 { didSet { size = 1 << UInt64(depth) } }
  /// 2^depth.
  private var size: UInt64 = 1
  var count = 0
  /// Of all segments.
  var bytes = 0
  private let inPlace = InPlace()

  init() {}

  deinit {
    guard let directory else { return }
    forEachSegment { segment, _ in Heap.give(segment.words) }
    free(directory)
  }

  // MARK: looking up

  @inline(__always)
  func index(_ hash: UInt64) -> Int {
    Int(truncatingIfNeeded: hash.multipliedFullWidth(by: size).high)
  }

  @inline(__always)
  func firstIndex(_ index: Int, _ segment: Segment) -> Int {
    let free = depth &- segment.depth
    return (index &>> free) &<< free
  }

  @inline(__always)
  static func next(_ line: Int, _ segment: Segment) -> Int {
    line &+ 1 == segment.lineCount ? 0 : line &+ 1
  }

  /// The line behind one, around the end of the segment.
  @inline(__always)
  static func next(_ line: Line, _ segment: Segment) -> Line {
    let next = line + wordsPerLine
    return next == segment.line(segment.lineCount) ? segment.words : next
  }

  /// Whether a line has a vacant word: no entry whose home it is, or is before it, is behind it.
  @inline(__always)
  static func hasEnd(_ line: Line) -> Bool { (line + (wordsPerLine - 1)).word.isVacant }

  /// The words of a line with what a lookup asks for. Vacant words have tag 0 too.
  struct Matches {
    /// Two for each.
    private var bits: UInt32

    /// Compares the tag alone.
    @inline(__always)
    init(_ line: Line, tag: UInt64) {
      bits = hutch_match8(
        line, UInt32(truncatingIfNeeded: tag &<< Word.tagShift), UInt32(Word.tagMask))
    }

    /// Compares the tag and the kind: 0, or the bit of objects.
    @inline(__always)
    init(_ line: Line, tag: UInt64, kind: UInt64) {
      bits = hutch_match8(
        line, UInt32(truncatingIfNeeded: tag &<< Word.tagShift | kind),
        UInt32(Word.tagMask | Word.objectBit))
    }

    @inline(__always) var isEmpty: Bool { bits == 0 }

    /// There is one.
    @inline(__always)
    func first(of line: Line) -> Place {
      (UnsafeMutableRawPointer(line) + bits.trailingZeroBitCount &<< 2)
        .assumingMemoryBound(to: Word.self)
    }

    @inline(__always)
    mutating func removeFirst() {
      bits &= bits &- 1
      bits &= bits &- 1
    }
  }

  @inline(__always)
  private func find(_ hash: UInt64, _ isIt: (UnownedBlock) -> Bool) -> Place? {
    find(hash, kind: hash & KeyedHash.kindBits != 0 ? Word.objectBit : 0, isIt)
  }

  @inline(__always)
  private func find(
    _ hash: UInt64, kind: UInt64, _ isIt: (UnownedBlock) -> Bool
  ) -> Place? {
    guard let directory else { return nil }
    let segment = directory[index(hash)]
    let tag = segment.tag(hash)
    let home = segment.home(tag)
    var at = home
    repeat {
      let line = segment.line(at)
      var matches = Matches(line, tag: tag, kind: kind)
      while !matches.isEmpty {
        let place = matches.first(of: line)
        let word = place.word
        if !word.isVacant && isIt(word.block) { return place }
        matches.removeFirst()
      }
      if Table.hasEnd(line) { return nil }
      at = Table.next(at, segment)
    } while at != home
    return nil
  }

  /// For accesses: inlined where it is called.
  @inline(__always)
  func findAtOnce(_ key: Bytes, _ hash: UInt64) -> Place? {
    find(hash) { block in
      block.prefetchValue()
      return block.hasKey(key)
    }
  }

  /// Asks for the line of words that a hash leads to.
  @inline(__always)
  func prefetch(_ hash: UInt64) {
    guard let directory else { return }
    hutch_prefetch(home(hash, directory).line)
  }

  /// The line of words that a hash leads to, and the tag.
  @inline(__always)
  func home(
    _ hash: UInt64, _ directory: UnsafeMutablePointer<Segment>
  ) -> (line: Line, tag: UInt64) {
    let segment = directory[index(hash)]
    let tag = segment.tag(hash)
    return (segment.line(segment.home(tag)), tag)
  }

  /// Asks for the block that a hash most probably leads to.
  @inline(__always)
  func prefetchBlock(_ hash: UInt64) {
    guard let directory else { return }
    let (line, tag) = home(hash, directory)
    let matches = Matches(line, tag: tag, kind: 0)
    // The first bytes of nothing are asked for in vain.
    if _fastPath(!matches.isEmpty), let block = matches.first(of: line).word.block0 {
      hutch_prefetch(block)
      // The end of a short key is often on the next line.
      hutch_prefetch(block + (UnownedBlock.At.header + 15))
    }
  }

  /// For all else: one copy of the code for all policies.
  @inline(never)
  @_optimize(speed)
  func find(_ key: Bytes, _ hash: UInt64) -> Place? {
    find(hash) { $0.hasKey(key) }
  }

  /// The entry of a slot, whose hash is kept there, and which is in the table: so if only one
  /// word has the tag, that is it, and its block need not be read.
  @inline(never)
  @_optimize(speed)
  func find(_ slot: Slot, _ hash: UInt32) -> Place? {
    let segment = directory.unsafelyUnwrapped[index(UInt64(hash) << 32)]
    let tag = segment.tag(UInt64(hash) << 32)
    let home = segment.home(tag)
    let line = segment.line(home)
    var matches = Matches(line, tag: tag)
    if _fastPath(!matches.isEmpty) {
      let place = matches.first(of: line)
      matches.removeFirst()
      if _fastPath(matches.isEmpty && !place.pointee.isVacant) {
        // The same for the lines on which others of this home may be.
        var last = line
        var at = home
        while true {
          if Table.hasEnd(last) { return place }
          at = Table.next(at, segment)
          last = segment.line(at)
          if !Matches(last, tag: tag).isEmpty || at == home { break }
        }
      }
    }
    return findSlowly(slot, UInt64(hash) << 32)
  }

  /// By the blocks' own slots.
  @inline(never)
  private func findSlowly(_ slot: Slot, _ hash: UInt64) -> Place? {
    let segment = directory.unsafelyUnwrapped[index(hash)]
    let tag = segment.tag(hash)
    let home = segment.home(tag)
    var at = home
    repeat {
      let line = segment.line(at)
      var matches = Matches(line, tag: tag)
      while !matches.isEmpty {
        let place = matches.first(of: line)
        if let block = place.word.blockIfAny, block.slot == slot.number { return place }
        matches.removeFirst()
      }
      if Table.hasEnd(line) { return nil }
      at = Table.next(at, segment)
    } while at != home
    return nil
  }

  // MARK: changing

  /// Puts a word in, for which `reserve` has made room.
  @_optimize(speed)
  mutating func insert(_ word: Word, _ hash: UInt64) {
    let at = index(hash)
    let segment = directory.unsafelyUnwrapped[at]
    Table.place(word.with(tag: segment.tag(hash)), in: segment)
    fills.unsafelyUnwrapped[firstIndex(at, segment)] &+= 1
    count &+= 1
  }

  @inline(__always)
  static func place(_ word: Word, in segment: Segment, home: Int) {
    var at = home
    var line = segment.line(at)
    while _slowPath(!hasEnd(line)) {
      at = next(at, segment)
      line = segment.line(at)
    }
    // Half of a line at a time.
    var lane = line[3].isVacant ? 0 : 4
    while !line[lane].isVacant { lane &+= 1 }
    line[lane] = word
  }

  @inline(__always)
  static func place(_ word: Word, in segment: Segment) {
    place(word, in: segment, home: segment.home(word.tag))
  }

  /// Takes out the word at a place that `find` gave for this hash.
  @_optimize(speed)
  mutating func remove(_ place: Place, _ hash: UInt64) {
    let at = index(hash)
    let segment = directory.unsafelyUnwrapped[at]
    fills.unsafelyUnwrapped[firstIndex(at, segment)] &-= 1
    count &-= 1

    // Not signed divisions, which built for size would be just that.
    let offset = UInt(bitPattern: place - segment.words)
    var hole = Int(bitPattern: offset &>> 3)
    guard Table.takeOut(Int(bitPattern: offset & 7), of: segment.line(hole)) else { return }
    // The line was full, so entries whose home it is, or is before it, may be behind it.
    let lines = segment.lineCount
    var at2 = Table.next(hole, segment)
    while at2 != hole {
      let line = segment.line(at2)
      let wasFull = !Table.hasEnd(line)
      let back = Table.distance(from: hole, to: at2, lines)
      let found = hutch_displaced8(
        line, UInt32(truncatingIfNeeded: lines), UInt32(truncatingIfNeeded: at2),
        UInt32(truncatingIfNeeded: back))
      let lane = found.trailingZeroBitCount
      // Vacant words, which look like others with tag 0, are the last of a line.
      if found != 0 && !line[lane].isVacant {
        segment.line(hole)[Table.wordsPerLine - 1] = line[lane]
        _ = Table.takeOut(lane, of: line)
        hole = at2
      }
      if !wasFull { return }
      at2 = Table.next(at2, segment)
    }
  }

  /// Of lines, onwards.
  @inline(__always)
  private static func distance(from: Int, to: Int, _ lines: Int) -> Int {
    to >= from ? to &- from : to &- from &+ lines
  }

  /// Vacates a lane, keeps the line packed; whether the line was full.
  @inline(__always)
  private static func takeOut(_ lane: Int, of line: Line) -> Bool {
    var last = wordsPerLine &- 1
    while line[last].isVacant { last &-= 1 }
    line[lane] = line[last]
    line[last] = .vacant
    return last == wordsPerLine &- 1
  }
}

extension Word {
  /// The block's address, whether or not there is one: for prefetching only.
  @inline(__always)
  var block0: UnsafeRawPointer? { UnsafeRawPointer(bitPattern: UInt(bits >> 20) << 4) }
}

extension UnownedBlock {
  /// The bytes behind the header are wanted too; their number is known only after it is read.
  @inline(__always)
  func prefetchValue() {
    hutch_prefetch(raw + 64)
    hutch_prefetch(raw + 128)
  }

  /// Keys are short: 8 bytes at a time, no call. Neither is empty.
  @inline(__always)
  func hasKey(_ other: UnsafeRawPointer, _ count: Int) -> Bool {
    guard keySize == count else { return false }
    let own = UnsafeRawPointer(raw + headerSize)
    func differs(_ offset: Int) -> UInt64 {
      own.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
        ^ other.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
    }
    if count >= 8 && count <= 16 { return differs(0) | differs(count &- 8) == 0 }
    return memcmp(own, other, count) == 0
  }

  @inline(__always)
  func hasKey(_ other: Bytes) -> Bool {
    hasKey(other.baseAddress.unsafelyUnwrapped, other.count)
  }

  /// Of a key of the same size, on the short path of a hit. A key of up to 16 bytes is compared as
  /// two numbers, without a call.
  @inline(__always)
  func hasKeyBytes(
    _ key: UnsafeRawPointer, _ count: Int, _ kind: HitPath.KeySize, _ shape: Shape
  ) -> Bool {
    let own = UnsafeRawPointer(raw + shape.header)
    /// The first ones, and those that end with the key.
    @inline(__always)
    func areSame<T: FixedWidthInteger & BitwiseCopyable>(_ type: T.Type) -> Bool {
      let offset = -MemoryLayout<T>.size
      return _fastPath(own.loadUnaligned(as: type) == key.loadUnaligned(as: type))
        && _fastPath(
          (own + count).loadUnaligned(fromByteOffset: offset, as: type)
            == (key + count).loadUnaligned(fromByteOffset: offset, as: type))
    }
    switch kind {
    case .any: return hasKey(key, count)
    case .small where count < 8: return areSame(UInt32.self)
    case .small, .short: return areSame(UInt64.self)
    }
  }
}
