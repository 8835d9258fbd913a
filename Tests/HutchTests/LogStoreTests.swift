import CSystem
import Foundation
import Synchronization
import Testing

@testable import Hutch

/// The log store by itself, in one process. What a kill leaves is tried in Tests/Log.
@Suite struct LogStoreTests {
  /// A directory, a store in it, and what a test does with one.
  final class Fixture: @unchecked Sendable {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    let time = TestTime()
    let clock: Clock
    private(set) var store: LogStore!

    init(_ limits: TierLimits? = TierLimits()) throws {
      clock = time.clock()
      store = try open(limits)
    }

    deinit { try? FileManager.default.removeItem(atPath: path) }

    var moment: Moment { clock.moment() }

    func open(_ limits: TierLimits? = nil) throws -> LogStore {
      try LogStore.open(try Directory.open(path: path), limits: limits)
    }

    /// As another process would find it: the one before is gone, closed or not.
    func reopen(closing: Bool) throws {
      if closing { expect(store.close() == nil) }
      store = nil
      store = try open()
    }

    @discardableResult
    func put(
      _ key: String, _ value: String, extended: String = "", tagSize: UInt8 = 0,
      if condition: WriteCondition = .always, in other: LogStore? = nil,
      _ change: (inout Record) -> Void = { _ in }
    ) throws -> LogWrite {
      let store = other ?? self.store!
      var record = Record()
      record.version = store.nextVersion.pointee.wrappingAdd(1, ordering: .relaxed).oldValue
      record.created = moment.time
      record.accessed = record.created
      change(&record)
      return try withBytes(key) { (key) throws(Failure) in
        try withBytes(value) { (value) throws(Failure) in
          try withBytes(extended) { (extended) throws(Failure) in
            let block = try Block.copying(
              key: key, value: value, extended: Extended(extended, tagSize: tagSize),
              record: record, wantsChecksum: true)
            var write = LogWrite(.put, key, store.hash.entry(key))
            write.entry = block.unowned
            write.condition = condition
            store.write(&write, at: moment)
            write.entry = nil
            return write
          }
        }
      }
    }

    func get(_ key: String, in other: LogStore? = nil) throws -> String? {
      let store = other ?? self.store!
      return try withBytes(key) { (key) throws(Failure) in
        let block = try store.get(key, store.hash.entry(key), at: moment, isAccess: true)
        guard let entry = block.unowned else { return nil }
        return String(decoding: entry.value, as: UTF8.self)
      }
    }

    func info(_ key: String) throws -> Record? {
      try withBytes(key) { (key) throws(Failure) in
        store.info(key, store.hash.entry(key), at: moment)
      }
    }

    func remove(_ key: String) throws -> LogWrite {
      try withBytes(key) { (key) throws(Failure) in
        var write = LogWrite(.remove, key, store.hash.entry(key))
        store.write(&write, at: moment)
        return write
      }
    }

    /// Ends a recovery.
    func rebuild() throws {
      var work = LogRebuild()
      while try store.rebuild(&work, at: moment) {}
    }

    func expectSound(_ location: SourceLocation = #_sourceLocation) throws {
      let report = try store.verify()
      expect(report.isSound, "\(report)", sourceLocation: location)
    }

    /// What the two files take of the file system, without a block for each in which that has
    /// where they are, and without what memory tiers share.
    var allocated: Int {
      ["hutch-index", "hutch-log"].reduce(-8192 - LogShared.byteCount) { sum, name in
        var status = stat()
        return sum + (stat(path + "/" + name, &status) == 0 ? Int(status.st_blocks) * 512 : 0)
      }
    }

    /// Changes a byte of a file, as the kernel has it.
    func change(_ name: String, at place: Int, _ change: (UInt8) -> UInt8) throws {
      let file = Descriptor(owning: try #require(Files.open(path + "/" + name, O_RDWR)))
      var byte: UInt8 = 0
      withUnsafeMutableBytes(of: &byte) { _ = Files.read(file.number, into: $0, at: place) }
      byte = change(byte)
      expect(withUnsafeBytes(of: byte) { Files.write($0, to: file.number, at: place) })
    }

    func contents(_ name: String) throws -> Data {
      try Data(contentsOf: URL(fileURLWithPath: path + "/" + name))
    }
  }

  private static let second: Int64 = 1_000_000_000

