import Foundation
import Synchronization
import Testing

@testable import Hutch

/// The composed cache on a store that is not the disk tier (HeapStore): what it does, it does by
/// the protocol.
@Suite struct StorageSeamTests {
  /// A cache on such a store, and what a test does with it. Nothing happens in the background.
  private final class Fixture: OpenCache, @unchecked Sendable {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    let medium = HeapStore.Medium()
    let time = TestTime()
    var options = OpenOptions()
    private(set) var opening: Opening!

    /// `counters`: other processes may have the store.
    init(
      counters: CoherenceCounters? = nil, _ change: (inout OpenOptions) -> Void = { _ in }
    ) throws {
      medium.counters = counters
      options.disk.limits = TierLimits()
      options.tasks.workers = 0
      change(&options)
      opening = try open().opening
    }

    deinit {
      if opening != nil { _ = opening.close() }
      try? FileManager.default.removeItem(atPath: path)
    }

    func open() throws -> (opening: Opening, differs: Bool) {
      try Opening.onDirectory(path, options, clock: time.clock(), by: HeapStore.opener(on: medium))
    }

    func reopen() throws {
      expect(opening.close() == nil)
      opening = nil
      opening = try open().opening
    }

    /// What the store has committed.
    var stored: Set<String> {
      Set(medium.rows.keys.map { String(decoding: $0, as: UTF8.self) })
    }
  }

  private static let second: Int64 = 1_000_000_000

  /// Another process writes a key twice while the removal is under way. The event of the third try
  /// comes behind that of the other key, which is in the same lane and not yet told.
  @Test func aRemovalByTagIsTriedAgainWithAListener() throws {
    let members = 64
    let memory = try Allocation.array(UInt8.self, CoherenceCounters.byteCount + members)
    let counters = UnsafeMutableRawPointer(memory)
    defer { free(memory) }
    let fixture = try Fixture(
      counters: CoherenceCounters(counters + members, members: counters))
    let cache = fixture.cache
    let told = Mutex<[String]>([])
    cache.listen(
      Listener(
        kinds: Event.Kind.didRemove.rawValue,
        call: { event in
          let key = String(decoding: event.entry!.key, as: UTF8.self)
          told.withLock { $0.append(key) }
        }, release: {}))
    func stripe(_ key: String) -> Int {
      withBytes(key) { Stripes.index(of: cache.memory.hash($0)) }
    }
    let other = (0...).lazy.map { "b\($0)" }.first { stripe($0) == stripe("a") }!
    try withBytes("tag") { tag in
      var spec = Cache.PutSpec()
      spec.extended = Extended(Bytes(start: nil, count: 0), tag: tag)
      for key in ["a", other] { expect(try fixture.put(key, key, spec).status == .done) }
      var tries = 0
      (cache.storage as! HeapStore).holds = { key in
        if key.count > 1 { return true }
        tries += 1
        return tries > 2
      }
      var removed: UInt64 = 0
      try cache.remove(tagged: tag, through: Handle(fixture.opening, .whole), removed: &removed)
      expect(removed == 2 && tries == 3)
    }
    expect(told.withLock { $0.sorted() } == ["a", other])
  }

  /// By what the protocol has for a store that knows no more than keys and entries.
  @Test func tagsAreRemovedFromAnyStore() throws {
    let fixture = try Fixture()
    try withBytes("red") { red in
      try withBytes("blue") { blue in
        for i in 0..<600 {
          var spec = Cache.PutSpec()
          if i % 3 != 0 {
            spec.extended = Extended(Bytes(start: nil, count: 0), tag: i % 3 == 1 ? red : blue)
          }
          let scope: Tiers = i % 2 == 0 ? .whole : .disk
          expect(try fixture.put("key\(i)", "value", spec, in: scope).status == .done)
        }
        fixture.emptyMemory()
        for i in 0..<100 { expect(try fixture.get("key\(i)") == "value") }
        let handle = Handle(fixture.opening, .whole)
        var removed: UInt64 = 0
        try fixture.cache.remove(tagged: red, through: handle, removed: &removed)
        expect(removed == 200)
        expect(try fixture.cache.count(in: .whole) == 400)
        for i in 0..<600 {
          let expected = i % 3 == 1 ? nil : "value"
          expect(try fixture.get("key\(i)") == expected)
        }
        removed = 0
        try fixture.cache.remove(tagged: blue, through: handle, removed: &removed)
        expect(removed == 200 && fixture.stored.count == 200)
      }
    }
  }

