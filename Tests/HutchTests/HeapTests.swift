import CSystem
import Testing

@testable import Hutch

/// Whether each byte is this one.
private func isAll(_ byte: UInt8, _ memory: UnsafeMutableRawPointer, _ count: Int) -> Bool {
  memory.load(as: UInt8.self) == byte && memcmp(memory, memory + 1, count - 1) == 0
}

/// Whether the system has MADV_POPULATE_WRITE.
private let canPopulate: Bool = {
  guard let page = Heap.map(4096) else { return false }
  defer { munmap(page, 4096) }
  return madvise(page, 4096, 23) == 0
}()

/// Whether the system makes huge pages for a program that asks (MADV_COLLAPSE).
private let canCollapse: Bool = {
  guard let chunk = Heap.map(HeapRegion.chunkSize, alignedToItself: true) else { return false }
  defer { munmap(chunk, HeapRegion.chunkSize) }
  memset(chunk, 1, HeapRegion.chunkSize)
  return madvise(chunk, HeapRegion.chunkSize, 25) == 0
}()

/// The heap of blocks: an arena of its own for each test, so that all its numbers are the test's.
@Suite struct HeapTests {
  /// An arena, and what a test has taken of it.
  final class Bench {
    let memory: UnsafeMutableRawPointer
    let arena: HeapArena
    /// Memory, its units, and the byte that each of its bytes has.
    var taken: [(memory: UnsafeMutableRawPointer, units: Int, filler: UInt8)] = []
    private var fillers: UInt8 = 0

    init() {
      memory = calloc(1, HeapArena.byteCount)!
      // Requests bring no review: it gives back and evacuates by what other tests have in the heap.
      memory.storeBytes(of: .max, toByteOffset: HeapArena.At.toReview, as: Int.self)
      arena = HeapArena(memory)
    }

    deinit {
      while !taken.isEmpty { give(taken.count - 1) }
      for region in regions { munmap(region, Heap.regionSize) }
      free(memory)
    }

    /// Those that the arena has now: where one was that it has given back, there may be another's.
    private var regions: [UnsafeMutableRawPointer] {
      var regions: [UnsafeMutableRawPointer] = []
      var next = arena.firstRegion.pointee
      while let region = next {
        regions.append(region)
        next = HeapRegion(region).next.pointee
      }
      return regions
    }

    func take(_ units: Int, slack: Int = 0) throws {
      let memory = try #require(arena.take(units, slack: slack))
      expect(Int(bitPattern: memory) % (slack == 0 ? 16 : 64) == 0)
      let units = HeapSpan(memory - 8).units
      fillers &+= 1
      memset(memory, Int32(fillers), units * 16 - 8)
      taken.append((memory, units, fillers))
    }

    func give(_ index: Int) {
      let piece = taken[index]
      expectWhole(piece)
      taken[index] = taken[taken.count - 1]
      taken.removeLast()
      arena.give(HeapSpan(piece.memory - 8))
    }

    func isEvacuated(_ index: Int) -> Bool { HeapSpan(taken[index].memory - 8).isEvacuated }

    func expectWhole(_ piece: (memory: UnsafeMutableRawPointer, units: Int, filler: UInt8)) {
      expect(
        isAll(piece.filler, piece.memory, piece.units * 16 - 8), "seed \(testSeed)")
    }

    /// The invariants, and the sums beside what was taken and what the system says.
    func check() {
      arena.giveBack(excess: 0)
      expect(arena.violation() == nil, "seed \(testSeed)")
      expect(arena.used == taken.reduce(0) { $0 + $1.units * 16 }, "seed \(testSeed)")
      expect(inMemory <= arena.resident, "seed \(testSeed)")
    }

    /// The bytes of the regions' pages that the system has in memory.
    var inMemory: Int {
      var sum = 0
      for region in regions {
        var pages = [UInt8](repeating: 0, count: Heap.regionSize / 4096)
        expect(mincore(region, Heap.regionSize, &pages) == 0)
        sum += pages.reduce(0) { $0 + Int($1 & 1) } * 4096
      }
      return sum
    }
  }

