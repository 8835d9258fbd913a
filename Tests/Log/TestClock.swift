import CLogTests
import CSystem

/// The system's clocks, which a test moves on.
enum TestClock {
  nonisolated(unsafe) fileprivate static var passed: Int64 = 0

  /// Nanoseconds go by.
  static func pass(_ time: Int64) { passed += time }
}

/// Stands before libc's.
@_cdecl("clock_gettime")
func testTime(_ clock: Int32, _ time: UnsafeMutablePointer<timespec>) -> Int32 {
  log_real_time(clock, time)
  let nanoseconds = Int64(time.pointee.tv_nsec) + TestClock.passed
  time.pointee.tv_sec += Int(nanoseconds / 1_000_000_000)
  time.pointee.tv_nsec = Int(nanoseconds % 1_000_000_000)
  return 0
}