  @Test func anEntryGoesDownAndComesUpWhole() throws {
    let fixture = try Fixture()
    var spec = Cache.PutSpec()
    spec.timeToLive = 60 * Self.second
    spec.timeToIdle = 30 * Self.second
    spec.cost = 7
    let put = try withBytes("more") { more in
      spec.extended = Extended(more)
      return try fixture.put("key", "value", spec)
    }
    expect(put.status == .done && put.memory == .stored && put.disk == .stored)
    let before = try #require(try fixture.info("key"))
    expect(before.tier == .memory && before.record.version == put.version)
    fixture.emptyMemory()
    expect(try fixture.cache.count(in: .memory) == 0 && fixture.cache.count(in: .whole) == 1)
    expect(try fixture.info("key")?.tier == .disk)

    expect(try fixture.get("key") == "value")
    expect(try fixture.cache.count(in: .memory) == 1, "it is promoted")
    let after = try #require(try fixture.info("key"))
    expect(after.tier == .memory && after.record.version == put.version)
    expect(after.record.expires == before.record.expires && after.record.cost == 7)
    expect(after.record.timeToIdle == 30 * Self.second && after.record.extendedSize == 4)
    expect(after.record.checksum == before.record.checksum && after.record.checksum != 0)
    expect(try fixture.cache.storeStats(in: .disk).hits == 1)
  }

  @Test func writesOfEveryKind() throws {
    let fixture = try Fixture()
    let first = try fixture.put("a", "1", if: .absent)
    expect(first.status == .done)
    for isUp in [false, true] {
      if isUp { fixture.emptyMemory() }
      expect(try fixture.put("a", "2", if: .absent).status == .exists)
      expect(try fixture.put("b", "2", if: .present).status == .notFound)
      expect(try fixture.put("a", "2", if: .version(first.version + 1)).status == .conflict)
    }
    expect(try fixture.put("a", "3", if: .version(first.version)).status == .done)
    expect(try fixture.get("a", in: .disk) == "3")

    var sum: Int64 = 0
    for _ in 0..<3 {
      fixture.emptyMemory()
      _ = try withBytes("n") { (key) throws(Failure) in
        try fixture.cache.increment(
          key, by: 5, initial: 1, Cache.PutSpec(), in: .whole, sum: &sum)
      }
    }
    expect(sum == 16)

    fixture.emptyMemory()
    fixture.time.advance(seconds: 5)
    let touched = try withBytes("a") { (key) throws(Failure) in
      try fixture.cache.touch(key, timeToLive: 9 * Self.second, timeToIdle: 0, in: .whole)
    }
    expect(touched)
    let now = fixture.cache.clock.now
    expect(try fixture.info("a")?.record.expires == now + 9 * Self.second)
    let popped = try withBytes("a") { (key) throws(Failure) in
      fixture.text(try fixture.cache.pop(key, in: .whole))
    }
    expect(popped == "3")
    expect(try fixture.get("a") == nil && fixture.stored == ["n"])
    expect(try !fixture.remove("a") && fixture.remove("n"))
    expect(try fixture.cache.count(in: .whole) == 0)

    // What a view puts is in its tier alone.
    try fixture.put("m", "1")
    try fixture.put("m", "2", in: .disk)
    expect(try fixture.cache.count(in: .memory) == 0)
    var spec = Cache.PutSpec()
    spec.writePolicy = .memory
    expect(try fixture.put("m", "3", spec).disk == .removed)
    expect(fixture.stored.isEmpty)
    expect(try fixture.get("m") == "3")
  }

