import CSystem
import Synchronization

/// The keys, cut into 64 slices by hash: the unit of write order (see WriteOrder).
///
/// A stripe's lock is held while a write's version is drawn, the memory tier changed and the
/// write submitted to the store: so memory and store see the writes of a key in one order.
/// It is taken before any lock of a tier, never while a commit is awaited, and several at
/// once (a clear) only in ascending order. A block whose last reference is released under it is
/// freed when the thread holds no stripe any more (EndedBlocks).
///
/// THE WORD of a stripe tells readers, which take no lock, what writers do. Its low 24 bits count
/// writes that are submitted and not yet committed ('pending'); bit 24 is odd while a write stands
/// between its change of memory and its submission; the bits above count what has ever happened.
///
///   step        by                          pending  bit 24  count  lock
///   beginChange a write, before memory         .       1       .    held
///   endChange   that write is submitted        .       0      +1    held
///   endChange   that write is submitted, and   +1      0      +1    held
///               the store owes its commit
///   beginWrite  a write that does not change   +1      .      +1    held
///               memory first submits
///   beginWrite  a dirty entry leaves memory    +1      .      +1    not held: its shard's lock is
///   endWrite    a write's commit is over       -1      .       .    not held
///   noteChange  the store, or a removal        .       .      +1    held
///               without a commit, changed
///               what a read could find
///
/// From a word that it has read before, a reader learns:
///   pending is 0, and the word is the same now   nothing of the stripe has changed: the store's
///                                                 entry may be promoted
///   bit 24 is set                                 memory may be newer than the store: wait for
///                                                 the lock, once, before the store is read
///   the bits from 24 up are the same now          no write has been submitted in between: that
///                                                 memory and store had nothing holds for both
struct Stripes: ~Copyable {
  static let count = 64

  /// A stripe's word, as it was when it was read.
  struct State: Equatable {
    fileprivate let word: UInt64
    private static let pending: UInt64 = inChange - 1
    fileprivate static let inChange: UInt64 = 1 << 24
    fileprivate static let oneChange: UInt64 = inChange * 2
    /// All but the number of pending writes.
    fileprivate static let history: UInt64 = ~pending

    /// Whether no write has been submitted since `other`.
    func hasNoWrite(since other: State) -> Bool {
      word & State.history == other.word & State.history
    }
    var hasNothingPending: Bool { word & State.pending == 0 }
    /// Whether a write is under way that may have changed memory, and is not yet submitted to the
    /// store.
    fileprivate var isInChange: Bool { word & State.inChange != 0 }
  }

  /// A cache line each: the lock, the word, and under the lock the version of `undecided`. Changes
  /// of the word release: a reader that sees a write ended sees what the write did.
  private static let stride = 64
  private static let wordOffset = 48
  private static let undecidedOffset = 56
  private let base: UnsafeMutableRawPointer

  init() throws(Failure) {
    guard let base = aligned_alloc(Stripes.stride, Stripes.stride * Stripes.count) else {
      throw .noMemory
    }
    self.base = base
    for index in 0..<Stripes.count {
      pthread_mutex_init(mutex(index), nil)
      (base + (index * Stripes.stride + Stripes.wordOffset))
        .bindMemory(to: Atomic<UInt64>.self, capacity: 1).initialize(to: Atomic(0))
      setUndecided(index, 0)
    }
  }

  deinit {
    for index in 0..<Stripes.count { pthread_mutex_destroy(mutex(index)) }
    free(base)
  }

  private func mutex(_ index: Int) -> UnsafeMutablePointer<pthread_mutex_t> {
    (base + index * Stripes.stride).assumingMemoryBound(to: pthread_mutex_t.self)
  }

  @inline(__always)
  static func index(of hash: UInt64) -> Int { Int(truncatingIfNeeded: hash &>> 32) & (count - 1) }

  @inline(__always)
  private func word(_ index: Int) -> UnsafeMutablePointer<Atomic<UInt64>> {
    (base + (index * Stripes.stride + Stripes.wordOffset))
      .assumingMemoryBound(to: Atomic<UInt64>.self)
  }

  /// The version of the stripe's newest write whose condition the store had yet to decide when it
  /// was submitted; 0: there is none, or it is known to be decided. The stripe is held.
  func undecided(_ index: Int) -> UInt64 {
    base.load(fromByteOffset: index * Stripes.stride + Stripes.undecidedOffset, as: UInt64.self)
  }

