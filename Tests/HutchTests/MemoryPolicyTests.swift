import Testing

@testable import Hutch

/// What every policy has to pass, then what each is for.
@Suite struct MemoryPolicyTests {
  static let all: [EvictionPolicy] = [.lru, .lfu, .fifo, .adaptive]

  /// Under every policy limits hold exactly, what is there is the newest, everything else is gone,
  /// and the structures are sound after every operation.
  @Test(arguments: all)
  func keepsItsPromisesWhateverGoes(policy: EvictionPolicy) throws {
    for round in 0..<(isLong ? 60 : 6) {
      let seed = testSeed &+ UInt64(round)
      var random = Random(seed: seed)
      let limit = [1, 2, 3, 10, 50, 100][round % 6]
      let bench = try Bench(TierLimits(count: UInt64(limit)), policy: policy)
      var newest: [String: UInt64] = [:]
      for step in 0..<500 {
        func context() -> Comment { "seed \(seed), step \(step), limit \(limit)" }
        let key =
          "\(Int(random.next() % 4 == 0 ? random.next() % 7 : random.next() % UInt64(3 * limit)))"
        switch random.next() % 16 {
        case 0..<8:
          expect(try bench.put(key, "value").outcome == .stored, context())
          newest[key] = bench.version
          expect(bench.contains(key), context())
        case 8..<13: _ = bench.get(key)
        case 13:
          bench.remove(key)
          newest[key] = nil
        case 14:
          if random.next() % 20 == 0 {
            bench.tier.clear(at: bench.hand.moment)
            newest = [:]
          }
        default:
          if let version = bench.version(of: key) {
            expect(version == newest[key], context())
          }
        }
        expect(bench.tier.count <= UInt64(limit), context())
        expect(bench.violation == nil, context())
      }
      for key in bench.keys() { expect(bench.version(of: key) == newest[key], "seed \(seed)") }
      // Exactly the limit, once there is enough.
      for i in 0...limit { try bench.put("fill \(i)") }
      expect(bench.tier.count == UInt64(limit), "seed \(seed)")
    }
  }

  /// The policy changes in the midst of things: entries, limits and structures stay sound, also
  /// over several shards.
  @Test func changesInUse() throws {
    let seed = testSeed
    var random = Random(seed: seed)
    for limit in [1, 100, 9000] {
      let bench = try Bench(TierLimits(count: UInt64(limit)), policy: .adaptive)
      for round in 0..<12 {
        for _ in 0..<(limit == 9000 ? 4000 : 200) {
          let key = "\(random.next() % UInt64(2 * limit))"
          if random.next() % 2 == 0 { try bench.put(key, "value") } else { _ = bench.get(key) }
        }
        let before = Set(bench.keys())
        let policy = MemoryPolicyTests.all[Int(random.next() % 4)]
        try bench.tier.setPolicy(policy, at: bench.hand.moment)
        let context: Comment = "seed \(seed), limit \(limit), round \(round)"
        expect(Set(bench.keys()) == before, context)
        expect(bench.violation == nil, context)
        expect(bench.tier.common.kind == policy, context)
      }
    }
  }

  /// A clear comes when a change of the policy has not reached its shard. The shard has the new
  /// policy from then on, and slots as that needs them.
  @Test(arguments: [.lru, .lfu, .adaptive] as [EvictionPolicy])
  func isClearedAmidAChange(policy: EvictionPolicy) throws {
    let bench = try Bench(
      TierLimits(count: 1000), policy: policy == .adaptive ? .fifo : .adaptive)
    for i in 0..<500 { try bench.put("\(i)") }
    // What `setPolicy` does before it goes from shard to shard.
    let next = try CommonPolicy(policy, shardBits: UInt32(bench.tier.mostBits))
    next.former = bench.tier.common
    bench.tier.common = next
    bench.tier.clear(at: bench.hand.moment)
    try bench.tier.setPolicy(policy, at: bench.hand.moment)
    for i in 0..<2000 { try bench.put("\(i)") }
    expect(bench.tier.count == 1000)
    expect(bench.violation == nil)
  }

