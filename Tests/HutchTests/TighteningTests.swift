import CSystem
import Testing

@testable import Hutch

/// A shard moves what it has from between the holes of the heap, and its table gives memory back.
@Suite struct TighteningTests {
  /// Every entry keeps its bytes and its times, and a block that a reader holds keeps its place.
  @Test(arguments: [EvictionPolicy.adaptive, .lru])
  func whatMovesStaysTheSame(policy: EvictionPolicy) throws {
    var random = Random(seed: testSeed)
    let bench = try Bench(policy: policy)
    let day: Int64 = 86_400_000_000_000
    var values: [String: String] = [:]
    var expiring: [String] = []
    for i in 0..<20_000 {
      let value = String(repeating: "\(i),", count: 1 + Int(random.next() % 60))
      // Some expire, two days from now or four.
      let days = Int64(random.next() % 3)
      try bench.put("key \(i)", value) { if days > 0 { $0.expires = $0.created + 2 * days * day } }
      values["key \(i)"] = value
      if days == 1 { expiring.append("key \(i)") }
    }
    for i in 0..<20_000 where random.next() % 3 > 0 {
      bench.remove("key \(i)")
      values["key \(i)"] = nil
    }
    let held = try #require(bench.hold(values.keys.sorted()[0]))
    defer { held.release() }
    let before = bench.places
    let (slots, words) = (bench.slots, bench.words)
    bench.tighten()
    expect(bench.violation == nil && Heap.violation() == nil, "seed \(testSeed)")
    for (key, value) in values { expect(bench.get(key) == value, "seed \(testSeed)") }
    let after = bench.places
    expect(after.count == before.count)
    // Blocks from malloc stay.
    if Heap.sums.used > 0 {
      expect(after.intersection(before).count < before.count * 9 / 10, "seed \(testSeed)")
      expect(bench.slots != slots && bench.words != words, "seed \(testSeed)")
    }
    expect(after.contains(held.raw))
    bench.hand.now += 3 * day
    bench.maintain()
    for key in expiring { values[key] = nil }
    expect(bench.violation == nil && bench.tier.count == values.count, "seed \(testSeed)")
    for (key, value) in values { expect(bench.get(key) == value, "seed \(testSeed)") }
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
    addresses { word, _ in word.block.raw }
  }

  /// Of their slots.
  fileprivate var slots: Set<UnsafeMutableRawPointer> {
    addresses { UnsafeMutableRawPointer($1.slab[Slot($0.block.slot)]) }
  }

  /// Of their words.
  fileprivate var words: Set<UnsafeMutableRawPointer> {
    addresses { UnsafeMutableRawPointer($1.place(of: Slot($0.block.slot))) }
  }

  private func addresses(
    _ address: (Word, borrowing Entries) -> UnsafeMutableRawPointer
  ) -> Set<UnsafeMutableRawPointer> {
    var all: Set<UnsafeMutableRawPointer> = []
    for index in 0..<tier.shardCount {
      tier.with(index: index) { shard in
        shard.entries.table.forEach { all.insert(address($0, shard.entries)) }
      }
    }
    return all
  }

  fileprivate var tableBytes: Int {
    var bytes = 0
    for index in 0..<tier.shardCount {
      tier.with(index: index) { bytes += $0.entries.table.bytes }
    }
    return bytes
  }
}
