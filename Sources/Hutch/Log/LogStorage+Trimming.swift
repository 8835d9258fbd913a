/// Trims that somebody asks for, in slices: entries are looked for without a lock, and taken away a
/// few at a time with the directory's.
///
/// A trim looks at the entries that are there when it comes to them; what is written, touched or
/// read while it is under way may be spared, and so may what the cleaner moves.
///
/// Orders. To a count or a cost by the store's own policy: the oldest first, but for what has been
/// read since it was appended. By rank: accesses are noted to a second, and of an entry's accesses
/// no more is known than whether it has been read since it was appended.
extension LogStorage {
  private static let entriesInSlice = 128

  func trim(
    _ spec: TrimSpec, at moment: Moment, removed: inout UInt64, goOn: (UInt64, UInt64) -> Bool
  ) throws(Failure) {
    let store = try serving()
    let trim = LogTrim(TrimRule(spec: spec, now: moment.time, ages: store.ages), moment)
    defer { removed = trim.removed }
    switch spec.kind {
    case .toCost, .toCount: try trimByPolicy(trim, store, goOn)
    case .largestFirst, .leastRecent, .leastFrequent: try trimByRank(trim, store, goOn)
    default: _ = try filter(trim, store, goOn, until: { false }) { trim.rule.wants($0) }
    }
  }

  /// One trim on its way.
  private final class LogTrim {
    let rule: TrimRule
    let moment: Moment
    /// Entries that have gone.
    var removed: UInt64 = 0
    /// How many will go; 0: not known.
    var total: UInt64 = 0
    var victims = GrowingArray<LogAddress>()

    init(_ rule: TrimRule, _ moment: Moment) {
      self.rule = rule
      self.moment = moment
    }

    /// How many more bytes or entries there are than may stay.
    func excess(_ store: LogStore) -> Int64 {
      let all = rule.countsEntries ? store.count : store.live
      return Record.difference(Int64(clamping: all), Int64(clamping: rule.spec.amount))
    }

    func goesOn(_ goOn: (UInt64, UInt64) -> Bool) -> Bool {
      goOn(removed, total == 0 ? 0 : max(removed, total))
    }
  }

  /// Takes the victims away, in slices. False: it is to stop.
  private func remove(
    _ trim: LogTrim, _ store: LogStore, _ goOn: (UInt64, UInt64) -> Bool, until isDone: () -> Bool,
    if isWanted: (Int, Record) -> Bool
  ) throws(Failure) -> Bool {
    var start = 0
    while start < trim.victims.count {
      guard isUp else { throw downFailure }
      let end = min(start + LogStorage.entriesInSlice, trim.victims.count)
      var isEnough = false
      trim.removed += try store.locked { () throws(Failure) in
        store.lose(trim.victims, start..<end, at: trim.moment) { index, record in
          isEnough = isEnough || isDone()
          return !isEnough && isWanted(index, record)
        }
      }
      settle()
      guard trim.goesOn(goOn) else { return false }
      if isEnough { break }
      start = end
    }
    return true
  }

  /// Takes away all that are wanted, page by page. False: it is to stop.
  private func filter(
    _ trim: LogTrim, _ store: LogStore, _ goOn: (UInt64, UInt64) -> Bool, until isDone: () -> Bool,
    if isWanted: (Record) -> Bool
  ) throws(Failure) -> Bool {
    var place = LogPlace()
    var found = WalkPage()
    while try store.step(&place, into: &found) {
      if isDone() { return true }
      trim.victims.removeAll()
      for entry in found.entries.elements where isWanted(entry.record) {
        if trim.rule.goesByAccess || trim.rule.ages.timeToIdle != 0 {
          askAbove(found.key(of: entry), entry.record)
        }
        try trim.victims.append(entry.address)
      }
      let goesOn =
        trim.victims.isEmpty
        ? trim.goesOn(goOn)
        : try remove(trim, store, goOn, until: isDone, if: { isWanted($1) })
      if !goesOn { return false }
    }
    return true
  }

