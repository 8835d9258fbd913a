import CSQLite

/// The rows of entries: lookups, puts, removals, touches, and walks in both directions.
extension Manifest {
  func find(_ key: Bytes, into old: inout OldRow) throws(Failure) {
    let finding = try self.finding.of(connection)
    try finding.bind(1, key)
    defer { finding.reset() }
    guard try finding.step() else { return }
    old.row = try Row(finding)
    old.isThere = true
  }

  /// As DeletionByKey says.
  func delete(
    _ key: Bytes, into old: inout OldRow, if mayGo: (UnsafePointer<OldRow>) -> Bool
  ) throws(Failure) {
    try deletingByKey(key, into: &old, on: connection, if: mayGo)
  }

  /// Calls `body` with the row, if there is one, and with its key, which is valid during the call.
  @inline(never)
  func find(id: Int64, _ body: (Row, Bytes) throws(Failure) -> Void) throws(Failure) {
    let findingByID = try self.findingByID.of(connection)
    findingByID.bind(1, id)
    defer { findingByID.reset() }
    while try findingByID.step() {
      // The id may have been the row's before its value was replaced in place.
      let row = try Row(findingByID)
      if row.id == id { return try body(row, try findingByID.bytes(Row.more)) }
    }
  }

  /// The row of a put. Without a content file the value goes into it. `meta`: as the put leaves
  /// it, whose sums the row gets. `slot`: where the row of the key stays; nil: the key has no row.
  /// `keepsID`: that row is the newest one, and keeps its id.
  @inline(never)
  func put(
    _ write: QueuedWrite, _ meta: Meta, seal: UInt64, in slot: Int64?, keepsID: Bool
  ) throws(Failure) {
    let block = write.entry!
    let record = block.record
    let id = keepsID ? lastID : lastID + 1
    // Before the row, since of a put that fails after it the row would stay.
    let tagging = block.tagSize > 0 ? try tag(write) : nil
    let inserting = try slot == nil ? self.inserting.of(connection) : rewriting.of(connection)
    let place = slot ?? id
    inserting.bind(1, place)
    // A row that will be replaced in its slot has the size then that it has now: SQLite overwrites
    // its pages only if no number takes more bytes.
    if place == id && !write.isLong {
      inserting.bindNull(18)
    } else {
      inserting.bind(18, id)
    }
    try inserting.bind(2, write.key)
    inserting.bind(3, bits: record.version)
    inserting.bind(4, meta.generation)
    inserting.bind(5, record.created)
    inserting.bind(6, record.expires)
    inserting.bind(7, record.timeToIdle)
    inserting.bind(8, bits: record.cost)
    inserting.bind(9, Int64(record.codec == 0 ? write.size : record.decodedSize))
    inserting.bind(10, write.charge)
    inserting.bind(11, bits: seal)
    inserting.bind(15, Int64(record.codec) | Int64(record.tagSize) << Row.codecBits)
    inserting.bind(16, meta.count)
    inserting.bind(17, meta.bytes)
    if record.extendedSize == 0 {
      inserting.bindNull(13)
    } else {
      try inserting.bind(13, Bytes(block.extendedData))
    }
    if let file = write.file {
      try file.name.withText { (text) throws(Failure) in
        try inserting.bindText(12, text)
        inserting.bindNull(14)
        try inserting.run()
      }
    } else {
      inserting.bindNull(12)
      try inserting.bind(14, Bytes(block.value))
      try inserting.run()
    }
    lastID = id
    try tagging?.run()
  }

  func delete(_ found: Row) throws(Failure) {
    if found.hasTag { try untag(found) }
    let deleting = try self.deleting.of(connection)
    deleting.bind(1, found.slot)
    try deleting.run()
  }

  /// Sets a row's times, and makes it the newest: ids stay in the order of `created`. A long row
  /// keeps its slot. The row gets the sums of `meta`.
  func touch(_ found: Row, _ record: Record, accessed: Int64, _ meta: Meta) throws(Failure) {
    let newest = lastID + 1
    let staysInPlace = found.slot != found.id || found.isLong
    let touching = try staysInPlace
      ? touchingInPlace.of(connection) : self.touching.of(connection)
    touching.bind(1, found.slot)
    touching.bind(2, newest)
    touching.bind(3, record.created)
    touching.bind(4, accessed)
    touching.bind(5, record.expires)
    touching.bind(6, record.timeToIdle)
    touching.bind(7, meta.count)
    touching.bind(8, meta.bytes)
    try touching.run()
    lastID = newest
  }

  /// Sets a row's times where it stands.
  func redate(_ found: Row, _ record: Record) throws(Failure) {
    let redating = try self.redating.of(connection)
    redating.bind(1, found.slot)
    redating.bind(2, record.created)
    redating.bind(3, record.accessed)
    redating.bind(4, record.expires)
    try redating.run()
  }

  /// Sets the charge of a row that a check found wrong, unless a write has replaced it since.
  func setCharge(_ wrong: WrongCharge) throws(Failure) {
    let statement = try connection.prepare(
      "UPDATE entries SET charge = ?3 WHERE slot = ?1 AND version = ?2")
    defer { statement.end() }
    statement.bind(1, wrong.slot)
    statement.bind(2, wrong.version)
    statement.bind(3, wrong.right)
    try statement.run()
  }

  func noteAccess(_ key: Bytes, at time: Int64, uses: Int64) throws(Failure) {
    let accessing = try self.accessing.of(connection)
    try accessing.bind(1, key)
    accessing.bind(2, time)
    accessing.bind(3, uses)
    try accessing.run()
  }

  /// The ids of rows with an expiry of their own that has come, the earliest first.
  func ended(
    at now: Int64, limit: Int64, _ visit: (Int64) throws(Failure) -> Void
  ) throws(Failure) {
    let ending = try self.ending.of(connection)
    ending.bind(1, now)
    ending.bind(2, limit)
    defer { ending.reset() }
    while try ending.step() { try visit(ending.integer(0)) }
  }

  /// Up to `limit` rows after `id` in the order of their ids, or, if `bySlot`, after a slot in the
  /// order of slots, until `visit` answers false. It must change no row.
  @discardableResult
  func walk(
    after id: Int64, bySlot: Bool = false, limit: Int64,
    _ visit: (Row, Bytes) throws(Failure) -> Bool
  ) throws(Failure) -> RowScan.Reached {
    try walking(connection, from: id, bySlot: bySlot, limit: limit, visit)
  }

  /// The last slot of a row.
  func lastSlot() throws(Failure) -> Int64 {
    try connection.integer("SELECT max(slot) FROM entries") ?? 0
  }

  /// As `walk`, from the newest back.
  func walkBack(
    before id: Int64, limit: Int64, _ visit: (Row) throws(Failure) -> Bool
  ) throws(Failure) -> RowScan.Reached {
    try walkingBack(connection, from: id, limit: limit) { (row, _) throws(Failure) in
      try visit(row)
    }
  }
}
