import Foundation
import Testing

@testable import Hutch

/// A cache whose directory is shared, between the submission of a write and its commit.
@Suite struct SharedCacheTests {
  /// A cache with room for one row on disk, which has one, and in memory too; and a put that will
  /// evict the row, submitted and not committed. Commits are of one write each.
  private final class Eviction {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    let opening: Opening
    let moment: Moment
    private let block: Block
    private(set) var put: Cache.SubmittedPut
    var cache: Cache { opening.cache }
    var storage: any Storage { opening.cache.storage! }

    init() throws {
      let options = OpenOptions()
      options.disk.kind = .mixed
      options.disk.sharing = .shared
      options.disk.limits = TierLimits()
      options.disk.limits.count = 1
      options.tasks.workers = 0
      opening = try Opening.onDirectory(path, options, clock: TestTime().clock()).opening
      let cache = opening.cache
      moment = cache.clock.moment()
      let first = try withBytes("key") { key throws(Failure) in
        try cache.put(key, key, Cache.PutSpec(), if: .always, in: .whole)
      }
      expect(first.status == .done && first.memory == .stored && first.disk == .stored)
      let block = try withBytes("other") { key throws(Failure) -> Block in
        try Block.copying(
          key: key, value: key, extended: Extended(), record: Record())
      }
      put = Cache.SubmittedPut(
        block.unowned, cache.memory.hash(Bytes(block.unowned.key)), WritePlan(.through))
      self.block = block
      try cache.submit(&put, at: moment, in: .whole, to: cache.storage!)
    }

    func commit() {
      cache.finish(&put, in: storage)
      expect(put.result.status == .done)
    }

    deinit {
      _ = opening.close()
      try? FileManager.default.removeItem(atPath: path)
    }

    func submitRemoval(wantsValue: Bool) -> Cache.SubmittedRemoval {
      withBytes("key") {
        cache.submitRemoval($0, at: moment, in: .whole, wantsValue: wantsValue, to: storage)
      }
    }
  }

  @Test(arguments: [false, true])
  func aRemovalTakesFromMemoryWhatTheDiskTierHasJustEvicted(wantsValue: Bool) throws {
    let eviction = try Eviction()
    let removal = eviction.submitRemoval(wantsValue: wantsValue)
    eviction.commit()
    expect(try eviction.cache.finish(removal, in: eviction.storage))
  }

  @Test func aConditionHoldsOfWhatMemoryHasWhenTheDiskTierHasJustEvicted() throws {
    let eviction = try Eviction()
    let cache = eviction.cache
    let block = try withBytes("key") { key throws(Failure) -> Block in
      try Block.copying(
        key: key, value: key, extended: Extended(), record: Record())
    }
    var replacing = Cache.SubmittedPut(
      block.unowned, cache.memory.hash(Bytes(block.unowned.key)), WritePlan(.through))
    try cache.submit(
      &replacing, at: eviction.moment, if: .present, in: .whole, to: eviction.storage)
    eviction.commit()
    cache.finish(&replacing, in: eviction.storage)
    expect(!replacing.looksAgain)
    expect(replacing.result.status == .done)
    expect(replacing.result.disk == .stored)
  }

  /// A shared cache with an entry that memory alone has, of the key "key".
  private final class Alone {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    let opening: Opening
    let moment: Moment
    private(set) var version: UInt64 = 0
    private var blocks: [BlockBox] = []
    var cache: Cache { opening.cache }
    var storage: any Storage { opening.cache.storage! }

    init() throws {
      let options = OpenOptions()
      options.disk.kind = .mixed
      options.disk.sharing = .shared
      options.tasks.workers = 0
      opening = try Opening.onDirectory(path, options, clock: TestTime().clock()).opening
      moment = opening.cache.clock.moment()
      version = try put(.memory, if: .always).version
    }

    deinit {
      _ = opening.close()
      try? FileManager.default.removeItem(atPath: path)
    }

    func put(_ policy: WritePolicy, if condition: WriteCondition) throws -> Cache.PutResult {
      var spec = Cache.PutSpec()
      spec.writePolicy = policy
      return try withBytes("key") { key throws(Failure) in
        try cache.put(key, key, spec, if: condition, in: .whole)
      }
    }

    func submitPut(if condition: WriteCondition) throws -> Cache.SubmittedPut {
      let block = try withBytes("key") { key throws(Failure) -> Block in
        try Block.copying(
          key: key, value: key, extended: Extended(), record: Cache.PutSpec().record(at: moment))
      }
      var put = Cache.SubmittedPut(
        block.unowned, cache.memory.hash(Bytes(block.unowned.key)), WritePlan(.through))
      blocks.append(BlockBox(block))
      try cache.submit(&put, at: moment, if: condition, in: .whole, to: storage)
      return put
    }

    func submitPop() -> Cache.SubmittedRemoval {
      withBytes("key") {
        cache.submitRemoval($0, at: moment, in: .whole, wantsValue: true, to: storage)
      }
    }

    func finish(_ removal: Cache.SubmittedRemoval) throws -> Bool {
      try cache.finish(removal, in: storage)
    }

    func has() throws -> Bool {
      try withBytes("key") { key throws(Failure) in try cache.contains(key, in: .whole) }
    }
  }

  @Test func ofTwoPopsOfWhatMemoryAloneHasOneTakesIt() throws {
    let alone = try Alone()
    let first = alone.submitPop()
    let second = alone.submitPop()
    expect(try alone.has())
    expect(try alone.finish(first))
    expect(try !alone.finish(second))
    expect(second.isUnmet)
    expect(try !alone.has())
  }

  @Test(arguments: [false, true])
  func ofASwapAndAPopOfWhatMemoryAloneHasTheFirstOneIsDone(popsFirst: Bool) throws {
    let alone = try Alone()
    let early = popsFirst ? alone.submitPop() : nil
    var swap = try alone.submitPut(if: .version(alone.version))
    let isPopped = try alone.finish(early ?? alone.submitPop())
    alone.cache.finish(&swap, in: alone.storage)
    expect(isPopped == popsFirst)
    expect(swap.result.status == (popsFirst ? .notFound : .done))
    // Another put may have taken the place of the copy that the pop has: the next look tells.
    expect(swap.looksAgain == popsFirst)
    expect(try alone.has() != popsFirst)
  }

  @Test func aPutIntoMemoryAloneComesAfterWhatIsStillToBeDecided() throws {
    let alone = try Alone()
    var swap = try alone.submitPut(if: .version(alone.version))
    // The store has not decided, so memory still has the older entry.
    expect(try alone.put(.memory, if: .version(alone.version)).status == .conflict)
    alone.cache.finish(&swap, in: alone.storage)
    expect(swap.result.status == .done)
  }
}
