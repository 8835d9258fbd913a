import Foundation
import Testing

@testable import Hutch

@Suite struct DiskTrimTests {
  @discardableResult
  private func trim(
    _ disk: DiskFixture, _ kind: TrimSpec.Kind, amount: UInt64 = 0, time: Int64 = 0,
    goOn: (UInt64, UInt64) -> Bool = { _, _ in true }
  ) throws -> UInt64 {
    let before = disk.tier.stats.count
    let trim = disk.trim(TrimSpec(kind: kind, amount: amount, time: time))
    try trim.run(goOn)
    let removed = trim.removed
    expect(disk.tier.stats.count == before - removed, "what it says has gone has gone")
    disk.checkInvariants()
    return removed
  }

  @Test func expired() throws {
    let disk = try DiskFixture()
    for i in 0..<300 { disk.put("short\(i)", [1], timeToLive: second) }
    for i in 0..<300 { disk.put("idle\(i)", [1], timeToIdle: 5 * second) }
    for i in 0..<10 { disk.put("long\(i)", [1], timeToLive: 100 * second) }
    expect(try trim(disk, .expired) == 0)
    disk.time.advance(seconds: 2)
    expect(try trim(disk, .expired) == 300)
    disk.time.advance(seconds: 2)
    _ = try disk.get("idle7")
    disk.time.advance(seconds: 2)
    expect(try trim(disk, .expired) == 299)
    expect(try disk.get("idle7") == [1])
    expect(disk.tier.stats.expirations == 599)
    expect(disk.dropped.all.count == 599)
  }

  @Test func expiredByTheTiersTimeToLive() throws {
    let disk = try DiskFixture(
      StorageOptions(limits: TierLimits(ages: Ages(timeToLive: 10 * second))))
    for i in 0..<700 { disk.put("a\(i)", [1]) }
    disk.time.advance(seconds: 6)
    for i in 0..<50 { disk.put("b\(i)", [1]) }
    disk.time.advance(seconds: 5)
    expect(try trim(disk, .expired) == 700)
    expect(try disk.keys(page: 100).count == 50)
  }

  @Test(arguments: [StorageKind.mixed, .sqlite, .file])
  func toCost(storage: StorageKind) throws {
    let disk = try DiskFixture(StorageOptions(kind: storage, inlineThreshold: 3000))
    for i in 0..<300 {
      disk.put("k\(i)", DiskFixture.bytes(i % 10 == 0 ? 20_000 : 500))
      disk.time.advance(seconds: 1)
    }
    let before = disk.tier.stats.cost
    expect(try trim(disk, .toCost, amount: before) == 0)
    let removed = try trim(disk, .toCost, amount: 200_000)
    expect(removed > 0 && disk.tier.stats.cost <= 200_000)
    // No more than was needed, and the oldest.
    expect(disk.tier.stats.cost > 170_000)
    expect(disk.dropped.all == (0..<Int(removed)).map { "k\($0)" })
    expect(try trim(disk, .toCost, amount: 0) == 300 - removed)
    expect(disk.tier.stats.cost == 0)
  }

  @Test func toCount() throws {
    let disk = try DiskFixture()
    for i in 0..<1000 {
      disk.put("k\(i)", [1])
      disk.time.advance(seconds: 1)
    }
    for i in 0..<100 { _ = try disk.get("k\(i * 10)") }
    var calls: [[UInt64]] = []
    expect(
      try trim(disk, .toCount, amount: 100) { removed, total in
        calls.append([removed, total])
        return true
      } == 900)
    expect(try Set(disk.keys(page: 100)) == Set((0..<100).map { "k\($0 * 10)" }))
    expect(calls.count > 3 && calls.last == [900, 900])
    expect(calls.map { $0[0] } == calls.map { $0[0] }.sorted())
    expect(calls.allSatisfy { $0[1] == 900 })
    expect(try trim(disk, .toCount, amount: 100) == 0)
  }

  @Test func deadRowsAndTheLogGoBeforeEntries() throws {
    let disk = try DiskFixture()
    for i in 0..<500 { disk.put("old\(i)", DiskFixture.bytes(1000)) }
    disk.clear()
    for i in 0..<50 { disk.put("new\(i)", DiskFixture.bytes(1000)) }
    expect(try trim(disk, .toCost, amount: 100_000) == 0)
    expect(disk.tier.stats.cost <= 100_000)
    expect(try disk.keys(page: 100).count == 50)
  }

  @Test func largestFirst() throws {
    let disk = try DiskFixture(StorageOptions(inlineThreshold: 3000))
    for i in 0..<200 { disk.put("k\(i)", DiskFixture.bytes((i * 37 % 200) * 100)) }
    let cost = disk.tier.stats.cost
    let removed = try trim(disk, .largestFirst, amount: 500_000)
    expect(removed > 0 && cost > 500_000 && disk.tier.stats.cost <= 500_000)
    // By what they take up, which grows with the size by pages.
    let smallestGone = disk.dropped.all.map { Int($0.dropFirst())! * 37 % 200 * 100 }.min()!
    for key in try disk.keys(page: 100) {
      let size = Int(key.dropFirst())! * 37 % 200 * 100
      expect(size <= smallestGone + 4096)
    }
  }

