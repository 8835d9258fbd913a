import CSystem

/// The end of a thread that uses libcurl: a call that has waited for the thread's work joins it.
///
/// libcrypto frees what it keeps for a thread when the thread ends, and at the exit of the process
/// for all threads, if the host was the first to initialise it (hutch_curl_init). The two do not
/// exclude each other, so a thread that is ending while the process exits may free the same memory
/// twice. A host that has waited for a session, or has stopped a monitor, may return from `main` at
/// once: by then the thread is not there any more.
///
/// Its calls are thread-safe.
final class ThreadEnd {
  /// Protects the thread. Held while the thread is joined, so that a second call waits for the
  /// first one; the thread that ends does not take it.
  private let lock = Lock()
  /// Nil: it has not begun, it has been joined, or no call will join it.
  private var thread: pthread_t?

  func begin(_ thread: pthread_t) { lock.withLock { self.thread = thread } }

  /// Waits until the thread has ended, unless it has been left. Its work is done.
  func join() {
    lock.withLock {
      if let thread { pthread_join(thread, nil) }
      thread = nil
    }
  }

  /// No call will join the thread.
  func leave() {
    lock.withLock {
      if let thread { pthread_detach(thread) }
      thread = nil
    }
  }
}
