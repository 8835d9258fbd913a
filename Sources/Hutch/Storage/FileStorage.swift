import CSystem

/// What a store can do that keeps large values in files of their own (see `Storage.files`):
/// values that come in pieces or as files, and values that are wanted as files.
protocol FileStorage: AnyObject {
  /// Whether a value of this size would be kept in a file as it is.
  func keepsInFile(_ size: Int) -> Bool

  /// Whether the store's limits allow for such an entry at all.
  func takes(key: Int, size: Int, extended: Int) -> Bool

  /// Makes an empty file, which `append` fills and `finish` ends. Whoever has it passes it on
  /// with a write that is submitted, or discards it.
  func begin(_ file: ValueFile) throws(Failure)
  func append(_ bytes: Bytes, to file: ValueFile) throws(Failure)
  func finish(_ file: ValueFile) throws(Failure)
  /// What has been appended so far, `file.size` bytes.
  func read(_ file: ValueFile, into target: UnsafeMutableRawBufferPointer) throws(Failure)

  /// Gives the open regular file at a path one more name, in the store. False: it cannot have
  /// one here; nothing has happened.
  func link(
    _ path: Files.Path, _ source: Int32, size: Int, checksum: UInt64, as file: ValueFile
  ) throws(Failure) -> Bool

  func discard(_ file: ValueFile)

  /// Calls `body` with the absolute path, without NUL, of the file that the newest entry's value
  /// is in, submitted writes included; with nil if it has no file of its own. No access. False:
  /// there is no entry, or it has expired.
  func path(
    of key: Bytes, at moment: Moment, _ body: (Bytes?) throws(Failure) -> Void
  ) throws(Failure) -> Bool

  /// A descriptor to read the value's file by, which stays valid whatever becomes of the entry;
  /// nil if it has no file of its own, or there is no entry. An access.
  func open(_ key: Bytes, at moment: Moment) throws(Failure) -> Int32?

  /// From here to `release`, which is owed, no file moves or goes.
  func hold()
  func release()
}

/// A value's file before there is an entry with it; and with an ordinary put, how the file is
/// to be called. One thread at a time uses it.
final class ValueFile {
  let suffix: FileSuffix
  /// What was appended, or linked.
  var size = 0
  /// Why the store will not take the value; the put then removes what is there.
  var refusal = TierOutcome.none
  var failure: Failure?
  /// The put's block has no value: the file has it, or it was refused on the way there.
  var isBlockEmpty = false

  /// The store's own. Nil: there is no file yet, or not any more.
  var storage: AnyObject?

  init(_ suffix: FileSuffix) { self.suffix = suffix }
}

/// What a file's name ends with: an extension, for hosts that go by it. Up to 15 bytes
/// in place, and their number in the sixteenth.
struct FileSuffix {
  static let longest = 15
  private var bytes: (UInt64, UInt64) = (0, 0)

  init() {}

  /// Nil: too long, or with a byte that no name of a file can have.
  init?(_ text: Bytes) {
    guard text.count <= FileSuffix.longest else { return nil }
    for byte in text where byte == 0 || byte == 0x2F { return nil }
    withUnsafeMutableBytes(of: &bytes) { $0.copyBytes(from: text) }
    bytes.1 |= UInt64(text.count) << 56
  }

  /// As C has it: it ends with NUL. What lies behind the longest is not read.
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

  func withBytes<R>(_ body: (Bytes) -> R) -> R {
    withUnsafeBytes(of: bytes) { body(Bytes(rebasing: $0[0..<count])) }
  }
}
