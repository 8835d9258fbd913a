import CSystem
import Synchronization

/// A part of the heap (Heap.swift) with a lock of its own: regions, and bins of their free spans.
///
/// The lock protects all of it, spans included; no other lock is taken under it. The two sums and
/// the number of evacuated windows are written under the lock and read by any thread. `hasMoved` is
/// written by any thread.
///
/// BINS. A free span is in a list by its size: one for each size below 64 units, and 16 for each
/// power of two above. A bit for each bin says whether it has a span. A request takes a span of its
/// own bin that is large enough, of the first few, or one of the next bin that has any: a good fit,
/// after Doug Lea's malloc and the two-level lists of TLSF (Masmano, Ripoll, Crespo and Real,
/// 2004). It gets the span's end. So a large span stays where it is while it shrinks, and mostly in
/// its bin.
///
/// The free spans of windows that are evacuated (HeapEvacuation.swift) wait in a list of their own.
///
/// A free span of one unit is in no bin. It is joined with a neighbour when that is freed.
struct HeapArena {
  let raw: UnsafeMutableRawPointer

  enum At {
    static let lock = 0
    static let used = 8
    static let resident = 16
    static let evacuations = 24
    static let hasMoved = 28
    /// This and all from `pages` on is protected by the lock.
    static let isMoving = 29
    static let pages = 32
    static let toReview = 40
    static let firstRegion = 48
    static let oldest = 56
    static let newest = 64
    static let bits = 72
    static let toEnd = 112
    static let bins = 128
  }

  private static let exact = 64
  private static let perDoubling = 16
  /// The last one is of spans from 2^20 units on, half a region.
  private static let binCount = exact + 15 * perDoubling
  /// The list of free spans of evacuated windows stands before the bins, and has no bit.
  private static let hidden = -1
  static let byteCount = At.bins + binCount * 8
  /// So many bytes are taken or given between two reviews.
  private static let reviewEach = 64 << 10
  private static let mostPagesAhead = 16
  /// The largest request, in units, whose pages are asked for under the lock.
  private static let mostAhead = (64 << 10) / HeapSpan.unit
  /// So many pages a review gives back to the system, besides those of the requests since the last
  /// one: a large value that goes may be the arena's last one for long.
  private static let pagesOfReview = 256
  /// What a span's pages count for beside themselves. Each of them is a call of the system, which
  /// has the other cores forget the pages: that takes longer than the pages do. So spans of a page
  /// go as fast as 64 KB of requests, between two reviews, can make them.
  private static let pagesOfCall = 15

  @inline(__always) init(_ raw: UnsafeMutableRawPointer) { self.raw = raw }

  @inline(__always) var lock: LockInPlace { LockInPlace(at: raw) }

  @inline(__always)
  private func sum(_ offset: Int) -> UnsafeMutablePointer<Atomic<Int>> {
    (raw + offset).assumingMemoryBound(to: Atomic<Int>.self)
  }

  /// Bytes of spans in use.
  @inline(__always)
  var used: Int {
    get { sum(At.used).pointee.load(ordering: .relaxed) }
    nonmutating set { sum(At.used).pointee.store(newValue, ordering: .relaxed) }
  }

  /// Bytes of all pages that may be in memory, as of the last review: at most too many. `pages` is
  /// the same now, but for a span that is on its way from one bin to another.
  var resident: Int { sum(At.resident).pointee.load(ordering: .relaxed) }

  @inline(__always)
  private var pages: Int {
    get { number(At.pages).pointee }
    nonmutating set { number(At.pages).pointee = newValue }
  }

  private func publish() { sum(At.resident).pointee.store(pages, ordering: .relaxed) }

  @inline(__always)
  private func number(_ offset: Int) -> UnsafeMutablePointer<Int> {
    (raw + offset).assumingMemoryBound(to: Int.self)
  }

  @inline(__always)
  private func link(_ offset: Int) -> UnsafeMutablePointer<UnsafeMutableRawPointer?> {
    (raw + offset).assumingMemoryBound(to: UnsafeMutableRawPointer?.self)
  }

  // MARK: bins

