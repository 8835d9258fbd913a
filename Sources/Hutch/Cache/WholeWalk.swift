/// A walk over the entries of both tiers as one, in the order of their keys, or over those whose
/// keys begin alike or that have one tag; no lock and no read transaction is held between its
/// steps, and a write knows nothing of it. Through a view it sees one tier.
///
/// A page has the keys that come next, as many as there is room for. They are collected from both
/// tiers, so an entry that both have is on it once; and as each page begins behind the end of the
/// one before, no key is met twice.
///
/// An entry is on its page although it may go from one tier to the other meanwhile. Memory is
/// looked at behind the store: an entry that the store drops while memory keeps it is met there.
/// If memory may owe entries to the store, it is looked at before as well: an entry that goes down
/// is met there, or in the store, for what is on its way is written before the store is read.
/// Other ways there are only for what is written meanwhile; the looks are repeated then. Whether
/// memory's copy counts as backed, and whether the store's has expired, plays no part: an entry
/// is there as long as one tier has it.
///
/// A walk for a removal meets the keys of expired entries too: under other ages they would be back.
final class WholeWalk {
  private let handle: Handle
  private let cache: Cache
  /// The prefix of the keys.
  private var prefix = GrowingArray<UInt8>()
  /// The entries' tag; empty: they may have any, or none.
  private var tag = GrowingArray<UInt8>()
  private var page: SortedKeys
  /// The index of the page's first key that has not been stepped to.
  private var next = 0
  /// How many keys the page has room for: few at first, for walks that do not go far, and soon
  /// many. Each page costs a look through all of memory.
  private var room: Int
  /// The last key of the page before; empty: there is none.
  private var passed = GrowingArray<UInt8>()
  private var hasEnded = false
  /// True if each entry is asked for when its key is stepped to (`step`, not `take`). The store
  /// then lists the keys without the entries, and memory answers for those that it has.
  private let asksForEach: Bool
  /// The index of the key that was stepped to last.
  private var place: Int?

  private static let firstRoom = 64
  private static let mostRoom = 32_768
  private static let growth = 32
  private static let keysInLook = 128

  /// `goesFar`: the caller means to go to the end.
  init(_ handle: Handle, goesFar: Bool, asksForEach: Bool = true) {
    self.handle = handle
    cache = handle.cache
    page = SortedKeys(cache.memory.keyed)
    room = goesFar ? WholeWalk.mostRoom : WholeWalk.firstRoom
    self.asksForEach = asksForEach
  }

  /// Over the entries whose keys begin with `prefix`, and are longer. Delegates: see Copying.
  convenience init(_ handle: Handle, prefix: Bytes) throws(Failure) {
    self.init(handle, goesFar: true, asksForEach: false)
    try self.prefix.append(contentsOf: prefix)
    try passed.append(contentsOf: prefix)
  }

  /// Over the entries with this tag.
  convenience init(_ handle: Handle, tag: Bytes) throws(Failure) {
    self.init(handle, goesFar: true, asksForEach: false)
    try self.tag.append(contentsOf: tag)
  }

  var current: Bytes? { place.map { page[$0] } }

  /// Steps to the next entry. The key is valid until the next step. Nil: the end.
  func step() throws(Failure) -> Cursor.Entry? {
    while true {
      while next < page.count {
        let key = page[next]
        next += 1
        // A page is large, and much may have gone since it was made.
        if let found = try cache.info(key, in: handle.scope) {
          place = next - 1
          return Cursor.Entry(key: key, record: found.record, tier: found.tier)
        }
      }
      place = nil
      if hasEnded { return nil }
      try fetch()
    }
  }

  /// The next keys, up to `most`, none at the end; they are valid until the next call. Whether
  /// there still are entries, or only expired ones, is not asked.
  func take(
    most: Int, into pointers: inout GrowingArray<UnsafeRawPointer?>,
    _ sizes: inout GrowingArray<Int>
  ) throws(Failure) {
    while next >= page.count && !hasEnded { try fetch() }
    let end = min(next + most, page.count)
    while next < end {
      let key = page[next]
      try pointers.append(key.baseAddress)
      try sizes.append(key.count)
      next += 1
    }
  }

  /// If it fails, the next call tries again.
  private func fetch() throws(Failure) {
    if page.count > 0 {
      try passed.replace(with: page[page.count - 1])
      room = min(room * WholeWalk.growth, WholeWalk.mostRoom)
    }
    page.begin(room: room)
    next = 0
    do throws(Failure) {
      try fill()
    } catch {
      page.begin(room: room)
      throw error
    }
  }

