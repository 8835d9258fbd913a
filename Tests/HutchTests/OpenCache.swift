import Dispatch
import Synchronization
import Testing

@testable import Hutch

/// A fixture with an open cache, whose keys and values are text.
protocol OpenCache: AnyObject, Sendable {
  var opening: Opening! { get }
}

extension OpenCache {
  var cache: Cache { opening.cache }

  @discardableResult
  func put(
    _ key: String, _ value: String, _ spec: Cache.PutSpec = Cache.PutSpec(),
    if condition: WriteCondition = .always, in scope: Tiers = .whole
  ) throws -> Cache.PutResult {
    try withBytes(key) { (key) throws(Failure) in
      try withBytes(value) { (value) throws(Failure) in
        try cache.put(key, value, spec, if: condition, in: scope)
      }
    }
  }

  func get(_ key: String, in scope: Tiers = .whole) throws -> String? {
    try withBytes(key) { (key) throws(Failure) in
      text(try cache.get(key, in: scope) as Block?)
    }
  }

  func text(_ block: consuming Block?) -> String? {
    guard let entry = block.unowned else { return nil }
    return String(decoding: entry.value, as: UTF8.self)
  }

  func info(_ key: String, in scope: Tiers = .whole) throws -> (record: Record, tier: Tiers)? {
    try withBytes(key) { (key) throws(Failure) in try cache.info(key, in: scope) }
  }

  func remove(_ key: String) throws -> Bool {
    try withBytes(key) { (key) throws(Failure) in try cache.remove(key, in: .whole) == .done }
  }

  func trim(_ kind: TrimSpec.Kind, amount: UInt64 = 0, time: Int64 = 0) throws -> UInt64 {
    var removed: UInt64 = 0
    try cache.trim(
      TrimSpec(kind: kind, amount: amount, time: time), in: .disk, removed: &removed
    ) { _, _ in true }
    return removed
  }

  func keys(_ scope: Tiers, _ order: OrderedWalk.Order? = nil, descending: Bool = false) throws
    -> [String]
  {
    let handle = Handle(opening, scope)
    let cursor: Cursor =
      if let order { OrderedWalk(handle, order, descending: descending) } else { WholeWalk(handle) }
    var found: [String] = []
    while let key = try cursor.next() { found.append(String(decoding: key, as: UTF8.self)) }
    return found
  }

  func emptyMemory() { cache.emptyMemory(at: cache.clock.moment()) }

  /// Three threads with keys of their own, each of which must find what it has put, while a fourth
  /// empties memory and does what can wait. Returns the keys that there are in the end.
  func threadsFindWhatTheyPut(_ seed: UInt64) -> Set<String> {
    let left = Atomic<Int>(3)
    let models = Mutex<Set<String>>([])
    DispatchQueue.concurrentPerform(iterations: 4) { thread in
      var random = Random(seed: seed &+ UInt64(thread))
      if thread == 3 {
        while left.load(ordering: .relaxed) > 0 {
          if random.next() % 4 == 0 { emptyMemory() }
          _ = cache.maintain()
        }
        return
      }
      defer { left.wrappingSubtract(1, ordering: .relaxed) }
      var model: [String: String] = [:]
      for step in 0..<1500 {
        let key = "\(thread)-\(random.next() % 60)"
        switch random.next() % 8 {
        case 0...3:
          expect(try! get(key) == model[key], "seed \(seed), step \(step)")
        case 4, 5:
          expect(try! put(key, "\(step)").status == .done, "seed \(seed), step \(step)")
          model[key] = "\(step)"
        case 6:
          let status = try! put(key, "\(step)", if: .absent).status
          expect(status == (model[key] == nil ? .done : .exists), "seed \(seed), step \(step)")
          model[key] = model[key] ?? "\(step)"
        default:
          expect(
            try! remove(key) == (model.removeValue(forKey: key) != nil),
            "seed \(seed), step \(step)")
        }
      }
      for (key, value) in model { expect(try! get(key) == value, "seed \(seed)") }
      models.withLock { $0.formUnion(model.keys) }
    }
    return models.withLock { $0 }
  }
}