  /// Many entries of unequal charge, through a division into shards, with limits that change.
  @Test(arguments: all)
  func staysSoundOverShardsAndLimits(policy: EvictionPolicy) throws {
    let seed = testSeed
    var random = Random(seed: seed)
    let bench = try Bench(TierLimits(cost: 3_000_000), policy: policy)
    for step in 0..<(isLong ? 60_000 : 36_000) {
      let key = "\(random.next() % 40_000)"
      if random.next() % 3 == 0 {
        _ = bench.get(key)
      } else {
        let value = String(repeating: "x", count: Int(random.next() % 64))
        try bench.put(key, value)
      }
      if random.next() % 10 == 0 { bench.remove("\(random.next() % 40_000)") }
      if step % 15_000 == 14_999 {
        expect(bench.violation == nil, "seed \(seed), step \(step)")
        bench.tier.setLimits(
          TierLimits(cost: 500_000 + random.next() % 3_000_000), at: bench.hand.moment)
        expect(bench.violation == nil, "seed \(seed), step \(step)")
      }
    }
    expect(bench.tier.shardCount > 1)
  }

  /// A replacement in a full tier evicts no other entry, nor itself.
  @Test(arguments: all)
  func aReplacementNeedsNoRoom(policy: EvictionPolicy) throws {
    let bench = try Bench(TierLimits(count: 20), policy: policy)
    for i in 0..<20 { try bench.put("\(i)") }
    for round in 0..<100 { try bench.put("\(round % 20)", "again") }
    expect((0..<20).allSatisfy { bench.contains("\($0)") })
    expect(bench.tier.stats.evictions == 0)
  }

  /// What was read often stays in a trim by frequency, though nothing was evicted yet and many
  /// entries came after it.
  @Test(arguments: all)
  func whatIsReadMostOutlivesATrimByFrequency(policy: EvictionPolicy) throws {
    let bench = try Bench(policy: policy)
    for i in 0..<100 { try bench.put("hot \(i)") { $0.cost = 1 } }
    for _ in 0..<20 {
      for i in 0..<100 { expect(bench.get("hot \(i)") != nil) }
    }
    for i in 0..<100 { try bench.put("cold \(i)") { $0.cost = 1 } }
    let removed = bench.tier.trim(
      TrimSpec(kind: .leastFrequent, amount: 100), at: bench.hand.moment, goOn: { _, _ in true })
    expect(removed == 100)
    expect((0..<100).count { bench.contains("hot \($0)") } == 100)
  }

  /// An entry that grows as it is replaced is spared, whatever its turn.
  @Test(arguments: all)
  func whatIsReplacedIsSpared(policy: EvictionPolicy) throws {
    let unit = MemoryTier.charge(1, 99, 0)
    let bench = try Bench(TierLimits(cost: 10 * unit), policy: policy)
    for i in 0..<10 { try bench.put("\(i)", String(repeating: "x", count: 99)) }
    for i in 0..<10 {
      guard let version = bench.version(of: "\(i)") else { continue }
      let larger = String(repeating: "y", count: 150 + i * 20)
      expect(try bench.put("\(i)", larger, if: .version(version)).outcome == .stored)
      expect(bench.contains("\(i)"))
      expect(bench.violation == nil)
    }
  }

