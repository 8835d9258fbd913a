/// A walk over the entries of a cache, or of one of its tiers, key by key. It holds no lock between
/// its steps. It visits an entry that exists from its beginning to its end exactly once.
final class Cursor {
  /// The entry that the cursor is at.
  struct Entry {
    let key: Bytes
    let record: Record
    /// The tier that has it.
    let tier: Tiers
  }

  private enum Source {
    /// Memory alone, in the order of the keys' hashes: no write changes that order.
    case memory
    /// A store that is ordered, alone, in the order of the keys.
    case storage
    /// Both tiers, or a store without an order of keys.
    case both(WholeWalk)
    /// An order by age, which the caller asks for.
    case ordered(OrderedWalk)
  }

  let handle: Handle
  let cache: Cache
  /// See Process.forks.
  let forks = Process.forks
  private let source: Source
  /// The next keys of a walk over one tier.
  private let page = KeyPage()
  /// How far a walk over memory has come.
  private var memoryPosition: UInt64 = 0
  private var hasEnded = false
  private static let pageCount = 64

  /// `walk`: the walk by age, if the caller asks for that order. `goesFar`: the caller means to
  /// step to the end.
  init(_ handle: Handle, _ walk: OrderedWalk? = nil, goesFar: Bool = false) {
    self.handle = handle
    cache = handle.cache
    if let walk {
      source = .ordered(walk)
    } else if handle.scope == .memory || cache.storage == nil {
      source = .memory
    } else {
      let hasOrder = cache.storage?.isOrdered ?? false
      source =
        handle.scope == .disk && hasOrder ? .storage : .both(WholeWalk(handle, goesFar: goesFar))
    }
  }

  /// The key that the cursor is at; nil before the first step and at the end.
  var current: Bytes? {
    switch source {
    case .memory, .storage: page.current
    case .both(let walk): walk.current
    case .ordered(let walk): walk.current
    }
  }

  /// Steps to the next key, which is valid until the next step; nil at the end.
  func next() throws(Failure) -> Bytes? {
    switch source {
    case .memory, .storage:
      while true {
        if let key = page.step() { return key }
        if hasEnded { return nil }
        try fetch()
      }
    case .both(let walk): return try walk.step()?.key
    case .ordered(let walk): return try walk.step()
    }
  }

  /// Steps to the next key that still has an entry, and returns the entry's present record.
  func nextEntry() throws(Failure) -> Entry? {
    if case .both(let walk) = source { return try walk.step() }
    while let key = try next() {
      if let found = try cache.info(key, in: handle.scope) {
        return Entry(key: key, record: found.record, tier: found.tier)
      }
    }
    return nil
  }

  /// Fills the page with the next keys of one tier.
  private func fetch() throws(Failure) {
    let moment = cache.clock.current
    let count: Int
    if case .storage = source {
      count = try cache.withStorage { (storage) throws(Failure) in
        // Entries that left memory before the walk began may still wait to be written.
        if page.current == nil { cache.writeBack.write(storage) }
        return try page.refill { (last, append) throws(Failure) in
          try storage.keys(
            tagged: nil, after: last, limit: Cursor.pageCount, at: moment, visit: append)
        }
      }
    } else {
      var position = memoryPosition
      count = try page.refill { (_, append) throws(Failure) in
        cache.memory.blocks(
          after: &position, limit: Cursor.pageCount, at: moment, visit: { append($0.key) })
      }
      memoryPosition = position
    }
    if count == 0 {
      hasEnded = true
      page.reset()
    }
  }
}
