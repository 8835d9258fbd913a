import CSystem
import Synchronization
import Testing

@testable import Hutch

/// Runs `body` on some threads at once, with the number of each.
func onThreads(_ count: Int, _ body: @escaping (Int) -> Void) {
  final class Start {
    let body: (Int) -> Void
    let number: Int
    init(_ body: @escaping (Int) -> Void, _ number: Int) {
      self.body = body
      self.number = number
    }
  }
  var threads: [pthread_t] = []
  for number in 0..<count {
    var thread = pthread_t()
    let start = Unmanaged.passRetained(Start(body, number))
    let status = pthread_create(
      &thread, nil,
      { raw in
        let start = Unmanaged<Start>.fromOpaque(raw!).takeRetainedValue()
        start.body(start.number)
        return nil
      }, start.toOpaque())
    precondition(status == 0)
    threads.append(thread)
  }
  for thread in threads { pthread_join(thread, nil) }
}

@Suite struct MemoryThreadTests {
  /// A tier and what threads do to it, without the bench's own state.
  final class Hammer {
    let tier: MemoryTier
    let moment: Moment
    let hand = HandClock()
    let violations = Atomic<Int>(0)

    init(_ limits: TierLimits, _ policy: EvictionPolicy = .lru) throws {
      tier = try MemoryTier(
        limits: limits, policy: policy, hash: KeyedHash(), versions: Versions(from: 1))
      moment = hand.moment
    }

    func put(_ key: UInt64, size: Int, version: UInt64) {
      withUnsafeBytes(of: key) { bytes in
        let record = Record(version: version, created: hand.now, size: size)
        let block = try! Block.allocate(key: bytes, record: record)
        memset(block.unowned.value.baseAddress!, Int32(truncatingIfNeeded: key & 0x7F), size)
        _ = try! tier.put(block, tier.hash(bytes), at: moment)
      }
    }

    func check(_ key: UInt64) {
      withUnsafeBytes(of: key) { bytes in
        guard let block = tier.get(bytes, tier.hash(bytes), at: moment) else { return }
        let value = block.unowned.value
        if value.contains(where: { $0 != UInt8(key & 0x7F) }) {
          violations.wrappingAdd(1, ordering: .relaxed)
        }
      }
    }
  }

  @Test(arguments: [(500, 0), (0, 100_000), (10_000, 0), (4500, 750_000)] as [(UInt64, UInt64)])
  func limitsHoldAtEveryMoment(count: UInt64, cost: UInt64) throws {
    var limits = TierLimits(count: count)
    limits.cost = cost
    let hammer = try Hammer(limits)
    let seed = testSeed
    onThreads(4) { number in
      var random = Random(seed: seed &+ UInt64(number))
      for step in 0..<(isLong ? 100_000 : 10_000) {
        let key = random.next() % 20_000
        switch random.next() % 8 {
        case 0..<5:
          hammer.put(key, size: Int(random.next() % 200), version: UInt64(step))
          if (count > 0 && hammer.tier.count > count) || (cost > 0 && hammer.tier.cost > cost) {
            hammer.violations.wrappingAdd(1, ordering: .relaxed)
          }
        case 5:
          withUnsafeBytes(of: key) { bytes in
            _ = hammer.tier.remove(bytes, hammer.tier.hash(bytes), at: hammer.moment)
          }
        default: hammer.check(key)
        }
      }
    }
    expect(hammer.violations.load(ordering: .relaxed) == 0, "seed \(seed)")
    expect(hammer.tier.violation() == nil, "seed \(seed)")
  }

  /// Values of few keys are written over in place while others read and hold them: what is copied
  /// is whole, and what is held stays.
  @Test func aValueIsWrittenOverOnlyWhereNobodyHoldsIt() throws {
    let hammer = try Hammer(TierLimits(count: 100))
    let seed = testSeed
    onThreads(4) { number in
      var random = Random(seed: seed &+ UInt64(number))
      let buffer = UnsafeMutableRawPointer.allocate(byteCount: 64, alignment: 8)
      defer { buffer.deallocate() }
      func isWhole(_ bytes: Bytes) -> Bool {
        bytes.count < 2 || memcmp(bytes.baseAddress!, bytes.baseAddress! + 1, bytes.count - 1) == 0
      }
      for _ in 0..<20_000 {
        let key = random.next() % 20
        let size = 40 + Int(random.next() % 20)
        withUnsafeBytes(of: key) { key in
          let hash = hammer.tier.hash(key)
          var isRight = true
          switch random.next() % 4 {
          case 0, 1:
            memset(buffer, Int32(random.next() % 256), size)
            _ = try! hammer.tier.put(
              key, Bytes(start: buffer, count: size), hash, at: hammer.moment)
          case 2:
            let found = hammer.tier.copy(key, hash, at: hammer.moment, into: buffer, capacity: 64)
            isRight = isWhole(Bytes(start: buffer, count: found ?? 0))
          default:
            guard let block = hammer.tier.get(key, hash, at: hammer.moment) else { return }
            let value = Bytes(block.unowned.value)
            let version = block.unowned.version
            memcpy(buffer, value.baseAddress!, value.count)
            _ = sched_yield()
            isRight =
              isWhole(value) && block.unowned.version == version
              && memcmp(buffer, value.baseAddress!, value.count) == 0
          }
          if !isRight { hammer.violations.wrappingAdd(1, ordering: .relaxed) }
        }
      }
    }
    expect(hammer.violations.load(ordering: .relaxed) == 0, "seed \(seed)")
    expect(hammer.tier.violation() == nil, "seed \(seed)")
    expect(hammer.tier.stats.replacements > 0)
  }

