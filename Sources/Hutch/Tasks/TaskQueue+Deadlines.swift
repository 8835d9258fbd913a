import CSystem

/// Deadlines of tasks that wait, and tasks that are parked.
///
/// A task whose deadline passes ends then, whether its turn has come or not. A sleeping worker
/// wakes by the first deadline, and a worker that comes back from a task looks too, by a coarse
/// clock. If all threads are within the host's functions when a task with a deadline is queued, or
/// are about to be while one waits, one more than the width is made to keep the time; it runs tasks
/// like the others, and makes the completions of those that have ended. Only where that one is kept
/// by a completion as well, or cannot be made, a deadline waits for a thread. Without threads the
/// host's call that runs the queue looks.
///
/// The work of a parked task waits for something other than a place of the width: it
/// has returned, and is called again when `resume` is, or when it is due.
extension TaskQueue {
  /// What the work of a task of ours returns to be parked.
  static let parks = Int32.min

  // MARK: deadlines

  /// Under the lock, for a task that waits.
  func watch(_ task: TaskPointer) {
    guard task.hasExtras, !task.has(.irrevocable), !task.has(.background) else { return }
    let extras = task.extras
    guard extras.pointee.deadline != 0, extras.pointee.place < 0 else { return }
    extras.pointee.due = extras.pointee.deadline
    deadlines.insert(task)
  }

  /// Under the lock, for one that waits no longer.
  func unwatch(_ task: TaskPointer) {
    if task.hasExtras && task.extras.pointee.place >= 0 { deadlines.remove(task) }
  }

  /// Under the lock: ends the tasks whose deadline has passed, and has those looked at that are
  /// due. A clock that is right to some milliseconds is enough between two tasks.
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

  /// Under the lock, when the first deadline has become another: whether a sleeping worker is to
  /// be woken, as by `wantsWorker`.
  func wantsTimekeeper() -> Bool {
    guard hasThreads else { return false }
    if sleeping > waking {
      waking += 1
      return true
    }
    makeTimekeeper()
    return false
  }

  /// Under the lock: makes a thread if there are deadlines, and no thread that looks at them.
  func makeTimekeeper() {
    guard deadlines.first != nil, hasThreads, !isStopping, sleeping == 0,
      busyThreads >= threads.count, threads.count <= min(width, TaskQueue.mostThreads)
    else { return }
    try? spawn()
  }

  // MARK: parking

  /// Called by the work of a task that is about to return `parks`. `due`: by when it is to be
  /// called again at the latest; Int64.max: never.
  func willPark(_ task: TaskPointer, until due: Int64) {
    lock.lock()
    let deadline = task.extras.pointee.deadline
    task.extras.pointee.due = deadline == 0 ? due : min(deadline, due)
    task.pointee.marks.insert(.parks)
    lock.unlock()
  }

  /// Under the lock: what `retire` is to a task that goes on.
  func park(_ task: TaskPointer) {
    running -= 1
    if task.isMarked(.oldest) { oldestRuns = false }
    if task.isMarked(.listed) { runningTasks.remove(task) }
    let isAsked = task.isMarked(.asked)
    let isResumed = task.isMarked(.resumed)
    task.pointee.marks.subtract([.counted, .oldest, .listed, .asked, .parks, .resumed])
    if isResumed && !isAsked {
      appendByAge(task)
      appendToOwnLane(task)
      return
    }
    task.pointee.state = .parked
    held.append(task)
    heldCount += 1
    if task.extras.pointee.due != Int64.max { deadlines.insert(task) }
    if isAsked && stop(task) { completions.append(task) }
  }

  /// Has a parked task called again; one that is about to be parked will not be.
  func resume(_ task: TaskPointer) {
    lock.lock()
    if task.pointee.state == .running { task.pointee.marks.insert(.resumed) }
    if task.pointee.state == .parked { queueAgain(task) }
    let signals = wantsWorker()
    lock.unlock()
    if signals { wake.signal() }
  }

  /// Under the lock.
  private func queueAgain(_ task: TaskPointer) {
    held.remove(task)
    heldCount -= 1
    unwatch(task)
    appendByAge(task)
    appendToOwnLane(task)
  }

  /// A running task of a key is done with it: the next one may run.
  func leaveKey(_ task: TaskPointer) {
    lock.lock()
    advance(task)
    task.pointee.flags.remove(.keyed)
    let signals = wantsWorker()
    let drops = takeDeferredDrops()
    lock.unlock()
    if signals { wake.signal() }
    TaskQueue.dropAll(drops)
  }
}

/// Tasks by when they are to be looked at, the first at hand: a binary heap, in which each task
/// knows its place. The queue's, under its lock.
struct DeadlineHeap: ~Copyable {
  private var tasks = GrowingArray<TaskPointer>()

  mutating func forget() { tasks.removeAll() }

  var first: TaskPointer? { tasks.isEmpty ? nil : tasks[0] }

  /// Without memory it is left out: its turn comes all the same.
  mutating func insert(_ task: TaskPointer) {
    do throws(Failure) { try tasks.append(task) } catch { return }
    rise(task, tasks.count - 1)
  }

  mutating func remove(_ task: TaskPointer) {
    let at = task.extras.pointee.place
    task.extras.pointee.place = -1
    guard let last = tasks.popLast(), last != task else { return }
    rise(last, at)
    sink(last, last.extras.pointee.place)
  }

  private func put(_ task: TaskPointer, _ at: Int) {
    tasks[at] = task
    task.extras.pointee.place = at
  }

  private func due(_ at: Int) -> Int64 { tasks[at].extras.pointee.due }

  private func rise(_ task: TaskPointer, _ from: Int) {
    var at = from
    while at > 0, due((at - 1) / 2) > task.extras.pointee.due {
      put(tasks[(at - 1) / 2], at)
      at = (at - 1) / 2
    }
    put(task, at)
  }

  private func sink(_ task: TaskPointer, _ from: Int) {
    var at = from
    while 2 * at + 1 < tasks.count {
      var child = 2 * at + 1
      if child + 1 < tasks.count && due(child + 1) < due(child) { child += 1 }
      guard due(child) < task.extras.pointee.due else { break }
      put(tasks[child], at)
      at = child
    }
    put(task, at)
  }
}
