import Foundation
import Testing

@testable import Hutch

@Suite struct DiskLimitsTests {
  private func fixture(_ limits: TierLimits, _ storage: StorageKind = .unspecified) throws
    -> DiskFixture
  {
    try DiskFixture(StorageOptions(kind: storage, limits: limits))
  }

  @Test func countEvictsTheLeastRecentlyUsedInOrder() throws {
    let disk = try fixture(TierLimits(count: 10))
    for i in 0..<10 {
      disk.put("k\(i)", [UInt8(i)])
      disk.time.advance(seconds: 1)
    }
    // Reads that are still in memory count.
    for i in [0, 2, 4] { _ = try disk.get("k\(i)") }
    disk.time.advance(seconds: 1)
    for i in 10..<14 {
      disk.put("k\(i)", [UInt8(i)])
      disk.time.advance(seconds: 1)
      disk.checkInvariants()
    }
    expect(disk.dropped.all == ["k1", "k3", "k5", "k6"])
    for i in [0, 2, 4, 7, 8, 9, 10, 11, 12, 13] { expect(try disk.get("k\(i)") != nil) }
    expect(disk.tier.stats.evictions == 4)
  }

  @Test func bytesAreNeverExceeded() throws {
    for limit in [100_000, 1_000_000, 6_000_000] as [UInt64] {
      let disk = try fixture(TierLimits(cost: limit, maxEntry: TierLimits.quarter))
      var random = SystemRandomNumberGenerator()
      let largest = Int(limit / 4) - 5000
      for i in 0..<200 {
        let size =
          i % 3 == 0
          ? Int.random(in: 0...largest, using: &random) : Int.random(in: 0...2000, using: &random)
        let write = disk.put("k\(i % 150)", [UInt8](repeating: UInt8(i & 255), count: size))
        expect(write.outcome == .stored)
        expect(try disk.get("k\(i % 150)")?.count == size)
        expect(disk.tier.stats.cost <= limit)
        if i % 100 == 50 { disk.maintain() }
      }
      disk.checkInvariants()
      expect(disk.tier.stats.count > 3)
      expect(disk.tier.stats.evictions == UInt64(disk.dropped.all.count))
    }
  }

  @Test func tooLargeIsRefusedAndTheOldOneGoes() throws {
    let disk = try fixture(TierLimits(cost: 1_000_000, maxEntry: 10_000))
    disk.put("k", [1])
    let write = disk.put("k", DiskFixture.bytes(50_000))
    expect(write.outcome == .tooLarge && write.failure == nil && write.existed)
    expect(try disk.get("k") == nil)
    expect(disk.files(in: "content").isEmpty)
    expect(disk.tier.stats.refusals == 1)
    disk.checkInvariants()
  }

  @Test func anEntryOfTheWholeLimitIsTakenAlone() throws {
    let disk = try fixture(TierLimits(cost: 1_000_000))
    disk.put("a", DiskFixture.bytes(300_000))
    let write = disk.put("b", DiskFixture.bytes(980_000))
    expect(write.outcome == .stored)
    expect(try disk.get("a") == nil)
    expect(try disk.get("b")?.count == 980_000)
    disk.checkInvariants()
  }

  @Test func newLimitsHoldAtOnce() throws {
    let disk = try fixture(TierLimits())
    for i in 0..<1000 { disk.put("k\(i)", DiskFixture.bytes(i % 50 == 0 ? 30_000 : 100)) }
    try disk.tier.setLimits(TierLimits(count: 100), at: disk.moment)
    expect(disk.tier.stats.count == 100)
    disk.checkInvariants()
    try disk.tier.setLimits(TierLimits(cost: 60_000), at: disk.moment)
    disk.checkInvariants()
    expect(disk.query("SELECT limit_cost, limit_count FROM meta")[0] == [60_000, 0])
  }

  @Test func expiredEntriesMakeRoomFirst() throws {
    let disk = try fixture(TierLimits(count: 10))
    for i in 0..<5 {
      disk.put("old\(i)", [1])
      disk.time.advance(seconds: 1)
    }
    for i in 0..<5 { disk.put("short\(i)", [1], timeToLive: second) }
    disk.time.advance(seconds: 5)
    for i in 0..<5 { disk.put("new\(i)", [1]) }
    for i in 0..<5 { expect(try disk.get("old\(i)") == [1]) }
    expect(disk.tier.stats.expirations == 5)
    expect(disk.tier.stats.evictions == 0)
    disk.checkInvariants()
  }

  @Test func deadRowsMakeRoomBeforeLiveOnes() throws {
    let disk = try fixture(TierLimits(cost: 600_000, maxEntry: 0))
    for i in 0..<200 { disk.put("k\(i)", DiskFixture.bytes(1000)) }
    disk.clear()
    for i in 0..<200 {
      disk.put("n\(i)", DiskFixture.bytes(1000))
      expect(disk.tier.stats.cost <= 600_000)
    }
    expect(disk.dropped.all.isEmpty)
    for i in 0..<200 { expect(try disk.get("n\(i)") != nil) }
    disk.checkInvariants()
  }

