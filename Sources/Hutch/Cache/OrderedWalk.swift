import CSystem

/// A walk over the entries of a cache by age: in the order of their writes, or of their last
/// accesses, either way; no lock and no read transaction is held between its steps.
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
final class OrderedWalk {
  enum Order: UInt32 {
    case insertion = 1
    case access = 2
  }

  private let handle: Handle
  private let cache: Cache
  private let order: Order
  private let isDescending: Bool
  /// When the walk began, and the last version that had been drawn by then.
  private let began: Int64
  private let newest: UInt64
  private var candidates = RankedHeap()
  private var next = 0
  /// The entries of the pages, as far as the walk has come. Empty if the store's order is used.
  private var met = VersionSet()
  /// True if the page's last key is the last of all.
  private var isEnd = false
  private var place: WalkPlace
  /// The store's order is the one that is asked for.
  private let isStorages: Bool
  /// In memory of the page's own.
  private(set) var current: Bytes?

  /// 1 MB, and the keys.
  private static let room = 32_768
  private static let keysInLook = 128
  /// Of a store's order the first page is short: many walks go no further than a few steps.
  private static let keysInFirstLook = 16

  init(_ handle: Handle, _ order: Order, descending: Bool) {
    self.handle = handle
    cache = handle.cache
    self.order = order
    isDescending = descending
    isStorages =
      handle.scope == .disk && order == .insertion && cache.storage?.isOrdered ?? true
    began = handle.cache.clock.now
    newest = handle.cache.versions.last
    place = WalkPlace(descending: descending, limit: OrderedWalk.keysInFirstLook)
  }

  deinit { drop() }

  private func drop() {
    for i in 0..<candidates.count { free(OrderedWalk.pointer(candidates[i])) }
    candidates.removeAll()
    next = 0
    current = nil
  }

  private static func pointer(_ item: RankedHeap.Item) -> UnsafeMutableRawPointer? {
    UnsafeMutableRawPointer(bitPattern: Int(item.tag))
  }

  /// Steps to the next key, which is valid until the next step; nil at the end. If it fails, the
  /// next call goes on behind the key before.
  @inline(never)
  func step() throws(Failure) -> Bytes? {
    while true {
      while next < candidates.count {
        let item = candidates[next]
        let key = Bytes(start: OrderedWalk.pointer(item), count: Int(item.weight))
        let version = UInt64(bitPattern: isDescending ? ~item.second : item.second)
        // Both tiers may have offered it. A page is large, and much may have gone or come anew
        // since it was made.
        if !met.contains(version),
          try cache.info(key, in: handle.scope)?.record.version == version
        {
          if !isStorages { _ = try met.insert(version) }
          next += 1
          current = key
          return key
        }
        next += 1
      }
      drop()
      if isEnd { return nil }
      let from = place
      do throws(Failure) {
        try fetch()
      } catch {
        drop()
        place = from
        throw error
      }
    }
  }

  // MARK: pages

  @inline(never)
  private func fetch() throws(Failure) {
    let moment = cache.clock.current
    var failure: Failure?
    if isStorages {
      // Each of the store's pages is one of the walk's.
      var rank: Int64 = 0
      try cache.withStorage { (storage) throws(Failure) in
        cache.writeBack.write(storage)
        try storage.walk(&place, at: moment) { key, entry in
          rank += 1
          keep(key, rank, entry.record.version, &failure)
        }
      }
      if let failure { throw failure }
      place.limit = min(place.limit * 4, OrderedWalk.keysInLook)
      isEnd = place.isAtEnd
    } else {
      // Memory first: an entry that it gives up meanwhile is met in the store.
      let hasStore = handle.scope != .memory && cache.storage != nil
      let isLast = order == .insertion && hasStore
      if handle.scope != .disk && !(isLast && !cache.writeBack.mayHaveDirty) {
        lookThroughMemory(at: moment, &failure)
      }
      if hasStore {
        // What memory has given up is in the store's walk once it is committed.
        try cache.withStorage { (storage) throws(Failure) in
          cache.writeBack.write(storage)
          storage.doOwedWork()
        }
        try lookThroughStore(at: moment, &failure)
        // By the write an entry stays in its place if a read brings it up, and then the store may
        // drop it.
        if isLast && handle.scope != .disk { lookThroughMemory(at: moment, &failure) }
      }
      if let failure { throw failure }
      isEnd = candidates.count < OrderedWalk.room
    }
    candidates.sort()
  }

  private func lookThroughMemory(at moment: Moment, _ failure: inout Failure?) {
    let memory = handle.cache.memory
    var place: UInt64 = 0
    while memory.blocks(
      after: &place, limit: OrderedWalk.keysInLook, at: moment,
      visit: { block in
        let key = block.key
        if let record = memory.info(key, memory.hash(key), at: moment) {
          offer(key, record, &failure)
        }
      }) > 0
    {}
  }

  private func lookThroughStore(at moment: Moment, _ failure: inout Failure?) throws(Failure) {
    let isAlone = handle.scope == .disk
    var place = WalkPlace(limit: OrderedWalk.keysInLook)
    while !place.isAtEnd {
      try handle.check()
      try cache.withStorage { (storage) throws(Failure) in
        try storage.walk(&place, at: moment) { key, entry in
          var record = entry.record
          // Memory knows the times better. An entry that has come up meanwhile has been read.
          if !isAlone, let copy = cache.memory.info(key, cache.memory.hash(key), at: moment),
            copy.version == record.version
          {
            if order == .access { return }
            record = copy
          }
          offer(key, record, &failure)
        }
      }
    }
  }

  private func offer(_ key: Bytes, _ record: Record, _ failure: inout Failure?) {
    let time = order == .insertion ? record.created : max(record.accessed, record.created)
    guard record.version <= newest, time <= began || time > cache.clock.latestTime else {
      return
    }
    keep(key, isDescending ? ~time : time, record.version, &failure)
  }

  /// Keeps a copy of the key if it comes next, or before others that do.
  private func keep(_ key: Bytes, _ first: Int64, _ version: UInt64, _ failure: inout Failure?) {
    let second = Int64(bitPattern: version)
    var item = RankedHeap.Item(
      first: first, second: isDescending ? ~second : second, tag: 0, weight: Int64(key.count))
    let isFull = candidates.count == OrderedWalk.room
    if isFull, let last = candidates.last, !item.comes(before: last) { return }
    guard failure == nil, !met.contains(version) else { return }
    guard let copy = malloc(key.count) else {
      failure = .noMemory
      return
    }
    copy.copyMemory(from: key.baseAddress!, byteCount: key.count)
    item.tag = Int64(Int(bitPattern: copy))
    if isFull {
      free(OrderedWalk.pointer(candidates.last!))
      candidates.replaceLast(with: item)
      return
    }
    do throws(Failure) {
      try candidates.insert(item)
    } catch {
      free(copy)
      failure = error
    }
  }
}
