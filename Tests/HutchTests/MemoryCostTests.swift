import Testing

@testable import Hutch

/// Entries of different cost under the default policy.
@Suite struct MemoryCostTests {
  private struct Request {
    var key: Int
    var cost: UInt64
  }

  /// What of a load hits, with a hash that does not change; invariants are looked at on the way.
  private func hits(
    _ policy: EvictionPolicy, _ limits: TierLimits, _ requests: some Sequence<Request>
  ) throws -> [Bool] {
    let tier = try MemoryTier(
      limits: limits, policy: policy, hash: KeyedHash(3, 14, 15, 92), versions: Versions(from: 1))
    let bench = try Bench()
    let moment = bench.hand.moment
    var hits: [Bool] = []
    for request in requests {
      let text = "\(request.key)"
      let hash = withBytes(text) { tier.hash($0) }
      let found = withBytes(text) { tier.get($0, hash, at: moment) } != nil
      hits.append(found)
      if found { continue }
      let block = try bench.block(text) { $0.cost = request.cost }
      expect(try tier.put(block, hash, at: moment).outcome == .stored)
      expect(limits.cost == 0 || tier.cost <= limits.cost)
      if hits.count % 500 == 0 { expect(tier.violation() == nil) }
    }
    expect(tier.violation() == nil)
    return hits
  }

  private func ratio(_ hits: [Bool]) -> Double {
    Double(hits.filter { $0 }.count) / Double(hits.count)
  }

  private func load(_ seed: UInt64, _ count: Int, _ cost: (Int) -> UInt64) -> [Request] {
    var random = Random(seed: seed)
    return (0..<count).map { step in
      let range = random.next() % 3 == 0 ? 2000 : random.next() % 2 == 0 ? 300 : 60
      let key = Int(random.next() % UInt64(range)) + (step / 8000) * 20
      return Request(key: key, cost: cost(key))
    }
  }

  /// Where all cost the same a limit on cost is one of count, hit by hit.
  @Test func equalCostsChangeNothing() throws {
    for limit in [7, 100, 700] as [UInt64] {
      let requests = load(testSeed, isLong ? 10_000 : 4000) { _ in 1 }
      let byCost = try hits(.adaptive, TierLimits(cost: limit), requests)
      let byCount = try hits(.adaptive, TierLimits(count: limit), requests)
      expect(byCost == byCount, "seed \(testSeed), limit \(limit)")
    }
  }

  /// A few large entries in place of many small ones make a tier another one: the policy has no more
  /// memory than it needs before 64 of them have come to each shard.
  @Test func thePolicyFollowsAFewLargeEntries() throws {
    let bench = try Bench(TierLimits(cost: 16 << 20), policy: .adaptive)
    let selector = bench.tier.common.selector
    let small = String(repeating: "s", count: 400)
    let large = String(repeating: "l", count: 100_000)
    for i in 0..<64_000 { try bench.put("\(i)", small) }
    let before = selector.tuning().capacity
    expect(before > 30_000)
    for i in 0..<120 { try bench.put("large \(i)", large) }
    expect(selector.tuning().capacity < before / 2)
    expect(bench.violation == nil)
  }

  /// Under a limit of count it does not matter what entries cost.
  @Test func costsDoNotCountUnderALimitOfCount() throws {
    let requests = load(testSeed, isLong ? 10_000 : 4000) { UInt64(1 + $0 * 7919 % 100_000) }
    let equal = requests.map { Request(key: $0.key, cost: 1) }
    let limits = TierLimits(count: 120)
    expect(
      try hits(.adaptive, limits, requests) == hits(.adaptive, limits, equal), "seed \(testSeed)")
  }

  /// Many small entries that are asked for often, and large ones that come by.
  @Test func manySmallOnesStayAndFewLargeOnesGo() throws {
    var random = Random(seed: 11)
    let requests = (0..<15_000).map { step in
      step % 5 == 4
        ? Request(key: 10_000 + Int(random.next() % 50), cost: 100_000)
        : Request(key: Int(random.next() % 500), cost: 1000)
    }
    let limits = TierLimits(cost: 1_000_000)
    let adaptive = try hits(.adaptive, limits, requests)
    let lru = try hits(.lru, limits, requests)
    expect(ratio(adaptive) > 0.75)
    expect(ratio(lru) < 0.3)
    // Of the small ones nearly all, once they have been asked for.
    let small = zip(requests, adaptive).suffix(5000).filter { $0.0.cost == 1000 }.map(\.1)
    expect(ratio(small) > 0.95)
  }

  /// What is popular is large: cost is not all.
  @Test func largeOnesThatArePopularStay() throws {
    var random = Random(seed: 12)
    let requests = (0..<30_000).map { step in
      step % 2 == 0
        ? Request(key: Int(random.next() % 5), cost: 50_000)
        : Request(key: 1000 + step, cost: 2000)
    }
    let adaptive = try hits(.adaptive, TierLimits(cost: 500_000), requests)
    expect(ratio(adaptive) > 0.45)
  }

