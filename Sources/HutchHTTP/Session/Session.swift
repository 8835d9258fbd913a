// A session is one thread with one libcurl multi handle. Only that thread calls libcurl for the
// session's transfers, so libcurl's data has no lock.
//
// Other threads change a task's wishes under the session's lock, put the task on the list of those
// that want attention, and wake the thread. The thread takes the list, and makes of it what is to
// be done: a task starts, pauses, continues or ends. So each callback of the host is made by the
// session's thread, without a lock, between two steps of libcurl or within one.
//
//     HTTPTask   what the host holds: wishes, state, and the result; under the session's lock
//     Transfer   a task that has begun, with its easy handle; only the session's thread has it
//     Sockets    the multi handle, and what the thread waits for: sockets, a time, other threads
//
// A session refers to each of its tasks until the task has made its completion. The thread refers
// to the session until it ends.

import CCurl
import CHutchHTTP
import CSystem

final class Session {
  let configuration: Configuration
  let forks = Process.forks
  /// Other threads use it for `wake` only.
  let sockets: Sockets
  /// Cookies and TLS sessions of all transfers; the thread's. Nil when it has ended.
  private(set) var share: UnsafeMutableRawPointer?
  /// Has no threads: the session's thread runs it to leave completions in ports.
  let portQueue: OpaquePointer

  /// Protects what follows, and what HTTPTask says. No other lock is taken under it, and no
  /// callback is made.
  let lock: Lock
  /// Signals that a task has ended, or the session.
  let changed: Condition
  /// Every task that has not made its completion: a counted reference to each.
  var tasks = GrowingArray<Unmanaged<HTTPTask>>()
  /// The tasks that want attention, in the order in which they came, linked by `nextAttended`.
  var attended: HTTPTask?
  private var lastAttended: Unmanaged<HTTPTask>?
  /// How the host ended the session; nil: it has not.
  var end: End?
  /// The thread has ended, or is about to and does nothing more.
  var isOver = false
  let threadEnd = ThreadEnd()

  enum End {
    case finish, cancel
  }

  // MARK: the thread's own

  /// The tasks that wait for their turn, by priority: low, default, high.
  let lanes = (Lane(), Lane(), Lane())
  /// The transfers that run.
  var transfers = GrowingArray<Unmanaged<Transfer>>()
  /// Transfers that the cache lets continue, in the order in which they came, linked by
  /// `nextReady`: there is always memory for one more.
  var ready: Transfer?
  private var lastReady: Unmanaged<Transfer>?
  /// The transfers whose response others wait for; see Transfer+Flight.swift.
  var leaders = GrowingArray<Unmanaged<Transfer>>()
  /// A request has been made and has ended, so there may be a connection that no request uses.
  var mayHaveIdle = false
  /// A task has ended since the thread looked for something to do.
  var hasEnded = false
  /// Tasks have ended whose waiters have not been woken: see `readResults`.
  var owesSignal = false
  /// It submits a completion to libhutch.
  var isSubmitting = false
  /// When the timeouts are looked at next; CLOCK_MONOTONIC.
  var nextCheck = Int64.max

  convenience init(_ configuration: consuming Configuration) throws(Failure) {
    let lock = Lock()
    let changed = Condition()
    let library = try Library.prepare(for: configuration)
    self.init(configuration, lock, changed, library)
  }

  private init(
    _ configuration: consuming Configuration, _ lock: consuming Lock,
    _ changed: consuming Condition, _ library: Library
  ) {
    self.configuration = configuration
    self.lock = lock
    self.changed = changed
    sockets = library.sockets
    share = library.share
    portQueue = library.queue
    Process.watchForks()
  }

  deinit {
    close()
    hutch_queue_release(portQueue)
  }

  /// Closes the connections. The thread calls it when it has ended all tasks.
  func close() {
    sockets.close()
    if let share { curl_share_cleanup(share) }
    share = nil
  }

  /// The owner of the session's callbacks.
  var identity: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

  func check() throws(Failure) {
    try Process.check(forks, "the session belongs to the parent of this process")
  }

  // MARK: calls of the host

  /// Adds a new task, which is suspended.
  func add(_ task: HTTPTask) throws(Failure) {
    try lock.withLock { () throws(Failure) in
      guard end == nil else { throw Failure(.closed, "the session has been ended") }
      task.place = tasks.count
      try tasks.append(Unmanaged.passUnretained(task))
      _ = Unmanaged.passRetained(task)
    }
  }

  func end(_ how: End) {
    lock.lock()
    let isNews = end != .cancel && end != how
    if isNews { end = how }
    lock.unlock()
    if isNews { wake() }
  }

  /// Makes the thread look at a task. The caller holds the lock. True: the caller wakes the thread
  /// once it has let the lock go. With a task on the list before, an earlier caller does: the
  /// thread takes the whole list.
  func attend(to task: HTTPTask) -> Bool {
    guard !task.isAttended, !task.isHeld, task.state != .ended else { return false }
    task.isAttended = true
    let isFirst = attended == nil
    if isFirst {
      attended = task
    } else {
      lastAttended?.takeUnretainedValue().nextAttended = task
    }
    lastAttended = Unmanaged.passUnretained(task)
    return isFirst
  }

  /// The thread is to continue a transfer.
  func letContinue(_ transfer: Transfer) {
    transfer.isReady = true
    if ready == nil {
      ready = transfer
    } else {
      lastReady?.takeUnretainedValue().nextReady = transfer
    }
    lastReady = Unmanaged.passUnretained(transfer)
  }

  func wake() { sockets.wake() }

  /// Waits until `isDone`, which is asked with the lock held.
  func wait(_ timeout: Int64, until isDone: () -> Bool) throws(Failure) -> Status {
    lock.lock()
    defer { lock.unlock() }
    if isDone() { return .done }
    if timeout == 0 { return .wouldBlock }
    guard !ThreadState.isWithinCallback(of: identity) else {
      throw Failure(.deadlock, "a callback of the session would wait for itself")
    }
    let deadline = Deadline(after: timeout)
    while !isDone() {
      let left = deadline.left
      if left == 0 { throw Failure(.timedOut, "the wait took too long") }
      changed.wait(lock, nanoseconds: left)
    }
    return .done
  }
}

/// The host's references to a session. The thread refers to the session, so without these it would
/// never end.
final class SessionHandle {
  let session: Session
  init(_ session: Session) { self.session = session }
  deinit { session.release() }
}
