import CSQLite
import CSystem

/// One connection to the manifest, and its statements. Opened without SQLite's own mutex: the owner
/// of the connection lets one thread at a time use it.
struct Connection: ~Copyable {
  let handle: OpaquePointer

  enum Access {
    case read, write, create
  }

  init(_ path: UnsafePointer<CChar>, _ access: Access) throws(Failure) {
    var flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_PRIVATECACHE | SQLITE_OPEN_NOFOLLOW
    switch access {
    case .read: flags |= SQLITE_OPEN_READONLY
    case .write: flags |= SQLITE_OPEN_READWRITE
    case .create: flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE
    }
    var opened: OpaquePointer?
    hutch_set_errno(0)
    let code = sqlite3_open_v2(path, &opened, flags, nil)
    guard code == SQLITE_OK, let opened else {
      let failure = Connection.failure(code, "cannot open the manifest")
      sqlite3_close(opened)
      throw failure
    }
    handle = opened
    sqlite3_extended_result_codes(opened, 1)
    // The schema of a file from elsewhere must not run as code.
    _ = hutch_sqlite_switch(opened, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0)
    _ = hutch_sqlite_switch(opened, SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    _ = hutch_sqlite_switch(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)
  }

  deinit { Connection.close(handle) }

  /// Ends the statements that are left, those of each `LateStatement`.
  @inline(never)
  private static func close(_ handle: OpaquePointer) {
    while let statement = sqlite3_next_stmt(handle, nil) { sqlite3_finalize(statement) }
    sqlite3_close(handle)
  }

  /// Runs statements that give no rows, or whose rows do not matter.
  func run(_ sql: StaticString) throws(Failure) {
    hutch_set_errno(0)
    try check(sqlite3_exec(handle, Files.path(sql), nil, nil, nil), sql)
  }

  /// A statement, which its user ends. "{row}" in the text is `Row.columns`.
  func prepare(_ sql: StaticString) throws(Failure) -> Statement { try prepare(sql.utf8Start) }

  /// `sql` is static, and ends with NUL.
  @inline(never)
  fileprivate func prepare(_ sql: UnsafePointer<UInt8>) throws(Failure) -> Statement {
    var text = GrowingArray<UInt8>()
    var next = sql
    while next.pointee != 0 {
      if next.pointee == UInt8(ascii: "{") {
        try text.append(
          contentsOf: Bytes(
            start: Row.columns.utf8Start, count: Row.columns.utf8CodeUnitCount))
        while next.pointee != UInt8(ascii: "}") { next += 1 }
      } else {
        try text.append(next.pointee)
      }
      next += 1
    }
    var statement: OpaquePointer?
    hutch_set_errno(0)
    let code = text.elements.withMemoryRebound(to: CChar.self) {
      sqlite3_prepare_v3(
        handle, $0.baseAddress, Int32($0.count), UInt32(SQLITE_PREPARE_PERSISTENT), &statement, nil)
    }
    guard code == SQLITE_OK, let statement else { throw Connection.failure(code, sql) }
    return Statement(statement)
  }

  /// The first column of the first row; nil if there is no row.
  func integer(_ sql: StaticString) throws(Failure) -> Int64? {
    let statement = try prepare(sql)
    defer { statement.end() }
    return try statement.step() ? statement.integer(0) : nil
  }

  func check(_ code: Int32, _ words: StaticString) throws(Failure) {
    if code != SQLITE_OK { throw Connection.failure(code, words) }
  }

  /// Whether an error has ended the transaction that was under way.
  var isInTransaction: Bool { sqlite3_get_autocommit(handle) == 0 }

  /// True if the file that the connection writes is no longer the file at its path. SQLite
  /// itself goes on writing into an unlinked file, and says OK. If the path cannot be looked at,
  /// the file counts as being there: the next look tells.
  var hasMoved: Bool {
    var moved: Int32 = 0
    hutch_set_errno(0)
    let code = sqlite3_file_control(handle, "main", SQLITE_FCNTL_HAS_MOVED, &moved)
    return code == SQLITE_OK && moved != 0 && (hutch_errno() == 0 || Files.isMissing)
  }

  /// Throws if the open file is not the directory's own. SQLite goes by the path, where another
  /// directory may be by now. It has opened the file by the first statement.
  func check(isIn directory: Directory) throws(Failure) {
    let own = try directory.status(of: ManifestFile.name)
    guard !hasMoved, try directory.isAtPath(ManifestFile.name, own) else {
      throw Failure(.badDirectory, "the directory was removed or replaced")
    }
  }

  /// How many errors one of SQLite's checks finds, `integrity_check` or `quick_check`. It takes as
  /// long as reading the file. It fails if a page could not be read, which SQLite counts among the
  /// errors.
  func errors(_ check: StaticString) throws(Failure) -> Int {
    let statement = try prepare(check)
    defer { statement.end() }
    var errors = 0
    while try statement.step() {
      let words = try statement.bytes(0)
      if words.count == 2 && memcmp(words.baseAddress!, Files.path("ok"), 2) == 0 { continue }
      if Connection.hasFailedToRead { throw .system("cannot read the manifest") }
      errors += 1
    }
    return errors
  }

  /// Whether the system has refused a read since `errno` was set to 0. SQLite calls some of these
  /// damage (SQLITE_CORRUPT, a line of a check): the bytes are unknown then, and not wrong.
  private static var hasFailedToRead: Bool {
    let code = hutch_errno()
    return code == EIO || code == ENXIO || code == ERANGE || code == ENOMEM
  }

  /// The failure of a call of SQLite's, before which `errno` was set to 0. SQLite's own number
  /// (sqlite3_system_errno) may be that of an earlier call: a COMMIT that fails does not set it.
  static func failure(_ code: Int32, _ words: StaticString) -> Failure {
    failure(code, words.utf8Start)
  }

  private static func failure(_ code: Int32, _ words: UnsafePointer<UInt8>) -> Failure {
    let system = hutch_errno()
    let code = code & 0xFF == SQLITE_CORRUPT && hasFailedToRead ? SQLITE_IOERR : code
    var status: Status
    switch code & 0xFF {
    // SQLite gives this answer for the number of a page that no file can have, too.
    case SQLITE_FULL: status = system == 0 ? .corrupt : .noSpace
    case SQLITE_NOMEM: status = .noMemory
    case SQLITE_CORRUPT, SQLITE_NOTADB: status = .corrupt
    case SQLITE_CANTOPEN, SQLITE_READONLY, SQLITE_PERM, SQLITE_AUTH: status = .badDirectory
    case SQLITE_TOOBIG: status = .tooLarge
    default: status = .io
    }
    let isIO = code & 0xFF == SQLITE_IOERR || code & 0xFF == SQLITE_CANTOPEN
    if isIO && (system == ENOSPC || system == EDQUOT) { status = .noSpace }
    if isIO && (system == EMFILE || system == ENFILE) { status = .io }
    // SQLITE_IOERR_NOMEM, which Swift does not see.
    if code == SQLITE_IOERR | 12 << 8 { status = .noMemory }
    var failure = Failure(status, words: words)
    failure.sqlite = code
    failure.system = isIO || code & 0xFF == SQLITE_FULL ? system : 0
    return failure
  }
}

extension Failure {
  /// Whether SQLite has found bytes that it has not written. SQLITE_ERROR is the answer where
  /// tables are not there, SQLITE_CONSTRAINT the one where a key has two rows. SQLITE_TOOBIG is one
  /// of a damaged page where no large value is bound.
  var isOfDamage: Bool {
    status == .corrupt || status == .tooLarge || sqlite & 0xFF == SQLITE_ERROR
      || sqlite & 0xFF == SQLITE_CONSTRAINT
  }
}

/// A prepared statement. The caller that has prepared it ends it, or else its connection does.
///
/// The caller that steps it resets it before anything else happens: a SELECT that is left open
/// keeps a checkpoint from finishing, and the log grows without end.
struct Statement: RowColumns {
  let handle: OpaquePointer

