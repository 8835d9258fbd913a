import Testing

@testable import Hutch

/// The order of rows, which is that of writes: what is put or touched again gets the highest id.
@Suite struct DiskOrderTests {
  private func check(_ disk: DiskFixture, _ order: [String], page: Int) throws {
    expect(try disk.walk(page: page) == order)
    expect(try disk.walk(page: page, descending: true) == order.reversed())
    disk.checkInvariants()
  }

  @Test(arguments: 0..<4)
  func agreesWithAList(run: Int) throws {
    let seed = UInt64.random(in: 0...UInt64.max)
    var random = DiskModelTests.Random(state: seed)
    var disk = try DiskFixture()
    var order: [String] = []
    for step in 0..<500 {
      let key = "key-\(Int.random(in: 0..<40, using: &random))"
      let isThere = order.contains(key)
      switch Int.random(in: 0..<100, using: &random) {
      case 0..<60:
        disk.put(key, DiskFixture.bytes(Int.random(in: 0..<8000, using: &random)))
        order.removeAll { $0 == key }
        order.append(key)
      case 60..<75:
        try disk.touch(key)
        if isThere {
          order.removeAll { $0 == key }
          order.append(key)
        }
      case 75..<90:
        disk.remove(key)
        order.removeAll { $0 == key }
      case 90..<96:
        expect(
          try disk.walk(page: Int.random(in: 1..<9, using: &random)) == order,
          "seed \(seed), step \(step)")
      case 96:
        disk.clear()
        order = []
      case 97:
        disk.maintain()
      case 98:
        try disk.reopen()
      default:
        let killed = try disk.copyOfKilled()
        expect(disk.close() == nil)
        try killed.open()
        disk = killed
      }
    }
    try check(disk, order, page: 7)
  }

  @Test func longRunsOfRowsPutAgain() throws {
    let disk = try DiskFixture()
    var order = (0..<3000).map { "k\($0)" }
    for key in order { disk.put(key, [1]) }
    try check(disk, order, page: 100)
    let again = order.filter { !["k0", "k1500", "k2999"].contains($0) }
    for key in again { disk.put(key, [2]) }
    order = ["k0", "k1500", "k2999"] + again
    try check(disk, order, page: 1000)
    disk.remove("k0")
    try check(disk, Array(order[1...]), page: 64)
    disk.clear()
    disk.put("k7", [3])
    disk.maintain()
    expect(disk.query("SELECT count(*), sum(dead) FROM entries, meta")[0] == [1, 0])
    try check(disk, ["k7"], page: 1)
  }

  @Test func theOldestGoFirst() throws {
    var options = DiskFixture.unlimited
    options.limits.ages = Ages(timeToLive: 10 * second)
    let disk = try DiskFixture(options)
    for i in 0..<2000 { disk.put("k\(i)", [1]) }
    disk.time.advance(seconds: 6)
    for i in 10..<2000 { disk.put("k\(i)", [2]) }
    disk.time.advance(seconds: 6)
    disk.maintain()
    expect(disk.tier.stats.count == 1990)
    disk.time.advance(seconds: 6)
    disk.put("new", [3])
    disk.maintain()
    expect(try disk.walk(page: 10) == ["new"])
    disk.checkInvariants()
  }

  @Test func theLeastRecentlyUsedGo() throws {
    var options = DiskFixture.unlimited
    options.limits.count = 5000
    let disk = try DiskFixture(options)
    for i in 0..<5000 { disk.put("k\(i)", [1]) }
    disk.time.advance(seconds: 1)
    for i in 100..<5000 { disk.put("k\(i)", [2]) }
    // A clear leaves rows with lower ids than all that follow.
    disk.clear()
    for i in 0..<5000 { disk.put("k\(i)", [3]) }
    disk.time.advance(seconds: 1)
    for i in 2500..<5000 { disk.put("k\(i)", [4]) }
    for i in 0..<1000 { disk.put("new\(i)", [5]) }
    disk.checkInvariants()
    expect(disk.tier.stats.count == 5000)
    // By samples of 64 runs of 16 rows, each for 64 evictions. All 64 are of the older half if
    // seven runs or more are there: this is what the bound allows to miss in four samples of the
    // 16. In the end 30 of 100 rows are of that half, or 24 runs of 100 if the densities are wrong
    // by a fifth: a sample misses with a probability of 0.003 at most, and five of 16 with 1e-9.
    // Random victims would be 453 of the older half, with a deviation of 16.
    let old = try (0..<2500).filter { try disk.get("k\($0)", isAccess: false) == nil }.count
    expect(old > 700, "\(old)")
  }

