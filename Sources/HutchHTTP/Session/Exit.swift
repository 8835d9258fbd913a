import CCurl
import CSystem

/// Keeps the threads of sessions out of libcurl when the process ends by exit().
///
/// libcrypto registers a handler with exit() that frees what TLS connections use, and a thread that
/// goes on with them crashes. A handler of this library is registered after that one, so it comes
/// first: it waits until no thread is within libcurl or a callback. A thread that would enter it
/// from then on stays where it is until the process is gone.
///
/// A thread counts itself before it looks whether the process ends, and the handler says so before
/// it looks at the count: one of the two sees the other.
enum Exit {
  /// How long exit() waits for callbacks of the host, in nanoseconds.
  private static let patience: Int64 = 5_000_000_000

  /// After libcurl has initialised its TLS library.
  static func watch() {
    if hutch_curl_first() != 0 { atexit { Exit.begin() } }
  }

  private static func begin() {
    _ = hutch_curl_exits(1)
    // A callback of a session may call exit().
    let own: UInt32 = ThreadState.workerOf == nil ? 0 : 1
    let end = Deadline(after: patience)
    while hutch_curl_threads(Process.forks, 0) > own, !end.hasPassed { usleep(500) }
  }

  /// The calling thread of a session enters libcurl.
  static func enter() {
    _ = hutch_curl_threads(Process.forks, 1)
    guard hutch_curl_exits(0) != 0 else { return }
    leave()
    while true { usleep(1_000_000) }
  }

  /// It waits, or has ended its work.
  static func leave() { _ = hutch_curl_threads(Process.forks, -1) }
}
