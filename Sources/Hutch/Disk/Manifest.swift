import CSQLite
import CSystem

/// The manifest's one meta row, with the sums as the last commit has left them (Sums).
struct Meta {
  var storage = StorageKind.mixed
  /// Advanced by a clear. Rows of an older one do not exist for a reader.
  var generation: Int64 = 1
  /// Versions from here on have never been handed out.
  var nextVersion: UInt64 = 1
  /// Rows of this generation, and the sum of their charges.
  var count: Int64 = 0
  var bytes: Int64 = 0
  /// The charges of rows of older generations, which maintenance has yet to delete.
  var dead: Int64 = 0
  /// Whether there may be entries with a time to idle of their own.
  var mayIdle = false
  /// The time of the last write, to see after a reboot whether the wall clock was set back.
  var lastTime: Int64 = 0
  var isClean = false
  /// The weakest since the last clean end.
  var durability = Durability.process
  /// Orphans of an earlier end were not all swept when this opening was closed.
  var owesSweep = false

  /// Beyond this, sums could overflow; no honest meta row has it.
  static let largest = Int64(1) << 60

  var isSound: Bool {
    func isIn(_ value: Int64) -> Bool { value >= 0 && value < Meta.largest }
    return isIn(generation) && generation > 0 && nextVersion > 0
      && nextVersion < UInt64(Meta.largest) && isIn(count) && isIn(bytes) && isIn(dead)
  }

  /// Takes back the mark of a clean end, and leases versions from `first` on.
  mutating func markInUse(_ durability: Durability, from first: UInt64) {
    // The writes that a killed opening left unsynced are not synced by this one.
    if isClean || durability.rawValue < self.durability.rawValue { self.durability = durability }
    isClean = false
    nextVersion = first &+ Committer.versionLease
  }

  /// False if anything else differs but the time.
  func differsInSumsAlone(from other: Meta) -> Bool {
    generation == other.generation && nextVersion == other.nextVersion && dead == other.dead
      && mayIdle == other.mayIdle && isClean == other.isClean
      && durability == other.durability && owesSweep == other.owesSweep
  }

  /// All rows are of an older generation from here on.
  mutating func clear() {
    generation += 1
    dead = min(Meta.largest - 1, dead + bytes)
    count = 0
    bytes = 0
  }

  /// Takes a row out of the sums. A charge comes from the disk: it must not make them lie
  /// below zero.
  mutating func subtract(charge: Int64, generation row: Int64) {
    let charge = max(0, charge)
    if row == generation {
      count = max(0, count &- 1)
      bytes = max(0, bytes &- charge)
    } else {
      dead = max(0, dead &- charge)
    }
  }
}

/// The connection that writes, with its statements, and the meta row with the sums as the last
/// commit has left them. Used under the tier's writer lock.
final class Manifest {
  let connection: Connection
  private var beginning = LateStatement("BEGIN IMMEDIATE")
  private var committing = LateStatement("COMMIT")
  private var rollingBack = LateStatement("ROLLBACK")
  var finding = LateStatement("SELECT {row} FROM entries WHERE key = ?1")
  var findingByID = LateStatement(
    """
    SELECT {row}, key FROM entries WHERE slot = ?1
    UNION ALL SELECT {row}, key FROM entries WHERE id = ?1 AND id > slot
    """)
  var inserting = LateStatement(
    """
    INSERT INTO entries (slot, id, key, version, generation, created, accessed, uses, expires,
      idle, cost, size, charge, total_count, total_bytes, codec, checksum, file, extended, value)
    VALUES (?1, ?18, ?2, ?3, ?4, ?5, ?5, 0, ?6, ?7, ?8, ?9, ?10, ?16, ?17, ?15, ?11, ?12, ?13, ?14)
    """)
  /// With the parameters of `inserting`.
  var rewriting = LateStatement(
    """
    UPDATE entries SET version = ?3, created = ?5, accessed = ?5, uses = 0, expires = ?6,
      idle = ?7, cost = ?8, size = ?9, charge = ?10, total_count = ?16, total_bytes = ?17,
      codec = ?15, checksum = ?11, extended = ?13, value = ?14, id = ?18
    WHERE slot = ?1
    """)
  var tagging = LateStatement("INSERT OR IGNORE INTO tags VALUES (?1, ?2)")
  var untagging = LateStatement(
    """
    DELETE FROM tags
    WHERE tag = (SELECT substr(extended, -(codec >> 32)) FROM entries WHERE slot = ?1)
      AND key = (SELECT key FROM entries WHERE slot = ?1)
    """)
  var deleting = LateStatement("DELETE FROM entries WHERE slot = ?1")
  var deletingByKey: DeletionByKey
  var touching = LateStatement(
    """
    UPDATE entries SET slot = ?2, created = ?3, accessed = ?4, expires = ?5, idle = ?6,
      total_count = ?7, total_bytes = ?8
    WHERE slot = ?1
    """)
  /// As `touching`, for a row that keeps its slot.
  var touchingInPlace = LateStatement(
    """
    UPDATE entries SET id = ?2, created = ?3, accessed = ?4, expires = ?5, idle = ?6,
      total_count = ?7, total_bytes = ?8
    WHERE slot = ?1
    """)
  var redating = LateStatement(
    "UPDATE entries SET created = ?2, accessed = ?3, expires = ?4 WHERE slot = ?1")
  var accessing = LateStatement(
    "UPDATE entries SET accessed = max(accessed, ?2), uses = uses + ?3 WHERE key = ?1")
  private var updatingMeta = LateStatement(
    """
    UPDATE meta SET generation = ?1, next_version = ?2, count = ?3, bytes = ?4, dead = ?5,
      idle = ?6, last_time = ?7, clean = ?8, newest = ?9, durability = ?10 WHERE id = 1
    """)
  /// Both terms of the index's WHERE must stand here for SQLite to use it.
  var ending = LateStatement(
    """
    SELECT max(slot, ifnull(id, 0)) FROM entries
    WHERE expires > 0 AND expires < 9223372036854775807 AND expires <= ?1
    ORDER BY expires LIMIT ?2
    """)
  var walking = RowScan()
  var walkingBack = RowScan(isDescending: true)