  @Test func manyAtOnce() throws {
    let fixture = try Fixture()
    var texts: [String] = []
    for i in 0..<300 { texts.append("key-\(i)") }
    let room = texts.map { Array($0.utf8) }
    var pointers: [UnsafeRawPointer?] = []
    for bytes in room {
      let copy = UnsafeMutableRawPointer.allocate(byteCount: bytes.count, alignment: 1)
      copy.copyMemory(from: bytes, byteCount: bytes.count)
      pointers.append(copy)
    }
    defer { for pointer in pointers { pointer?.deallocate() } }
    let sizes = room.map(\.count)
    try pointers.withUnsafeBufferPointer { pointers in
      try sizes.withUnsafeBufferPointer { sizes in
        let keys = ManyBytes(
          pointers: pointers.baseAddress, sizes: sizes.baseAddress, count: texts.count)
        let puts = try fixture.cache.put(keys, keys, Cache.PutSpec(), in: .whole)
        expect(puts.items.elements.allSatisfy { $0.status == Status.done.code })
        for i in 0..<100 { expect(try fixture.remove(texts[i])) }
        fixture.emptyMemory()
        let gets = try fixture.cache.get(keys, in: .whole)
        for i in 0..<300 {
          let value = gets.items[i].value.map { Array(UnownedBlock($0).value) }
          expect(value == (i < 100 ? nil : room[i]))
        }
      }
    }
    expect(try fixture.cache.count(in: .memory) == 200)
  }

  @Test func whatTheStoreEvictsMemoryHasAlone() throws {
    let fixture = try Fixture { $0.disk.limits.count = 10 }
    let evicted = Atomic<Int>(0)
    let kinds = Event.Kind.didRemove.rawValue
    fixture.cache.listen(
      Listener(
        kinds: kinds,
        call: { event in
          expect(event.cause == .evicted && event.tiers == .disk)
          evicted.wrappingAdd(1, ordering: .relaxed)
        }, release: {}))
    for i in 0..<30 {
      try fixture.put("k\(i)", "v\(i)")
      fixture.time.advance(seconds: 1)
    }
    expect(evicted.load(ordering: .relaxed) == 20)
    expect(fixture.stored == Set((20..<30).map { "k\($0)" }))
    expect(try fixture.cache.count(in: .whole) == 30 && fixture.cache.count(in: .disk) == 10)
    expect(Set(try fixture.keys(.whole)).count == 30)
    fixture.cache.listen(nil)
    fixture.emptyMemory()
    expect(try fixture.cache.count(in: .whole) == 10)

    // A read keeps an entry there, whichever tier answers it.
    expect(try fixture.get("k20") == "v20")
    fixture.time.advance(seconds: 1)
    expect(try fixture.get("k20") == "v20")
    fixture.emptyMemory()
    try fixture.put("new", "1")
    expect(fixture.stored.contains("k20") && !fixture.stored.contains("k21"))
    try fixture.cache.setLimits(
      memory: fixture.options.memory, .all, disk: TierLimits(cost: 1000, maxEntry: 200), .all,
      in: .whole)
    expect(try fixture.put("large", String(repeating: "x", count: 300)).status == .partial)
    expect(!fixture.stored.contains("large"))
  }

  @Test func trims() throws {
    let fixture = try Fixture()
    func fill() throws {
      try fixture.cache.clear(in: .whole)
      for i in 0..<20 {
        try fixture.put("k\(i)", String(repeating: "x", count: 10 + i))
        fixture.time.advance(seconds: 1)
      }
    }
    let now = { fixture.cache.clock.now }
    func expectStored(_ numbers: Range<Int>) {
      expect(fixture.stored == Set(numbers.map { "k\($0)" }))
    }
    try fill()
    expect(try fixture.trim(.toCount, amount: 15) == 5)
    expectStored(5..<20)
    expect(try fixture.trim(.olderThan, time: 10 * Self.second) == 5)
    expectStored(10..<20)
    expect(try fixture.trim(.largerThan, amount: 26) == 3)
    expectStored(10..<17)
    expect(try fixture.trim(.writtenBefore, time: now() - 8 * Self.second) == 2)
    expectStored(12..<17)
    for i in 12..<14 { expect(try fixture.get("k\(i)", in: .disk) != nil) }
    expect(try fixture.trim(.idleFor, time: Self.second) == 3)
    expectStored(12..<14)
    expect(try fixture.cache.count(in: .whole) == 20, "memory has them all")

    try fill()
    expect(try fixture.trim(.largestFirst, amount: fixture.medium.cost - 100) == 2)
    expectStored(0..<18)
    expect(try fixture.get("k0", in: .disk) != nil)
    expect(try fixture.trim(.leastFrequent, amount: 100) == 17)
    expectStored(0..<1)
    expect(try fixture.trim(.expired) == 0)
    var removed: UInt64 = 0
    try fill()
    try fixture.cache.trim(TrimSpec(kind: .toCount, amount: 0), in: .whole, removed: &removed) {
      done, _ in done < 30
    }
    expect(try removed == 30 && fixture.cache.count(in: .whole) == 10)
  }