  @Test func earlierMembersOfAProcessAreNoOtherProcesses() throws {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    defer { try? FileManager.default.removeItem(atPath: path) }
    let directory = try Directory.open(path: path)
    for _ in 0..<8 {
      let members = try (0..<6).map { _ in try LogMember(directory) }
      for member in members { try member.join() }
      // The kernel has their locks in the order in which they were taken.
      for member in members.shuffled() {
        member.leave()
        try member.join()
      }
      let last = members[5]
      for chosen in 0..<32 {
        last.earlier = nil
        for i in 0..<5 where chosen >> i & 1 == 1 {
          members[i].earlier = last.earlier
          last.earlier = members[i]
        }
        expect(last.isAlone() == (chosen == 31) && !last.isSole())
      }
    }
  }

  @Test func anEntryComesBackWhole() throws {
    let fixture = try Fixture()
    let put = try fixture.put("key", "value", extended: "more") {
      $0.expires = $0.created + 60 * Self.second
      $0.timeToIdle = 30 * Self.second
      $0.cost = 7
    }
    expect(put.outcome == .stored && !put.existed)
    try withBytes("key") { (key) throws(Failure) in
      let store = fixture.store!
      let block = try store.get(key, store.hash.entry(key), at: fixture.moment, isAccess: true)
      guard let entry = block.unowned else {
        Issue.record("it is there")
        return
      }
      expect(String(decoding: entry.value, as: UTF8.self) == "value")
      expect(String(decoding: entry.extendedData, as: UTF8.self) == "more")
      let now = fixture.moment.time
      expect(entry.expires == now + 60 * Self.second && entry.timeToIdle == 30 * Self.second)
      expect(entry.cost == 7 && entry.created == now)
      expect(entry.checksum == Checksum.xxh3(Bytes(entry.value)))
    }
    try fixture.put("empty", "")
    expect(try fixture.get("empty") == "" && fixture.store.count == 2)
    try fixture.expectSound()
  }