  @inline(__always)
  private static func bin(_ units: Int) -> Int {
    if units < exact { return units }
    let power = Int.bitWidth &- 1 &- units.leadingZeroBitCount
    return exact &+ (power &- 6) &* perDoubling &+ (units &>> (power &- 4)) & (perDoubling - 1)
  }

  /// Whether two numbers of units, neither of them in a bin of one size, are of one bin.
  @inline(__always)
  private static func isOneBin(_ units: Int, _ others: Int) -> Bool {
    let shift = Int.bitWidth &- 5 &- units.leadingZeroBitCount
    return units &>> shift == others &>> shift
  }

  @inline(__always)
  private func bits(_ word: Int) -> UnsafeMutablePointer<UInt64> {
    (raw + At.bits + word &* 8).assumingMemoryBound(to: UInt64.self)
  }

  @inline(__always)
  private func first(_ bin: Int) -> UnsafeMutablePointer<UnsafeMutableRawPointer?> {
    link(At.bins &+ bin &* 8)
  }

  /// A free span of at least so many units, which stays in its bin; nil: there is none.
  @inline(__always)
  func fit(_ units: Int) -> HeapSpan? {
    var bin = HeapArena.bin(units)
    if units >= HeapArena.exact {
      var candidate = first(bin).pointee
      var looks = 8
      while let this = candidate, looks > 0 {
        if HeapSpan(this).units >= units { return HeapSpan(this) }
        candidate = HeapSpan(this).next
        looks &-= 1
      }
      bin &+= 1
    }
    var word = bin &>> 6
    var found = bits(word).pointee & (~0 &<< UInt64(bin & 63))
    while found == 0 {
      word &+= 1
      if word == (HeapArena.binCount + 63) / 64 { return nil }
      found = bits(word).pointee
    }
    return first(word &<< 6 &+ found.trailingZeroBitCount).pointee.map { HeapSpan($0) }
  }

  /// Puts a span, whose header says its size, into its bin. `dirty`: its pages that may be in
  /// memory, and others.
  @inline(__always)
  func insert(_ span: HeapSpan, _ units: Int, dirty: HeapPages) {
    if units < 2 { return }
    var bin = HeapArena.bin(units)
    if _slowPath(evacuations > 0) && span.isToHide(units) {
      span.hide()
      bin = HeapArena.hidden
    } else {
      bits(bin &>> 6).pointee |= 1 &<< UInt64(bin & 63)
    }
    let next = first(bin).pointee
    span.next = next
    span.previous = nil
    if let next { HeapSpan(next).previous = span.raw }
    first(bin).pointee = span.raw
    if units >= HeapSpan.large { note(span, units, dirty: dirty) }
  }

  @inline(__always)
  func remove(_ span: HeapSpan, _ units: Int) {
    if units < 2 { return }
    if units >= HeapSpan.large { forget(span, units) }
    let next = span.next
    let previous = span.previous
    if let next { HeapSpan(next).previous = previous }
    if let previous {
      HeapSpan(previous).next = next
    } else {
      let bin = _slowPath(span.isHidden) ? HeapArena.hidden : HeapArena.bin(units)
      first(bin).pointee = next
      if next == nil && bin != HeapArena.hidden {
        bits(bin &>> 6).pointee &= ~(1 &<< UInt64(bin & 63))
      }
    }
  }

  var firstHidden: HeapSpan? { first(HeapArena.hidden).pointee.map { HeapSpan($0) } }
  var hasHidden: Bool { first(HeapArena.hidden).pointee != nil }

  // MARK: large free spans

  /// A span has become a large free one: its pages that are not in memory do not count.
  @inline(never) @_optimize(speed)
  private func note(_ span: HeapSpan, _ units: Int, dirty: HeapPages) {
    let whole = span.whole(units)
    let dirty = dirty.within(whole)
    span.dirty = dirty
    pages &-= (whole.count &- dirty.count) &* HeapSpan.page
    if dirty.isEmpty { return }
    let newest = link(At.newest).pointee
    span.older = newest
    span.newer = nil
    if let newest { HeapSpan(newest).newer = span.raw } else { link(At.oldest).pointee = span.raw }
    link(At.newest).pointee = span.raw
  }

