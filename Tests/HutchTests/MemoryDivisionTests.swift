import Testing

@testable import Hutch

/// A tier of one shard that becomes one of several.
@Suite struct MemoryDivisionTests {
  private static let fixed = KeyedHash(3, 14, 15, 92)

  /// Pairs of keys whose hashes agree in their first 20 bits: in a table they have one tag, and
  /// are told by their slots.
  private func pairs(_ count: Int, from start: Int) -> [String] {
    var last: [UInt64: String] = [:]
    var keys: [String] = []
    var next = start
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

  @Test(arguments: [MemoryPolicy.adaptive, .lru])
  func everyEntryMovesOnce(_ policy: MemoryPolicy) throws {
    for round in 0..<4 {
      let tier = try MemoryTier(
        limits: TierLimits(count: 100_000), policy: policy, hash: Self.fixed,
        versions: Versions(from: 1))
      let bench = try Bench()
      let keys = pairs(4200, from: round * 1_000_000)
      for key in keys {
        let hash = withBytes(key) { tier.hash($0) }
        #expect(try tier.put(bench.block(key), hash, at: bench.hand.moment).outcome == .stored)
      }
      #expect(tier.count == UInt64(keys.count))
      #expect(tier.violation() == nil, "round \(round)")
      for key in keys {
        let hash = withBytes(key) { tier.hash($0) }
        #expect(withBytes(key) { tier.get($0, hash, at: bench.hand.moment) } != nil, "\(key)")
      }
    }
  }
}
