import CSystem
import Synchronization
import Testing

@testable import Hutch

/// The two halves of a shard's lock: who holds one waits for none that it must not wait for, and
/// each that must wait does.
@Suite struct ShardLockTests {
  private let tier: MemoryTier
  private let clock: Clock
  private let path: HitPath

  init() throws {
    (tier, clock, path) = try tierWithHits(count: 100)
  }

  private var shard: ShardLock { tier.lock(0) }

  private func giveBias() {
    shard.lock()
    shard.giveBias()
    shard.unlock()
  }

  /// The plain lock in a line, with no word about a bias.
  private func plain(_ lock: ShardLock) -> LockInPlace { LockInPlace(at: lock.raw) }

  /// Whether a thread sleeps for the plain lock, or is about to: the second word of it.
  private func isAwaited(_ lock: ShardLock) -> Bool {
    let waiters = (lock.raw + 4).assumingMemoryBound(to: Atomic<UInt32>.self)
    return waiters.pointee.load(ordering: .acquiring) != 0
  }

  private var readers: [ShardLock] {
    var readers: [ShardLock] = []
    shard.forEachReader { readers.append($0) }
    return readers
  }

  /// What the two threads of a test share.
  private final class Pair: @unchecked Sendable {
    let test: ShardLockTests
    let step = Atomic<Int>(0)
    let hasEnded = Atomic<Bool>(false)
    /// The mask of the expectations, by number, that did not hold.
    let wrong = Atomic<UInt64>(0)
    init(_ test: ShardLockTests) { self.test = test }

    /// The threads are none of the testing library's, which would not know whose fault it is.
    func expect(_ number: UInt64, _ holds: Bool) {
      if !holds { wrong.bitwiseOr(1 << number, ordering: .relaxed) }
    }

    func await(step number: Int) {
      while step.load(ordering: .acquiring) < number { sched_yield() }
    }

    /// Until the other thread's call has ended, or waits: for one of these locks.
    func awaitCall(on locks: [ShardLock]) {
      while !hasEnded.load(ordering: .acquiring), !locks.contains(where: test.isAwaited) {
        sched_yield()
      }
    }
  }

  /// Runs `hold` and then `call` on two threads: `call` begins when `hold` says so.
  private func run(
    _ words: Comment, _ hold: @escaping @Sendable (Pair) -> Void,
    _ call: @escaping @Sendable (Pair) -> Void
  ) {
    let pair = Pair(self)
    onThreads(2) { thread in
      if thread == 0 { return hold(pair) }
      pair.await(step: 1)
      call(pair)
      pair.hasEnded.store(true, ordering: .releasing)
    }
    let hasEnded = pair.hasEnded.load(ordering: .acquiring)
    expect(hasEnded, words)
    let wrong = pair.wrong.load(ordering: .relaxed)
    expect(wrong == 0, words)
  }

  /// Any other call waits for a read under the lock of a line, whichever line that is, and the bias
  /// has ended for reads to come before it waits.
  @Test func aCallWaitsForReadsOfLines() {
    for line in readers.indices {
      giveBias()
      run("line \(line)", { pair in
        let test = pair.test
        let reader = test.readers[line]
        test.plain(reader).lock()
        pair.step.store(1, ordering: .releasing)
        pair.awaitCall(on: [reader])
        pair.expect(0, !pair.hasEnded.load(ordering: .acquiring))
        pair.expect(1, !test.shard.isBiased && !test.path.isBiased)
        test.plain(reader).unlock()
      }) { pair in
        pair.test.shard.lock()
        pair.test.shard.unlock()
      }
    }
  }

  /// So does the first call after reads have ended a bias: reads that began before may go on.
  @Test func aCallWaitsForReadsThatBeganWithABias() {
    giveBias()
    run("", { pair in
      let test = pair.test
      let reader = test.readers[0]
      test.plain(reader).lock()
      test.path.endBiases()
      pair.expect(20, !test.shard.isBiased)
      pair.step.store(1, ordering: .releasing)
      pair.awaitCall(on: [reader])
      pair.expect(3, !pair.hasEnded.load(ordering: .acquiring))
      test.plain(reader).unlock()
    }) { pair in
      pair.expect(21, pair.test.shard.lock(until: Deadline(after: Int64.max)))
      pair.test.shard.unlock()
    }
  }

