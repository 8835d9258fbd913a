import Foundation
import Testing

@testable import Hutch

/// The moment at which an entry has left memory, and the thread that removed it has not yet told
/// the store so: a sweep and a read of other threads come then.
@Suite struct DepartureTests {
  private static let second: Int64 = 1_000_000_000

  enum Way: CaseIterable, Sendable {
    case clear, evict, trim
  }

  /// Entries with a time to idle of ten seconds, read in memory eight seconds after their put, and
  /// removed from memory another eight seconds later.
  @Test(arguments: [StorageKind.log, .mixed], Way.allCases)
  func theTimeOfAnAccessIsInTheStoreWhenTheEntryHasLeft(_ kind: StorageKind, _ way: Way) throws {
    for isSwept in [true, false] {
      try departs(kind, way, isSwept: isSwept)
    }
  }

  private func departs(_ kind: StorageKind, _ way: Way, isSwept: Bool) throws {
    let path = NSTemporaryDirectory() + "hutch-\(UInt64.random(in: 0...UInt64.max))"
    defer { try? FileManager.default.removeItem(atPath: path) }
    let time = TestTime()
    let options = OpenOptions()
    options.disk.kind = kind
    options.disk.limits = TierLimits()
    options.memory = TierLimits(count: 4)
    options.tasks.workers = 0
    let opening = try Opening.onDirectory(path, options, clock: time.clock()).opening
    let cache = opening.cache
    defer { expect(opening.close() == nil) }
    var spec = Cache.PutSpec()
    spec.timeToIdle = 10 * DepartureTests.second
    let keys = ["a", "b", "c", "d"]
    for key in keys {
      try withBytes(key) { (key) throws(Failure) in
        _ = try cache.put(key, key, spec, if: .always, in: .whole)
      }
    }
    time.advance(seconds: 8)
    for key in keys { expect(try has(key, cache, in: .memory)) }
    time.advance(seconds: 8)
    let now = cache.clock.moment()

    // A departure that a put has caused is told with the put's stripe held. So nothing here reads
    // the host's clock.
    let tell = cache.memory.onDeparture!
    var departures = 0
    cache.memory.onDeparture = { block, cause, accessed in
      departures += 1
      if isSwept {
        while cache.storage!.maintain(at: now) {}
      } else {
        let hash = cache.memory.hash(block.key)
        let record = try! cache.storage!.info(block.key, hash, at: now)
        expect(record.map { $0.accessed >= accessed } ?? false)
      }
      tell(block, cause, accessed)
    }
    switch way {
    case .clear: try cache.clear(in: .memory)
    case .evict:
      for key in ["e", "f", "g", "h"] {
        try withBytes(key) { (key) throws(Failure) in
          _ = try cache.put(key, key, Cache.PutSpec(), if: .always, in: .whole)
        }
      }
    case .trim:
      var removed: UInt64 = 0
      try cache.trim(TrimSpec(kind: .toCount, amount: 0, time: 0), in: .memory, removed: &removed) {
        _, _ in true
      }
      expect(removed == 4)
    }
    cache.memory.onDeparture = tell
    expect(departures > 0)
    for key in keys { expect(try has(key, cache, in: .whole), "\(key) has gone") }
  }

  private func has(_ key: String, _ cache: Cache, in scope: Tiers) throws -> Bool {
    try withBytes(key) { (key) throws(Failure) in try cache.get(key, in: scope) != nil }
  }
}
