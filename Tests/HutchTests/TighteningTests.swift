import CSystem
import Testing

@testable import Hutch

/// A shard moves blocks from between the holes of the heap, and its table gives memory back.
@Suite struct TighteningTests {
  /// Every entry keeps its bytes, and a block that a reader holds keeps its place.
  @Test(arguments: [EvictionPolicy.adaptive, .lru])
  func movedBlocksKeepTheirBytes(policy: EvictionPolicy) throws {
    var random = Random(seed: testSeed)
    let bench = try Bench(policy: policy)
    var values: [String: String] = [:]
    for i in 0..<6000 {
      let value = String(repeating: "\(i),", count: 1 + Int(random.next() % 200))
      try bench.put("key \(i)", value)
      values["key \(i)"] = value
    }
    for i in 0..<6000 where random.next() % 3 > 0 {
      bench.remove("key \(i)")
      values["key \(i)"] = nil
    }
    let held = try #require(bench.hold(values.keys.sorted()[0]))
    defer { held.release() }
    let before = bench.places
    bench.tighten()
    expect(bench.violation == nil && Heap.violation() == nil, "seed \(testSeed)")
    for (key, value) in values { expect(bench.get(key) == value, "seed \(testSeed)") }
    let after = bench.places
    expect(after.count == before.count)
    // Blocks from malloc stay.
    if Heap.sums.used > 0 {
      expect(after.intersection(before).count < before.count * 9 / 10, "seed \(testSeed)")
    }
    expect(after.contains(held.raw))
    for key in values.keys { bench.remove(key) }
  }

  /// After many entries have gone, the segments of the table are small again, and grow again.
  @Test func aSparseTableShrinks() throws {
    let bench = try Bench()
    for i in 0..<20_000 { try bench.put("key \(i)") }
    let full = bench.tableBytes
    for i in 0..<20_000 where i % 20 > 0 { bench.remove("key \(i)") }
    expect(bench.tableBytes == full)
    bench.tighten()
    expect(bench.tableBytes < full / 3)
    expect(bench.violation == nil)
    for i in 0..<20_000 { expect(bench.contains("key \(i)") == (i % 20 == 0)) }
    for i in 0..<20_000 { try bench.put("key \(i)") }
    expect(bench.violation == nil && bench.tier.count == 20_000)
  }

  /// A put that finds the entry of its key, and makes the entry's segment smaller.
  @Test func aPutReplacesInASegmentThatShrinks() throws {
    let bench = try Bench(TierLimits(cost: 4 << 20))
    for i in 0..<20_000 { try bench.put("key \(i)") }
    for i in 0..<20_000 where i % 40 > 0 { bench.remove("key \(i)") }
    let full = bench.tableBytes
    for i in 0..<500 {
      let key = "key \(i * 40)"
      bench.tier.with(bench.hash(key)) { shard, hash in shard.tightened = hash }
      try bench.put(key, String(repeating: "v", count: 200))
    }
    expect(bench.tableBytes < full && bench.tier.count == 500)
    expect(bench.violation == nil)
  }
}

extension Bench {
  /// A reference, which the caller owns.
  fileprivate func hold(_ key: String) -> UnownedBlock? {
    withBytes(key) { tier.peek($0, tier.hash($0), at: hand.moment)?.leak() }
  }

  /// Several times around each shard's table, whether the heap is tight or not.
  fileprivate func tighten() {
    for _ in 0..<4 {
      Heap.evacuate(true)
      for index in 0..<tier.shardCount {
        var position: UInt64? = 0
        while let from = position {
          position = tier.with(index: index) { $0.tighten(lines: 8, from: from) }
        }
      }
      Heap.evacuate(false)
    }
  }

  /// The addresses of all blocks.
  fileprivate var places: Set<UnsafeMutableRawPointer> {
    var places: Set<UnsafeMutableRawPointer> = []
    for index in 0..<tier.shardCount {
      tier.with(index: index) { $0.entries.table.forEach { places.insert($0.block.raw) } }
    }
    return places
  }

  fileprivate var tableBytes: Int {
    var bytes = 0
    for index in 0..<tier.shardCount {
      tier.with(index: index) { bytes += $0.entries.table.bytes }
    }
    return bytes
  }
}
