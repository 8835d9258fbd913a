import CSQLite
import CSystem
import Synchronization

/// The entry that a reader returns with a row.
struct FoundEntry: ~Copyable {
  /// Valid if the read has returned that there is one.
  var row = Row()
  /// The entry, complete if its value is in the row.
  var block: Block?
  /// Where the row's content file is.
  var directory: Directory?
}

/// A connection that reads, with its statements; used under its reader's lock.
final class ReadConnection {
  /// Where the manifest is that it reads, and the content files that its rows name. A read
  /// that is under way keeps it open while the tier moves elsewhere.
  let directory: Directory
  private let connection: Connection
  private var finding: LateStatement
  /// As `finding`, without the value: SQLite reads all the pages of what a statement names.
  private var looking = LateStatement("SELECT {row}, extended FROM entries WHERE key = ?1")
  private var listing = LateStatement(
    """
    SELECT key, generation, created, accessed, expires, idle
    FROM entries WHERE key > ?1 ORDER BY key LIMIT ?2
    """)
  /// SQLite answers it from the index of keys, and reads no row.
  private var listingKeys = LateStatement(
    "SELECT key FROM entries WHERE key > ?1 ORDER BY key LIMIT ?2")
  private var walking = RowScan()
  private var walkingBack = RowScan(isDescending: true)
  private var beginning = LateStatement("BEGIN")
  private var ending = LateStatement("COMMIT")
  private var summing = LateStatement(Sums.query)
  private var listingTagged = LateStatement(
    "SELECT key FROM tags WHERE tag = ?3 AND key > ?1 ORDER BY key LIMIT ?2")
  private var findingTag = LateStatement(
    """
    SELECT version, substr(extended, -(codec >> 32)) FROM entries
    WHERE key = ?1 AND codec >= 4294967296
    """)
  /// Which state of the manifest was read last; nil: one that others may have changed since.
  private var state: Readers.State?