  @Test func manyEntriesAreEvictedBySample() throws {
    let disk = try fixture(TierLimits(count: 6000))
    for i in 0..<6000 { disk.put("k\(i)", [1]) }
    disk.time.advance(seconds: 1)
    // The second half was read.
    for i in 3000..<6000 {
      Array("k\(i)".utf8).withUnsafeBytes { disk.tier.noteAccess($0, at: disk.moment.time) }
    }
    try disk.tier.flush()
    disk.time.advance(seconds: 1)
    for i in 0..<1000 { disk.put("n\(i)", [1]) }
    expect(disk.tier.stats.count == 6000)
    let wrong = disk.dropped.all.filter { Int($0.dropFirst())! >= 3000 }
    expect(wrong.isEmpty, "a sample has unread ones enough")
    disk.checkInvariants()
  }

  /// Far more ids than rows: of the old ones few are left, and those were read.
  @Test func aSampleIsTakenOfTheRowsAndNotOfTheirIds() throws {
    let disk = try fixture(TierLimits(count: 5000))
    func read(_ i: Int) {
      Array("hot\(i)".utf8).withUnsafeBytes { disk.tier.noteAccess($0, at: disk.moment.time) }
    }
    for i in 0..<500 { disk.put("hot\(i)", [1]) }
    for i in 0..<25_000 {
      disk.put("w\(i)", [1])
      if i % 500 == 499 {
        disk.time.advance(seconds: 1)
        for i in 0..<500 { read(i) }
        disk.maintain()
        disk.time.advance(seconds: 1)
      }
    }
    expect(disk.tier.stats.count == 5000)
    let hot = try (0..<500).filter { try disk.info("hot\($0)") != nil }.count
    expect(hot > 475, "what is read stays: \(hot) of 500")
    // Of what was written once, the newest stays.
    let newest = try (22_750..<25_000).filter { try disk.info("w\($0)") != nil }.count
    expect(newest > 2_080, "\(newest) of 2,250")
    // What was last among them goes first: not as in a queue, but about.
    let old = try (16_650..<19_150).filter { try disk.info("w\($0)") != nil }.count
    expect(old < 833, "\(old) of 2,500")
    disk.checkInvariants()
  }

  @Test func densitiesAreLearnt() throws {
    var density = RowDensity()
    var state: UInt64 = 7
    func random(_ bound: Int64) -> Int64 {
      state = state &* 6_364_136_223_846_793_005 &+ 1_442_695_040_888_963_407
      return Int64((state >> 33) % UInt64(bound))
    }
    // Rows: each thousandth of the first million, all of the last ten thousand.
    func next(_ id: Int64) -> Int64 { id < 1_000_000 ? (id / 1000 + 1) * 1000 : id + 1 }
    var dense = 0
    for round in 0..<1_200 {
      density.cover(from: 0, to: 1_010_000)
      let start = density.place(random) { round % 8 == 0 }
      var end = start
      for _ in 0..<16 { end = min(next(end), 1_010_000) }
      density.note(16, after: start, upTo: end)
      if round >= 1_000 && start >= 995_000 { dense += 1 }
    }
    // They are ten in eleven of all rows.
    expect(dense > 120 && dense < 200, "\(dense) of 200")
    // Ids that no honest manifest has, and a range that shrinks.
    density.cover(from: 0, to: Int64(1) << 60)
    density.note(16, after: 5, upTo: 5)
    density.cover(from: 1 << 59, to: (1 << 59) + 3)
    for _ in 0..<100 {
      let start = density.place(random) { false }
      expect(start >= 1 << 59 && start < (1 << 59) + 3)
    }
  }

  @Test(arguments: [Sharing.exclusive, .shared])
  func limitsAreTheDirectorys(sharing: Sharing) throws {
    let wanted = TierLimits(
      cost: 1 << 30, count: 5000, maxEntry: 1 << 20,
      ages: Ages(timeToLive: 1000 * second, timeToIdle: 500 * second), minFree: 4096)
    let disk = try DiskFixture(
      StorageOptions(limits: wanted, sharing: sharing))
    for i in 0..<300 { disk.put("k\(i)", DiskFixture.bytes(400_000)) }
    expect(disk.close() == nil)

    // What is not named stays as the directory has it.
    disk.options.limits = .defaultDisk
    disk.options.given = []
    try disk.open()
    disk.maintain()
    expect(disk.tier.limits == wanted)
    expect(disk.tier.stats.count == 300 && !disk.tier.apply(disk.options))
    expect(disk.observer.lines.isEmpty)
    disk.checkInvariants()
    expect(disk.close() == nil)

    // What is named changes it.
    disk.options.limits.count = 100
    disk.options.given = .count
    try disk.open()
    disk.maintain()
    expect(disk.tier.limits == wanted.changed(.count, to: TierLimits(count: 100)))
    expect(disk.tier.stats.count == 100)
    expect(disk.observer.lines.count == 1 && disk.observer.lines[0].level == .info)
    disk.observer.lines = []

    // So does a setter, also when the tier goes and comes back.
    try disk.tier.setLimits(wanted, at: disk.moment)
    try FileManager.default.moveItem(atPath: disk.path, toPath: disk.path + "-away")
    expect(disk.put("x", [1]).outcome == .failed)
    try FileManager.default.moveItem(atPath: disk.path + "-away", toPath: disk.path)
    disk.maintain()
    expect(disk.tier.isUp && disk.tier.limits == wanted)
    expect(disk.close() == nil)
    disk.observer.lines = []
    disk.options.given = []
    try disk.open()
    expect(disk.tier.limits == wanted && disk.observer.lines.isEmpty)

    guard sharing == .shared else { return }
    // Beside another one, likewise.
    let other = try DiskFixture(disk.options, opening: false, at: disk.path)
    other.options.given = .cost
    other.options.limits.cost = 2 << 30
    try other.open()
    expect(other.tier.limits == wanted.changed(.cost, to: TierLimits(cost: 2 << 30)))
    disk.put("y", [1])
    expect(disk.tier.limits == other.tier.limits)
    expect(other.close() == nil)
  }