  /// Any trim at any time removes what a model says, and leaves the structures sound.
  @Test(arguments: all)
  func trimsAreExact(policy: EvictionPolicy) throws {
    let seed = testSeed
    var random = Random(seed: seed)
    for round in 0..<60 {
      let context: Comment = "seed \(seed), round \(round)"
      let bench = try Bench(policy: policy)
      let start = bench.hand.now
      var model: [String: (charge: UInt64, size: UInt64, created: Int64)] = [:]
      for i in 0..<Int(random.next() % 400) {
        bench.hand.now += Int64(random.next() % 1000)
        let size = random.next() % 200
        let cost = random.next() % 2 == 0 ? 0 : 1 + random.next() % 1000
        try bench.put("\(i)", String(repeating: "x", count: Int(size))) { $0.cost = cost }
        let charge =
          cost == 0 ? MemoryTier.charge("\(i)".utf8.count, Int(size), 0) : cost
        model["\(i)"] = (charge, size, bench.hand.now)
      }
      bench.hand.now += 1
      let held = bench.tier.cost
      expect(held == model.values.reduce(0) { $0 + $1.charge }, context)
      let aim = held == 0 ? 0 : random.next() % held
      let kind = try #require(TrimSpec.Kind(rawValue: 1 + UInt32(round % 10)))
      var spec = TrimSpec(kind: kind)
      switch kind {
      case .expired: break
      case .toCount: spec.amount = random.next() % 400
      case .largerThan: spec.amount = random.next() % 200
      case .writtenBefore: spec.time = start + Int64(random.next() % 200_000)
      case .olderThan, .idleFor: spec.time = Int64(random.next() % 200_000)
      default: spec.amount = aim
      }
      let before = bench.keys()
      var reported: UInt64 = 0
      let removed = bench.tier.trim(spec, at: bench.hand.moment) { count, _ in
        reported = count
        return true
      }
      let left = Set(bench.keys())
      let gone = before.filter { !left.contains($0) }
      expect(removed == UInt64(gone.count) && reported == removed, context)
      expect(bench.violation == nil, context)
      expect(bench.tier.stats.trims == removed && bench.tier.stats.evictions == 0, context)
      let now = bench.hand.now
      switch kind {
      case .expired: expect(removed == 0, context)
      case .toCount:
        expect(left.count == min(before.count, Int(spec.amount)), context)
      case .largerThan:
        expect(gone.allSatisfy { model[$0]!.size > spec.amount }, context)
        expect(left.allSatisfy { model[$0]!.size <= spec.amount }, context)
      case .writtenBefore, .olderThan, .idleFor:
        let time = kind == .writtenBefore ? spec.time : now - spec.time
        expect(gone.allSatisfy { model[$0]!.created < time }, context)
        expect(left.allSatisfy { model[$0]!.created >= time }, context)
      default:
        expect(bench.tier.cost <= aim, context)
        // Not one too many.
        if let last = gone.map({ model[$0]!.charge }).max() {
          expect(bench.tier.cost + last > aim, context)
        }
        if kind == .largestFirst {
          let least = gone.map { model[$0]!.charge }.min() ?? .max
          expect(left.allSatisfy { model[$0]!.charge <= least }, context)
        }
        // Nothing was read: the first written go first.
        if kind == .leastRecent {
          let latest = gone.map { model[$0]!.created }.max() ?? .min
          expect(left.allSatisfy { model[$0]!.created >= latest }, context)
        }
      }
    }
  }

  @Test(arguments: all)
  func oneEntryAtATimeWorks(policy: EvictionPolicy) throws {
    let bench = try Bench(TierLimits(count: 1), policy: policy)
    for i in 0..<50 {
      try bench.put("\(i)")
      try bench.put("\(i)", "again")
      expect(bench.keys() == ["\(i)"] && bench.violation == nil)
    }
  }

  // MARK: each for itself

  @Test func fifoEvictsInTheOrderOfStoring() throws {
    let bench = try Bench(TierLimits(count: 3), policy: .fifo)
    for key in ["a", "b", "c"] { try bench.put(key) }
    _ = bench.get("a")
    try bench.put("a", "again")
    try bench.put("d")
    expect(Set(bench.keys()) == ["b", "c", "d"])
    bench.remove("c")
    try bench.put("e")
    try bench.put("f")
    expect(Set(bench.keys()) == ["d", "e", "f"])
  }

  @Test func lfuEvictsTheLeastUsed() throws {
    let bench = try Bench(TierLimits(count: 3), policy: .lfu)
    for (key, uses) in [("a", 3), ("b", 1), ("c", 2)] {
      try bench.put(key)
      for _ in 0..<uses { _ = bench.get(key) }
    }
    try bench.put("d")  // b goes
    expect(Set(bench.keys()) == ["a", "c", "d"])
    for _ in 0..<5 { _ = bench.get("d") }
    try bench.put("e")  // c goes
    expect(Set(bench.keys()) == ["a", "d", "e"])
    try bench.put("f")  // of what was never used, the one that was stored first
    expect(Set(bench.keys()) == ["a", "d", "f"])
  }

  @Test func lfuCountsFar() throws {
    let bench = try Bench(TierLimits(count: 2), policy: .lfu)
    try bench.put("often")
    for _ in 0..<100_000 { _ = bench.get("often") }
    try bench.put("more often")
    for _ in 0..<200_000 { _ = bench.get("more often") }
    try bench.put("new")
    expect(Set(bench.keys()) == ["more often", "new"])
  }

