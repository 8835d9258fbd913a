import CSystem
import Synchronization
import Testing

@testable import Hutch

/// The short path of hits gives what the tier gives, or leaves the question to the long path.
@Suite struct HitPathTests {
  private let tier: MemoryTier
  private let clock: Clock
  private let path: HitPath

  init() throws {
    (tier, clock, path) = try tierWithHits(count: 6000)
  }

  private func copy(
    _ key: Bytes, _ buffer: UnsafeMutableRawBufferPointer, _ size: inout Int
  ) -> HitPath.Outcome {
    withUnsafeMutablePointer(to: &size) {
      copy(
        key, HitPath.Target(buffer: buffer.baseAddress!, capacity: buffer.count, size: $0))
    }
  }

  private func copy(_ key: Bytes, _ target: HitPath.Target) -> HitPath.Outcome {
    path.copy(key.baseAddress!, key.count, kind(key), to: target)
  }

  private func contains(_ key: Bytes) -> HitPath.Outcome {
    path.contains(key.baseAddress!, key.count, kind(key))
  }

  /// The kinds of code that read a key of this size, by turns.
  private func kind(_ key: Bytes) -> HitPath.KeySize {
    if HitPath.isShort(key.count) && key.count.isMultiple(of: 2) { return .short }
    return HitPath.isSmall(key.count) ? .small : .any
  }

