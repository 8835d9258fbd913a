import CSystem
import Synchronization

/// A region of the heap (Heap.swift), under the lock of its arena: its header, and its huge pages.
///
///      0  arena   whose region it is; it never changes
///      8  next    another region of the arena, or nil
///     16  chunks  UInt64; bit n: chunk n is a huge page; all bits: none becomes one any more
///     32  windows UInt32 for each 64 KB: the units of spans in use that begin there; the top bit:
///                 the window is evacuated (HeapEvacuation.swift)
///
/// HUGE PAGES. A chunk is 2 MB of a region, on a boundary of 2 MB. A processor finds the addresses
/// of some 2,000 pages at once; a read at random in a larger heap of pages of 4 KB has to look its
/// page up besides. When every page of a chunk is in memory, background work has the system put
/// them into one huge page (MADV_COLLAPSE, since Linux 6.1). Gets at random of values of 100 bytes
/// take 0.85 times as long then among 200,000 to 1M entries, and 0.74 times among 8M.
///
/// What is in memory stays the same, so the heap's sums know nothing of huge pages. For that the
/// system must make none by itself, neither at the first write of a chunk nor when pages of one
/// have been given back: a region is MADV_NOHUGEPAGE but for the chunks that are huge pages.
///
/// While the system moves a chunk, some 0.5 to 1 ms, what touches the chunk waits, and so does a
/// page fault of the process. Therefore the heap moves one at a time, and rests in between
/// (`Heap.collapse`). It holds no arena's lock meanwhile:
///
///     the chunk's bit   set under the lock before the system moves it
///     pages go back     as of a huge page: the chunk becomes MADV_NOHUGEPAGE, and its bit goes.
///                       Then the system refuses to move it, or has moved it before
///     region unmapped   not while a chunk of the arena is moved (`isMoving`)
///
/// FORK. The pages of a chunk that a fork has shared would be copied. So the regions that there are
/// at a fork get no more huge pages, in the parent and in the child.
struct HeapRegion {
  let raw: UnsafeMutableRawPointer

  static let chunkSize = 2 << 20
  static let chunkCount = Heap.regionSize / chunkSize
  private static let pagesOfChunk = chunkSize / HeapSpan.page
  private static let closed = ~UInt64(0)
  static let windowSize = 64 << 10
  static let unitsOfWindow = windowSize / HeapSpan.unit
  static let windowCount = Heap.regionSize / windowSize
  static let evacuated: UInt32 = 1 << 31
  /// With the header of the first span.
  static let header = 64 + 4 * windowCount

  @inline(__always) init(_ raw: UnsafeMutableRawPointer) { self.raw = raw }

  @inline(__always)
  var arena: UnsafeMutableRawPointer { raw.load(as: UnsafeMutableRawPointer.self) }

  var next: UnsafeMutablePointer<UnsafeMutableRawPointer?> {
    (raw + 8).assumingMemoryBound(to: UnsafeMutableRawPointer?.self)
  }

  private var chunks: UInt64 {
    get { (raw + 16).load(as: UInt64.self) }
    nonmutating set { (raw + 16).storeBytes(of: newValue, as: UInt64.self) }
  }

