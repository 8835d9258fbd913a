/// Walks for the cache above, in the order of keys or of ids: the entries that a read may see. A
/// page of rows without one of them is followed by the next page, since the caller goes on behind
/// the last entry that it was shown.
extension DiskTier {
  func keys(
    tagged tag: Bytes?, after key: Bytes?, limit: Int, at moment: Moment, visit: (Bytes) -> Void
  ) throws(Failure) -> Int {
    var found = KeyList()
    var count = 0
    var from = KeyList()
    try from.append(key ?? Bytes(start: nil, count: 0), 0)
    while count == 0 && isUp {
      let filter = RowFilter(self, at: moment)
      var last = KeyList()
      let isRead = try readPage { (reader) throws(Failure) in
        try reader.list(tagged: tag, after: from.first!, limit: max(1, limit)) {
          (key, row) throws(Failure) in
          last.removeAll()
          try last.append(key, 0)
          guard DiskTier.isPossible(key), filter.shows(row, key) else { return }
          try found.append(key, 0)
          count += 1
        }
      }
      if !isRead { return 0 }
      if last.isEmpty { break }
      swap(&from, &last)
    }
    found.forEach { key, _ in visit(key) }
    return count
  }

  func entries(
    after position: inout WalkPosition, limit: Int, at moment: Moment,
    visit: (Bytes, Record) -> Void
  ) throws(Failure) -> Int {
    let newest = position.newest ?? committer.withTurn { committer.manifest?.lastID ?? 0 }
    position.newest = newest
    let isDescending = position.isDescending
    var last = isDescending ? min(position.last, newest + 1) : position.last
    var keys = KeyList()
    var records = GrowingArray<Record>()
    var isEnd = false
    while records.isEmpty && isUp && !isEnd {
      let filter = RowFilter(self, at: moment)
      let isRead = try readPage { (reader) throws(Failure) in
        let reached = try reader.walk(
          after: last, descending: isDescending, limit: max(1, limit)
        ) { (key, row) throws(Failure) in
          guard row.id <= newest, DiskTier.isPossible(key), filter.shows(row, key) else { return }
          var record = row.record
          record.accessed = max(record.accessed, accesses.latest(key))
          try keys.append(key, 0)
          try records.append(record)
        }
        last = reached.last
        isEnd = reached.isEnd || (!isDescending && last >= newest)
      }
      if !isRead { return 0 }
    }
    position.last = last
    var i = 0
    keys.forEach { key, _ in
      visit(key, records[i])
      i += 1
    }
    return records.count
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
      return try withReader(body) != nil
    } catch {
      note(error)
      if error.status == .corrupt || !isUp { return false }
      throw error
    }
  }
}
