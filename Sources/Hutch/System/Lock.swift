import CSystem
import Synchronization

extension timespec {
  /// The time of a clock when so many nanoseconds, not below 0, will have passed.
  @inline(never)
  fileprivate init(_ clock: Int32, in nanoseconds: Int64) {
    self.init()
    let end = Deadline.sum(Clock.read(clock), nanoseconds)
    tv_sec = Int(end / 1_000_000_000)
    tv_nsec = Int(end % 1_000_000_000)
  }
}

/// Takes a mutex unless that takes longer. (The call wants a time of the wall clock, so if that
/// clock jumps, the bound moves with it.)
@inline(never)
func lockMutex(
  _ mutex: UnsafeMutablePointer<pthread_mutex_t>, until end: Deadline
) -> Bool {
  if pthread_mutex_trylock(mutex) != 0 {
    var until = timespec(CLOCK_REALTIME, in: min(end.left, 3600_000_000_000))
    guard pthread_mutex_timedlock(mutex, &until) == 0 else { return false }
  }
  ThreadState.countLocks(1)
  return true
}

/// A mutual exclusion lock: pthread_mutex_t, which ThreadSanitizer sees. It lies in its owner, so
/// to make one cannot fail. Until it is used for the first time it may be moved: glibc's mutex has
/// no address of itself. Its owner documents the order of locks and what the lock protects.
@_rawLayout(like: pthread_mutex_t)
struct Lock: ~Copyable {
  @inline(__always)
  private var mutex: UnsafeMutablePointer<pthread_mutex_t> {
    withUnsafePointer(to: self) {
      UnsafeMutableRawPointer(mutating: $0).assumingMemoryBound(to: pthread_mutex_t.self)
    }
  }

  init() { renew() }

  /// Also in the child of a fork, for a lock that a thread of the parent may hold: it is free then.
  @inline(never)
  func renew() {
    // Neither call can fail: glibc's attributes are plain memory of the caller.
    var attributes = pthread_mutexattr_t()
    pthread_mutexattr_init(&attributes)
    pthread_mutexattr_settype(&attributes, Int32(PTHREAD_MUTEX_ADAPTIVE_NP))
    pthread_mutex_init(mutex, &attributes)
    pthread_mutexattr_destroy(&attributes)
  }

  deinit { pthread_mutex_destroy(mutex) }

  @inline(__always)
  func lock() {
    pthread_mutex_lock(mutex)
    ThreadState.countLocks(1)
  }

  @inline(__always)
  func unlock() {
    ThreadState.countLocks(-1)
    pthread_mutex_unlock(mutex)
  }

  @inline(__always)
  func tryLock() -> Bool {
    guard pthread_mutex_trylock(mutex) == 0 else { return false }
    ThreadState.countLocks(1)
    return true
  }

  @inline(__always)
  func withLock<R: ~Copyable, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
    lock()
    defer { unlock() }
    return try body()
  }

  /// False: the lock was not free in time.
  func lock(until end: Deadline) -> Bool { lockMutex(mutex, until: end) }

  fileprivate var address: UnsafeMutablePointer<pthread_mutex_t> { mutex }
}

/// A lock in the memory of its owner, beside what it protects: one cache line to fetch. A thread
/// holds it for some hundred nanoseconds, and contention is rare. To take it is one atomic
/// exchange, to release it a plain store, where a pthread_mutex_t takes two exchanges and two
/// calls.
///
/// Nothing orders that store before the load of `waiters`, so a thread that releases the lock may
/// miss one that goes to sleep in the same few nanoseconds. The clock makes up for that: no sleep
/// is longer than a fraction of a millisecond. Sleeps are rare: one takes a holder whose thread was
/// stopped.
struct LockInPlace {
  static let byteCount = 8
  private static let longestSleep: Int64 = 200_000

  /// 0: free. Acquire to take it, release to give it up.
  private let held: UnsafeMutablePointer<Atomic<UInt32>>

  /// The number of threads that sleep, or are about to.
  @inline(__always)
  private var waiters: UnsafeMutablePointer<Atomic<UInt32>> { held + 1 }

