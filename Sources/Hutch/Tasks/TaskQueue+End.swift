import CSystem
import Synchronization

/// Background work, and how an owner's tasks and the queue end.
extension TaskQueue {
  // MARK: background work

  /// When the background work goes on, as the status of its task.
  enum Background: Int32 {
    /// After the pause.
    case rests = 0
    /// At once.
    case hasMore = 1
    /// After a fortieth of the pause.
    case isDueSoon = 2
  }

  /// Calls `work` with `context` after a tenth of `pause`, nanoseconds, and then about every
  /// `pause`, until `stop`; earlier if it returns so (`Background`). Does nothing if there are no
  /// threads. The first call comes after what the host has opened the owner for: an owner that
  /// is closed again soon has no such call.
  func startBackground(
    pause: Int64, context: UnsafeMutableRawPointer, work: @escaping TaskRecord.Work
  ) throws(Failure) {
    guard hasThreads else { return }
    var spec = TaskSpec()
    spec.isBackground = true
    spec.priority = -1
    let task = try TaskPointer.make(spec, for: self)
    task.pointee.work = work
    task.pointee.workContext = context
    lock.lock()
    do throws(Failure) {
      if isClosed || background != nil {
        lock.unlock()
        task.drop()
        return
      }
      try makeThread()
      task.pointee.state = .ended
      background = task
      backgroundPause = pause
      backgroundDue = Clock.read(CLOCK_MONOTONIC) + pause / 10
      backgroundIsOff = false
    } catch {
      lock.unlock()
      task.drop()
      throw error
    }
    let sleeper = timekeeperToWake()
    lock.unlock()
    signal(sleeper)
  }

  /// Runs the background work as soon as possible, once more if it is running.
  func wakeBackground() {
    lock.lock()
    backgroundDue = 0
    backgroundIsWanted = true
    let wasEnded = background?.pointee.state == .ended
    if wasEnded { tick(isIdle: true) }
    let sleeper = wasEnded ? workerToWake() : .none
    lock.unlock()
    signal(sleeper)
  }

  func retireBackground(_ task: TaskPointer) {
    let hasMore = task.pointee.status == Background.hasMore.rawValue
    let isDueSoon = task.pointee.status == Background.isDueSoon.rawValue
    task.pointee.progress = []
    task.pointee.lane = -1
    if !backgroundIsOff && (hasMore || backgroundIsWanted) {
      backgroundIsWanted = false
      try? enqueue(task)
      return
    }
    task.pointee.state = .ended
    backgroundDue =
      Clock.read(CLOCK_MONOTONIC) + (isDueSoon ? backgroundPause / 40 : backgroundPause)
    if waiters > 0 { progress.broadcast() }
  }

  /// Called under the lock: queues the background work if its time has come. Reads the clock only
  /// now and then, unless the caller has nothing else to do.
  func tick(isIdle: Bool) {
    guard !backgroundIsOff, let background, background.pointee.state == .ended else { return }
    ticks &+= 1
    guard isIdle || ticks & 63 == 0, Clock.read(CLOCK_MONOTONIC) >= backgroundDue else { return }
    backgroundIsWanted = false
    try? enqueue(background)
  }

  // MARK: an owner's end

  /// Ends the tasks of an owner: carries out the tasks that must run, cancels the other queued
  /// ones, and waits for the running ones. After the deadline it cancels every queued task and
  /// waits for none that runs. False: a task still runs, or was cancelled at the deadline.
  func end(_ owner: TaskOwner, by deadline: Deadline) -> Bool {
    lock.lock()
    owner.forgetParents()
    owner.isClosed = true
    hurry(owner)
    let isIdle = owner.pending == 0
    lock.unlock()
    guard !isIdle else { return true }
    let pointer = Unmanaged.passUnretained(owner).toOpaque()
    _ = cancelQueued { task in
      !task.isOf(pointer) || (task.has(.mustRun) && task.pointee.state != .held)
    }
    if awaitEnd(.closing, by: deadline, { owner.pending == 0 }) { return true }
    let cancelled = cancelQueued { !$0.isOf(pointer) }
    performIrrevocable(pointer)
    run(until: .never, .completions)
    return lock.withLock { cancelled == 0 && owner.pending == 0 }
  }

  /// The host has no reference to the owner any more. The owner's tasks are carried out without
  /// waiting for a resume, and the owner ends with the last of them. In a queue without threads,
  /// this thread carries them out and cancels those that wait for something else, since no thread
  /// would see it come.
  func giveUp(_ owner: TaskOwner) {
    lock.lock()
    hurry(owner)
    unlockAndWake()
    guard !hasThreads else { return }
    let pointer = Unmanaged.passUnretained(owner).toOpaque()
    _ = cancelQueued { !$0.isOf(pointer) || $0.pointee.state == .queued }
    // Within a task, the thread's own `runForHost` does it.
    run(until: .never, .closing)
  }