  /// A loop over more than fits: what is kept is small.
  @Test func ofALoopTheSmallPartStays() throws {
    let costs = (0..<400).map { UInt64(1) << UInt64(6 + $0 % 8) }
    let requests = (0..<12_000).map { Request(key: $0 % 400, cost: costs[$0 % 400]) }
    let limit = costs.reduce(0, +) / 8
    let limits = TierLimits(cost: limit)
    expect(try ratio(hits(.lru, limits, requests)) < 0.01)
    // The cheapest that fit are 5 of 8.
    expect(try ratio(hits(.adaptive, limits, requests)) > 0.35)
  }

  /// Any costs, entries that change theirs, limits that come and go: hard limits, sound
  /// structures.
  @Test(arguments: MemoryPolicyTests.all)
  func staysSoundWhateverEntriesCost(policy: EvictionPolicy) throws {
    for round in 0..<(isLong ? 4 : 2) {
      let seed = testSeed &+ UInt64(round)
      var random = Random(seed: seed)
      var limits = TierLimits(cost: 100_000)
      let bench = try Bench(limits, policy: policy)
      for step in 0..<4000 {
        func context() -> Comment { "seed \(seed), step \(step)" }
        let key = "\(random.next() % (random.next() % 2 == 0 ? 40 : 400))"
        switch random.next() % 8 {
        case 0..<5:
          let cost = 1 + random.next() % (1 << (random.next() % 16))
          let outcome = try bench.put(key, "value") { $0.cost = cost }.outcome
          if limits.cost != 0 {
            expect(outcome == (cost <= limits.largestCharge ? .stored : .tooLarge), context())
            expect(bench.tier.cost <= limits.cost, context())
          }
          if limits.count != 0 { expect(bench.tier.count <= limits.count, context()) }
        case 5..<7: _ = bench.get(key)
        default: bench.remove(key)
        }
        if step % 500 == 499 {
          limits = TierLimits(
            cost: random.next() % 3 == 0 ? 0 : 20_000 + random.next() % 200_000,
            count: random.next() % 3 == 0 ? 5 + random.next() % 200 : 0)
          bench.tier.setLimits(limits, at: bench.hand.moment)
        }
        if step % 20 == 0 { expect(bench.violation == nil, context()) }
      }
      expect(bench.violation == nil, "seed \(seed)")
    }
  }

  // MARK: the parts

  /// Slots 0 to 999.
  private static func makeSlots() throws -> Entries {
    var entries = Entries(ShardPosition(), counts: false)
    for number in 0..<1000 as Range<UInt32> {
      _ = try entries.slab.reserve()
      expect(entries.slab.take(0) == Slot(number))
      // The memory of a slot has what was there before.
      entries.link(Slot(number)).pointee.tag(costClass: 0, level: 0)
    }
    return entries
  }

  @Test func linkAndTagAreKeptApart() {
    var link = ForwardLink()
    expect(link.newer.isNone && link.costClass == 0 && link.level == 0)
    link.tag(costClass: CostLists.mostClass, level: 3)
    expect(link.newer.isNone && !link.isGone)
    link.newer = Slot(UInt32(ForwardLink.slotLimit - 1))
    expect(link.newer == Slot(UInt32(ForwardLink.slotLimit - 1)))
    expect(link.costClass == CostLists.mostClass && link.level == 3)
    link.markGone()
    expect(link.isGone && link.newer == Slot(UInt32(ForwardLink.slotLimit - 1)))
    link.newer = Slot(0)
    link.tag(costClass: 5, level: 0)
    expect(link.newer == Slot(0) && link.costClass == 5 && link.level == 0)
    link.newer = .none
    expect(link.newer.isNone && link.costClass == 5)
  }

  @Test func classesOfCost() {
    expect(CostLists.costClass(0) == 0 && CostLists.costClass(1) == 0)
    expect(CostLists.costClass(512) == 9 && CostLists.costClass(1023) == 9)
    expect(CostLists.costClass(.max) == CostLists.mostClass)
    for i in 0..<CostLists.mostClass {
      let ratio = CostLists.weight(i + 1) / CostLists.weight(i)
      expect(abs(ratio - 2.5198421) < 0.001)
    }
  }

