import CSystem

/// The abilities of a store that keeps large values in files of their own (see `Storage.files`):
/// values that come in pieces or as files, and values that the host reads as files.
protocol FileStorage: AnyObject {
  /// True if the store would keep a value of this size in a file, unchanged.
  func keepsInFile(_ size: Int) -> Bool

  /// True if the store's limits allow an entry of this size. `extended`: with the tag.
  func takes(key: Int, size: Int, extended: Int, tag: Int) -> Bool

  /// Makes an empty file, which `append` fills and `finish` ends. The caller passes it on with a
  /// write that it submits, or discards it.
  func begin(_ file: ValueFile) throws(Failure)
  func append(_ bytes: Bytes, to file: ValueFile) throws(Failure)
  func finish(_ file: ValueFile) throws(Failure)
  /// The bytes appended so far, `file.size` of them.
  func read(_ file: ValueFile, into target: UnsafeMutableRawBufferPointer) throws(Failure)

  /// Gives the open regular file at a path one more name, in the store. False: a hard link is
  /// impossible here, and nothing has happened.
  func link(
    _ path: Files.Path, _ source: Int32, size: Int, checksum: UInt64, as file: ValueFile
  ) throws(Failure) -> Bool

  func discard(_ file: ValueFile)

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

/// A value's file before there is an entry with it; with an ordinary put, the name that its file is
/// to have. One thread at a time uses it.
final class ValueFile {
  let suffix: FileSuffix
  /// The bytes that were appended, or linked.
  var size = 0
  /// The reason why the store will not store the value; the put then removes the existing entry.
  var refusal = TierOutcome.none
  var failure: Failure?
  /// The put's block has no value: the value is in the file, or was refused before.
  var isBlockEmpty = false

  /// Belongs to the store. Nil: there is no file yet, or not any more.
  var storage: AnyObject?

  init(_ suffix: FileSuffix) { self.suffix = suffix }
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
