import Foundation
import Testing

@testable import Hutch

@Suite struct DiskExpiryTests {
  private func fixture(timeToLive: Int64 = 0, timeToIdle: Int64 = 0) throws -> DiskFixture {
    let limits = TierLimits(ages: Ages(timeToLive: timeToLive, timeToIdle: timeToIdle))
    return try DiskFixture(StorageOptions(limits: limits))
  }

  @Test func ownTimeToLiveWins() throws {
    let disk = try fixture(timeToLive: 10 * second)
    disk.put("short", [1], timeToLive: 2 * second)
    disk.put("tier", [2])
    disk.put("long", [3], timeToLive: 100 * second)
    disk.put("ever", [4], timeToLive: Record.never)
    disk.time.advance(seconds: 1.99)
    expect(try disk.keys().count == 4)
    disk.time.advance(seconds: 0.01)
    expect(try disk.get("short") == nil)
    expect(try disk.info("short") == nil)
    expect(try disk.keys() == ["ever", "long", "tier"])
    disk.time.advance(seconds: 8)
    expect(try disk.get("tier") == nil)
    disk.time.advance(seconds: 1e6)
    expect(try disk.get("long") == nil)
    expect(try disk.get("ever") == [4])
    disk.maintain()
    expect(disk.tier.stats.count == 1)
    expect(disk.tier.stats.expirations == 3)
    expect(Set(disk.dropped.all) == ["short", "tier", "long"])
    disk.checkInvariants()
  }

  @Test func anExpiredEntryDidNotExist() throws {
    let disk = try fixture(timeToLive: second)
    disk.put("k", [1])
    disk.time.advance(seconds: 2)
    expect(!disk.put("k", [2]).existed)
    disk.time.advance(seconds: 2)
    expect(!disk.remove("k").existed)
    disk.checkInvariants()
  }

  /// Of two calls that began one after the other, the later one may be submitted first. What had
  /// expired when it began does not exist for it.
  @Test func aBatchIsDecidedByItsLatestTime() throws {
    let disk = try DiskFixture()
    disk.put("key", [1], timeToLive: 5 * second)
    let early = disk.write(.put, Array("other".utf8), [2])
    disk.time.advance(seconds: 5)
    let add = disk.write(.put, Array("key".utf8), [3])
    add.condition = .absent
    for write in [add, early] {
      disk.prepare(write)
      disk.submit(write)
    }
    for write in [add, early] { disk.complete(write) }
    expect(!add.isUnmet && add.existing == 0)
    expect(try disk.get("key") == [3])
    disk.checkInvariants()
  }

  @Test func theSweepPassesThoseWithTheirOwnExpiry() throws {
    let disk = try fixture(timeToLive: 10 * second)
    for i in 0..<600 { disk.put("own\(i)", [1], timeToLive: 1000 * second) }
    for i in 0..<600 { disk.put("tier\(i)", [1]) }
    for i in 0..<10 { try disk.touch("own\(i)") }
    disk.time.advance(seconds: 5)
    for i in 0..<20 { try disk.touch("tier\(i)") }
    disk.time.advance(seconds: 6)
    disk.maintain()
    expect(disk.tier.stats.count == 620)
    disk.time.advance(seconds: 5)
    disk.maintain()
    expect(disk.tier.stats.count == 600)
    disk.checkInvariants()
  }

  @Test func timeToIdleIsLengthenedByReads() throws {
    let disk = try fixture()
    disk.put("a", [1], timeToIdle: 10 * second)
    disk.put("b", [1], timeToIdle: 10 * second)
    disk.put("c", [1])
    for _ in 0..<5 {
      disk.time.advance(seconds: 6)
      expect(try disk.get("a") == [1])
      disk.maintain()
    }
    expect(try disk.get("b") == nil)
    expect(try disk.get("c") == [1])
    expect(disk.tier.stats.count == 2)
    // What was gathered is in the row when it is flushed, or at the end.
    try disk.reopen()
    disk.time.advance(seconds: 6)
    expect(try disk.get("a") == [1])
    disk.time.advance(seconds: 11)
    disk.maintain()
    expect(disk.tier.stats.count == 1)
    disk.checkInvariants()
  }

