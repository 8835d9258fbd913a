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

  /// Gives the open regular file at a path one more name, in the store. False: it cannot have
  /// one here; nothing has happened.
  func link(
    _ path: Files.Path, _ source: Int32, size: Int, checksum: UInt64, as file: ValueFile
  ) throws(Failure) -> Bool

  func discard(_ file: ValueFile)

  /// Where the newest entry's value is, submitted writes included; nil if there is none or it
  /// has expired. No access.
  func locate(_ key: Bytes, at moment: Moment) throws(Failure) -> ValuePlace?

  /// A descriptor to read the value's file by, which stays valid whatever becomes of the entry;
  /// nil if it has no file of its own, or there is no entry. An access.
  func open(_ key: Bytes, at moment: Moment) throws(Failure) -> Int32?

  /// From here to `release`, which is owed, no file moves or goes.
  func hold()
  func release()
}

/// Where a value is.
struct ValuePlace {
  let record: Record
  /// Where the file is; nil: it has none.
  let directory: Directory?
  let name: ContentName?
}

/// A value's file before there is an entry with it; and with an ordinary put, how the file is
/// to be called. One thread at a time uses it.
final class ValueFile {
  let suffix: FileSuffix
  /// Nil: there is no file yet.
  var name: ContentName?
  var directory: Directory?
  /// -1: closed, or none.
  var descriptor: Int32 = -1
  var size = 0
  var checksum: UInt64 = 0
  /// The file has its own name and may have a row.
  var isWhole = false
  var sum = Checksum.Sum()
  /// Why the store will not take the value; the put then removes what is there.
  var refusal = TierOutcome.none
  var failure: Failure?
  /// Not `none`: the put's block has no value. What the memory tier has goes, and this is its
  /// outcome.
  var memoryOutcome = TierOutcome.none

  init(_ suffix: FileSuffix) { self.suffix = suffix }

  deinit { close() }

  func close() {
    if descriptor >= 0 { _ = Descriptor(owning: descriptor) }
    descriptor = -1
  }
}
