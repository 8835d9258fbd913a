import CSystem

/// What the process has once: a count of forks, and the list of open directories.
/// The only file that touches that state (see CSystem/system.h).
enum Process {
  /// Grows in the child of a fork. A handle remembers the value it was made under.
  static var forks: UInt32 { hutch_process_state().pointee.forks }

  /// Runs `body` with the registry's lock held. It protects the list of open
  /// directories, and is taken before any other lock of the library; it is held while a
  /// directory is opened or closed, so that each happens once.
  static func withRegistry<R>(
    _ body: (inout UnsafeMutableRawPointer?) throws(Failure) -> R
  ) throws(Failure) -> R {
    let state = hutch_process_state()!
    pthread_mutex_lock(&state.pointee.lock)
    defer { pthread_mutex_unlock(&state.pointee.lock) }
    if state.pointee.handlers == 0 {
      state.pointee.handlers = 1
      // PREPARE takes the registry's lock so that the child does not inherit it from a
      // thread that it does not have. The child starts with an empty list: what is open
      // belongs to the parent.
      pthread_atfork(
        { pthread_mutex_lock(&hutch_process_state().pointee.lock) },
        { pthread_mutex_unlock(&hutch_process_state().pointee.lock) },
        {
          let state = hutch_process_state()!
          state.pointee.forks &+= 1
          state.pointee.registry = nil
          pthread_mutex_unlock(&state.pointee.lock)
        })
    }
    return try body(&state.pointee.registry)
  }
}
