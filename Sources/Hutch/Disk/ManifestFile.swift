import CSQLite
import CSystem

/// `manifest.sqlite` as a file: what it is before SQLite opens it, how it is made, how it
/// is set aside. Nothing here runs while a connection of this process has it open.
enum ManifestFile {
  static let name: StaticString = "manifest.sqlite"
  /// A manifest is made whole under this name, then renamed: there is no half-made one.
  private static let newName: StaticString = "manifest.new"

  /// "HUTC"
  static let applicationID: UInt32 = 0x4855_5443
  /// Of the directory's layout and the schema: PRAGMA user_version.
  static let format: UInt32 = 2

  enum Kind {
    case absent
    case ours
    /// Not a SQLite database, or one whose head is damaged.
    case unreadable
    /// Somebody else's database.
    case foreign
    case newer
  }

  /// Looks at the first 100 bytes, where SQLite's file format has application_id (at 68) and
  /// user_version (at 60), and touches nothing. Our manifests have both from their first
  /// moment in the file itself, not in the log.
  static func look(_ directory: Directory) throws(Failure) -> Kind {
    guard
      let number = Files.open(
        Files.path(name), at: directory.descriptor, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    else {
      switch hutch_errno() {
      case ENOENT: return .absent
      // A symbolic link is nothing that we made.
      case ELOOP: return .foreign
      default: throw .system("cannot open the manifest", otherwise: .badDirectory)
      }
    }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: number), hutch_is_regular(status.st_mode) != 0 else {
      return .foreign
    }
    var head = (
      UInt64(0), UInt64(0), UInt64(0), UInt64(0), UInt64(0), UInt64(0), UInt64(0), UInt64(0),
      UInt64(0), UInt64(0), UInt64(0), UInt64(0), UInt64(0)
    )
    return try withUnsafeMutableBytes(of: &head) { (bytes) throws(Failure) -> Kind in
      guard
        let count = Files.read(
          file.number, into: UnsafeMutableRawBufferPointer(rebasing: bytes[0..<100]))
      else { throw .system("cannot read the manifest") }
      let magic: StaticString = "SQLite format 3"  // and its NUL
      guard count == 100, memcmp(bytes.baseAddress!, magic.utf8Start, 16) == 0 else {
        return .unreadable
      }
      func number(at offset: Int) -> UInt32 {
        bytes.loadUnaligned(fromByteOffset: offset, as: UInt32.self).bigEndian
      }
      if number(at: 68) != applicationID { return .foreign }
      let version = number(at: 60)
      if version > format { return .newer }
      return version == format ? .ours : .unreadable
    }
  }

  /// Makes an empty manifest.
  static func create(
    _ storage: StorageKind, _ durability: Durability, in directory: Directory
  ) throws(Failure) {
    removeUnfinished(in: directory)
    let secret = (try Entropy.number(), try Entropy.number())
    try directory.withPath(of: newName) { (path) throws(Failure) in
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
      _ = fchmodat(directory.descriptor, Files.path(newName), 0o600, 0)
      try connection.run("BEGIN")
      try connection.run(schema)
      let statement = try connection.prepare(
        """
        INSERT INTO meta VALUES (1, 2, ?1, 1, 1, 0, 0, 0, 0, x'', 0, 0, 1, 1, 0, 0, 0, 0, 0, ?2)
        """)
      statement.bind(1, Int64(storage.rawValue))
      try withUnsafeBytes(of: secret) { (bytes) throws(Failure) in
        statement.bind(2, bytes)
        try statement.run()
      }
      try connection.run("PRAGMA user_version = 2")
      try connection.run("COMMIT")
      try connection.run("PRAGMA journal_mode = WAL")
    }
    let isSynced = durability != .process
    if isSynced { try sync(newName, in: directory) }
    // What is left of an older one's log must not be taken for this one's.
    _ = Files.unlink(Files.path("manifest.sqlite-wal"), at: directory.descriptor)
    _ = Files.unlink(Files.path("manifest.sqlite-shm"), at: directory.descriptor)
    guard Files.rename(Files.path(newName), to: Files.path(name), at: directory.descriptor) else {
      throw .system("cannot name the manifest", otherwise: .badDirectory)
    }
    if isSynced { try sync(".", in: directory) }
  }

