import CSystem

/// The result of a call: the numbers of `hutch_status`, which never change. 0 is done, above 0 an
/// answer, below 0 a failure.
struct Status: Equatable {
  let code: Int32
  private init(_ code: Int32) { self.code = code }

  static let done = Status(0)

  static let notFound = Status(1)
  static let exists = Status(2)
  static let conflict = Status(3)
  static let partial = Status(4)
  static let superseded = Status(5)
  static let optionsDiffer = Status(6)
  static let wouldBlock = Status(7)
  static let bufferTooSmall = Status(8)
  static let cancelled = Status(9)

  static let invalidArgument = Status(-1)
  static let noMemory = Status(-2)
  static let closed = Status(-3)
  static let forked = Status(-4)
  static let busy = Status(-5)
  static let io = Status(-6)
  static let noSpace = Status(-7)
  static let tooLarge = Status(-8)
  static let corrupt = Status(-9)
  static let newerFormat = Status(-10)
  static let unsupported = Status(-11)
  static let wrongType = Status(-12)
  static let overflow = Status(-13)
  static let deadlock = Status(-14)
  static let badDirectory = Status(-15)
  static let tierDown = Status(-16)
  static let timedOut = Status(-17)
  static let loadFailed = Status(-18)

  /// In C: ends with NUL.
  var name: UnsafePointer<CChar> { word(0) }

  /// The meaning, in words.
  var text: UnsafePointer<CChar> { word(1) }

  private func word(_ column: Int) -> UnsafePointer<CChar> {
    let row = code >= -18 && code <= 9 ? Int(code) + 18 : 28
    var word = Files.path(Status.words)
    for _ in 0..<row * 2 + column { word += strlen(word) + 1 }
    return word
  }

  /// A row is a name and its meaning, from the lowest number to the highest; the last row is for
  /// every other number. One literal: a table of strings would be twice as large as they are.
  private static let words: StaticString = """
    HUTCH_LOAD_FAILED\0the loader failed\0\
    HUTCH_TIMED_OUT\0the given time has passed\0\
    HUTCH_TIER_DOWN\0the disk tier is out of service\0\
    HUTCH_BAD_DIRECTORY\0the directory cannot be used\0\
    HUTCH_DEADLOCK\0the call would wait for itself\0\
    HUTCH_OVERFLOW\0the result is out of range\0\
    HUTCH_WRONG_TYPE\0the value is not of the kind that the call works on\0\
    HUTCH_UNSUPPORTED\0not supported by this library or for this cache\0\
    HUTCH_NEWER_FORMAT\0a newer version of Hutch has written the directory\0\
    HUTCH_CORRUPT\0the directory's database is damaged\0\
    HUTCH_TOO_LARGE\0the value is larger than any tier takes\0\
    HUTCH_NO_SPACE\0the file system or the quota is full\0\
    HUTCH_IO\0a call of the system or of SQLite failed\0\
    HUTCH_BUSY\0the directory is in use\0\
    HUTCH_FORKED\0the handle belongs to the parent of this process\0\
    HUTCH_CLOSED\0the cache has been closed\0\
    HUTCH_NO_MEMORY\0out of memory\0\
    HUTCH_INVALID_ARGUMENT\0an argument is not valid\0\
    HUTCH_OK\0done\0\
    HUTCH_NOT_FOUND\0there is no such entry\0\
    HUTCH_EXISTS\0there is an entry already\0\
    HUTCH_CONFLICT\0the entry has another version\0\
    HUTCH_PARTIAL\0stored, but not in every tier\0\
    HUTCH_SUPERSEDED\0a later write of the key was done first\0\
    HUTCH_OPTIONS_DIFFER\0opened, but other options are in force\0\
    HUTCH_WOULD_BLOCK\0the call would have to wait\0\
    HUTCH_BUFFER_TOO_SMALL\0the buffer is too small\0\
    HUTCH_CANCELLED\0cancelled before it was done\0\
    HUTCH_UNKNOWN\0not a status of this library\0
    """

  /// Of a number that comes from outside, or from a field that keeps a status in few bits.
  static func named(_ code: Int32) -> Status { Status(code) }
}
