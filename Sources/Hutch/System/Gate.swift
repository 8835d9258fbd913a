import CSystem
import Synchronization

/// Lets calls in until it is closed, then waits for the calls inside to leave. While it is paused,
/// a new call waits outside, unless its thread is inside a gate already.
///
/// A thread inside that calls the host, or waits for a thread that does, steps aside first, and
/// steps back when there is no pause. A pause waits only for the calls that are inside and not
/// aside; when it has them, no call is active. A close waits for all.
struct Gate: ~Copyable {
  private static let closedBit: UInt64 = 1 << 63
  private static let pausedBit: UInt64 = 1 << 62
  private static let oneAside: UInt64 = 1 << 31
  private static let countMask: UInt64 = oneAside - 1

  /// The state, a word of each line. The number of the threads' calls inside; from bit 31 on, the
  /// number of those that have stepped aside; and the two bits, which are in all words or are being
  /// set in one after the other. A thread enters and leaves by the word of its own line, and
  /// remembers its address meanwhile. Acquire on entry and release on exit, so that the effects of
  /// the calls are visible when `close` or `awaitQuiet` returns. With one word for all threads each
  /// call would take its line from the others, twice.
  private let state: ThreadLines
  /// Protects only the waits.
  private let lock = Lock()
  /// Signals that no call is inside any more, or that the pause is over.
  private let changed = Condition()

  init() throws(Failure) {
    state = try ThreadLines()
  }

  private static func isEmpty(_ word: UInt64) -> Bool { word & countMask == 0 }
  private static func isQuiet(_ word: UInt64) -> Bool {
    word & countMask == (word & (pausedBit - 1)) / oneAside
  }

  /// True if the test holds for every word, one after the other. Where no call is let in any more,
  /// a word that was found empty, or quiet, stays so.
  private func all(_ test: (UInt64) -> Bool) -> Bool {
    for line in 0..<ThreadLines.count
    where !test(state[line].pointee.load(ordering: .acquiring)) { return false }
    return true
  }

  private func set(_ bit: UInt64) {
    for line in 0..<ThreadLines.count {
      state[line].pointee.bitwiseOr(bit, ordering: .acquiringAndReleasing)
    }
  }

  /// False: the gate is closed. Otherwise the same thread must call `leave`.
  func enter() -> Bool {
    let word = state.own()
    let now = word.pointee.load(ordering: .relaxed)
    if now < Gate.pausedBit,
      word.pointee.compareExchange(expected: now, desired: now + 1, ordering: .acquiring)
        .exchanged
    {
      ThreadState.noteInside(word)
      return true
    }
    return enterSlowly(by: word)
  }

  @inline(never)
  private func enterSlowly(by word: ThreadLines.Word) -> Bool {
    while true {
      let now = word.pointee.load(ordering: .relaxed)
      if now & Gate.closedBit != 0 { return false }
      if now & Gate.pausedBit != 0 && !ThreadState.isInside {
        waitOutside(word)
      } else if word.pointee.compareExchange(
        expected: now, desired: now + 1, ordering: .acquiring
      ).exchanged {
        ThreadState.noteInside(word)
        return true
      }
    }
  }

  private func waitOutside(_ word: ThreadLines.Word) {
    lock.lock()
    while word.pointee.load(ordering: .relaxed) & Gate.pausedBit != 0 { changed.wait(lock) }
    lock.unlock()
  }

  func leave() {
    ThreadState.noteOutside()
    let after = state.own().pointee.wrappingSubtract(1, ordering: .acquiringAndReleasing)
      .newValue
    if after >= Gate.pausedBit && Gate.isQuiet(after) { tell() }
  }

  private func tell() {
    lock.withLock {}
    changed.broadcast()
  }

  /// A call that is inside for long lets a pause pass, at a point where it has nothing in progress.
  func giveWay() {
    guard state.own().pointee.load(ordering: .relaxed) & Gate.pausedBit != 0 else { return }
    ThreadState.stepBack(to: ThreadState.stepAside())
  }

  /// Waits until no call is inside. New calls are still let in.
  func awaitEmpty() {
    while !all(Gate.isEmpty) { usleep(1000) }
  }

  /// Closes the gate, once, and waits until no call is inside.
  func close() {
    set(Gate.closedBit)
    lock.lock()
    while !all(Gate.isEmpty) { changed.wait(lock) }
    lock.unlock()
  }

  /// The lines, a bit each, on which no thread is inside and not aside, or looks. The calling
  /// thread does not count if this is the innermost gate that it is inside. Lines that there are
  /// not have their bits too.
  var quietLines: UInt64 {
    let own = state.own()
    let isInside = ThreadState.isInside(by: own)
    var quiet = UInt64.max
    for line in 0..<ThreadLines.count {
      let now = state[line].pointee.load(ordering: .acquiring)
      let active = now & Gate.countMask &- (now & (Gate.pausedBit - 1)) / Gate.oneAside
      let looks = state[line, 1].pointee.load(ordering: .acquiring) & Gate.countMask
      let ownCalls: UInt64 = isInside && state[line] == own ? 1 : 0
      if active &+ looks != ownCalls { quiet &= ~(1 << UInt64(line)) }
    }
    return quiet
  }

  // MARK: looks

  /// A look is short, and waits for nothing: neither for the end of a pause, nor for another look.
  /// The caller may hold any lock. False: the gate is closed to looks. Otherwise the same thread
  /// must call `endLook`.
  func beginLook() -> Bool {
    let word = state.own(1)
    if word.pointee.wrappingAdd(1, ordering: .acquiring).newValue < Gate.closedBit { return true }
    endLook()
    return false
  }

  func endLook() { state.own(1).pointee.wrappingSubtract(1, ordering: .releasing) }

  /// Waits until there is no look any more, and lets none begin.
  func closeToLooks() {
    for line in 0..<ThreadLines.count {
      state[line, 1].pointee.bitwiseOr(Gate.closedBit, ordering: .acquiringAndReleasing)
      while state[line, 1].pointee.load(ordering: .acquiring) & Gate.countMask != 0 { usleep(100) }
    }
  }

  // MARK: fork

  /// True if every call inside has stepped aside.
  var isQuiet: Bool { all(Gate.isQuiet) }

  func pause() { set(Gate.pausedBit) }

  /// False: some call still had work in progress when the time was over.
  func awaitQuiet(until end: Deadline) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    while !isQuiet {
      if end.hasPassed { return false }
      // A thread that steps aside signals no waiter.
      changed.wait(lock, nanoseconds: min(end.left, 1_000_000))
    }
    return true
  }

  func resume() {
    for line in 0..<ThreadLines.count {
      state[line].pointee.bitwiseAnd(~Gate.pausedBit, ordering: .releasing)
    }
    tell()
  }

  // Calls of a thread that is inside: see ThreadState.

  static func stepAside(_ word: ThreadLines.Word) {
    word.pointee.wrappingAdd(oneAside, ordering: .releasing)
  }

  static func stepBack(_ word: ThreadLines.Word) {
    while true {
      let now = word.pointee.load(ordering: .relaxed)
      if now & pausedBit != 0 {
        usleep(100)
      } else if word.pointee.compareExchange(
        expected: now, desired: now - oneAside, ordering: .acquiring
      ).exchanged {
        return
      }
    }
  }
}
