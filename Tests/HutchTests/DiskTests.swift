import CSystem
import Foundation
import Testing

@testable import Hutch

@Suite struct DiskTests {
  @Test(arguments: [StorageKind.mixed, .sqlite, .file])
  func keepsValuesOfEverySize(storage: StorageKind) throws {
    var options = DiskFixture.unlimited
    options.kind = storage
    let disk = try DiskFixture(options)
    let sizes = [0, 1, 100, 4095, 4096, 20_480, 20_481, 100_000, 3_000_000]
    for size in sizes {
      let write = disk.put("k\(size)", DiskFixture.bytes(size, seed: UInt64(size)))
      expect(write.outcome == .stored && write.failure == nil && !write.existed)
    }
    func check() throws {
      for size in sizes {
        expect(try disk.get("k\(size)") == DiskFixture.bytes(size, seed: UInt64(size)))
        let record = try disk.info("k\(size)")
        expect(record?.size == size)
        let expected = DiskFixture.bytes(size, seed: UInt64(size))
        expect(record?.checksum == expected.withUnsafeBytes { Checksum.xxh3($0) })
      }
      expect(try disk.get("no") == nil)
    }
    try check()
    disk.checkInvariants()
    expect(disk.files(in: "content").count == [.mixed: 3, .sqlite: 0, .file: 9][storage])
    try disk.reopen()
    try check()
    disk.checkInvariants()
  }

  @Test func keysOfEveryLengthAndAllBytes() throws {
    let disk = try DiskFixture()
    let keys: [[UInt8]] = [
      [0], [0, 0], [0xFF], Array(0...255), DiskFixture.bytes(5000), DiskFixture.bytes(65_535),
    ]
    for (i, key) in keys.enumerated() {
      let write = disk.write(.put, key, [UInt8(i)])
      disk.run(write)
      expect(write.outcome == .stored)
    }
    try disk.reopen()
    for (i, key) in keys.enumerated() {
      try key.withUnsafeBytes { key in
        guard let block = try disk.tier.get(key, at: disk.moment, isAccess: true) else {
          Issue.record("gone")
          return
        }
        expect(Array(block.unowned.value) == [UInt8(i)])
      }
    }
    let sorted = keys.sorted { $0.lexicographicallyPrecedes($1) }
    expect(try disk.byteKeys(page: 1) == sorted)
    expect(try disk.byteKeys(page: 4) == sorted)
    disk.checkInvariants()
  }

  @Test func recordTravelsWhole() throws {
    let disk = try DiskFixture()
    let write = disk.put(
      "k", [1, 2, 3], timeToLive: 100 * second, timeToIdle: 50 * second, cost: 77,
      extended: [9, 8], tag: [7, 0, 5])
    try disk.reopen()
    let key: [UInt8] = Array("k".utf8)
    try key.withUnsafeBytes { key in
      guard let block = try disk.tier.get(key, at: disk.moment, isAccess: false) else {
        Issue.record("gone")
        return
      }
      let record = block.unowned.record
      expect(record.version == write.version)
      expect(record.created == write.time)
      expect(record.expires == write.time + 100 * second)
      expect(record.timeToIdle == 50 * second)
      expect(record.cost == 77)
      expect(Array(block.unowned.extended.data) == [9, 8])
      expect(Array(block.unowned.extended.tag) == [7, 0, 5])
      expect(block.unowned.hasTag(block.unowned.extended.tag))
    }
  }

