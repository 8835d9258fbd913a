import CSystem

/// The reason why an operation failed. The engine throws it; the C boundary turns it into a status,
/// and into words in the thread's last error.
///
/// A failure is two machine words, so it travels in registers through every call.
struct Failure: Error, @unchecked Sendable {
  /// The step that failed, in words that need no context, or the words of a loader; ends with NUL.
  let words: UnsafePointer<UInt8>
  /// From the low end: the status's code (8 bits); 1 if `number` is the argument that was refused
  /// (8 bits); errno (16 bits); `number` (32 bits). One field: a caller that passes a failure on
  /// moves one word, not four.
  private var bits: UInt64

  /// Below 0.
  var status: Status { Status.named(Int32(Int8(truncatingIfNeeded: bits))) }

  private var isLoaders: Bool { status == .loadFailed }

  private var hasArgument: Bool { bits & 0x100 != 0 }

  /// SQLite's code, a loader's code or the argument that was refused.
  private var number: Int32 {
    get { Int32(truncatingIfNeeded: bits >> 32) }
    set { bits = bits & 0xFFFF_FFFF | UInt64(UInt32(bitPattern: newValue)) << 32 }
  }

  /// errno, or 0; a loader's code.
  var system: Int32 {
    get { isLoaders ? number : Int32(UInt16(truncatingIfNeeded: bits >> 16)) }
    set { bits = bits & ~0xFFFF_0000 | UInt64(UInt16(truncatingIfNeeded: newValue)) << 16 }
  }

  /// SQLite's extended result code, or 0.
  var sqlite: Int32 {
    get { isLoaders || hasArgument ? 0 : number }
    set { number = newValue }
  }

  /// The number that was refused: an enumerator, or the flags that are not defined.
  var argument: UInt32? { hasArgument ? UInt32(bitPattern: number) : nil }

  /// An enumerator or flags that this library does not define.
  static func unknown(_ words: StaticString, _ argument: UInt32) -> Failure {
    var failure = Failure(.unsupported, words)
    failure.bits |= 0x100
    failure.number = Int32(bitPattern: argument)
    return failure
  }

  /// The failure of a loader, with its code and words. `words` outlives the failure, and ends with
  /// NUL.
  static func ofLoader(_ code: Int32, _ words: UnsafePointer<UInt8>?) -> Failure {
    let none: StaticString = ""
    var failure = Failure(.loadFailed, words: words ?? none.utf8Start)
    failure.number = code
    return failure
  }

  init(_ status: Status, _ words: StaticString) {
    self.init(status, words: words.utf8Start)
  }

  /// `words` is static, and ends with NUL.
  init(_ status: Status, words: UnsafePointer<UInt8>) {
    bits = UInt64(UInt8(truncatingIfNeeded: status.code))
    self.words = words
  }

  /// The same cause under another status.
  func with(_ status: Status) -> Failure { with(status, words: words) }

  func with(_ status: Status, _ words: StaticString) -> Failure {
    with(status, words: words.utf8Start)
  }

  private func with(_ status: Status, words: UnsafePointer<UInt8>) -> Failure {
    var failure = Failure(status, words: words)
    failure.bits |= bits & ~0xFF
    return failure
  }

  /// The failure of a system call, from `errno`. A full file system or quota, and
  /// exhausted memory, have statuses of their own.
  @inline(never)
  static func system(_ words: StaticString, otherwise status: Status = .io) -> Failure {
    .system(words, errno: hutch_errno(), otherwise: status)
  }

  @inline(never)
  static func system(
    _ words: StaticString, errno code: Int32, otherwise status: Status = .io
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

  /// The failure to open a file of a directory: `badDirectory`, or `io` if the process has too many
  /// open files, since that is no fault of the directory.
  @inline(never)
  static func opening(_ words: StaticString) -> Failure {
    let code = hutch_errno()
    return .system(
      words, errno: code, otherwise: code == EMFILE || code == ENFILE ? .io : .badDirectory)
  }

  static var noMemory: Failure { Failure(.noMemory, "out of memory") }
}
