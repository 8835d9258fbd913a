import CSQLite
import CSystem

/// `manifest.sqlite` as a file: its kind before SQLite opens it, how it is made, how it is set
/// aside. Nothing here runs while a connection of this process has it open.
enum ManifestFile {
  static let name: StaticString = "manifest.sqlite"
  /// SQLite's own files beside it: the write-ahead log, and the index of that.
  static let log: StaticString = "manifest.sqlite-wal"
  static let shared: StaticString = "manifest.sqlite-shm"
  /// The ends of the names of the library's other files beside it (`ContentName`): of a manifest
  /// that is being made, and of one that has been set aside. SQLite puts `-wal` behind either.
  private static let new: StaticString = ".new"
  private static let damaged: StaticString = ".damaged"

  /// "HUTC"
  static let applicationID: UInt32 = 0x4855_5443
  /// The format of the directory's layout and the schema: PRAGMA user_version.
  static let format: UInt32 = 7

  enum Kind {
    case absent
    case ours
    /// Not a SQLite database, or one whose head is damaged.
    case unreadable
    /// Another program's database.
    case foreign
    case newer
  }

  /// Looks at the first 100 bytes, where SQLite's file format has application_id (at 68) and
  /// user_version (at 60), and touches nothing. A manifest has both from its first moment
  /// in the file itself, not in the log.
  static func look(_ directory: Directory) throws(Failure) -> Kind {
    var head = InlineArray<13, UInt64>(repeating: 0)
    return try withUnsafeMutableBytes(of: &head) { (bytes) throws(Failure) -> Kind in
      let first = UnsafeMutableRawBufferPointer(rebasing: bytes[0..<100])
      let count: Int
      switch try directory.head(of: name, into: first, failing: "cannot read the manifest") {
      case .absent: return .absent
      case .notOurs: return .foreign
      case .read(let read): count = read
      }
      let magic: StaticString = "SQLite format 3"  // and its NUL
      // SQLite does not write a file whose number at 18 is above 2.
      guard count == 100, memcmp(bytes.baseAddress!, magic.utf8Start, 16) == 0, bytes[18] <= 2
      else { return .unreadable }
      func number(at offset: Int) -> UInt32 {
        bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self).bigEndian
      }
      if number(at: 68) != applicationID { return .foreign }
      let version = number(at: 60)
      if version > format { return .newer }
      return version == format ? .ours : .unreadable
    }
  }

  /// Makes an empty manifest. It is made whole under another name, then renamed: there is no
  /// half-made one.
  static func create(
    _ storage: StorageKind, _ durability: Durability, in directory: Directory
  ) throws(Failure) {
    remove(new, in: directory)
    let at = directory.descriptor
    let made = try ContentName.random(FileSuffix(Files.path(new))!)
    try made.withText { (name) throws(Failure) in
      let path = try directory.path(of: name)
      defer { free(path) }
      let connection = try Connection(path, .create)
      // No journal, nothing synced: a half-made file is never looked at. These two first,
      // since the others write.
      try connection.run(
        """
        PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA page_size = 4096;
        PRAGMA auto_vacuum = INCREMENTAL; PRAGMA encoding = 'UTF-8';
        PRAGMA application_id = 0x48555443;
        """)
      // SQLite gives the log and the shared memory the same mode.
      _ = made.withPointer { fchmodat(at, $0, Files.fileMode, 0) }
      try connection.run("BEGIN")
      try connection.run(schema)
      let statement = try connection.prepare(
        """
        INSERT INTO meta VALUES (1, ?1, 1, 1, 0, 0, 0, 0, 0, x'', 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0)
        """)
      defer { statement.end() }
      statement.bind(1, Int64(storage.rawValue))
      try statement.run()
      try connection.run("PRAGMA user_version = 7")
      try connection.run("COMMIT")
      let mode = try connection.prepare("PRAGMA journal_mode = WAL")
      defer { mode.end() }
      guard try mode.step(), try mode.bytes(0).elementsEqual([0x77, 0x61, 0x6C]) else {
        throw Failure(.badDirectory, "the manifest cannot have a write-ahead log here")
      }
    }
    let isSynced = durability != .process
    if isSynced { try made.withPointer { sync($0, in: directory) }.get() }
    // The rest of an older manifest's log must not be taken for this manifest's.
    _ = Files.unlink(Files.path(log), at: at)
    _ = Files.unlink(Files.path(shared), at: at)
    guard made.withPointer({ Files.rename($0, to: Files.path(name), at: at) }) else {
      throw .system("cannot rename the new manifest", otherwise: .badDirectory)
    }
    if isSynced { try sync(Files.path("."), in: directory).get() }
  }

  private static func sync(_ name: Files.Path, in directory: Directory) -> Result<Void, Failure> {
    guard let number = Files.openBeneath(name, at: directory.descriptor, O_RDONLY) else {
      return .failure(.system("cannot open the manifest", otherwise: .badDirectory))
    }
    let file = Descriptor(owning: number)
    return Files.sync(file.number)
      ? .success(()) : .failure(.system("cannot sync the manifest"))
  }

  /// Whether a name of the library ends so, with or without SQLite's own ending.
  private static func has(_ name: ContentName, _ suffix: StaticString) -> Bool {
    let count = suffix.utf8CodeUnitCount
    return name.suffix.withBytes { end in
      end.count >= count && memcmp(end.baseAddress!, suffix.utf8Start, count) == 0
        && (end.count == count || end[count] == 0x2D)
    }
  }

  /// Removes the library's files whose names end so.
  private static func remove(_ suffix: StaticString, in directory: Directory) {
    Files.unlinkAll(in: Files.path("."), at: directory.descriptor) { name in
      ContentName(name).map { has($0, suffix) } ?? false
    }
  }

  /// Renames a damaged manifest and its log to `hutch-<16 digits>.damaged` and `...-wal`, the
  /// names under which SQLite's tools still read them together. The newest one alone is kept, so
  /// that damaged manifests do not fill the disk.
  static func setAside(in directory: Directory) throws(Failure) {
    let at = directory.descriptor
    remove(damaged, in: directory)
    let whole = try ContentName.random(FileSuffix(Files.path(damaged))!)
    let aside = ContentName(number: whole.number, suffix: FileSuffix(Files.path(".damaged-wal"))!)
    // The manifest first: killed here, the next opening finds none, and `create` does away with
    // the log. The other way round it would find a manifest that lacks its newest writes, and
    // might take it for a whole one.
    guard whole.withPointer({ Files.rename(Files.path(name), to: $0, at: at) }) else {
      throw .system("cannot set the manifest aside", otherwise: .badDirectory)
    }
    _ = aside.withPointer { Files.rename(Files.path(log), to: $0, at: at) }
    _ = Files.unlink(Files.path(shared), at: at)
  }

  /// How long a manifest that was set aside stays, in nanoseconds: a week.
  private static let damagedFor: Int64 = 7 * 86_400_000_000_000

  /// Removes one that was set aside longer ago than that, by the system's clock.
  static func removeOldDamaged(
    in directory: Directory, at now: Int64 = Clock.read(CLOCK_REALTIME)
  ) {
    var isOld = false
    Files.list(Files.path("."), at: directory.descriptor) { name, folder in
      guard let own = ContentName(name), has(own, damaged),
        let status = Files.status(name, at: folder)
      else { return true }
      // The rename has set it.
      isOld = Record.difference(now, status.lastChange) > damagedFor
      return !isOld
    }
    if isOld { remove(damaged, in: directory) }
  }

  /// The head of DiskTier says what the columns mean.
  private static let schema: StaticString = """
    CREATE TABLE meta (
      id INTEGER PRIMARY KEY CHECK (id = 1),
      storage INTEGER NOT NULL,
      generation INTEGER NOT NULL,
      next_version INTEGER NOT NULL,
      count INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      dead INTEGER NOT NULL,
      newest INTEGER NOT NULL,
      idle INTEGER NOT NULL,
      boot_id BLOB NOT NULL,
      boot_offset INTEGER NOT NULL,
      last_time INTEGER NOT NULL,
      clean INTEGER NOT NULL,
      durability INTEGER NOT NULL,
      limit_cost INTEGER NOT NULL,
      limit_count INTEGER NOT NULL,
      limit_entry INTEGER NOT NULL,
      time_to_live INTEGER NOT NULL,
      time_to_idle INTEGER NOT NULL,
      min_free INTEGER NOT NULL,
      has_limits INTEGER NOT NULL
    );
    CREATE TABLE entries (
      slot INTEGER PRIMARY KEY,
      id INTEGER,
      key BLOB NOT NULL UNIQUE,
      version INTEGER NOT NULL,
      generation INTEGER NOT NULL,
      created INTEGER NOT NULL,
      accessed INTEGER NOT NULL,
      uses INTEGER NOT NULL,
      expires INTEGER NOT NULL,
      idle INTEGER NOT NULL,
      cost INTEGER NOT NULL,
      size INTEGER NOT NULL,
      charge INTEGER NOT NULL,
      total_count INTEGER NOT NULL,
      total_bytes INTEGER NOT NULL,
      codec INTEGER NOT NULL,
      checksum INTEGER NOT NULL,
      file TEXT,
      extended BLOB,
      value BLOB
    );
    CREATE INDEX entries_expires ON entries (expires)
      WHERE expires > 0 AND expires < 9223372036854775807;
    CREATE INDEX entries_id ON entries (id) WHERE id > slot;
    CREATE TABLE tags (
      tag BLOB NOT NULL,
      key BLOB NOT NULL,
      PRIMARY KEY (tag, key)
    ) WITHOUT ROWID;
    """
}