  private func hitRatio(
    _ policy: EvictionPolicy, capacity: UInt64, _ keys: some Sequence<UInt64>
  ) throws -> Double {
    let bench = try Bench(TierLimits(count: capacity), policy: policy)
    var hits = 0
    var total = 0
    for key in keys {
      total += 1
      if bench.get("\(key)") != nil { hits += 1 } else { try bench.put("\(key)") }
    }
    expect(bench.violation == nil)
    return Double(hits) / Double(total)
  }

  /// A loop a little larger than the cache: lru has no hit at all.
  @Test(arguments: [40, 400] as [UInt64])
  func adaptiveKeepsPartOfALoop(capacity: UInt64) throws {
    let loop = (0..<60 * capacity).map { $0 % (capacity + capacity / 4) }
    expect(try hitRatio(.lru, capacity: capacity, loop) == 0)
    expect(try hitRatio(.adaptive, capacity: capacity, loop) > 0.6)
  }

  /// A loop of twice as many keys as the cache has, all of which are remembered when they come
  /// again. Half of the requests can be hits; of 80 seeds of the hash, the ratio was .409 to .476.
  @Test func adaptiveKeepsPartOfALoopThatIsRemembered() throws {
    let loop = (0..<200_000 as Range<UInt64>).map { $0 % 5000 }
    expect(try hitRatio(.adaptive, capacity: 2500, loop) > 0.36)
  }

  /// Keys that come in order, and in reverse order, in turns: most of what came last comes next.
  @Test func adaptiveFollowsTurns() throws {
    let turns = (0..<200_000 as Range<UInt64>).map { $0 % 4000 }
      .map { $0 < 2000 ? $0 : 3999 - $0 }
    let lru = try hitRatio(.lru, capacity: 1800, turns)
    expect(try hitRatio(.adaptive, capacity: 1800, turns) > lru - 0.03)
  }

  /// Keys that are used a few times soon after they come, never again: what lru is made for.
  @Test func adaptiveFollowsRecency() throws {
    var random = Random(seed: 7)
    let keys = (0..<60_000 as Range<UInt64>).map { i in
      i / 4 - min(i / 4, random.next() % 200)
    }
    let lru = try hitRatio(.lru, capacity: 250, keys)
    expect(try hitRatio(.adaptive, capacity: 250, keys) > lru - 0.02)
  }

  /// A few popular keys among many that come once.
  @Test func adaptiveLetsAScanPass() throws {
    var random = Random(seed: 7)
    let keys = (0..<100_000 as Range<UInt64>).map { i in
      i % 2 == 0 ? random.next() % 100 : 1000 + i
    }
    let adaptive = try hitRatio(.adaptive, capacity: 120, keys)
    expect(adaptive > 0.47)
    expect(try adaptive > hitRatio(.lru, capacity: 120, keys) + 0.1)
  }

  /// Each key comes, is read once when nearly as many others have come as there is room for, and
  /// never again. A queue has all of them; lru keeps what has been read, and has none.
  @Test func adaptiveFollowsAQueue() throws {
    var random = Random(seed: 7)
    var reads: [Int: [UInt64]] = [:]
    var keys: [UInt64] = []
    for key in 0..<40_000 {
      keys.append(UInt64(key))
      reads[key + 250 + Int(random.next() % 200), default: []].append(UInt64(key))
      keys += reads.removeValue(forKey: key) ?? []
    }
    expect(try hitRatio(.lru, capacity: 500, keys) < 0.02)
    let adaptive = try hitRatio(.adaptive, capacity: 500, keys)
    expect(adaptive > 0.4, "\(adaptive)")
  }

  // MARK: the parts

  @Test func theSketchCountsAndForgets() throws {
    let sketch = try FrequencySketch(capacity: 1000)
    for _ in 0..<6 { sketch.increment(1) }
    sketch.increment(2)
    expect(sketch.estimate(1) == 6 && sketch.estimate(2) == 1 && sketch.estimate(3) == 0)
    for _ in 0..<100 { sketch.increment(1) }
    expect(sketch.estimate(1) == 15)
    // A period of others halves what was, several times.
    for i in 0..<60_000 as Range<UInt32> { sketch.increment(1000 &+ i &* 2_654_435_761) }
    expect(sketch.estimate(1) <= 5)
  }

