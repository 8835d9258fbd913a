import CSystem
import Synchronization

/// Lets calls in until it is closed, then waits for the calls inside to leave. While it is paused,
/// a new call waits outside, unless its thread is inside a gate already.
///
/// A thread inside that calls the host, or waits for a thread that does, steps aside first, and
/// steps back when there is no pause. A pause waits only for the calls that are inside and not
/// aside; when it has them, no call is active. A close waits for all.
struct Gate: ~Copyable {
  /// The state has an address of its own, which the threads that are inside remember.
  typealias Word = UnsafeMutablePointer<Atomic<UInt64>>

  private static let closedBit: UInt64 = 1 << 63
  private static let pausedBit: UInt64 = 1 << 62
  private static let oneAside: UInt64 = 1 << 31
  private static let countMask: UInt64 = oneAside - 1

  /// The number of calls inside; from bit 31 on, the number of those that have stepped aside; and
  /// the two bits. Acquire on entry and release on exit, so that the effects of the calls are
  /// visible when `close` or `awaitQuiet` returns.
  private let state: Word
  /// Protects only the waits.
  private let lock: Lock
  /// Signals that no call is inside any more, or that the pause is over.
  private let changed: Condition

  init() throws(Failure) {
    let lock = try Lock()
    let changed = try Condition()
    let word = try Allocation.bytes(MemoryLayout<Atomic<UInt64>>.size)
      .bindMemory(to: Atomic<UInt64>.self, capacity: 1)
    word.initialize(to: Atomic(0))
    state = word
    self.lock = lock
    self.changed = changed
  }

  deinit { free(state) }

  private static func isEmpty(_ word: UInt64) -> Bool { word & countMask == 0 }
  private static func isQuiet(_ word: UInt64) -> Bool {
    word & countMask == (word & (pausedBit - 1)) / oneAside
  }

  /// False: the gate is closed. Otherwise the same thread must call `leave`.
  func enter() -> Bool {
    let now = state.pointee.load(ordering: .relaxed)
    if now < Gate.pausedBit,
      state.pointee.compareExchange(expected: now, desired: now + 1, ordering: .acquiring)
        .exchanged
    {
      ThreadState.noteInside(state)
      return true
    }
    return enterSlowly()
  }

  @inline(never)
  private func enterSlowly() -> Bool {
    while true {
      let now = state.pointee.load(ordering: .relaxed)
      if now & Gate.closedBit != 0 { return false }
      if now & Gate.pausedBit != 0 && !ThreadState.isInside {
        waitOutside()
      } else if state.pointee.compareExchange(
        expected: now, desired: now + 1, ordering: .acquiring
      ).exchanged {
        ThreadState.noteInside(state)
        return true
      }
    }
  }

  private func waitOutside() {
    lock.lock()
    while state.pointee.load(ordering: .relaxed) & Gate.pausedBit != 0 { changed.wait(lock) }
    lock.unlock()
  }

  func leave() {
    ThreadState.noteOutside()
    let after = state.pointee.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue
    if after >= Gate.pausedBit && Gate.isQuiet(after) { tell() }
  }

  private func tell() {
    lock.withLock {}
    changed.broadcast()
  }

  /// A call that is inside for long lets a pause pass, at a point where it has nothing in progress.
  func giveWay() {
    guard state.pointee.load(ordering: .relaxed) & Gate.pausedBit != 0 else { return }
    ThreadState.stepBack(to: ThreadState.stepAside())
  }

  /// Waits until no call is inside. New calls are still let in.
  func awaitEmpty() {
    while !Gate.isEmpty(state.pointee.load(ordering: .acquiring)) { usleep(1000) }
  }

  /// Closes the gate, once, and waits until no call is inside.
  func close() {
    state.pointee.bitwiseOr(Gate.closedBit, ordering: .acquiringAndReleasing)
    lock.lock()
    while !Gate.isEmpty(state.pointee.load(ordering: .acquiring)) { changed.wait(lock) }
    lock.unlock()
  }

  // MARK: fork

  /// True if every call inside has stepped aside.
  var isQuiet: Bool { Gate.isQuiet(state.pointee.load(ordering: .acquiring)) }

  func pause() { state.pointee.bitwiseOr(Gate.pausedBit, ordering: .acquiringAndReleasing) }

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
    state.pointee.bitwiseAnd(~Gate.pausedBit, ordering: .releasing)
    tell()
  }

  // Calls of a thread that is inside: see ThreadState.

  static func stepAside(_ word: Word) { word.pointee.wrappingAdd(oneAside, ordering: .releasing) }

  static func stepBack(_ word: Word) {
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
