import Synchronization

/// The primitives of trims (see StorageTrim): entries are looked for without a lock, and removed a
/// few at a time with the directory's. An entry that the cleaner moves may be spared.
///
/// Orders. Room is made by the store's own policy: the oldest first, but for what has been read
/// since it was appended. Accesses are noted to a second, and are counted up to two.
extension LogStorage {
  func occupancy() throws(Failure) -> Occupancy {
    let store = try serving()
    try endRebuild(of: store)
    return store.occupancy
  }

  func place(of hash: UInt64) -> Int64 { Int64(bitPattern: LogPlace.order(hash)) }

  /// Page by page, in the order of the keys' hashes. A store with a hash of its own is walked
  /// through from its first page, and tells no place before its end.
  func walk(
    _ place: inout WalkPlace, at moment: Moment?, visit: (Bytes, WalkedEntry) -> Void
  ) throws(Failure) {
    guard let store = moment == nil ? try serving() : live else {
      place.isAtEnd = true
      return
    }
    let begun = store.hasHashOfTiers ? place.last.map(UInt64.init(bitPattern:)) : place.ownLast
    var reached = LogPlace()
    var found = WalkPage()
    // A step that finds the index damaged is taken again.
    repeat {
      try endRebuild(of: store)
      reached = LogPlace(next: begun ?? 0)
      place.isAtEnd = try !store.step(&reached, into: &found)
    } while store.isRebuilding
    if store.hasHashOfTiers {
      place.last = Int64(bitPattern: reached.next)
    } else {
      place.ownLast = reached.next
    }
    let ages = store.ages
    for i in 0..<found.entries.count {
      let entry = found.entries[i]
      let key = found.key(of: entry)
      var record = entry.record
      if let moment {
        if hasBars.load(ordering: .acquiring) && isBarred(key, hash.entry(key)) { continue }
        if record.isExpired(at: moment.time, under: ages) {
          // The tier above may know of later reads.
          guard let known = try info(key, hash.entry(key), at: moment) else { continue }
          record = known
        }
      }
      visit(
        key,
        WalkedEntry(
          id: Int64(bitPattern: entry.address), record: record, charge: entry.charge,
          uses: Int64(entry.uses)))
    }
  }

  func remove(
    _ victims: borrowing GrowingArray<Int64>, _ range: Range<Int>, to goal: TrimGoal?,
    at moment: Moment, if isWanted: (Int, Record) -> Bool
  ) throws(Failure) -> TrimSlice {
    let store = try serving()
    var addresses = GrowingArray<LogAddress>()
    for i in range { try addresses.append(LogAddress(bitPattern: victims[i])) }
    var slice = TrimSlice(hasMore: true)
    slice.removed = try store.locked { () throws(Failure) in
      store.lose(addresses, 0..<addresses.count, at: moment) { index, record in
        if let goal, slice.hasMore { slice.hasMore = goal.excess(of: store.occupancy) > 0 }
        return slice.hasMore && isWanted(range.lowerBound + index, record)
      }
    }
    doOwedWork(waits: true)
    if slice.removed > 0 { try settle(store) }
    return slice
  }

  /// There is no index of ends. A walk costs nothing but time where none may have come.
  func removeExpired(to goal: TrimGoal?, at moment: Moment) throws(Failure) -> TrimSlice {
    let store = try serving()
    return TrimSlice(mustWalk: goal == nil || store.mayHaveExpired(at: moment.time))
  }

  func makeRoom(to goal: TrimGoal, at moment: Moment) throws(Failure) -> TrimSlice? {
    let store = try serving()
    var slice = TrimSlice()
    try store.locked { () throws(Failure) in
      let before = store.count
      slice.hasMore = store.makeRoom(at: moment.time) { goal.excess(of: store.occupancy) > 0 }
      slice.removed = before - store.count
    }
    doOwedWork(waits: true)
    // The log has no record of an eviction: the next checkpoint says how far the cleaner has come.
    if slice.removed > 0 && store.durability == .sync { try store.writeNewCheckpoint() }
    return slice
  }

  /// Learns when the tier above has last read an entry. No lock is held.
  func askAbove(_ key: Bytes, _ record: Record) {
    guard let observer, let time = observer.lastAccess(of: key, record.version),
      time > record.accessed
    else {
      return
    }
    noteAccess(key, hash.entry(key), at: time)
  }
}

extension LogStore {
  fileprivate var occupancy: Occupancy { Occupancy(count: count, charge: live) }
}