  @Test func theTiersTimeToIdleAndTheTierAbove() throws {
    let disk = try fixture(timeToIdle: 10 * second)
    for i in 0..<1500 { disk.put("k\(i)", [1]) }
    disk.put("ever", [1], timeToIdle: Record.never)
    disk.time.advance(seconds: 9)
    let read = disk.moment.time
    disk.observer.lastAccess = { key in String(decoding: key, as: UTF8.self) == "k7" ? read : nil }
    Array("k8".utf8).withUnsafeBytes { disk.tier.noteAccess($0, at: read) }
    disk.time.advance(seconds: 2)
    disk.maintain()
    expect(try disk.keys() == ["ever", "k7", "k8"])
    expect(disk.tier.stats.count == 3)
    try disk.tier.setLimits(TierLimits(ages: Ages(timeToIdle: second)), at: disk.moment)
    disk.maintain()
    expect(try disk.keys() == ["ever"])
    disk.checkInvariants()
  }

  @Test func accessTimesAreWrittenInBatches() throws {
    let disk = try fixture()
    for i in 0..<5000 { disk.put("k\(i)", [1]) }
    disk.time.advance(seconds: 100)
    for i in 0..<5000 { _ = try disk.get("k\(i)") }
    expect(disk.query("SELECT count(*) FROM entries WHERE uses > 0")[0][0] == 0)
    try disk.tier.flush()
    // Bounded, and lossy by design.
    expect(
      disk.query("SELECT count(*) FROM entries WHERE uses = 1")[0][0]
        == Int64(AccessTimes.capacity))
    let now = disk.moment.time
    expect(disk.query("SELECT max(accessed) FROM entries")[0][0] == now)
    disk.checkInvariants()
  }

  @Test func aClockThatGoesBackNeitherEndsNorKeeps() throws {
    let disk = try fixture(timeToLive: 10 * second)
    disk.put("later", [1])
    disk.put("own", [1], timeToLive: 10 * second)
    disk.time.advance(seconds: -3600)
    disk.put("now", [1])
    expect(try disk.keys() == ["later", "now", "own"])
    disk.time.advance(seconds: 11)
    expect(try disk.get("now") == nil)
    expect(try disk.get("later") == [1])
    disk.maintain()
    disk.checkInvariants()
  }

  @Test func aWallClockSetBackAcrossAReboot() throws {
    let disk = try fixture()
    disk.put("k", [1], timeToLive: 10 * second)
    disk.put("ever", [1])
    expect(disk.close() == nil)
    let future = Clock.read(0) + 3600 * second
    disk.query(
      """
      UPDATE entries SET created = \(future), accessed = \(future),
        expires = CASE expires WHEN 0 THEN 0 ELSE \(future + 10 * second) END
      """)
    disk.query("UPDATE meta SET boot_id = x'00112233445566778899aabbccddeeff'")
    disk.query("UPDATE meta SET last_time = \(future)")
    try disk.open(hostsClock: false)
    expect(try disk.get("k") == [1])
    disk.maintain()
    let now = disk.moment.time
    let row = disk.query("SELECT created, expires FROM entries WHERE expires > 0")[0]
    expect(abs(row[0] - now) < 60 * second)
    expect(row[1] - row[0] == 10 * second)
    expect(disk.query("SELECT max(created) FROM entries")[0][0] <= now)
    disk.checkInvariants()
  }

  @Test func withinABootTheFirstAnchorCounts() throws {
    let disk = try fixture()
    expect(disk.close() == nil)
    try disk.open(hostsClock: false)
    expect(disk.close() == nil)
    let offset = disk.query("SELECT boot_offset FROM meta")[0][0]
    // As if the wall clock had been an hour ahead when the boot's first opening asked it.
    disk.query("UPDATE meta SET boot_offset = \(offset + 3600 * second)")
    try disk.open(hostsClock: false)
    let ahead = disk.moment.time - Clock.read(0)
    expect(abs(ahead - 3600 * second) < 60 * second)
  }

  @Test func theIndexServesTheSweep() throws {
    let disk = try fixture()
    let plan = disk.text(
      """
      EXPLAIN QUERY PLAN SELECT max(slot, ifnull(id, 0)) FROM entries
      WHERE expires > 0 AND expires < 9223372036854775807 AND expires <= 5
      ORDER BY expires LIMIT 9
      """, column: 3)
    expect(plan.count == 1 && plan[0].contains("entries_expires"))
    disk.put("k", [1], timeToLive: second)
    disk.put("never", [1], timeToLive: Record.never)
    disk.put("none", [1])
    // The index holds what has an end of its own, and nothing else.
    expect(
      disk.query(
        """
        SELECT count(*) FROM entries INDEXED BY entries_expires
        WHERE expires > 0 AND expires < 9223372036854775807
        """)[0][0] == 1)
  }
}