  /// Sizes in units, each power of two as likely as the others.
  private func size(_ random: inout Random, to most: Int) -> Int {
    let power = Int(random.next() % UInt64(most.trailingZeroBitCount))
    return 2 + (1 << power) + Int(random.next() % UInt64(1 << power))
  }

  /// Random requests and frees of all sizes that regions serve: each piece keeps its bytes, whatever
  /// is taken, freed and given back to the system around it.
  @Test func piecesKeepTheirBytes() throws {
    var random = Random(seed: testSeed)
    let bench = Bench()
    for round in 0..<6 {
      for _ in 0..<400 {
        if bench.taken.isEmpty || random.next() % 5 < 3 {
          let size = size(&random, to: round % 2 == 0 ? 1 << 7 : 1 << 14)
          try bench.take(size, slack: random.next() % 4 == 0 ? 3 : 0)
        } else {
          bench.give(Int(random.next() % UInt64(bench.taken.count)))
        }
        if random.next() % 50 == 0 { bench.arena.giveBack(excess: 1 << 20) }
      }
      bench.check()
      bench.taken.forEach(bench.expectWhole)
      while bench.taken.count > 100 {
        bench.give(Int(random.next() % UInt64(bench.taken.count)))
      }
      bench.check()
    }
  }

  /// When all is free, it is one span again, and its pages go back to the system.
  @Test func whatIsFreeGoesBack() throws {
    var random = Random(seed: testSeed)
    let bench = Bench()
    while bench.arena.used < 40 << 20 { try bench.take(size(&random, to: 1 << 14)) }
    bench.check()
    while !bench.taken.isEmpty { bench.give(Int(random.next() % UInt64(bench.taken.count))) }
    for _ in 0..<100 { bench.arena.giveBack(excess: .max) }
    // A request looks at the sums anew.
    for _ in 0..<2 { try bench.take(1 << 14) }
    for _ in 0..<2 { bench.give(0) }
    for _ in 0..<4 { bench.arena.giveBack(excess: .max) }
    bench.check()
    expect(bench.arena.used == 0)
    expect(bench.arena.resident <= 2 << 20)
  }

  /// Of a new region only what has been taken counts, at once: what seems to be in memory has puts
  /// evict.
  @Test func aNewRegionDoesNotCount() throws {
    let bench = Bench()
    try bench.take(16)
    expect(bench.arena.resident > 0 && bench.arena.resident <= 1 << 20)
    bench.check()
  }

  /// An arena that grows has the pages of its next requests in memory before they are written, and
  /// counts them. Also beside what is kept of the pages of an earlier growth.
  @Test(.enabled(if: canPopulate)) func pagesComeAhead() throws {
    let bench = Bench()
    for _ in 0..<2 {
      // A small arena asks for fewer.
      while bench.arena.used < 4 << 20 { try bench.take(300) }
      var come = 0
      for _ in 0..<20 {
        var before = bench.inMemory
        while bench.inMemory <= before { try bench.take(300) }
        before = bench.inMemory
        for _ in 0..<9 { try bench.take(300) }
        if bench.inMemory == before { come += 1 }
      }
      // A request with which the free span changes its bin has its own pages only.
      expect(come >= 19, "\(come) times")
      bench.check()
      while bench.taken.count > 1 { bench.give(1) }
      bench.arena.giveBack(excess: 1 << 20)
      bench.check()
    }
  }

  /// Chunks that are wholly in memory become huge pages, which changes neither what is in memory nor
  /// what lies there. They end when pages are given back.
  @Test(.enabled(if: canCollapse)) func wholeChunksBecomeHugePages() throws {
    let bench = Bench()
    while bench.arena.used < 39 << 20 { try bench.take(600) }
    let before = bench.inMemory
    // Of 32 MB and of 7.
    let first = collapse(bench)
    expect(
      first.made > 0 && first.made + first.refused == 16 + 3,
      "\(first.made) made, \(first.refused) refused")
    let second = collapse(bench)
    expect(
      second.made + second.refused == first.refused,
      "\(first.made) made, \(first.refused) refused; then \(second.made), \(second.refused)")
    expect(bench.inMemory == before)
    bench.check()
    bench.taken.forEach(bench.expectWhole)

    while bench.taken.count > 2000 { bench.give(0) }
    for _ in 0..<20 { bench.arena.giveBack(excess: .max) }
    expect(bench.inMemory < before - 18 << 20)
    bench.check()
    while bench.arena.used < 39 << 20 { try bench.take(600) }
    bench.check()
    let third = collapse(bench)
    expect(third.made > 0)
    bench.check()
    bench.taken.forEach(bench.expectWhole)
  }

