import CSystem
import Synchronization

/// A point in time in Unix nanoseconds. Until it is `read`, every use of `time` reads a clock,
/// which costs some 10 ns; a hit in memory on an entry that does not expire uses it never, and
/// reads no clock. A call that goes on to the store, or writes, reads it once.
///
/// One word: the time; or, below `earliest`, the number to add to CLOCK_MONOTONIC_COARSE, counted
/// from the least Int64.
struct Moment {
  private let word: Int64

  /// No time is earlier: the year 1823.
  fileprivate static let earliest: Int64 = -1 << 62

  /// A moment before all entries: a look of this moment finds the expired ones too, but for those
  /// whose own time to live has no length.
  static var first: Moment { Moment(word: earliest) }

  /// A time that is known.
  static func at(_ time: Int64) -> Moment { Moment(word: max(time, earliest)) }

  /// The coarse clock with this added to it, when it is read.
  @inline(__always)
  fileprivate static func coarse(_ offset: Int64) -> Moment {
    if _fastPath(offset >= 0 && offset < 1 << 62) { return Moment(word: Int64.min &+ offset) }
    return .at(Clock.read(CLOCK_MONOTONIC_COARSE) &+ offset)
  }

  private init(word: Int64) { self.word = word }

  /// The same, with the clock read.
  @inline(__always) var read: Moment { .at(time) }

  /// True if the time is known, so that `time` costs nothing.
  @inline(__always) var isGiven: Bool { word >= Moment.earliest }

  var time: Int64 {
    @inline(never) get {
      isGiven ? word : Clock.read(CLOCK_MONOTONIC_COARSE) &+ (word &- Int64.min)
    }
  }
}

/// The time for one cache.
///
/// Within a boot, CLOCK_BOOTTIME with one fixed offset to Unix time decides, so a wall clock that
/// jumps changes nothing. On some machines it costs 130 to 280 ns to read. Calls therefore use the
/// coarse monotonic clock (a resolution of a few milliseconds). Its distance to CLOCK_BOOTTIME
/// changes only when the machine sleeps; `refresh` measures it. The distance is rounded, so that
/// all clocks with one anchor give one time: a call never sees an entry of a later time than its
/// own because another opening has written the entry.
final class Clock {
  typealias Function = @convention(c) (UnsafeMutableRawPointer?) -> Int64

  let function: Function?
  let context: UnsafeMutableRawPointer?
  private let release: Release?
  /// Unix time minus CLOCK_BOOTTIME. Relaxed: any value that was ever right is good enough.
  private let anchor: Atomic<Int64>
  /// Unix time minus CLOCK_MONOTONIC_COARSE. Relaxed for the same reason.
  private let coarse: Atomic<Int64>

  /// A host's clock; nil: the system's. The end of this object calls `release` with the context.
  init(function: Function?, context: UnsafeMutableRawPointer?, release: Release?) {
    self.function = function
    self.context = context
    self.release = release
    let offset = Clock.read(CLOCK_REALTIME) &- Clock.read(CLOCK_BOOTTIME)
    anchor = Atomic(offset)
    coarse = Atomic(offset &+ Clock.slept())
  }

  deinit { release?(context) }

  /// The last time that the host's clock gave. Relaxed: any recent time is good enough for
  /// maintenance.
  private let latest = Atomic<Int64>(Moment.earliest)

  var isHosts: Bool { function != nil }

  /// Sets Unix time minus CLOCK_BOOTTIME to the manifest's anchor, the value at the first opening
  /// of the directory in this boot.
  func setAnchor(_ value: Int64) {
    anchor.store(value, ordering: .relaxed)
    coarse.store(value &+ Clock.slept(), ordering: .relaxed)
  }

  /// Measures how long the machine has slept. Maintenance calls it.
  func refresh() {
    let measured = anchor.load(ordering: .relaxed) &+ Clock.slept()
    // At the edge between two multiples of `step` a measurement may give either, and time must not
    // go to and fro.
    let change = measured &- coarse.load(ordering: .relaxed)
    if change > Clock.step || change < -Clock.step {
      coarse.store(measured, ordering: .relaxed)
    }
  }

  /// A tenth of a second.
  private static let step: Int64 = 100_000_000
  /// A measurement is good if its readings are no farther apart; nanoseconds.
  private static let nearby: Int64 = 50_000

  /// How long the machine has slept in this boot, as a multiple of `step`: two readings are always
  /// a little apart, by a varying amount, and every clock is to find the same.
  private static func slept() -> Int64 {
    var best = (difference: Int64(0), apart: Int64.max)
    var tries = 0
    // A loop without a count that the compiler would unroll.
    while best.apart > nearby && tries < 16 {
      tries += 1
      let before = read(CLOCK_MONOTONIC)
      let boot = read(CLOCK_BOOTTIME)
      let apart = read(CLOCK_MONOTONIC) &- before
      if apart < best.apart { best = (boot &- before &- apart / 2, apart) }
    }
    return (best.difference &+ step / 2) / step &* step
  }

  /// The time of a call. It asks the host's clock at once, while the thread holds no lock. Not
  /// inlined: hits and short puts in memory read the clock by themselves.
  @inline(never)
  func moment() -> Moment {
    guard let function else { return .coarse(coarse.load(ordering: .relaxed)) }
    return hostsMoment(function)
  }

  /// The time of a call, by the system's clock.
  @inline(__always)
  var coarseNow: Int64 {
    Clock.read(CLOCK_MONOTONIC_COARSE) &+ coarse.load(ordering: .relaxed)
  }

  @inline(never)
  private func hostsMoment(_ function: Function) -> Moment {
    ThreadState.assertNoLocks()
    // The clock never returns the last nanosecond: see Record.never.
    let moment = Moment.at(min(function(context), Int64.max - 1))
    latest.store(moment.time, ordering: .relaxed)
    return moment
  }

  /// The time for work on a thread of the library, which calls no function of the host: the time of
  /// the last call.
  func momentForMaintenance() -> Moment {
    guard isHosts else {
      refresh()
      return moment()
    }
    return .at(latest.load(ordering: .relaxed))
  }

  /// The time of a call that needs it at once.
  @inline(never)
  var current: Moment { moment().read }

  /// The time now, in Unix nanoseconds.
  var now: Int64 { moment().time }

  /// No call until now has had a later time. The host's clock is not called, so the caller may hold
  /// locks.
  var latestTime: Int64 { isHosts ? latest.load(ordering: .relaxed) : now }

  @inline(never)
  static func read(_ clock: Int32) -> Int64 {
    var time = timespec()
    clock_gettime(clock, &time)
    return Int64(time.tv_sec) &* 1_000_000_000 &+ Int64(time.tv_nsec)
  }
}
