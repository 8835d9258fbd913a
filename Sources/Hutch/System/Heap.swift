import CSystem
import Synchronization

/// The memory of blocks and of their tables, in place of malloc's: what a cache's memory tier has
/// in memory is what its limit says, whatever the sizes of entries, the order in which they leave,
/// and the number of threads. malloc keeps freed memory for the thread whose arena it is from, and
/// cannot tell how much it keeps: with values of 8 bytes to 64 KB and four threads the process had
/// 1.5 times the limit in memory, with sixteen threads 2.9 times.
///
/// ARENAS. The heap is the process's, and has up to 17 arenas, each with a lock (HeapArena.swift).
/// The caller's seed, from the key's hash, chooses the arena, not the thread: so memory that one
/// thread frees is of use to each. Requests from 16 KB on have an arena to themselves: a span that
/// one of them leaves is there for the next one, whatever its key. The others go to one arena at
/// first, and to two once 2 MB are in use, and so on, because each arena has pages that are not
/// full. Memory goes back to the arena that it is from.
///
/// REGIONS. An arena maps 32 MB of address space at a time; only pages that are written are in
/// memory. A request gets a span of a region (HeapSpan.swift). Freed spans are joined with their
/// neighbours. Whole pages of the larger ones are given back to the system when the heap keeps more
/// than a 64th of what is in use and a 256th for each arena (at least 8 KB, at most 64 KB), but no
/// more than a 32nd in all, and two requests of the size that the large ones have (at most a 32nd
/// of what is in use, or, unless there is a memory tier of less than 32 MB, 1 MB): a value that is
/// replaced, or read from disk, finds the pages of the one before it. Larger requests than 4 MB are
/// mapped each by itself. When a memory tier has gone, regions that nothing uses go back too.
///
/// OVERRUN. What is between spans in use and cannot be given back, such as holes that small entries
/// left among others, may be more than that after a change of sizes. When it is more by a 64th of
/// what is in use and the room of the arenas (by half of that if there is a memory tier of less
/// than 32 MB), the heap is tight, until it is a quarter less. Then blocks and parts of tables move
/// and leave whole pages free (HeapEvacuation.swift), and puts into the memory tiers look whether
/// their tier has to pay: see Budget.
///
/// HUGE PAGES. Background work makes huge pages of what stays in memory (HeapRegion.swift).
///
/// FORK. The forking thread holds the search's lock and then those of all arenas, which come after
/// all other locks.
///
/// With HUTCH_MALLOC in the environment when the first cache is opened, blocks come from malloc,
/// for tools that watch it; and so where the system's pages are larger than 4 KiB, since the kernel
/// would take back more than the heap gives.
enum Heap {
  static let regionSize = 32 << 20
  /// The largest request that regions serve.
  private static let largest = 4 << 20
  /// The largest one that the arenas beside the first serve.
  private static let mostOfSmall = 16 << 10
  /// Beside the first.
  private static let mostArenas = 16
  /// What an arena may keep for the next requests, at least and at most.
  private static let leastOfArena = 8 << 10
  private static let mostOfArena = 64 << 10
  /// Requests go to one arena more, beside the first, for so many bytes in use.
  private static let usedOfArena = 1 << 20

  /// In the first 56 bytes of `hutch_heap`, which are 0 at first.
  private struct State: ~Copyable {
    /// The number of arenas beside the first that requests go to, less one; -1: blocks come from
    /// malloc. A review changes it. Relaxed: any arena can serve a request.
    let mask: Atomic<Int>
    /// The size of the large requests: the last one's, if no larger one was made lately. Relaxed: a
    /// review goes by what it sees.
    let large: Atomic<Int>
    let isTight: Atomic<Bool>
    let isPrepared: Atomic<Bool>
    /// The number of memory tiers of less than 32 MB, small ones included.
    let modestTiers: Atomic<Int32>
    /// When the search for a huge page goes on, by CLOCK_MONOTONIC; Int64.max: never. The thread
    /// that moves it ahead searches.
    let searchDue: Atomic<Int64>
    /// Where: the arena's number in the upper half, the chunk's in the lower. Relaxed: a search
    /// that begins elsewhere finds the same chunks.
    let searched: Atomic<Int>
    /// The bytes in use at the last step of the search. The thread that searches writes it.
    let usedBefore: Atomic<Int>
    /// The most arenas beside the first that requests go to; 0: not prepared, or malloc.
    let most: Atomic<Int32>
    /// The number of small memory tiers.
    let smallTiers: Atomic<Int32>
  }

