/// A walk over the entries of a cache, or of one of its tiers, key by key; no lock is held between
/// its steps. An entry that is there from beginning to end is seen exactly once.
final class Cursor {
  /// The entry that the cursor is at.
  struct Entry {
    let key: Bytes
    let record: Record
    /// The tier that has it.
    let tier: Tiers
  }

  private enum Source {
    /// Memory alone, in the order of its hashes, which nothing changes.
    case memory
    /// The store alone, in the order of the keys.
    case storage
    case both(WholeWalk)
    case ordered(OrderedWalk)
  }

  let handle: Handle
  /// See Process.forks.
  let forks = Process.forks
  private let source: Source
  /// Of one tier: keys that were found there, and how far the walk has come in memory.
  private var page: KeyPage
  private var memoryPosition: UInt64 = 0
  private var hasEnded = false
  private static let pageCount = 64

  /// `walk`: in an order; nil: in none. `goesFar`: the caller means to step to the end.
  init(_ handle: Handle, _ walk: OrderedWalk? = nil, goesFar: Bool = false) throws(Failure) {
    self.handle = handle
    page = try KeyPage()
    if let walk {
      source = .ordered(walk)
    } else if handle.scope == .memory || handle.cache.storage == nil {
      source = .memory
    } else {
      let hasOrder = handle.cache.storage?.isOrdered ?? false
      source =
        handle.scope == .disk && hasOrder ? .storage : .both(WholeWalk(handle, goesFar: goesFar))
    }
  }

  /// The key that the cursor is at; nil before the first step and at the end.
  var current: Bytes? {
    switch source {
    case .memory, .storage: page.current
    case .both(let walk): walk.current
    case .ordered(let walk): walk.current?.bytes
    }
  }

  /// Steps to the next key; nil at the end. It is valid until the next step.
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

  /// As `next`, with the entry's record as it is now.
  func nextEntry() throws(Failure) -> Entry? {
    if case .both(let walk) = source { return try walk.step() }
    while let key = try next() {
      if let found = try handle.cache.info(key, in: handle.scope) {
        return Entry(key: key, record: found.record, tier: found.tier)
      }
    }
    return nil
  }

  /// The next keys of one tier.
  private func fetch() throws(Failure) {
    let cache = handle.cache
    let moment = cache.clock.moment().read
    let count: Int
    if case .storage = source {
      count = try cache.withStorage { (storage) throws(Failure) in
        // Entries that left memory before the walk began.
        if page.current == nil { cache.writeBack.write(storage) }
        return try page.refill { (last, append) throws(Failure) in
          try storage.keys(
            tagged: nil, after: last, limit: Cursor.pageCount, at: moment, visit: append)
        }
      }
    } else {
      count = try page.refill { (_, append) throws(Failure) in
        cache.memory.keys(
          after: &memoryPosition, limit: Cursor.pageCount, at: moment, visit: append)
      }
    }
    if count == 0 {
      hasEnded = true
      page.reset()
    }
  }
}
