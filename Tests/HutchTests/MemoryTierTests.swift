import CSystem
import Testing

@testable import Hutch

@Suite struct MemoryTierTests {
  @Test func answersWhatWasPut() throws {
    let bench = try Bench()
    expect(bench.get("a") == nil)
    expect(try bench.put("a", "1").outcome == .stored)
    expect(bench.get("a") == "1")
    expect(try bench.put("a", "22").existing == 1)
    expect(bench.get("a") == "22")
    expect(bench.tier.count == 1)
    expect(bench.tier.cost == MemoryTier.charge(1, 2, 0))
    expect(bench.remove("a"))
    expect(!bench.remove("a"))
    expect(bench.get("a") == nil)
    expect(bench.tier.cost == 0)
    expect(bench.violation == nil)
  }

  /// An entry without a cost is charged its block as malloc rounds it, and the same beside it,
  /// whatever its sizes; one that may expire is charged its times too.
  @Test func chargesTheRoundedBlock() throws {
    let bench = try Bench()
    for (key, value) in [(1, 0), (8, 8), (8, 9), (16, 100), (17, 9), (200, 1), (33, 5000)] {
      let name = String(repeating: "k", count: key)
      let start = 32 + (key + 15) / 16 * 16
      let chunk = UInt64(start + value + 8 + 15) / 16 * 16
      try bench.put(name, String(repeating: "v", count: value))
      expect(bench.tier.cost == chunk + 30, "\(key), \(value)")
      try bench.put(name, String(repeating: "v", count: value)) { $0.expires = $0.created + 9 }
      expect(bench.tier.cost == chunk + 30 + 48 + 16, "\(key), \(value)")
      try bench.put(name, String(repeating: "v", count: value)) { $0.checksum = 1 }
      expect(bench.tier.cost == chunk + 30 + 16, "\(key), \(value)")
      try bench.put(name) { $0.cost = 7 }
      expect(bench.tier.cost == 7)
      bench.remove(name)
    }
  }

  @Test func copiesOnlyWhatFits() throws {
    let bench = try Bench()
    try bench.put("k", "12345")
    expect(bench.copy("k", capacity: 5) == (5, "12345"))
    expect(bench.copy("k", capacity: 4) == (5, ""))
    expect(bench.copy("other", capacity: 4).size == nil)
    try bench.put("empty", "")
    expect(bench.copy("empty", capacity: 0).size == 0)
    let large = String(repeating: "x", count: 100_000)
    try bench.put("large", large)
    expect(bench.copy("large", capacity: 200_000) == (100_000, large))
  }

  @Test func conditionsAreDecidedOnWhatIsThere() throws {
    let bench = try Bench()
    expect(try bench.put("k", "1", if: .present).outcome == .notFound)
    expect(try bench.put("k", "1", if: .version(1)).outcome == .notFound)
    expect(try bench.put("k", "1", if: .absent).outcome == .stored)
    let version = try #require(bench.version(of: "k"))
    let exists = try bench.put("k", "2", if: .absent)
    expect(exists.outcome == .exists && exists.existing == version)
    let conflict = try bench.put("k", "2", if: .version(version + 100))
    expect(conflict.outcome == .conflict && conflict.existing == version)
    expect(bench.get("k") == "1")
    expect(try bench.put("k", "2", if: .version(version)).outcome == .stored)
    expect(try bench.put("k", "3", if: .present).outcome == .stored)
    expect(bench.get("k") == "3")
  }

  @Test func aPromotionNeverReplacesTheSameOrANewerVersion() throws {
    let bench = try Bench()
    try bench.put("k", "new", version: 10)
    expect(try bench.put("k", "old", version: 9, if: .unlessNewer).outcome == .conflict)
    expect(try bench.put("k", "same", version: 10, if: .unlessNewer).outcome == .conflict)
    expect(bench.get("k") == "new")
    expect(try bench.put("k", "newer", version: 11, if: .unlessNewer).outcome == .stored)
    expect(try bench.put("other", "1", version: 1, if: .unlessNewer).outcome == .stored)
  }