  @inline(never) @_optimize(speed)
  private func forget(_ span: HeapSpan, _ units: Int) {
    let dirty = span.dirty
    pages &+= (span.whole(units).count &- dirty.count) &* HeapSpan.page
    if dirty.isEmpty { return }
    let older = span.older
    let newer = span.newer
    if let older { HeapSpan(older).newer = newer } else { link(At.oldest).pointee = newer }
    if let newer { HeapSpan(newer).older = older } else { link(At.newest).pointee = older }
  }

  /// A large free span loses its end, and stays large and in its bin.
  @inline(never) @_optimize(speed)
  private func shrink(_ span: HeapSpan, _ units: Int, to rest: Int) {
    let dirty = span.dirty
    let left = span.whole(rest)
    let still = ahead(span, units, to: rest, left)
    if still.isEmpty == dirty.isEmpty {
      span.dirty = still
      pages &+=
        (span.whole(units).count &- dirty.count &- left.count &+ still.count) &* HeapSpan.page
    } else {
      forget(span, units)
      note(span, rest, dirty: still)
    }
  }

  /// The dirty pages that a large free span has left when it loses its end. If the last page is not
  /// in memory, asks for the end and the pages before it in one call, in which a page costs half as
  /// much as by a fault of its own; dirty pages elsewhere are given back. Not for a large request,
  /// whose pages would take too long under the lock (Allocation.prepare).
  private func ahead(_ span: HeapSpan, _ units: Int, to rest: Int, _ left: HeapPages) -> HeapPages {
    let dirty = span.dirty
    let end = span.whole(units).to
    if units &- rest > HeapArena.mostAhead || !dirty.isEmpty && dirty.to == end {
      return dirty.within(left)
    }
    let region = span.region
    if !dirty.isEmpty { giveBack(dirty, of: region) }
    // A small arena gets a 64th of what it has, a request of some pages those alone.
    let pages = units &- rest > HeapSpan.large
      ? 0 : min(HeapArena.mostPagesAhead, used / (64 * HeapSpan.page) &+ 1)
    let wanted = HeapPages(from: max(left.from, left.to &- pages), to: end)
    // MADV_POPULATE_WRITE, since Linux 5.14.
    madvise(region + wanted.from &* HeapSpan.page, wanted.count &* HeapSpan.page, 23)
    return wanted.within(left)
  }

  /// Gives pages of a region back to the system. They are zeroes when they are next touched.
  private func giveBack(_ pages: HeapPages, of region: UnsafeMutableRawPointer) {
    HeapRegion(region).endHugePages(of: pages)
    madvise(region + pages.from &* HeapSpan.page, pages.count &* HeapSpan.page, MADV_DONTNEED)
  }

  /// The dirty pages of two neighbours that become one free span, of which they are whole pages. If
  /// clean ones lie between them, the fewer ones are given back.
  @inline(never) @_optimize(speed)
  private func joined(
    _ low: HeapPages, _ high: HeapPages, of region: UnsafeMutableRawPointer
  ) -> HeapPages {
    if low.isEmpty { return high }
    if high.isEmpty { return low }
    if high.from <= low.to { return HeapPages(from: low.from, to: max(low.to, high.to)) }
    let (fewer, more) = low.count < high.count ? (low, high) : (high, low)
    giveBack(fewer, of: region)
    return more
  }

  // MARK: taking and giving

  /// Memory of so many units, header included; nil: the system has none. `slack`: 3: the memory is
  /// aligned to 4 units, a cache line, by up to 3 units more; else 0.
  @inline(never) @_optimize(speed)
  func take(_ units: Int, slack: Int = 0) -> UnsafeMutableRawPointer? {
    lock.lock()
    defer { lock.unlock() }
    let found = _slowPath(evacuations > 0) ? fitElsewhere(units &+ slack) : fit(units &+ slack)
    guard let span = found ?? addRegion() else { return nil }
    let all = span.units
    let start = UInt(bitPattern: span.after(all &- units).raw) &+ UInt(HeapSpan.header)
    let units = units &+ Int(bitPattern: start / UInt(HeapSpan.unit)) & slack
    let rest = all &- units
    if rest >= HeapSpan.large && HeapArena.isOneBin(rest, all) {
      // Most requests take nothing of a whole page.
      if span.after(all).page != span.after(rest).page { shrink(span, all, to: rest) }
      span.set(rest, isFree: true)
    } else {
      let dirty = all < HeapSpan.large ? HeapPages.none : span.dirty
      remove(span, all)
      if rest > 0 { span.set(rest, isFree: true) }
      insert(span, rest, dirty: dirty)
    }
    let taken = span.after(rest)
    taken.set(units, isFree: false)
    _ = taken.use(units)
    count(units, 1)
    return taken.raw + HeapSpan.header
  }

