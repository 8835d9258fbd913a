import CSystem

/// Why something could not be done. Thrown within the engine; at the border it
/// becomes a status, and words in the thread's last error.
struct Failure: Error, @unchecked Sendable {
  /// Below 0.
  let status: Status
  /// What was tried, in words that need no context.
  let words: StaticString
  /// errno, or 0; a loader's code.
  var system: Int32 = 0
  /// SQLite's extended result code, or 0.
  var sqlite: Int32 = 0
  /// SQLite's own words for the code, or a loader's: they outlive the failure, and end with NUL.
  var detail: UnsafePointer<CChar>? = nil

  init(_ status: Status, _ words: StaticString) {
    self.status = status
    self.words = words
  }

  /// The failure of a system call, from `errno`. A full file system or quota, and
  /// exhausted memory, have statuses of their own.
  static func system(
    _ words: StaticString, errno code: Int32 = hutch_errno(), otherwise status: Status = .io
  ) -> Failure {
    var failure: Failure
    switch code {
    case ENOSPC, EDQUOT: failure = Failure(.noSpace, words)
    case ENOMEM: failure = Failure(.noMemory, words)
    default: failure = Failure(status, words)
    }
    failure.system = code
    return failure
  }

  static let noMemory = Failure(.noMemory, "out of memory")
}
