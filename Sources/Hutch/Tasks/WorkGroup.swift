import CSystem
import Synchronization

/// Tasks that start together and have one completion for all.
///
/// The queue of a group's task holds it until the start. The group refers to its tasks until they
/// have started, and for a cancel until they have ended; they refer to the group. The completion is
/// also a task, without work, of the group's own queue: it is posted there when the last task has
/// ended, and a wait for the group waits for its end.
///
/// Its states:
///   open      tasks are added. `left` is their number
///   started   by a start or a wait. There is a completion that has not been posted; `left` tasks
///             have not ended, or one more, while it starts
///   over      `left` is 0, and the completion has been posted
///   given up  without a start: its tasks are cancelled, and there is no completion
final class WorkGroup {
  /// Protects the fields below. May be taken under a queue's lock; no lock is taken under it.
  private let lock = Lock()
  /// Each with a reference.
  private var tasks = GrowingArray<TaskPointer>()
  private var isStarted = false
  private var left = 0
  private var cancelled = 0
  /// `cancel` was called before the last task had ended.
  private var isCancelled = false
  /// The group's own completion, from the start on; a counted reference.
  private var completion: TaskPointer?
  /// Makes the completion.
  let queue: TaskQueue
  let forks = Process.forks

  /// The content of a group's completion.
  struct Tally {
    var count: UInt64
    var cancelled: UInt64
  }

  init(by queue: TaskQueue) { self.queue = queue }

  deinit {
    while let task = tasks.popLast() { task.drop() }
    completion?.drop()
  }

  func check() throws(Failure) {
    try Process.check(forks, "the group belongs to the parent of this process")
  }

  /// Called under the lock of the task's queue.
  func add(_ task: TaskPointer) throws(Failure) {
    lock.lock()
    defer { lock.unlock() }
    guard !isStarted else { throw Failure(.invalidArgument, "the group has been started") }
    try tasks.append(task)
    task.retain()
    left += 1
  }

  /// A task has ended. The caller holds no lock.
  func ended(_ status: Int32) {
    lock.lock()
    left -= 1
    if status == Status.cancelled.code { cancelled += 1 }
    completeIfDone()
  }

  /// Called under the lock, and releases it: posts the completion if no task is left.
  private func completeIfDone() {
    guard isStarted, left == 0, let task = completion else {
      lock.unlock()
      return
    }
    let tally = Tally(count: UInt64(tasks.count), cancelled: UInt64(cancelled))
    task.pointee.workContext!.storeBytes(of: tally, as: Tally.self)
    if isCancelled || (tasks.count > 0 && cancelled == tasks.count) {
      task.pointee.status = Status.cancelled.code
    }
    dropTasks()
    queue.post(task)
  }

  /// Called under the lock, and releases it. The tasks refer to the group, which must not keep
  /// itself alive through them.
  private func dropTasks() {
    var gone = GrowingArray<TaskPointer>()
    swap(&gone, &tasks)
    lock.unlock()
    while let task = gone.popLast() { task.drop() }
  }

  /// Lets the tasks run, and reports their end as `spec` says. False: the group has been started
  /// before.
  func start(_ spec: borrowing TaskSpec) throws(Failure) -> Bool {
    // A thread that cannot be made later would leave the completion unmade.
    try queue.lock.withLock { () throws(Failure) in try queue.makeThread() }
    let completion = try TaskPointer.make(spec, for: queue, payload: MemoryLayout<Tally>.size)
    lock.lock()
    guard !isStarted else {
      lock.unlock()
      completion.drop()
      return false
    }
    isStarted = true
    self.completion = completion
    // The queue has the other reference.
    completion.retain()
    // The start counts as a task, so that the group does not end, and its list does not change,
    // before the start is over.
    left += 1
    lock.unlock()
    // A wait for all of the queue waits for this completion too.
    queue.lock.withLock { queue.pending += 1 }
    for task in tasks.elements { task.pointee.queue.takeUnretainedValue().startHeld(task) }
    lock.lock()
    left -= 1
    completeIfDone()
    return true
  }

  func cancel() {
    lock.lock()
    if isStarted && left == 0 { return lock.unlock() }
    isCancelled = true
    // As for a start: the list does not end before the cancel is over.
    left += 1
    var next = 0
    while next < tasks.count {
      let task = tasks[next]
      next += 1
      task.retain()
      lock.unlock()
      _ = task.pointee.queue.takeUnretainedValue().cancel(task)
      task.drop()
      lock.lock()
    }
    left -= 1
    completeIfDone()
  }

  /// Waits until the completion has been made, or is in its port. Starts the group, without a
  /// completion for the host, if it was not started. Returns what a queue's wait returns; a check
  /// (`timeout` 0) starts nothing.
  func wait(_ timeout: Int64) throws(Failure) -> Status {
    if timeout != 0 {
      try queue.checkMayWait()
      if lock.withLock({ !isStarted }) { _ = try start(TaskSpec()) }
    }
    guard let task = lock.withLock({ completion }) else { return .wouldBlock }
    return try queue.wait(for: task, timeout)
  }

  /// Cancels the tasks if there will be no start: the host has released the group.
  func abandon() {
    lock.lock()
    let isOver = isStarted
    isStarted = true
    lock.unlock()
    guard !isOver else { return }
    cancel()
    lock.lock()
    dropTasks()
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
    countPending(task, 1)
    task.extras.pointee.starting?(task.pointee.workContext)
    do throws(Failure) {
      try enqueue(task)
    } catch {
      unwatch(task)
      task.pointee.state = .ending
      task.pointee.status = error.status.code
      completions.append(task)
    }
    unlockAndWake()
  }

  /// Takes over a task that has nothing to run, and that `pending` already counts, and makes its
  /// completion.
  func post(_ task: TaskPointer) {
    lock.lock()
    task.pointee.state = .ending
    if task.port != nil { return retire(task) }
    completions.append(task)
    // After the end of the queue, or of the cache that owns it, there are no threads. The
    // completion is then made here, at the end of a task of another queue.
    let isLate = isStopping && (!hasThreads || exited > 0 || threads.isEmpty)
    unlockAndWake()
    if isLate { run(until: .never, .completions) }
  }
}