  @Test(arguments: MemoryPolicyTests.all)
  func everythingAtOnce(policy: EvictionPolicy) throws {
    var limits = TierLimits(count: 12_000)
    limits.cost = 3_000_000
    let hammer = try Hammer(limits, policy)
    let seed = testSeed
    onThreads(4) { number in
      var random = Random(seed: seed &+ UInt64(number))
      var position: UInt64 = 0
      for step in 0..<(isLong ? 15_000 : 8_000) {
        let key = random.next() % 30_000
        hammer.put(key, size: Int(random.next() % 100), version: UInt64(step))
        hammer.check(random.next() % 30_000)
        switch random.next() % 1000 {
        case 0: hammer.tier.clear(keepingUnbacked: Bool.random(using: &random), at: hammer.moment)
        case 1 where number == 0:
          var other = limits
          other.count = 6000 + random.next() % 6000
          other.ages.timeToIdle = Int64(random.next() % 2) * 1000
          hammer.tier.setLimits(other, at: hammer.moment)
        case 2..<20: _ = hammer.tier.maintain(at: hammer.moment)
        case 20..<60:
          if hammer.tier.blocks(
            after: &position, limit: 50, at: hammer.moment, visit: { _ in }) == 0
          {
            position = 0
          }
        case 60..<80: _ = hammer.tier.stats
        default: break
        }
      }
    }
    expect(hammer.violations.load(ordering: .relaxed) == 0, "seed \(seed)")
    expect(hammer.tier.violation() == nil, "seed \(seed)")
  }

  @Test func largeEntriesMakeRoomInOtherShards() throws {
    var limits = TierLimits(cost: 4 << 20)
    limits.maxEntry = 0
    let hammer = try Hammer(limits)
    for i in 0..<20_000 as Range<UInt64> { hammer.put(i, size: 16, version: i) }
    expect(hammer.tier.shardCount > 1)
    onThreads(4) { number in
      for i in 0..<300 as Range<UInt64> {
        hammer.put(i &* 4 &+ UInt64(number), size: 1 << 20, version: i)
        if hammer.tier.cost > 4 << 20 { hammer.violations.wrappingAdd(1, ordering: .relaxed) }
      }
    }
    expect(hammer.violations.load(ordering: .relaxed) == 0)
    expect(hammer.tier.count <= 4)
    expect(hammer.tier.violation() == nil)
  }
}

@Suite struct LockInPlaceTests {
  /// Shared by the threads of a test.
  final class Shared: @unchecked Sendable {
    let memory = UnsafeMutableRawPointer.allocate(byteCount: 16, alignment: 8)
    var lock: LockInPlace { LockInPlace(at: memory) }
    var sum: UnsafeMutablePointer<Int> {
      (memory + LockInPlace.byteCount).assumingMemoryBound(to: Int.self)
    }
    init() {
      lock.initialize()
      (memory + LockInPlace.byteCount).bindMemory(to: Int.self, capacity: 1).initialize(to: 0)
    }
    deinit { memory.deallocate() }
  }

  @Test func oneThreadAtATimeIsInside() {
    let shared = Shared()
    onThreads(4) { number in
      for step in 0..<5000 {
        shared.lock.lock()
        let before = shared.sum.pointee
        // Now and then the holder is away, so that others go to sleep.
        if step % 500 == number { _ = usleep(300) }
        shared.sum.pointee = before + 1
        shared.lock.unlock()
      }
    }
    expect(shared.sum.pointee == 20_000)
  }

  /// A fair release waits for the thread that is counted as a sleeper and takes its time to wake.
  /// Without that the lock is free when the call returns. The waiting is bounded, so a round may
  /// end early on a busy machine: then all of them are tried again.
  @Test func aThreadThatSleepsComesFirst() {
    expect((0..<5).contains { _ in roundsInTurn() >= 20 })
  }

  /// Of 40 rounds, those in which a waiting thread has the lock before the one that gives it up.
  private func roundsInTurn() -> Int {
    let shared = Shared()
    let begun = Atomic<Int>(0)
    let looked = Atomic<Int>(0)
    let inTurn = Atomic<Int>(0)
    onThreads(2) { number in
      let words = shared.memory.assumingMemoryBound(to: Atomic<UInt32>.self)
      for round in 1...40 {
        if number == 0 {
          shared.lock.lock()
          words[1].store(1, ordering: .relaxed)
          begun.store(round, ordering: .sequentiallyConsistent)
          shared.lock.unlockFairly()
          if shared.lock.tryLock() {
            shared.lock.unlock()
          } else {
            inTurn.wrappingAdd(1, ordering: .relaxed)
          }
          looked.store(round, ordering: .sequentiallyConsistent)
          while words[1].load(ordering: .relaxed) != 0 || !shared.lock.tryLock() { sched_yield() }
          shared.lock.unlock()
        } else {
          while begun.load(ordering: .sequentiallyConsistent) < round { sched_yield() }
          for _ in 0..<20 { sched_yield() }
          while !shared.lock.tryLock() { sched_yield() }
          words[1].store(0, ordering: .relaxed)
          while looked.load(ordering: .sequentiallyConsistent) < round { sched_yield() }
          shared.lock.unlock()
        }
      }
    }
    return inTurn.load(ordering: .relaxed)
  }

  @Test func aLockThatIsHeldIsNotTaken() {
    let shared = Shared()
    expect(shared.lock.tryLock())
    expect(!shared.lock.tryLock())
    shared.lock.unlock()
    expect(shared.lock.tryLock())
    shared.lock.unlock()
  }
}