  @Test func ghostsAreRememberedForTwiceTheCapacity() throws {
    var random = Random(seed: testSeed)
    var ghosts = try Ghosts(capacity: 1000)
    let keys = (0..<10_000).map { _ in UInt32(truncatingIfNeeded: random.next()) }
    for key in keys { ghosts.insert(key) }
    let recent = keys.suffix(1000).filter { ghosts.contains($0) }.count
    let old = keys.prefix(7000).filter { ghosts.contains($0) }.count
    expect(recent > 900 && old < 200)
    ghosts.remove(keys[9999])
    let isThere = ghosts.contains(keys[9999])
    expect(!isThere)
  }

  /// A key that went of late goes to the main queue, and is remembered no more; another goes to the
  /// window.
  @Test(arguments: [0, 1, 2, 3, 5])
  func whatComesBackGoesToTheMainQueue(mode: Int) throws {
    let mode = Mode.number(mode)
    let sketch = try FrequencySketch(capacity: 100)
    var ghosts = try Ghosts(capacity: 100)
    var entries = Entries(ShardPosition(), counts: false)
    var queue = SegmentedQueue()
    func put(_ key: UInt32) throws -> Slot {
      queue.prepare(
        key, ghost: key, costClass: 0, isFull: false, mode, sketch, &ghosts, entries)
      _ = try entries.slab.reserve()
      let slot = entries.slab.take(key)
      queue.admit(slot, costClass: 0, mode, sketch, entries)
      return slot
    }
    ghosts.insert(2)
    let (known, new) = (try put(2), try put(4))
    let (knownIsMain, newIsMain) = (entries.isMain(known), entries.isMain(new))
    expect(knownIsMain && !newIsMain)
    let isRemembered = ghosts.contains(2)
    expect(!isRemembered)
    expect(queue.violation(entries) == nil)
  }

  /// A key that was never counted seems counted only if its counters in all four rows are others'
  /// too. Of 31 keys a line, a counter of one row has been others' for 5 keys of 8.
  @Test func theSketchLooksAtEachRow() throws {
    let seed = testSeed
    var random = Random(seed: seed)
    let sketch = try FrequencySketch(capacity: 16_384)
    for _ in 0..<16_000 { sketch.increment(UInt32(truncatingIfNeeded: random.next()) & ~1) }
    var wrong = 0
    for _ in 0..<10_000 where sketch.estimate(UInt32(truncatingIfNeeded: random.next()) & ~1) > 0 {
      wrong += 1
    }
    expect(wrong > 500 && wrong < 3000, "\(wrong), seed \(seed)")
  }

  /// The rank down to which entries have to go: as high as it may be, and exact where a bin holds
  /// several ranks.
  @Test func aSurveyFindsTheRank() throws {
    let survey = try #require(TrimSurvey())
    for rank in 1...9 as ClosedRange<UInt64> { survey.add(rank << 60, 100) }
    var excess: UInt64 = 100
    expect(survey.narrow(&excess) == 9 << 60)
    // One bin.
    let other = try #require(TrimSurvey())
    excess = 15
    for _ in 0..<2 {
      for rank in [5, 3, 4] as [UInt64] { other.add(rank, 10) }
      if let rank = other.narrow(&excess) {
        expect(rank == 4)
        return
      }
    }
    Issue.record("a bin for each rank, and none was found")
  }

  /// Entries that were popular once give way to others that come again, though by the sketch
  /// they still are popular.
  @Test func whatIsNotUsedAnyMoreYields() throws {
    let sketch = try FrequencySketch(capacity: 100)
    var shadow = try Shadow(.number(3), capacity: 100, costLimit: 0, counts: true)
    func ask(_ key: UInt32) -> Bool { shadow.ask(key &* 0x9E37_79B1 & ~1, cost: 0, sketch) }
    for key in 0..<100 as Range<UInt32> {
      _ = ask(key)
      for _ in 0..<15 { sketch.increment(key &* 0x9E37_79B1 & ~1) }
    }
    // Twelve rounds of a loop, so many that no other entry's frequency reaches theirs.
    var hits = 0
    for round in 0..<12 {
      for key in 500..<590 as Range<UInt32> where ask(key) && round >= 10 { hits += 1 }
    }
    expect(hits > 90)
    expect(sketch.estimate(7 &* 0x9E37_79B1 & ~1) > 12)
    expect(shadow.violation() == nil)
  }

