import Synchronization

/// A walk over the entries of a cache, key by key; no lock is held between its steps.
///
/// Keys are fetched a page at a time: first those of the store, in the order of their bytes,
/// then those that memory alone has. A store's key keeps its place in that order whatever
/// becomes of its entry, so one that is there from beginning to end is seen exactly once. An
/// entry that the store drops during the walk while memory keeps it would be seen twice: the
/// cache tells its cursors, and they remember which of those they have passed. One that memory
/// gives to the store during the walk may be met in neither: these are remembered too, and given
/// at the end.
final class Cursor {
  private enum Phase {
    case storage
    case memory
    /// What went from memory to the store behind the walk's back.
    case moved
    case end
  }

  let handle: Handle
  /// See Process.forks.
  let forks = Process.forks
  /// Nil: in no order.
  private let walk: OrderedWalk?
  private var phase: Phase
  private var page: KeyPage
  private var memoryPosition: UInt64 = 0
  private let pageCount = 64

  /// Protects what is below, which `storeDropped` and `memoryGave` change from any thread. Taken
  /// after a stripe, or a lock of the memory tier; nothing is taken under it.
  private let dropsLock: Lock
  /// Hashes of keys that were dropped after the walk had passed them.
  private var passedDrops = Set<UInt64>()
  /// Those that were dropped while a page was fetched, which may or may not have them.
  private var dropsOfFetch = Set<UInt64>()
  /// Keys up to here have been passed; nil: none yet.
  private var passed: [UInt8]?
  /// Hashes of keys in memory below this have been passed.
  private var passedInMemory: UInt64 = 0
  /// Keys that went from memory to the store before the walk had seen them there.
  private var moved = Set<UInt64>()
  private var movedKeys: [[UInt8]] = []
  private var nextMoved = 0
  private var isOver = false

  init(_ handle: Handle, _ walk: OrderedWalk? = nil) throws(Failure) {
    self.handle = handle
    self.walk = walk
    page = try KeyPage()
    dropsLock = try Lock()
    phase = handle.scope == .memory || handle.cache.storage == nil ? .memory : .storage
    if phase == .storage && handle.scope == .whole && walk == nil { handle.cache.walks.add(self) }
  }

  deinit { handle.cache.walks.remove(self) }

  /// The key that the cursor is at; nil before the first step and at the end.
  var current: Bytes? {
    if let walk { return walk.current?.bytes }
    return page.current
  }

  /// Steps to the next key; nil at the end. It is valid until the next step.
  func next() throws(Failure) -> Bytes? {
    if let walk { return try walk.step() }
    while true {
      while let key = page.step() {
        if phase != .memory || !hasPassed(key) { return key }
      }
      guard phase != .end else { return nil }
      try fetch()
    }
  }

  private func fetch() throws(Failure) {
    let cache = handle.cache
    let moment = cache.clock.moment()
    switch phase {
    case .storage:
      let count = try cache.withStorage { (storage) throws(Failure) in
        // What has left memory before the walk began.
        if page.current == nil { cache.writeBack(storage) }
        return try page.refill { (last, append) throws(Failure) in
          try storage.keys(after: last, limit: pageCount, at: moment, visit: append)
        }
      }
      notePage()
      if count == 0 {
        phase = handle.scope == .disk ? .end : .memory
        page.reset()
      }
    case .memory:
      let isShared = handle.scope != .memory && cache.storage != nil
      let count = try page.refill { (_, append) throws(Failure) in
        cache.memory.keys(
          after: &memoryPosition, limit: pageCount, at: moment, onlyUnbacked: isShared,
          visit: append)
      }
      notePage()
      if count == 0 {
        phase = isShared ? .moved : .end
        page.reset()
      }
    case .moved:
      try fetchMoved()
    case .end: break
    }
  }

  // MARK: entries that the store drops meanwhile

  /// The store has dropped an entry that memory keeps.
  func storeDropped(_ key: Bytes, _ hash: UInt64) {
    dropsLock.withLock {
      if let passed, passed.withUnsafeBytes({ key.isOrderedBeforeOrSame(as: $0) }) {
        _ = passedDrops.insert(hash)
      } else {
        _ = dropsOfFetch.insert(hash)
      }
    }
  }