  func setUndecided(_ index: Int, _ version: UInt64) {
    base.storeBytes(
      of: version, toByteOffset: index * Stripes.stride + Stripes.undecidedOffset, as: UInt64.self)
  }

  @inline(never)
  func lock(_ index: Int) {
    pthread_mutex_lock(mutex(index))
    noteLocked()
  }

  @inline(never)
  func unlock(_ index: Int) {
    ThreadState.countLocks(-1)
    pthread_mutex_unlock(mutex(index))
    EndedBlocks.letStripeGo()
  }

  func tryLock(_ index: Int) -> Bool {
    guard pthread_mutex_trylock(mutex(index)) == 0 else { return false }
    noteLocked()
    return true
  }

  /// Runs a step with the stripe held. If the step fails, the stripe is unlocked.
  @inline(__always)
  func holding<R: ~Copyable>(
    _ index: Int, _ step: () throws(Failure) -> R
  ) throws(Failure) -> R {
    do throws(Failure) {
      return try step()
    } catch {
      unlock(index)
      throw error
    }
  }

  private func noteLocked() {
    ThreadState.countLocks(1)
    EndedBlocks.holdsStripe()
  }

  // MARK: fork

  /// Takes all, ascending. False: not in time, and none.
  func lockAll(until end: Deadline) -> Bool {
    for index in 0..<Stripes.count {
      // All of them are few; one that is free costs no look at the clock.
      if tryLock(index) { continue }
      guard lockMutex(mutex(index), until: end) else {
        for taken in 0..<index { unlock(taken) }
        return false
      }
      EndedBlocks.holdsStripe()
    }
    return true
  }

  /// Takes all, ascending.
  @inline(never)
  func lockAll() { for index in 0..<Stripes.count { lock(index) } }

  @inline(never)
  func unlockAll() { for index in (0..<Stripes.count).reversed() { unlock(index) } }

  func state(_ index: Int) -> State {
    State(word: word(index).pointee.load(ordering: .acquiring))
  }

  /// The state for a reader that has found nothing in memory and is about to read the store, once
  /// no write stands between the two. No stripe is held.
  @inline(__always)
  func stableState(_ index: Int) -> State {
    while true {
      let state = self.state(index)
      if !awaitsChange(index, state) { return state }
    }
  }

  /// Whether, when `state` was read, a write was between its change of memory and its submission.
  /// What memory has from it may have been seen by then, and have left memory again, and the store
  /// would show an older state. Then it has been waited for.
  @inline(__always)
  private func awaitsChange(_ index: Int, _ state: State) -> Bool {
    if !state.isInChange { return false }
    lock(index)
    unlock(index)
    return true
  }

  /// A write is about to change memory. Under the lock; `endChange` is owed under the same.
  func beginChange(_ index: Int) {
    _ = word(index).pointee.wrappingAdd(State.inChange, ordering: .acquiringAndReleasing)
  }

  /// That write has submitted what it had to, if anything. `isPending`: its commit is to come, and
  /// `endWrite` is owed.
  func endChange(_ index: Int, isPending: Bool = false) {
    _ = word(index).pointee.wrappingAdd(
      State.inChange + (isPending ? 1 : 0), ordering: .acquiringAndReleasing)
  }

  /// A write is submitted. `endWrite` is owed.
  func beginWrite(_ index: Int) {
    _ = word(index).pointee.wrappingAdd(State.oneChange + 1, ordering: .acquiringAndReleasing)
  }

  /// A write's commit is over.
  func endWrite(_ index: Int) {
    _ = word(index).pointee.wrappingSubtract(1, ordering: .releasing)
  }

  /// The answer of a read has changed without a commit. Under the lock.
  func noteChange(_ index: Int) {
    _ = word(index).pointee.wrappingAdd(State.oneChange, ordering: .acquiringAndReleasing)
  }

  /// Whether a reader that found nothing in memory, and then nothing in the store, may say so,
  /// having read `state` before: no write of the stripe has come between. Else waits for the write
  /// that is being submitted, if there is one. No stripe is held.
  func isSettled(_ index: Int, since state: State) -> Bool {
    let now = self.state(index)
    return !awaitsChange(index, now) && now.hasNoWrite(since: state)
  }
}
