import CSystem

/// Control of tasks from outside: cancel, priority, waits, suspend.
extension TaskQueue {
  // MARK: one task

  /// The state of a task for the host, and its status if that is final.
  func status(of task: TaskPointer) -> (state: TaskRecord.State, isAsked: Bool, status: Int32) {
    lock.lock()
    defer { lock.unlock() }
    let state = task.pointee.state
    // The status of a running task belongs to its worker.
    if state == .running { return (state, haveAllAsked(task), 0) }
    return (state, false, task.pointee.status)
  }

  /// The state that the task had.
  func cancel(_ task: TaskPointer) -> (state: TaskRecord.State, isAsked: Bool) {
    lock.lock()
    // A task that cannot be cancelled any more is reported as running.
    let isTooLate = task.has(.irrevocable) && task.pointee.state == .queued
    let state = isTooLate ? .running : task.pointee.state
    let isAsked = state == .running && haveAllAsked(task)
    let isStopped = stop(task)
    let isForPort = isStopped && task.port != nil
    if isStopped && !isForPort { completions.append(task) }
    unlockAndDrop()
    if isForPort { retireIntoPort(task) }
    return (state, isAsked)
  }

  /// Called under the lock. True: the task will not run, and its completion must be made. A running
  /// task is asked to end.
  func stop(_ task: TaskPointer, as status: Status = .cancelled) -> Bool {
    if task.has(.irrevocable) { return false }
    switch task.pointee.state {
    case .held, .parked:
      held.remove(task)
      heldCount -= 1
      // A parked task counts as pending.
      if task.pointee.state == .held { countPending(task, 1) }
    case .queued:
      leave(task)
      if roomWaiters > 0 { progress.broadcast() }
    case .running:
      task.pointee.progress.insert(.asked)
      return false
    case .late, .ending, .ended:
      return false
    }
    unwatch(task)
    task.pointee.state = .ending
    task.pointee.status = status.code
    return true
  }

  /// Takes a queued task out of its order. The tasks behind it keep their places.
  private func leave(_ task: TaskPointer) {
    byAge.remove(task)
    queued -= 1
    guard task.isNamed else {
      removeFromLane(task)
      return
    }
    guard let first = table.first(like: task) else { return }
    uncount(task, among: first)
    if task.isAt(.behind) {
      // It stays among the tasks behind, until its turn comes.
      relane(first)
      return
    }
    guard let next = nextAlive(behind: task) else {
      removeFromLane(task)
      table.remove(task)
      return
    }
    inherit(next, from: task)
    next.pointee.lane = task.pointee.lane
    lanes[TaskQueue.lane(of: task)].replace(task, by: next)
    relane(next)
  }

  func setPriority(_ priority: Int8, of task: TaskPointer) {
    lock.lock()
    defer { lock.unlock() }
    let state = task.pointee.state
    guard state == .queued || state == .held || state == .parked,
      task.pointee.priority != priority
    else { return }
    task.pointee.priority = priority
    if state == .queued { rankAnew(task) }
  }

  // MARK: waits

  /// Called under the lock. False: the time is over.
  func wait(until end: Deadline) -> Bool {
    let left = end.left
    guard left > 0 else { return false }
    waiters += 1
    progress.wait(lock, nanoseconds: left)
    waiters -= 1
    return true
  }

  /// Waits until `isDone`, which it calls under the lock. Returns what a wait of the host returns.
  func wait(_ timeout: Int64, until isDone: () -> Bool) throws(Failure) -> Status {
    if timeout != 0 { try checkMayWait() }
    lock.lock()
    defer { lock.unlock() }
    if isDone() { return .done }
    if timeout == 0 { return .wouldBlock }
    let end = Deadline(after: timeout)
    while !isDone() {
      if !wait(until: end) { throw Failure(.timedOut, "the wait reached its timeout") }
    }
    return .done
  }

  func wait(for task: TaskPointer, _ timeout: Int64) throws(Failure) -> Status {
    try wait(timeout) {
      // A task that has ended may be in its port, whose lock protects its links.
      if task.pointee.state == .ended { return true }
      task.pointee.progress.insert(.awaited)
      return false
    }
  }

  func waitAll(_ timeout: Int64) throws(Failure) -> Status {
    try wait(timeout) { pending == 0 }
  }

  /// For the tasks of one of the caches that it serves.
  func waitAll(of guest: TaskGuest, _ timeout: Int64) throws(Failure) -> Status {
    try wait(timeout) { guest.pending == 0 }
  }

  // MARK: many tasks

  /// Cancels queued and held tasks, and asks running ones to end. Returns how many were queued.
  func cancelAll() -> UInt64 { cancelQueued(askingRunning: true) { _ in false } }

  /// Cancels queued and held tasks, except those for which `spares` is true. `askingRunning`: asks
  /// running ones to end, in one step with that: a worker that ends one takes no queued task.
  func cancelQueued(
    askingRunning: Bool = false, sparing spares: (TaskPointer) -> Bool
  ) -> UInt64 {
    var cancelled: UInt64 = 0
    var toPorts = TaskList(.lane)
    lock.lock()
    var running = askingRunning ? runningTasks.first : nil
    while let task = running {
      running = runningTasks.next(after: task)
      task.pointee.progress.insert(.asked)
    }
    for list in 0..<2 {
      var next = list == 0 ? byAge.first : held.first
      while let task = next {
        next = byAge.next(after: task)
        if task.has(.background) || spares(task) || !stop(task) { continue }
        cancelled += 1
        if task.port != nil { toPorts.append(task) } else { completions.append(task) }
      }
    }
    unlockAndDrop()
    while let task = toPorts.popFirst() { retireIntoPort(task) }
    return cancelled
  }

  /// A task that will not run leaves its completion in its port at once.
  private func retireIntoPort(_ task: TaskPointer) {
    within(task) { task.finishWork() }
    finish(task)
  }

  func setWidth(_ width: Int) {
    lock.lock()
    self.width = width
    unlockAndWake()
  }

  func suspend() { lock.withLock { suspensions += 1 } }

  /// False: the queue was not suspended.
  func resume() -> Bool {
    lock.lock()
    let isSuspended = suspensions > 0
    if isSuspended { suspensions -= 1 }
    unlockAndWake()
    return isSuspended
  }
}