  @inline(__always)
  private static var state: UnsafeMutablePointer<State> {
    hutch_heap().assumingMemoryBound(to: State.self)
  }

  /// Behind the state. Held while the search looks at an arena and the system moves a chunk; by
  /// `trim`, which may unmap all regions; and by a fork. It comes before the arenas' locks.
  private static var searchLock: LockInPlace { LockInPlace(at: hutch_heap() + 56) }

  @inline(__always)
  private static func arena(_ index: Int) -> HeapArena {
    HeapArena(hutch_heap() + (64 &+ index &* HeapArena.byteCount))
  }

  /// Called by each cache before its first request, on a machine with so many processors. The first
  /// call counts: memory must be freed by what gave it.
  static func prepare(cores: Int) {
    guard !state.pointee.isPrepared.exchange(true, ordering: .acquiringAndReleasing) else { return }
    var count = 1
    while count < cores * 2 && count < mostArenas { count *= 2 }
    if getenv("HUTCH_MALLOC") != nil || Mapping.page != HeapSpan.page { count = 0 }
    state.pointee.most.store(Int32(count), ordering: .relaxed)
    state.pointee.mask.store(min(count, 1) - 1, ordering: .relaxed)
  }

  /// At least `size` bytes, 16-byte aligned, not initialised; nil: there is no memory. `give` frees
  /// them. `seed`: of all numbers alike.
  @inline(__always)
  static func take(_ size: Int, seed: UInt64) -> UnsafeMutableRawPointer? {
    let mask = state.pointee.mask.load(ordering: .relaxed)
    if _slowPath(mask < 0) { return malloc(size) }
    if _slowPath(size > mostOfSmall) { return takeLarge(size) }
    return arena(1 &+ Int(truncatingIfNeeded: seed) & mask).take(max(2, units(size)))
  }

  @inline(__always)
  private static func units(_ size: Int) -> Int { (size &+ HeapSpan.header &+ 15) &>> 4 }

  @inline(never)
  private static func takeLarge(_ size: Int) -> UnsafeMutableRawPointer? {
    if size > largest { return takeAlone(size) }
    let before = state.pointee.large.load(ordering: .relaxed)
    state.pointee.large.store(max(size, before &- before / 16), ordering: .relaxed)
    return arena(0).take(units(size))
  }

  /// Zeroed cache lines of 64 bytes, aligned to 64 bytes; `give` frees them.
  @inline(never)
  static func takeLines(_ count: Int, seed: Int) throws(Failure) -> UnsafeMutableRawPointer {
    let mask = state.pointee.mask.load(ordering: .relaxed)
    if mask < 0 { return try Allocation.lines(count) }
    if count > largest / 64 {
      guard count < 1 << 48, let memory = takeAlone(count &* 64 &+ 48) else { throw .noMemory }
      return memory + 48
    }
    let arena = arena(count > mostOfSmall / 64 ? 0 : 1 &+ seed & mask)
    guard let lines = arena.take(count &* 4 &+ 1, slack: 3) else { throw .noMemory }
    memset(lines, 0, count &* 64)
    return lines
  }

  /// A seed of the key's, without its hash.
  @inline(__always)
  static func seed(_ key: Bytes) -> UInt64 {
    var sum = UInt64(truncatingIfNeeded: key.count)
    if let start = UnsafeRawPointer(key.baseAddress) {
      if key.count >= 8 {
        sum &+= Folding.word(start, 0) &+ 3 &* Folding.word(start, key.count &- 8)
      } else {
        for i in 0..<key.count { sum = sum &<< 8 | Folding.byte(start, i) }
      }
    }
    return (sum &* 0x9E37_79B9_7F4A_7C15) &>> 60
  }

  static func give(_ memory: UnsafeMutableRawPointer) {
    if _slowPath(state.pointee.mask.load(ordering: .relaxed) < 0) { return free(memory) }
    let span = HeapSpan(memory - HeapSpan.header)
    if _slowPath(span.units == 0) { return giveAlone(memory) }
    HeapArena(of: span).give(span)
  }