  fileprivate init(_ handle: OpaquePointer) { self.handle = handle }

  /// It is not used any more.
  func end() { sqlite3_finalize(handle) }

  // Numbers and NULL fail only where there is no such parameter.

  func bind(_ index: Int32, _ value: Int64) { sqlite3_bind_int64(handle, index, value) }

  /// A version, a cost, a checksum: SQLite's integers have a sign, the bits are the same.
  func bind(_ index: Int32, bits value: UInt64) { bind(index, Int64(bitPattern: value)) }

  func bindNull(_ index: Int32) { sqlite3_bind_null(handle, index) }

  /// The bytes must stay as they are until the reset. Throws for more than SQLite takes: the
  /// parameter is NULL then, and the statement is not to be run.
  func bind(_ index: Int32, _ bytes: Bytes) throws(Failure) {
    guard let base = bytes.baseAddress, bytes.count > 0 else {
      // A null pointer would bind NULL, which is not the same as no bytes.
      return try check(sqlite3_bind_zeroblob(handle, index, 0))
    }
    try check(sqlite3_bind_blob64(handle, index, base, UInt64(bytes.count), nil))
  }

  func bindText(_ index: Int32, _ bytes: Bytes) throws(Failure) {
    try check(
      sqlite3_bind_text64(
        handle, index, bytes.baseAddress?.assumingMemoryBound(to: CChar.self),
        UInt64(bytes.count), nil, UInt8(SQLITE_UTF8)))
  }