  @Test func walks() throws {
    let fixture = try Fixture()
    for i in 0..<300 {
      try fixture.put("k\(i)", "v")
      fixture.time.advance(seconds: 1)
    }
    fixture.emptyMemory()
    for i in 0..<300 where i % 3 == 0 { expect(try fixture.get("k\(i)") != nil) }
    var spec = Cache.PutSpec()
    spec.writePolicy = .memory
    for i in 300..<310 { try fixture.put("k\(i)", "v", spec) }
    let all = (0..<310).map { "k\($0)" }
    let found = try fixture.keys(.whole)
    expect(found.count == 310 && Set(found) == Set(all))
    expect(try fixture.keys(.disk, .insertion) == Array(all[0..<300]))
    expect(try fixture.keys(.disk, .insertion, descending: true) == all[0..<300].reversed())
    expect(try fixture.keys(.whole, .insertion) == all)
    let byAccess = try fixture.keys(.disk, .access, descending: true)
    expect(byAccess.count == 300)
    expect(Set(byAccess[0..<100]) == Set((0..<100).map { "k\($0 * 3)" }))
  }

  /// Of the store each page of the walk reads its own part, and not everything.
  @Test(arguments: [Tiers.disk, .whole])
  func aWalkReadsEachPartOfAStoreAFewTimesAtMost(_ scope: Tiers) throws {
    let fixture = try Fixture()
    let store = fixture.cache.storage as! HeapStore
    store.isOrdered = false
    let all = (0..<400).map { "k\($0)" }
    for key in all { expect(try fixture.put(key, "v", in: .disk).status == .done) }
    for key in all[..<20] { expect(try fixture.get(key) == "v") }
    let walk = WholeWalk(Handle(fixture.opening, scope))
    var found: [String] = []
    while let key = try walk.next() {
      found.append(String(decoding: key, as: UTF8.self))
      walk.room = 32
    }
    expect(found.count == 400 && Set(found) == Set(all))
    expect(store.shown <= 4 * 400)
  }

  @Test func whatMemoryGivesUpIsWrittenThen() throws {
    let fixture = try Fixture {
      $0.writePolicy = .onEviction
      $0.memory.count = 10
    }
    for i in 0..<100 {
      expect(try fixture.put("k\(i)", "v\(i)").disk == .deferred)
      for j in 0...i where (i - j) % 7 == 0 { expect(try fixture.get("k\(j)") == "v\(j)") }
    }
    expect(fixture.stored.count < 100)
    expect(try fixture.remove("k5"))
    try fixture.put("k6", "new")
    try fixture.cache.flush()
    expect(fixture.stored == Set((0..<100).filter { $0 != 5 }.map { "k\($0)" }))
    expect(try fixture.cache.count(in: .whole) == 99)
    for i in 0..<50 { try fixture.put("k\(i)", "again") }
    try fixture.reopen()
    for i in 0..<100 { expect(try fixture.get("k\(i)") == (i < 50 ? "again" : "v\(i)")) }
    for i in 0..<50 { try fixture.put("k\(i)", "gone") }
    try fixture.cache.clear(in: .whole)
    expect(try fixture.cache.count(in: .whole) == 0 && fixture.stored.isEmpty)
  }

