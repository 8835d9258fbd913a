import Testing

@testable import Hutch

/// A put that evicts hundreds of entries looks ahead of them (LookAhead.swift).
@Suite struct LargePutTests {
  /// It evicts the entries that a trim to the same cost evicts one by one, and the sums are exact.
  @Test(arguments: MemoryPolicyTests.all)
  func evictsWhatATrimEvicts(policy: EvictionPolicy) throws {
    for round in 0..<4 {
      let seed = testSeed &+ UInt64(round)
      var random = Random(seed: seed)
      let limit: UInt64 = 160_000
      // The default policy's guesses go by hash.
      let hash = try KeyedHash()
      let one = try Bench(TierLimits(cost: limit), policy: policy, hash: hash)
      let other = try Bench(TierLimits(cost: limit), policy: policy, hash: hash)
      // So that no tier pays for what other tests leave in the heap.
      for bench in [one, other] { bench.tier.budget.noteOwnCost() }
      for _ in 0..<6000 {
        let number = random.next() % 3000 * (random.next() % 1000) / 1000
        let key = "key \(number)"
        let what = random.next() % 8
        for bench in [one, other] {
          switch what {
          case 0..<4: try bench.put(key, "a value of some bytes")
          case 4: bench.remove(key)
          default: _ = bench.get(key)
          }
        }
      }
      let context: Comment = "seed \(seed)"
      let before = one.tier.count
      expect(Set(one.keys()) == Set(other.keys()), context)
      let large = String(repeating: "x", count: 40_000)
      let charge = MemoryTier.charge(of: try one.block("large", large).unowned)
      _ = other.tier.trim(
        TrimSpec(kind: .toCost, amount: limit - charge), at: other.hand.moment,
        goOn: { _, _ in true })
      for bench in [one, other] { try bench.put("large", large) }
      expect(Set(one.keys()) == Set(other.keys()), context)
      for bench in [one, other] {
        expect(bench.contains("large"), context)
        expect(bench.violation == nil, context)
        expect(bench.tier.cost <= limit && bench.tier.cost > limit - 200, context)
        expect(before - bench.tier.count > 100, context)
      }
    }
  }

  /// A replacement by a large value spares the entry, and leaves under `fifo` the last that came.
  @Test func replacesTheOldest() throws {
    let bench = try Bench(TierLimits(cost: 160_000), policy: .fifo)
    bench.tier.budget.noteOwnCost()
    for i in 0..<1500 { try bench.put("key \(i)", "a value of some bytes") }
    let keys = bench.keys()
    let numbers = keys.map { Int($0.dropFirst(4))! }.sorted()
    let oldest = numbers[0]
    try bench.put("key \(oldest)", String(repeating: "x", count: 40_000))
    let left = bench.keys().map { Int($0.dropFirst(4))! }.sorted()
    expect(left.first == oldest)
    expect(left.count < numbers.count - 100)
    expect(Array(left.dropFirst()) == Array(numbers.suffix(left.count - 1)))
    expect(bench.violation == nil)
  }
}
