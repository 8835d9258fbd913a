import CSQLite
import CSystem

/// The database file as a whole: its pages, its order.
extension Manifest {
  /// Gives up to `pages` free pages back to the file system. True if there are more.
  func vacuum(pages: Int) throws(Failure) -> Bool {
    let free = try connection.integer("PRAGMA freelist_count") ?? 0
    guard free > 0 else { return false }
    let statement = try connection.prepare("PRAGMA incremental_vacuum(64)")
    defer { statement.end() }
    var done = 0
    while done < pages {
      defer { statement.reset() }
      while try statement.step() {}
      done += 64
    }
    return free > Int64(done)
  }

  /// Free pages, and all pages, of the database file.
  var pages: (free: Int64, all: Int64) {
    get throws(Failure) {
      (
        try connection.integer("PRAGMA freelist_count") ?? 0,
        try connection.integer("PRAGMA page_count") ?? 0
      )
    }
  }

  /// Sees to it that clean = 0, once it is written, survives a loss of power, where nothing
  /// else is synced before the first checkpoint. SQLite has no locks on the log, so that it may
  /// be opened and closed beside it.
  func syncUnclean(in directory: Directory) {
    @inline(never)
    func sync(_ name: StaticString, _ flags: Int32) -> Bool {
      let number = Files.openBeneath(
        Files.path(name), at: directory.descriptor, flags | O_NONBLOCK)
      guard let number else { return false }
      let file = Descriptor(owning: number)
      _ = Files.sync(file.number)
      return true
    }
    if sync(ManifestFile.log, O_RDONLY) { _ = sync(".", O_RDONLY | O_DIRECTORY) }
  }

  /// Brings the pages to the disk that checkpoints have left unsynced. By SQLite's own descriptor:
  /// to close another one would give up SQLite's locks.
  func syncPages() throws(Failure) {
    guard isUnsynced else { return }
    var file: UnsafeMutablePointer<sqlite3_file>?
    var code = sqlite3_file_control(
      connection.handle, "main", SQLITE_FCNTL_FILE_POINTER, &file)
    if code == SQLITE_OK { code = file!.pointee.pMethods.pointee.xSync(file, SQLITE_SYNC_NORMAL) }
    if code != SQLITE_OK { throw Connection.failure(code, "cannot sync the manifest") }
  }

  /// Makes the indices and the table of tags anew from the rows, and removes the rows that
  /// `ReadConnection.integrityErrors` counts. (A text or a blob is greater than each number.)
  func reindex() throws(Failure) {
    try connection.run(
      """
      REINDEX;
      DELETE FROM entries WHERE typeof(key) <> 'blob' OR slot < 1 OR id > 1 << 60;
      DELETE FROM tags;
      INSERT OR IGNORE INTO tags
        SELECT substr(extended, -(codec >> 32)), key FROM entries WHERE codec >= 4294967296;
      """)
    // The index of ids may have lacked the newest row, which has the sums (Sums).
    let newest = try connection.integer("SELECT max(max(slot, ifnull(id, 0))) FROM entries")
    lastID = max(lastID, min(newest ?? 0, Meta.largest - 1))
  }

  /// Makes the file anew from its rows, outside a transaction. SQLite makes the new one in a
  /// temporary file first, and then writes all of it into the log.
  func rewrite() throws(Failure) {
    try connection.run("PRAGMA temp_store = FILE")
    defer { _ = try? connection.run("PRAGMA temp_store = MEMORY") }
    try connection.run("VACUUM")
  }

  /// Whether SQLite finds the whole file in order. May fail as corrupt, too.
  func isWhole() throws(Failure) -> Bool { try connection.errors("PRAGMA quick_check(1)") == 0 }
}