  /// Whether memory is in an evacuated window, or with `isLoose` may be beside holes. A walk over a
  /// table asks for each block, so the answer comes from the address: to read a header is a miss of
  /// the processor's cache.
  @inline(__always)
  static func mayMove(_ memory: UnsafeMutableRawPointer, isLoose: Bool) -> Bool {
    if state.pointee.mask.load(ordering: .relaxed) < 0 { return false }
    let span = HeapSpan(memory - HeapSpan.header)
    // A mapping of its own has no windows, and only memory near the start of a page may be one.
    if Int(bitPattern: memory) & (HeapSpan.page - 1) <= mostLead && span.units == 0 { return false }
    return span.isEvacuated || isLoose
  }

  /// A copy of memory that may move, in a better place; nil: it stays, or there is no memory. The
  /// caller, which alone knows of the memory, gives the original.
  @inline(never)
  static func moved(_ memory: UnsafeMutableRawPointer) -> UnsafeMutableRawPointer? {
    let span = HeapSpan(memory - HeapSpan.header)
    let arena = HeapArena(of: span)
    guard let units = span.isEvacuated ? span.units : arena.looseUnits(span),
      let new = arena.take(units)
    else { return nil }
    memcpy(new, memory, units &* HeapSpan.unit &- HeapSpan.header)
    if span.isEvacuated { arena.hasMoved = true }
    return new
  }

  /// A copy of lines elsewhere, if they are in an evacuated window; nil: they stay, or there is no
  /// memory. The caller gives the original.
  @inline(never)
  static func moved(
    _ lines: UnsafeMutableRawPointer, lines count: Int
  ) -> UnsafeMutableRawPointer? {
    let span = HeapSpan(lines - HeapSpan.header)
    guard mayMove(lines, isLoose: false),
      let new = HeapArena(of: span).take(count &* 4 &+ 1, slack: 3)
    else { return nil }
    memcpy(new, lines, count &* 64)
    return new
  }

  /// Has all arenas choose windows. False: the heap is not tight, or if there is a small memory
  /// tier has few holes: there is nothing to do. Else `endEvacuation` follows.
  static func startEvacuation() -> Bool {
    if state.pointee.mask.load(ordering: .relaxed) < 0 { return false }
    let excess = review()
    let isWanted = isTight || hasSmallTiers && excess > -room(sums.used) / 2
    if isWanted { evacuate(true) }
    return isWanted
  }

  /// A put evicts many entries: how many lines of a table it looks at after a few of them, to close
  /// the holes of those. Has the arenas choose windows, if they have none. `allowsFew`: holes of a
  /// 32nd of what is in use are left alone.
  @inline(never)
  static func linesToClose(most: Int, allowsFew: Bool) -> Int {
    let (used, room, excess) = self.excess
    var holes = hasModestTiers ? excess &+ room / 2 : excess
    if allowsFew { holes &-= used / 32 }
    if holes <= 0 { return 0 }
    if !isEvacuating {
      for index in 0..<arenaCount { arena(index).openEvacuation() }
    }
    return holes &* most / max(used, 1)
  }

  /// Gives back what the windows were.
  static func endEvacuation() {
    evacuate(false)
    trim()
  }

  /// Whether a walk over a table may find what moves. Relaxed: any answer is right.
  static var isEvacuating: Bool {
    for index in 0..<arenaCount where arena(index).evacuations > 0 { return true }
    return false
  }

  /// `HeapArena.evacuate` of all arenas.
  @inline(never)
  static func evacuate(_ isStart: Bool) {
    for index in 0..<arenaCount { arena(index).evacuate(isStart) }
  }

  // MARK: the system's memory