  /// Fails here, before there is an instance: Embedded Swift 6.3 never frees one whose initialiser
  /// throws.
  static func open(_ directory: Directory) throws(Failure) -> ReadConnection {
    let connection = try directory.withPath(of: ManifestFile.name) {
      (path) throws(Failure) -> Connection in try Connection(path, .read)
    }
    connection.waitsOut(true)
    // It may be the last to close, at a fork.
    _ = hutch_sqlite_switch(connection.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    var finding = LateStatement("SELECT {row}, extended, value FROM entries WHERE key = ?1")
    _ = try finding.of(connection)
    try connection.check(isIn: directory)
    return ReadConnection(directory, connection, finding)
  }

  private init(
    _ directory: Directory, _ opened: consuming Connection, _ finding: consuming LateStatement
  ) {
    self.directory = directory
    connection = opened
    self.finding = finding
  }

  /// The sums as the commits have left them, and those of the rows, at one moment.
  func counts() throws(Failure) -> ManifestCounts {
    var counts: ManifestCounts?
    try together { () throws(Failure) in
      let said = try sums()
      let statement = try connection.prepare(
        """
        SELECT ifnull(sum(iif(generation = ?1, 1, 0)), 0),
          ifnull(sum(iif(generation = ?1, min(max(charge, 0), 1 << 60), 0)), 0),
          ifnull(sum(iif(generation <> ?1, min(max(charge, 0), 1 << 60), 0)), 0)
        FROM entries
        """)
      defer { statement.end() }
      statement.bind(1, said.generation)
      guard try statement.step() else { throw Failure(.corrupt, "the rows cannot be counted") }
      counts = ManifestCounts(
        generation: said.generation, count: (said.count, statement.integer(0)),
        bytes: (said.bytes, statement.integer(1)), dead: (said.dead, statement.integer(2)))
    }
    return counts!
  }

  /// The sums as the commits have left them.
  func sums() throws(Failure) -> Sums {
    let statement = try summing.of(connection)
    defer { statement.reset() }
    guard try statement.step() else { throw Failure(.corrupt, "the manifest has no meta row") }
    return Sums(statement)
  }

  /// Appends the rows with a wrong charge, in the order of slots. A value's size stands in the head
  /// of its row; that of a file which a codec made is the file's. Returns the slot of the last row
  /// that was looked at; nil if there was none.
  func wrongCharges(
    after slot: Int64, limit: Int, to wrong: inout GrowingArray<WrongCharge>
  ) throws(Failure) -> Int64? {
    let statement = try connection.prepare(
      """
      SELECT slot, charge, length(key), size, codec & 4294967295, file,
        ifnull(length(extended), 0),
        ifnull(length(value), 0), codec >> 32, version
      FROM entries WHERE slot > ?1 ORDER BY slot LIMIT ?2
      """)
    defer { statement.end() }
    statement.bind(1, slot)
    statement.bind(2, Int64(limit))
    var last: Int64?
    while try statement.step() {
      last = statement.integer(0)
      let name = statement.isNull(5) ? nil : ContentName(try statement.bytes(5))
      var stored = name == nil ? statement.integer(7) : statement.integer(3)
      if let name, statement.integer(4) != 0 {
        stored = try ContentFiles.size(name, in: directory).map(Int64.init) ?? 0
      }
      let right = Charge.of(
        key: Int(statement.integer(2)), value: Int(min(max(0, stored), Row.largestValue)),
        extended: Int(statement.integer(6)), tag: Int(statement.integer(8)), inFile: name != nil)
      guard statement.integer(1) != right else { continue }
      try wrong.append(
        WrongCharge(slot: statement.integer(0), version: statement.integer(9), right: right))
    }
    return last
  }

  /// How many errors SQLite finds, up to 100, and how many rows no walk or no look finds by the
  /// order of ids or by a key (`Manifest.reindex` removes them).
  func integrityErrors() throws(Failure) -> Int {
    try connection.errors("PRAGMA integrity_check(100)")
      + connection.errors(
        "SELECT '' FROM entries WHERE typeof(key) <> 'blob' OR slot < 1 OR id > 1 << 60")
  }

  /// Runs `body` within one read transaction, which its first statement begins.
  func together(_ body: () throws(Failure) -> Void) throws(Failure) {
    guard !connection.isInTransaction else { return try body() }
    try beginning.of(connection).run()
    defer { endKept() }
    try body()
  }

  /// To be called before a read: see Readers for `current`.
  func begin(in current: Readers.State?) throws(Failure) {
    if let current, state == current {
      if !connection.isInTransaction { try beginning.of(connection).run() }
      return
    }
    endKept()
    guard !connection.isInTransaction else {
      throw Failure(.io, "a read transaction cannot be ended")
    }
    state = current
  }

  /// Ends the transaction that has been kept, if one has.
  @inline(never)
  func endKept() {
    if connection.isInTransaction { _ = try? ending.of(connection).run() }
  }

  private static let largeFile = 1 << 20

  /// The row of a key and, if `wantsBlock` finds that it is wanted, its entry: complete if
  /// the value is in the row, else with room for the bytes of the content file.
  /// False: no row. `row.isSound` false: its fields are impossible, and there is no block. Nor is
  /// there one for a file of another size than the row says. (The row is not the result: it is
  /// large, and every function on the way would copy it.)
  func find(
    _ key: Bytes, into entry: inout FoundEntry,
    wantsBlock: (inout Row) throws(Failure) -> Bool
  ) throws(Failure) -> Bool {
    try find(key, by: finding.of(connection), into: &entry, wantsBlock)
  }

  /// The row without its value; `visit` as `wantsBlock` above, with nothing to want.
  func look(
    _ key: Bytes, into entry: inout FoundEntry, visit: (inout Row) throws(Failure) -> Void
  ) throws(Failure) -> Bool {
    let looking = try self.looking.of(connection)
    return try find(key, by: looking, into: &entry) { (row) throws(Failure) in
      try visit(&row)
      return false
    }
  }

  private func find(
    _ key: Bytes, by finding: Statement, into entry: inout FoundEntry,
    _ wantsBlock: (inout Row) throws(Failure) -> Bool
  ) throws(Failure) -> Bool {
    entry.directory = directory
    try finding.bind(1, key)
    defer { finding.reset() }
    guard try finding.step() else { return false }
    entry.row = try Row(finding)
    let extended = try finding.bytes(Row.more)
    entry.row.setExtended(extended)
    if entry.row.isSound {
      entry.row.record.checksum =
        entry.row.seal
        ^ Seal.salt(
          key: key, version: entry.row.record.version, generation: entry.row.generation,
          extended: extended, tagSize: entry.row.record.tagSize)
    }
    guard entry.row.isSound, try wantsBlock(&entry.row) else { return true }
    let file = entry.row.file
    let value = file == nil ? try finding.bytes(Row.more + 1) : Bytes(start: nil, count: 0)
    if entry.row.record.codec != 0 {
      var size = Optional(value.count)
      if let file { size = try ContentFiles.size(file, in: directory) }
      guard let size else { return true }
      entry.row.record.size = size
    } else if file == nil && value.count != entry.row.record.size {
      entry.row.isSound = false
      return true
    } else if let file, entry.row.record.size > ReadConnection.largeFile,
      try ContentFiles.size(file, in: directory) != entry.row.record.size
    {
      // Not to ask for memory for a number.
      return true
    }
    let made = try Block.allocate(key: key, record: entry.row.record)
    if extended.count > 0 {
      made.unowned.extendedData.baseAddress!
        .copyMemory(from: extended.baseAddress!, byteCount: extended.count)
    }
    if value.count > 0 {
      made.unowned.value.baseAddress!
        .copyMemory(from: value.baseAddress!, byteCount: value.count)
    }
    entry.block = consume made
    return true
  }

  /// The keys of rows in the order of their bytes, those with this tag (nil: all), and whether
  /// `filter` shows the row. A tag has no filter. Without a filter no row is read.
  func list(
    tagged tag: Bytes?, after key: Bytes, limit: Int, _ filter: RowFilter?,
    _ visit: (Bytes, _ isShown: Bool) throws(Failure) -> Void
  ) throws(Failure) {
    let statement: Statement
    if let tag {
      statement = try listingTagged.of(connection)
      try statement.bind(3, tag)
    } else {
      statement = try filter == nil ? listingKeys.of(connection) : listing.of(connection)
    }
    try statement.bind(1, key)
    statement.bind(2, Int64(limit))
    defer { statement.reset() }
    while try statement.step() {
      let key = try statement.bytes(0)
      try visit(key, filter?.shows(ReadConnection.times(statement), key) ?? true)
    }
  }

  /// Calls `visit` with the tag of a key's row, if it has one and the row has this version; false:
  /// not so.
  func tag(
    of key: Bytes, version: UInt64, _ visit: (Bytes) -> Void
  ) throws(Failure) -> Bool {
    let statement = try findingTag.of(connection)
    try statement.bind(1, key)
    defer { statement.reset() }
    guard try statement.step(), statement.bits(0) == version else { return false }
    visit(try statement.bytes(1))
    return true
  }

  /// Rows in the order of their ids, or back from the last.
  @discardableResult
  func walk(
    after id: Int64, descending: Bool = false, limit: Int,
    _ visit: (Bytes, Row) throws(Failure) -> Void
  ) throws(Failure) -> RowScan.Reached {
    func show(_ row: Row, _ key: Bytes) throws(Failure) -> Bool {
      try visit(key, row)
      return true
    }
    let limit = Int64(limit)
    return descending
      ? try walkingBack(connection, from: id, limit: limit, show)
      : try walking(connection, from: id, limit: limit, show)
  }

  private static func times(_ statement: Statement) -> Row {
    var row = Row()
    row.generation = statement.integer(1)
    row.record.created = statement.integer(2)
    row.record.accessed = statement.integer(3)
    row.record.expires = statement.integer(4)
    row.record.timeToIdle = max(0, statement.integer(5))
    return row
  }
}

/// A row whose charge is wrong. The right one is that of the value with this version.
struct WrongCharge {
  let slot: Int64
  let version: Int64
  let right: Int64
}

/// Sums over the rows, each as the commits have left it and as it is.
struct ManifestCounts {
  let generation: Int64
  let count: (said: Int64, found: Int64)
  let bytes: (said: Int64, found: Int64)
  let dead: (said: Int64, found: Int64)

  var isRight: Bool {
    count.said == count.found && bytes.said == bytes.found && dead.said == dead.found
  }
}
