import Synchronization

/// Lets calls in until it is closed, then waits for those inside to leave.
struct Gate: ~Copyable {
  private static let closedBit: UInt64 = 1 << 63

  /// The number of calls inside, and the closed bit. Acquire on entry and release on exit,
  /// so that what calls did is done when `close` returns.
  private let state: Atomic<UInt64>
  /// Protects nothing but the wait in `close`.
  private let lock: Lock
  private let emptied: Condition

  init() throws(Failure) {
    let lock = try Lock()
    let emptied = try Condition()
    state = Atomic(0)
    self.lock = lock
    self.emptied = emptied
  }

  /// False: closed. Else `leave` is owed.
  func enter() -> Bool {
    let before = state.wrappingAdd(1, ordering: .acquiring).oldValue
    if before & Gate.closedBit == 0 { return true }
    leave()
    return false
  }

  func leave() {
    let after = state.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue
    if after == Gate.closedBit {
      lock.withLock {}
      emptied.broadcast()
    }
  }

  /// Closes, once, and waits until nobody is inside.
  func close() {
    state.bitwiseOr(Gate.closedBit, ordering: .acquiringAndReleasing)
    lock.lock()
    while state.load(ordering: .acquiring) != Gate.closedBit { emptied.wait(lock) }
    lock.unlock()
  }
}