  /// Written under the arena's lock, read by any thread.
  @inline(__always)
  func window(_ index: Int) -> UnsafeMutablePointer<Atomic<UInt32>> {
    (raw + (32 &+ 4 &* index)).assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  func begin(of arena: HeapArena, before next: UnsafeMutableRawPointer?) {
    madvise(raw, Heap.regionSize, MADV_NOHUGEPAGE)
    raw.storeBytes(of: arena.raw, as: UnsafeMutableRawPointer.self)
    self.next.pointee = next
  }

  /// Pages are about to be given back: their chunks are no huge pages any more.
  @inline(__always)
  func endHugePages(of pages: HeapPages) {
    if _slowPath(chunks != 0) { endThem(of: pages) }
  }

  @inline(never)
  private func endThem(of pages: HeapPages) {
    if pages.isEmpty || chunks == HeapRegion.closed { return }
    let first = pages.from / HeapRegion.pagesOfChunk
    let last = (pages.to &- 1) / HeapRegion.pagesOfChunk
    for chunk in first...last where isHuge(chunk) {
      chunks &= ~(1 << UInt64(chunk))
      madvise(address(chunk), HeapRegion.chunkSize, MADV_NOHUGEPAGE)
    }
  }

  func isHuge(_ chunk: Int) -> Bool { chunks >> UInt64(chunk) & 1 != 0 }

  private func address(_ chunk: Int) -> UnsafeMutableRawPointer {
    raw + chunk * HeapRegion.chunkSize
  }

  /// No chunk becomes a huge page from here on.
  func close() {
    if chunks != 0 { madvise(raw, Heap.regionSize, MADV_NOHUGEPAGE) }
    chunks = HeapRegion.closed
  }

  /// Whether every page of a chunk is in memory.
  func isWhole(_ chunk: Int) -> Bool {
    var pages = InlineArray<64, UInt64>(repeating: 0)
    return withUnsafeMutableBytes(of: &pages) {
      let bytes = $0.baseAddress.unsafelyUnwrapped.assumingMemoryBound(to: UInt8.self)
      guard mincore(address(chunk), HeapRegion.chunkSize, bytes) == 0 else { return false }
      // The other bits of a page's byte have no meaning.
      return $0.allSatisfy { $0 & 1 != 0 }
    }
  }

  /// A chunk is about to become a huge page. False: the system refuses.
  fileprivate func permit(_ chunk: Int) -> Bool {
    guard madvise(address(chunk), HeapRegion.chunkSize, MADV_HUGEPAGE) == 0 else { return false }
    chunks |= 1 << UInt64(chunk)
    return true
  }

  /// Makes a huge page of it. False: as above. Without the arena's lock.
  fileprivate func move(_ chunk: Int) -> Bool {
    // MADV_COLLAPSE.
    madvise(address(chunk), HeapRegion.chunkSize, 25) == 0
  }

  /// It has not become one. False: pages of it have been given back meanwhile.
  fileprivate func forbid(_ chunk: Int) -> Bool {
    guard chunks != HeapRegion.closed, isHuge(chunk) else { return false }
    chunks &= ~(1 << UInt64(chunk))
    madvise(address(chunk), HeapRegion.chunkSize, MADV_NOHUGEPAGE)
    return true
  }
}

extension HeapRegion {
  /// Whether the system's owner lets programs ask for huge pages: MADV_COLLAPSE alone would not
  /// always heed it.
  static var areHugePagesAllowed: Bool {
    let path = Files.path("/sys/kernel/mm/transparent_hugepage/enabled")
    guard let number = Files.open(path, O_RDONLY) else { return false }
    let file = Descriptor(owning: number)
    // The setting is in brackets, as in "always [madvise] never".
    var words = InlineArray<64, UInt8>(repeating: 0)
    return withUnsafeMutableBytes(of: &words) { words in
      guard Files.read(file.number, into: words) ?? 0 > 0,
        let bracket = words.dropLast().firstIndex(of: UInt8(ascii: "["))
      else { return false }
      return words[bracket + 1] != UInt8(ascii: "n")
    }
  }
}

extension HeapArena {
  /// What a search for a chunk that can become a huge page has come to.
  enum Search {
    /// One has become a huge page.
    case collapsed
    /// The arena has no other one.
    case ended
    /// So many looks were not enough.
    case pausing
    /// The system has refused one.
    case refused
  }

  /// Whether the system moves a chunk.
  var isMoving: Bool {
    get { (raw + At.isMoving).load(as: Bool.self) }
    nonmutating set { (raw + At.isMoving).storeBytes(of: newValue, as: Bool.self) }
  }

  /// Goes on with the search at the chunk of this number, counted over all regions, and spends
  /// `looks`, one for each chunk that is no huge page. Takes the lock, but does not hold it while
  /// the system moves a chunk. One thread at a time.
  func collapse(from number: inout Int, looks: inout Int) -> Search {
    lock.lock()
    defer { lock.unlock() }
    var skipped = number / HeapRegion.chunkCount
    for region in regions {
      if skipped > 0 {
        skipped -= 1
        continue
      }
      for chunk in number % HeapRegion.chunkCount..<HeapRegion.chunkCount {
        if looks == 0 { return .pausing }
        number += 1
        if region.isHuge(chunk) { continue }
        looks -= 1
        guard region.isWhole(chunk) else { continue }
        return collapse(chunk, of: region)
      }
    }
    return .ended
  }

  /// Called with the lock, which it releases for a while.
  private func collapse(_ chunk: Int, of region: HeapRegion) -> Search {
    guard region.permit(chunk) else { return .refused }
    isMoving = true
    lock.unlock()
    let hasMoved = region.move(chunk)
    lock.lock()
    isMoving = false
    return hasMoved || !region.forbid(chunk) ? .collapsed : .refused
  }

  /// The regions that there are get no more huge pages. Called with the lock.
  func keepPagesShared() {
    for region in regions { region.close() }
  }

  /// All of the arena's. Walked with the lock.
  var regions: HeapRegions { HeapRegions(first: firstRegion.pointee) }
}

/// A region and those that follow it in its list. The one that a loop has may be unmapped by it.
struct HeapRegions: Sequence, IteratorProtocol {
  private var following: UnsafeMutableRawPointer?

  @inline(__always) init(first: UnsafeMutableRawPointer?) { following = first }

  @inline(__always)
  mutating func next() -> HeapRegion? {
    guard let this = following else { return nil }
    let region = HeapRegion(this)
    following = region.next.pointee
    return region
  }
}
