/// Walks in the order of keys or of ids. A page of keys without an entry that a read may see is
/// followed by the next page, since the caller goes on behind the last key that it was shown.
extension DiskTier {
  func keys(
    tagged tag: Bytes?, after key: Bytes?, limit: Int, at moment: Moment?, visit: (Bytes) -> Void
  ) throws(Failure) -> Int {
    var found = KeyList()
    var count = 0
    var from = KeyList()
    try from.append(key ?? Bytes(start: nil, count: 0), 0)
    while count == 0 && isUp {
      let filter = moment.map { RowFilter(self, at: $0) }
      // The last key of a page without an entry that is shown.
      var last = KeyList()
      let isRead = try readPage { (reader) throws(Failure) in
        try reader.list(tagged: tag, after: from.first!, limit: max(1, limit), filter) {
          (key, isShown) throws(Failure) in
          guard isShown, DiskTier.isPossible(key) else {
            if count > 0 { return }
            last.removeAll()
            return try last.append(key, 0)
          }
          try found.append(key, 0)
          count += 1
        }
      }
      if !isRead { return 0 }
      if let filter, !filter.isCurrent {
        found.removeAll()
        count = 0
        continue
      }
      if last.isEmpty { break }
      swap(&from, &last)
    }
    found.forEach { key, _ in visit(key) }
    return count
  }

  /// By the order of ids, with the accesses that have gathered in memory.
  func walk(
    _ place: inout WalkPlace, at moment: Moment?, visit: (Bytes, WalkedEntry) -> Void
  ) throws(Failure) {
    let newest = place.newest ?? committer.withTurn { committer.manifest?.lastID ?? 0 }
    place.newest = newest
    let last = place.last ?? (place.isDescending ? newest &+ 1 : 0)
    var reached = RowScan.Reached(last: last, isEnd: true)
    var keys = KeyList()
    var entries = GrowingArray<WalkedEntry>()
    let filter = RowFilter(self, at: moment)
    let isRead = try readPage { (reader) throws(Failure) in
      reached = try reader.walk(
        after: last, descending: place.isDescending, limit: place.limit
      ) { (key, row) throws(Failure) in
        guard row.id <= newest, filter.shows(row, key),
          moment == nil || DiskTier.isPossible(key)
        else { return }
        let gathered = accesses.gathered(key)
        var record = row.record
        record.accessed = max(record.accessed, gathered.time)
        try keys.append(key, 0)
        try entries.append(
          WalkedEntry(
            id: row.id, record: record, charge: row.charge, uses: row.uses &+ gathered.uses))
      }
    }
    if !isRead && moment == nil {
      service.tell(observer)
      throw downFailure
    }
    if moment != nil && !filter.isCurrent { return try walk(&place, at: moment, visit: visit) }
    place.isAtEnd = reached.isEnd || (!place.isDescending && reached.last >= newest)
    place.last = reached.last
    var i = 0
    keys.forEach { key, _ in
      visit(key, entries[i])
      i += 1
    }
  }

  /// A damaged row may have a key that no put could have had.
  private static func isPossible(_ key: Bytes) -> Bool {
    key.count > 0 && key.count <= Row.longestKey
  }

  /// False: the tier is out of service, perhaps since this read has found it damaged.
  private func readPage(
    _ body: (ReadConnection) throws(Failure) -> Void
  ) throws(Failure) -> Bool {
    do throws(Failure) {
      return try withReader(body)
    } catch {
      note(error)
      if error.status == .corrupt || !isUp { return false }
      throw error
    }
  }
}