  /// Frees what `take` gave.
  @inline(never) @_optimize(speed)
  func give(_ given: HeapSpan) {
    lock.lock()
    defer { lock.unlock() }
    let units = given.units
    let after = given.after(units)
    let (left, right) = (given.before, after.isFree ? after.units : 0)
    let (span, all) = (HeapSpan(given.raw - left &* HeapSpan.unit), left &+ units &+ right)
    var dirty = HeapPages.none
    if _fastPath(all < HeapSpan.large) {
      if right > 0 { remove(after, right) }
      if left > 0 { remove(span, left) }
    } else {
      dirty = join(span, left, given, units, after, right)
    }
    span.set(all, isFree: true)
    if _slowPath(given.use(-units)) { countEmptied() }
    insert(span, all, dirty: dirty)
    count(units, -1)
  }

  /// Takes the free neighbours, if there are any, out of their bins, and returns the dirty pages of
  /// the span of all three.
  @inline(never)
  private func join(
    _ span: HeapSpan, _ left: Int, _ given: HeapSpan, _ units: Int, _ after: HeapSpan, _ right: Int
  ) -> HeapPages {
    let whole = span.whole(left &+ units &+ right)
    var dirty = given.touched(units)
    var (low, high) = (HeapPages.none, HeapPages.none)
    if right > 0 {
      // With the page where the neighbour notes what it is.
      dirty.to = max(dirty.to, after.whole(right).from)
      high = after.pages(right).within(whole)
      remove(after, right)
    }
    if left > 0 {
      low = span.pages(left).within(whole)
      remove(span, left)
    }
    let region = span.region
    return joined(joined(low, dirty.within(whole), of: region), high, of: region)
  }

  @inline(__always)
  private func count(_ units: Int, _ sign: Int) {
    let bytes = units &* HeapSpan.unit
    used &+= sign &* bytes
    number(At.toReview).pointee &-= bytes
    if _slowPath(number(At.toReview).pointee < 0) { review() }
  }

  // MARK: regions

  /// A region that is one free span. Its pages are not in memory before they are written.
  @inline(never)
  private func addRegion() -> HeapSpan? {
    guard let region = Heap.map(Heap.regionSize, alignedToItself: true) else { return nil }
    HeapRegion(region).begin(of: self, before: firstRegion.pointee)
    firstRegion.pointee = region
    let span = HeapSpan(region + (HeapRegion.header - HeapSpan.header))
    let units = HeapArena.unitsOfRegion
    // The headers before and behind are 0, as all that is new.
    span.set(units, isFree: true)
    pages &+= Heap.regionSize
    insertByCall(span, units, dirty: HeapPages.none)
    // `trim` looks for arenas with regions. Not before the span's pages do not count any more: a
    // heap that seems to have 32 MB of holes has puts evict, and walk the tables in vain.
    publish()
    return span
  }

  /// The list of the regions.
  var firstRegion: UnsafeMutablePointer<UnsafeMutableRawPointer?> { link(At.firstRegion) }

  /// Whether there is more than one region. There is one.
  private var hasOtherRegions: Bool {
    HeapRegion(firstRegion.pointee.unsafelyUnwrapped).next.pointee != nil
  }

  private func unlink(_ region: UnsafeMutableRawPointer) {
    var place = firstRegion
    while let this = place.pointee, this != region { place = HeapRegion(this).next }
    place.pointee = HeapRegion(region).next.pointee
  }

  private static var unitsOfRegion: Int { (Heap.regionSize - HeapRegion.header) / HeapSpan.unit }