  @Test func removesTheVersionThatIsMeant() throws {
    let bench = try Bench()
    try bench.put("k", "1", version: 5)
    expect(!bench.remove("k", if: .version(4)))
    expect(!bench.remove("k", if: .upTo(4)))
    expect(bench.remove("k", if: .upTo(5)))
    try bench.put("k", "1", version: 6)
    expect(bench.remove("k", if: .version(6)))
    expect(bench.tier.count == 0)
  }

  @Test func reachesTheCountLimitExactly() throws {
    let bench = try Bench(TierLimits(count: 3))
    for i in 1...10 {
      try bench.put("\(i)")
      expect(bench.tier.count == UInt64(min(i, 3)))
    }
    // A replacement evicts no entry.
    try bench.put("9", "again")
    expect(["8", "9", "10"].allSatisfy(bench.contains))
  }

  @Test func evictsTheLeastRecentlyUsed() throws {
    let bench = try Bench(TierLimits(count: 3))
    for key in ["a", "b", "c"] { try bench.put(key) }
    _ = bench.get("a")
    try bench.put("b", "again")
    try bench.put("d")  // c goes
    expect(Set(bench.keys()) == ["a", "b", "d"])
    // Looking is no access.
    _ = bench.contains("a")
    _ = bench.info("a")
    try bench.put("e")  // a goes
    expect(Set(bench.keys()) == ["b", "d", "e"])
  }

  @Test func makesRoomForALargerValueOfTheSameKey() throws {
    let limit = 4 * MemoryTier.charge(1, 9, 0)
    let bench = try Bench(TierLimits(cost: limit))
    for key in ["a", "b", "c", "d"] { try bench.put(key, "123456789") }
    expect(bench.tier.count == 4)
    try bench.put("a", String(repeating: "x", count: 40))
    expect(bench.contains("a") && !bench.contains("b"))
    expect(bench.tier.count == 3)
    // It can only be itself that is left.
    try bench.put("a", String(repeating: "x", count: Int(limit - MemoryTier.charge(1, 15, 0))))
    expect(bench.tier.count == 1 && bench.contains("a"))
    expect(bench.violation == nil)
  }

  @Test func refusesWhatIsTooLargeAndDropsTheOlderValue() throws {
    var limits = TierLimits(cost: 10_000)
    limits.maxEntry = TierLimits.quarter
    let bench = try Bench(limits)
    try bench.put("k", "old")
    let large = String(repeating: "x", count: 2500)
    expect(try bench.put("k", large, if: .absent).outcome == .exists)
    expect(bench.get("k") == "old")
    expect(try bench.put("k", large).outcome == .tooLarge)
    expect(bench.get("k") == nil)
    expect(bench.tier.stats.refusals == 1)
    expect(bench.tier.cost == 0)
  }

  @Test func aRefusedPutHasItsVersionBeforeAnyLaterOne() throws {
    let bench = try Bench(TierLimits(cost: 10_000))
    let large = String(repeating: "x", count: 20_000)
    let refused = try bench.put("k", large, version: 0)
    expect(refused.outcome == .tooLarge && refused.version != 0)
    expect(try bench.put("k", "small", version: 0).version > refused.version)
  }

  @Test func anExplicitCostReplacesTheCharge() throws {
    let bench = try Bench(TierLimits(cost: 10))
    try bench.put("a", "a long value that does not count") { $0.cost = 4 }
    try bench.put("b") { $0.cost = 6 }
    expect(bench.tier.cost == 10)
    try bench.put("c") { $0.cost = 1 }
    expect(!bench.contains("a") && bench.tier.cost == 7)
    expect(try bench.put("d") { $0.cost = 11 }.outcome == .tooLarge)
  }

  @Test func costsNearTheEndOfTheNumbersDoNotOverflow() throws {
    let bench = try Bench()
    expect(try bench.put("a") { $0.cost = .max - 1 }.outcome == .stored)
    expect(try bench.put("b") { $0.cost = .max - 2 }.outcome == .stored)
    expect(!bench.contains("a"))
    expect(try bench.put("c") { $0.cost = 1 }.outcome == .stored)
    expect(bench.tier.cost == .max - 1 && bench.tier.count == 2)
    expect(try bench.put("b") { $0.cost = 5 }.outcome == .stored)
    expect(bench.tier.cost == 6)
    expect(bench.violation == nil)
  }

