/// A walk over the entries of a cache, or of one of its tiers, key by key. It holds no lock and no
/// read transaction between its steps, and a write knows nothing of it. It visits an entry that
/// exists from its beginning to its end exactly once.
///
/// The keys come in pages, which a subclass fills: WholeWalk, or OrderedWalk for an order by age. A
/// step that fails may be repeated.
class Cursor {
  /// The entry that the cursor is at.
  struct Entry {
    let key: Bytes
    let record: Record
    /// The tier that has it.
    let tier: Tiers
  }

  final let handle: Handle
  final let cache: Cache
  /// See Process.forks.
  final let forks = Process.forks
  final var page: SortedKeys
  /// The index of the page's first key that has not been stepped to.
  private final var index = 0
  /// How many keys a page has room for.
  final var room: Int
  /// True if no page comes after this one.
  final var hasEnded = false
  /// Each key of a page lies behind so many bytes of its rank.
  final let rankSize: Int
  private final var ranks = GrowingArray<UInt8>()
  /// The keys come from one source, in the order of the walk and each once: a page has them as they
  /// come.
  final let isInOrder: Bool
  /// The entry of each key is asked for when the key is stepped to.
  final let asksForEach: Bool
  /// A failure while keys are shown to the walk, which `checkLook` throws.
  final var failure: Failure?

  static let mostRoom = 32_768
  static let keysInLook = 128

  init(_ handle: Handle, room: Int, isInOrder: Bool, asksForEach: Bool, rankSize: Int) {
    self.handle = handle
    cache = handle.cache
    page = SortedKeys(handle.cache.memory.keyed)
    self.room = room
    self.isInOrder = isInOrder
    self.asksForEach = asksForEach
    self.rankSize = rankSize
  }

  /// The key that the cursor is at; nil before the first step and at the end.
  final var current: Bytes? { index > 0 ? key(index - 1) : nil }

  private final func key(_ index: Int) -> Bytes { Bytes(rebasing: page[index][rankSize...]) }

  /// Steps to the next key, which is valid until the next step; nil at the end.
  final func next() throws(Failure) -> Bytes? {
    asksForEach ? try nextEntry()?.key : try advance()
  }

  /// Steps to the next key that still has an entry, and returns the entry's present record.
  final func nextEntry() throws(Failure) -> Entry? {
    while let key = try advance() {
      do throws(Failure) {
        if let found = try entry(of: key) { return found }
      } catch {
        index -= 1
        throw error
      }
    }
    return nil
  }

  /// The next keys, up to `most`, none at the end; they are valid until the next call. Whether
  /// there still are entries, or only expired ones, is not asked.
  final func take(
    most: Int, into pointers: inout GrowingArray<UnsafeRawPointer?>,
    _ sizes: inout GrowingArray<Int>
  ) throws(Failure) {
    try refillIfNeeded()
    let end = min(index + most, page.count)
    while index < end {
      let key = key(index)
      try pointers.append(key.baseAddress)
      try sizes.append(key.count)
      index += 1
    }
  }

  private final func advance() throws(Failure) -> Bytes? {
    try refillIfNeeded()
    if index == page.count {
      index = 0
      page.begin(room: 0)
      return nil
    }
    index += 1
    return key(index - 1)
  }

  @inline(never)
  private final func refillIfNeeded() throws(Failure) {
    while index == page.count && !hasEnded {
      page.begin(room: room)
      index = 0
      failure = nil
      do throws(Failure) {
        try fetch()
      } catch {
        page.begin(room: room)
        hasEnded = false
        throw error
      }
    }
  }

  // MARK: for subclasses

  /// Adds the keys that come next to the page, which is empty. If it fails, the next call adds
  /// these keys.
  func fetch() throws(Failure) { hasEnded = true }

  /// The entry of the key that the walk has come to; nil: the walk passes the key over.
  func entry(of key: Bytes) throws(Failure) -> Entry? {
    guard let found = try cache.info(key, in: handle.scope) else { return nil }
    return Entry(key: key, record: found.record, tier: found.tier)
  }

  /// Adds a key, behind its rank, to the page.
  final func add(_ key: Bytes) {
    if failure != nil { return }
    do throws(Failure) {
      if isInOrder { try page.append(key) } else { try page.insert(key) }
    } catch {
      failure = error
    }
  }

  /// A key of a walk that has ranks, behind its rank. Valid until the next call.
  final func ranked(_ key: Bytes, _ rank: Bytes) -> Bytes {
    ranks.removeAll()
    do throws(Failure) {
      try ranks.append(contentsOf: rank)
      try ranks.append(contentsOf: key)
    } catch {
      failure = error
    }
    return Bytes(ranks.elements)
  }

  /// Called after each look at some of the entries.
  final func checkLook() throws(Failure) {
    if let failure { throw failure }
    try handle.check()
  }

  /// Shows the next blocks of memory behind `position`. False: there are none.
  final func lookAtMemory(
    _ position: inout UInt64, at moment: Moment, _ visit: (UnownedBlock) -> Void
  ) throws(Failure) -> Bool {
    let count = cache.memory.blocks(
      after: &position, limit: Cursor.keysInLook, at: moment, visit: visit)
    try checkLook()
    return count > 0
  }

  /// Shows the next entries of the store behind `place`.
  final func lookAtStore(
    _ place: inout WalkPlace, at moment: Moment, _ visit: (Bytes, WalkedEntry) -> Void
  ) throws(Failure) {
    try cache.withStorage { (storage) throws(Failure) in
      // An entry on its way to the store.
      cache.writeBack.write(storage)
      try storage.walk(&place, at: moment, visit: visit)
    }
    try checkLook()
  }

  /// Memory may give up an entry once the store has been given it, and the store's walk shows
  /// only what is committed. So an entry that memory did not have any more is in the store's walk
  /// after this.
  final func awaitCommits() throws(Failure) {
    try cache.withStorage { (storage) throws(Failure) in
      cache.writeBack.write(storage)
      storage.doOwedWork()
    }
  }
}