  /// After a fork the regions that it shares get no more huge pages, and later ones do.
  @Test(.enabled(if: canCollapse)) func sharedPagesStayAsTheyAre() throws {
    let bench = Bench()
    while bench.arena.used < 10 << 20 { try bench.take(600) }
    let first = collapse(bench)
    expect(first.made > 0)
    while bench.arena.used < 25 << 20 { try bench.take(600) }
    bench.arena.keepPagesShared()
    let shared = collapse(bench)
    expect(shared.made + shared.refused == 0)
    while bench.taken.count > 2000 { bench.give(0) }
    for _ in 0..<20 { bench.arena.giveBack(excess: .max) }
    bench.check()
    while bench.arena.used < 40 << 20 { try bench.take(600) }
    let later = collapse(bench)
    expect(later.made + later.refused >= 3)
    bench.check()
    bench.taken.forEach(bench.expectWhole)
  }

  /// Searches all of an arena. Returns how many chunks have become huge pages, and how many the
  /// system has refused: the machine has no memory for one, or is busy.
  private func collapse(_ bench: Bench) -> (made: Int, refused: Int) {
    var number = 0
    var (made, refused) = (0, 0)
    while true {
      var looks = 3
      switch bench.arena.collapse(from: &number, looks: &looks) {
      case .collapsed: made += 1
      case .pausing: expect(looks == 0)
      case .ended:
        expect(looks >= 0)
        return (made, refused)
      case .refused: refused += 1
      }
    }
  }

  /// Pieces at random, of which half have gone: nearly all pages have some. Evacuations leave little
  /// between the pieces. A request gets no place there, also if the span that fits ends there.
  @Test func windowsAreEvacuated() throws {
    var random = Random(seed: testSeed)
    let bench = Bench()
    while bench.arena.used < 6 << 20 { try bench.take(size(&random, to: 1 << 7)) }
    while bench.arena.used > 3 << 20 {
      bench.give(Int(random.next() % UInt64(bench.taken.count)))
    }
    expect(bench.inMemory > bench.arena.used * 3 / 2, "seed \(testSeed)")
    var (moves, placesElsewhere) = (0, 0)
    for _ in 0..<10 {
      bench.arena.evacuate(true)
      let windows = bench.arena.evacuations
      expect(bench.arena.violation() == nil, "seed \(testSeed)")
      for index in (0..<bench.taken.count).reversed() where bench.isEvacuated(index) {
        let units = bench.taken[index].units
        try bench.take(units)
        if !bench.isEvacuated(bench.taken.count - 1) { placesElsewhere += 1 }
        bench.give(index)
        moves += 1
      }
      expect(bench.arena.evacuations <= windows / 8, "seed \(testSeed)")
      bench.arena.evacuate(false)
      bench.check()
    }
    for _ in 0..<20 { bench.arena.giveBack(excess: .max) }
    expect(moves > 0 && placesElsewhere >= moves / 256 * 255, "seed \(testSeed) \(placesElsewhere) of \(moves)")
    expect(bench.inMemory < bench.arena.used * 9 / 8, "seed \(testSeed)")
  }

