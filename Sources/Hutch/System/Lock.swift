import CSystem

/// A mutual exclusion lock: pthread_mutex_t at an address of its own, where
/// ThreadSanitizer sees it. Says nothing of order; who owns one says what it protects.
struct Lock: ~Copyable {
  private let mutex: UnsafeMutablePointer<pthread_mutex_t>

  init() throws(Failure) {
    mutex = try Allocation.one(pthread_mutex_t.self)
    // Cannot fail with default attributes.
    pthread_mutex_init(mutex, nil)
  }

  deinit {
    pthread_mutex_destroy(mutex)
    free(mutex)
  }

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

  fileprivate var address: UnsafeMutablePointer<pthread_mutex_t> { mutex }
}

/// A lock whose memory is its owner's, beside what it protects: one cache line to fetch.
struct LockInPlace {
  static let byteCount = MemoryLayout<pthread_mutex_t>.size

  private let mutex: UnsafeMutablePointer<pthread_mutex_t>

  /// `address` has room for `byteCount` bytes and is 8-byte aligned.
  @inline(__always)
  init(at address: UnsafeMutableRawPointer) {
    mutex = address.assumingMemoryBound(to: pthread_mutex_t.self)
  }

  /// Once, before anybody uses it.
  func initialize() { pthread_mutex_init(mutex, nil) }
  func destroy() { pthread_mutex_destroy(mutex) }

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
}

/// A condition variable on CLOCK_MONOTONIC.
struct Condition: ~Copyable {
  private let condition: UnsafeMutablePointer<pthread_cond_t>

  init() throws(Failure) {
    condition = try Allocation.one(pthread_cond_t.self)
    var attributes = pthread_condattr_t()
    pthread_condattr_init(&attributes)
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
    pthread_cond_init(condition, &attributes)
    pthread_condattr_destroy(&attributes)
  }

  deinit {
    pthread_cond_destroy(condition)
    free(condition)
  }

  /// The lock is held before and after; wakes may be spurious.
  func wait(_ lock: borrowing Lock) { pthread_cond_wait(condition, lock.address) }

  /// As `wait`, for at most this many nanoseconds.
  func wait(_ lock: borrowing Lock, nanoseconds: Int64) {
    var until = timespec()
    clock_gettime(CLOCK_MONOTONIC, &until)
    let fraction = Int64(until.tv_nsec) + nanoseconds % 1_000_000_000
    until.tv_sec += Int(nanoseconds / 1_000_000_000 + fraction / 1_000_000_000)
    until.tv_nsec = Int(fraction % 1_000_000_000)
    pthread_cond_timedwait(condition, lock.address, &until)
  }

  func signal() { pthread_cond_signal(condition) }
  func broadcast() { pthread_cond_broadcast(condition) }
}
