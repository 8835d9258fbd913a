/// A line for the host's logger.
struct LogLine {
  /// Bits, so that a logger's levels are a mask.
  enum Level: UInt32 {
    case error = 1
    case warning = 2
    case info = 4
    case debug = 8
  }

  let level: Level
  /// Static, and ends with NUL.
  let words: StaticString
  var failure: Failure?

  init(_ level: Level, _ words: StaticString, _ failure: Failure? = nil) {
    self.level = level
    self.words = words
    self.failure = failure
  }
}
