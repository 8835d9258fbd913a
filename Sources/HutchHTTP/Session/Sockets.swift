import CCurl
import CSystem

/// A multi handle of libcurl with the sockets and the time that it waits for, and what wakes the
/// thread that runs it. A step costs as much as there are sockets with news, not as there are
/// transfers.
///
/// Only the session's thread calls libcurl, and libcurl calls `watch` and `setTimer` back within
/// those calls. `wake` is for any thread.
final class Sockets {
  /// Nil when it has been closed.
  private(set) var multi: UnsafeMutableRawPointer?
  /// An epoll descriptor: it has the waker and libcurl's sockets, each under its number.
  private let watched: Int32
  /// An eventfd.
  private let waker: Int32
  /// What `epoll_wait` fills.
  private let events: UnsafeMutablePointer<epoll_event>
  private static let most = 64
  /// When libcurl is to be called without news; CLOCK_MONOTONIC.
  private var timer = Int64.max
  /// When the sockets were asked for news last; CLOCK_MONOTONIC.
  private(set) var asked: Int64 = 0

  convenience init() throws(Failure) {
    let events = try Allocation.array(epoll_event.self, Sockets.most)
    let watched = epoll_create1(Int32(EPOLL_CLOEXEC))
    let number = eventfd(0, Int32(EFD_CLOEXEC) | Int32(EFD_NONBLOCK))
    let waker = number >= 0 ? Files.aboveStreams(number) ?? -1 : -1
    var event = epoll_event(events: EPOLLIN.rawValue, data: epoll_data_t(fd: waker))
    guard watched >= 0, waker >= 0, epoll_ctl(watched, EPOLL_CTL_ADD, waker, &event) == 0,
      let multi = curl_multi_init()
    else {
      let failure = Failure.system("cannot make what waits for sockets")
      if watched >= 0 { _ = CSystem.close(watched) }
      if waker >= 0 { _ = CSystem.close(waker) }
      free(events)
      throw failure
    }
    self.init(multi, watched, waker, events)
  }

  private init(
    _ multi: UnsafeMutableRawPointer, _ watched: Int32, _ waker: Int32,
    _ events: UnsafeMutablePointer<epoll_event>
  ) {
    self.multi = multi
    self.watched = watched
    self.waker = waker
    self.events = events
    // libcurl refuses none of these options.
    let context = Unmanaged.passUnretained(self).toOpaque()
    _ = hutch_curl_multi_callbacks(multi, context, Sockets.watch, Sockets.setTimer)
  }

  /// Closes the connections. From then on only `wake` is called.
  func close() {
    // It says so of each socket.
    if let multi { curl_multi_cleanup(multi) }
    multi = nil
  }

  deinit {
    close()
    _ = CSystem.close(watched)
    _ = CSystem.close(waker)
    free(events)
  }

  func wake() {
    var one: UInt64 = 1
    // It fails only if the waker is full, so readable.
    _ = write(waker, &one, MemoryLayout<UInt64>.size)
  }

  /// Waits until there is news, or it is `deadline` (CLOCK_MONOTONIC), and lets libcurl act on it.
  func step(until deadline: Int64) {
    let count = epoll_wait(watched, events, Int32(Sockets.most), left(until: deadline))
    asked = Clock.read(CLOCK_MONOTONIC)
    var running: Int32 = 0
    var index = 0
    while index < Int(count) {
      let socket = events[index].data.fd
      let news = events[index].events
      index += 1
      if socket == waker {
        var number: UInt64 = 0
        _ = read(waker, &number, MemoryLayout<UInt64>.size)
        continue
      }
      var mask: Int32 = 0
      if news & EPOLLIN.rawValue != 0 { mask |= CURL_CSELECT_IN }
      if news & EPOLLOUT.rawValue != 0 { mask |= CURL_CSELECT_OUT }
      // A socket that libcurl has closed since is one that libcurl does not know.
      curl_multi_socket_action(multi, socket, mask == 0 ? CURL_CSELECT_ERR : mask, &running)
    }
    guard timer != Int64.max, timer <= Clock.read(CLOCK_MONOTONIC) else { return }
    timer = Int64.max
    curl_multi_socket_action(multi, CURL_SOCKET_BAD, 0, &running)
  }

  /// In milliseconds, rounded up.
  private func left(until deadline: Int64) -> Int32 {
    let end = min(deadline, timer)
    if end == Int64.max { return -1 }
    if end == 0 { return 0 }
    let left = end - Clock.read(CLOCK_MONOTONIC)
    return Int32(max(0, min((left + 999_999) / 1_000_000, 3_600_000)))
  }

  // MARK: what libcurl calls

  private static func of(_ context: UnsafeMutableRawPointer?) -> Sockets {
    Unmanaged<Sockets>.fromOpaque(context!).takeUnretainedValue()
  }

  /// `known` is not NULL for a socket that is watched already.
  private static var watch: curl_socket_callback {
    { _, socket, wish, context, known in
      let sockets = Sockets.of(context)
      if wish == CURL_POLL_REMOVE {
        epoll_ctl(sockets.watched, EPOLL_CTL_DEL, socket, nil)
        return 0
      }
      var event = epoll_event(events: 0, data: epoll_data_t(fd: socket))
      if wish & CURL_POLL_IN != 0 { event.events |= EPOLLIN.rawValue }
      if wish & CURL_POLL_OUT != 0 { event.events |= EPOLLOUT.rawValue }
      let change = known == nil ? EPOLL_CTL_ADD : EPOLL_CTL_MOD
      // Without the kernel's memory for it, the transfer's idle timeout passes.
      epoll_ctl(sockets.watched, change, socket, &event)
      if known == nil { curl_multi_assign(sockets.multi, socket, context) }
      return 0
    }
  }

  private static var setTimer: curl_multi_timer_callback {
    { _, milliseconds, context in
      // A year is as good as more, and does not overflow.
      let wait = min(Int64(milliseconds), 31_536_000_000) * 1_000_000
      Sockets.of(context).timer = wait < 0 ? Int64.max : Clock.read(CLOCK_MONOTONIC) + wait
      return 0
    }
  }
}
