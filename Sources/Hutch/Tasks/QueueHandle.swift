import CSystem

/// References to a queue: the host's, and those of the caches that a queue of the host serves. The
/// queue ends with the last one. A cache's own queue ends with the cache.
final class QueueHandle {
  let queue: TaskQueue
  /// The queue is the host's, and not a cache's own.
  let isHosts: Bool
  /// See Process.forks.
  let forks = Process.forks
  /// During a fork, in the child: what serves the caches there (`makeForChild`).
  private var inChild: QueueHandle?

  /// `watches`: forks are to be counted from here on.
  @inline(never)
  init(_ queue: TaskQueue, isHosts: Bool, watches: Bool = true) {
    self.queue = queue
    self.isHosts = isHosts
    if isHosts && watches { Process.watchForks() }
  }

  deinit { if isHosts { queue.abandon() } }

  func check() throws(Failure) {
    try Process.check(forks, "the queue belongs to the parent of this process")
  }

  /// In the child of a fork: the queue for all caches that this one served in the parent. It is not
  /// suspended, since the child has no thread that could have suspended it.
  func makeForChild() throws(Failure) -> QueueHandle {
    if let inChild { return inChild }
    let new = try queue.makeForChild()
    new.suspensions = 0
    let handle = QueueHandle(new, isHosts: true, watches: false)
    SharedQueue.replace(self, by: handle)
    inChild = handle
    return handle
  }

  /// The caches of the child have it.
  func forgetChild() { inChild = nil }
}

/// The queue that the process has once. It is made at its first use, and ends at exit().
///
/// The only state is one pointer, a counted reference that is changed by compare and exchange
/// (acquire and release), so a fork cannot meet a lock of it. In the child of a fork the pointer is
/// the parent's until a cache or a call puts the child's own in its place.
enum SharedQueue {
  /// How long exit() waits for tasks, in nanoseconds.
  private static let patience: Int64 = 5_000_000_000

  static func get(deliver: @escaping TaskQueue.Deliver) throws(Failure) -> QueueHandle {
    while true {
      let pointer = hutch_shared_queue_handle()
      if let pointer {
        let handle = Unmanaged<QueueHandle>.fromOpaque(pointer).takeUnretainedValue()
        if !Process.isParents(handle.forks) { return handle }
      }
      let queue = try TaskQueue(
        width: max(2, min(Int(hutch_processors()), TaskQueue.mostThreads)), hasThreads: true,
        length: 0, deliver: deliver)
      let handle = QueueHandle(queue, isHosts: true)
      let kept = Unmanaged.passRetained(handle)
      if hutch_set_shared_queue_handle(pointer, kept.toOpaque()) != 0 {
        if hutch_once_at_exit() != 0 { atexit { SharedQueue.end() } }
        return handle
      }
      kept.release()
    }
  }

  /// In the child of a fork: a queue of its caches takes the place of the parent's.
  fileprivate static func replace(_ old: QueueHandle, by new: QueueHandle) {
    let pointer = Unmanaged.passUnretained(old).toOpaque()
    guard hutch_shared_queue_handle() == pointer else { return }
    _ = hutch_set_shared_queue_handle(pointer, Unmanaged.passRetained(new).toOpaque())
  }

  private static func end() {
    guard let pointer = hutch_shared_queue_handle() else { return }
    let handle = Unmanaged<QueueHandle>.fromOpaque(pointer).takeUnretainedValue()
    if Process.isParents(handle.forks) { return }
    handle.queue.endAtExit(by: Deadline(after: patience))
  }
}
