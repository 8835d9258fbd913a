import CSystem
import Synchronization

/// Tasks that start together and have one completion for all.
///
/// A task of a group is held by its queue until the start. The group refers to its tasks until
/// they have started, and to cancel them until they have ended; they refer to the group.
final class WorkGroup {
  /// Protects what follows. May be taken under a queue's; nothing is taken under it.
  private let lock: Lock
  private let changed: Condition
  /// Each with a reference.
  private var tasks = GrowingArray<TaskPointer>()
  private var isStarted = false
  private var left = 0
  private var cancelled = 0
  /// The group's own completion; from the start until the last task has ended.
  private var completion: TaskPointer?
  /// Who makes the completion.
  let handle: QueueHandle
  let forks = Process.forks

  /// What a group's completion tells.
  struct Tally {
    var count: UInt64
    var cancelled: UInt64
  }

  init(by handle: QueueHandle) throws(Failure) {
    let lock = try Lock()
    let changed = try Condition()
    self.lock = lock
    self.changed = changed
    self.handle = handle
  }

  deinit { while let task = tasks.popLast() { task.drop() } }

  func check() throws(Failure) {
    if forks != Process.forks {
      throw Failure(.forked, "the group belongs to the parent of this process")
    }
  }

  /// Under the lock of the task's queue.
  func add(_ task: TaskPointer) throws(Failure) {
    lock.lock()
    defer { lock.unlock() }
    guard !isStarted else { throw Failure(.invalidArgument, "the group has been started") }
    try tasks.append(task)
    task.retain()
    left += 1
  }

  /// A task has ended. With no lock held.
  func ended(_ status: Int32) {
    lock.lock()
    left -= 1
    if status == Status.cancelled.code { cancelled += 1 }
    conclude()
  }

  /// Under the lock, which it lets go: makes the completion if nothing is left.
  private func conclude() {
    guard isStarted, left == 0, let task = completion else {
      lock.unlock()
      return
    }
    completion = nil
    let tally = Tally(count: UInt64(tasks.count), cancelled: UInt64(cancelled))
    task.pointee.workContext!.storeBytes(of: tally, as: Tally.self)
    if tasks.count > 0 && cancelled == tasks.count {
      task.pointee.status = Status.cancelled.code
    }
    var ended = GrowingArray<TaskPointer>()
    swap(&ended, &tasks)
    changed.broadcast()
    lock.unlock()
    while let task = ended.popLast() { task.drop() }
    handle.queue.post(task)
  }

  /// Lets the tasks run. False: it has been started before; the caller still has `completion`.
  func start(_ completion: TaskPointer) -> Bool {
    lock.lock()
    guard !isStarted else {
      lock.unlock()
      return false
    }
    isStarted = true
    self.completion = completion
    // One more, so that the group does not end while it starts; and the list stays as it is.
    left += 1
    lock.unlock()
    // Who waits for all of the queue waits for this completion too.
    handle.queue.lock.withLock { handle.queue.pending += 1 }
    for task in tasks.elements { task.pointee.queue.takeUnretainedValue().startHeld(task) }
    lock.lock()
    left -= 1
    conclude()
    return true
  }

  func cancel() {
    lock.lock()
    // They may end, and the list with them, while they are cancelled.
    var copies = GrowingArray<TaskPointer>()
    for task in tasks.elements {
      guard (try? copies.append(task)) != nil else { break }
      task.retain()
    }
    lock.unlock()
    while let task = copies.popLast() {
      _ = task.pointee.queue.takeUnretainedValue().cancel(task)
      task.drop()
    }
  }

  /// Waits until every task has ended. Answers as a queue's wait does.
  func wait(_ timeout: Int64) throws(Failure) -> Status {
    if timeout != 0 { try handle.queue.checkMayWait() }
    let end = Deadline(after: timeout)
    lock.lock()
    defer { lock.unlock() }
    while !(isStarted && completion == nil) {
      let left = end.left
      if timeout == 0 { return .wouldBlock }
      if left == 0 { throw Failure(.timedOut, "tasks of the group have not ended") }
      if left == Int64.max { changed.wait(lock) } else { changed.wait(lock, nanoseconds: left) }
    }
    return .done
  }

  /// Cancels the tasks if nobody will start them: the host has given the group up.
  func abandon() {
    lock.lock()
    let isOver = isStarted
    isStarted = true
    lock.unlock()
    guard !isOver else { return }
    cancel()
    // The tasks refer to the group, and must not be kept by it.
    lock.lock()
    var rest = GrowingArray<TaskPointer>()
    swap(&rest, &tasks)
    lock.unlock()
    while let task = rest.popLast() { task.drop() }
  }
}

/// A host's references to a group.
final class GroupHandle {
  let group: WorkGroup
  init(_ group: WorkGroup) { self.group = group }
  deinit { group.abandon() }
}

extension TaskQueue {
  /// A held task may run.
  func startHeld(_ task: TaskPointer) {
    lock.lock()
    guard task.pointee.state == .held else {
      lock.unlock()
      return
    }
    held.remove(task)
    heldCount -= 1
    pending += 1
    do throws(Failure) {
      try enqueue(task)
    } catch {
      task.pointee.state = .ending
      task.pointee.status = error.status.code
      ending.append(task)
    }
    let signals = wantsWorker()
    lock.unlock()
    if signals { wake.signal() }
  }

  /// Takes over a task that has nothing to run, and that `pending` counts already, and makes its
  /// completion.
  func post(_ task: TaskPointer) {
    lock.lock()
    task.pointee.state = .ending
    if task.port != nil {
      let aftermath = settle(task)
      lock.unlock()
      aftermath.run()
      return
    }
    ending.append(task)
    // Threads are gone after a close of the cache whose queue it is: then it is made here, at the
    // end of a task of another queue.
    let isLate = isStopping && (!hasThreads || exited > 0 || threads.isEmpty)
    if !isLate { try? makeThread() }
    let signals = wantsWorker()
    lock.unlock()
    if signals { wake.signal() }
    if isLate { _ = run(until: Deadline(after: Int64.max)) }
  }
}