  /// A short row that is put again changes the page it was on, the last one, and at most two of the
  /// keys' index; now and then it makes a new page. A long row changes its own pages, and at most
  /// two of the ids' index.
  @Test(arguments: [(500, 9), (2000, 7), (10_000, 11)])
  func aReplacementChangesFewPages(size: Int, halfPages: Int) throws {
    let disk = try DiskFixture()
    // With these no number of a row takes more bytes later: the rows keep their sizes.
    for i in 0..<300 { disk.put("short\(i)", [1]) }
    for i in 0..<200 { disk.put("k\(i)", DiskFixture.bytes(size)) }
    let manifest = disk.tier.committer.manifest!
    for round in 2..<4 {
      var changed = 0
      for i in 0..<50 {
        let before = manifest.logUsed
        disk.put("k\(i * 7 % 200)", DiskFixture.bytes(size, seed: UInt64(round)))
        // The log may have begun anew.
        if manifest.logUsed > before { changed += (manifest.logUsed - before) / (4096 + 24) }
      }
      expect(changed > 0 && changed <= 50 * halfPages / 2, "\(changed)")
    }
  }

  @Test func nothingIsSorted() throws {
    let disk = try DiskFixture()
    let orders = [
      ("slot > 5 ORDER BY slot", "INTEGER PRIMARY KEY (rowid>?)"),
      ("slot < 5 ORDER BY slot DESC", "INTEGER PRIMARY KEY (rowid<?)"),
      ("id > 5 AND id > slot ORDER BY id", "INDEX entries_id (id>?)"),
      ("id < 5 AND id > slot ORDER BY id DESC", "INDEX entries_id (id<?)"),
    ]
    for (order, by) in orders {
      let plan = disk.text("EXPLAIN QUERY PLAN SELECT key FROM entries WHERE \(order)", column: 3)
      expect(plan.count == 1 && plan[0].contains("USING \(by)"))
    }
  }

  /// What the file of a manifest says may be anything: a walk ends, and the ids that follow are
  /// no others'.
  @Test(arguments: [
    "slot = -slot", "slot = slot - 20", "slot = slot + (1 << 59)", "slot = slot + (1 << 61)",
    "slot = 9223372036854775787 + slot", "id = -slot", "id = 0", "id = slot", "id = slot - 10",
    "id = slot + 1", "id = 15", "id = 1000", "id = slot + (1 << 59)", "id = slot + (1 << 61)",
    "id = 9223372036854775807", "id = 'text'", "id = x'01'", "id = 12.5",
  ])
  func idsThatCannotBe(change: String) throws {
    let disk = try DiskFixture()
    for i in 0..<20 { disk.put("k\(i)", [1]) }
    expect(disk.close() == nil)
    disk.query("UPDATE entries SET \(change) WHERE slot > 10")
    try disk.open()
    try disk.touch("k12")
    disk.put("k13", DiskFixture.bytes(5000))
    expect(try disk.walk(page: 3).count <= 20)
    disk.maintain()
    disk.put("new", [2])
    disk.maintain()
    if disk.tier.isUp { expect(try disk.get("new") == [2]) }
  }

  @Test func anOlderFormatIsSetAside() throws {
    let disk = try DiskFixture()
    disk.put("k", [1])
    expect(disk.close() == nil)
    disk.query("PRAGMA user_version = 1")
    try disk.open()
    expect(try disk.get("k") == nil)
    expect(disk.entries.contains { $0.hasPrefix("hutch-") && $0.hasSuffix(".damaged") })
    disk.put("k", [2])
    try disk.reopen()
    expect(try disk.get("k") == [2])
    disk.checkInvariants()
  }
}
