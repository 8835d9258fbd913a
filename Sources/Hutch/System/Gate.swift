import CSystem
import Synchronization

/// Lets calls in until it is closed, then waits for those inside to leave. While it is paused
/// who comes waits outside, but for threads that are inside a gate already.
///
/// Who calls the host from inside, or waits for who does, steps aside meanwhile, and steps back
/// when there is no pause. A pause waits for those alone who are inside and not aside, and from
/// then on there are none. A close waits for all.
struct Gate: ~Copyable {
  /// At an address of its own, which threads that are inside remember.
  typealias Word = UnsafeMutablePointer<Atomic<UInt64>>

  private static let closedBit: UInt64 = 1 << 63
  private static let pausedBit: UInt64 = 1 << 62
  private static let oneAside: UInt64 = 1 << 31
  private static let countMask: UInt64 = oneAside - 1

  /// The number of calls inside, from bit 31 on of those among them that have stepped aside, and
  /// the two bits. Acquire on entry and release on exit, so that what calls did is done when
  /// `close` or `awaitQuiet` returns.
  private let state: Word
  /// Protects nothing but the waits.
  private let lock: Lock
  /// That nobody is inside any more, or that the pause is over.
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

  /// False: closed. Else `leave` is owed, by the same thread.
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

  /// Whoever is inside for long lets a pause pass, where it has nothing under way.
  func giveWay() {
    guard state.pointee.load(ordering: .relaxed) & Gate.pausedBit != 0 else { return }
    ThreadState.stepBack(to: ThreadState.stepAside())
  }

  /// Waits until nobody is inside; who comes is let in still.
  func awaitEmpty() {
    while !Gate.isEmpty(state.pointee.load(ordering: .acquiring)) { usleep(1000) }
  }

  /// Closes, once, and waits until nobody is inside.
  func close() {
    state.pointee.bitwiseOr(Gate.closedBit, ordering: .acquiringAndReleasing)
    lock.lock()
    while !Gate.isEmpty(state.pointee.load(ordering: .acquiring)) { changed.wait(lock) }
    lock.unlock()
  }

  // MARK: fork

  /// Whether all who are inside have stepped aside.
  var isQuiet: Bool { Gate.isQuiet(state.pointee.load(ordering: .acquiring)) }

  func pause() { state.pointee.bitwiseOr(Gate.pausedBit, ordering: .acquiringAndReleasing) }

  /// False: somebody had something to do still when the time was over.
  func awaitQuiet(until end: Deadline) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    while !isQuiet {
      if end.hasPassed { return false }
      // Who steps aside tells nobody.
      changed.wait(lock, nanoseconds: min(end.left, 1_000_000))
    }
    return true
  }

  func resume() {
    state.pointee.bitwiseAnd(~Gate.pausedBit, ordering: .releasing)
    tell()
  }

  /// In the child of a fork: nobody is inside, and it is as open as it was.
  func renew() {
    state.pointee.bitwiseAnd(Gate.closedBit, ordering: .relaxed)
    lock.renew()
    changed.renew()
  }

  // Of a thread that is inside: see ThreadState.

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