  /// Called under the lock: from here on the tasks of an owner wait for no resume.
  private func hurry(_ owner: TaskOwner) {
    guard !owner.isEnding else { return }
    owner.isEnding = true
    let pointer = Unmanaged.passUnretained(owner).toOpaque()
    var next = byAge.first
    while let task = next {
      next = byAge.next(after: task)
      if task.isOf(pointer) { rankAnew(task) }
    }
  }

  /// Waits until `isDone`, which it calls under the lock. Without threads, this thread does the
  /// work, also what another thread submits, starts or resumes meanwhile.
  private func awaitEnd(_ share: Share, by deadline: Deadline, _ isDone: () -> Bool) -> Bool {
    let runsTasks = !hasThreads || isWorker
    if runsTasks { run(until: deadline, share) }
    lock.lock()
    defer { lock.unlock() }
    let sleeper = workerToWake()
    signal(sleeper)
    while !isDone() {
      if runsTasks, !deadline.hasPassed, let task = take(share) {
        finishDrops()
        lock.unlock()
        performWhole(task)
      } else if !wait(until: deadline) {
        return false
      }
    }
    return true
  }

  /// Carries out on this thread the tasks that cannot be cancelled, even if the whole width is
  /// taken.
  private func performIrrevocable(_ owner: UnsafeMutableRawPointer) {
    lock.lock()
    while true {
      var next = byAge.first
      while let task = next, !(task.has(.irrevocable) && task.isOf(owner)) {
        next = byAge.next(after: task)
      }
      guard let task = next else { break }
      _ = begin(task)
      lock.unlock()
      performWhole(task)
    }
    lock.unlock()
  }

  // MARK: the queue's end

  /// Ends the queue: cancels queued tasks, and waits until no task runs and the threads have ended.
  /// Threads that are still within the host after the deadline end by themselves. The call waits
  /// for the background work in any case, since that belongs to the queue's owner.
  func stop(by deadline: Deadline) {
    lock.lock()
    isClosed = true
    backgroundIsOff = true
    lock.unlock()
    _ = cancelQueued { _ in false }
    if !awaitEnd(.all, by: deadline, { pending == 0 }) {
      run(until: .never, .completions)
    }
    lock.lock()
    if let task = background, task.pointee.state == .queued {
      byAge.remove(task)
      queued -= 1
      removeFromLane(task)
      task.pointee.state = .ended
    }
    while let task = background, task.pointee.state != .ended {
      _ = wait(until: .never)
    }
    isStopping = true
    lock.unlock()
    wakeAll()
    leaveThreads(by: deadline)
  }

  /// The host releases the queue: it still carries out queued tasks and tasks that a group holds,
  /// and then the threads end. If there are no such tasks, the threads have ended on return.
  func abandon() {
    lock.lock()
    isClosed = true
    isStopping = true
    let isIdle = pending == 0 && heldCount == 0
    lock.unlock()
    wakeAll()
    if !hasThreads {
      _ = cancelQueued { _ in false }
      run(until: .never)
      return
    }
    leaveThreads(by: Deadline(after: isIdle ? Int64.max : 0))
  }

  /// The process ends by exit(): the queue takes no more tasks, cancels what a close would cancel,
  /// and waits for the others, so that no function of the host runs beside the process's
  /// destructors.
  func endAtExit(by deadline: Deadline) {
    lock.lock()
    isClosed = true
    lock.unlock()
    _ = cancelQueued { $0.has(.mustRun) && $0.pointee.state != .held }
    // A task that calls exit() would wait for itself.
    if isWithinCallback || !awaitEnd(.all, by: deadline, { pending == 0 }) { return }
    lock.lock()
    isStopping = true
    lock.unlock()
    wakeAll()
    leaveThreads(by: deadline)
  }

  /// Joins the threads if they end in time, or detaches them. A thread of the queue cannot wait for
  /// itself.
  private func leaveThreads(by deadline: Deadline) {
    lock.lock()
    let most = threads.count - (isWorker ? 1 : 0)
    // Threads without a task end at once: the join alone waits for them.
    let isIdle = !isWorker && busyThreads == 0 && pending == 0 && heldCount == 0
    while !isIdle && exited < most && wait(until: deadline) {}
    let haveEnded = isIdle || exited == threads.count
    // The completion of a group may still come, and reads the list (`post`).
    var gone = GrowingArray<pthread_t>()
    swap(&gone, &threads)
    lock.unlock()
    while let thread = gone.popLast() {
      if haveEnded { pthread_join(thread, nil) } else { pthread_detach(thread) }
    }
  }
}

extension TaskPointer {
  /// Called under the lock of its queue.
  fileprivate func isOf(_ owner: UnsafeMutableRawPointer) -> Bool {
    hasExtras && extras.pointee.owner?.toOpaque() == owner
  }
}