  /// The policy's memory: its links, so much per entry and so much in all, however many cores the
  /// machine has. A sketch for more than its fewest words is one for more entries.
  @Test func itsMemoryIsBounded() throws {
    for bits in 0...8 as ClosedRange<UInt32> {
      let selector = try Selector(shardBits: bits)
      for capacity in [
        1, 20, 256, 500, 512, 513, 767, 1000, 1025, 2051, 5000, 8191, 16_384, 65_536, 600_000,
        10_000_000,
      ] {
        for (costLimit, isFilling) in [(0, false), (0, true), (1 << 40, false)] as [(UInt64, Bool)] {
          selector.tune(for: capacity, costLimit: costLimit, isFilling: isFilling)
          let tuning = selector.tuning()
          let context: Comment = "\(1 << bits) shards, capacity \(capacity), costs \(costLimit)"
          // What was there may be right enough for this one.
          expect(!tuning.isOff(capacity, costLimit, isFilling: isFilling), context)
          let all = tuning.bytes + Policy.size << Int(bits)
          let perEntry = 24 - MemoryLayout<ForwardLink>.size
          expect(all <= 128 << 10 + perEntry * tuning.capacity, context)
          if costLimit != 0 || tuning.capacity <= 512 {
            let more = max(0, tuning.sketch.bytes - FrequencySketch.fewestBytes)
            expect(more <= 4 * tuning.capacity && all - more <= 128 << 10, context)
          }
        }
      }
    }
  }

  /// What is asked for while a tier fills is not lost for the choice of a mode.
  @Test func theContestOutlivesTheFilling() throws {
    let selector = try Selector(shardBits: 0)
    selector.tune(for: 10_000, costLimit: 0, isFilling: true)
    let filling = selector.tuning()
    expect(filling.sketch.bytes == 0 && !filling.isComplete)
    // A loop that is too large: the mode that admits everything is the last.
    for round in 0..<40 as Range<UInt32> {
      for key in 0..<900 as Range<UInt32> where round < 40 {
        selector.sample(key &* 0x9E37_79B1 & ~1, cost: 0, filling, as: .hit)
      }
    }
    let leader = filling.contest.leader.load(ordering: .relaxed)
    expect(!Mode.number(leader).isClock)
    selector.tune(for: 10_000, costLimit: 0, isFilling: false)
    let complete = selector.tuning()
    expect(complete.isComplete && complete.contest === filling.contest)
    expect(complete.sketch.bytes >= FrequencySketch.fewestBytes)
    // Another capacity is another contest, which begins with what was known.
    selector.tune(for: 100_000, costLimit: 0, isFilling: false)
    expect(selector.tuning().contest !== filling.contest)
    expect(selector.tuning().contest.leader.load(ordering: .relaxed) == leader)
    expect(selector.violation() == nil)
  }

  /// A key's name in the sketch and in the shadows outlives a division into shards.
  @Test func aKeyIsTheSameInEveryDivision() {
    var random = Random(seed: testSeed)
    for _ in 0..<1000 {
      let hash = random.next()
      let key = ShardPosition().key(UInt32(truncatingIfNeeded: hash >> 32) & ~1)
      for bits in 1...8 as ClosedRange<UInt32> {
        let index = UInt32(truncatingIfNeeded: hash >> UInt64(64 - bits))
        // As a slot keeps it: what is left of the hash within the shard, but for one bit.
        let kept = UInt32(truncatingIfNeeded: (hash << UInt64(bits)) >> 32) & ~1
        expect(ShardPosition(index: index, bits: bits).key(kept) == key, "seed \(testSeed)")
      }
    }
  }

  @Test func coresDecideHowManyShardsThereAre() throws {
    let wanted: [(Int, UInt32)] = [(-1, 2), (1, 2), (2, 3), (3, 3), (4, 4), (64, 8), (10_000, 8)]
    for (cores, bits) in wanted { expect(ShardPosition.bits(ofCores: cores) == bits) }
  }
}
