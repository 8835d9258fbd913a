import CLogTests
import CSystem

/// The system's clocks, which a test moves on.
enum TestClock {
  nonisolated(unsafe) fileprivate static var passed: Int64 = 0
  /// What each clock shows while they stand still; nil: they go.
  nonisolated(unsafe) fileprivate static var stopped: [timespec]?

  /// Nanoseconds go by.
  static func pass(_ time: Int64) { passed += time }

  /// From here on time goes by in `pass` only.
  static func stop() {
    stopped = (0..<12).map { clock in
      var time = timespec()
      log_real_time(Int32(clock), &time)
      return time
    }
  }

  static func go() { stopped = nil }
}

/// Stands before libc's.
@_cdecl("clock_gettime")
func testTime(_ clock: Int32, _ time: UnsafeMutablePointer<timespec>) -> Int32 {
  if let stopped = TestClock.stopped, clock >= 0, Int(clock) < stopped.count {
    time.pointee = stopped[Int(clock)]
  } else {
    log_real_time(clock, time)
  }
  let nanoseconds = Int64(time.pointee.tv_nsec) + TestClock.passed
  time.pointee.tv_sec += Int(nanoseconds / 1_000_000_000)
  time.pointee.tv_nsec = Int(nanoseconds % 1_000_000_000)
  return 0
}
