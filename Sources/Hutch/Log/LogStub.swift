import CSystem

/// The file `manifest.sqlite` of a directory that has a log store: the first 100 bytes of a SQLite
/// database with the library's application_id and a user_version that no library has. A library
/// that knows only manifests looks there first, and answers that a newer version wrote the
/// directory; it is the first file that a log store makes beside the lock.
enum LogStub {
  static let name: StaticString = "manifest.sqlite"
  /// "HUTC"
  private static let application: UInt32 = 0x4855_5443
  /// A number above every format that a manifest will have.
  private static let format: UInt32 = 1_000_001
  private static let size = 512
  static let new = LeftOvers.newStub

  enum Kind {
    case absent
    case stub
    /// What is there is no database, or nothing is there, but a log's index is: the directory is a
    /// log's.
    case damaged
    /// A manifest of the SQLite store, or another program's.
    case other
  }

  static func look(_ directory: Directory) throws(Failure) -> Kind {
    var wanted = LogStub.head
    var found = InlineArray<64, UInt64>(repeating: 0)
    return try withUnsafeMutableBytes(of: &found) { (found) throws(Failure) -> Kind in
      switch try directory.head(of: name, into: found, failing: "cannot read the manifest") {
      case .absent: return try hasIndex(directory) ? .damaged : .absent
      case .notOurs: return .other
      case .read(let count):
        func hasSame(_ size: Int) -> Bool {
          count >= size
            && withUnsafeBytes(of: &wanted) {
              memcmp($0.baseAddress!, found.baseAddress!, size) == 0
            }
        }
        if hasSame(size) { return .stub }
        // The magic of a database, and not the stub's own numbers behind it.
        let isDatabase = hasSame(16) && count >= databaseHead && !hasSame(databaseHead)
        if isDatabase { return .other }
        return try hasIndex(directory) ? .damaged : .other
      }
    }
  }

  /// The bytes of a database by which a manifest is known.
  private static let databaseHead = 100

  private static func hasIndex(_ directory: Directory) throws(Failure) -> Bool {
    var magic: UInt64 = 0
    let found = try withUnsafeMutableBytes(of: &magic) { (bytes) throws(Failure) in
      try directory.head(of: LogStore.indexName, into: bytes, failing: "cannot read the index")
    }
    if case .read(8) = found { return magic == LogFormat.magic }
    return false
  }

  /// True if a directory has a log store, or the beginning of one.
  static func isIn(_ directory: Directory) throws(Failure) -> Bool {
    switch try look(directory) {
    case .stub, .damaged: true
    case .absent, .other: false
    }
  }

  private static var head: InlineArray<64, UInt64> {
    var head = InlineArray<64, UInt64>(repeating: 0)
    withUnsafeMutableBytes(of: &head) { bytes in
      let magic: StaticString = "SQLite format 3"  // and its NUL
      memcpy(bytes.baseAddress!, magic.utf8Start, 16)
      // The page size, and fields that every database since SQLite 3.0 has.
      bytes.storeBytes(of: UInt16(512).bigEndian, toByteOffset: 16, as: UInt16.self)
      bytes.storeBytes(of: UInt32(0x0101_0040).bigEndian, toByteOffset: 18, as: UInt32.self)
      bytes.storeBytes(of: format.bigEndian, toByteOffset: 60, as: UInt32.self)
      bytes.storeBytes(of: application.bigEndian, toByteOffset: 68, as: UInt32.self)
      let words: StaticString = "This directory is a Hutch cache's; its entries are in hutch-log.\n"
      memcpy(bytes.baseAddress! + 128, words.utf8Start, words.utf8CodeUnitCount)
    }
    return head
  }

  /// Makes the stub if there is none; what has taken its place is set aside, under the name of a
  /// damaged manifest. Fails if the directory has a manifest. No other process makes one meanwhile.
  static func make(in directory: Directory) throws(Failure) {
    switch try look(directory) {
    case .stub: return
    case .other:
      throw Failure(.invalidArgument, "the directory has another storage kind")
    case .damaged:
      // The newest alone is kept.
      let aside = ContentName(number: 0, suffix: FileSuffix(Files.path(".damaged"))!)
      guard
        aside.withPointer({ Files.rename(Files.path(name), to: $0, at: directory.descriptor) })
          || hutch_errno() == ENOENT
      else { throw .system("cannot set the file manifest.sqlite aside") }
    case .absent: break
    }
    guard
      let number = Files.openBeneath(
        Files.path(new), at: directory.descriptor, O_RDWR | O_CREAT | O_TRUNC | O_NONBLOCK)
    else { throw .opening("cannot make the file manifest.sqlite") }
    let file = Descriptor(owning: number)
    var head = LogStub.head
    guard withUnsafeBytes(of: &head, { Files.write($0, to: file.number) }),
      Files.sync(file.number),
      Files.rename(Files.path(new), to: Files.path(name), at: directory.descriptor)
    else { throw .system("cannot make the file manifest.sqlite") }
  }
}
