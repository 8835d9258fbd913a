// A monitor is one thread, which waits for the kernel's notices and tells the host each new state.
//
//     Routes    the netlink sockets: notices of changes, and the route to the internet
//     Probe     the connection to a host, by libcurl
//     Monitor   the thread, and what the host sees of it
//
// A notice says only that something has changed. The thread then asks for the whole again: notices
// may be lost when many come, and the kernel does not announce every route that a link takes with
// it.

import CCurl
import CHutchHTTP
import CSystem

final class Monitor {
  enum State: UInt32 {
    case unknown, unreachable, reachable
  }

  /// What a monitor is made with.
  struct Plan {
    /// The URL to connect to; nil: the route to the internet decides.
    var url: Text?
    /// Nanoseconds.
    var timeout: Int64
    var interval: Int64
    let tell: hutch_http_on_reachability?
    let context: UnsafeMutableRawPointer?
    let release: hutch_release?
  }

  let forks = Process.forks
  private let plan: Plan
  /// Of libcurl. Other threads use it for `curl_multi_wakeup` only.
  private let multi: UnsafeMutableRawPointer

  /// Protects what follows. No other lock is taken under it, and no callback is made.
  private let lock: Lock
  /// Signals that `isOver` is set.
  private let changed: Condition
  private var state = State.unknown
  private var isStopped = false
  /// The thread makes no callback any more, and has given the context back.
  private var isOver = false
  /// When it was over, libcurl still had a probe, whose end may take a while: no call waits for it.
  private var leavesProbe = false
  private let threadEnd = ThreadEnd()

  // MARK: the thread's own

  private let routes: Routes
  private var probe: Probe?
  /// When the next probe begins, or the current one fails.
  private var next = Deadline(at: Int64.max)

  private init(
    _ plan: Plan, _ lock: consuming Lock, _ changed: consuming Condition, _ routes: Routes,
    _ multi: UnsafeMutableRawPointer
  ) {
    self.lock = lock
    self.changed = changed
    self.routes = routes
    self.multi = multi
    self.plan = plan
    Process.watchForks()
  }

  convenience init(_ plan: Plan) throws(Failure) {
    let lock = Lock()
    let changed = Condition()
    let routes = try Routes()
    guard hutch_curl_init() == CURLE_OK, let multi = curl_multi_init() else { throw .noMemory }
    self.init(plan, lock, changed, routes, multi)
  }

  deinit { curl_multi_cleanup(multi) }

  /// The owner of the callbacks.
  private var identity: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

  // MARK: calls of the host

  func start() throws(Failure) {
    let thread = try OwnedThread.make("hutch-reach", of: self) { context in
      OwnedThread.run(context, Monitor.self) { $0.run() }
    }
    threadEnd.begin(thread)
  }

  var lastState: State { lock.withLock { state } }

  /// Ends the thread. Returns when it has ended, or makes no callback any more and still has a
  /// probe; at once within a callback.
  func stop() {
    lock.withLock { isStopped = true }
    _ = curl_multi_wakeup(multi)
    if ThreadState.isWithinCallback(of: identity) { return }
    let leavesProbe = lock.withLock {
      while !isOver { changed.wait(lock) }
      return self.leavesProbe
    }
    if !leavesProbe { threadEnd.join() }
  }

  /// The host has let the monitor go.
  func release() {
    stop()
    threadEnd.leave()
  }

  // MARK: the thread

  private func run() {
    look()
    while !lock.withLock({ isStopped }) {
      var waiting = curl_waitfd(fd: routes.notices, events: Int16(CURL_WAIT_POLLIN), revents: 0)
      let left = min(next.left, 3_600_000_000_000)
      curl_multi_poll(multi, &waiting, 1, Int32((left + 999_999) / 1_000_000), nil)
      if routes.haveChanged() {
        look()
      } else {
        proceed()
      }
    }
    ThreadState.give(plan.context, back: plan.release, of: identity)
    lock.withLock {
      leavesProbe = probe != nil
      isOver = true
    }
    changed.broadcast()
    probe = nil
  }

  /// Finds out the state again.
  private func look() {
    if plan.url == nil {
      tell(routes.lead())
    } else {
      begin()
    }
  }

  private func begin() {
    probe = nil
    do throws(Failure) {
      probe = try Probe(of: plan.url!, in: multi)
      next = Deadline(after: plan.timeout)
      proceed()
    } catch {
      end(.unknown)
    }
  }

  /// Continues the probe, or begins the next one if its time has come.
  private func proceed() {
    if probe == nil {
      if next.hasPassed { begin() }
    } else if let isConnected = Probe.result(in: multi) {
      end(isConnected ? .reachable : .unreachable)
    } else if next.hasPassed {
      end(.unreachable)
    }
  }

  private func end(_ state: State) {
    probe = nil
    next = Deadline(after: plan.interval)
    tell(state)
  }

  private func tell(_ found: State) {
    let isNews = lock.withLock {
      // Unknown is no news at first.
      guard !isStopped, found != state else { return false }
      state = found
      return true
    }
    guard isNews, let tell = plan.tell else { return }
    ThreadState.within(identity) { tell(plan.context, found.rawValue) }
  }
}

/// The host's references to a monitor. The thread refers to the monitor, so without these it would
/// never end.
final class MonitorHandle: HostHandle {
  static var isMissing: StaticString { "the monitor is NULL" }
  let monitor: Monitor
  var forks: UInt32 { monitor.forks }

  init(_ monitor: Monitor) { self.monitor = monitor }
  deinit { monitor.release() }

  func check() throws(Failure) {
    try Process.check(forks, "the monitor belongs to the parent of this process")
  }
}
