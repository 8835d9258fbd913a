import CSystem

/// Deadlines of tasks that wait, and tasks that are parked.
///
/// A task whose deadline passes ends at that time, whether its turn has come or not. A sleeping
/// worker wakes at the first deadline, and a worker that returns from a task checks the deadlines
/// too, by a coarse clock. If all threads are within functions of the host when a task with a
/// deadline is queued, or enter them while such a task waits, the queue makes one thread more than
/// its width, to keep the time. It also makes that thread if it has background work. That thread
/// runs tasks like the others, makes the completions of tasks that have ended, and carries out the
/// background work beyond the width. A deadline, or the background work, waits for a thread only if
/// that thread is within a completion too, or could not be made. In a queue without threads, the
/// host's call that runs the queue checks the deadlines.
///
/// The work of a parked task waits for something other than a place of the width. It has returned,
/// and is called again after `resume`, or when the task is due.
extension TaskQueue {
  /// The result by which the work of an internal task asks to be parked.
  static let parks = Int32.min

  // MARK: deadlines

  /// Called under the lock, for a task that waits.
  func watch(_ task: TaskPointer) {
    guard task.hasExtras, !task.has(.irrevocable), !task.has(.background) else { return }
    let extras = task.extras
    guard extras.pointee.deadline != 0, !extras.pointee.isWatched else { return }
    extras.pointee.due = extras.pointee.deadline
    deadlines.insert(task)
  }

  /// Called under the lock, for a task that waits no longer.
  func unwatch(_ task: TaskPointer) {
    if task.hasExtras && task.extras.pointee.isWatched { deadlines.remove(task) }
  }

  /// Called under the lock: ends the tasks whose deadline has passed, and requeues the parked ones
  /// that are due. Between two tasks, a clock that is right to some milliseconds is good enough.
  func lookAtDeadlines(isIdle: Bool) {
    guard deadlines.first != nil else { return }
    let now = Clock.read(isIdle ? CLOCK_MONOTONIC : CLOCK_MONOTONIC_COARSE)
    while let task = deadlines.first, task.extras.pointee.due <= now {
      let deadline = task.extras.pointee.deadline
      if task.pointee.state == .parked && (deadline == 0 || deadline > now) {
        queueAgain(task)
      } else if stop(task, as: .timedOut) {
        completions.append(task)
      } else {
        unwatch(task)
      }
    }
  }

  /// Called under the lock, when the first deadline has changed: a sleeping thread that the caller
  /// must wake, as by `workerToWake`.
  func timekeeperToWake() -> Sleeper {
    guard hasThreads else { return .none }
    let sleeper = wakeOne()
    if sleeper == .none { makeTimekeeper() }
    return sleeper
  }

  /// Called under the lock: makes a thread if there are deadlines or background work, and every
  /// thread is within a task or a completion.
  func makeTimekeeper() {
    guard deadlines.first != nil || !backgroundIsOff, hasThreads, !isStopping, noneSleeps,
      busyThreads >= threads.count, threads.count <= min(width, TaskQueue.mostThreads)
    else { return }
    try? spawn()
  }

  /// Called under the lock by a worker that is about to run a task: another thread keeps the time
  /// from here on. It is made if none sleeps. A thread that fell asleep while the background work
  /// ran, or before a task was parked, is woken, since it does not know when that is due.
  func handOverTime() -> Sleeper {
    if (timekeeper == .none && backgroundRests && sleeping > waking) || parkedSinceSleep {
      let sleeper = wakeOne()
      if sleeper != .none { return sleeper }
    }
    makeTimekeeper()
    return .none
  }

  // MARK: parking

  /// Called by the work of a task that is about to return `parks`. `due`: the latest time of the
  /// next call; Int64.max: never.
  func willPark(_ task: TaskPointer, until due: Int64) {
    lock.lock()
    let deadline = task.extras.pointee.deadline
    task.extras.pointee.due = deadline == 0 ? due : min(deadline, due)
    task.pointee.progress.insert(.parks)
    lock.unlock()
  }

  /// Called under the lock: the counterpart of `retire` for a task that continues.
  func park(_ task: TaskPointer) {
    running -= 1
    if task.isAt(.oldest) { oldestRuns = false }
    if task.isAt(.listed) { runningTasks.remove(task) }
    let isAsked = task.isAt(.asked)
    let isResumed = task.isAt(.resumed)
    task.pointee.progress.subtract([.counted, .oldest, .listed, .asked, .parks, .resumed])
    if isResumed && !isAsked {
      appendByAge(task)
      appendToOwnLane(task)
      return
    }
    task.pointee.state = .parked
    held.append(task)
    heldCount += 1
    if task.extras.pointee.due != Int64.max {
      deadlines.insert(task)
      parkedSinceSleep = true
    }
    // In a queue without threads no thread would see the end of what a task of an ending owner
    // waits for.
    let isGivenUp = !hasThreads && task.rank == TaskPointer.closingRank
    if (isAsked || isGivenUp) && stop(task) { completions.append(task) }
  }

  /// Has a parked task called again. A task that is about to be parked will not be.
  func resume(_ task: TaskPointer) {
    lock.lock()
    if task.pointee.state == .running { task.pointee.progress.insert(.resumed) }
    if task.pointee.state == .parked { queueAgain(task) }
    unlockAndWake()
  }

  /// Called under the lock.
  private func queueAgain(_ task: TaskPointer) {
    held.remove(task)
    heldCount -= 1
    unwatch(task)
    appendByAge(task)
    appendToOwnLane(task)
  }

  /// A running task has finished with its key: the next task of the key may run.
  func leaveKey(_ task: TaskPointer) {
    lock.lock()
    advance(task)
    task.pointee.flags.remove(.keyed)
    unlockAndDrop()
  }
}