  /// A read that has the lock of its line looks for the bias again: if it has ended meanwhile, the
  /// read waits for the shard's lock, with no line's lock.
  @Test func aReadLooksForTheBiasAgain() {
    giveBias()
    run("", { pair in
      let test = pair.test
      for reader in test.readers { test.plain(reader).lock() }
      pair.step.store(1, ordering: .releasing)
      pair.awaitCall(on: test.readers)
      pair.expect(4, !pair.hasEnded.load(ordering: .acquiring))
      test.path.endBiases()
      test.plain(test.shard).lock()
      for reader in test.readers { test.plain(reader).unlock() }
      pair.awaitCall(on: [test.shard])
      pair.expect(5, !pair.hasEnded.load(ordering: .acquiring))
      for reader in test.readers {
        let isFree = test.plain(reader).tryLock()
        pair.expect(2, isFree)
        if isFree { test.plain(reader).unlock() }
      }
      test.plain(test.shard).unlock()
    }) { pair in
      pair.test.shard.lockToReadShared().unlock()
    }
  }

  /// With a bias a read does not wait for the shard's lock, nor for another line's.
  @Test func aReadWithABiasWaitsForNoOther() {
    giveBias()
    run("", { pair in
      let test = pair.test
      test.plain(test.shard).lock()
      pair.step.store(1, ordering: .releasing)
      pair.awaitCall(on: test.readers + [test.shard])
      pair.expect(6, pair.hasEnded.load(ordering: .acquiring))
      test.plain(test.shard).unlock()
    }) { pair in
      pair.test.shard.lockToReadShared().unlock()
    }
  }

  /// A read that has to wait for its line leaves that to the thread that has it.
  @Test func aReadThatWaitsForItsLineTakesAnother() {
    giveBias()
    run("", { pair in
      let lines = pair.test.readers
      for line in lines { pair.test.plain(line).lock() }
      pair.step.store(1, ordering: .releasing)
      pair.awaitCall(on: lines)
      pair.expect(9, !pair.hasEnded.load(ordering: .acquiring))
      for line in lines { pair.test.plain(line).unlock() }
      pair.step.store(2, ordering: .releasing)
    }) { pair in
      let mask = pair.test.readers.count - 1
      let before = ThreadState.reader & mask
      let shard = pair.test.shard
      shard.lockToReadShared().unlock()
      pair.expect(10, ThreadState.reader & mask == (before + 1) & mask)
      pair.await(step: 2)
      shard.lockToReadShared().unlock()
      pair.expect(11, ThreadState.reader & mask == (before + 1) & mask)
    }
  }

  /// Reads that wait give a bias when they are more than a quarter of the lines, with no other call
  /// in between.
  @Test func waitsOfReadsGiveABias() {
    let most = readers.count / 4 + 1
    for isBetween in [true, false] {
      shard.lock()
      shard.unlock()
      for wait in 1...most {
        expect(!shard.isBiased)
        run("", { pair in
          let test = pair.test
          test.plain(test.shard).lock()
          pair.step.store(1, ordering: .releasing)
          pair.awaitCall(on: [test.shard])
          test.plain(test.shard).unlock()
        }) { pair in
          pair.test.shard.lockToReadShared().unlock()
        }
        if isBetween && wait == most - 1 {
          shard.lock()
          shard.unlock()
        }
      }
      expect(shard.isBiased == !isBetween)
    }
    shard.lock()
    shard.unlock()
  }

  /// In the child of a fork no thread of the parent has the lock of a line: there it is free.
  @Test func aChildFindsTheLocksOfLinesFree() {
    expect(tier.lockAll(until: Deadline(after: Int64.max)))
    let test = self
    onThreads(1) { _ in
      for reader in test.readers { test.plain(reader).lock() }
    }
    tier.unlockAll(inChild: true)
    for reader in readers {
      let isFree = plain(reader).tryLock()
      expect(isFree)
      if isFree { plain(reader).unlock() }
    }
    expect(tier.violation() == nil)
  }

  /// A read under the lock of a line takes its sample under the shard's lock, or not at all.
  @Test func aSampleIsTakenUnderTheShardsLock() {
    giveBias()
    let reading = shard.lockToReadShared()
    var samples = 0
    reading.tell {
      samples += 1
      let isFree = plain(shard).tryLock()
      expect(!isFree)
    }
    expect(samples == 1)
    plain(shard).lock()
    reading.tell { samples += 1 }
    expect(samples == 1)
    let isFree = plain(shard).tryLock()
    expect(!isFree)
    plain(shard).unlock()
    reading.unlock()
    expect(tier.violation() == nil)
  }
}
