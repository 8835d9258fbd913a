import CSystem
import Synchronization

/// One background thread that calls a function again and again: at once while the function
/// says that there is more to do, else after a pause.
///
/// The thread is made by `start`, has all signals blocked, and is gone when `stop` returns.
/// It keeps nothing alive: who owns the maintainer stops it before what `work` uses goes.
final class Maintainer {
  typealias Work = (UnsafeMutableRawPointer) -> Bool

  private let work: Work
  private let context: UnsafeMutableRawPointer
  private let pause: Int64
  private var thread = pthread_t()
  /// Protects `isStopping`, `isRunning` and `isWanted`. No other lock is taken under it.
  private let lock: Lock
  private let changed: Condition
  private var isStopping = false
  private var isRunning = false
  /// Somebody has work: no pause before the next round.
  private var isWanted = false

  /// `work` is called with `context`, about every `pause` nanoseconds.
  init(
    pause: Int64, context: UnsafeMutableRawPointer, work: @escaping Work
  ) throws(Failure) {
    self.work = work
    self.context = context
    self.pause = pause
    lock = try Lock()
    changed = try Condition()
  }

  deinit { stop() }

  /// Makes the thread, if it is not there.
  func start() throws(Failure) {
    lock.lock()
    defer { lock.unlock() }
    guard !isRunning, !isStopping else { return }
    // A new thread inherits the mask: the host's signals are the host's business.
    var all = sigset_t()
    var before = sigset_t()
    sigfillset(&all)
    pthread_sigmask(SIG_SETMASK, &all, &before)
    let code = pthread_create(
      &thread, nil,
      { context in
        Unmanaged<Maintainer>.fromOpaque(context!)._withUnsafeGuaranteedRef { $0.run() }
        return nil
      },
      Unmanaged.passUnretained(self).toOpaque())
    pthread_sigmask(SIG_SETMASK, &before, nil)
    guard code == 0 else { throw .system("cannot make a thread", errno: code) }
    pthread_setname_np(thread, "hutch")
    isRunning = true
  }

  /// Ends the pause, or has no next one.
  func wake() {
    lock.withLock { isWanted = true }
    changed.signal()
  }

  /// Waits for the end of the work under way, and for the thread's. For ever.
  func stop() {
    lock.lock()
    isStopping = true
    let mustJoin = isRunning
    isRunning = false
    lock.unlock()
    guard mustJoin else { return }
    changed.signal()
    pthread_join(thread, nil)
  }

  private func run() {
    lock.lock()
    while !isStopping {
      isWanted = false
      lock.unlock()
      let hasMore = work(context)
      lock.lock()
      if !hasMore && !isStopping && !isWanted { changed.wait(lock, nanoseconds: pause) }
    }
    lock.unlock()
  }
}