  @Test func leastRecentIsExact() throws {
    let disk = try DiskFixture()
    // More than are looked at one by one when room is made.
    for i in 0..<5000 {
      disk.put(key(i), [1])
      if i % 100 == 0 { disk.time.advance(seconds: 1) }
    }
    disk.time.advance(seconds: 1)
    for i in 0..<50 { _ = try disk.get(key(i)) }
    disk.observer.lastAccess = { key in
      // A tier above has read these a moment ago.
      let number = Int(String(decoding: key, as: UTF8.self).dropFirst())! - 10_000
      return (100..<150).contains(number) ? self.farFuture : nil
    }
    // Keys of one length: all are charged the same.
    let each = disk.query("SELECT max(charge) FROM entries")[0][0]
    try disk.tier.flush()
    _ = try trim(disk, .toCost, amount: UInt64(5000 * each))
    let removed = try trim(disk, .leastRecent, amount: UInt64(1000 * each))
    expect(removed == 4000)
    let kept = try Set(disk.keys(page: 500).map { Int($0.dropFirst())! - 10_000 })
    expect(kept.symmetricDifference(Set(4100..<5000).union(0..<50).union(100..<150)).isEmpty)
  }

  private let farFuture: Int64 = 4_000_000_000_000_000_000

  private func key(_ i: Int) -> String { "k" + String(10_000 + i) }

  @Test func leastFrequent() throws {
    let disk = try DiskFixture()
    for i in 0..<300 { disk.put("k\(i)", [1]) }
    for i in 0..<300 {
      for _ in 0..<(i % 6) { _ = try disk.get("k\(i)") }
      // Some counts are in the rows, some are not.
      if i == 150 { try disk.tier.flush() }
    }
    let each = disk.query("SELECT max(charge) FROM entries")[0][0]
    expect(try trim(disk, .leastFrequent, amount: UInt64(100 * each)) == 200)
    expect(try disk.keys(page: 500).allSatisfy { Int($0.dropFirst())! % 6 >= 4 })
  }

  @Test func byTime() throws {
    let disk = try DiskFixture()
    let start = disk.moment.time
    for i in 0..<1000 {
      disk.put("k\(i)", [1])
      disk.time.advance(seconds: 1)
    }
    expect(try trim(disk, .writtenBefore, time: Int64.min) == 0)
    expect(try trim(disk, .writtenBefore, time: 0) == 0)
    expect(try trim(disk, .olderThan, time: Int64.max) == 0)
    expect(try trim(disk, .idleFor, time: Int64.max) == 0)
    // A touch writes anew.
    try disk.touch("k3")
    expect(try trim(disk, .writtenBefore, time: start + 100 * second) == 99)
    expect(try disk.get("k3") != nil && disk.get("k100") != nil && disk.get("k99") == nil)
    expect(try trim(disk, .olderThan, time: 800 * second) == 100)
    expect(try disk.get("k200") != nil)
    disk.time.advance(seconds: 1)
    expect(try trim(disk, .idleFor, time: 500 * second) == 300)
    expect(try disk.get("k200") != nil && disk.get("k201") == nil)
    expect(try trim(disk, .writtenBefore, time: Int64.max) == 501)
  }

  @Test func largerThan() throws {
    let disk = try DiskFixture(StorageOptions(inlineThreshold: 3000))
    for i in 0..<100 { disk.put("k\(i)", DiskFixture.bytes(i * 100)) }
    expect(try trim(disk, .largerThan, amount: UInt64.max) == 0)
    expect(try trim(disk, .largerThan, amount: 5000) == 49)
    expect(disk.query("SELECT max(size) FROM entries")[0][0] == 5000)
    expect(try trim(disk, .largerThan, amount: 0) == 50)
  }

  @Test(arguments: [
    TrimSpec.Kind.expired, .toCost, .toCount, .largestFirst, .leastRecent, .leastFrequent,
    .olderThan, .largerThan,
  ])
  func stops(kind: TrimSpec.Kind) throws {
    let disk = try DiskFixture()
    for i in 0..<2000 { disk.put("k\(i)", [1], timeToLive: 100 * second) }
    disk.time.advance(seconds: 200)
    var last: UInt64 = 0
    let removed = try trim(disk, kind) { removed, _ in
      last = removed
      return removed < 300
    }
    expect(removed == last && removed >= 300 && removed < 700)
  }

  /// Readers and writers go on; a read gives the newest or, of what was trimmed, nothing.
  @Test func othersGoOnMeanwhile() throws {
    let disk = try DiskFixture()
    for i in 0..<3000 { disk.put("k\(i)", [1]) }
    disk.time.advance(seconds: 10)
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      if thread == 0 {
        for kind in [TrimSpec.Kind.leastRecent, .largestFirst, .leastFrequent, .toCost] {
          try! disk.trim(TrimSpec(kind: kind, amount: 50_000)).run { _, _ in true }
        }
        try! disk.trim(TrimSpec(kind: .olderThan, time: second)).run { _, _ in true }
        return
      }
      for i in 0..<400 {
        let key = "t\(thread)-\(i % 50)"
        expect(disk.put(key, [UInt8(i & 255)]).outcome == .stored)
        if let value = try! disk.get(key) { expect(value == [UInt8(i & 255)]) }
      }
    }
    for i in 0..<3000 { expect(try disk.get("k\(i)") == nil) }
    disk.checkInvariants()
  }

  @Test func maintenanceSweepsUpAfterAClear() throws {
    let disk = try DiskFixture(StorageOptions(inlineThreshold: 3000))
    for i in 0..<1000 { disk.put("k\(i)", DiskFixture.bytes(i % 10 == 0 ? 5000 : 1000)) }
    disk.clear()
    for i in 0..<10 { disk.put("n\(i)", [1]) }
    disk.maintain()
    expect(disk.query("SELECT count(*) FROM entries")[0] == [10])
    expect(disk.files(in: "content").isEmpty && disk.files(in: "trash").isEmpty)
    disk.checkInvariants()
  }
}

extension DiskFixture {
  func trim(_ spec: TrimSpec) -> StorageTrim { StorageTrim(spec, of: tier, for: observer, at: moment) }
}