  /// Random calls, over one shard and then several, against the tier itself.
  @Test func itAgreesWithTheTier() throws {
    var random = Random(seed: testSeed)
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 5000, alignment: 16)
    let found = UnsafeMutablePointer<Int>.allocate(capacity: 1)
    let result = UnsafeMutablePointer<HitPath.Result>.allocate(capacity: 1)
    defer {
      buffer.deallocate()
      found.deallocate()
      result.deallocate()
    }
    var hits: UInt64 = 0
    var misses: UInt64 = 0
    var unusual = 0
    var kept = 0
    for step in 0..<(isLong ? 120_000 : 30_000) {
      let number = UInt64.random(in: 0..<9000, using: &random)
      if step % 40 == 0 { tier.giveBias(toAnyOf: random.next()) }
      // 1 to 40 bytes, always the same of a number.
      var name = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: Int(number % 40))
      withUnsafeBytes(of: number) { name.append(contentsOf: $0) }
      if number % 7 == 0 { name = Array("\(number)".utf8) }
      try name.withUnsafeBytes { key in
        let hash = tier.hash(key)
        switch UInt8.random(in: 0..<8, using: &random) {
        case 0..<3:
          var record = Record(version: UInt64(step + 1), created: clock.now)
          if number % 50 == 0 { record.expires = record.created + 3_600_000_000_000 }
          if number % 51 == 0 { record.checksum = 1 }
          let size = number % 90 == 0 ? 4990 : Int(number % 300)
          let value = [UInt8](repeating: UInt8(truncatingIfNeeded: step), count: size)
          _ = try value.withUnsafeBytes { value in
            try tier.put(
              try Block.copying(
                key: key, value: value, extended: Extended(), record: record),
              hash, at: clock.moment())
          }
        case 3: _ = tier.remove(key, hash, at: clock.moment())
        default:
          let wanted = tier.peek(key, hash, at: clock.moment())
          let capacity = number % 5 == 0 ? 50 : 5000
          var size = -1
          let room = UnsafeMutableRawBufferPointer(rebasing: buffer[..<capacity])
          let outcome = copy(key, room, &size)
          switch outcome {
          case .done:
            hits += 1
            let bytes = UnsafeRawBufferPointer(rebasing: buffer[..<size])
            expect(wanted.unowned.map { $0.value.elementsEqual(bytes) } == true)
            expect(contains(key) == .done)
            let target = HitPath.Target(
              buffer: buffer.baseAddress!, capacity: buffer.count, size: found, found: result)
            result.pointee = HitPath.Result(size: 0, extendedSize: -1, value: nil, version: 0)
            expect(copy(key, target) == .done)
            expect(found.pointee == size && result.pointee.extendedSize == 0)
            expect(result.pointee.version == wanted.unowned?.version)
            // A caller that has the version need not get a copy.
            buffer[0] ^= 0xFF
            let before = buffer[0]
            expect(copy(key, target) == .done)
            if size > 0 && buffer[0] == before { kept += 1 }
            expect(buffer[0] == before || buffer[0] == before ^ 0xFF)
            var value: OpaquePointer?
            expect(path.pin(key.baseAddress!, key.count, kind(key), &value) == .done)
            expect(UnsafeMutableRawPointer(value!) == wanted.unowned!.raw)
            UnownedBlock(UnsafeMutableRawPointer(value!)).release()
            hits += 3
          case .absent:
            misses += 1
            expect(wanted.unowned == nil)
            expect(contains(key) == .absent)
          case .unusual:
            unusual += 1
            expect(wanted.unowned.map { $0.expires != 0 || $0.size > min(capacity, 4096) } == true)
            expect(size == -1)
          }
        }
      }
    }
    expect(tier.shardCount > 1 && unusual > 0 && kept > 0)
    expect(tier.stats.hits == hits && tier.stats.misses == misses, "seed \(testSeed)")
    expect(tier.violation() == nil)
  }

  @Test func whoMayPass() throws {
    expect(path.isOpen && !path.closed.isOpen && !tier.hits(isMemory: false).isOpen)
    // A host's clock has to be asked at every call.
    let hand = HandClock()
    let other = try Bench(policy: .adaptive).tier
    other.prepareHits(hand.clock, isAll: true)
    expect(!other.hits(isMemory: true).isOpen)
  }

  /// A policy that keeps lists learns of each hit: the same entries go as from a tier whose reads
  /// take the long path.
  @Test(arguments: [EvictionPolicy.lru, .lfu, .fifo])
  func listsAreToldOfHits(_ policy: EvictionPolicy) throws {
    let (short, clock, path) = try tierWithHits(count: 300, policy: policy)
    let (long, _, _) = try tierWithHits(count: 300, policy: policy)
    let buffer = UnsafeMutableRawBufferPointer.allocate(byteCount: 64, alignment: 16)
    defer { buffer.deallocate() }
    var random = Random(seed: testSeed)
    var hits = 0
    for step in 0..<12_000 {
      // Low numbers more often than high ones.
      let bound = UInt64.random(in: 1...450, using: &random)
      let name = "key \(UInt64.random(in: 0..<bound, using: &random))"
      try withBytes(name) { key in
        let at = clock.moment()
        if step % 3 == 0 {
          for tier in [short, long] {
            let block = try Block.copying(
              key: key, value: key, extended: Extended(), record: Record(created: clock.now))
            _ = try tier.put(block, tier.hash(key), at: at)
          }
        } else {
          var size = -1
          let found = long.get(key, long.hash(key), at: at)
          let outcome = withUnsafeMutablePointer(to: &size) {
            path.copy(
              key.baseAddress!, key.count, kind(key),
              to: HitPath.Target(buffer: buffer.baseAddress!, capacity: buffer.count, size: $0))
          }
          expect(outcome == (found == nil ? .absent : .done), "seed \(testSeed), step \(step)")
          if outcome == .done { hits += 1 }
        }
      }
    }
    expect(hits > 1000 && short.stats.evictions > 100)
    expect(short.stats.evictions == long.stats.evictions && short.stats.hits == long.stats.hits)
    expect(short.violation() == nil && long.violation() == nil)
  }

  /// Where processes share, a copy counts while its key's counter stands still. A plain block has
  /// no room for a number, and never counts.
  @Test func whereProcessesShareOnlyCurrentCopiesAreHits() throws {
    let size = CoherenceCounters.byteCount + 64
    let memory = UnsafeMutableRawPointer.allocate(byteCount: size, alignment: 64)
    defer { memory.deallocate() }
    memset(memory, 0, size)
    let counters = CoherenceCounters(memory, members: memory + CoherenceCounters.byteCount)
    var random = Random(seed: testSeed)
    let names = (0..<600).map { String(repeating: "k", count: $0 % 30) + "\($0)" }
    for (i, name) in names.enumerated() {
      try withBytes(name) { key in
        var record = Record(version: UInt64(i + 1), created: clock.now)
        record.checksum = i % 3 == 0 ? 0 : 1
        let block = try Block.copying(key: key, value: key, extended: Extended(), record: record)
        _ = try tier.put(block, tier.hash(key), at: clock.moment())
      }
    }
    tier.share(counters)
    expect(path.isOpen)
    var outcomes = [HitPath.Outcome: Int]()
    for step in 0..<4000 {
      if step % 20 == 0 { tier.giveBias(toAnyOf: 0) }
      withBytes(names[Int(random.next() % 600)]) { key in
        let hash = tier.hash(key)
        if random.next() % 8 == 0 {
          counters[CoherenceCounters.index(of: hash)].pointee.wrappingAdd(2, ordering: .relaxed)
        }
        let isCurrent = tier.peek(key, hash, at: clock.moment()).unowned != nil
        var room = 0
        var copied = -1
        let fits = key.count <= 8
        let before = tier.stats
        let outcome = withUnsafeMutableBytes(of: &room) { copy(key, $0, &copied) }
        expect(outcome == (isCurrent && fits ? .done : .unusual), "seed \(testSeed)")
        let isThere = contains(key)
        expect(isThere == (isCurrent ? .done : .unusual))
        expect(tier.stats.hits - before.hits == (outcome == .done ? 1 : 0))
        expect(tier.stats.misses == before.misses)
        outcomes[outcome, default: 0] += 1
      }
    }
    expect(outcomes[.done] ?? 0 > 100 && outcomes[.unusual] ?? 0 > 100, "seed \(testSeed)")
    tier.share(nil)
    expect(tier.violation() == nil)
  }

  /// The first call that is no read ends a bias, and the next reads go as before. What was counted
  /// under the locks of lines counts.
  @Test func anyOtherCallEndsABias() throws {
    let moment = clock.moment()
    func put(_ key: Bytes) throws {
      _ = try tier.put(key, key, tier.hash(key), at: moment)
    }
    func read(_ key: Bytes) -> Bool {
      var room = (0, 0)
      return withUnsafeMutableBytes(of: &room) { buffer in
        var size = 0
        return copy(key, buffer, &size) == .done && size == key.count
      }
    }
    try withBytes("some key") { key in
      try put(key)
      let calls: [(MemoryTier) throws -> Void] = [
        { _ in try put(key) },
        { _ = $0.remove(key, $0.hash(key), at: moment) },
        { $0.clear(keepingUnbacked: false, at: moment) },
        { _ = $0.maintain(at: moment) },
        {
          expect($0.lockAll(until: Deadline(after: Int64.max)))
          expect(!$0.lock(0).isBiased)
          $0.unlockAll(inChild: true)
        },
      ]
      for (i, call) in calls.enumerated() {
        try put(key)
        expect(!path.isBiased)
        tier.giveBias(toAnyOf: 0)
        expect(path.isBiased && path.isOpen && tier.lock(0).isBiased)
        expect(read(key) && contains(key) == .done)
        expect(tier.lock(0).isBiased, "call \(i)")
        try call(tier)
        expect(!path.isBiased && !tier.lock(0).isBiased, "call \(i)")
        expect(read(key) == (contains(key) == .done))
      }
      expect(tier.stats.hits == 8 && tier.stats.misses == 2)
    }
    expect(tier.violation() == nil)
  }

  /// A bias that one thread only uses, or none, ends by what that thread reads. A write finds the
  /// shard its own.
  @Test func aBiasEndsWhereOneThreadReads() {
    for number in 0..<5000 as Range<UInt64> { put(number, 0) }
    let shards = UInt64(tier.shardCount)
    expect(shards > 1)
    for biased in [0..<shards, 0..<1, shards - 1..<shards] {
      for shard in biased { tier.giveBias(toAnyOf: UInt64(shard)) }
      var reads: UInt64 = 0
      let before = tier.stats
      while path.isBiased && reads < 20_000 {
        _ = isThere(reads % 5)
        reads += 1
      }
      expect(!path.isBiased && reads > 1000)
      expect((0..<Int(shards)).allSatisfy { !tier.lock($0).isBiased })
      let after = tier.stats
      expect(after.hits + after.misses - before.hits - before.misses == reads)
      put(1, 1)
      expect(isThere(1))
    }
    expect(tier.violation() == nil)
  }

  /// Two threads that read by turns keep it.
  @Test func twoReadersKeepABias() {
    final class Shared: @unchecked Sendable {
      let test: HitPathTests
      let turn = Atomic<Int>(0)
      let lines = Atomic<Int>(0)
      init(_ test: HitPathTests) { self.test = test }
    }
    for number in 0..<5 as Range<UInt64> { put(number, 0) }
    var lineCount = 0
    tier.lock(0).forEachReader { _ in lineCount += 1 }
    let mask = lineCount - 1
    expect(mask > 0)
    var areApart = false
    // The numbers of other threads lie between theirs, if those begin at the same time.
    for _ in 0..<100 where !areApart {
      let shared = Shared(self)
      tier.giveBias(toAnyOf: 0)
      onThreads(2) { thread in
        let line = ThreadState.reader & mask
        shared.lines.wrappingAdd(thread == 0 ? line : -line, ordering: .relaxed)
        for turn in 0..<40 {
          while shared.turn.load(ordering: .acquiring) != turn * 2 + thread { sched_yield() }
          for number in 0..<500 as Range<UInt64> { _ = shared.test.isThere(number % 5) }
          shared.turn.store(turn * 2 + thread + 1, ordering: .releasing)
        }
      }
      areApart = shared.lines.load(ordering: .relaxed) != 0
      expect(!areApart || tier.lock(0).isBiased)
      put(0, 0)
    }
    expect(areApart && tier.stats.misses == 0)
    expect(tier.violation() == nil)
  }

  /// Threads read, most of the time under the locks of their lines, what others of them write over,
  /// remove and evict. What is copied is whole, what is held stays, and each read is counted.
  @Test func threadsShareAShard() throws {
    final class Shared: @unchecked Sendable {
      let test: HitPathTests
      let reads = Atomic<UInt64>(0)
      let shared = Atomic<UInt64>(0)
      let wrong = Atomic<UInt64>(0)
      init(_ test: HitPathTests) { self.test = test }
    }
    let shared = Shared(self)
    let seed = testSeed
    // Enough for several shards, and for evictions.
    for number in 0..<5000 as Range<UInt64> { put(number, 0) }
    onThreads(4) { thread in
      var random = Random(seed: seed &+ UInt64(thread))
      let test = shared.test
      var room = InlineArray<64, UInt8>(repeating: 0)
      for step in 0..<20_000 {
        let chance = random.next() % 512
        let number = random.next() % (chance % 2 == 0 ? 20 : 9000)
        switch chance {
        case 0..<3: test.put(number, UInt8(truncatingIfNeeded: step))
        case 3:
          withUnsafeBytes(of: test.name(number)) { key in
            _ = test.tier.remove(key, test.tier.hash(key), at: test.clock.moment())
          }
        case 4: if step % 32 == 0 { _ = test.tier.maintain(at: test.clock.moment()) }
        case 5: _ = test.tier.stats
        case 6..<16: test.tier.giveBias(toAnyOf: random.next())
        case 16..<20: test.path.endBiases()
        default:
          withUnsafeBytes(of: test.name(number)) { key in
            if test.path.isBiased { shared.shared.wrappingAdd(1, ordering: .relaxed) }
            shared.reads.wrappingAdd(1, ordering: .relaxed)
            if chance % 4 == 0 {
              var value: OpaquePointer?
              guard test.path.pin(key.baseAddress!, key.count, .short, &value) == .done
              else { return }
              let block = UnownedBlock(UnsafeMutableRawPointer(value!))
              let first = block.value[0]
              let version = block.version
              if chance % 16 == 0 { _ = sched_yield() }
              if block.version != version || !block.value.allSatisfy({ $0 == first }) {
                shared.wrong.wrappingAdd(1, ordering: .relaxed)
              }
              block.release()
            } else {
              withUnsafeMutableBytes(of: &room) { buffer in
                var size = 0
                let outcome = withUnsafeMutablePointer(to: &size) {
                  test.path.copy(
                    key.baseAddress!, key.count, .short,
                    to: HitPath.Target(buffer: buffer.baseAddress!, capacity: 64, size: $0))
                }
                if outcome == .done, !buffer[..<size].allSatisfy({ $0 == buffer[0] }) {
                  shared.wrong.wrappingAdd(1, ordering: .relaxed)
                }
                if outcome == .unusual { shared.wrong.wrappingAdd(1, ordering: .relaxed) }
              }
            }
          }
        }
      }
    }
    let stats = tier.stats
    expect(shared.wrong.load(ordering: .relaxed) == 0, "seed \(seed)")
    expect(stats.hits + stats.misses == shared.reads.load(ordering: .relaxed), "seed \(seed)")
    expect(shared.shared.load(ordering: .relaxed) > 1000 && tier.shardCount > 1, "seed \(seed)")
    expect(tier.violation() == nil, "seed \(seed)")
  }

  private func name(_ number: UInt64) -> (UInt64, UInt64) { (number, ~number) }

  private func isThere(_ number: UInt64) -> Bool {
    withUnsafeBytes(of: name(number)) { key in
      var room = InlineArray<64, UInt8>(repeating: 0)
      return withUnsafeMutableBytes(of: &room) { buffer in
        var size = 0
        return copy(key, buffer, &size) == .done
      }
    }
  }

  /// A value of bytes that are all the same, of one size.
  private func put(_ number: UInt64, _ byte: UInt8) {
    withUnsafeBytes(of: name(number)) { key in
      let value = [UInt8](repeating: byte, count: 48)
      value.withUnsafeBytes { value in
        let moment = clock.moment()
        _ = try! tier.put(key, value, tier.hash(key), at: moment)
        if tier.mayDivide { tier.divide(at: moment) }
      }
    }
  }

  /// With a store below, what memory has not is for the long path to say.
  @Test func aMissIsAnAnswerOnlyOfAllThereIs() {
    tier.prepareHits(clock, isAll: false)
    withBytes("nothing here") { key in
      var (room, size) = (0, 0)
      expect(withUnsafeMutableBytes(of: &room) { copy(key, $0, &size) } == .unusual)
      expect(contains(key) == .unusual)
    }
    expect(tier.stats.misses == 0)
  }
}
