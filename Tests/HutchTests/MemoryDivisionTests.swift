import Testing

@testable import Hutch

/// A tier of one shard that becomes one of several.
@Suite struct MemoryDivisionTests {
  private static let fixed = KeyedHash(3, 14, 15, 92)

  /// Pairs of keys whose hashes agree in their first 20 bits: in a table they have one tag, and
  /// are told by their slots.
  private func pairs(_ count: Int) -> [String] {
    var last: [UInt64: String] = [:]
    var keys: [String] = []
    var next = 0
    while keys.count < count {
      let key = "\(next)"
      next += 1
      let prefix = withBytes(key) { Self.fixed.entry($0) } >> 44
      if let other = last.removeValue(forKey: prefix) {
        keys += [other, key]
      } else {
        last[prefix] = key
      }
    }
    return keys
  }

  /// The order of use is not that of the slots: a slot of a new shard may have the number that an
  /// entry had which has yet to move.
  @Test func everyEntryMovesOnce() throws {
    var random = Random(seed: testSeed)
    func shuffled(_ keys: [String]) -> [String] {
      var keys = keys
      for i in keys.indices.reversed() { keys.swapAt(i, Int(random.next() % UInt64(i + 1))) }
      return keys
    }
    let pairs = pairs(4200)
    for round in 0..<4 {
      let tier = try MemoryTier(
        limits: TierLimits(count: 100_000), policy: .lru, hash: Self.fixed,
        versions: Versions(from: 1))
      let bench = try Bench()
      func isThere(_ key: String) -> Bool {
        withBytes(key) { tier.get($0, tier.hash($0), at: bench.hand.moment) } != nil
      }
      let keys = shuffled(pairs)
      for (i, key) in keys.enumerated() {
        // Before the tier is divided.
        if i == 4000 {
          for key in shuffled(Array(keys[..<i])) { _ = isThere(key) }
        }
        let hash = withBytes(key) { tier.hash($0) }
        expect(try tier.put(bench.block(key), hash, at: bench.hand.moment).outcome == .stored)
      }
      expect(tier.count == UInt64(keys.count))
      expect(tier.violation() == nil, "seed \(testSeed), round \(round)")
      let missing = keys.count { !isThere($0) }
      expect(missing == 0, "seed \(testSeed), round \(round)")
    }
  }

  /// Entries that move to another shard while the tier's ages change take the new ages up too:
  /// none stays for ever. Puts make the tier divide at one of many moments of the change.
  @Test func agesReachWhatMovesMeanwhile() throws {
    for round in stride(from: 0, to: 36, by: isLong ? 1 : 2) {
      let bench = try Bench(TierLimits(count: 100_000), policy: .adaptive)
      let keys = (0..<4300).map { "\($0)" }
      let before = 4060 + round
      for key in keys[..<before] { try bench.put(key) }
      let blocks = try keys[before...].map { key in
        (hash: bench.hash(key), block: try bench.block(key).leak())
      }
      let moment = bench.hand.moment
      let tier = bench.tier
      var limits = TierLimits(count: 100_000)
      limits.ages = Ages(timeToLive: 1_000)
      onThreads(2) { number in
        if number == 0 {
          tier.setLimits(limits, at: moment)
        } else {
          for (hash, block) in blocks {
            _ = try! tier.put(Block(owning: block), hash, at: moment)
          }
        }
      }
      expect(tier.shardCount > 1)
      expect(bench.violation == nil)
      bench.hand.now += 2_000
      let alive = keys.count { bench.contains($0) }
      expect(alive == 0, "round \(round)")
    }
  }

  /// A put that needs much room takes what was used longest ago wherever it is, and not all that
  /// one shard has.
  @Test func aLargePutTakesFromEveryShard() throws {
    let tier = try MemoryTier(
      limits: TierLimits(cost: 1 << 21), policy: .lru, hash: KeyedHash(),
      versions: Versions(from: 1), cores: 4)
    let bench = try Bench()
    func put(_ key: String, _ size: Int = 0) throws -> MemoryPutResult {
      let hash = withBytes(key) { tier.hash($0) }
      return try tier.put(
        bench.block(key, String(repeating: "x", count: size)), hash, at: bench.hand.moment)
    }
    func isThere(_ key: String) -> Bool {
      withBytes(key) { tier.get($0, tier.hash($0), at: bench.hand.moment) } != nil
    }
    let keys = (0..<24_000).map { "\($0)" }
    for key in keys { _ = try put(key) }
    expect(tier.shardCount > 4)
    let hot = keys.suffix(4_000)
    for key in hot { expect(isThere(key)) }
    // A quarter of the limit: more than three shards hold. A sixth of the entries is hot.
    expect(try put("large", 1 << 19).outcome == .stored)
    let lost = hot.count { !isThere($0) }
    expect(lost == 0)
    expect(isThere("large"))
    expect(tier.violation() == nil)
  }
}
