import Synchronization
import Testing

@testable import Hutch

/// A batch gives what single looks give, and counts as many.
@Suite struct ManyGetsTests {
  private let names = (0..<9000).map { String(repeating: "k", count: $0 % 23) + "\($0)" }

  private func put(_ name: String, _ lifetime: Int64?, _ tier: MemoryTier, _ clock: Clock) throws {
    var record = Record(created: clock.now)
    if let lifetime { record.expires = record.created + lifetime }
    let block = try withBytes(name) { key throws(Failure) -> Block in
      // Some have extended data.
      let extended = key.count % 3 == 0 ? Extended(key) : Extended()
      return try Block.copying(key: key, value: key, extended: extended, record: record)
    }
    _ = try tier.put(block, withBytes(name) { tier.hash($0) }, at: clock.moment())
  }

  private func check(_ names: [String], _ tier: MemoryTier, _ clock: Clock, _ words: Comment) {
    // Read once: of two reads of the clock the second may find that an entry has expired.
    let moment = clock.moment().read
    let before = tier.stats
    let found = FoundBlocks.allocate(capacity: names.count)
    found.initialize(repeating: FoundBlock())
    defer { found.deallocate() }
    withMany(names) { tier.getMany($0, 0, at: moment, found) }
    let after = tier.stats
    var hits: UInt64 = 0
    for (i, name) in names.enumerated() {
      let hash = withBytes(name) { tier.hash($0) }
      expect(found[i].hash == hash, words)
      let version = withBytes(name) { tier.peek($0, hash, at: moment).unowned?.version }
      guard let raw = found[i].block else {
        expect(version == nil, words)
        continue
      }
      hits += 1
      let block = Block(owning: UnownedBlock(UnsafeMutableRawPointer(raw)))
      let isSame =
        block.unowned.version == version && withBytes(name) { block.unowned.hasKey($0) }
      expect(isSame, words)
    }
    expect(after.hits - before.hits == hits, words)
    expect(after.misses - before.misses == UInt64(names.count) - hits, words)
  }

  /// Over one shard and then several, more of them than a batch has groups of keys if the machine
  /// has many cores; with and without biases; with keys that occur twice, entries that have
  /// expired, and entries that no table has.
  @Test(arguments: [1, 2, 64]) func manyGetsAgreeWithSingleOnes(_ cores: Int) throws {
    var random = Random(seed: testSeed)
    let (tier, clock, _) = try tierWithHits(count: 600_000, cores: cores)
    for stored in [3000, 8500] {
      for (i, name) in names[..<stored].enumerated() {
        try put(name, i % 11 == 0 ? (i % 2 == 0 ? 1 : 1 << 40) : nil, tier, clock)
      }
      expect(tier.shardCount == (stored == 3000 ? 1 : 4 * cores))
      for round in 0..<400 {
        if round % 2 == 0 { tier.giveBias(toAnyOf: random.next()) }
        var chosen = (0..<1 + Int(random.next() % UInt64(MemoryTier.keysAtOnce))).map { _ in
          names[Int(random.next() % UInt64(names.count))]
        }
        if chosen.count > 1 && round % 5 == 0 { chosen[0] = chosen[chosen.count - 1] }
        check(chosen, tier, clock, "seed \(testSeed), cores \(cores), round \(round)")
      }
      expect(tier.violation() == nil, "seed \(testSeed)")
    }
  }

  /// The short path is closed where another clock counts: each key goes the long way.
  @Test func manyGetsGoTheLongWay() throws {
    let hand = HandClock()
    defer { withExtendedLifetime(hand) {} }
    let (tier, clock, path) = try tierWithHits(count: 600_000, clock: hand.clock)
    for name in names[..<8000] { try put(name, nil, tier, clock) }
    expect(!path.isOpen)
    for start in stride(from: 0, to: 9000 - 32, by: 311) {
      check(Array(names[start..<start + 32]), tier, clock, "from \(start)")
    }
  }
}

/// Calls `body` with keys as the C ABI has them.
private func withMany(_ keys: [String], _ body: (ManyBytes) -> Void) {
  let flat = keys.flatMap { Array($0.utf8) }
  flat.withUnsafeBytes { all in
    var start = all.baseAddress
    var pointers: [UnsafeRawPointer?] = []
    for key in keys {
      pointers.append(start)
      start = start.map { $0 + key.utf8.count }
    }
    let sizes = keys.map(\.utf8.count)
    pointers.withUnsafeBufferPointer { pointers in
      sizes.withUnsafeBufferPointer { sizes in
        body(
          ManyBytes(
            pointers: pointers.baseAddress, sizes: sizes.baseAddress, count: keys.count))
      }
    }
  }
}
