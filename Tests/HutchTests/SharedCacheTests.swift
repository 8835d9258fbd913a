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
      var options = OpenOptions()
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
      #expect(first.status == .done && first.memory == .stored && first.disk == .stored)
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
      #expect(put.result.status == .done)
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
    var removal = eviction.submitRemoval(wantsValue: wantsValue)
    eviction.commit()
    #expect(try eviction.cache.finish(&removal, in: eviction.storage))
  }

  @Test func aConditionIsAskedAgainOfMemoryWhenTheDiskTierHasJustEvicted() throws {
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
    #expect(replacing.result.isUndecided)
  }
}