  @Test func tagsAreFoundByTheirTable() throws {
    let disk = try DiskFixture()
    let red: [UInt8] = [1], blue: [UInt8] = [1, 0]
    for i in 10..<60 {
      disk.put("k\(i)", DiskFixture.bytes(i * 100), tag: i % 2 == 0 ? red : i % 3 == 0 ? blue : [])
    }
    let even = stride(from: 10, to: 60, by: 2).map { "k\($0)" }
    expect(try disk.keys(tagged: red) == even)
    expect(try disk.keys(tagged: red, page: 100) == even)
    expect(try disk.keys(tagged: [9]) == [])
    // From a tag to another, to none, from none to one; a touch keeps it.
    disk.put("k10", [1], tag: blue)
    disk.put("k12", [1])
    disk.put("k11", [1], tag: red)
    disk.remove("k14")
    try disk.touch("k16", timeToLive: 10 * second)
    var expected = ["k11", "k16"] + even.dropFirst(4)
    expect(try disk.keys(tagged: red) == expected)
    expect(try disk.keys(tagged: blue).contains("k10"))
    func tag(_ key: String) throws -> [UInt8]? {
      var found: [UInt8]?
      try Array(key.utf8).withUnsafeBytes { key in
        try disk.tier.tag(of: key, disk.tier.hash.entry(key), at: disk.moment) { found = Array($1) }
      }
      return found
    }
    expect(try tag("k10") == blue)
    expect(try tag("k11") == red)
    expect(try tag("k12") == [])
    expect(try tag("none") == nil)
    disk.time.advance(seconds: 11)
    expected.removeAll { $0 == "k16" }
    expect(try disk.keys(tagged: red) == expected)
    try disk.reopen()
    expect(try disk.keys(tagged: red) == expected)
    // What the rows say that they count is what they are found to.
    let report = try disk.tier.check(isQuick: false, at: disk.moment)
    expect(report.counters == 0 && report.damaged == 0 && report.manifest == 0)
    disk.checkInvariants()
    disk.clear()
    expect(try disk.keys(tagged: red) == [])
  }

  @Test func replacesInAllFourDirections() throws {
    let disk = try DiskFixture()
    let small = DiskFixture.bytes(10)
    let large = DiskFixture.bytes(50_000)
    for (i, pair) in [(small, small), (small, large), (large, small), (large, large)].enumerated() {
      disk.put("k\(i)", pair.0)
      let write = disk.put("k\(i)", pair.1)
      expect(write.existed)
      expect(try disk.get("k\(i)") == pair.1)
    }
    disk.checkInvariants()
    expect(disk.files(in: "trash").count == 2)
    disk.maintain()
    expect(disk.files(in: "trash").isEmpty)
    disk.checkInvariants()
  }

  @Test func removes() throws {
    let disk = try DiskFixture()
    disk.put("a", DiskFixture.bytes(10))
    disk.put("b", DiskFixture.bytes(30_000))
    expect(disk.remove("a").existed)
    expect(disk.remove("b").existed)
    expect(!disk.remove("b").existed)
    expect(try disk.get("a") == nil)
    expect(try disk.get("b") == nil)
    expect(disk.tier.stats.removals == 2)
    disk.checkInvariants()
  }

  @Test func clearIsOneStepAndRowsGoLater() throws {
    let disk = try DiskFixture()
    for i in 0..<500 { disk.put("k\(i)", DiskFixture.bytes(i % 100 == 0 ? 30_000 : 20)) }
    disk.clear()
    expect(disk.tier.stats.count == 0)
    for i in 0..<500 { expect(try disk.get("k\(i)") == nil) }
    expect(try disk.keys().isEmpty)
    disk.put("k7", [7])
    expect(disk.query("SELECT count(*) FROM entries")[0][0] == 500)
    disk.checkInvariants()
    try disk.reopen()
    expect(try disk.get("k7") == [7])
    expect(try disk.get("k8") == nil)
    disk.maintain()
    expect(disk.query("SELECT count(*) FROM entries")[0][0] == 1)
    expect(disk.files(in: "content").isEmpty)
    disk.checkInvariants()
  }

  @Test func touchSetsTimesAndNothingElse() throws {
    let disk = try DiskFixture()
    let put = disk.put("k", [1], timeToLive: 10 * second)
    disk.time.advance(seconds: 8)
    expect(try disk.touch("k").existed)
    disk.time.advance(seconds: 8)
    expect(try disk.get("k") == [1])
    expect(try disk.info("k")?.version == put.version)
    disk.time.advance(seconds: 3)
    expect(try disk.get("k") == nil)
    expect(try !disk.touch("k").existed)
    expect(try !disk.touch("none").existed)
    disk.checkInvariants()
  }