  @inline(never)
  private func check(_ code: Int32) throws(Failure) {
    guard code == SQLITE_OK else {
      throw Connection.failure(code, "the manifest")
    }
  }

  /// True: there is a row.
  @inline(never)
  func step() throws(Failure) -> Bool {
    hutch_set_errno(0)
    let code = sqlite3_step(handle)
    if code == SQLITE_ROW { return true }
    if code == SQLITE_DONE { return false }
    throw Connection.failure(code, "the manifest")
  }

  /// For a statement without rows: runs it and resets it.
  @inline(never)
  func run() throws(Failure) {
    defer { reset() }
    _ = try step()
  }

  /// Its error is that of the step before, which has been told.
  func reset() { sqlite3_reset(handle) }

  func integer(_ column: Int32) -> Int64 { sqlite3_column_int64(handle, column) }

  func isNull(_ column: Int32) -> Bool { sqlite3_column_type(handle, column) == SQLITE_NULL }

  /// Valid until the next step or the reset.
  func bytes(_ column: Int32) throws(Failure) -> Bytes {
    let base = sqlite3_column_blob(handle, column)
    let count = Int(sqlite3_column_bytes(handle, column))
    guard count > 0 else { return Bytes(start: nil, count: 0) }
    guard let base else { throw .noMemory }
    return Bytes(start: base, count: count)
  }
}

/// A statement that is prepared when it is first needed. To prepare one costs as much as ten
/// lookups of a row, and an opening runs few of those that it may need later.
struct LateStatement: ~Copyable {
  private let text: UnsafePointer<UInt8>
  private var statement: Statement?

  init(_ text: StaticString) { self.text = text.utf8Start }

  /// The statement, which is always used with the same connection, and ends with that.
  @inline(never)
  mutating func of(_ connection: borrowing Connection) throws(Failure) -> Statement {
    if let statement { return statement }
    let made = try connection.prepare(text)
    statement = made
    return made
  }
}

/// The system's SQLite.
enum SQLiteLibrary {
  static var isFit: Bool {
    sqlite3_libversion_number() >= 3_037_000 && sqlite3_threadsafe() != 0
  }
}
