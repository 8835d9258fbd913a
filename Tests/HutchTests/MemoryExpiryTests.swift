import Testing

@testable import Hutch

@Suite struct MemoryExpiryTests {
  @Test func anEntryEndsWhenItsTimeComes() throws {
    let bench = try Bench()
    try bench.put("k", "1") { $0.expires = $0.created + 100 }
    bench.hand.now += 99
    expect(bench.get("k") == "1" && bench.contains("k"))
    bench.hand.now += 1
    expect(!bench.contains("k") && bench.info("k") == nil && bench.keys().isEmpty)
    expect(bench.copy("k", capacity: 10).size == nil)
    expect(bench.get("k") == nil)
    // The read that found it expired has reclaimed it.
    expect(bench.tier.count == 0 && bench.tier.stats.expirations == 1)
    expect(bench.violation == nil)
  }

  @Test func anExpiredEntryCountsAsAbsent() throws {
    let bench = try Bench()
    for key in ["add", "replace", "swap", "remove"] {
      try bench.put(key) { $0.expires = $0.created + 5 }
    }
    bench.hand.now += 5
    expect(try bench.put("replace", if: .present).outcome == .notFound)
    expect(try bench.put("swap", if: .version(3)).outcome == .notFound)
    expect(try bench.put("add", if: .absent).outcome == .stored)
    expect(!bench.remove("remove"))
    expect(bench.keys() == ["add"])
    expect(bench.tier.count == 1)
  }

  @Test func aReadLengthensTheTimeToIdleOnly() throws {
    let bench = try Bench()
    try bench.put("idle") { $0.timeToIdle = 100 }
    try bench.put("both") {
      $0.timeToIdle = 100
      $0.expires = $0.created + 250
    }
    for _ in 0..<2 {
      bench.hand.now += 99
      expect(bench.get("idle") != nil && bench.get("both") != nil)
      expect(bench.info("idle")?.accessed == bench.hand.now)
    }
    // Looking is no access.
    bench.hand.now += 60
    expect(bench.contains("idle") && !bench.contains("both"))
    bench.hand.now += 40
    expect(!bench.contains("idle"))
    bench.maintain()
    expect(bench.tier.count == 0)
  }

  @Test func theTiersAgesCountForEntriesWithoutTheirOwn() throws {
    var limits = TierLimits()
    limits.ages = Ages(timeToLive: 100, timeToIdle: 0)
    let bench = try Bench(limits)
    try bench.put("tiers")
    try bench.put("own") { $0.expires = $0.created + 200 }
    try bench.put("never") { $0.expires = Record.never }
    bench.hand.now += 100
    bench.maintain()
    expect(Set(bench.keys()) == ["own", "never"] && bench.tier.count == 2)
    bench.hand.now += 100
    bench.maintain()
    expect(bench.keys() == ["never"] && bench.tier.count == 1)
  }

  @Test func agesThatChangeCountForWhatIsThere() throws {
    let bench = try Bench()
    for i in 0..<5000 { try bench.put("\(i)") }
    expect(!bench.tier.hasExpiring)
    var limits = TierLimits()
    limits.ages = Ages(timeToLive: 0, timeToIdle: 50)
    bench.tier.setLimits(limits, at: bench.hand.moment)
    expect(bench.tier.hasExpiring)
    expect(bench.violation == nil)
    bench.hand.now += 49
    expect(bench.get("7") != nil)
    bench.hand.now += 1
    expect(bench.keys() == ["7"])
    bench.tier.setLimits(TierLimits(), at: bench.hand.moment)
    expect(!bench.tier.hasExpiring)
    expect(bench.keys().count == 5000)
    // Exact access times were not kept meanwhile: what is left says 'as written'.
    bench.tier.setLimits(limits, at: bench.hand.moment)
    bench.maintain()
    expect(bench.tier.count == 0 && bench.tier.stats.expirations == 5000)
    expect(bench.violation == nil)
  }

  @Test func maintenanceReclaimsWhatNobodyAsksFor() throws {
    let bench = try Bench()
    for i in 0..<20_000 {
      try bench.put("\(i)") { if i % 2 == 0 { $0.expires = $0.created + Int64(i) + 1 } }
    }
    expect(bench.tier.hasExpiring && bench.tier.shardCount > 1)
    bench.hand.now += 10_000
    bench.maintain()
    expect(bench.tier.count == 15_000)
    expect(bench.violation == nil)
    bench.hand.now += 10_000
    bench.maintain()
    expect(bench.tier.count == 10_000 && !bench.tier.hasExpiring)
    expect(bench.violation == nil)
  }

  @Test func durationsThatOverflowMeanForEver() throws {
    let bench = try Bench()
    try bench.put("k") {
      $0.expires = Record.end(of: Int64.max - 1, from: $0.created)
      $0.timeToIdle = Int64.max - 1
    }
    bench.hand.now = Int64.max - 1
    expect(bench.contains("k"))
  }