  @Test func theLogStaysWithinItsBound() throws {
    let disk = try fixture(TierLimits())
    var largest = 0
    for i in 0..<1500 {
      disk.put("k\(i % 100)", DiskFixture.bytes(9000, seed: UInt64(i)))
      if i % 10 == 0 {
        let log = try FileManager.default.attributesOfItem(
          atPath: disk.path + "/manifest.sqlite-wal")[.size]
        largest = max(largest, (log as! NSNumber).intValue)
        _ = try disk.get("k1")
      }
    }
    expect(largest <= 5 << 20)
    disk.checkInvariants()
  }

  @Test func threadsNeverExceedLimits() throws {
    let limit: UInt64 = 2_000_000
    let disk = try fixture(TierLimits(cost: limit, count: 150, maxEntry: TierLimits.quarter))
    DispatchQueue.concurrentPerform(iterations: 6) { thread in
      for i in 0..<150 {
        disk.put("t\(thread)-\(i)", [UInt8](repeating: 1, count: i % 5 == 0 ? 100_000 : 3000))
        let stats = disk.tier.stats
        expect(stats.count <= 150 && stats.cost <= limit)
      }
    }
    disk.checkInvariants()
  }

  /// A file system of the test's own: what the tier does not take is free, or another program's.
  private func pretend(_ disk: DiskFixture, _ all: Int64, others: @escaping () -> Int64 = { 0 }) {
    let tier = disk.tier!
    tier.committer.space.forTests = { [unowned tier] in
      (max(0, all - Int64(tier.stats.cost) - others()), all)
    }
  }

  @Test(arguments: [StorageKind.mixed, .sqlite, .file])
  func freeSpaceStays(storage: StorageKind) throws {
    let all: Int64 = 60 << 20
    let minFree: Int64 = 50 << 20
    let disk = try fixture(TierLimits(minFree: UInt64(minFree)), storage)
    pretend(disk, all)
    for i in 0..<600 {
      expect(disk.put("k\(i)", DiskFixture.bytes(30_000)).outcome == .stored)
      disk.time.advance(seconds: 1)
      expect(all - Int64(disk.tier.stats.cost) > minFree - (1 << 20))
    }
    expect(disk.tier.stats.evictions > 0 && disk.tier.stats.count > 200)
    expect(disk.dropped.all.first == "k0")
    disk.maintain()
    expect(all - Int64(disk.tier.stats.cost) >= minFree)
    disk.checkInvariants()
  }

  @Test func whereNothingIsFreePutsAreRefused() throws {
    let disk = try fixture(TierLimits())
    let taken = Others()
    pretend(disk, 100 << 20, others: { taken.bytes })
    for i in 0..<100 { disk.put("k\(i)", DiskFixture.bytes(10_000)) }
    // A limit that holds already changes nothing.
    try disk.tier.setLimits(TierLimits(minFree: 50 << 20), at: disk.moment)
    expect(disk.tier.stats.count == 100)
    // Others take so much that all of ours is not enough.
    taken.bytes = 99 << 20
    disk.maintain()
    expect(disk.tier.stats.count == 0 && disk.dropped.all.count == 100)
    for size in [10, 10_000, 100_000] {
      let write = disk.put("new", DiskFixture.bytes(size))
      expect(write.outcome == .noSpace && write.failure?.status == .noSpace)
      expect(try disk.get("new") == nil)
    }
    expect(disk.files(in: "content").isEmpty)
    taken.bytes = 0
    expect(disk.put("new", [1]).outcome == .stored)
    disk.checkInvariants()
  }

  @Test func aNewMinimumHoldsAtOnce() throws {
    let disk = try fixture(TierLimits())
    let all: Int64 = 8 << 20
    pretend(disk, all)
    for i in 0..<500 { disk.put("k\(i)", DiskFixture.bytes(10_000)) }
    try disk.tier.setLimits(TierLimits(minFree: 6 << 20), at: disk.moment)
    expect(all - Int64(disk.tier.stats.cost) >= 6 << 20)
    expect(disk.tier.stats.count > 100)
    disk.checkInvariants()
  }

  private final class Others: @unchecked Sendable { var bytes: Int64 = 0 }
}