  /// A put of a value that is in a content file.
  @discardableResult
  private func put(
    _ key: String, file value: String, suffix: String = "", _ fixture: Fixture
  ) throws -> LogFile {
    let store = fixture.store!
    let name = try ContentName.random(try #require(FileSuffix(suffix)))
    let file = try withBytes(value) { (value) throws(Failure) in
      let made = Descriptor(owning: try ContentFiles.create(name, in: store.directory))
      guard Files.write(value, to: made.number) else { throw .system("cannot write a file") }
      try ContentFiles.giveName(made.number, name, in: store.directory, .nothing)
      return LogFile(name: name, size: value.count, checksum: Checksum.xxh3(value))
    }
    try withBytes(key) { (key) throws(Failure) in
      var record = Record()
      record.version = store.nextVersion.pointee.wrappingAdd(1, ordering: .relaxed).oldValue
      record.created = fixture.moment.time
      let block = try Block.copying(
        key: key, value: Bytes(start: nil, count: 0), extended: Extended(), record: record)
      var write = LogWrite(.put, key, store.hash.entry(key))
      write.entry = block.unowned
      write.file = file
      store.write(&write, at: fixture.moment)
      expect(write.outcome == .stored)
      write.entry = nil
    }
    return file
  }

  private func dead(_ fixture: Fixture) -> [UInt64] {
    var numbers: [UInt64] = []
    while let file = fixture.store.dead.next() {
      numbers.append(file.name.number)
      fixture.store.dead.forgetMoved()
    }
    return numbers
  }

  @Test func aFileIsGivenOutOnceItsEntryHasGone() throws {
    let fixture = try Fixture()
    let file = try put("a", file: "value", fixture)
    let store = fixture.store!
    try store.locked { () throws(Failure) in
      store.dead.add(file)
      expect(store.dead.isEmpty && store.dead.next()?.size == nil)
    }
    expect(dead(fixture) == [file.name.number])
  }

  @Test func aValueInAContentFile() throws {
    let fixture = try Fixture()
    let text = String(repeating: "value ", count: 2000)
    let first = try put("a", file: text, suffix: ".text", fixture)
    expect(try fixture.get("a") == text)
    let info = try #require(try fixture.info("a"))
    expect(info.size == 12_000 && info.checksum == first.checksum)
    expect(fixture.store.files == 12_288 && fixture.store.live > 12_288)
    try withBytes("a") { (key) throws(Failure) in
      let entry = fixture.store.find(key, fixture.store.hash.entry(key))?.entry
      expect(entry?.file?.name.suffix.count == 5 && entry?.valueSize == 0)
    }
    expect(try fixture.store.check(key: "a") == true)
    try fixture.expectSound()
    // A touch leaves the file where it is; a replacement loses it, and so does a removal.
    try withBytes("a") { (key) throws(Failure) in
      var write = LogWrite(.touch, key, fixture.store.hash.entry(key))
      write.times.created = fixture.moment.time
      write.times.expires = fixture.moment.time + 1_000_000_000
      fixture.store.write(&write, at: fixture.moment)
    }
    expect(try fixture.get("a") == text && dead(fixture).isEmpty)
    let second = try put("a", file: "short", fixture)
    expect(dead(fixture) == [first.name.number] && fixture.store.files == 4096)
    try fixture.put("a", "in the log")
    expect(dead(fixture) == [second.name.number] && fixture.store.files == 0)
    let third = try put("a", file: text, fixture)
    _ = try fixture.remove("a")
    expect(dead(fixture) == [third.name.number] && fixture.store.files == 0)
    let rest = try (0..<3).map { try put("k\($0)", file: text, fixture).name.number }
    try fixture.store.clear()
    expect(dead(fixture).sorted() == rest.sorted() && fixture.store.files == 0)
    try fixture.expectSound()
  }

  @Test func aContentFileThatIsGoneOrDamagedCostsItsEntry() throws {
    let fixture = try Fixture()
    let names = try (0..<3).map { try put("k\($0)", file: "value \($0)", fixture).name }
    ContentFiles.discard(names[0], in: fixture.store.directory)
    expect(try fixture.get("k0") == nil)
    expect(try fixture.store.check(key: "k1") == true)
    let path = fixture.path + "/" + ContentPath.withContent(names[1]) { String(cString: $0) }
    try Data("VALUE 1".utf8).write(to: URL(fileURLWithPath: path))
    expect(try fixture.store.check(key: "k1") == false)
    expect(try fixture.get("k2") == "value 2" && fixture.store.count == 1)
    expect(Set(dead(fixture)) == Set(names[0..<2].map { $0.number }))
    try fixture.expectSound()
  }

  @Test func contentFilesAndLogShareTheLimit() throws {
    let fixture = try Fixture(TierLimits(cost: 1 << 20))
    let text = String(repeating: "v", count: 50_000)
    var lost = 0
    for i in 0..<60 {
      try put("f\(i)", file: text, fixture)
      for j in 0..<20 { try fixture.put("s\(i)-\(j)", String(repeating: "s", count: 200)) }
      lost += dead(fixture).count
      expect(fixture.store.taken <= 1 << 20)
    }
    expect(lost > 30 && fixture.store.files > 300_000)
    expect(try fixture.get("f59") == text && fixture.get("f0") == nil)
    // A smaller limit.
    var limits = fixture.store.limits
    limits.cost = 400_000
    try fixture.store.setLimits(limits, at: fixture.moment.time)
    expect(fixture.store.taken <= 400_000)
    try fixture.expectSound()
  }

  @Test func aTagStaysWithItsEntry() throws {
    let fixture = try Fixture()
    try fixture.put("key", "value", extended: "morered", tagSize: 3)
    try fixture.put("alone", "value", extended: "red", tagSize: 3)
    withBytesOf("key", fixture) { $0.times.created = fixture.moment.time }
    for (key, more) in [("key", "more"), ("alone", "")] {
      try withBytes(key) { (key) throws(Failure) in
        let store = fixture.store!
        let block = try store.get(key, store.hash.entry(key), at: fixture.moment, isAccess: false)
        guard let entry = block.unowned else {
          Issue.record("it is there")
          return
        }
        expect(String(decoding: entry.extended.data, as: UTF8.self) == more)
        expect(String(decoding: entry.extended.tag, as: UTF8.self) == "red")
        let record = store.info(key, store.hash.entry(key), at: fixture.moment)
        expect(record?.tagSize == 3 && record?.extendedSize == 3 + more.utf8.count)
      }
    }
    try fixture.expectSound()
  }

  @Test func writesOfEveryKind() throws {
    let fixture = try Fixture()
    expect(try fixture.put("a", "1", if: .present).isUnmet)
    expect(try fixture.put("a", "1", if: .absent).outcome == .stored)
    let unmet = try fixture.put("a", "2", if: .absent)
    let existing = try fixture.info("a")?.version
    expect(unmet.isUnmet && unmet.existing == existing)
    expect(try fixture.put("a", "2", if: .version(unmet.existing)).outcome == .stored)
    expect(try fixture.put("a", "3", if: .version(unmet.existing)).isUnmet)
    expect(try fixture.get("a") == "2")

    expect(try fixture.remove("a").existed)
    expect(try !fixture.remove("a").existed && fixture.get("a") == nil)
    for i in 0..<100 { try fixture.put("k\(i)", "v\(i)") }
    expect(fixture.store.count == 100)
    try fixture.store.clear()
    expect(try fixture.store.count == 0 && fixture.get("k7") == nil)
    try fixture.put("k7", "again")
    expect(try fixture.get("k7") == "again" && fixture.store.count == 1)
    try fixture.expectSound()
  }

  @Test func agesAreKept() throws {
    let fixture = try Fixture(
      TierLimits(ages: Ages(timeToLive: 100 * Self.second, timeToIdle: 0)))
    try fixture.put("own", "") { $0.expires = $0.created + 10 * Self.second }
    try fixture.put("never", "") { $0.expires = Record.never }
    try fixture.put("idle", "") { $0.timeToIdle = 40 * Self.second }
    try fixture.put("tier", "")
    fixture.time.advance(seconds: 11)
    expect(try fixture.get("own") == nil && fixture.get("idle") != nil)
    expect(try fixture.put("own", "", if: .present).isUnmet, "it has expired")
    fixture.time.advance(seconds: 39)
    expect(try fixture.get("idle") != nil, "it was read 39 seconds ago")
    withBytesOf("tier", fixture) { write in
      write.times.created = fixture.moment.time
    }
    fixture.time.advance(seconds: 41)
    expect(try fixture.get("idle") == nil && fixture.get("tier") != nil)
    fixture.time.advance(seconds: 10)
    expect(try fixture.get("tier") != nil, "it was touched at 50 seconds")
    fixture.time.advance(seconds: 50)
    expect(try fixture.get("tier") == nil && fixture.get("never") != nil)
    try fixture.expectSound()
  }

  /// Touches a key.
  private func withBytesOf(
    _ key: String, _ fixture: Fixture, _ change: (inout LogWrite) -> Void
  ) {
    var text = key
    text.withUTF8 { utf8 in
      let key = Bytes(utf8)
      var write = LogWrite(.touch, key, fixture.store.hash.entry(key))
      change(&write)
      fixture.store.write(&write, at: fixture.moment)
      expect(write.existed && write.failure == nil)
    }
  }

  @Test func asAModelHasIt() throws {
    var random = Random(seed: testSeed)
    let fixture = try Fixture()
    var model: [String: String] = [:]
    for step in 0..<20_000 {
      let key = "key-\(random.next() % 3000)"
      switch random.next() % 8 {
      case 0...3:
        let value = String(repeating: "\(step),", count: Int(random.next() % 60))
        expect(try fixture.put(key, value).existed == (model[key] != nil))
        model[key] = value
      case 4:
        expect(try fixture.remove(key).existed == (model.removeValue(forKey: key) != nil))
      default:
        expect(try fixture.get(key) == model[key], "seed \(testSeed), step \(step)")
      }
      if step % 5000 == 4999 { try fixture.reopen(closing: step % 2 == 0) }
    }
    expect(fixture.store.count == UInt64(model.count))
    for (key, value) in model { expect(try fixture.get(key) == value) }
    try fixture.expectSound()
  }

  @Test func limitsHold() throws {
    let limit = 400_000
    let fixture = try Fixture(TierLimits(cost: UInt64(limit), count: 1000))
    let value = String(repeating: "v", count: 300)
    for i in 0..<8000 {
      expect(try fixture.put("key-\(i)", value).outcome == .stored)
      expect(fixture.store.count <= 1000)
      if i % 50 == 0 { expect(fixture.allocated <= limit, "after \(i) puts") }
    }
    expect(fixture.store.count > 700, "it is used, too")
    expect(try fixture.get("key-7999") == value && fixture.get("key-0") == nil)
    try fixture.store.setLimits(TierLimits(cost: 150_000, count: 200), at: fixture.moment.time)
    expect(fixture.allocated <= 150_000 && fixture.store.count <= 200)
    expect(try fixture.get("key-7999") == value, "the oldest have gone")
    try fixture.expectSound()
    // One that no segment has room for takes the place of what was there: of nothing.
    let large = String(repeating: "l", count: 100_000)
    expect(try fixture.put("key-7999", large).outcome == .tooLarge)
    expect(try fixture.get("key-7999") == nil)
  }

  /// The rest goes in slices of the call that lowers them.
  @Test(arguments: [TierLimits(count: 200), TierLimits(cost: 300_000)])
  func aPutEvictsLittleOfWhatIsAboveLoweredLimits(lowered: TierLimits) throws {
    let fixture = try Fixture(TierLimits(cost: 8 << 20))
    for i in 0..<16_000 { try fixture.put("key-\(i)", String(repeating: "v", count: 300)) }
    var puts = 0
    var most: UInt64 = 0
    try fixture.store.setLimits(lowered, at: fixture.moment.time) {
      let before = fixture.store.count
      guard (try? fixture.put("new-\(puts)", "value"))?.outcome == .stored else { return }
      puts += 1
      most = max(most, before - min(before, fixture.store.count))
    }
    expect(puts > 10 && most < 600)
    expect(fixture.store.count <= 1000)
    try fixture.expectSound()
  }

  @Test func whatIsReadStays() throws {
    let fixture = try Fixture(TierLimits(cost: 400_000))
    let value = String(repeating: "v", count: 300)
    var reads = 0
    var misses = 0
    for i in 0..<5000 {
      try fixture.put("key-\(i)", value)
      if i >= 100 && i % 10 == 0 {
        for hot in 0..<20 {
          reads += 1
          if try fixture.get("key-\(hot)") == value { continue }
          misses += 1
          try fixture.put("key-\(hot)", value)
        }
      }
    }
    // Where pages of the index take a segment's place, two segments are cleaned for one, and there
    // is no room for all that was read. Without regard to reads, each lap of the log misses all.
    expect(misses * 200 <= reads, "\(misses) of \(reads)")
    expect(try fixture.get("key-50") == nil)
    try fixture.expectSound()
  }

  @Test func aWalkMeetsWhatStaysOnce() throws {
    let fixture = try Fixture(TierLimits(cost: 2_000_000))
    for i in 0..<2000 { try fixture.put("stays-\(i)", "value") }
    for i in 0..<500 { try fixture.put("goes-\(i)", "value") }
    var met: [String: Int] = [:]
    var place = LogPlace()
    var step = 0
    var page = WalkPage()
    while try fixture.store.step(&place, into: &page) {
      for entry in page.entries.elements {
        met[String(decoding: page.key(of: entry), as: UTF8.self), default: 0] += 1
        expect(entry.record.size == 5)
      }
      // Pages are divided meanwhile, and entries written anew.
      for i in 0..<60 { try fixture.put("comes-\(step)-\(i)", "value") }
      for i in 0..<20 { try fixture.put("stays-\((step * 20 + i) % 2000)", "again") }
      _ = try fixture.remove("goes-\(step)")
      step += 1
    }
    expect(place.isAtEnd && fixture.store.words.load(IndexAt.top) > 2)
    for i in 0..<2000 { expect(met["stays-\(i)"] == 1, "stays-\(i)") }
    expect(met.values.allSatisfy { $0 == 1 })

    // What is wanted goes, and what has expired.
    try fixture.put("expires", "") { $0.expires = $0.created + Self.second }
    try fixture.put("large", String(repeating: "l", count: 500))
    fixture.time.advance(seconds: 2)
    let before = fixture.store.count
    place = LogPlace()
    var removed: UInt64 = 0
    var found = WalkPage()
    let ages = fixture.store.ages
    let moment = fixture.moment
    while try fixture.store.step(&place, into: &found) {
      var wanted = GrowingArray<LogAddress>()
      for entry in found.entries.elements { try wanted.append(entry.address) }
      removed += try fixture.store.locked { () throws(Failure) in
        fixture.store.lose(wanted, 0..<wanted.count, at: moment) { _, record in
          record.size > 100 || record.isExpired(at: moment.time, under: ages)
        }
      }
    }
    expect(removed == 2 && fixture.store.count == before - 2)
    expect(try fixture.get("large") == nil && fixture.get("stays-7") != nil)
    try fixture.expectSound()
  }

  @Test func anotherBoot() throws {
    let fixture = try Fixture()
    try fixture.put("key", "value")
    let version = try #require(try fixture.info("key")).version
    // Killed: the kernel has its pages.
    try fixture.reopen(closing: false)
    expect(try fixture.get("key") == "value")
    // Closed: they are on the disk.
    expect(fixture.store.close() == nil)
    try fixture.change("hutch-index", at: IndexAt.boot) { $0 ^ 1 }
    try fixture.reopen(closing: false)
    expect(try fixture.get("key") == "value")
    // Neither: the entries are those of the checkpoint and what follows. At first they are misses.
    try fixture.put("key", "later")
    try fixture.put("another", "value")
    _ = try fixture.remove("another")
    try fixture.change("hutch-index", at: IndexAt.boot) { $0 ^ 1 }
    try fixture.reopen(closing: false)
    expect(try fixture.get("key") == nil && fixture.store.count == 0)
    try fixture.rebuild()
    expect(try fixture.get("key") == "later" && fixture.get("another") == nil)
    expect(fixture.store.count == 1)
    try fixture.put("key", "new")
    expect(try #require(try fixture.info("key")).version > version + 1)
    try fixture.expectSound()
    // No checkpoint.
    try FileManager.default.removeItem(atPath: fixture.path + "/hutch-checkpoint")
    try fixture.change("hutch-index", at: IndexAt.boot) { $0 ^ 1 }
    try fixture.reopen(closing: false)
    expect(try fixture.get("key") == nil && fixture.store.count == 0)
    try fixture.expectSound()
  }

  /// A loss of power may leave an index that has no bytes, or zeroes.
  @Test(arguments: [0, 4096]) func anIndexWithoutItsBytes(zeroes: Int) throws {
    let fixture = try Fixture()
    try fixture.put("key", "value")
    try fixture.store.writeCheckpoint()
    let index = fixture.path + "/hutch-index"
    try Data(count: zeroes).write(to: URL(fileURLWithPath: index))
    try fixture.reopen(closing: false)
    try fixture.rebuild()
    expect(try fixture.get("key") == "value")
    try fixture.expectSound()
  }

  /// What a recovery has not met yet stays removed, replaced or expired.
  @Test func changesBeforeTheSlotsAreThere() throws {
    let fixture = try Fixture()
    for i in 0..<3000 { try fixture.put("key-\(i)", "old") }
    try fixture.store.writeCheckpoint()
    try fixture.change("hutch-index", at: IndexAt.boot) { $0 ^ 1 }
    try fixture.reopen(closing: false)
    for i in stride(from: 0, to: 3000, by: 3) { _ = try fixture.remove("key-\(i)") }
    for i in stride(from: 1, to: 3000, by: 3) { try fixture.put("key-\(i)", "new") }
    expect(try fixture.get("key-2") == nil)
    try fixture.rebuild()
    for i in 0..<3000 { expect(try fixture.get("key-\(i)") == [nil, "new", "old"][i % 3]) }
    expect(fixture.store.count == 2000)
    try fixture.expectSound()
  }

  /// A redo record that was tampered with changes no word that the index has not.
  @Test func aRedoRecordWithOffsetsBehindTheIndex() {
    let size = 1024
    let memory = UnsafeMutableRawPointer.allocate(byteCount: size, alignment: 16)
    defer { memory.deallocate() }
    let offsets = [.max - 7, .max, 1 << 63, UInt64(size), UInt64(size) - 4, 8]
    for offset in offsets {
      memory.initializeMemory(as: UInt8.self, repeating: 0, count: size)
      let words = SharedWords(memory)
      words.store(IndexAt.redo, 1)
      words.store(IndexAt.redo + 8, offset)
      words.store(IndexAt.redo + 16, 7)
      RedoRecord.complete(words, limit: size)
      expect(words.load(IndexAt.redo) == 0)
      for place in stride(from: 0, to: IndexAt.redo, by: 8) { expect(words.load(place) == 0) }
    }
  }

  /// A checkpoint with any bytes in it: no crash, and no value that was never put.
  @Test func anyBytesOfACheckpoint() throws {
    var random = Random(seed: testSeed)
    let rounds = isLong ? 10_000 : 40
    for round in 0..<rounds {
      let fixture = try Fixture(TierLimits(cost: 200_000, count: 400))
      for i in 0..<300 { try fixture.put("key-\(i)", "value-\(i)") }
      try fixture.store.writeCheckpoint()
      try fixture.put("key-1", "next-1")
      let file = fixture.path + "/hutch-checkpoint"
      var bytes = try Data(contentsOf: URL(fileURLWithPath: file))
      let place = 1 << 20
      let count = LogCheckpoint.headSize + Int(bytes[place + LogCheckpoint.At.seats * 8]) * 8
      for _ in 0...random.next() % 3 {
        let at = place + 8 + Int(random.next() % UInt64(count - 8))
        bytes[at] = random.next() % 2 == 0 ? bytes[at] ^ 1 : UInt8(random.next() & 255)
      }
      // Most often the check says that all is well.
      if round % 8 != 0 {
        let check = bytes[(place + 8)..<(place + count)].withUnsafeBytes { Checksum.xxh3($0) }
        withUnsafeBytes(of: check) { bytes.replaceSubrange(place..<place + 8, with: $0) }
      }
      let handle = try #require(FileHandle(forWritingAtPath: file))
      try handle.write(contentsOf: bytes)
      try handle.close()
      try fixture.change("hutch-index", at: IndexAt.boot) { $0 ^ 1 }
      guard (try? fixture.reopen(closing: false)) != nil else { continue }
      try fixture.rebuild()
      for i in 0..<300 {
        let value = try fixture.get("key-\(i)")
        expect(value == nil || value == "value-\(i)" || value == "next-\(i)", "seed \(testSeed)")
        try fixture.put("key-\(i * 3)", "next-\(i * 3)")
      }
      _ = try fixture.store.verify()
    }
  }

  @Test func damageCostsItsEntry() throws {
    let fixture = try Fixture()
    let value = String(repeating: "value", count: 20)
    for i in 0..<50 { try fixture.put("key-\(i)", "\(i):" + value) }
    let place = try #require(fixture.contents("hutch-log").range(of: Data("17:value".utf8))).lowerBound
    try fixture.change("hutch-log", at: place + 20) { $0 ^ 4 }
    for i in 0..<50 { expect(try fixture.get("key-\(i)") == (i == 17 ? nil : "\(i):" + value)) }
    expect(fixture.store.counters.damaged.load(ordering: .relaxed) == 1)
    expect(fixture.store.count == 49)
    try fixture.expectSound()
  }

  @Test func onlyWhatIsOursIsTouched() throws {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    defer { try? FileManager.default.removeItem(atPath: path) }
    for name in ["hutch-index", "hutch-log"] {
      try FileManager.default.createDirectory(atPath: path, withIntermediateDirectories: true)
      try Data("somebody's".utf8).write(to: URL(fileURLWithPath: path + "/" + name))
      let failure = #expect(throws: Failure.self) {
        _ = try LogStore.open(try Directory.open(path: path), limits: nil)
      }
      expect(failure?.status == .badDirectory)
      expect(try Data(contentsOf: URL(fileURLWithPath: path + "/" + name)).count == 10)
      try FileManager.default.removeItem(atPath: path)
    }
    let fixture = try Fixture()
    try fixture.change("hutch-index", at: IndexAt.format) { _ in 77 }
    let failure = #expect(throws: Failure.self) { try fixture.reopen(closing: false) }
    expect(failure?.status == .newerFormat)
    try fixture.change("hutch-index", at: IndexAt.format) { _ in 1 }
    let older = #expect(throws: Failure.self) { try fixture.reopen(closing: false) }
    expect(older?.status == .badDirectory)
  }

  @Test func openingsSeeEachOther() throws {
    let fixture = try Fixture()
    let other = try fixture.open()
    try fixture.put("key", "one")
    expect(try fixture.get("key", in: other) == "one")
    try fixture.put("key", "two", in: other)
    expect(try fixture.get("key") == "two" && other.count == 1)
    // The holder of the lock keeps writers waiting, and no reader.
    let (isHeld, isSeen, isFree) =
      (DispatchSemaphore(value: 0), DispatchSemaphore(value: 0), DispatchSemaphore(value: 0))
    Thread.detachNewThread {
      expect(other.lock.lock(until: Deadline(at: Int64.max)))
      isHeld.signal()
      isSeen.wait()
      other.lock.unlock()
      isFree.signal()
    }
    isHeld.wait()
    // A wait for this holder has been in vain, so the next ones are short.
    let holder = (other.words.base + IndexAt.lock).load(as: UInt32.self)
    fixture.store.member.stopped.store(holder, ordering: .relaxed)
    let late = try fixture.put("key", "three")
    expect(late.failure?.status == .busy && late.outcome == .failed)
    expect(try fixture.get("key") == "two")
    isSeen.signal()
    isFree.wait()
    expect(try fixture.put("key", "three").outcome == .stored)
  }

  /// ThreadSanitizer sees a reader copy what a writer writes over. It cannot see that the reader
  /// then asks whether the segment is still there, and throws the copy away.
  private static let isUnderThreadSanitizer = dlsym(nil, "__tsan_init") != nil

  @Test(.disabled(if: isUnderThreadSanitizer)) func manyThreads() throws {
    let fixture = try Fixture(TierLimits(cost: 300_000))
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      for i in 0..<3000 {
        let key = "key-\(i * 7 % 900)"
        if (i + thread) % 2 == 0 {
          _ = try! fixture.put(key, key + String(repeating: "v", count: i % 200))
        } else if let value = try! fixture.get(key) {
          expect(value.hasPrefix(key + "v") || value == key)
        }
      }
    }
    try fixture.expectSound()
  }

