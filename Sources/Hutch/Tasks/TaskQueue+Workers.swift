import CSystem

/// The threads that run tasks: the queue's own, or the host's.
extension TaskQueue {
  // MARK: threads

  /// Called under the lock. Makes the first thread, without which no task would run.
  func makeThread() throws(Failure) {
    guard hasThreads, threads.isEmpty, !isStopping else { return }
    try spawn()
  }

  /// Called under the lock: the sleeping thread that the caller must `signal` after it has released
  /// the lock. Makes a worker if none sleeps and all are busy.
  func workerToWake() -> Sleeper {
    guard hasMore else { return .none }
    guard hasThreads else {
      // A thread that waits for the end of tasks runs them (`awaitEnd`).
      if waiters > 0 { progress.broadcast() }
      return .none
    }
    let sleeper = wakeOne()
    // A worker that is being woken takes care of the rest. Without another thread the queue is
    // slower. A queue that ends joins its threads and makes no more.
    if sleeper == .none && !isStopping && noneSleeps && busyThreads >= threads.count
      && threads.count < min(width, TaskQueue.mostThreads)
    {
      try? spawn()
    }
    return sleeper
  }

  /// Which thread a caller wakes.
  enum Sleeper {
    case none
    case worker
    case timekeeper
  }

  var noneSleeps: Bool { sleeping == 0 && timekeeper == .none }

  /// Called under the lock. The timekeeper is woken last, so that another thread need not be woken
  /// to take its place.
  func wakeOne() -> Sleeper {
    if sleeping > waking {
      waking += 1
      return .worker
    }
    guard timekeeper == .asleep else { return .none }
    timekeeper = .woken
    return .timekeeper
  }

  func signal(_ sleeper: Sleeper) {
    switch sleeper {
    case .none: break
    case .worker: wake.signal()
    case .timekeeper: wakeTimekeeper.signal()
    }
  }

  /// Ends a step under the lock: releases it, and wakes a thread for the work that waits.
  @inline(never)
  func unlockAndWake() {
    let sleeper = workerToWake()
    lock.unlock()
    signal(sleeper)
  }

  /// Likewise, and drops the tasks of which the step has noted that.
  @inline(never)
  func unlockAndDrop() {
    let drops = takeDeferredDrops()
    unlockAndWake()
    TaskQueue.dropAll(drops)
  }

  @inline(never)
  func wakeAll() {
    wake.broadcast()
    wakeTimekeeper.broadcast()
  }

  func spawn() throws(Failure) {
    try threads.reserve(threads.count + 1)
    let thread = try OwnedThread.make("hutch-task", of: self) { context in
      OwnedThread.run(context, TaskQueue.self) { $0.work() }
    }
    try threads.append(thread)
  }

  /// True if the caller is one of the queue's threads.
  var isWorker: Bool { ThreadState.workerOf == Unmanaged.passUnretained(self).toOpaque() }

  /// The loop of a worker.
  private func work() {
    ThreadState.workerOf = Unmanaged.passUnretained(self).toOpaque()
    var isIdle = true
    lock.lock()
    while true {
      tick(isIdle: false)
      lookAtDeadlines(isIdle: isIdle)
      guard let task = take() else {
        if deferredDrops != nil {
          finishDrops()
        } else if isStopping && pending == 0 && heldCount == 0 {
          break
        } else {
          sleep()
        }
        isIdle = true
        continue
      }
      busyThreads += 1
      var sleeper = workerToWake()
      if sleeper == .none { sleeper = handOverTime() }
      let drops = takeDeferredDrops()
      lock.unlock()
      signal(sleeper)
      TaskQueue.dropAll(drops)
      performWhole(task)
      busyThreads -= 1
      isIdle = false
    }
    exited += 1
    // For the other workers, and for `leaveThreads`.
    progress.broadcast()
    lock.unlock()
    wakeAll()
  }

  /// Called under the lock: waits until there may be work, or a deadline passes. The first thread
  /// that sleeps while the background work rests is the timekeeper, and wakes when that is due.
  private func sleep() {
    let first = deadlines.first?.extras.pointee.due ?? Int64.max
    parkedSinceSleep = false
    if timekeeper == .none && backgroundRests {
      timekeeper = .asleep
      sleep(on: wakeTimekeeper, until: min(first, backgroundDue))
      timekeeper = .none
      tick(isIdle: true)
      return
    }
    sleeping += 1
    sleep(on: wake, until: first)
    sleeping -= 1
    if waking > 0 { waking -= 1 }
  }

  private func sleep(on condition: borrowing Condition, until due: Int64) {
    let pause = Deadline(at: due).left
    if pause > 0 { condition.wait(lock, nanoseconds: pause) }
  }

