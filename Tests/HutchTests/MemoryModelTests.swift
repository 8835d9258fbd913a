import Testing

@testable import Hutch

/// Random operations against a model: what a cache of its policy would do, in the simplest
/// words.
@Suite struct MemoryModelTests {
  struct Modelled {
    var version: UInt64
    var value: String
    var expires: Int64
    var isBacked: Bool
    var charge: UInt64
  }

  /// Exact lru: the last in `order` is the latest.
  @Test func agreesWithExactLeastRecentlyUsed() throws {
    for round in 0..<(isLong ? 20 : 8) {
      let seed = testSeed &+ UInt64(round)
      var random = Random(seed: seed)
      let limit = Int.random(in: 1...60, using: &random)
      let keyCount = limit * 2 + 1
      let costLimit = UInt64(limit) * MemoryTier.charge(6, 40, 0)
      var limits = TierLimits(count: UInt64(limit))
      if round % 2 == 1 { limits = TierLimits(cost: costLimit) }
      let bench = try Bench(limits)
      var model: [String: Modelled] = [:]
      var order: [String] = []
      func touch(_ key: String) {
        order.removeAll { $0 == key }
        order.append(key)
      }
      func drop(_ key: String) {
        order.removeAll { $0 == key }
        model[key] = nil
      }
      func cost() -> UInt64 { model.values.reduce(0) { $0 + $1.charge } }
      for step in 0..<600 {
        func context() -> Comment { "seed \(seed), step \(step)" }
        let key = "key \(Int.random(in: 0..<keyCount, using: &random))"
        if let entry = model[key], bench.hand.now >= entry.expires {
          // Expired: no read or condition sees it, whether or not it is still counted.
          expect(bench.version(of: key) == nil, context())
          expect(bench.get(key) == nil, context())
          drop(key)
        }
        switch Int.random(in: 0..<10, using: &random) {
        case 0..<4:
          let value = String(
            repeating: "v", count: Int.random(in: 0..<80, using: &random))
          let life: Int64 = Bool.random(using: &random) ? 0 : .random(in: 1..<500, using: &random)
          let isBacked = Bool.random(using: &random)
          let result = try bench.put(key, value, isBacked: isBacked) {
            if life > 0 { $0.expires = $0.created + life }
          }
          // An entry that may expire has a header of 80 bytes in place of 32, and times.
          let charge =
            MemoryTier.charge(key.utf8.count, value.utf8.count, 0)
            + (life > 0 ? 48 + MemoryTier.overheadOfTimes : 0)
          if limits.cost > 0 && charge > limits.cost {
            expect(result.outcome == .tooLarge, context())
            drop(key)
            break
          }
          expect(result.outcome == .stored, context())
          expect(result.existing == model[key]?.version ?? 0, context())
          model[key] = Modelled(
            version: bench.version, value: value,
            expires: life > 0 ? bench.hand.now + life : .max, isBacked: isBacked,
            charge: charge)
          touch(key)
          while limits.count > 0 ? model.count > limit : cost() > costLimit {
            // What has expired goes before what lives.
            drop(order.first { bench.hand.now >= model[$0]!.expires } ?? order[0])
          }
        case 4..<7:
          expect(bench.get(key) == model[key]?.value, context())
          if model[key] != nil { touch(key) }
        case 7:
          expect(bench.remove(key) == (model[key] != nil), context())
          drop(key)
        case 8:
          bench.hand.now += .random(in: 0..<40, using: &random)
        default:
          if step % 50 == 0 {
            bench.maintain()
            for (key, entry) in model where bench.hand.now >= entry.expires { drop(key) }
            expect(bench.tier.count == UInt64(model.count), context())
            expect(bench.tier.cost == cost(), context())
          }
          expect(bench.version(of: key) == model[key]?.version, context())
        }
        // What the tier still counts though it has expired is not in the way of the model's
        // order: it is the model's too until a call asks for it.
        expect(bench.violation == nil, context())
      }
      let live = model.filter { bench.hand.now < $0.value.expires }
      expect(Set(bench.keys()) == Set(live.keys), "seed \(seed)")
      let unbacked = live.filter { !$0.value.isBacked }
      expect(Set(bench.keys(onlyUnbacked: true)) == Set(unbacked.keys), "seed \(seed)")
    }
  }

  /// Without limits a get answers with the newest put, over table growth, several shards and
  /// removals of half of it.
  @Test func forgetsNothingWithoutLimits() throws {
    let seed = testSeed
    var random = Random(seed: seed)
    let bench = try Bench()
    var model: [Int: UInt64] = [:]
    for step in 0..<(isLong ? 120_000 : 60_000) {
      let i = Int.random(in: 0..<30_000, using: &random)
      if Int.random(in: 0..<4, using: &random) == 0 {
        expect(bench.remove("\(i)") == (model[i] != nil), "seed \(seed), step \(step)")
        model[i] = nil
      } else {
        try bench.put("\(i)", "value of \(i)")
        model[i] = bench.version
      }
      if step % 20_000 == 0 { expect(bench.violation == nil, "seed \(seed), step \(step)") }
    }
    expect(bench.tier.shardCount > 1)
    expect(bench.tier.count == UInt64(model.count))
    for i in 0..<30_000 {
      expect(bench.version(of: "\(i)") == model[i], "seed \(seed), key \(i)")
    }
    let keys = bench.keys()
    expect(keys.count == model.count && Set(keys).count == keys.count, "seed \(seed)")
    expect(bench.violation == nil, "seed \(seed)")
  }

  @Test func aWalkSeesEveryEntryOnceWhileOthersWrite() throws {
    let seed = testSeed
    var random = Random(seed: seed)
    for start in [0, 10, 3000, 6000] {
      let bench = try Bench()
      for i in 0..<start { try bench.put("stays \(i)") }
      var seen: [String: Int] = [:]
      var position: UInt64 = 0
      var added = 0
      while bench.tier.blocks(
        after: &position, limit: 20, at: bench.hand.moment,
        visit: { seen[String(decoding: $0.key, as: UTF8.self), default: 0] += 1 }) > 0
      {
        // Grow beyond a division into shards, replace, remove and put again.
        for _ in 0..<40 {
          try bench.put("new \(added)")
          added += 1
          if start > 0 {
            try bench.put("stays \(Int.random(in: 0..<start, using: &random))", "again")
          }
          let other = "new \(Int.random(in: 0..<added, using: &random))"
          bench.remove(other)
          if Bool.random(using: &random) { try bench.put(other) }
        }
      }
      for i in 0..<start { expect(seen["stays \(i)"] == 1, "seed \(seed), entry \(i)") }
      expect(seen.values.allSatisfy { $0 == 1 }, "seed \(seed)")
      expect(bench.violation == nil)
    }
  }

  @Test func aWalkAcrossAClearSeesNothingTwice() throws {
    let bench = try Bench()
    for i in 0..<20_000 { try bench.put("\(i)") }
    var seen: Set<String> = []
    var position: UInt64 = 0
    var steps = 0
    while bench.tier.blocks(
      after: &position, limit: 20, at: bench.hand.moment,
      visit: { expect(seen.insert(String(decoding: $0.key, as: UTF8.self)).inserted) }) > 0
    {
      steps += 1
      if steps == 100 {
        bench.tier.clear(at: bench.hand.moment)
        for i in 0..<20_000 { try bench.put("\(i)") }
      }
    }
    expect(steps > 100)
  }
}
