import Testing

@testable import Hutch

/// The sums of the rows, which are the meta row's or the newest row's (`Sums`).
@Suite struct DiskSumsTests {
  private func totals(_ disk: DiskFixture) -> (newest: Int64, row: [Int64]) {
    (
      disk.query("SELECT newest FROM meta")[0][0],
      disk.query("SELECT id, total_count, total_bytes FROM entries ORDER BY id DESC LIMIT 1")[0]
    )
  }

  /// After each commit the process is killed: what an opening then takes for the sums is compared
  /// with a count of the rows.
  @Test(arguments: [0, 12])
  func areRightAfterAKillBetweenAnyTwoCommits(limit: UInt64) throws {
    let seed = UInt64.random(in: 0...UInt64.max)
    var random = DiskModelTests.Random(state: seed)
    let disk = try DiskFixture(
      StorageOptions(inlineThreshold: 3000, limits: TierLimits(count: limit)))
    var carried = 0
    for step in 0..<60 {
      let key = "k\(Int.random(in: 0..<20, using: &random))"
      switch Int.random(in: 0..<20, using: &random) {
      case 0: disk.clear()
      case 1, 2: disk.remove(key)
      case 3...5: try disk.touch(key, timeToLive: Int64.random(in: 0...1, using: &random) * 1000)
      case 6: disk.maintain()
      case 7: try disk.tier.flush(at: disk.moment)
      default:
        let size = [10, 500, 2000, 5000][Int.random(in: 0..<4, using: &random)]
        disk.put(key, DiskFixture.bytes(size, seed: seed), timeToIdle: step == 30 ? 1000 : 0)
      }
      disk.time.advance(seconds: 1)
      let killed = try disk.copyOfKilled()
      try killed.open()
      #expect(killed.tier.stats.count == disk.tier.stats.count, "seed \(seed), step \(step)")
      let report = try killed.tier.check(isQuick: true, at: killed.moment)
      #expect(report.counters == 0, "seed \(seed), step \(step)")
      disk.checkInvariants()
      if disk.tier.stats.count > 0 {
        let (newest, row) = totals(disk)
        if row[0] > newest { carried += 1 }
      }
    }
    #expect(carried > 0, "seed \(seed)")
  }

  @Test func aPutThatEvictsNothingLeavesTheMetaRow() throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    disk.remove("a")
    let meta = disk.query("SELECT newest, count, last_time FROM meta")[0]
    disk.put("a", [1])
    disk.put("b", [2])
    disk.put("a", [3])
    try disk.touch("b", timeToLive: 1_000_000_000_000)
    #expect(disk.query("SELECT newest, count, last_time FROM meta")[0] == meta)
    #expect(totals(disk).row[1] == 2 && totals(disk).row[0] == meta[0] + 4)
    disk.checkInvariants()
    disk.remove("b")
    #expect(totals(disk).newest == meta[0] + 4)
    disk.checkInvariants()
  }

  /// The id of a newest row that was removed is not given out again by a later opening either.
  @Test func idsAreNotUsedAgain() throws {
    let disk = try DiskFixture()
    for key in ["a", "b", "c"] { disk.put(key, [1]) }
    disk.remove("c")
    let killed = try disk.copyOfKilled()
    try killed.open()
    killed.put("d", [1])
    #expect(killed.query("SELECT max(id) FROM entries")[0][0] == 4)
    killed.checkInvariants()
  }

  @Test(arguments: ["total_count = -1", "total_bytes = 1 << 60", "total_count = 'two'"])
  func totalsThatCannotBeArePassedOver(change: String) throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    disk.put("b", [2])
    #expect(disk.close() == nil)
    disk.query("UPDATE meta SET newest = 0")
    disk.query("UPDATE entries SET \(change)")
    try disk.open()
    #expect(disk.tier.stats.count == 2)
    #expect(try disk.get("a") == [1] && disk.get("b") == [2])
    disk.put("c", [3])
    disk.checkInvariants()
  }

  @Test func totalsThatAreWrongAreMended() throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    disk.put("b", [2])
    let killed = try disk.copyOfKilled()
    killed.query("UPDATE entries SET total_count = 7, total_bytes = total_bytes + 90000")
    try killed.open()
    #expect(killed.tier.stats.count == 7)
    let report = try killed.tier.check(isQuick: true, at: killed.moment)
    #expect(report.counters == 1 && report.damaged == 0)
    #expect(killed.tier.stats.count == 2)
    killed.put("c", [3])
    killed.checkInvariants()
  }
}
