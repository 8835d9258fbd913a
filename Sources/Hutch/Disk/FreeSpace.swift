import CSystem

/// The free space of the file system that holds the directory, as it was when it was last looked
/// at. Used under the tier's writer lock.
///
/// To delete rows takes room too: the log grows, and moving it into the database may grow that.
/// So a small reserve is kept, and made before it is needed; where another program has taken the
/// reserve, the tier tries once with the space that is free.
struct FreeSpace {
  /// So much may be written before the file system is looked at again.
  private static let lookEvery: Int64 = 128 << 10
  /// Below this it is looked at before every transaction.
  private static let scarce: Int64 = 16 << 20

  /// The bytes that are to stay free, beside those that the log needs to be moved into the
  /// database.
  static func reserve(_ all: Int64) -> Int64 { min(2 << 20, all / 16) }

  /// When it was last looked at.
  var free = Int64.max
  /// The bytes written since.
  private var unlooked: Int64 = 0
  /// The free and all bytes, as a test wants them; nil: the system's answer.
  var forTests: (() -> (free: Int64, all: Int64)?)?

  /// Counts the bytes that are to be written. `minFree`: the bytes that the limits want free.
  mutating func isLookDue(toWrite bytes: Int64, keeping minFree: Int64) -> Bool {
    unlooked += bytes
    return unlooked >= FreeSpace.lookEvery || free < minFree + FreeSpace.scarce
  }

  /// Asks by the directory's own descriptor. Nil: the file system does not tell.
  mutating func look(in directory: Directory) -> (free: Int64, all: Int64)? {
    unlooked = 0
    guard let now = forTests?() ?? Files.space(of: directory.descriptor) else { return nil }
    free = now.free
    return now
  }
}

/// The time for which commits leave the log as it is, since a reader keeps it from being moved.
/// In nanoseconds of CLOCK_MONOTONIC. Used under the tier's writer lock.
struct LogPause {
  private(set) var length: Int64 = 0
  private var until: Int64 = 0

  var isUnderWay: Bool { length != 0 && Clock.read(CLOCK_MONOTONIC) < until }

  /// A reader is in the way again.
  mutating func lengthen(from least: Int64 = 1_000_000) {
    length = min(max(least, 2 * length), 250_000_000)
    until = Clock.read(CLOCK_MONOTONIC) + length
  }

  /// The log has been moved.
  mutating func end() { self = LogPause() }

  /// The next commit tries.
  mutating func expire() { until = 0 }
}
