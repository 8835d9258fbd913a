import Testing

@testable import Hutch

/// The sums of the rows, which are the meta row's or the newest row's (`Sums`).
@Suite struct DiskSumsTests {
  private func totals(_ disk: DiskFixture) -> (newest: Int64, row: [Int64]) {
    (
      disk.query("SELECT newest FROM meta")[0][0],
      disk.query(
        """
        SELECT \(DiskFixture.id), total_count, total_bytes FROM entries ORDER BY 1 DESC LIMIT 1
        """)[0]
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
    var key = "k0"
    for step in 0..<60 {
      // The newest row more often than others.
      if Int.random(in: 0..<3, using: &random) > 0 {
        key = "k\(Int.random(in: 0..<20, using: &random))"
      }
      switch Int.random(in: 0..<20, using: &random) {
      case 0: disk.clear()
      case 1, 2: disk.remove(key)
      case 3...5: try disk.touch(key, timeToLive: Int64.random(in: 0...1, using: &random) * 1000)
      case 6: disk.maintain()
      case 7: try disk.tier.flush()
      default:
        let size = [10, 500, 2000, 5000][Int.random(in: 0..<4, using: &random)]
        disk.put(key, DiskFixture.bytes(size, seed: seed), timeToIdle: step == 30 ? 1000 : 0)
      }
      disk.time.advance(seconds: 1)
      let killed = try disk.copyOfKilled()
      try killed.open()
      expect(killed.tier.stats.count == disk.tier.stats.count, "seed \(seed), step \(step)")
      let report = try killed.tier.check(isQuick: true, at: killed.moment)
      expect(report.counters == 0, "seed \(seed), step \(step)")
      disk.checkInvariants()
      if disk.tier.stats.count > 0 {
        let (newest, row) = totals(disk)
        if row[0] > newest { carried += 1 }
      }
    }
    expect(carried > 0, "seed \(seed)")
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
    expect(disk.query("SELECT newest, count, last_time FROM meta")[0] == meta)
    expect(totals(disk).row[1] == 2 && totals(disk).row[0] == meta[0] + 4)
    disk.checkInvariants()
    disk.remove("b")
    expect(totals(disk).newest == meta[0] + 4)
    disk.checkInvariants()
  }

  /// A put over the newest row changes that row alone, unless another one would have to go with it
  /// or the sums are the meta row's.
  @Test func aPutOverTheNewestRowLeavesItInItsPlace() throws {
    let disk = try DiskFixture(StorageOptions(inlineThreshold: 3000))
    for key in ["a", "b"] { disk.put(key, [1]) }
    let meta = disk.query("SELECT newest, count, bytes FROM meta")[0]
    for size in [2000, 10, 500] {
      disk.time.advance(seconds: 1)
      let value = DiskFixture.bytes(size, seed: UInt64(size))
      disk.put("b", value)
      expect(disk.query("SELECT max(\(DiskFixture.id)), count(*) FROM entries")[0] == [2, 2])
      let killed = try disk.copyOfKilled()
      try killed.open()
      expect(try killed.get("b") == value)
      expect(killed.tier.stats.count == 2)
      killed.checkInvariants()
      disk.checkInvariants()
    }
    expect(disk.query("SELECT newest, count, bytes FROM meta")[0] == meta)

    func expectMove(_ id: Int64, _ put: () -> Void) {
      put()
      expect(disk.query("SELECT max(\(DiskFixture.id)) FROM entries")[0][0] == id)
      disk.checkInvariants()
    }
    let life: Int64 = 1_000_000_000_000
    expectMove(3) { disk.put("b", [1], timeToLive: life) }
    expectMove(3) { disk.put("b", [2], timeToLive: 2 * life) }
    expectMove(4) { disk.put("b", [1]) }
    expectMove(5) { disk.put("b", DiskFixture.bytes(5000, seed: 1)) }
    expectMove(6) { disk.put("b", [1]) }
    expectMove(7) { disk.put("b", [1], tag: [1]) }
    expectMove(8) { disk.put("b", [1]) }
    expectMove(9) { disk.put("a", [1]) }
    disk.remove("b")
    expectMove(10) { disk.put("a", [2]) }
    expectMove(10) { disk.put("a", [3]) }
    disk.clear()
    expectMove(11) { disk.put("a", [4]) }
  }

  /// The id of a newest row that was removed is not given out again by a later opening either.
  @Test func idsAreNotUsedAgain() throws {
    let disk = try DiskFixture()
    for key in ["a", "b", "c"] { disk.put(key, [1]) }
    disk.remove("c")
    let killed = try disk.copyOfKilled()
    try killed.open()
    killed.put("d", [1])
    expect(killed.query("SELECT max(\(DiskFixture.id)) FROM entries")[0][0] == 4)
    killed.checkInvariants()
  }

  @Test(arguments: ["total_count = -1", "total_bytes = 1 << 60", "total_count = 'two'"])
  func totalsThatCannotBeArePassedOver(change: String) throws {
    let disk = try DiskFixture()
    disk.put("a", [1])
    disk.put("b", [2])
    expect(disk.close() == nil)
    disk.query("UPDATE meta SET newest = 0")
    disk.query("UPDATE entries SET \(change)")
    try disk.open()
    expect(disk.tier.stats.count == 2)
    expect(try disk.get("a") == [1] && disk.get("b") == [2])
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
    expect(killed.tier.stats.count == 7)
    let report = try killed.tier.check(isQuick: true, at: killed.moment)
    expect(report.counters == 1 && report.damaged == 0)
    expect(killed.tier.stats.count == 2)
    killed.put("c", [3])
    killed.checkInvariants()
  }
}
