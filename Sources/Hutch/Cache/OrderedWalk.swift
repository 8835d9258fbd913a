/// A walk over the entries of a cache by age: in the order of their writes, or of their last
/// accesses, either way.
///
/// No tier keeps its entries in such an order, but for the store's order of writes, which a view
/// of the disk tier uses as it is. Else the walk looks through all entries and keeps the next ones,
/// as many as there is room for; when it has returned them, it looks again.
///
/// An entry's rank is its time, then its version, so no two entries have the same rank. Each page
/// has the first ranks of the entries that the walk has not met. An entry is known by its version,
/// and not by its rank: one that memory gives up has the store's time of its last access from then
/// on, which may be an earlier one. An entry that is written, touched or read after the walk began
/// has a later version or time, and is left out. A time that is still to come is no such time: the
/// clock was set back since, and the entry is on its page.
final class OrderedWalk: Cursor {
  enum Order: UInt32 {
    case insertion = 1
    case access = 2
  }

  /// Comes before each key of a page: so the order of the bytes is that of the walk.
  private struct Rank: BitwiseCopyable {
    var time: UInt64
    var version: UInt64

    init(_ time: Int64, _ version: UInt64, descending: Bool) {
      let all: UInt64 = descending ? .max : 0
      self.time = (UInt64(bitPattern: time) ^ 1 << 63 ^ all).bigEndian
      self.version = (version ^ all).bigEndian
    }
  }

  private let order: Order
  private let isDescending: Bool
  /// When the walk began, and the last version that had been drawn by then.
  private let began: Int64
  private let newest: UInt64
  /// The entries of the pages, as far as the walk has come. Empty if the store's order is used.
  private var met = VersionSet()
  /// How far a walk in the store's order has come.
  private var place: WalkPlace

  /// Of a store's order the first page is short: many walks go no further than a few steps.
  private static let keysInFirstLook = 16

  init(_ handle: Handle, _ order: Order, descending: Bool) {
    self.order = order
    isDescending = descending
    began = handle.cache.clock.now
    newest = handle.cache.versions.last
    place = WalkPlace(descending: descending, limit: OrderedWalk.keysInFirstLook)
    super.init(
      handle, room: Cursor.mostRoom,
      isInOrder: handle.scope == .disk && order == .insertion
        && handle.cache.storage?.isOrdered ?? true,
      asksForEach: true, rankSize: MemoryLayout<Rank>.size)
  }

  /// Both tiers may have offered it. A page is large, and much may have gone or come anew since it
  /// was made.
  override func entry(of key: Bytes) throws(Failure) -> Entry? {
    let rank = key.baseAddress.unsafelyUnwrapped - MemoryLayout<UInt64>.size
    let stored = UInt64(bigEndian: rank.loadUnaligned(as: UInt64.self))
    let version = isDescending ? ~stored : stored
    guard !met.contains(version), let found = try super.entry(of: key),
      found.record.version == version
    else { return nil }
    if !isInOrder { _ = try met.insert(version) }
    return found
  }

  override func fetch() throws(Failure) {
    let moment = cache.clock.current
    if isInOrder {
      // Each of the store's pages is one of the walk's.
      var next = place
      try lookAtStore(&next, at: moment) { key, entry in add(key, 0, entry.record.version) }
      place = next
      place.limit = min(place.limit * 4, Cursor.keysInLook)
      hasEnded = place.isAtEnd
      return
    }
    // Memory first: an entry that it gives up meanwhile is met in the store.
    let hasStore = handle.scope != .memory && cache.storage != nil
    let isLast = order == .insertion && hasStore
    if !isLast || cache.writeBack.mayHaveDirty { try lookThroughMemory(at: moment) }
    if hasStore {
      // What memory has given up is in the store's walk once it is committed.
      try awaitCommits()
      try lookThroughStore(at: moment)
      // By the write an entry stays in its place if a read brings it up, and then the store may
      // drop it.
      if isLast { try lookThroughMemory(at: moment) }
    }
    try page.order()
    hasEnded = !page.isCut
  }

  private func lookThroughMemory(at moment: Moment) throws(Failure) {
    if handle.scope == .disk { return }
    let memory = cache.memory
    var position: UInt64 = 0
    while try lookAtMemory(
      &position, at: moment,
      { block in
        let key = block.key
        if let record = memory.info(key, memory.hash(key), at: moment) { offer(key, record) }
      })
    {}
  }

  private func lookThroughStore(at moment: Moment) throws(Failure) {
    let isAlone = handle.scope == .disk
    var place = WalkPlace(limit: Cursor.keysInLook)
    while !place.isAtEnd {
      try lookAtStore(&place, at: moment) { key, entry in
        // Memory knows the times better. An entry that has come up meanwhile has been read.
        if !isAlone, let copy = cache.memory.info(key, cache.memory.hash(key), at: moment),
          copy.version == entry.record.version
        {
          if order != .access { offer(key, copy) }
        } else {
          offer(key, entry.record)
        }
      }
    }
  }

  private func offer(_ key: Bytes, _ record: Record) {
    let time = order == .insertion ? record.created : max(record.accessed, record.created)
    if record.version <= newest, time <= began || time > cache.clock.latestTime {
      add(key, time, record.version)
    }
  }

  private func add(_ key: Bytes, _ time: Int64, _ version: UInt64) {
    if met.contains(version) { return }
    withUnsafeBytes(of: Rank(time, version, descending: isDescending)) { add(ranked(key, $0)) }
  }
}