  /// Learns when the tier above has last read an entry. No lock is held.
  func askAbove(_ key: Bytes, _ record: Record) {
    guard let observer, let time = observer.lastAccess(of: key), time > record.accessed else {
      return
    }
    noteAccess(key, hash.entry(key), at: time)
  }

  /// What has expired goes before what has not, which goes as it does to make room.
  private func trimByPolicy(
    _ trim: LogTrim, _ store: LogStore, _ goOn: (UInt64, UInt64) -> Bool
  ) throws(Failure) {
    if trim.rule.countsEntries { trim.total = UInt64(max(0, trim.excess(store))) }
    guard trim.excess(store) > 0 else { return }
    let (now, ages) = (trim.moment.time, trim.rule.ages)
    if store.mayHaveExpired(at: now) {
      let goesOn = try filter(
        trim, store, goOn, until: { trim.excess(store) <= 0 }, if: { $0.isExpired(at: now, under: ages) })
      if !goesOn { return }
    }
    var hasMore = true
    while hasMore {
      guard isUp else { throw downFailure }
      try store.locked { () throws(Failure) in
        let before = store.count
        hasMore = store.makeRoom(at: now) { trim.excess(store) > 0 }
        trim.removed += before - store.count
      }
      settle()
      guard trim.goesOn(goOn) else { return }
    }
  }

  private func trimByRank(
    _ trim: LogTrim, _ store: LogStore, _ goOn: (UInt64, UInt64) -> Bool
  ) throws(Failure) {
    // Rounds that remove nothing: all that was found was read or moved meanwhile.
    var idle = 0
    while idle < 3 {
      let excess = trim.excess(store)
      guard excess > 0 else { return }
      var candidates = TrimScan(needing: excess, of: Int64(clamping: store.count))
      var place = LogPlace()
      var found = WalkPage()
      while try store.step(&place, into: &found) {
        for entry in found.entries.elements {
          if trim.rule.goesByAccess { askAbove(found.key(of: entry), entry.record) }
          try candidates.offer(trim.rule.item(entry, store.accessed(of: entry)))
        }
        guard isUp else { throw downFailure }
        guard trim.goesOn(goOn) else { return }
      }
      guard candidates.count > 0 else { return }
      candidates.sort()
      trim.victims.removeAll()
      for i in 0..<candidates.count {
        try trim.victims.append(LogAddress(UInt64(bitPattern: candidates[i].tag)))
      }
      let before = trim.removed
      let goesOn = try remove(
        trim, store, goOn, until: { trim.excess(store) <= 0 },
        if: { (i, record) in
          // What was read since it was looked at has another rank.
          switch trim.rule.spec.kind {
          case .largestFirst: true
          case .leastFrequent: record.accessed <= candidates[i].second
          default: record.accessed <= candidates[i].first
          }
        })
      if !goesOn { return }
      idle = trim.removed == before ? idle + 1 : 0
    }
  }
}

extension TrimRule {
  /// Of a trim by rank: who has less goes first.
  fileprivate func item(_ entry: WalkPage.Entry, _ accessed: Int64) -> RankedHeap.Item {
    let address = Int64(bitPattern: entry.address)
    let rank: (Int64, Int64) =
      switch spec.kind {
      case .largestFirst: (-entry.charge, address)
      case .leastFrequent: (entry.isUsed ? 1 : 0, accessed)
      default: (accessed, address)
      }
    return RankedHeap.Item(first: rank.0, second: rank.1, tag: address, weight: entry.charge)
  }
}

extension LogStore {
  /// When an entry that a walk has found was last read; as the walk found it, if it has moved.
  fileprivate func accessed(of found: WalkPage.Entry) -> Int64 {
    guard let seat = seat(of: found.address), let entry = entry(seat, found.address) else {
      return found.record.accessed
    }
    let accessed = entry.record.accessed
    return isStill(seat, found.address) ? accessed : found.record.accessed
  }
}