  @Test func readsSeeWhatIsSubmitted() throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    disk.put("b", [2])
    let put = disk.write(.put, Array("a".utf8), [9])
    let remove = disk.write(.remove, Array("b".utf8))
    for write in [put, remove] {
      disk.prepare(write)
      disk.submit(write)
    }
    expect(try disk.get("a") == [9])
    expect(try disk.get("b") == nil)
    expect(disk.query("SELECT count(*) FROM entries")[0][0] == 2)

    let times = Record(created: disk.moment.time, expires: disk.moment.time + 5 * second)
    let touch = disk.write(.touch, Array("a".utf8), [], times)
    disk.submit(touch)
    expect(try disk.info("a")?.expires == disk.moment.time + 5 * second)
    expect(try disk.get("a") == [9])

    let clear = disk.write(.clear, [])
    disk.submit(clear)
    expect(try disk.get("a") == nil)
    let after = disk.write(.put, Array("c".utf8), [3])
    disk.prepare(after)
    disk.submit(after)
    expect(try disk.get("c") == [3])
    for write in [put, remove, touch, clear, after] { disk.complete(write) }
    expect(remove.existed && put.existed && touch.existed)
    expect(try disk.get("a") == nil)
    expect(try disk.get("c") == [3])
    disk.checkInvariants()
  }

  @Test func abandonedWriteLeavesNothing() throws {
    let disk = try DiskFixture()
    let write = disk.write(.put, Array("a".utf8), DiskFixture.bytes(50_000))
    disk.prepare(write)
    expect(disk.files(in: "content").count == 1)
    write.form = nil
    expect(disk.files(in: "content").isEmpty)
    disk.checkInvariants()
  }

  @Test func keysComeInOrderAndOnlyLiveOnes() throws {
    let disk = try DiskFixture()
    for i in 0..<20 { disk.put("k\(i)", [1], timeToLive: i % 2 == 0 ? second : 0) }
    disk.remove("k7")
    disk.time.advance(seconds: 2)
    let expected = (0..<20).filter { $0 % 2 == 1 && $0 != 7 }.map { "k\($0)" }.sorted()
    expect(try disk.keys(page: 1) == expected)
    expect(try disk.keys(page: 100) == expected)
  }

  @Test func afterACleanCloseOnlyTheManifestRemains() throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    expect(disk.entries.contains("manifest.sqlite-wal"))
    expect(disk.close() == nil)
    expect(disk.entries == ["content", "hutch.lock", "manifest.sqlite", "trash"])
    expect(disk.query("SELECT clean FROM meta")[0][0] == 1)
    var status = stat()
    stat(disk.path, &status)
    expect(status.st_mode & 0o777 == 0o700)
  }

  @Test func versionsAreNeverUsedTwice() throws {
    let disk = try DiskFixture()
    let first = disk.tier.firstVersion
    disk.put("a", [1])
    let killed = try disk.copyOfKilled()
    try killed.open()
    expect(killed.tier.firstVersion >= first + Committer.versionLease)
    try disk.reopen()
    expect(disk.tier.firstVersion == first + 1)
    // A write far into the lease extends it.
    let write = disk.write(.put, Array("b".utf8), [1])
    write.version = first + Committer.versionLease - 5
    write.write.entry!.version = write.version
    disk.run(write)
    let next = disk.query("SELECT next_version FROM meta")[0][0]
    expect(UInt64(next) >= write.version + Committer.versionLease / 2)
  }

  @Test func keepsItsStorageKind() throws {
    var options = DiskFixture.unlimited
    options.kind = .file
    let disk = try DiskFixture(options)
    expect(disk.close() == nil)
    disk.options.kind = .mixed
    try disk.open()
    expect(disk.tier.apply(disk.options))
    disk.put("a", [1])
    expect(disk.files(in: "content").count == 1)
    expect(disk.tier.apply(DiskFixture.unlimited) == false)
    options.kind = .sqlite
    expect(disk.tier.apply(options))
  }

  @Test func secondOpeningIsBusy() throws {
    var options = DiskFixture.unlimited
    options.sharing = .exclusive
    let disk = try DiskFixture(options)
    do throws(Failure) {
      let directory = try Directory.open(path: disk.path)
      _ = try DiskTier.open(
        directory: directory, options: disk.options, clock: disk.time.clock())
      Issue.record("opened twice")
    } catch {
      expect(error.status == .busy)
    }
    disk.put("a", [1])
    expect(try disk.get("a") == [1])
  }

  @Test func manyThreadsCommitTogether() throws {
    let disk = try DiskFixture()
    let threads = 8
    let rounds = 200
    DispatchQueue.concurrentPerform(iterations: threads) { thread in
      for i in 0..<rounds {
        let key = "t\(thread)-\(i % 50)"
        disk.put(key, DiskFixture.bytes(i % 7 == 0 ? 25_000 : 100, seed: UInt64(i)))
        let value = try! disk.get(key)
        expect(value == DiskFixture.bytes(i % 7 == 0 ? 25_000 : 100, seed: UInt64(i)))
        if i % 11 == 0 { disk.remove(key) }
        if i % 64 == 0 { _ = disk.tier.maintain(at: disk.moment) }
      }
    }
    disk.maintain()
    disk.checkInvariants()
    try disk.reopen()
    disk.checkInvariants()
  }

  /// Rows, files, what is absent, expired, queued, barred and damaged, in one call, as if each
  /// had come alone.
  @Test(arguments: [1, 5, 64, 300])
  func getsMany(count: Int) throws {
    let disk = try DiskFixture(StorageOptions(inlineThreshold: 3000, limits: TierLimits()))
    for i in 0..<300 {
      let size = i % 10 == 3 ? 8000 : i % 10 == 4 ? 0 : 200
      disk.put("k\(i)", DiskFixture.bytes(size), timeToLive: i % 10 == 5 ? second : 0)
    }
    disk.time.advance(seconds: 2)
    for i in 0..<300 where i % 10 == 6 { disk.remove("k\(i)") }
    for i in 0..<300 where i % 10 == 7 {
      disk.query("UPDATE entries SET checksum = checksum + 1 WHERE key = CAST('k\(i)' AS BLOB)")
    }
    var queued: [TestWrite] = []
    for i in 0..<300 where i % 50 == 8 {
      let write = disk.write(.put, Array("k\(i)".utf8), [9])
      disk.prepare(write)
      disk.submit(write)
      queued.append(write)
    }
    var keys = (0..<count).map { Array("k\($0)".utf8) }
    keys.append(keys[0])
    let pointers = keys.map { key -> Bytes in
      let copy = UnsafeMutableRawBufferPointer.allocate(byteCount: key.count, alignment: 1)
      copy.copyBytes(from: key)
      return Bytes(copy)
    }
    defer { for pointer in pointers { pointer.deallocate() } }
    var values: [[UInt8]?] = []
    disk.tier.get(keys.count, at: disk.moment, key: { (pointers[$0], disk.tier.hash.entry(pointers[$0])) }) { index, block, failure in
      expect(index == values.count && failure == nil)
      if let block {
        expect(block.unowned.key.elementsEqual(keys[index]))
        values.append(Array(block.unowned.value))
      } else {
        values.append(nil)
      }
    }
    expect(values.count == keys.count && values.last! == values[0])
    let hits = values.filter { $0 != nil }.count
    expect(disk.tier.stats.hits == hits && disk.tier.stats.misses == values.count - hits)
    for i in 0..<count {
      let expected: [UInt8]? =
        [5, 6, 7].contains(i % 10) ? nil : i % 50 == 8 ? [9]
        : DiskFixture.bytes(i % 10 == 3 ? 8000 : i % 10 == 4 ? 0 : 200)
      expect(values[i] == expected, "k\(i)")
    }
    for write in queued { disk.complete(write) }
    disk.tier.doOwedWork()
    disk.checkInvariants()
  }
}
