import CSystem

/// A directory that this process has open, opens or closes.
///
///     isBusy  owner  state
///     yes     nil    a thread opens it
///     no      cache  it is open; or its last opening has ended, and the close waits for calls
///     yes     cache  a thread closes it
///     no      nil    the parent of this process had it open at the fork, and could not hand it on
struct OpenDirectory {
  var device: UInt64
  var inode: UInt64
  /// The cache; not a counted reference.
  var owner: UnsafeMutableRawPointer?
  /// The owner opens or closes files without the registry's lock. A fork waits until no directory
  /// is busy, and so does another opening of this one.
  var isBusy = false
  /// The thread that opens the directory.
  var opener: pthread_t = 0
  var next: UnsafeMutablePointer<OpenDirectory>?
}

/// The state that the process has once: a count of forks, the list of open directories, the roster
/// of caches, and a logger. Only this file touches it (see CSystem/system.h).
enum Process {
  /// Grows in the child of a fork. A handle remembers the value at its creation.
  @inline(__always)
  static var forks: UInt32 { hutch_process_state().pointee.forks }

  /// True if a handle created under this value belongs to the parent.
  @inline(__always)
  static func isParents(_ value: UInt32) -> Bool { value != forks }

  /// Refuses a handle of the parent.
  @inline(never)
  static func check(_ value: UInt32, _ words: StaticString) throws(Failure) {
    if isParents(value) { throw Failure(.forked, words) }
  }

  /// Makes sure that forks are counted: once, before the library returns its first handle.
  static func watchForks() { try? withRegistry { _ throws(Failure) in } }

  /// Runs `body` with the registry's lock held. The lock protects the list of open directories, and
  /// comes before every other lock of the library. It is held for a few steps only: while a
  /// directory is opened or closed, which may take long, its node on the list is busy. `givesWay`:
  /// the caller yields to a fork that waits. A thread with a busy node does not, since the fork
  /// waits for it.
  static func withRegistry<R>(
    givesWay: Bool = true,
    _ body: (inout UnsafeMutablePointer<OpenDirectory>?) throws(Failure) -> R
  ) throws(Failure) -> R {
    lockRegistry(givesWay: givesWay)
    let state = hutch_process_state()!
    defer { pthread_mutex_unlock(&state.pointee.lock) }
    var head = firstDirectory
    defer { state.pointee.registry = UnsafeMutableRawPointer(head) }
    return try body(&head)
  }

  @inline(never)
  private static func lockRegistry(givesWay: Bool) {
    let state = hutch_process_state()!
    // A thread that opens and closes all the time would get the lock again before a fork wakes up.
    var rounds = 0
    while givesWay && hutch_waiting_forks(0) > 0 && rounds < 100 {
      rounds += 1
      usleep(1000)
    }
    pthread_mutex_lock(&state.pointee.lock)
    if state.pointee.handlers == 0 {
      state.pointee.handlers = 1
      pthread_atfork({ Process.prepare() }, { Process.goOn() }, { Process.begin() })
    }
  }

  /// The pointer is a counted reference of the process. Its lock is held during `body`, which makes
  /// no callback.
  static func withLoggerReference<R>(_ body: (inout UnsafeMutableRawPointer?) -> R) -> R {
    let state = hutch_logger_state()!
    pthread_mutex_lock(&state.pointee.lock)
    defer { pthread_mutex_unlock(&state.pointee.lock) }
    return body(&state.pointee.logger)
  }

  /// Sets the directory of `owner` on the list, after a move, or when the directory is open at
  /// last. False: the directory is still being opened, so it is not on the list yet. The call does
  /// not wait for the lock, since its holder may wait for the caller.
  static func relist(
    _ owner: UnsafeMutableRawPointer, device: UInt64, inode: UInt64
  ) -> Bool {
    let state = hutch_process_state()!
    guard pthread_mutex_trylock(&state.pointee.lock) == 0 else { return false }
    defer { pthread_mutex_unlock(&state.pointee.lock) }
    guard let node = node(of: owner) else { return false }
    node.pointee.device = device
    node.pointee.inode = inode
    return true
  }

  /// The first directory on the list. The registry's lock is held.
  private static var firstDirectory: UnsafeMutablePointer<OpenDirectory>? {
    hutch_process_state()!.pointee.registry?.assumingMemoryBound(to: OpenDirectory.self)
  }

  /// The directory of a cache, if it is on the list. A cache has one. The registry's lock is held.
  static func node(
    of owner: UnsafeMutableRawPointer
  ) -> UnsafeMutablePointer<OpenDirectory>? {
    var next = firstDirectory
    while let node = next, node.pointee.owner != owner { next = node.pointee.next }
    return next
  }

  // MARK: fork

  /// Runs `body` with the roster: the first of the caches that take part in a fork. Its lock comes
  /// after the registry's, and is held for a few steps only.
  static func withRoster<R>(_ body: (inout UnsafeMutableRawPointer?) -> R) -> R {
    let state = hutch_roster_state()!
    pthread_mutex_lock(&state.pointee.lock)
    defer { pthread_mutex_unlock(&state.pointee.lock) }
    return body(&state.pointee.roster)
  }

