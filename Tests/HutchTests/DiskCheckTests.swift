import Foundation
import Testing

@testable import Hutch

@Suite struct DiskCheckTests {
  private func filled(_ count: Int = 400) throws -> DiskFixture {
    let disk = try DiskFixture(StorageOptions(inlineThreshold: 3000, limits: TierLimits()))
    for i in 0..<count { disk.put("k\(i)", DiskFixture.bytes(i % 10 == 0 ? 5000 : 100)) }
    return disk
  }

  private func check(_ disk: DiskFixture, quick: Bool = false) throws -> CheckReport {
    try disk.tier.check(isQuick: quick, at: disk.moment)
  }

  @Test func findsNothingWhereNothingIs() throws {
    let disk = try filled()
    let report = try check(disk)
    expect(report.isSound)
    expect(report.entries == 400 && report.bytes == 40 * 5000 + 360 * 100)
    expect(try check(disk, quick: true).isSound && disk.tier.stats.damaged == 0)
    expect(disk.tier.stats.hits == 0)
    disk.checkInvariants()
  }

  @Test func removesDamagedEntriesAndNoOthers() throws {
    let disk = try filled()
    disk.query("UPDATE entries SET value = zeroblob(100) WHERE key = CAST('k1' AS BLOB)")
    disk.query("UPDATE entries SET checksum = 1 WHERE key = CAST('k2' AS BLOB)")
    disk.query("UPDATE entries SET size = -5 WHERE key = CAST('k3' AS BLOB)")
    disk.query("UPDATE entries SET key = x'' WHERE key = CAST('k4' AS BLOB)")
    disk.query("UPDATE entries SET file = 'no name' WHERE key = CAST('k10' AS BLOB)")
    let folder = disk.path + "/content/"
    let files = disk.files(in: "content").sorted()
    try FileManager.default.removeItem(atPath: folder + files[0])
    truncate(folder + files[1], 17)
    let report = try check(disk)
    expect(report.damaged == 7 || report.damaged == 6, "k10's file may be one of the two")
    expect(report.entries == 400 - report.damaged)
    expect(report.counters == 0 && report.manifest == 0)
    expect(report.orphans <= 1)
    expect(disk.tier.stats.count == report.entries)
    expect(try check(disk).isSound)
    disk.checkInvariants()
  }

  @Test func quickSeesWhatRowsShow() throws {
    let disk = try filled()
    disk.query("UPDATE entries SET size = -5 WHERE key = CAST('k3' AS BLOB)")
    disk.query("UPDATE entries SET value = zeroblob(100) WHERE key = CAST('k1' AS BLOB)")
    let report = try check(disk, quick: true)
    expect(report.damaged == 1 && report.entries == 399 && report.bytes == 0)
    expect(try check(disk).damaged == 1)
  }

  @Test func quickSeesFilesThatAreMissingOrCut() throws {
    let disk = try filled()
    let folder = disk.path + "/content/"
    let files = disk.files(in: "content").sorted()
    try FileManager.default.removeItem(atPath: folder + files[0])
    truncate(folder + files[1], 17)
    let report = try check(disk, quick: true)
    expect(report.damaged == 2 && report.entries == 398)
    expect(try check(disk).isSound)
    disk.checkInvariants()
  }

  @Test func removesFilesOfNobody() throws {
    let disk = try filled()
    let folder = disk.path + "/content/00"
    try? FileManager.default.createDirectory(atPath: folder, withIntermediateDirectories: true)
    for name in ["hutch-0011111111111111", "hutch-0022222222222222.tmp"] {
      try Data([1, 2, 3]).write(to: URL(fileURLWithPath: folder + "/" + name))
    }
    let report = try check(disk)
    expect(report.orphans == 2 && report.damaged == 0 && report.entries == 400)
    expect(try check(disk).orphans == 0)
    disk.checkInvariants()
  }

  @Test func setsTheSumsRight() throws {
    let disk = try filled()
    // The tier keeps its meta row in memory: wrong sums come from outside, between two openings.
    expect(disk.close() == nil)
    disk.query("UPDATE meta SET count = 17, bytes = bytes + 5000, dead = 999")
    try disk.open()
    let report = try check(disk)
    expect(report.counters == 1 && report.damaged == 0)
    expect(disk.tier.stats.count == 400)
    disk.put("new", [1])
    disk.checkInvariants()
    expect(try check(disk).isSound)
  }

  @Test func aWrongNumberInTheHeadCostsNoEntry() throws {
    let disk = try filled()
    expect(disk.close() == nil)
    // The largest root page, which reads do not need.
    let file = try #require(FileHandle(forUpdatingAtPath: disk.path + "/manifest.sqlite"))
    try file.seek(toOffset: 52)
    try file.write(contentsOf: [0x12, 0x34] as [UInt8])
    try file.close()
    try disk.open()
    let report = try check(disk)
    expect(report.manifest == 1)
    expect(report.entries == 400)
    expect(try check(disk).isSound)
    expect(disk.tier.stats.count == 400)
    disk.checkInvariants()
    try disk.reopen()
    expect(try check(disk).isSound)
  }

  @Test func makesAnIndexAnew() throws {
    // So few that the index has one page.
    let disk = try filled(60)
    expect(disk.close() == nil)
    // An index that lacks rows: SQLite's own way of damaging one.
    disk.query("PRAGMA writable_schema = ON")
    let root = disk.query(
      "SELECT rootpage FROM sqlite_schema WHERE name = 'sqlite_autoindex_entries_1'")[0][0]
    expect(root > 0)
    let file = FileHandle(forUpdatingAtPath: disk.path + "/manifest.sqlite")!
    // An empty leaf page of an index.
    file.seek(toFileOffset: UInt64((root - 1) * 4096))
    var page = [UInt8](repeating: 0, count: 4096)
    page[0] = 10
    page[5] = 0x10
    file.write(Data(page))
    try file.close()
    try disk.open()
    // Reads that have gone before keep transactions, in each of the connections.
    disk.maintain()
    for _ in 0..<3 { for i in 0..<20 { _ = try? disk.get("k\(i)") } }
    let report = try check(disk)
    expect(report.manifest > 0 && report.entries == 60)
    expect(disk.tier.isUp && disk.tier.stats.count == 60)
    let entries = try check(disk)
    expect(entries.isSound && entries.entries == 60)
    for i in 0..<60 {
      expect(try disk.get("k\(i)") == DiskFixture.bytes(i % 10 == 0 ? 5000 : 100))
    }
    disk.checkInvariants()
  }

  @Test func othersGoOnMeanwhile() throws {
    let disk = try filled()
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      if thread == 0 {
        for _ in 0..<5 {
          let report = try! check(disk)
          expect(report.isSound)
        }
        return
      }
      for i in 0..<300 {
        let key = "t\(thread)-\(i % 40)"
        switch i % 5 {
        case 3: disk.remove(key)
        case 4 where i % 100 == 4 && thread == 1: disk.clear()
        default:
          let value = DiskFixture.bytes(i % 7 == 0 ? 4000 : 50, seed: UInt64(i))
          expect(disk.put(key, value).outcome == .stored)
          if let found = try! disk.get(key) { expect(found == value) }
        }
      }
    }
    disk.maintain()
    expect(try check(disk).isSound)
    disk.checkInvariants()
  }
}