  /// Settles the drops of the fetch that has just ended: what is on its page will be seen.
  private func notePage() {
    dropsLock.withLock {
      page.forEachNew { key in
        if dropsOfFetch.isEmpty && moved.isEmpty { return }
        let hash = handle.cache.memory.hash(key)
        if dropsOfFetch.contains(hash) { passedDrops.insert(hash) }
        moved.remove(hash)
      }
      dropsOfFetch.removeAll()
      if phase == .storage, let last = page.lastNew { passed = Array(last) }
      if phase == .memory { passedInMemory = memoryPosition }
    }
  }

  /// A dirty entry goes from memory to the store.
  func memoryGave(_ key: Bytes, _ hash: UInt64) {
    dropsLock.withLock {
      if isOver || hash < passedInMemory || passedDrops.contains(hash) { return }
      if moved.insert(hash).inserted { movedKeys.append(Array(key)) }
    }
  }

  /// Those that the walk has not met since.
  private func fetchMoved() throws(Failure) {
    let cache = handle.cache
    var found = 0
    while found == 0 {
      var keys: [[UInt8]] = []
      dropsLock.withLock {
        while nextMoved < movedKeys.count && keys.count < pageCount {
          let key = movedKeys[nextMoved]
          nextMoved += 1
          let hash = key.withUnsafeBytes { cache.memory.hash($0) }
          if moved.contains(hash) { keys.append(key) }
        }
        isOver = keys.isEmpty
      }
      if keys.isEmpty {
        phase = .end
        break
      }
      found = try page.refill { (_, append) throws(Failure) in
        var count = 0
        var failure: Failure?
        for key in keys {
          key.withUnsafeBytes { bytes in
            do throws(Failure) {
              guard try cache.info(bytes, in: .whole) != nil else { return }
              append(bytes)
              count += 1
            } catch {
              failure = error
            }
          }
        }
        if let failure { throw failure }
        return count
      }
    }
    if found == 0 { page.reset() }
  }

  private func hasPassed(_ key: Bytes) -> Bool {
    dropsLock.withLock {
      !passedDrops.isEmpty && passedDrops.contains(handle.cache.memory.hash(key))
    }
  }
}

/// The cursors that are to be told of what the store drops.
struct Walks: ~Copyable {
  /// Protects the list. Taken after a stripe, or a lock of the memory tier, and before a cursor's
  /// lock.
  private let lock: Lock
  private let list = List()

  private final class List {
    var cursors: [Unmanaged<Cursor>] = []
  }

  /// Relaxed: a walk sees what happens after it began.
  private let count = Atomic<Int>(0)

  init() throws(Failure) { lock = try Lock() }

  var isAny: Bool { count.load(ordering: .relaxed) > 0 }

  func add(_ cursor: Cursor) {
    lock.withLock {
      list.cursors.append(Unmanaged.passUnretained(cursor))
      count.store(list.cursors.count, ordering: .relaxed)
    }
  }

  /// Also for one that was never added.
  func remove(_ cursor: Cursor) {
    let pointer = Unmanaged.passUnretained(cursor).toOpaque()
    lock.withLock {
      list.cursors.removeAll { $0.toOpaque() == pointer }
      count.store(list.cursors.count, ordering: .relaxed)
    }
  }

  /// With the lock of the key's shard held.
  func memoryGave(_ key: Bytes, _ hash: UInt64) {
    guard isAny else { return }
    lock.withLock {
      for cursor in list.cursors {
        cursor._withUnsafeGuaranteedRef { $0.memoryGave(key, hash) }
      }
    }
  }

  /// In the child of a fork: the cursors are the parent's.
  func beginInChild() {
    lock.renew()
    list.cursors = []
  }

  func storeDropped(_ key: Bytes, _ hash: UInt64) {
    lock.withLock {
      for cursor in list.cursors {
        cursor._withUnsafeGuaranteedRef { $0.storeDropped(key, hash) }
      }
    }
  }
}
