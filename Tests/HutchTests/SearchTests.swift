import Foundation
import Testing

@testable import Hutch

/// The look into memory and below as one answer, beside writes that come between the two.
@Suite struct SearchTests {
  enum Question: CaseIterable, Sendable {
    case get, contains, info, many, pop, add
  }

  /// A cache on a store that a test stands in the middle of.
  private final class Fixture {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    let opening: Opening
    var cache: Cache { opening.cache }
    var store: HeapStore { cache.storage as! HeapStore }

    init() throws {
      let options = OpenOptions()
      options.disk.limits = TierLimits()
      options.tasks.workers = 0
      opening = try Opening.onDirectory(
        path, options, clock: TestTime().clock(), by: HeapStore.opener(on: HeapStore.Medium())
      ).opening
    }

    deinit {
      store.onMiss = { _ in }
      expect(opening.close() == nil)
      try? FileManager.default.removeItem(atPath: path)
    }

    /// Whether the cache answers that there is an entry.
    func finds(_ key: Bytes, _ question: Question) throws -> Bool {
      switch question {
      case .get: return try cache.get(key, in: .whole) != nil
      case .contains: return try cache.contains(key, in: .whole)
      case .info: return try cache.info(key, in: .whole) != nil
      case .pop: return try cache.pop(key, in: .whole) != nil
      case .add:
        return try cache.put(key, key, Cache.PutSpec(), if: .absent, in: .whole).status == .exists
      case .many:
        var pointer = key.baseAddress
        var size = key.count
        return try withUnsafePointer(to: &pointer) { pointers in
          try withUnsafePointer(to: &size) { sizes in
            let key = ManyBytes(pointers: pointers, sizes: sizes, count: 1)
            return try cache.get(key, in: .whole).items[0].value != nil
          }
        }
      }
    }
  }

  /// A write of another key of the stripe between any two looks asks for another round; that ends.
  @Test(arguments: Question.allCases)
  func aSearchForAnAbsentKeyEnds(_ question: Question) throws {
    let fixture = try Fixture()
    var looks = 0
    fixture.store.onMiss = { key in
      looks += 1
      let stripe = Stripes.index(of: fixture.cache.memory.hash(key))
      fixture.cache.order.stripes.beginWrite(stripe)
      fixture.cache.order.stripes.endWrite(stripe)
      if looks > 100 { fatalError("the search does not end") }
    }
    expect(try withBytes("key") { key in try !fixture.finds(key, question) })
    // A pop and an add ask more than once.
    expect(looks >= 5 && looks <= 12, "\(looks) looks")
    expect(try fixture.cache.withStorage { $0.stats.misses } <= 1)
  }

  /// The entry is below while memory is asked, and in memory when the store is.
  @Test(arguments: Question.allCases)
  func anEntryThatComesUpIsFound(_ question: Question) throws {
    let fixture = try Fixture()
    var isUp = false
    fixture.store.onMiss = { key in
      if isUp { return }
      isUp = true
      let moment = fixture.cache.clock.moment().read
      let block = try! Block.copying(
        key: key, value: key, extended: Extended(), record: Record(created: moment.time))
      block.unowned.version = fixture.cache.versions.draw()
      _ = try! fixture.cache.memory.put(block, fixture.cache.memory.hash(key), at: moment)
    }
    expect(try withBytes("key") { key in try fixture.finds(key, question) })
    expect(isUp)
  }
}