  /// A costly entry goes before an older cheap one, but not before one that is old enough; a
  /// level makes it cheaper.
  @Test func ageAndCostDecide() throws {
    let slots = try Self.makeSlots()
    var lists = CostLists()
    func push(_ slot: UInt32, _ costClass: UInt32, level: UInt32 = 0, at now: UInt32) {
      slots.link(Slot(slot)).pointee.tag(costClass: costClass, level: level)
      lists.push(Slot(slot), at: now, slots)
    }
    push(0, 6, at: 10)
    push(1, 10, at: 100)
    func first(_ now: UInt32, weighs: Bool = true, sparing: Slot = .none) -> Slot? {
      lists.first(sparing: sparing, at: now, weighs: weighs, slots)
    }
    // 2^(4 * 4/3) = 40 times the weight.
    expect(first(100) == Slot(0))
    expect(first(110) == Slot(1))
    expect(first(110, weighs: false) == Slot(0))
    expect(first(110, sparing: Slot(1)) == Slot(0))
    lists.pop(Slot(1), slots)
    push(1, 10, level: 3, at: 100)
    expect(first(110) == Slot(0))
    expect(first(200) == Slot(1))
    expect(lists.violation(slots) == nil)
    lists.pop(Slot(0), slots)
    lists.pop(Slot(1), slots)
    expect(lists.isEmpty && first(300) == nil && lists.violation(slots) == nil)
  }

  /// Entries keep no times; how old the first is comes from the pace of the others, of one list or
  /// of several.
  @Test(arguments: [1, 2] as [UInt32])
  func theOldestHasAnAge(classes: UInt32) throws {
    let slots = try Self.makeSlots()
    var lists = CostLists()
    for step in 0..<2000 as Range<UInt32> {
      let slot = Slot(step % 80)
      if step >= 80 { lists.pop(slot, slots) }
      slots.link(slot).pointee.tag(costClass: 3 + step % classes, level: 0)
      // Twice as slow in the end.
      lists.push(slot, at: step < 1000 ? step : 1000 + 2 * (step - 1000), slots)
    }
    let age = lists.age(at: 3000)
    expect(age > 140 && age < 180, "\(age)")
    expect(lists.violation(slots) == nil)
  }

  /// Lists come and go with their entries, whatever the order, and each keeps its own. A slot whose
  /// entry has gone from between others is free after a while, and not more than a third of the
  /// slots wait for that, about.
  @Test func listsComeAndGo() throws {
    let seed = testSeed
    var random = Random(seed: seed)
    let slots = try Self.makeSlots()
    for classes in [1, 2, 5, 31] as [UInt64] {
      var lists = CostLists()
      var model: [UInt32: (index: UInt32, number: Int)] = [:]
      var free = Set(0..<1000 as Range<UInt32>)
      for step in 0..<(isLong ? 20_000 : 8000) {
        // Now many, now few.
        let isGrowing = step / 2000 % 2 == 0
        if !model.isEmpty && (random.next() % 3 == 0) == isGrowing {
          // As victims go, or any entry.
          let first = lists.first(sparing: .none, at: UInt32(step), weighs: false, slots)!.number
          let slot = random.next() % 2 == 0 ? first : model.keys.randomElement(using: &random)!
          model[slot] = nil
          if lists.remove(Slot(slot), slots) { free.insert(slot) }
          while let slot = lists.takeFreed(slots) {
            let isNew = free.insert(slot.number).inserted
            expect(model[slot.number] == nil && isNew)
          }
        } else if model.count < 600, let slot = free.popFirst() {
          let costClass = UInt32(truncatingIfNeeded: random.next() % classes)
          let level = UInt32(truncatingIfNeeded: random.next() % 4)
          slots.link(Slot(slot)).pointee.tag(costClass: costClass, level: level)
          lists.push(Slot(slot), at: UInt32(step), slots)
          model[slot] = (costClass - min(costClass, level), step)
        }
        // It looks at every entry.
        if step % 5 == 4 { expect(lists.violation(slots) == nil, "seed \(seed), step \(step)") }
        let waiting = 1000 - free.count - model.count
        expect(waiting <= 4 * Int(classes) + model.count / 2, "seed \(seed), step \(step)")
      }
      var left: [UInt32] = []
      lists.forEach(slots) { left.append($0.number) }
      let expected = model.sorted {
        ($1.value.index, $0.value.number) < ($0.value.index, $1.value.number)
      }
      expect(left == expected.map(\.key), "seed \(seed), \(classes) classes")
    }
  }

  /// The oldest is spared by going behind the others.
  @Test func theSparedGoesBehindTheOthers() throws {
    let slots = try Self.makeSlots()
    var lists = CostLists()
    for slot in 0..<3 as Range<UInt32> { lists.push(Slot(slot), at: slot, slots) }
    func first(sparing slot: UInt32) -> Slot? {
      lists.first(sparing: Slot(slot), at: 3, weighs: false, slots)
    }
    expect(first(sparing: 1) == Slot(0))
    expect(first(sparing: 0) == Slot(1))
    expect(lists.violation(slots) == nil)
    var order: [UInt32] = []
    lists.forEach(slots) { order.append($0.number) }
    expect(order == [1, 2, 0])
    let isFree = (lists.remove(Slot(2), slots), lists.remove(Slot(1), slots))
    expect(isFree == (false, true))
    expect(first(sparing: 0) == nil && lists.violation(slots) == nil)
  }
}
