import Foundation
import Synchronization
import Testing

@testable import Hutch

/// The composed cache on the log store, by the protocol, and what is the log store's own.
@Suite struct LogStorageTests {
  /// A cache on such a store. Nothing happens in the background.
  private final class Fixture: OpenCache, @unchecked Sendable {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    let time = TestTime()
    var options = OpenOptions()
    private(set) var opening: Opening!
    var storage: LogStorage { opening.cache.storage as! LogStorage }

    init(_ change: (inout OpenOptions) -> Void = { _ in }) throws {
      options.disk.kind = .log
      options.disk.limits = TierLimits()
      options.disk.chosen = []
      options.tasks.workers = 0
      change(&options)
      opening = try open()
    }

    deinit {
      if opening != nil { _ = opening.close() }
      try? FileManager.default.removeItem(atPath: path)
    }

    func open() throws -> Opening {
      try Opening.onDirectory(
        path, options, clock: time.clock(),
        by: { directory, options, clock throws(Failure) in
          try LogStorage.open(directory: directory, options: options, clock: clock)
        }
      ).opening
    }

    func reopen() throws {
      expect(opening.close() == nil)
      let index = try Data(contentsOf: URL(fileURLWithPath: path + "/hutch-index"))
      expect(index[IndexAt.clean] == 1, "the end is clean")
      opening = nil
      opening = try open()
    }

    var stored: Set<String> { Set(try! keys(.disk)) }
  }