  /// `address` has room for `byteCount` bytes and is 8-byte aligned.
  @inline(__always)
  init(at address: UnsafeMutableRawPointer) {
    held = address.assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  /// Called once, before the first use.
  func initialize() {
    held.initialize(to: Atomic(0))
    waiters.initialize(to: Atomic(0))
  }

  /// One instruction tests the bit and sets it.
  @inline(__always)
  func take() -> Bool {
    held.pointee.bitwiseOr(1, ordering: .acquiring).oldValue & 1 == 0
  }

  @inline(__always)
  func lock() {
    if _slowPath(!take()) { lockSlowly() }
    ThreadState.countLocks(1)
  }

  @inline(__always)
  func tryLock() -> Bool {
    guard take() else { return false }
    ThreadState.countLocks(1)
    return true
  }

  @inline(__always)
  func unlock() { if _slowPath(release()) { wake() } }

  /// The first step of `unlock`. True: threads sleep, and the next step is `wake`.
  @inline(__always)
  func release() -> Bool {
    ThreadState.countLocks(-1)
    held.pointee.store(0, ordering: .releasing)
    hutch_compiler_fence()
    return waiters.pointee.load(ordering: .relaxed) != 0
  }

  @inline(__always)
  func withLock<R>(_ body: () -> R) -> R {
    lock()
    defer { unlock() }
    return body()
  }

  /// Whether threads sleep for the lock.
  var isAwaited: Bool { waiters.pointee.load(ordering: .relaxed) != 0 }

  /// As `unlock`, for a thread that soon takes the lock again. A thread that sleeps takes some
  /// microseconds to wake, by when this thread would have the lock, again and again. So if threads
  /// sleep, this call returns when one of them has the lock, or has had the time to take it.
  @inline(never)
  func unlockFairly() {
    unlock()
    var turns = 0
    while turns < 256 && isAwaited && held.pointee.load(ordering: .relaxed) == 0 {
      sched_yield()
      turns += 1
    }
  }

  @inline(never)
  func wake() { hutch_futex_wake_one(held) }

  /// Waits for the lock, which another thread has.
  @inline(never)
  func lockSlowly() {
    // Some 8 microseconds, about as long as a slice of a trim: to sleep and to wake takes longer.
    for _ in 0..<256 {
      hutch_spin_pause()
      if held.pointee.load(ordering: .relaxed) == 0 && take() { return }
    }
    // Before the next look at the word.
    waiters.pointee.wrappingAdd(1, ordering: .acquiringAndReleasing)
    while !take() { hutch_futex_wait(held, 1, LockInPlace.longestSleep) }
    waiters.pointee.wrappingSubtract(1, ordering: .relaxed)
  }

  /// Like that of `Lock`.
  func lock(until end: Deadline) -> Bool {
    while !tryLock() {
      if end.hasPassed { return false }
      hutch_futex_wait(held, 1, LockInPlace.longestSleep)
    }
    return true
  }

  /// In the child of a fork, which has no other thread.
  func forgetWaiters() { waiters.pointee.store(0, ordering: .relaxed) }
}

/// A condition variable on CLOCK_MONOTONIC.
///
/// The condition variables of glibc 2.27 to 2.40 may lose a signal that comes while other threads
/// begin to wait (glibc's bug 25847). A thread that sleeps without an end would then sleep for
/// good. So no sleep is longer than ten seconds, and a thread that wakes looks again at what it
/// waits for.
@_rawLayout(like: pthread_cond_t)
struct Condition: ~Copyable {
  @inline(__always)
  private var condition: UnsafeMutablePointer<pthread_cond_t> {
    withUnsafePointer(to: self) {
      UnsafeMutableRawPointer(mutating: $0).assumingMemoryBound(to: pthread_cond_t.self)
    }
  }

  init() { renew() }

  /// In the child of a fork: no thread waits.
  @inline(never)
  func renew() {
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(condition, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit { pthread_cond_destroy(condition) }

  private static var longestSleep: Int64 { 10_000_000_000 }

  /// The caller holds the lock before and after. A wake may be spurious.
  func wait(_ lock: borrowing Lock) { wait(lock, nanoseconds: Condition.longestSleep) }

  /// Like `wait`, for at most this many nanoseconds.
  @inline(never)
  func wait(_ lock: borrowing Lock, nanoseconds: Int64) {
    var until = timespec(CLOCK_MONOTONIC, in: min(nanoseconds, Condition.longestSleep))
    pthread_cond_timedwait(condition, lock.address, &until)
  }

  func signal() { pthread_cond_signal(condition) }
  func broadcast() { pthread_cond_broadcast(condition) }
}