  // MARK: the host's threads

  /// For hutch_queue_run and hutch_maintain: like `run`. In a queue without threads, it carries out
  /// the tasks of ending owners whatever the budget, since one of these tasks may have released the
  /// owner.
  func runForHost(until end: Deadline) -> UInt64 {
    let count = run(until: end)
    return hasThreads ? count : count + run(until: .never, .closing)
  }

  /// Runs tasks on this thread until none may run or the time is over. Returns how many.
  @discardableResult
  func run(until end: Deadline, _ share: Share = .all) -> UInt64 {
    var count: UInt64 = 0
    lock.lock()
    while true {
      lookAtDeadlines(isIdle: true)
      let isOver = share != .completions && count > 0 && end.hasPassed
      let task = isOver ? nil : take(share)
      finishDrops()
      guard let task else { break }
      lock.unlock()
      performWhole(task)
      count += 1
    }
    // This thread will not see when the parked task is due.
    if parkedSinceSleep { signal(timekeeperToWake()) }
    lock.unlock()
    return count
  }

  /// Under the lock, which it gives up meanwhile.
  func finishDrops() {
    guard let drops = takeDeferredDrops() else { return }
    lock.unlock()
    TaskQueue.dropAll(drops)
    lock.lock()
  }

  // MARK: one task

  /// Called with no lock held, returns with the lock: a task from its turn to its end. The caller
  /// has no other task in its hands: with the last reference of its owner the end of this one may
  /// end the queue, which waits for every task.
  func performWhole(_ task: TaskPointer) {
    perform(task)
    finish(task)
    lock.lock()
  }

  /// Called with no lock held: runs the task, and makes its completion, unless that is for a port.
  /// The caller must then call `retire`.
  func perform(_ task: TaskPointer) {
    within(task) {
      let state = task.pointee.state
      if task.has(.joining) && (state == .running || state == .late) {
        performJoined(task)
        return
      }
      if state == .running {
        let status = task.pointee.work?(task.pointee.workContext, OpaquePointer(task)) ?? 0
        // The task has not ended; from here on another thread may resume and run it.
        if status == TaskQueue.parks && task.has(.payload) { return }
        task.pointee.status = status
      }
      conclude(task)
    }
  }

  /// Tells the host, and returns what the host gave. For a task with a port, the drain does both,
  /// except for the context of the work.
  private func conclude(_ task: TaskPointer) {
    task.finishWork()
    if task.hasExtras && task.extras.pointee.port != nil { return }
    if task.pointee.complete != nil { deliver(task) }
    task.releaseCompletion()
  }

  /// Runs the tasks of one identifier as one: merges their contexts into that of the first, and
  /// calls its function. A task that is late takes no part.
  private func performJoined(_ first: TaskPointer) {
    var leader: TaskPointer?
    var next: TaskPointer? = first
    while let task = next {
      next = task.extras.pointee.behind
      guard task.pointee.state == .running else { continue }
      if let leader {
        task.extras.pointee.merge?(leader.pointee.workContext, task.pointee.workContext)
      } else {
        leader = task
      }
    }
    if let leader {
      let status = leader.pointee.work?(leader.pointee.workContext, OpaquePointer(leader)) ?? 0
      // A task that was asked to end, while another was not, has left the work.
      lock.lock()
      let isOff = haveAllAsked(leader)
      next = leader
      while let task = next {
        next = task.extras.pointee.behind
        guard task.pointee.state == .running else { continue }
        task.pointee.status =
          task.isAt(.asked) && !isOff ? Status.cancelled.code : status
        if task != leader && task.has(.payload) {
          task.extras.pointee.merge?(task.pointee.workContext, leader.pointee.workContext)
        }
      }
      lock.unlock()
    }
    // The caller retires the first task, like any other.
    next = first
    while let task = next {
      lock.lock()
      next = task.extras.pointee.behind
      task.extras.pointee.behind = nil
      lock.unlock()
      conclude(task)
      guard task != first else { continue }
      finish(task)
      // The task before it held a reference.
      task.drop()
    }
  }

  /// Called under the lock: true if a running task, and every task that it is coalesced with, has
  /// been asked to end. Tasks that run as one are in a row in the list of running tasks.
  func haveAllAsked(_ task: TaskPointer) -> Bool {
    guard task.has(.joining) else { return task.isAt(.asked) }
    var first = task
    while let before = runningTasks.previous(of: first), before.has(.joining),
      before.extras.pointee.behind == first
    {
      first = before
    }
    var next: TaskPointer? = first
    while let member = next {
      if member.pointee.state == .running && !member.isAt(.asked) { return false }
      next = member.extras.pointee.behind
    }
    return true
  }
}
