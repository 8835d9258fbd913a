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

  static func == (a: Status, b: Status) -> Bool { a.code == b.code }

  var name: StaticString {
    switch code {
    case 0: "HUTCH_OK"
    case 1: "HUTCH_NOT_FOUND"
    case 2: "HUTCH_EXISTS"
    case 3: "HUTCH_CONFLICT"
    case 4: "HUTCH_PARTIAL"
    case 5: "HUTCH_SUPERSEDED"
    case 6: "HUTCH_OPTIONS_DIFFER"
    case 7: "HUTCH_WOULD_BLOCK"
    case 8: "HUTCH_BUFFER_TOO_SMALL"
    case 9: "HUTCH_CANCELLED"
    case -1: "HUTCH_INVALID_ARGUMENT"
    case -2: "HUTCH_NO_MEMORY"
    case -3: "HUTCH_CLOSED"
    case -4: "HUTCH_FORKED"
    case -5: "HUTCH_BUSY"
    case -6: "HUTCH_IO"
    case -7: "HUTCH_NO_SPACE"
    case -8: "HUTCH_TOO_LARGE"
    case -9: "HUTCH_CORRUPT"
    case -10: "HUTCH_NEWER_FORMAT"
    case -11: "HUTCH_UNSUPPORTED"
    case -12: "HUTCH_WRONG_TYPE"
    case -13: "HUTCH_OVERFLOW"
    case -14: "HUTCH_DEADLOCK"
    case -15: "HUTCH_BAD_DIRECTORY"
    case -16: "HUTCH_TIER_DOWN"
    case -17: "HUTCH_TIMED_OUT"
    case -18: "HUTCH_LOAD_FAILED"
    default: "HUTCH_UNKNOWN"
    }
  }

  /// The meaning, in words.
  var text: StaticString {
    switch code {
    case 0: "done"
    case 1: "there is no such entry"
    case 2: "there is an entry already"
    case 3: "the entry has another version"
    case 4: "stored, but not in every tier"
    case 5: "a later write of the key was done first"
    case 6: "opened, but the directory is open with other options"
    case 7: "the call would have to wait"
    case 8: "the buffer is too small"
    case 9: "cancelled before it was done"
    case -1: "an argument is not valid"
    case -2: "out of memory"
    case -3: "the cache has been closed"
    case -4: "the handle belongs to the parent of this process"
    case -5: "another process has the directory open"
    case -6: "a call of the system or of SQLite failed"
    case -7: "the file system or the quota is full"
    case -8: "the value is larger than any tier takes"
    case -9: "the directory's database is damaged"
    case -10: "a newer version of Hutch has written the directory"
    case -11: "not supported by this library or for this cache"
    case -12: "the value is not of the kind that the call works on"
    case -13: "the result is out of range"
    case -14: "the call would wait for itself"
    case -15: "the directory cannot be used"
    case -16: "the disk tier is out of service"
    case -17: "the given time has passed"
    case -18: "the loader failed"
    default: "not a status of this library"
    }
  }

  /// Only for hutch_status_name, which gets a number from outside.
  static func named(_ code: Int32) -> Status { Status(code) }
}
