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
    let file = try PendingFile.begin(form.suffix ?? FileSuffix(), in: store)
    try file.append(value, checksum: bytes == nil ? entry.checksum : 0, in: store)
    try file.giveName(in: store)
    form.file = file
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
