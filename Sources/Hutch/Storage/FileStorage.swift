import CSystem

/// The abilities of a store that keeps large values in files of their own (see `Storage.files`):
/// values that come in pieces or as files, and values that the host reads as files.
protocol FileStorage: AnyObject {
  /// True if the store would keep a value of this size in a file, unchanged.
  func keepsInFile(_ size: Int) -> Bool

  /// True if the store's limits allow an entry of this size. `extended`: with the tag.
  func takes(key: Int, size: Int, extended: Int, tag: Int) -> Bool

  /// Where a file is made now. Fails if the store is out of service.
  func filePlace() throws(Failure) -> FilePlace

  /// The parts of a file that must be on the disk before its entry is committed.
  var syncing: ContentFiles.Syncing { get }

  /// Frees about so many bytes of a file system that is full. The caller holds no lock.
  func makeRoom(_ bytes: Int)

  /// Calls `body` with the absolute path, without NUL, of the file of the newest entry's value,
  /// submitted writes included; with nil if the value has no file of its own. Not an access. False:
  /// there is no entry, or it has expired.
  func path(
    of key: Bytes, _ hash: UInt64, at moment: Moment, _ body: (Bytes?) throws(Failure) -> Void
  ) throws(Failure) -> Bool

  /// A descriptor that reads the value's file and stays valid whatever becomes of the entry. Nil:
  /// the value has no file of its own, or there is no entry. An access.
  func open(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Int32?

  /// From here to `release`, which the caller owes, no file moves or is deleted.
  func hold()
  func release()
}

/// Where a store makes its files.
struct FilePlace {
  let directory: Directory
  let inFlight: FilesInFlight
}

/// How the files of every store are made.
extension PendingFile {
  /// Makes an empty file, which `append` fills and `giveName` ends. The caller passes it on with a
  /// write; a file whose last reference goes before a write has committed it is deleted.
  @inline(never)
  static func begin(
    _ suffix: FileSuffix, in store: any FileStorage
  ) throws(Failure) -> PendingFile {
    let place = try store.filePlace()
    // The file system may have no room for the file's folder, and then for the file.
    var tries = 0
    while true {
      do throws(Failure) {
        return try PendingFile.create(suffix, in: place.directory, place.inFlight)
      } catch {
        tries += 1
        guard error.status == .noSpace, tries < 3 else { throw error }
      }
      store.makeRoom(1)
    }
  }

  @inline(never)
  func append(_ bytes: Bytes, in store: any FileStorage) throws(Failure) {
    try append(bytes) { store.makeRoom($0) }
  }

  @inline(never)
  func giveName(in store: any FileStorage) throws(Failure) { try giveName(store.syncing) }

  /// Gives the open regular file at a path one more name, in the store. Nil: a hard link is
  /// impossible here, and nothing has happened.
  @inline(never)
  static func link(
    _ path: Files.Path, _ source: Int32, size: Int, checksum: UInt64, _ suffix: FileSuffix,
    in store: any FileStorage
  ) throws(Failure) -> PendingFile? {
    let place = try store.filePlace()
    return try PendingFile.link(
      path, source, size: size, checksum: checksum, suffix, in: place.directory, place.inFlight,
      store.syncing)
  }
}

/// For `Storage.prepare`: writes the value of a put to a file if the store is to keep it in one
/// and has none yet. False: that has failed, and the form has the failure.
@inline(never)
func makeFile(
  of entry: UnownedBlock, _ given: inout ValueForm?, in store: any FileStorage
) -> Bool {
  if let form = given {
    guard form.refusal == .none, form.isInBlock || form.bytes != nil, form.file == nil else {
      return true
    }
  }
  let bytes = given?.bytes
  let value = bytes ?? Bytes(entry.value)
  guard store.keepsInFile(value.count) else { return true }
  let form = given ?? ValueForm()
  given = form
  guard
    store.takes(
      key: entry.keySize, size: value.count, extended: entry.extendedSize,
      tag: Int(entry.tagSize))
  else {
    form.refusal = .tooLarge
    return true
  }
  do throws(Failure) {
    if bytes != nil {
      let file = try PendingFile.begin(form.suffix ?? FileSuffix(), in: store)
      try file.append(value, in: store)
      try file.giveName(in: store)
      form.file = file
      return true
    }
    let place = try store.filePlace()
    form.file = try PendingFile.write(
      value, checksum: entry.checksum != 0 ? entry.checksum : Checksum.xxh3(value),
      form.suffix ?? FileSuffix(), in: place.directory, place.inFlight, store.syncing
    ) { store.makeRoom($0) }
    return true
  } catch {
    form.refuse(for: error)
    return false
  }
}

/// The end of a file's name: an extension, for hosts that depend on it. Up to 15 bytes in place,
/// and their number in the sixteenth.
struct FileSuffix {
  static let longest = 15
  private var bytes: (UInt64, UInt64) = (0, 0)

  init() {}

  /// Nil: too long, or with a byte that a file name cannot have.
  init?(_ text: Bytes) {
    guard text.count <= FileSuffix.longest else { return nil }
    for byte in text where byte == 0 || byte == 0x2F { return nil }
    withUnsafeMutableBytes(of: &bytes) { $0.copyBytes(from: text) }
    bytes.1 |= UInt64(text.count) << 56
  }

  /// A C string: it ends with NUL. Bytes after the longest suffix are not read.
  init?(_ text: Files.Path) {
    self.init(Bytes(start: text, count: strnlen(text, FileSuffix.longest + 1)))
  }

  /// `.tmp`
  static var temporary: FileSuffix {
    var suffix = FileSuffix()
    suffix.bytes = (0x706D_742E, 4 << 56)
    return suffix
  }

  var count: Int { Int(bytes.1 >> 56) }

  /// The suffix in two words, as a store may keep it; (0, 0): none.
  var words: (UInt64, UInt64) { bytes }

  /// Nil: these are not the words of a suffix.
  init?(words: (UInt64, UInt64)) {
    bytes = words
    let count = count
    guard count <= FileSuffix.longest else { return nil }
    let isSuffix = withUnsafeBytes(of: words) { bytes in
      for (i, byte) in bytes.prefix(FileSuffix.longest).enumerated() {
        if i < count ? byte == 0 || byte == 0x2F : byte != 0 { return false }
      }
      return true
    }
    if !isSuffix { return nil }
  }

  func withBytes<R>(_ body: (Bytes) -> R) -> R {
    withUnsafeBytes(of: bytes) { body(Bytes(rebasing: $0[0..<count])) }
  }
}
