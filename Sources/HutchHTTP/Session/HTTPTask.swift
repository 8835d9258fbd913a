import CHutchHTTP
import CSystem
import Synchronization

/// One request of a host.
///
///     state        wantsToRun  meaning
///     suspended    no          it has not begun, or its transfer is paused
///     running      yes         it waits in a lane, or its transfer runs
///     cancelling   -           it was cancelled, and the thread has not ended it yet
///     ended        -           the result is final
///
/// The state follows from the host's calls at once; what the thread does about it, later. A task
/// that the thread ends goes to `ended` from every other state.
final class HTTPTask {
  let session: Session
  let request: Request
  let forks = Process.forks

  enum State: UInt32 {
    case suspended = 1
    case running, cancelling, ended
  }

  // MARK: under the session's lock

  private(set) var state = State.suspended
  var priority: Int
  /// It is on the session's list of those that want attention.
  var isAttended = false
  var nextAttended: HTTPTask?
  /// The thread that resumes it looks for an answer in memory, see HTTPTask+Here.swift: the
  /// session's thread leaves it alone, whatever is wished meanwhile.
  private(set) var isHeld = false
  /// It has been resumed once, so the session's thread may have begun it.
  private var hasBegun = false
  /// Its index in the session's `tasks`.
  var place = 0
  /// The completion has been made, or waits in its port or queue.
  private(set) var isDelivered = false
  /// Nil until the headers of the final response have come. From then on the response does not
  /// change, but for its body, which others read only when the task has ended.
  private(set) var response: Response?
  private(set) var traffic = Traffic()
  /// These are set when the task ends.
  private(set) var status: Int32 = 0
  private(set) var error = hutch_error()
  private(set) var metrics = Metrics()

  /// The references of the host. Relaxed: only the last one's end counts, and no memory hangs on
  /// it.
  private let hosts = Atomic<Int32>(1)

  /// The host wants the transfer paused; a copy of the state for libcurl's callbacks, which
  /// take no lock for it. Relaxed: the thread's attention follows.
  let isPausing = Atomic<Bool>(false)

  // MARK: the thread's own

  var lane: Lane?
  var nextInLane: HTTPTask?
  var previousInLane: Unmanaged<HTTPTask>?
  var transfer: Transfer?
  /// The library's own: it validates a response that has answered while it was stale.
  var isBehind = false

  /// See HTTPTask+Here.swift.
  private let mayBeAnsweredHere: Bool
  /// No code of the host runs on its behalf: neither a callback of the task, nor a listener of a
  /// cache.
  let isSilent: Bool

  init(_ request: consuming Request, of session: Session, priority: Int) {
    mayBeAnsweredHere = HTTPTask.mayBeAnsweredHere(request, session.configuration)
    isSilent = session.configuration.cache == nil && !request.callsHost
    self.request = request
    self.session = session
    self.priority = priority
  }

  func check() throws(Failure) {
    try Process.check(forks, "the task belongs to the parent of this process")
  }

  /// Calls a function of the host on behalf of the session.
  @inline(__always)
  func calling<R>(_ callback: () -> R) -> R { ThreadState.within(session.identity, callback) }

  var pointer: OpaquePointer { OpaquePointer(Unmanaged.passUnretained(self).toOpaque()) }

  // MARK: references

  func addHost() { hosts.wrappingAdd(1, ordering: .relaxed) }

  /// The host has a reference to it.
  var hasHost: Bool { hosts.load(ordering: .relaxed) > 0 }

  /// A reference of the host is gone: without one, a task that is suspended would wait for ever.
  func removeHost() {
    guard hosts.wrappingSubtract(1, ordering: .relaxed).newValue == 0 else { return }
    session.lock.lock()
    let wakes = state == .suspended && change(to: .cancelling)
    session.lock.unlock()
    if wakes { session.wake() }
  }

  // MARK: wishes

  /// The caller holds the session's lock, and wakes the thread after it if this says so.
  private func change(to new: State) -> Bool {
    state = new
    isPausing.store(new == .suspended, ordering: .relaxed)
    return session.attend(to: self)
  }

  func resume() {
    session.lock.lock()
    let isNews = state == .suspended
    let isHere = isNews && !hasBegun && mayBeAnsweredHere && session.end == nil
    // A task that is held stays so: a callback of the answer may suspend and resume it.
    if isHere { isHeld = true }
    if isNews { hasBegun = true }
    let wakes = isNews && change(to: .running)
    session.lock.unlock()
    if isHere { answerHere() } else if wakes { session.wake() }
  }

  /// The session's thread may have the task: there is no answer in memory.
  func letGo() {
    session.lock.lock()
    isHeld = false
    let wakes = session.attend(to: self)
    session.lock.unlock()
    if wakes { session.wake() }
  }

  /// A session that ends waits for the tasks that run, so none of them stops any more.
  func suspend() {
    session.lock.lock()
    let wakes = state == .running && session.end == nil && change(to: .suspended)
    session.lock.unlock()
    if wakes { session.wake() }
  }

  /// Returns the state before.
  func cancel() -> State {
    session.lock.lock()
    let before = state
    let wakes = (before == .suspended || before == .running) && change(to: .cancelling)
    session.lock.unlock()
    if wakes { session.wake() }
    return before
  }

  func setPriority(_ new: Int) {
    session.lock.lock()
    var wakes = false
    if priority != new, state != .ended {
      priority = new
      wakes = session.attend(to: self)
    }
    session.lock.unlock()
    if wakes { session.wake() }
  }

  /// For a session that ends. The caller is its thread, and holds its lock.
  func cancelForEnd() {
    if state == .suspended || state == .running { _ = change(to: .cancelling) }
  }

  /// The thread has not ended it yet.
  var isCancelled: Bool { session.lock.withLock { state == .cancelling } }

  // MARK: what the thread tells

  func publish(_ response: Response) {
    session.lock.withLock { self.response = response }
  }

  func publish(_ traffic: Traffic) {
    session.lock.withLock { self.traffic = traffic }
  }

  /// The result is final from here on.
  func finish(_ outcome: Outcome, _ metrics: Metrics) {
    var error = hutch_error()
    if let failure = outcome.failure, outcome.status < 0 {
      error.status = outcome.status
      error.system_error = failure.system
      withUnsafeMutableBytes(of: &error.words) {
        ThreadState.compose(failure, outcome.detail?.start, into: $0)
      }
    }
    session.lock.withLock {
      // A cancel that found the task running has its effect, however far the task has come.
      let isTooLate = state == .cancelling
      if isTooLate { error = hutch_error() }
      state = .ended
      isHeld = false
      status = isTooLate ? Status.cancelled.code : outcome.status
      self.error = error
      self.metrics = metrics
    }
  }

  /// The caller holds the session's lock.
  func setDelivered() { isDelivered = true }
}

/// How a task ended.
struct Outcome {
  var status: Int32
  /// With a status below 0.
  var failure: Failure?
  /// libcurl's words.
  var detail: Text?

  static var done: Outcome { Outcome(status: 0) }
  static var cancelled: Outcome { Outcome(status: Status.cancelled.code) }
  static func failed(_ failure: Failure, _ detail: Text? = nil) -> Outcome {
    Outcome(status: failure.status.code, failure: failure, detail: detail)
  }
}