  private(set) var durability: Durability
  /// True if SQLite syncs, as durability `power` and `sync` want it.
  private var syncs: Bool { durability != .process }
  /// As the last commit has left it. The row on disk may have older sums (Sums).
  var meta = Meta()
  /// As the manifest had them when it was opened; nil: none have been set yet.
  private(set) var limits: TierLimits?
  /// See `reload`.
  var sums = LateStatement(Sums.query)
  /// As the manifest was when it was opened, or as `commitOpening` has set it.
  private(set) var boot = Boot()
  /// The id of the newest row. An id is not used twice while the manifest is open.
  var lastID: Int64 = 0
  /// The column `newest` of the meta row, or more: the sums may be the meta row's if no row has a
  /// greater id (Sums).
  var newestOfMeta: Int64 = 0
  /// The log in bytes: those written since it last began anew, and the size of the file.
  private struct Log {
    var used = 0
    var size = 0
  }
  /// Where the hook of the connection finds it.
  private let logState: UnsafeMutablePointer<Log>
  /// True if a checkpoint has brought clean = 0 to the disk. See `checkpoint`.
  private(set) var hasSynced = false
  /// True if pages of the database may not be on the disk, and in no log either: a checkpoint has
  /// not been synced, or the manifest is new.
  private(set) var isUnsynced = false