  @Test func aPinnedValueSurvives() throws {
    let bench = try Bench(TierLimits(count: 1))
    try bench.put("k", "kept")
    let hash = bench.hash("k")
    let held = withBytes("k") { key -> Block? in bench.tier.get(key, hash, at: bench.hand.moment) }
    guard let block = held else {
      Issue.record("not there")
      return
    }
    try bench.put("k", "replaced")
    try bench.put("other", "evicts")
    bench.tier.clear(at: bench.hand.moment)
    expect(String(decoding: block.unowned.value, as: UTF8.self) == "kept")
    expect(!block.unowned.isShared)
  }

  @Test func limitsChangeWhileInUse() throws {
    let bench = try Bench()
    for i in 0..<1000 { try bench.put("\(i)", "value") }
    bench.tier.setLimits(TierLimits(count: 10), at: bench.hand.moment)
    expect(bench.tier.count == 10)
    expect((990..<1000).allSatisfy { bench.contains("\($0)") })
    var small = TierLimits(cost: 7 * MemoryTier.charge(3, 5, 0))
    bench.tier.setLimits(small, at: bench.hand.moment)
    expect(bench.tier.count == 7)
    try bench.put("costly") { $0.cost = 3 * MemoryTier.charge(3, 5, 0) }
    expect(bench.tier.count == 5)
    small.maxEntry = MemoryTier.charge(3, 5, 0)
    bench.tier.setLimits(small, at: bench.hand.moment)
    expect(!bench.contains("costly") && bench.tier.count == 4)
    expect(bench.violation == nil)
  }

  @Test func countsWhatItDoes() throws {
    let bench = try Bench(TierLimits(count: 2))
    for key in ["a", "b", "c"] { try bench.put(key) }
    _ = bench.get("c")
    _ = bench.get("x")
    _ = bench.copy("c", capacity: 0)
    bench.remove("c")
    let stats = bench.tier.stats
    expect(stats.puts == 3 && stats.evictions == 1 && stats.removals == 1)
    expect(stats.hits == 2 && stats.misses == 1)
    expect(stats.count == 1 && stats.cost == MemoryTier.charge(1, 0, 0))
  }

  @Test func tellsWhatLeavesAndWhy() throws {
    let bench = try Bench(TierLimits(count: 2))
    var left: [String] = []
    bench.tier.onDeparture = { block, cause, accessed in
      let key = String(decoding: block.key, as: UTF8.self)
      left.append("\(key) \(cause) \(accessed - 1_000_000_000_000_000_000)")
    }
    try bench.put("a")
    bench.hand.now += 1000
    try bench.put("b") { $0.timeToIdle = 10 }
    try bench.put("b", "replaced") { $0.timeToIdle = 1_000_000 }
    try bench.put("c")
    bench.hand.now += 500
    _ = bench.get("b")
    bench.hand.now += 1_000_000
    expect(bench.get("b") == nil)
    bench.remove("c")
    try bench.put("d")
    bench.tier.clear(at: bench.hand.moment)
    expect(left.count == 3)
    expect(left[0].hasPrefix("a evicted"))
    expect(left[1] == "b expired 1500")
    expect(left[2].hasPrefix("d cleared"))
  }

  @Test func knowsWhatTheDiskTierHasToo() throws {
    let bench = try Bench()
    try bench.put("a", isBacked: true)
    try bench.put("b")
    try bench.put("c")
    expect(bench.tier.unbackedCount == 2)
    bench.setBacked("b", version: 1, true)  // another version: nothing
    expect(bench.tier.unbackedCount == 2)
    bench.setBacked("b", version: 2, true)
    expect(bench.tier.unbackedCount == 1)
    expect(bench.keys(onlyUnbacked: true) == ["c"])
    try bench.put("a", "2")
    expect(bench.tier.unbackedCount == 2)
    bench.tier.clear(keepingUnbacked: true, at: bench.hand.moment)
    expect(Set(bench.keys()) == ["a", "c"])
    bench.tier.clear(at: bench.hand.moment)
    expect(bench.tier.count == 0 && bench.tier.unbackedCount == 0 && bench.keys() == [])
    expect(bench.violation == nil)
  }

