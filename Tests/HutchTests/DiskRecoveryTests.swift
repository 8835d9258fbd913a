import CSQLite
import Foundation
import Testing

@testable import Hutch

@Suite struct DiskRecoveryTests {
  /// A write that goes to memory alone draws its version while the directory is opened again.
  @Test func versionsOnlyGrowWhileADirectoryComesBack() throws {
    var options = DiskFixture.unlimited
    options.isOptional = true
    let disk = try DiskFixture(options)
    let drawing = DrawingThread(from: disk.tier.sharing.nextVersion!)
    for _ in 0..<20 {
      try FileManager.default.removeItem(atPath: disk.path)
      disk.tier.service.goDown(Failure(.tierDown, "a test"))
      expect(disk.tier.reopen())
    }
    expect(drawing.end())
  }

  @Test func aKilledProcessLosesNothing() throws {
    let disk = try DiskFixture()
    func value(_ i: Int) -> [UInt8] {
      DiskFixture.bytes(i % 20 == 0 ? 30_000 : 300, seed: UInt64(i))
    }
    for i in 0..<200 { disk.put("k\(i)", value(i)) }
    for i in 0..<50 { disk.remove("k\(i)") }
    let killed = try disk.copyOfKilled()
    try killed.open()
    for i in 0..<200 {
      expect(try killed.get("k\(i)") == (i < 50 ? nil : value(i)))
    }
    killed.maintain()
    killed.checkInvariants()
    expect(killed.close() == nil)
    expect(killed.entries == ["content", "hutch.lock", "manifest.sqlite", "trash"])
  }

  @Test func aKillAtEveryStepOfAReplace() throws {
    for (old, new) in [(10, 20), (10, 50_000), (50_000, 10), (50_000, 60_000)] {
      let disk = try DiskFixture()
      disk.put("k", DiskFixture.bytes(old))
      let write = disk.write(.put, Array("k".utf8), DiskFixture.bytes(new, seed: 2))
      var copies = [try disk.copyOfKilled()]
      disk.prepare(write)
      copies.append(try disk.copyOfKilled())
      disk.submit(write)
      copies.append(try disk.copyOfKilled())
      disk.complete(write)
      copies.append(try disk.copyOfKilled())
      for (i, copy) in copies.enumerated() {
        try copy.open()
        let value = try copy.get("k")
        expect(value == (i < 3 ? DiskFixture.bytes(old) : DiskFixture.bytes(new, seed: 2)))
        copy.maintain()
        copy.checkInvariants()
      }
    }
  }

  @Test func orphansGoAndWhatIsInFlightStays() throws {
    let disk = try DiskFixture()
    disk.put("k", DiskFixture.bytes(30_000))
    for i in 0..<300 {
      let folder = disk.path + "/content/" + String(format: "%02x", i % 256)
      try FileManager.default.createDirectory(
        atPath: folder, withIntermediateDirectories: true)
      let name = String(format: "hutch-%02x%014x", i % 256, i) + (i % 3 == 0 ? ".tmp" : "")
      try Data([1]).write(to: URL(fileURLWithPath: folder + "/" + name))
    }
    let killed = try disk.copyOfKilled()
    try killed.open()
    let write = killed.write(.put, Array("flying".utf8), DiskFixture.bytes(40_000))
    killed.prepare(write)
    expect(killed.files(in: "content").count == 302)
    killed.maintain()
    expect(killed.files(in: "content").count == 2)
    killed.submit(write)
    killed.complete(write)
    expect(try killed.get("flying") == DiskFixture.bytes(40_000))
    expect(try killed.get("k") == DiskFixture.bytes(30_000))
    killed.checkInvariants()
  }

  @Test func trashOfAnEarlierOpeningGoes() throws {
    let disk = try DiskFixture()
    for i in 0..<200 {
      let name = String(format: "hutch-%016x", i) + (i % 3 == 0 ? ".jpeg" : "")
      try Data([1]).write(to: URL(fileURLWithPath: disk.path + "/trash/" + name))
    }
    try disk.reopen()
    disk.maintain()
    expect(disk.files(in: "trash").isEmpty)
  }

  // MARK: out of service

  @Test func aRemovedDirectoryAndItsReturn() throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    let firstVersion = disk.tier.firstVersion
    var states: [Bool] = []
    disk.observer.onChange = { states.append($0 == nil) }
    try FileManager.default.removeItem(atPath: disk.path)
    let write = disk.put("b", [2])
    expect(write.outcome == .failed && write.failure?.status == .tierDown)
    expect(!disk.tier.stats.isUp)
    expect(try disk.get("a") == nil)
    expect(disk.put("c", DiskFixture.bytes(50_000)).outcome == .failed)
    disk.maintain()
    expect(!disk.tier.isUp, "a directory that was removed is not made again")
    expect(disk.remove("a").failure?.status == .tierDown)