  /// Opens the manifest that is in a directory.
  ///
  /// A damaged file fails here and not in `init`: where the initialiser of a class throws,
  /// Embedded Swift (6.3) does not free the instance.
  static func open(
    _ directory: Directory, _ durability: Durability
  ) throws(Failure) -> Manifest {
    let connection = try directory.withPath(of: ManifestFile.name) {
      (path) throws(Failure) -> Connection in try Connection(path, .write)
    }
    // Should it turn out damaged, closing it must not change it.
    _ = hutch_sqlite_switch(connection.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.waitsOut(true)
    _ = try connection.integer("SELECT count(*) FROM sqlite_schema")
    try connection.check(isIn: directory)
    // All that the statements name.
    try connection.prepare(
      """
      SELECT e.slot, e.id, e.key, e.version, e.generation, e.created, e.accessed, e.uses,
        e.expires, e.idle, e.cost, e.size, e.charge, e.total_count, e.total_bytes, e.codec,
        e.checksum, e.file, e.extended, e.value, storage, m.generation, next_version, count,
        bytes, dead, newest, m.idle, boot_id, boot_offset, last_time, clean, durability, limit_cost,
        limit_count, limit_entry, time_to_live, time_to_idle, min_free, has_limits, t.tag, t.key
      FROM entries e, meta m, tags t
      """).end()
    let log = Files.status(Files.path(ManifestFile.log), at: directory.descriptor)
    // Debian's SQLite overwrites deleted bytes with zeroes: twice the log for nothing here. Another
    // program may have changed the mode of the journal, under which readers stop writers.
    try connection.run(
      """
      PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA secure_delete = OFF;
      PRAGMA temp_store = MEMORY; PRAGMA cell_size_check = ON;
      """)
    if durability != .process { try connection.run(Manifest.synchronous(durability)) }
    let deleting = try DeletionByKey(connection)
    let size = log?.size ?? 0
    let manifest = Manifest(
      connection, durability, deleting, try Allocation.one(Log.self),
      Log(used: size, size: size))
    // Without memory a transaction must end all the same.
    _ = try manifest.rollingBack.of(manifest.connection)
    try manifest.load()
    manifest.connection.waitsOut(false)
    _ = hutch_sqlite_switch(manifest.connection.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 0)
    return manifest
  }

  private static func synchronous(_ durability: Durability) -> StaticString {
    switch durability {
    case .process: "PRAGMA synchronous = OFF"
    case .power: "PRAGMA synchronous = NORMAL"
    case .sync: "PRAGMA synchronous = FULL"
    }
  }

  /// Outside a transaction.
  func raise(to stronger: Durability) throws(Failure) {
    try connection.run(Manifest.synchronous(stronger))
    durability = stronger
  }

  private init(
    _ opened: consuming Connection, _ durability: Durability,
    _ deletingByKey: consuming DeletionByKey, _ logState: UnsafeMutablePointer<Log>, _ log: Log
  ) {
    connection = opened
    self.durability = durability
    self.deletingByKey = deletingByKey
    self.logState = logState
    logState.initialize(to: log)
    sqlite3_wal_autocheckpoint(connection.handle, 0)
    _ = sqlite3_wal_hook(
      connection.handle,
      { state, _, _, pages in
        let log = state!.assumingMemoryBound(to: Log.self)
        // A frame is a page and 24 bytes, behind a head of 32.
        log.pointee.used = 32 + Int(pages) * (4096 + 24)
        log.pointee.size = max(log.pointee.size, log.pointee.used)
        return SQLITE_OK
      }, logState)
  }

  /// The end will move nothing from the log into the database.
  func leaveAsIs() {
    _ = hutch_sqlite_switch(connection.handle, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
  }

  deinit {
    sqlite3_wal_hook(connection.handle, nil, nil)
    free(logState)
  }

  private func load() throws(Failure) {
    guard try connection.integer("PRAGMA user_version") == Int64(ManifestFile.format) else {
      // The file's head has this format, the log does not: a newer library was killed.
      throw Failure(.newerFormat, "the directory was written by a newer version")
    }
    let statement = try sums.of(connection)
    defer { statement.reset() }
    let first = Sums.more + 8
    guard try statement.step(), let number = UInt32(exactly: statement.integer(first)),
      let storage = StorageKind(rawValue: number), storage != .unspecified, storage != .log
    else {
      throw Failure(.corrupt, "the manifest has no meta row")
    }
    let found = Sums(statement)
    meta.use(found, statement)
    meta.storage = storage
    let id = try statement.bytes(first + 2)
    if id.count == 16 {
      boot.id = (
        id.loadUnaligned(fromByteOffset: 0, as: UInt64.self),
        id.loadUnaligned(fromByteOffset: 8, as: UInt64.self)
      )
    }
    boot.offset = statement.integer(first + 3)
    // An opening leases versions from `nextVersion` on.
    guard meta.isSound, meta.nextVersion < UInt64(Meta.largest / 2) else {
      throw Failure(.corrupt, "the manifest's meta row is damaged")
    }
    if statement.integer(first + 5) != 0 { limits = Manifest.limits(statement) }
    isUnsynced = limits == nil
    noteOthers()
    lastID = found.lastID
    newestOfMeta = lastID
    guard lastID >= 0, lastID < Meta.largest else {
      throw Failure(.corrupt, "the manifest has an impossible row")
    }
  }

  /// Members that are there, or were killed, may have made checkpoints that are not synced.
  func noteOthers() { if !meta.isClean && meta.durability == .process { isUnsynced = true } }

  /// The transaction of an opening that finds the directory other than a clean end in this boot
  /// has left it: the directory is in use from here on.
  func commitOpening(_ meta: Meta, _ boot: Boot, _ limits: TierLimits) throws(Failure) {
    try begin()
    do {
      let statement = try connection.prepare(
        "UPDATE meta SET boot_id = ?1, boot_offset = ?2")
      defer { statement.end() }
      let id = boot.id
      try withUnsafeBytes(of: id) { (bytes) throws(Failure) in
        try statement.bind(1, bytes)
        statement.bind(2, boot.offset)
        try statement.run()
      }
      try write(limits)
      try commit(meta)
    } catch {
      rollback()
      throw error
    }
    self.boot = boot
  }

  /// From a row of `Sums.query`. An age below zero, which only damage makes, is none.
  static func limits(_ row: Statement) -> TierLimits {
    var limits = TierLimits(TierLimits.Words { row.bits(Sums.more + 2 + Int32($0)) })
    limits.ages.timeToLive = max(0, limits.ages.timeToLive)
    limits.ages.timeToIdle = max(0, limits.ages.timeToIdle)
    return limits
  }

  /// The limits are the directory's: they hold for each opening that does not name others.
  func write(_ limits: TierLimits) throws(Failure) {
    let statement = try connection.prepare(
      """
      UPDATE meta SET limit_cost = ?1, limit_count = ?2, limit_entry = ?3, time_to_live = ?4,
        time_to_idle = ?5, min_free = ?6, has_limits = 1
      """)
    defer { statement.end() }
    let words = limits.words
    for i in words.indices { statement.bind(Int32(i) + 1, bits: words[i]) }
    try statement.run()
  }

  // MARK: transactions

  /// The caller sees to it that no other connection writes. But a reader that finds the log's index
  /// half written takes SQLite's write lock for a moment to read it again (walIndexReadHdr), so
  /// 'busy' is no answer at once.
  func begin() throws(Failure) {
    try Connection.waitOut { () throws(Failure) in try beginning.of(connection).run() }
  }

  /// Commits, with the meta row as it is to be from here on. `sparingRow`: the newest row has what
  /// has changed in it.
  func commit(_ changed: Meta, sparingRow: Bool = false) throws(Failure) {
    if !sparingRow { try write(changed) }
    let log = ManifestLogBuffer.begin(connection)
    defer { log.end() }
    try committing.of(connection).run()
    meta = changed
  }

  private func write(_ changed: Meta) throws(Failure) {
    let updatingMeta = try self.updatingMeta.of(connection)
    updatingMeta.bind(1, changed.generation)
    updatingMeta.bind(2, bits: changed.nextVersion)
    updatingMeta.bind(3, changed.count)
    updatingMeta.bind(4, changed.bytes)
    updatingMeta.bind(5, changed.dead)
    updatingMeta.bind(6, changed.mayIdle ? 1 : 0)
    updatingMeta.bind(7, changed.lastTime)
    updatingMeta.bind(8, changed.isClean ? (changed.owesSweep ? 2 : 1) : 0)
    updatingMeta.bind(9, lastID)
    updatingMeta.bind(10, Int64(changed.durability.rawValue))
    newestOfMeta = lastID
    try updatingMeta.run()
  }

  /// Some errors have ended the transaction already.
  func rollback() {
    walking.noteRollback()
    guard connection.isInTransaction else { return }
    _ = try? rollingBack.of(connection).run()
  }

  var isInTransaction: Bool { connection.isInTransaction }

  var hasMoved: Bool { connection.hasMoved }

  // MARK: file

  /// How large the log is on disk.
  var log: Int { logState.pointee.size }

  /// How much of it has been written since it last began anew.
  var logUsed: Int { logState.pointee.used }

  /// Others have written it too.
  func noteLog(used: Int, size: Int) { logState.pointee = Log(used: used, size: size) }

  enum Checkpoint {
    /// The log begins anew with the next commit; its file keeps its blocks, which are cheaper
    /// to write than new ones.
    case restarting
    /// The log's file is cut to nothing.
    case truncating
  }

  /// Moves the pages in the log into the database. False: a reader was in the way; some pages may
  /// have been moved.
  ///
  /// Durability `process` syncs nothing as it goes, so after a loss of power a manifest that
  /// was not closed has to be checked, and clean = 0, which says so, must be on the
  /// disk before the first page of the database is overwritten: the first checkpoint with
  /// clean = 0 is synced. So is each with clean = 1, which must not be there before all else is:
  /// `syncPages` comes before the commit that says so.
  func checkpoint(_ kind: Checkpoint, past readers: Readers) throws(Failure) -> Bool {
    let syncs = !self.syncs && (meta.isClean || !hasSynced)
    if syncs {
      try connection.run("PRAGMA synchronous = NORMAL")
    } else if !self.syncs {
      isUnsynced = true
    }
    defer { if syncs { _ = try? connection.run("PRAGMA synchronous = OFF") } }
    let mode = kind == .restarting ? SQLITE_CHECKPOINT_PASSIVE : SQLITE_CHECKPOINT_TRUNCATE
    var tries = 0
    while true {
      var all: Int32 = 0
      var moved: Int32 = 0
      readers.endKept()
      hutch_set_errno(0)
      let code = sqlite3_wal_checkpoint_v2(connection.handle, nil, mode, &all, &moved)
      if code == SQLITE_OK && all == moved {
        // A read that began meanwhile reads the log; one that begins from here on reads the
        // database, and does not keep the log from beginning anew.
        readers.endKept()
        hasSynced = !meta.isClean
        logState.pointee.used = 0
        if kind == .truncating { logState.pointee.size = 0 }
        return true
      }
      guard code == SQLITE_OK || code & 0xFF == SQLITE_BUSY else {
        throw Connection.failure(code, "cannot move the log into the manifest")
      }
      // Readers are within a statement for microseconds; a few turns let them out.
      tries += 1
      if tries == 20 { return false }
      sched_yield()
    }
  }
}
