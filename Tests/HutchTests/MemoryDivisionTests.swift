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
    for round in 0..<8 {
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
        #expect(try tier.put(bench.block(key), hash, at: bench.hand.moment).outcome == .stored)
      }
      #expect(tier.count == UInt64(keys.count))
      #expect(tier.violation() == nil, "seed \(testSeed), round \(round)")
      let missing = keys.count { !isThere($0) }
      #expect(missing == 0, "seed \(testSeed), round \(round)")
    }
  }
}
