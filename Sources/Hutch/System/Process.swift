import CSystem

/// A directory that this process has open.
struct OpenDirectory {
  var device: UInt64
  var inode: UInt64
  /// Of the writer lock's file; -1: it is not held, since the directory cannot be used.
  var lockDescriptor: Int32
  /// The cache that has it open; not a counted reference. Nil: the parent of this process
  /// had it open when it forked.
  var owner: UnsafeMutableRawPointer?
  var next: UnsafeMutablePointer<OpenDirectory>?
}

/// What the process has once: a count of forks, the list of open directories, and a logger.
/// The only file that touches that state (see CSystem/system.h).
enum Process {
  /// Grows in the child of a fork. A handle remembers the value it was made under.
  @inline(__always)
  static var forks: UInt32 { hutch_process_state().pointee.forks }

  /// Makes sure that forks are counted: once, before the first handle is given out.
  static func watchForks() { try? withRegistry { _ throws(Failure) in } }

  /// Runs `body` with the registry's lock held. It protects the list of open
  /// directories, and is taken before any other lock of the library; it is held while a
  /// directory is opened or closed, so that each happens once.
  static func withRegistry<R>(
    _ body: (inout UnsafeMutablePointer<OpenDirectory>?) throws(Failure) -> R
  ) throws(Failure) -> R {
    let state = hutch_process_state()!
    pthread_mutex_lock(&state.pointee.lock)
    defer { pthread_mutex_unlock(&state.pointee.lock) }
    if state.pointee.handlers == 0 {
      state.pointee.handlers = 1
      registerForkHandlers()
    }
    var head = state.pointee.registry?.assumingMemoryBound(to: OpenDirectory.self)
    defer { state.pointee.registry = UnsafeMutableRawPointer(head) }
    return try body(&head)
  }

  /// The pointer is a counted reference of the process's; its lock is held during `body`, which
  /// calls nobody.
  static func withLoggerReference<R>(_ body: (inout UnsafeMutableRawPointer?) -> R) -> R {
    let state = hutch_process_state()!
    pthread_mutex_lock(&state.pointee.logger_lock)
    defer { pthread_mutex_unlock(&state.pointee.logger_lock) }
    return body(&state.pointee.logger)
  }

  /// The directory of `owner` is another one than it was, or is open at last: the list says so
  /// from here on. False: not yet. The lock is not waited for, since its holder may wait for
  /// the caller.
  static func relist(
    _ owner: UnsafeMutableRawPointer, device: UInt64, inode: UInt64, lock: Int32
  ) -> Bool {
    let state = hutch_process_state()!
    guard pthread_mutex_trylock(&state.pointee.lock) == 0 else { return false }
    defer { pthread_mutex_unlock(&state.pointee.lock) }
    var next = state.pointee.registry?.assumingMemoryBound(to: OpenDirectory.self)
    while let node = next {
      if node.pointee.owner == owner {
        node.pointee.device = device
        node.pointee.inode = inode
        node.pointee.lockDescriptor = lock
      }
      next = node.pointee.next
    }
    return true
  }

  /// PREPARE takes the registry's lock, so that the child does not inherit it from a thread
  /// that it does not have. In the child what is open belongs to the parent: it closes its
  /// copies of the writer locks' descriptors, or the directories would stay locked for as long
  /// as it lives. It closes nothing of SQLite's, and frees nothing. It must not open those
  /// directories itself: SQLite's table of locks was inherited, and says that it holds what
  /// the parent holds.
  private static func registerForkHandlers() {
    pthread_atfork(
      {
        pthread_mutex_lock(&hutch_process_state().pointee.lock)
        pthread_mutex_lock(&hutch_process_state().pointee.logger_lock)
      },
      {
        pthread_mutex_unlock(&hutch_process_state().pointee.logger_lock)
        pthread_mutex_unlock(&hutch_process_state().pointee.lock)
      },
      {
        let state = hutch_process_state()!
        var next = state.pointee.registry?.assumingMemoryBound(to: OpenDirectory.self)
        while let directory = next {
          if directory.pointee.owner != nil && directory.pointee.lockDescriptor >= 0 {
            close(directory.pointee.lockDescriptor)
          }
          directory.pointee.owner = nil
          next = directory.pointee.next
        }
        state.pointee.forks &+= 1
        pthread_mutex_unlock(&state.pointee.logger_lock)
        pthread_mutex_unlock(&state.pointee.lock)
      })
  }
}