  /// Windows whose pieces stay are ordinary ones after the evacuation, and requests get their holes.
  @Test func whatCannotMoveKeepsItsPlace() throws {
    let bench = Bench()
    // 128 pieces a window: one of eight stays in the first half of the windows, seven in the other.
    for _ in 0..<6_000 { try bench.take(32) }
    for index in (0..<6_000).reversed() where (index % 8 == 0) == (index >= 3_000) {
      bench.give(index)
    }
    bench.arena.evacuate(true)
    expect(bench.arena.evacuations > 10)
    let windows = bench.arena.evacuations
    // There is room for so many in the other windows.
    for _ in 0..<300 { try bench.take(32) }
    bench.check()
    bench.arena.evacuate(false)
    expect(windows > 10 && bench.arena.evacuations == 0 && !bench.arena.hasHidden)
    bench.check()
    let before = bench.arena.resident
    for _ in 0..<2_500 { try bench.take(32) }
    bench.check()
    expect(bench.arena.resident == before)
  }

  /// A piece has a better place between others if it leaves a larger hole than it takes.
  @Test func aPieceBetweenHolesHasABetterPlace() throws {
    let bench = Bench()
    // Each lies before the one that was taken before it.
    for units in [20, 10, 12, 10, 20, 12, 20] { try bench.take(units) }
    for index in [5, 3, 1] { bench.give(index) }
    let units = bench.taken.map { bench.arena.looseUnits(HeapSpan($0.memory - 8)) }
    expect(bench.taken.map { $0.units } == [20, 20, 12, 20])
    expect(units == [nil, nil, 12, nil])
    try bench.take(12)
    expect(bench.arena.looseUnits(HeapSpan(bench.taken[2].memory - 8)) == nil)
    bench.check()
  }

  /// Among sizes that come and go alike, little is between the pieces.
  @Test func littleIsLost() throws {
    var random = Random(seed: testSeed)
    let bench = Bench()
    for _ in 0..<20_000 {
      try bench.take(size(&random, to: 1 << 10))
      while bench.arena.used > 6 << 20 {
        bench.give(Int(random.next() % UInt64(bench.taken.count)))
      }
    }
    for _ in 0..<20 { bench.arena.giveBack(excess: .max) }
    try bench.take(1 << 13)
    bench.check()
    expect(bench.arena.resident < bench.arena.used * 6 / 5, "seed \(testSeed)")
  }

  /// What one thread takes another one frees, of the process's heap.
  @Test func threadsExchangePieces() throws {
    final class Places: @unchecked Sendable {
      let lock = Lock()
      var pieces: [(UnsafeMutableRawPointer, Int, UInt8)] = []
    }
    let places = Places()
    onThreads(4) { number in
      var random = Random(seed: testSeed &+ UInt64(number))
      for _ in 0..<3000 {
        let size = 1 + Int(random.next() % (random.next() % 20 == 0 ? 9 << 20 : 2000))
        guard let memory = Heap.take(size, seed: random.next()) else { return }
        let filler = UInt8(truncatingIfNeeded: random.next())
        let length = min(size, 3000)
        memset(memory, Int32(filler), length)
        let other = places.lock.withLock { () -> (UnsafeMutableRawPointer, Int, UInt8)? in
          places.pieces.append((memory, length, filler))
          guard places.pieces.count > 60 else { return nil }
          let index = Int(random.next() % UInt64(places.pieces.count))
          return places.pieces.remove(at: index)
        }
        if let (memory, length, filler) = other {
          expect(isAll(filler, memory, length), "seed \(testSeed)")
          Heap.give(memory)
        }
      }
    }
    for (memory, _, _) in places.pieces { Heap.give(memory) }
    expect(Heap.violation() == nil)
  }

  @Test func linesOfAnySizeCanBeGiven() throws {
    Heap.prepare(cores: 2)
    // The last ones are mapped by themselves.
    for count in [1, 5, 1000, 65536, 65537, 100_000] {
      let lines = try Heap.takeLines(count, seed: count)
      expect(Int(bitPattern: lines) % 64 == 0)
      expect(isAll(0, lines, count * 64))
      memset(lines, 7, count * 64)
      Heap.give(lines)
    }
    expect((try? Heap.takeLines(1 << 60, seed: 0)) == nil)
  }

  @Test func aRequestForTooMuchFails() {
    expect(Heap.take(.max, seed: 0) == nil)
    expect(Heap.take(1 << 60, seed: 0) == nil)
  }
}