  @Test func agesAreKept() throws {
    let fixture = try Fixture { $0.disk.limits.ages = Ages(timeToLive: 0, timeToIdle: 10 * Self.second) }
    for i in 0..<40 { try fixture.put("k\(i)", "v") }
    for _ in 0..<4 {
      fixture.time.advance(seconds: 4)
      expect(try fixture.get("k7") == "v")
    }
    while fixture.cache.maintain() {}
    expect(fixture.stored == ["k7"], "memory has read it")
    fixture.time.advance(seconds: 11)
    fixture.emptyMemory()
    expect(try fixture.get("k7") == nil)
    while fixture.cache.maintain() {}
    expect(try fixture.stored.isEmpty && fixture.cache.storeStats(in: .disk).expirations == 40)
  }

  @Test func damageCostsItsEntry() throws {
    let fixture = try Fixture()
    for i in 0..<10 { try fixture.put("k\(i)", "value") }
    fixture.emptyMemory()
    for i in 0..<3 { fixture.medium.rows[Array("k\(i)".utf8)]!.value[0] ^= 1 }
    expect(try fixture.get("k0") == nil)
    expect(fixture.stored.count == 9, "the call that found it has removed it")
    expect(try fixture.put("k1", "new").status == .done)
    let report = try fixture.cache.check(isQuick: false, in: .whole)
    expect(report.damaged == 1 && report.entries == 8 && report.counters == 0)
    fixture.medium.cost += 1
    expect(try fixture.cache.check(isQuick: true, in: .whole).counters == 1)
    expect(try fixture.cache.storeStats(in: .disk).damaged == 2)
    expect(try fixture.get("k1") == "new")
  }

  @Test func openedAgain() throws {
    let fixture = try Fixture()
    let version = try fixture.put("a", "1").version
    // Two openings of one directory are one cache.
    let second = try fixture.open()
    expect(second.opening.cache === fixture.cache)
    expect(second.opening.close() == nil)
    fixture.options.disk.limits.count = 5
    expect(try fixture.open().opening.close() == nil)
    expect(fixture.cache.apply(fixture.options))
    expect(fixture.cache.limits().disk.count == 0)

    try fixture.reopen()
    expect(fixture.cache.limits().disk.count == 5)
    expect(try fixture.get("a") == "1")
    let next = try fixture.put("a", "2").version
    expect(next > version && next < version + 100)
    // What a kill leaves.
    expect(HeapStore(fixture.options.disk, on: fixture.medium).firstVersion > next)
  }

  @Test func itHasNoFiles() throws {
    let fixture = try Fixture()
    let source = fixture.path + "/source"
    try Data("from a file".utf8).write(to: URL(filePath: source))
    let put = try withBytes("a") { (key) throws(Failure) in
      try fixture.cache.putFile(key, source, .move, Cache.PutSpec(), in: .whole)
    }
    expect(put.disk == .stored && !FileManager.default.fileExists(atPath: source))
    let writer = try withBytes("b") { (key) throws(Failure) in
      try Writer.begin(Handle(fixture.opening, .whole), key, expected: 0, Cache.PutSpec())
    }
    for _ in 0..<3 {
      try withBytes(String(repeating: "p", count: 50_000)) { (piece) throws(Failure) in
        try writer.append(piece)
      }
    }
    expect(try writer.commit().status == .done)
    fixture.emptyMemory()
    expect(try fixture.get("a") == "from a file" && fixture.get("b")?.count == 150_000)
    try withBytes("a") { key in
      #expect(throws: Failure.self) { try fixture.cache.path(of: key, in: .whole) { _ in } }
      let number = try #require(try fixture.cache.descriptor(of: key, in: .disk))
      expect(Files.status(of: number)?.size == 11)
      _ = Descriptor(owning: number)
    }
    try fixture.cache.holdFiles()
    fixture.cache.releaseFiles()
  }

  @Test(arguments: [WritePolicy.through, .onEviction])
  func nothingIsLost(_ policy: WritePolicy) throws {
    let fixture = try Fixture {
      $0.writePolicy = policy
      $0.memory.count = 50
    }
    let seed = testSeed
    let expected = fixture.threadsFindWhatTheyPut(seed)
    expect(Set(try fixture.keys(.whole)) == expected, "seed \(seed)")
    try fixture.cache.flush()
    expect(fixture.stored == expected, "seed \(seed)")
  }
}