  /// Levels of which the number of slots has no 64 bits.
  @Test(arguments: [63, 127, 191, 255] as [UInt8]) func aLevelThatCannotBe(level: UInt8) throws {
    let fixture = try Fixture(TierLimits(cost: 200_000, count: 400))
    for i in 0..<300 { try fixture.put("key-\(i)", "value-\(i)") }
    for page in 0..<8 {
      try fixture.change("hutch-index", at: IndexAt.pageTable + 8 * page + 4) { _ in level }
    }
    try fixture.reopen(closing: false)
    for i in 0..<300 {
      let value = try fixture.get("key-\(i)")
      expect(value == nil || value == "value-\(i)", "key \(i) has \(value ?? "")")
    }
    try fixture.store.clear()
    try fixture.put("key", "value")
  }

  /// A directory with any bytes in it: no crash, and no value that was never put.
  @Test func anyBytes() throws {
    var random = Random(seed: testSeed)
    let rounds = isLong ? 10_000 : 60
    for round in 0..<rounds {
      let fixture = try Fixture(TierLimits(cost: 200_000, count: 400))
      for i in 0..<300 { try fixture.put("key-\(i)", "value-\(i)") }
      // Of the log of a machine that has lost power a new index is made.
      let losesPower = round % 8 == 7
      if losesPower {
        try fixture.store.writeCheckpoint()
        try fixture.put("key-1", "next-1")
        try fixture.change("hutch-index", at: IndexAt.boot) { $0 ^ 1 }
      }
      let places = [0..<640, 640..<1024, 1024..<1100, IndexAt.seats..<IndexAt.seats + 256,
        IndexAt.pageTable..<IndexAt.pageTable + 64, IndexAt.slots..<IndexAt.slots + 8192]
      let isLog = round % 4 == 3
      let range = isLog ? 0..<30_000 : places[Int(random.next() % 6)]
      for _ in 0...random.next() % 6 {
        let place = range.lowerBound + Int(random.next() % UInt64(range.count))
        let byte = UInt8(random.next() & 255)
        try fixture.change(isLog ? "hutch-log" : "hutch-index", at: place) { byte < 100 ? $0 ^ 1 : byte }
      }
      guard (try? fixture.reopen(closing: false)) != nil else { continue }
      if losesPower { try fixture.rebuild() }
      for i in 0..<300 {
        let value = try fixture.get("key-\(i)")
        expect(value == nil || value == "value-\(i)" || value == "next-\(i)", "seed \(testSeed)")
        try fixture.put("key-\(i * 3)", "next-\(i * 3)")
        _ = try fixture.remove("key-\(i * 5 % 300)")
      }
      _ = try fixture.store.verify()
      try fixture.store.clear()
      try fixture.put("key", "value")
    }
  }
}

extension LogStore {
  fileprivate func check(key: String) throws -> Bool? {
    try withBytes(key) { (key) throws(Failure) in try inspect(key) }
  }
}