  private static let second: Int64 = 1_000_000_000

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
    fixture.emptyMemory()
    expect(try fixture.cache.count(in: .memory) == 0 && fixture.cache.count(in: .whole) == 1)
    expect(try fixture.info("key")?.tier == .disk)
    expect(try fixture.get("key") == "value")
    expect(try fixture.cache.count(in: .memory) == 1, "it is promoted")
    let after = try #require(try fixture.info("key"))
    expect(after.tier == .memory && after.record.version == put.version)
    expect(after.record.expires == before.record.expires && after.record.cost == 7)
    expect(after.record.timeToIdle == 30 * Self.second && after.record.extendedSize == 4)
    expect(fixture.cache.storage!.stats.hits == 1)
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
    expect(try fixture.get("a", in: .disk) == "3" && fixture.get("a") == "3")
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
    expect(try fixture.info("a")?.record.expires == fixture.cache.clock.now + 9 * Self.second)
    expect(try fixture.remove("a") && !fixture.remove("a") && fixture.remove("n"))
    expect(try fixture.cache.count(in: .whole) == 0)
    var spec = Cache.PutSpec()
    try fixture.put("m", "1")
    spec.writePolicy = .memory
    expect(try fixture.put("m", "3", spec).disk == .removed)
    expect(try fixture.get("m") == "3" && fixture.stored.isEmpty)
    try fixture.put("x", "1")
    try fixture.cache.clear(in: .whole)
    expect(try fixture.cache.count(in: .whole) == 0)
    expect(try fixture.get("x") == nil && fixture.stored.isEmpty)
  }

  @Test func whatTheStoreEvictsMemoryHasAlone() throws {
    let fixture = try Fixture { $0.disk.limits.count = 10 }
    let evicted = Atomic<Int>(0)
    fixture.cache.listen(
      Listener(
        kinds: Event.Kind.didRemove.rawValue,
        call: { event in
          expect(event.cause == .evicted && event.tiers == .disk)
          evicted.wrappingAdd(1, ordering: .relaxed)
        }, release: {}))
    for i in 0..<30 { try fixture.put("k\(i)", "v\(i)") }
    expect(evicted.load(ordering: .relaxed) == 20)
    expect(fixture.stored == Set((20..<30).map { "k\($0)" }), "the oldest went")
    expect(try fixture.cache.count(in: .whole) == 30 && fixture.cache.count(in: .disk) == 10)
    expect(Set(try fixture.keys(.whole)).count == 30)
    fixture.cache.listen(nil)
    fixture.emptyMemory()
    expect(try fixture.cache.count(in: .whole) == 10)
    // What was read twice is appended once more.
    for _ in 0..<2 {
      expect(try fixture.get("k20") == "v20")
      fixture.emptyMemory()
    }
    for i in 30..<36 { try fixture.put("k\(i)", "v\(i)") }
    expect(fixture.stored.contains("k20"))
    try fixture.cache.setLimits(
      memory: fixture.options.memory, .all, disk: TierLimits(cost: 100_000, maxEntry: 1000), .all,
      in: .whole)
    expect(try fixture.put("large", String(repeating: "x", count: 3000)).status == .partial)
    expect(!fixture.stored.contains("large"))
  }

  @Test func trims() throws {
    let fixture = try Fixture()
    func fill() throws {
      try fixture.cache.clear(in: .whole)
      for i in 0..<20 {
        try fixture.put("k\(i)", String(repeating: "x", count: 10 + 16 * i))
        fixture.time.advance(seconds: 2)
      }
    }
    let now = { fixture.cache.clock.now }
    func expectStored(_ numbers: Range<Int>) {
      expect(fixture.stored == Set(numbers.map { "k\($0)" }))
    }
    try fill()
    expect(try fixture.trim(.toCount, amount: 15) == 5)
    expectStored(5..<20)
    expect(try fixture.trim(.olderThan, time: 20 * Self.second) == 5)
    expectStored(10..<20)
    expect(try fixture.trim(.largerThan, amount: 10 + 16 * 16) == 3)
    expectStored(10..<17)
    expect(try fixture.trim(.writtenBefore, time: now() - 16 * Self.second) == 2)
    expectStored(12..<17)
    for i in 12..<14 { expect(try fixture.get("k\(i)", in: .disk) != nil) }
    expect(try fixture.trim(.idleFor, time: 2 * Self.second) == 3)
    expectStored(12..<14)
    expect(try fixture.cache.count(in: .whole) == 20, "memory has them all")

    try fill()
    let cost = fixture.cache.storage!.stats.cost
    expect(try fixture.trim(.largestFirst, amount: cost - 600) == 2)
    expectStored(0..<18)
    expect(try fixture.get("k0", in: .disk) != nil)
    expect(try fixture.trim(.leastRecent, amount: 100) == 17)
    expectStored(0..<1)
    expect(try fixture.trim(.expired) == 0)
    try fill()
    expect(try fixture.trim(.toCost, amount: 0) == 20)
    expect(fixture.cache.storage!.stats.cost == 0)
  }

  @Test func walks() throws {
    let fixture = try Fixture()
    for i in 0..<3000 { try fixture.put("k\(i)", "v") }
    fixture.time.advance(seconds: 2)
    fixture.emptyMemory()
    for i in 0..<3000 where i % 3 == 0 { expect(try fixture.get("k\(i)") != nil) }
    var spec = Cache.PutSpec()
    spec.writePolicy = .memory
    for i in 3000..<3010 { try fixture.put("k\(i)", "v", spec) }
    let all = (0..<3010).map { "k\($0)" }
    expect(try fixture.keys(.whole).sorted() == all.sorted(), "each once, in no order")
    expect(try fixture.keys(.disk).sorted() == all[0..<3000].sorted())
    expect(try fixture.keys(.disk, .insertion) == Array(all[0..<3000]))
    expect(try fixture.keys(.disk, .insertion, descending: true) == all[0..<3000].reversed())
    expect(try fixture.keys(.whole, .insertion) == all)
    let byAccess = try fixture.keys(.disk, .access, descending: true)
    expect(Set(byAccess[0..<1000]) == Set((0..<1000).map { "k\($0 * 3)" }))
  }

  @Test func agesAreKept() throws {
    let fixture = try Fixture {
      $0.disk.limits.ages = Ages(timeToLive: 0, timeToIdle: 10 * Self.second)
    }
    for i in 0..<40 { try fixture.put("k\(i)", "v") }
    for _ in 0..<4 {
      fixture.time.advance(seconds: 4)
      expect(try fixture.get("k7") == "v")
    }
    while fixture.cache.maintain() {}
    expect(try fixture.cache.count(in: .disk) == 1, "memory has read it")
    expect(fixture.stored == ["k7"])
    fixture.time.advance(seconds: 11)
    fixture.emptyMemory()
    expect(try fixture.get("k7") == nil)
    while fixture.cache.maintain() {}
    expect(fixture.storage.stats.count == 0 && fixture.storage.stats.expirations == 40)
  }

  @Test func damageCostsItsEntry() throws {
    let fixture = try Fixture()
    for i in 0..<10 { try fixture.put("k\(i)", "value-\(i)-value") }
    fixture.emptyMemory()
    func damage(_ text: String) throws {
      let name = fixture.path + "/hutch-log"
      let bytes = try Data(contentsOf: URL(fileURLWithPath: name))
      let place = try #require(bytes.range(of: Data(text.utf8))).lowerBound
      let file = Descriptor(owning: try #require(Files.open(name, O_RDWR)))
      expect(withUnsafeBytes(of: UInt8(33)) { Files.write($0, to: file.number, at: place) })
    }
    try damage("value-0-value")
    try damage("value-1-value")
    expect(try fixture.get("k0") == nil)
    expect(fixture.storage.stats.count == 9, "the call that found it has removed it")
    let report = try fixture.cache.check(isQuick: false, in: .whole)
    expect(report.damaged == 1 && report.entries == 8 && report.counters == 0)
    expect(fixture.storage.stats.damaged == 2)
  }

  @Test func openedAgain() throws {
    let fixture = try Fixture()
    let version = try fixture.put("a", "1").version
    // A directory that has a log is a log's, whatever is asked for by default.
    fixture.options.disk.kind = .unspecified
    try fixture.reopen()
    expect(try fixture.get("a") == "1")
    expect(try fixture.put("a", "2").version > version)
    expect(fixture.opening.close() == nil)
    for kind in [StorageKind.mixed, .sqlite, .file] {
      fixture.options.disk.kind = kind
      let (opening, differs) = try Opening.onDirectory(
        fixture.path, fixture.options, clock: fixture.time.clock())
      expect(differs && opening.cache.storage is LogStorage)
      expect(opening.close() == nil)
    }
    fixture.options.disk.kind = .unspecified
    let opening = try Opening.onDirectory(
      fixture.path, fixture.options, clock: fixture.time.clock()
    ).opening
    expect(opening.cache.storage is LogStorage)
    expect(opening.close() == nil)
    // A library that does not know the log looks at the manifest.
    let directory = try Directory.open(path: fixture.path)
    if case .newer = try ManifestFile.look(directory) {} else { Issue.record("not newer") }
    expect(try LogStorage.destroy(directory))
    expect(!FileManager.default.fileExists(atPath: fixture.path))
  }

  @Test func aDirectoryWithAManifestIsNoLogs() throws {
    let fixture = try Fixture()
    expect(fixture.opening.close() == nil)
    expect(try LogStorage.destroy(try Directory.open(path: fixture.path)))
    fixture.options.disk.kind = .mixed
    let sqlite = try Opening.onDirectory(
      fixture.path, fixture.options, clock: fixture.time.clock()
    ).opening
    expect(sqlite.close() == nil)
    let before = try FileManager.default.contentsOfDirectory(atPath: fixture.path).sorted()
    fixture.options.disk.kind = .log
    #expect(throws: Failure.self) { try fixture.open() }
    expect(try FileManager.default.contentsOfDirectory(atPath: fixture.path).sorted() == before)
  }

  @Test func aDirectoryThatGoesAwayComesBack() throws {
    let fixture = try Fixture()
    try fixture.put("a", "1")
    try fixture.put("b", "1")
    let away = fixture.path + "-away"
    try FileManager.default.moveItem(atPath: fixture.path, toPath: away)
    try fixture.cache.flushIfUp()
    expect(!fixture.storage.isUp)
    expect(try fixture.get("a") == "1", "memory has it")
    expect(try fixture.put("b", "2").status == .partial)
    fixture.emptyMemory()
    expect(try fixture.get("a") == nil)
    try FileManager.default.moveItem(atPath: away, toPath: fixture.path)
    expect(fixture.storage.reopen())
    expect(try fixture.get("a") == "1")
    expect(try fixture.get("b", in: .disk) == nil, "no older value comes back")
    expect(try fixture.put("b", "3").status == .done)
    try fixture.reopen()
    expect(try fixture.get("b") == "3")
  }

  /// An optional directory that was removed is made again by the calls that use it, and by no close.
  @Test func aCloseBringsNoDirectoryBack() throws {
    let fixture = try Fixture { $0.disk.isOptional = true }
    try fixture.put("a", "1")
    try FileManager.default.removeItem(atPath: fixture.path)
    try fixture.cache.flushIfUp()
    let storage = fixture.storage
    expect(!storage.isUp)
    storage.service.nextTry.store(0, ordering: .relaxed)
    expect(fixture.opening.close() == nil)
    expect(!storage.isUp && !FileManager.default.fileExists(atPath: fixture.path))
  }

  /// A write that goes to memory alone draws its version while the directory is opened again.
  @Test func versionsOnlyGrowWhileADirectoryComesBack() throws {
    let fixture = try Fixture { $0.disk.isOptional = true }
    let storage = fixture.storage
    let drawing = DrawingThread(from: storage.sharing.nextVersion!)
    for _ in 0..<20 {
      try FileManager.default.removeItem(atPath: fixture.path)
      storage.look()
      expect(!storage.isUp && storage.reopen())
    }
    expect(drawing.end())
  }

  /// Room is made for a large file while other processes add files and remove them.
  @Test func roomIsMadeBesideOtherWrites() throws {
    let fixture = try Fixture()
    try fixture.put("a", "1")
    let store = fixture.storage.store!
    let isOver = Atomic<Bool>(false)
    let (hasBegun, hasEnded) = (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    Thread.detachNewThread {
      hasBegun.signal()
      while !isOver.load(ordering: .relaxed) {
        store.words.add(IndexAt.files, 4096)
        store.words.add(IndexAt.files, -4096)
      }
      hasEnded.signal()
    }
    hasBegun.wait()
    for _ in 0..<50_000 { fixture.storage.makeRoom(1 << 40) }
    isOver.store(true, ordering: .relaxed)
    hasEnded.wait()
    expect(try fixture.put("b", "2").status == .done)
  }

  @Test(arguments: [5000, Bars.most + 1])
  func barsOnManyKeys(count: Int) throws {
    let fixture = try Fixture()
    for i in 0..<100 { try fixture.put("k\(i)", "1") }
    try fixture.put("other", "1")
    fixture.emptyMemory()
    let storage = fixture.storage
    for i in 0..<count {
      withBytes("k\(i)") { key in storage.bar(key, storage.hash.entry(key)) }
    }
    // More bars than can be remembered are one on every key.
    let isOnAll = count > Bars.most
    for i in 0..<100 { expect(try fixture.get("k\(i)") == nil) }
    expect(try fixture.get("other") == (isOnAll ? nil : "1"))
    expect(fixture.stored == (isOnAll ? [] : ["other"]))
    expect(try fixture.put("k1", "3").status == .done)
    expect(storage.hasBars.load(ordering: .relaxed) == false)
    fixture.emptyMemory()
    expect(try fixture.get("k1") == "3" && fixture.get("k2") == nil)
    expect(fixture.stored == (isOnAll ? ["k1"] : ["k1", "other"]))
    expect(try storage.store!.verify().isSound)
    // The removal of a key that is barred holds after a kill, and for other processes.
    withBytes("k1") { key in storage.bar(key, storage.hash.entry(key)) }
    expect(try !fixture.remove("k1"))
    expect(storage.hasBars.load(ordering: .relaxed) == false)
    expect(try fixture.get("k1") == nil && storage.stats.count == (isOnAll ? 0 : 1))
  }

  @Test(arguments: [WritePolicy.through, .onEviction])
  func nothingIsLost(_ policy: WritePolicy) throws {
    let fixture = try Fixture {
      $0.writePolicy = policy
      $0.disk.sharing = policy == .onEviction ? .exclusive : .shared
      $0.memory.count = 50
    }
    let seed = testSeed
    let expected = fixture.threadsFindWhatTheyPut(seed)
    expect(Set(try fixture.keys(.whole)) == expected, "seed \(seed)")
    // Entries that are written on eviction may be in memory alone so far.
    fixture.emptyMemory()
    try fixture.cache.flush()
    expect(fixture.stored == expected, "seed \(seed)")
    expect(try fixture.storage.store!.verify().isSound)
  }
}

extension Cache {
  /// Looks at the directory now.
  fileprivate func flushIfUp() throws { try? flush() }
}