    try FileManager.default.createDirectory(
      atPath: disk.path, withIntermediateDirectories: false)
    disk.maintain()
    expect(disk.tier.isUp)
    expect(disk.tier.firstVersion > firstVersion)
    expect(try disk.get("a") == nil)
    expect(disk.put("b", [3]).outcome == .stored)
    expect(try disk.get("b") == [3])
    expect(disk.put("c", DiskFixture.bytes(50_000)).outcome == .stored)
    expect(states == [false, true])
    disk.maintain()
    disk.checkInvariants()
    try disk.reopen()
    expect(try disk.get("b") == [3])
  }

  @Test func noVersionBelowTheDirectorysIsDrawnWhenItComesBack() throws {
    let disk = try DiskFixture()
    disk.put("k", [1])
    var told: (version: UInt64, isUp: Bool)?
    disk.observer.onReturn = { told = ($0, disk.tier.isUp) }
    try FileManager.default.moveItem(atPath: disk.path, toPath: disk.path + "-away")
    expect(disk.put("k", [2]).outcome == .failed)
    try FileManager.default.moveItem(atPath: disk.path + "-away", toPath: disk.path)
    disk.maintain()
    expect(disk.tier.isUp)
    expect(told?.version == disk.tier.firstVersion)
    expect(told?.isUp == false)
  }

  @Test func anOldDirectoryThatComesBackGivesNothingThatWasReplaced() throws {
    let disk = try DiskFixture()
    disk.put("kept", [1])
    disk.put("replaced", [1])
    disk.put("removed", [1])
    try FileManager.default.moveItem(atPath: disk.path, toPath: disk.path + "-away")
    expect(disk.put("replaced", [2]).outcome == .failed)
    expect(disk.remove("removed").failure != nil)
    disk.maintain()
    expect(!disk.tier.isUp)
    try FileManager.default.moveItem(atPath: disk.path + "-away", toPath: disk.path)
    disk.maintain()
    expect(disk.tier.isUp)
    expect(try disk.get("kept") == [1])
    expect(try disk.get("replaced") == nil)
    expect(try disk.get("removed") == nil)
    expect(try disk.keys() == ["kept"])
    disk.checkInvariants()
  }

  @Test func aClearThatFailedIsNotUndone() throws {
    let disk = try DiskFixture()
    for i in 0..<5000 { disk.put("k\(i)", [1]) }
    try FileManager.default.moveItem(atPath: disk.path, toPath: disk.path + "-away")
    expect(disk.clear().failure != nil)
    try FileManager.default.moveItem(atPath: disk.path + "-away", toPath: disk.path)
    expect(disk.tier.maintain(at: disk.moment) || disk.tier.isUp)
    expect(try disk.get("k1") == nil)
    disk.maintain()
    expect(disk.tier.stats.count == 0)
    disk.checkInvariants()
  }

  @Test(arguments: [5000, Bars.most + 1])
  func barsOnManyKeys(count: Int) throws {
    let disk = try DiskFixture()
    for i in 0..<100 { disk.put("k\(i)", [1]) }
    disk.put("other", [1])
    try FileManager.default.moveItem(atPath: disk.path, toPath: disk.path + "-away")
    for i in 0..<count {
      let outcome = disk.put("k\(i)", [2]).outcome
      if outcome != .failed { Issue.record("\(i): \(outcome)") }
    }
    try FileManager.default.moveItem(atPath: disk.path + "-away", toPath: disk.path)
    disk.maintain()
    expect(disk.tier.isUp)
    for i in 0..<100 { expect(try disk.get("k\(i)") == nil) }
    // More than can be remembered bar everything.
    expect(try disk.get("other") == (count > Bars.most ? nil : [1]))
    expect(disk.put("k1", [3]).outcome == .stored)
    expect(try disk.get("k1") == [3])
    while disk.tier.queue.hasBars { disk.maintain() }
    expect(try disk.get("k1") == [3])
    expect(disk.tier.stats.count == (count > Bars.most ? 1 : 2))
    disk.checkInvariants()
  }

  @Test(arguments: [false, true])
  func theEndOfACacheWhoseDirectoryHasGone(isNoticed: Bool) throws {
    let disk = try DiskFixture()
    disk.put("k", [1])
    try FileManager.default.removeItem(atPath: disk.path)
    if isNoticed { expect(disk.put("k", [2]).outcome == .failed) }
    expect(disk.close() == nil)
    expect(!FileManager.default.fileExists(atPath: disk.path))
  }

  @Test func theEndOfACacheWhoseDirectoryIsElsewhere() throws {
    let disk = try DiskFixture()
    disk.put("k", [1])
    try FileManager.default.moveItem(atPath: disk.path, toPath: disk.path + "-away")
    expect(disk.close()?.status == .io)
    try FileManager.default.moveItem(atPath: disk.path + "-away", toPath: disk.path)
    try disk.open()
    expect(try disk.get("k") == [1])
  }

  /// A reader of another program: the log cannot be moved for as long as it reads.
  @Test func aReaderThatStaysDoesNotHaveEachCommitWait() throws {
    let disk = try DiskFixture(StorageOptions(limits: TierLimits(cost: 16 << 20)))
    for i in 0..<100 { disk.put("k\(i)", DiskFixture.bytes(9000)) }
    var connection: OpaquePointer?
    sqlite3_open_v2(disk.path + "/manifest.sqlite", &connection, SQLITE_OPEN_READWRITE, nil)
    defer { sqlite3_close(connection) }
    expect(sqlite3_exec(connection, "BEGIN; SELECT count(*) FROM entries", nil, nil, nil) == 0)
    for i in 0..<1000 { disk.put("k\(i % 100)", DiskFixture.bytes(9000, seed: UInt64(i))) }
    expect(disk.tier.committer.logPause.length > 0)
    expect(sqlite3_exec(connection, "COMMIT", nil, nil, nil) == 0)
    disk.tier.committer.logPause.expire()
    disk.put("k", [1])
    expect(disk.tier.committer.logPause.length == 0)
    disk.checkInvariants()
  }

  @Test func aReaderThatStaysDoesNotHaveTheLogGrowForEver() throws {
    let limit: UInt64 = 4 << 20
    let disk = try DiskFixture(StorageOptions(limits: TierLimits(cost: limit)))
    for i in 0..<100 { disk.put("k\(i)", DiskFixture.bytes(9000)) }
    var connection: OpaquePointer?
    sqlite3_open_v2(disk.path + "/manifest.sqlite", &connection, SQLITE_OPEN_READWRITE, nil)
    defer { sqlite3_close(connection) }
    expect(sqlite3_exec(connection, "BEGIN; SELECT count(*) FROM entries", nil, nil, nil) == 0)
    var refused = 0
    for i in 0..<1000 {
      let put = disk.put("k\(i % 100)", DiskFixture.bytes(9000, seed: UInt64(i)))
      if put.outcome == .noSpace {
        refused += 1
        expect(try disk.get("k\(i % 100)") == nil)
      }
    }
    expect(refused > 100)
    expect(disk.tier.committer.manifest!.log < 2 * Int(limit))
    expect(sqlite3_exec(connection, "COMMIT", nil, nil, nil) == 0)
    disk.tier.committer.logPause.expire()
    expect(disk.put("k", [1]).outcome == .stored)
    disk.checkInvariants()
  }

  @Test func aDirectoryThatCannotBe() throws {
    let file = NSTemporaryDirectory() + "hutch-file-\(UInt64.random(in: 0...UInt64.max))"
    try Data([1]).write(to: URL(fileURLWithPath: file))
    defer { try? FileManager.default.removeItem(atPath: file) }
    for path in [file, file + "/below", "/proc/nothing/here", "/dev/null"] {
      do throws(Failure) {
        _ = try Directory.open(path: path)
        Issue.record("opened \(path)")
      } catch {
        expect(error.status == .badDirectory)
      }
    }
    do throws(Failure) {
      _ = try Directory.open(path: "")
      Issue.record("opened nothing")
    } catch {
      expect(error.status == .invalidArgument)
    }
  }

  @Test func aPathNeedNotBeUTF8() throws {
    let parent = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    defer { try? FileManager.default.removeItem(atPath: parent) }
    let path = (Array(parent.utf8) + [0x2F, 0x68, 0xFF, 0xFE, 0x2F, 0x80, 0]).map {
      CChar(bitPattern: $0)
    }
    let time = TestTime()
    try path.withUnsafeBufferPointer { path in
      let directory = try Directory.open(path: path.baseAddress!)
      let tier = try DiskTier.open(
        directory: directory, options: DiskFixture.unlimited, clock: time.clock())
      expect(tier.close(lastVersion: tier.firstVersion - 1) == nil)
      let again = try Directory.open(path: path.baseAddress!)
      expect(again.identity == directory.identity)
    }
  }
}
