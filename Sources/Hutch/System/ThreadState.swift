import CSystem

/// What each thread has of its own: its last failure, and the callbacks it is within.
/// The only file that touches the thread-local (see CSystem/system.h).
enum ThreadState {
  /// Notes a failure for hutch_last_error, unless the thread is within one of our
  /// callbacks: what happens there is not the failure of the call around it.
  static func note(_ failure: Failure) {
    let state = hutch_thread_state()!
    guard state.pointee.callbacks == 0 else { return }
    state.pointee.status = failure.status.code
    state.pointee.system_error = failure.system
    state.pointee.sqlite_error = failure.sqlite
    compose(failure, into: state)
  }

  /// "words: SQLite's words: strerror", cut to fit, always ended by NUL.
  private static func compose(
    _ failure: Failure, into state: UnsafeMutablePointer<hutch_thread_state>
  ) {
    withUnsafeMutableBytes(of: &state.pointee.words) { target in
      var used = 0
      let room = target.count - 1
      func append(_ text: UnsafeRawBufferPointer) {
        let count = min(text.count, room - used)
        guard count > 0 else { return }
        target.baseAddress!.advanced(by: used)
          .copyMemory(from: text.baseAddress!, byteCount: count)
        used += count
      }
      func append(_ text: StaticString) {
        append(UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
      }
      append(failure.words)
      if let detail = failure.detail {
        append(": ")
        append(UnsafeRawBufferPointer(start: detail, count: strlen(detail)))
      }
      // A loader's code is its own, and no errno.
      if failure.system != 0, failure.status != .loadFailed,
        let why = strerrordesc_np(failure.system)
      {
        append(": ")
        append(UnsafeRawBufferPointer(start: why, count: strlen(why)))
      }
      target[used] = 0
    }
  }

  /// The numbers of this thread's last failure; all 0 if it has had none.
  static var lastFailure: (status: Int32, system: Int32, sqlite: Int32) {
    let state = hutch_thread_state()!
    return (state.pointee.status, state.pointee.system_error, state.pointee.sqlite_error)
  }

  /// Its words, with the NUL, to a buffer that has room for them.
  static func copyWords(to buffer: UnsafeMutableRawBufferPointer) {
    withUnsafeBytes(of: &hutch_thread_state().pointee.words) { buffer.copyMemory(from: $0) }
  }

  /// Runs a host's callback on behalf of `owner`.
  static func within<R>(_ owner: UnsafeMutableRawPointer, _ callback: () -> R) -> R {
    let state = hutch_thread_state()!
    let outer = state.pointee.callback_of
    state.pointee.callback_of = owner
    state.pointee.callbacks += 1
    defer {
      state.pointee.callback_of = outer
      state.pointee.callbacks -= 1
    }
    return callback()
  }

  /// Whether this thread is within a callback of `owner`. Looks at the innermost one
  /// alone; within another cache's callback a wait is only a wait.
  static func isWithinCallback(of owner: UnsafeMutableRawPointer) -> Bool {
    let state = hutch_thread_state()!
    return state.pointee.callbacks > 0 && state.pointee.callback_of == owner
  }

  /// The load whose loader this thread is within: a reference of whoever runs the loader.
  static var loading: UnsafeMutableRawPointer? {
    get { hutch_thread_state()!.pointee.loading }
    set { hutch_thread_state()!.pointee.loading = newValue }
  }
}