  private func fill() throws(Failure) {
    let moment = asksForEach ? cache.clock.current : .first
    var newest = cache.versions.last
    if cache.writeBack.mayHaveDirty {
      try lookThroughMemory(at: moment)
      try awaitCommits()
    }
    try lookThroughStore(at: moment)
    try lookThroughMemory(at: moment)
    // An entry that is written meanwhile may go from tier to tier. One more look is enough: a key
    // that is missed again was written twice, each time between these looks.
    if cache.versions.last != newest {
      newest = cache.versions.last
      try awaitCommits()
      try lookThroughStore(at: moment)
      if cache.versions.last != newest { try lookThroughMemory(at: moment) }
    }
    try page.order()
    hasEnded = !page.isCut
  }

  /// Memory may give up an entry once the store has been given it, and the store's walk shows
  /// only what is committed. So an entry that memory did not have any more is in the store's walk
  /// after this.
  private func awaitCommits() throws(Failure) {
    if handle.scope == .memory || cache.storage == nil { return }
    try cache.withStorage { (storage) throws(Failure) in storage.doOwedWork() }
  }

  private var last: Bytes? { passed.isEmpty ? nil : Bytes(passed.elements) }

  private func lookThroughMemory(at moment: Moment) throws(Failure) {
    if handle.scope == .disk { return }
    let memory = cache.memory
    var position: UInt64 = 0
    var failure: Failure?
    let tag = Bytes(self.tag.elements)
    while memory.blocks(
      after: &position, limit: WholeWalk.keysInLook, at: moment,
      visit: { block in
        if tag.count > 0 && !block.hasTag(tag) { return }
        let key = block.key
        if let last, key.isOrderedBeforeOrSame(as: last) { return }
        insert(key, &failure)
      }) > 0
    {
      if let failure { throw failure }
      try handle.check()
    }
    if let failure { throw failure }
  }

  private func lookThroughStore(at moment: Moment) throws(Failure) {
    if handle.scope == .memory || cache.storage == nil { return }
    if !(cache.storage?.isOrdered ?? true) { return try lookThroughUnordered(at: moment) }
    let prefix = Bytes(self.prefix.elements)
    // The key that the store goes on behind, and the last one that it has shown.
    var from = GrowingArray<UInt8>()
    var reached = GrowingArray<UInt8>()
    if let last { try from.append(contentsOf: last) }
    var failure: Failure?
    while true {
      try handle.check()
      let count = try cache.withStorage { (storage) throws(Failure) in
        // An entry on its way to the store.
        cache.writeBack.write(storage)
        return try storage.keys(
          tagged: tag.isEmpty ? nil : Bytes(tag.elements),
          after: from.isEmpty ? nil : Bytes(from.elements), limit: WholeWalk.keysInLook,
          at: asksForEach || !tag.isEmpty ? nil : moment
        ) { key in
          insert(key, &failure)
          do throws(Failure) { try reached.replace(with: key) } catch { failure = error }
        }
      }
      if let failure { throw failure }
      let last = Bytes(reached.elements)
      if count == 0 || page.isBehindEnd(last) || !last.begins(with: prefix) { return }
      swap(&from, &reached)
    }
  }

  /// Looks through all entries of a store without an order of keys, as in memory.
  private func lookThroughUnordered(at moment: Moment) throws(Failure) {
    var place = WalkPlace(limit: WholeWalk.keysInLook)
    var failure: Failure?
    while !place.isAtEnd {
      try handle.check()
      try cache.withStorage { (storage) throws(Failure) in
        cache.writeBack.write(storage)
        try storage.walk(&place, at: moment) { key, entry in
          if let last, key.isOrderedBeforeOrSame(as: last) { return }
          if !tag.isEmpty {
            guard entry.record.tagSize > 0, hasTag(key, storage, at: moment, &failure) else {
              return
            }
          }
          insert(key, &failure)
        }
      }
      if let failure { throw failure }
    }
  }

  private func hasTag(
    _ key: Bytes, _ storage: any Storage, at moment: Moment, _ failure: inout Failure?
  ) -> Bool {
    var isSame = false
    do throws(Failure) {
      try storage.tag(of: key, storage.hash.entry(key), at: moment) { _, found in
        isSame = found.hasSameBytes(as: Bytes(tag.elements))
      }
    } catch {
      failure = error
    }
    return isSame
  }

  private func insert(_ key: Bytes, _ failure: inout Failure?) {
    guard failure == nil, prefix.isEmpty || key.begins(with: Bytes(prefix.elements)) else {
      return
    }
    do throws(Failure) {
      try page.insert(key)
    } catch {
      failure = error
    }
  }
}