  /// The hooks of a fork: before it, after it in the parent, and in the child. They run with the
  /// roster's lock held. Every cache sets the same hooks again.
  static func setForkHooks(
    _ prepare: @escaping @convention(c) () -> Void, _ parent: @escaping @convention(c) () -> Void,
    _ child: @escaping @convention(c) () -> Void
  ) {
    withRoster { _ in
      let state = hutch_roster_state()!
      state.pointee.prepare = prepare
      state.pointee.parent = parent
      state.pointee.child = child
    }
  }

  /// For the current fork: true if no thread opens or closes a directory.
  static var hasRegistry: Bool { hutch_roster_state()!.pointee.has_registry != 0 }
  /// The time at which waiting ends.
  static var forkDeadline: Deadline { Deadline(at: hutch_roster_state()!.pointee.until) }
  /// The roster, for the hooks.
  static var roster: UnsafeMutableRawPointer? {
    get { hutch_roster_state()!.pointee.roster }
    set { hutch_roster_state()!.pointee.roster = newValue }
  }

  /// A directory was being opened or closed at the fork: the child inherited SQLite's locks, and
  /// its table of those on files, as a thread of the parent had them. This process opens no
  /// directory any more.
  static var opensNothing: Bool { hutch_process_state()!.pointee.opens_nothing != 0 }

  /// A fork waits this long, in nanoseconds.
  private static let patience: Int64 = 1_000_000_000

  private static func take(
    _ lock: UnsafeMutablePointer<pthread_mutex_t>, until end: Deadline
  ) -> Bool {
    var pause: useconds_t = 0
    while pthread_mutex_trylock(lock) != 0 {
      if end.hasPassed { return false }
      pause = min(pause + 10, 1000)
      usleep(pause)
    }
    return true
  }

  /// Takes the registry's lock at a moment when no directory is being opened or closed. False: not
  /// in time.
  private static func takeRegistry(until end: Deadline) -> Bool {
    let registry = hutch_process_state()!
    while take(&registry.pointee.lock, until: end) {
      var next = firstDirectory
      while let node = next, !node.pointee.isBusy { next = node.pointee.next }
      if next == nil { return true }
      pthread_mutex_unlock(&registry.pointee.lock)
      if end.hasPassed { return false }
      usleep(200)
    }
    return false
  }

  private static func prepare() {
    let registry = hutch_process_state()!
    let roster = hutch_roster_state()!
    let end = Deadline(after: patience)
    defer { Heap.prepareFork() }
    _ = hutch_waiting_forks(1)
    let hasRegistry = takeRegistry(until: end)
    _ = hutch_waiting_forks(-1)
    // The holder of the roster's lock waits for nothing.
    let hasRoster = take(&roster.pointee.lock, until: Deadline(after: patience))
    ThreadState.hasRoster = hasRoster
    guard hasRoster else {
      // Another fork waits for a lock that this thread holds.
      if hasRegistry { pthread_mutex_unlock(&registry.pointee.lock) }
      return
    }
    roster.pointee.has_registry = hasRegistry ? 1 : 0
    roster.pointee.until = end.end
    roster.pointee.prepare?()
    // Its holders keep it for one step and make no callback.
    pthread_mutex_lock(&hutch_logger_state().pointee.lock)
  }

  /// In the parent.
  private static func goOn() {
    Heap.endFork(inChild: false)
    guard ThreadState.hasRoster else { return }
    let registry = hutch_process_state()!
    let roster = hutch_roster_state()!
    pthread_mutex_unlock(&hutch_logger_state().pointee.lock)
    roster.pointee.parent?()
    if roster.pointee.has_registry != 0 { pthread_mutex_unlock(&registry.pointee.lock) }
    pthread_mutex_unlock(&roster.pointee.lock)
  }

  /// In the child.
  private static func begin() {
    let registry = hutch_process_state()!
    let roster = hutch_roster_state()!
    Heap.endFork(inChild: true)
    // In the child no thread holds the locks that a thread of the parent held.
    pthread_mutex_init(&hutch_logger_state().pointee.lock, nil)
    registry.pointee.forks &+= 1
    // Another thread of the parent may have been about to fork, too.
    registry.pointee.waiting_forks = 0
    if ThreadState.hasRoster {
      roster.pointee.child?()
    } else {
      roster.pointee.has_registry = 0
      roster.pointee.roster = nil
    }
    if roster.pointee.has_registry == 0 { registry.pointee.opens_nothing = 1 }
    pthread_mutex_init(&registry.pointee.lock, nil)
    pthread_mutex_init(&roster.pointee.lock, nil)
  }

  /// In the child: the directory of `owner` is this cache's. Nil: it cannot be used here.
  static func setOwner(_ owner: UnsafeMutableRawPointer, to new: UnsafeMutableRawPointer?) {
    guard let node = node(of: owner) else { return }
    node.pointee.owner = new
    if new == nil { node.pointee.isBusy = false }
  }
}