  /// Memory that is zero; nil: there is none. `alignedToItself`: to its size, a power of two.
  static func map(_ size: Int, alignedToItself: Bool = false) -> UnsafeMutableRawPointer? {
    let all = alignedToItself ? 2 * size : size
    let start = mmap(
      nil, all, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    guard let start, Int(bitPattern: start) != -1 else { return nil }
    if !alignedToItself { return start }
    let lead = (size - Int(bitPattern: start) & (size - 1)) & (size - 1)
    if lead > 0 { munmap(start, lead) }
    munmap(start + lead + size, size - lead)
    return start + lead
  }

  /// Zeroed cache lines, of which those that nothing touches take no memory. `unmap` with the same
  /// number frees them.
  static func mapLines(_ count: Int) throws(Failure) -> UnsafeMutableRawPointer {
    guard let memory = map(count * 64) else { throw .noMemory }
    return memory
  }

  static func unmap(_ memory: UnsafeMutableRawPointer, lines: Int) { munmap(memory, lines * 64) }

  /// Memory, or lines, in a mapping of its own begin at most so many bytes behind its start.
  private static let mostLead = 64

  /// The first 8 bytes are the size of the mapping; the header's units are 0. The memory begins in
  /// the mapping's first page.
  @inline(never)
  private static func takeAlone(_ size: Int) -> UnsafeMutableRawPointer? {
    let (room, overflow) = size.addingReportingOverflow(16 + HeapSpan.page - 1)
    if overflow { return nil }
    let all = room & ~(HeapSpan.page - 1)
    guard let start = map(all) else { return nil }
    start.storeBytes(of: all, as: Int.self)
    return start + 16
  }

  @inline(never)
  private static func giveAlone(_ memory: UnsafeMutableRawPointer) {
    let start = memory - Int(bitPattern: memory) & (HeapSpan.page - 1)
    munmap(start, start.load(as: Int.self))
  }

  // MARK: what the heap keeps

  private static var most: Int { Int(state.pointee.most.load(ordering: .relaxed)) }
  /// Of those that may have memory, the first included.
  private static var arenaCount: Int { max(1, most) &+ 1 }

  /// What the heap may keep beside the pages of large requests.
  private static func room(_ used: Int) -> Int {
    let inUse = state.pointee.mask.load(ordering: .relaxed) &+ 2
    let least = inUse &* leastOfArena
    return min(
      used / 64 &+ inUse &* min(mostOfArena, max(leastOfArena, used / 256)), max(least, used / 32))
  }

  /// A memory tier by its limit (`Budget`): less than 8 MB, less than 32 MB, or more.
  enum TierSize: Int8 { case large, modest, small }

  /// So many more tiers of a size are there.
  static func countTier(_ size: TierSize, _ more: Int32) {
    if size == .large { return }
    state.pointee.modestTiers.wrappingAdd(more, ordering: .relaxed)
    if size == .small { state.pointee.smallTiers.wrappingAdd(more, ordering: .relaxed) }
  }

  /// Sets the number of arenas that requests go to. When less is in use, it stays until a quarter
  /// would do.
  private static func chooseArenas(_ used: Int) {
    let count = state.pointee.mask.load(ordering: .relaxed) &+ 1
    if used > 2 &* count &* usedOfArena && count < most {
      state.pointee.mask.store(2 &* count &- 1, ordering: .relaxed)
    } else if used < count / 2 &* usedOfArena {
      state.pointee.mask.store(count / 2 &- 1, ordering: .relaxed)
    }
  }

  /// The bytes of spans in use, and of the pages in memory.
  static var sums: (used: Int, resident: Int) {
    var sums = (used: 0, resident: 0)
    for index in 0..<arenaCount {
      sums.used &+= arena(index).used
      sums.resident &+= arena(index).resident
    }
    return sums
  }

  /// Relaxed: any answer is right.
  static var hasSmallTiers: Bool {
    state.pointee.smallTiers.load(ordering: .relaxed) > 0
  }

  private static var hasModestTiers: Bool {
    state.pointee.modestTiers.load(ordering: .relaxed) > 0
  }

  /// The bytes of spans in use, how many bytes the heap may keep besides, and by how many bytes it
  /// has more in memory than both.
  @inline(never)
  static var excess: (used: Int, room: Int, excess: Int) {
    let (used, resident) = sums
    let ofLarge = 2 &* state.pointee.large.load(ordering: .relaxed)
    let roomOfLarge = min(ofLarge, max(hasModestTiers ? 0 : 1 << 20, used / 32))
    let room = room(used) &+ roomOfLarge
    return (used, room, resident &- used &- room)
  }

  /// The excess. Notes whether the heap is tight.
  static func review() -> Int {
    let (used, _, excess) = self.excess
    chooseArenas(used)
    // What the heap may keep is much for such tiers.
    let most = hasModestTiers ? room(used) / 2 : room(used)
    let isTight = 4 &* excess > (Heap.isTight ? 3 : 4) &* most
    // Each put reads it.
    if isTight != Heap.isTight { state.pointee.isTight.store(isTight, ordering: .relaxed) }
    return excess
  }

  /// A memory tier has gone: gives back what no request needs any more.
  @inline(never)
  static func trim() {
    if state.pointee.mask.load(ordering: .relaxed) < 0 { return }
    searchLock.withLock {
      for index in 0..<arenaCount { arena(index).trim() }
    }
  }

  /// Whether the heap keeps so much that it cannot give back that tiers may have to pay for it.
  @inline(__always)
  static var isTight: Bool { state.pointee.isTight.load(ordering: .relaxed) }

  // MARK: huge pages

  /// Less than what has a cache start its background work.
  private static let leastToCollapse = 8 << 20
  /// A heap that has grown by so much between two steps is left alone: a put that asks for pages
  /// would wait for each chunk that the system moves.
  private static let leastGrowth = 256 << 10
  /// Between two chunks. A thread that waits for the system to move a chunk is one call in more
  /// than ten thousand then, and 100 MB of blocks take little more than a second.
  private static let searchPause: Int64 = 25_000_000
  /// When all has been searched, or there was no memory for a huge page.
  private static let longPause: Int64 = 5_000_000_000
  /// So many chunks a step of the search looks at, some 3 microseconds each, under a lock.
  private static let looksOfStep = 16

  /// A step of the search for chunks that can become huge pages: at most one becomes one. It does
  /// nothing before the pause since the last step is over, whatever the number of callers. True:
  /// the next step is due in a moment. Takes the search's lock and an arena's.
  static func collapse() -> Bool {
    let mask = state.pointee.mask.load(ordering: .relaxed)
    let due = state.pointee.searchDue.load(ordering: .relaxed)
    let now = Clock.read(CLOCK_MONOTONIC)
    if now < due { return due &- now <= searchPause }
    let used = mask < 0 ? 0 : sums.used
    guard used >= leastToCollapse,
      state.pointee.searchDue.compareExchange(
        expected: due, desired: now &+ searchPause, ordering: .relaxed
      ).exchanged
    else { return false }
    let before = state.pointee.usedBefore.exchange(used, ordering: .relaxed)
    if used &- before > leastGrowth { return true }
    return searchLock.withLock { search(at: now) }
  }

  /// The step itself: the search goes on where it ended the last time. Returns what `collapse`
  /// returns.
  private static func search(at now: Int64) -> Bool {
    let from = state.pointee.searched.load(ordering: .relaxed)
    if from == 0 && !HeapRegion.areHugePagesAllowed { return rest(until: now &+ longPause) }
    var index = max(1, from >> 32)
    var number = from & 0xFFFF_FFFF
    var looks = looksOfStep
    while index < arenaCount {
      switch arena(index).collapse(from: &number, looks: &looks) {
      case .ended:
        index += 1
        number = 0
      case .collapsed, .pausing:
        state.pointee.searched.store(index << 32 | number, ordering: .relaxed)
        return true
      case .refused:
        // Any reason may pass: EINVAL is also that of a page which the system moves at this moment.
        state.pointee.searched.store(index << 32 | number, ordering: .relaxed)
        return rest(until: now &+ longPause)
      }
    }
    state.pointee.searched.store(0, ordering: .relaxed)
    // What has become whole meanwhile is found when one of the next searches comes round.
    return rest(until: now &+ longPause)
  }

  /// No step comes before that time.
  private static func rest(until due: Int64) -> Bool {
    state.pointee.searchDue.store(due, ordering: .relaxed)
    return false
  }

  // MARK: fork

  static func prepareFork() {
    searchLock.lock()
    for index in 0...mostArenas { arena(index).lockForFork() }
  }

  static func endFork(inChild: Bool) {
    for index in 0...mostArenas { arena(index).unlockAfterFork(inChild: inChild) }
    if inChild { searchLock.forgetWaiters() }
    searchLock.unlock()
  }

  /// The invariant that does not hold, or nil; for tests.
  static func violation() -> StaticString? {
    for index in 0...mostArenas {
      if let found = arena(index).violation() { return found }
    }
    return nil
  }
}