  @Test func accessTimesAreKeptWithinMinutes() throws {
    let bench = try Bench()
    try bench.put("k")
    expect(bench.info("k")?.accessed == bench.hand.now)
    bench.hand.now += 3_600_000_000_000
    let before = try #require(bench.info("k")).accessed
    expect(before < bench.hand.now - 3_000_000_000_000)
    _ = bench.get("k")
    let after = try #require(bench.info("k")).accessed
    expect(after > bench.hand.now - 120_000_000_000 && after <= bench.hand.now)
  }

  /// A slab that has shrunk has the chunks alone that have a slot in use. Their slots keep what they
  /// have, and the chunks that come anew are as the first ones were.
  @Test func slabsShrinkToTheChunksInUse() throws {
    var random = Random(seed: testSeed)
    var slab = Slab(counts: Bool.random(using: &random))
    var hashes: [UInt32: UInt32] = [:]
    for _ in 0..<60 {
      let isMore = Bool.random(using: &random)
      for _ in 0..<Int.random(in: 0..<2000, using: &random) {
        if isMore {
          let next = try slab.reserve()
          let hash = UInt32.random(in: 0...UInt32.max, using: &random) & ~1
          let slot = slab.take(hash)
          expect(slot == next && hashes[slot.number] == nil && slab.times(slot) == nil)
          hashes[slot.number] = hash
        } else if let slot = hashes.first {
          hashes[slot.key] = nil
          slab.give(back: Slot(slot.key))
        }
      }
      if !isMore {
        // A range of slots, as they leave in the order in which they came.
        let from = UInt32.random(in: 0..<4096, using: &random)
        for number in from..<from + 1500 where hashes.removeValue(forKey: number) != nil {
          slab.give(back: Slot(number))
        }
      }
      slab.shrink()
      let chunks = Set(hashes.keys.map { $0 >> 8 }).count
      expect(
        slab.bytes == chunks * Slab.bytesPerChunk * (slab.counts ? 2 : 1), "seed \(testSeed)")
      expect(hashes.allSatisfy { slab[Slot($0)].pointee.hash == $1 })
      if let violation = slab.violation() {
        Issue.record("\(violation) (seed \(testSeed))")
        return
      }
    }
    for number in hashes.keys { slab.give(back: Slot(number)) }
    slab.shrink()
    expect(slab.bytes == 0 && slab.violation() == nil, "seed \(testSeed)")
  }

  /// The bounds below which a slab searches nothing hold at every moment, and a search that has
  /// been around knows the earliest time exactly.
  @Test func noEntryIsDueBeforeItsBounds() throws {
    typealias Times = Slab.Times
    var random = Random(seed: testSeed)
    var slab = Slab(counts: false)
    var due: [UInt32: Int64] = [:]
    var taken: [UInt32] = []
    var now: Int64 = 0
    func give(back slot: Slot) {
      slab.times(slot)?.pointee = .none
      slab.give(back: slot)
    }
    for _ in 0..<20_000 {
      switch UInt8.random(in: 0..<8, using: &random) {
      case 0..<4:
        let slot = try slab.reserve()
        try slab.reserveTimes(slot)
        let time = now + Int64.random(in: 1..<20_000, using: &random)
        slab.set(slab.take(0), Times(due: time, accessed: 0))
        due[slot.number] = time
        taken.append(slot.number)
      case 4:
        guard let slot = taken.randomElement(using: &random) else { continue }
        if due.removeValue(forKey: slot) != nil { give(back: Slot(slot)) }
      default: now += Int64.random(in: 0..<4, using: &random)
      }
      guard let chunk = slab.searchDue(at: now) else { continue }
      if let times = slab.times(ofChunk: chunk, dueAt: now) {
        for i in 0..<Slab.chunkSize where times[i].due <= now {
          let slot = UInt32(chunk * Slab.chunkSize + i)
          expect(due[slot] == times[i].due)
          give(back: Slot(slot))
          due[slot] = nil
        }
        slab.updateBound(ofChunk: chunk)
      }
      slab.passChunk()
      if let violation = slab.violation() {
        Issue.record("\(violation) (seed \(testSeed))")
        return
      }
    }
    expect(slab.chunkCount > 16)
    // Twice around at least: the first may have begun in the middle.
    let last = due.values.max()!
    for _ in 0..<3 * (slab.chunkCount + 1) {
      guard let chunk = slab.searchDue(at: last - 1) else { break }
      slab.updateBound(ofChunk: chunk)
      slab.passChunk()
    }
    expect(slab.earliestDue == due.values.min())
    expect(slab.searchDue(at: slab.earliestDue - 1) == nil)
  }

  /// What has expired goes before what is alive also where the search has just been around.
  @Test func theExpiredGoFirstRoundAfterRound() throws {
    let bench = try Bench(TierLimits(count: 64))
    for round in 0..<20 {
      for i in 0..<32 { try bench.put("\(round) \(i)") { $0.expires = $0.created + 10 } }
      for i in 0..<32 { try bench.put("kept \(i)") }
      expect(bench.violation == nil)
      bench.hand.now += 10
      for i in 0..<32 {
        try bench.put("\(round) next \(i)") { $0.expires = $0.created + 5 }
        expect(bench.violation == nil)
      }
      for i in 0..<32 { expect(bench.contains("kept \(i)"), "round \(round)") }
      bench.hand.now += 5
    }
    expect(bench.tier.stats.evictions == 0)
  }
}
