/// A walk over the entries of both tiers as one, or over those whose keys begin alike or that have
/// one tag. Through a view it sees one tier.
///
/// Of memory alone the walk takes the keys as they come, in the order of their hashes, which no
/// write changes, and of an ordered store in the order of keys.
///
/// Else a page has the keys that come next, as many as there is room for: in the order of keys, or,
/// where the store has no such order, in that of their places in the store's walk. They are
/// collected from both tiers, so an entry that both have is on it once; and as each page begins
/// behind the end of the one before, no key is met twice. Of the store a page reads what lies
/// between its ends, and of memory everything.
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
final class WholeWalk: Cursor {
  /// The prefix of the keys.
  private var prefix = GrowingArray<UInt8>()
  /// The entries' tag; empty: they may have any, or none.
  private var tag = GrowingArray<UInt8>()
  /// The walk goes on behind this key; empty: it has not begun. If the store is not ordered, the
  /// key lies behind its place in the store's walk.
  private var passed = GrowingArray<UInt8>()
  /// How far a walk over memory alone has come.
  private var position: UInt64 = 0
  private let isRemoval: Bool
  private let hasStore: Bool

  private static let firstRoom = 64
  private static let growth = 32

  /// `goesFar`: the caller means to go to the end. Else the first page is short; but soon they are
  /// long, as each page of both tiers costs a look through all of memory.
  @inline(never)
  init(_ handle: Handle, goesFar: Bool = false, isRemoval: Bool = false) {
    let storage = handle.scope == .memory ? nil : handle.cache.storage
    let isOrdered = storage?.isOrdered ?? true
    let isInOrder = isOrdered && (storage == nil || handle.scope == .disk)
    hasStore = storage != nil
    self.isRemoval = isRemoval
    // A store lists the keys without the entries if the walk asks for each. Where processes share,
    // memory has copies that do not count any more.
    super.init(
      handle, room: goesFar ? Cursor.mostRoom : WholeWalk.firstRoom, isInOrder: isInOrder,
      asksForEach: !isRemoval && (!isInOrder || !hasStore && handle.cache.coherence != nil),
      rankSize: isOrdered ? 0 : MemoryLayout<Int64>.size)
  }

  /// For a removal of the entries whose keys begin with `prefix`, and are longer. Delegates: see
  /// Copying.
  convenience init(_ handle: Handle, prefix: Bytes) throws(Failure) {
    self.init(handle, goesFar: true, isRemoval: true)
    try self.prefix.append(contentsOf: prefix)
    if rankSize == 0 { try passed.append(contentsOf: prefix) }
  }

  /// For a removal of the entries with this tag.
  convenience init(_ handle: Handle, tag: Bytes) throws(Failure) {
    self.init(handle, goesFar: true, isRemoval: true)
    try self.tag.append(contentsOf: tag)
  }

  override func fetch() throws(Failure) {
    let moment = isRemoval ? .first : cache.clock.current
    if !hasStore {
      var position = self.position
      hasEnded = try !lookAtMemory(&position, at: moment) { offer($0) }
      self.position = position
    } else if isInOrder {
      hasEnded = try !list(at: moment)
    } else {
      try fetchOfBoth(at: moment)
    }
  }

  private func fetchOfBoth(at moment: Moment) throws(Failure) {
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
    if page.count > 0 { try passed.replace(with: page[page.count - 1]) }
    room = min(room * WholeWalk.growth, Cursor.mostRoom)
  }

  private func lookThroughMemory(at moment: Moment) throws(Failure) {
    if handle.scope == .disk { return }
    var position: UInt64 = 0
    while try lookAtMemory(&position, at: moment, { offer($0) }) {}
  }

  private func lookThroughStore(at moment: Moment) throws(Failure) {
    if cache.storage.unsafelyUnwrapped.isOrdered {
      _ = try list(at: moment)
      return
    }
    var place = WalkPlace(limit: Cursor.keysInLook)
    if passed.count > rankSize {
      place.last = Int64(bigEndian: Bytes(passed.elements).loadUnaligned(as: Int64.self))
    }
    while !place.isAtEnd && !page.isBehindEnd(UInt64(bitPattern: place.last ?? 0)) {
      try lookAtStore(&place, at: moment) { key, entry in
        if tag.isEmpty || entry.record.tagSize > 0 && hasTag(key, at: moment) { offer(key) }
      }
    }
  }

  /// Adds the keys of an ordered store that come next: those of a look, if the walk takes them as
  /// they come, else as many as the page has room for. False: no more keys come behind them.
  private func list(at moment: Moment) throws(Failure) -> Bool {
    // The key that the store goes on behind, and the last one that it has shown.
    var from = GrowingArray<UInt8>()
    var last = GrowingArray<UInt8>()
    try from.append(contentsOf: Bytes(passed.elements))
    while true {
      let count = try cache.withStorage { (storage) throws(Failure) in
        cache.writeBack.write(storage)
        return try storage.keys(
          tagged: tag.isEmpty ? nil : Bytes(tag.elements),
          after: from.isEmpty ? nil : Bytes(from.elements), limit: Cursor.keysInLook,
          at: asksForEach || !tag.isEmpty ? nil : moment
        ) { key in
          offer(key)
          do throws(Failure) { try last.replace(with: key) } catch { failure = error }
        }
      }
      try checkLook()
      let end = Bytes(last.elements)
      if count == 0 || page.isBehindEnd(end) || !end.begins(with: Bytes(prefix.elements)) {
        return false
      }
      if isInOrder {
        swap(&passed, &last)
        return true
      }
      swap(&from, &last)
    }
  }

  /// Called while the store shows its entries.
  private func hasTag(_ key: Bytes, at moment: Moment) -> Bool {
    let storage = cache.storage.unsafelyUnwrapped
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

  private func offer(_ block: UnownedBlock) {
    if tag.isEmpty || block.hasTag(Bytes(tag.elements)) { offer(block.key) }
  }

  private func offer(_ key: Bytes) {
    guard key.count > prefix.count, key.begins(with: Bytes(prefix.elements)) else { return }
    var key = key
    if rankSize > 0 {
      let place = cache.storage.unsafelyUnwrapped.place(of: cache.memory.hash(key))
      key = withUnsafeBytes(of: place.bigEndian) { ranked(key, $0) }
    }
    if !key.isOrderedBeforeOrSame(as: Bytes(passed.elements)) { add(key) }
  }
}