  @Test func worksOnWhenEveryHashIsTheSame() throws {
    // What no key can bring about with the tier's own hash, the table survives all the same.
    var table = Table()
    var slab = Slab(counts: false)
    for i in 0..<3000 {
      let block = try withBytes("\(i)") { key throws(Failure) -> Block in
        try Block.allocate(key: key, record: Record())
      }
      _ = try slab.reserve()
      try table.reserve(7 << 32, slab)
      block.unowned.slot = slab.take(7).number
      table.insert(Word(block.leak(), isTimed: false, isBacked: false, isObject: false), 7 << 32)
    }
    expect(table.violation() == nil)
    for i in 0..<3000 {
      let place = try #require(withBytes("\(i)") { table.find($0, 7 << 32) })
      let block = place.pointee.block
      table.remove(place, 7 << 32)
      block.release()
    }
    expect(table.violation() == nil && table.count == 0)
  }

  /// What is done to a whole line at once, beside the same word by word.
  @Test func whatIsDoneToWholeLinesIsWhatIsDoneToWords() throws {
    var random = Random(seed: testSeed)
    let memory = UnsafeMutableRawPointer.allocate(byteCount: 64, alignment: 64)
    defer { memory.deallocate() }
    let words = memory.bindMemory(to: UInt64.self, capacity: 8)
    for lines in [1, 2, 3, 8, 40, 63, 64, 512, 0x7FFF, 0x8000] as [UInt64] {
      for _ in 0..<2000 {
        for i in 0..<8 { words[i] = random.next() }
        let line = random.next(upperBound: lines)
        let back = max(1, random.next(upperBound: lines))
        var expected: UInt32 = 0
        for i in 0..<8 {
          let home = ((words[i] >> 5 & 0x7FFF) * lines) >> 15
          let distance = (line + lines - home) % lines
          if distance >= back { expected |= 1 << UInt32(i) }
        }
        let found = hutch_displaced8(memory, UInt32(lines), UInt32(line), UInt32(back))
        expect(found == expected, "seed \(testSeed), \(lines) lines")
      }
    }
    let halves = memory.bindMemory(to: UInt16.self, capacity: 32)
    for _ in 0..<2000 {
      // Few numbers, and the largest.
      for i in 0..<32 { halves[i] = UInt16(truncatingIfNeeded: random.next() % 4 &- 1) }
      for sought in [0, 1, 0xFFFF] as [UInt32] {
        var wanted: UInt32 = 0
        for i in 0..<32 where UInt32(halves[i]) == sought { wanted |= 1 << UInt32(i) }
        expect(hutch_match32(memory, sought) == wanted, "seed \(testSeed)")
      }
      var model = (0..<32).map { halves[$0] }
      let last = Int(random.next() % 32)
      model.remove(at: last)
      model.insert(0xABCD, at: 0)
      hutch_push32(memory, 0xABCD, UInt32(last))
      expect((0..<32).map { halves[$0] } == model, "seed \(testSeed), last \(last)")
    }
  }

  /// What a limit on cost counts is the memory that entries take, whatever their records hold:
  /// over many sizes the charge is at least what malloc gave, the word and the slot, and at most a
  /// quarter more (which the policy's memory takes at capacity).
  @Test func theChargeIsTheMemoryTaken() throws {
    let bench = try Bench()
    let kinds: [(String, (inout Record) -> Void)] = [
      ("plain", { _ in }), ("checksum", { $0.checksum = 1 }), ("life", { $0.expires = .max }),
      ("idle", { $0.timeToIdle = 1_000_000 }),
      ("all", { ($0.checksum, $0.expires, $0.timeToIdle) = (1, .max, 5) }),
    ]
    for (name, change) in kinds {
      var charged: UInt64 = 0
      var taken = 0
      for size in 0..<256 {
        let block = try bench.block("key of 16 bytes.", String(repeating: "x", count: size), change)
        charged += MemoryTier.charge(of: block.unowned)
        let hasTimes = block.unowned.expires != 0 || block.unowned.timeToIdle != 0
        // A chunk of malloc's with its header, the word (8 at a load of .78), the slot, times.
        let chunk = (block.unowned.byteCount + 8 + 15) & ~15
        taken += chunk + 11 + 8 + (hasTimes ? 16 : 0)
      }
      expect(taken <= Int(charged) && Int(charged) * 4 <= taken * 5, "\(name): \(taken) \(charged)")
    }
  }
}