  private static func sync(_ name: StaticString, in directory: Directory) throws(Failure) {
    guard let number = Files.open(Files.path(name), at: directory.descriptor, O_RDONLY) else {
      throw .system("cannot open the manifest", otherwise: .badDirectory)
    }
    let file = Descriptor(owning: number)
    guard Files.sync(file.number) else { throw .system("cannot sync the manifest") }
  }

  private static func removeUnfinished(in directory: Directory) {
    _ = Files.unlink(Files.path("manifest.new"), at: directory.descriptor)
    _ = Files.unlink(Files.path("manifest.new-wal"), at: directory.descriptor)
    _ = Files.unlink(Files.path("manifest.new-shm"), at: directory.descriptor)
    _ = Files.unlink(Files.path("manifest.new-journal"), at: directory.descriptor)
  }

  /// Renames a damaged manifest and its log to `damaged-<16 digits>` and `...-wal`, the names
  /// under which SQLite's tools still read them together. One is kept, the newest: what
  /// nobody looks at must not fill the disk.
  static func setAside(in directory: Directory) throws(Failure) {
    let at = directory.descriptor
    var goesOn = true
    while goesOn {
      goesOn = false
      Files.list(Files.path("."), at: at) { name in
        guard strncmp(name, Files.path("damaged-"), 8) == 0 else { return true }
        // A directory changes under its reader's feet: begin anew after each.
        goesOn = Files.unlink(name, at: at)
        return !goesOn
      }
    }
    let (whole, log) = damagedNames(try ContentName.random())
    // The manifest first: killed here, the next opening finds none, and `create` does away with
    // the log. The other way round it would find a manifest that lacks its newest writes, and
    // might take it for a whole one.
    guard whole.withPointer({ Files.rename(Files.path(name), to: $0, at: at) }) else {
      throw .system("cannot set the manifest aside", otherwise: .badDirectory)
    }
    _ = log.withPointer { Files.rename(Files.path("manifest.sqlite-wal"), to: $0, at: at) }
    _ = Files.unlink(Files.path("manifest.sqlite-shm"), at: at)
  }

  private static func damagedNames(_ suffix: ContentName) -> (ContentPath, ContentPath) {
    (ContentPath.damaged(suffix, isLog: false), ContentPath.damaged(suffix, isLog: true))
  }

  /// See DiskTier for what the columns mean.
  private static let schema: StaticString = """
    CREATE TABLE meta (
      id INTEGER PRIMARY KEY CHECK (id = 1),
      format INTEGER NOT NULL,
      storage INTEGER NOT NULL,
      generation INTEGER NOT NULL,
      next_version INTEGER NOT NULL,
      count INTEGER NOT NULL,
      bytes INTEGER NOT NULL,
      dead INTEGER NOT NULL,
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
      secret BLOB NOT NULL
    );
    CREATE TABLE entries (
      row INTEGER PRIMARY KEY,
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
      codec INTEGER NOT NULL,
      checksum INTEGER NOT NULL,
      file TEXT,
      extended BLOB,
      value BLOB
    );
    CREATE INDEX entries_expires ON entries (expires)
      WHERE expires > 0 AND expires < 9223372036854775807;
    CREATE INDEX entries_id ON entries (id) WHERE id IS NOT NULL;
    """
}

extension ContentPath {
  fileprivate static func damaged(_ suffix: ContentName, isLog: Bool) -> ContentPath {
    ContentPath(prefix: "damaged-", suffix, isLog ? "-wal" : "")
  }
}