  /// The arena of a span.
  @inline(__always)
  init(of span: HeapSpan) { raw = HeapRegion(span.region).arena }

  /// Compares what the heap keeps from the system with what is in use; if it is too much, gives
  /// some of this arena's pages back, the oldest first.
  @inline(never)
  private func review() {
    let bytes = HeapArena.reviewEach &- number(At.toReview).pointee
    number(At.toReview).pointee = HeapArena.reviewEach
    publish()
    giveBack(excess: Heap.review(), of: bytes)
    let isWanted = Heap.isTight && !Heap.hasSmallTiers
    reviewEvacuation(bytes, share: isWanted ? HeapArena.shareOfReview : nil)
  }

  /// Gives so many bytes of pages back, or what a review does at most, and publishes the sum.
  /// `bytes`: of the requests since the last review. Called with the lock, or by a test.
  func giveBack(excess: Int, of bytes: Int = 0) {
    defer { publish() }
    var excess = excess
    var left = HeapArena.pagesOfReview &+ bytes / HeapSpan.page
    while left > 0, excess > 0, let oldest = link(At.oldest).pointee {
      let span = HeapSpan(oldest)
      let units = span.units
      let dirty = span.dirty
      // The next request gets the span's end.
      let given = HeapPages(from: dirty.from, to: min(dirty.to, dirty.from &+ left))
      let kept = HeapPages(from: given.to, to: dirty.to)
      forget(span, units)
      giveBack(given, of: span.region)
      note(span, units, dirty: kept)
      left &-= given.count &+ HeapArena.pagesOfCall
      excess &-= given.count &* HeapSpan.page
      if kept.isEmpty && units == HeapArena.unitsOfRegion && hasOtherRegions && !isMoving {
        removeByCall(span, units)
        unlink(span.region)
        pages &-= Heap.regionSize
        munmap(span.region, Heap.regionSize)
      }
    }
  }

  /// Unmaps all regions if no span is in use; else a review that no request asks for. No chunk is
  /// being moved.
  func trim() {
    // Its pages may never have been touched.
    if resident == 0 { return }
    lock.lock()
    let unused = HeapRegions(first: used == 0 ? firstRegion.pointee : nil)
    if used == 0 {
      // All their spans are free ones, each region is one of them, and no window is evacuated.
      memset(raw + At.pages, 0, HeapArena.byteCount &- At.pages)
      publish()
    } else {
      giveBack(excess: Heap.review())
    }
    lock.unlock()
    for region in unused { munmap(region.raw, Heap.regionSize) }
  }

  // MARK: fork

  /// Before a fork.
  func lockForFork() { lock.lock() }

  /// After it, in the parent, and in the child, which has no other thread.
  func unlockAfterFork(inChild: Bool) {
    if inChild { lock.forgetWaiters() }
    keepPagesShared()
    lock.unlock()
  }

  // MARK: invariants

  /// The invariant that does not hold, or nil; for tests. Takes the lock.
  func violation() -> StaticString? {
    lock.lock()
    defer { lock.unlock() }
    if let found = violationOfWindows() { return found }
    for bin in HeapArena.hidden..<HeapArena.binCount {
      let isHidden = bin == HeapArena.hidden
      let isSet = !isHidden && bits(bin >> 6).pointee >> UInt64(bin & 63) & 1 != 0
      if !isHidden && isSet != (first(bin).pointee != nil) { return "a bin and its bit differ" }
      var previous: UnsafeMutableRawPointer?
      var next = first(bin).pointee
      while let this = next {
        let span = HeapSpan(this)
        let units = span.units
        if !span.isFree { return "a span in use is in a bin" }
        if span.isHidden != isHidden { return "a free span is in a bin and hidden" }
        if !isHidden && HeapArena.bin(units) != bin { return "a span is in another's bin" }
        if span.previous != previous { return "a bin's list is not linked both ways" }
        if span.before != 0 { return "two free spans are neighbours" }
        if span.after(units).isFree { return "two free spans are neighbours" }
        if span.after(units).before != units { return "a span does not know the one before it" }
        if HeapArena(of: span).raw != raw { return "a span is in another's arena" }
        previous = this
        next = span.next
      }
    }
    return nil
  }
}
