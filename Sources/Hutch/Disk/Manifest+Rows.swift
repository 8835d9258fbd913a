import CSQLite

/// The rows of entries: lookups, puts, removals, touches, and walks in both directions.
extension Manifest {
  func find(_ key: Bytes, into old: inout OldRow) throws(Failure) {
    let finding = try self.finding.of(connection)
    try finding.statement.bind(1, key)
    defer { finding.statement.reset() }
    guard try finding.statement.step() else { return }
    old.row = try Row(finding.statement)
    old.isThere = true
  }

  /// As DeletionByKey says.
  func delete(
    _ key: Bytes, into old: inout OldRow, if mayGo: (UnsafePointer<OldRow>) -> Bool
  ) throws(Failure) {
    try deletingByKey(key, into: &old, on: connection, if: mayGo)
  }

  /// `body` gets the key, which is valid during the call. Nil: no such row.
  func find<R>(
    id: Int64, _ body: (Row, Bytes) throws(Failure) -> R
  ) throws(Failure) -> R? {
    let findingByID = try self.findingByID.of(connection)
    findingByID.statement.bind(1, id)
    defer { findingByID.statement.reset() }
    guard try findingByID.statement.step() else { return nil }
    return try body(try Row(findingByID.statement), try findingByID.statement.bytes(Row.more))
  }

  /// The row of a put; its key has none. Without a content file the value goes into it. `meta`: as
  /// the put leaves it, whose sums the row gets. `isInPlace`: the row is the key's, which is the
  /// newest one.
  func put(
    _ write: QueuedWrite, _ meta: Meta, seal: UInt64, isInPlace: Bool
  ) throws(Failure) {
    let block = write.entry!
    let record = block.record
    let id = isInPlace ? lastID : lastID + 1
    let inserting = try isInPlace ? rewriting.of(connection) : self.inserting.of(connection)
    inserting.statement.bind(1, id)
    try inserting.statement.bind(2, write.key)
    inserting.statement.bind(3, bits: record.version)
    inserting.statement.bind(4, meta.generation)
    inserting.statement.bind(5, record.created)
    inserting.statement.bind(6, record.expires)
    inserting.statement.bind(7, record.timeToIdle)
    inserting.statement.bind(8, bits: record.cost)
    inserting.statement.bind(9, Int64(record.codec == 0 ? write.size : record.decodedSize))
    inserting.statement.bind(10, write.charge)
    inserting.statement.bind(11, bits: seal)
    inserting.statement.bind(15, Int64(record.codec) | Int64(record.tagSize) << Row.codecBits)
    inserting.statement.bind(16, meta.count)
    inserting.statement.bind(17, meta.bytes)
    if record.extendedSize == 0 {
      inserting.statement.bindNull(13)
    } else {
      try inserting.statement.bind(13, Bytes(block.extendedData))
    }
    if let file = write.file {
      try file.name.withText { (text) throws(Failure) in
        try inserting.statement.bindText(12, text)
        inserting.statement.bindNull(14)
        try inserting.statement.run()
      }
    } else {
      inserting.statement.bindNull(12)
      try inserting.statement.bind(14, Bytes(block.value))
      try inserting.statement.run()
    }
    lastID = id
    if block.tagSize > 0 { try tag(write) }
  }

  func delete(_ found: Row) throws(Failure) {
    if found.hasTag { try untag(found) }
    let deleting = try self.deleting.of(connection)
    deleting.statement.bind(1, found.id)
    try deleting.statement.run()
  }

  /// Sets a row's times, and makes it the newest: ids stay in the order of `created`. The row gets
  /// the sums of `meta`.
  func touch(_ found: Row, _ record: Record, accessed: Int64, _ meta: Meta) throws(Failure) {
    let newest = lastID + 1
    let touching = try self.touching.of(connection)
    touching.statement.bind(1, found.id)
    touching.statement.bind(2, newest)
    touching.statement.bind(3, record.created)
    touching.statement.bind(4, accessed)
    touching.statement.bind(5, record.expires)
    touching.statement.bind(6, record.timeToIdle)
    touching.statement.bind(7, meta.count)
    touching.statement.bind(8, meta.bytes)
    try touching.statement.run()
    lastID = newest
  }

  /// Sets a row's times where it stands.
  func redate(_ found: Row, _ record: Record) throws(Failure) {
    let redating = try self.redating.of(connection)
    redating.statement.bind(1, found.id)
    redating.statement.bind(2, record.created)
    redating.statement.bind(3, record.accessed)
    redating.statement.bind(4, record.expires)
    try redating.statement.run()
  }

  /// Sets the charge of a row that a check found wrong.
  func setCharge(_ id: Int64, _ charge: Int64) throws(Failure) {
    let statement = try connection.prepare("UPDATE entries SET charge = ?2 WHERE id = ?1")
    statement.bind(1, id)
    statement.bind(2, charge)
    try statement.run()
  }

  func noteAccess(_ key: Bytes, at time: Int64, uses: Int64) throws(Failure) {
    let accessing = try self.accessing.of(connection)
    try accessing.statement.bind(1, key)
    accessing.statement.bind(2, time)
    accessing.statement.bind(3, uses)
    try accessing.statement.run()
  }

  /// The ids of rows with an expiry of their own that has come, the earliest first.
  func ended(
    at now: Int64, limit: Int64, _ visit: (Int64) throws(Failure) -> Void
  ) throws(Failure) {
    let ending = try self.ending.of(connection)
    ending.statement.bind(1, now)
    ending.statement.bind(2, limit)
    defer { ending.statement.reset() }
    while try ending.statement.step() { try visit(ending.statement.integer(0)) }
  }

  /// Up to `limit` rows after `id` in the order of their ids, until `visit` answers false. It
  /// must change no row.
  @discardableResult
  func walk(
    after id: Int64, limit: Int64, _ visit: (Row, Bytes) throws(Failure) -> Bool
  ) throws(Failure) -> RowScan.Reached {
    try RowScan(try walking.of(connection))(from: id, limit: limit, visit)
  }

  /// As `walk`, from the newest back.
  func walkBack(
    before id: Int64, limit: Int64, _ visit: (Row) throws(Failure) -> Bool
  ) throws(Failure) -> RowScan.Reached {
    let scan = RowScan(try walkingBack.of(connection), isDescending: true)
    return try scan(from: id, limit: limit) { (row, _) throws(Failure) in try visit(row) }
  }
}
