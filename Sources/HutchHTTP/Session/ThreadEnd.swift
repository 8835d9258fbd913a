import CSystem

/// The end of a thread that uses libcurl: a call that has waited for the thread's work joins it.
///
/// libcrypto frees what it keeps for a thread when the thread ends, and at the exit of the process
/// for all threads. The two do not exclude each other, so a thread that is ending while the process
/// exits may free the same memory twice. A host that has waited for a session, or has stopped a
/// monitor, may return from `main` at once: by then the thread is not there any more.
///
/// The owner's lock protects it, but for `join`.
struct ThreadEnd: ~Copyable {
  /// Nil: it has not begun, it has been left alone, or a call joins it or has.
  private var thread: pthread_t?
  private var isJoining = false

  mutating func begin(_ thread: pthread_t) { self.thread = thread }

  /// True while a call joins the thread: other calls wait until it has.
  var isUnderWay: Bool { isJoining }

  /// The thread to join, for the one call that does; it owes `noteJoined`.
  mutating func takeToJoin() -> pthread_t? {
    guard let thread else { return nil }
    self.thread = nil
    isJoining = true
    return thread
  }

  mutating func noteJoined() { isJoining = false }

  /// No call will join the thread.
  mutating func leave() {
    if let thread { pthread_detach(thread) }
    thread = nil
  }
}
