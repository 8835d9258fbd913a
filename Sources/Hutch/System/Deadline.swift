import CSystem

/// A point in time of CLOCK_MONOTONIC.
struct Deadline {
  let end: Int64
  /// CLOCK_MONOTONIC.
  init(at end: Int64) { self.end = end }
  /// Int64.max: no deadline.
  @inline(never)
  init(after duration: Int64) {
    end = Deadline.sum(Clock.read(CLOCK_MONOTONIC), duration)
  }

  /// No deadline.
  static var never: Deadline { Deadline(at: Int64.max) }

  /// Until when a call waits for another process that has a lock of a directory. That process waits
  /// for the disk meanwhile, and this is longer than a busy disk takes: only a process that was
  /// stopped (SIGSTOP) is waited for in vain.
  static var forAnotherProcess: Deadline { Deadline(after: 60_000_000_000) }

  /// The sum of a point in time and a duration, both not negative; Int64.max: never.
  static func sum(_ time: Int64, _ duration: Int64) -> Int64 {
    let (end, overflow) = time.addingReportingOverflow(duration)
    return overflow ? Int64.max : end
  }

  /// 0: no limit.
  init(budget: Int64) { self.init(after: budget == 0 ? Int64.max : budget) }

  /// The time that is left; 0: the deadline has passed.
  var left: Int64 {
    @inline(never) get {
      end == Int64.max ? Int64.max : max(0, end - Clock.read(CLOCK_MONOTONIC))
    }
  }
  var hasPassed: Bool { left == 0 }
}
