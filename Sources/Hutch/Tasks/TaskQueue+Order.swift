import CSystem

/// The choice of the next task: lanes, ranks, and what a thread takes.
///
/// A task that may run is in one lane, by its rank: its priority, or `closingRank` while its owner
/// ends. Of the tasks of one name, only the first is in a lane: that of the highest rank among the
/// tasks that stand behind it, which counters of these ranks tell (`TaskExtras.ranks`).
extension TaskQueue {
  // MARK: lanes

  /// For a task that stands before no other, or before none with a higher rank.
  func appendToOwnLane(_ task: TaskPointer) {
    task.pointee.lane = task.rank
    appendToLane(task)
  }

  func appendToLane(_ task: TaskPointer) { lanes[TaskQueue.lane(of: task)].append(task) }

  func removeFromLane(_ task: TaskPointer) { lanes[TaskQueue.lane(of: task)].remove(task) }

  static func lane(of task: TaskPointer) -> Int { Int(task.pointee.lane) + 1 }

  /// The first task of the highest lane from this rank on that has one.
  private func first(from rank: Int8 = -1) -> TaskPointer? {
    for lane in (Int(rank) + 1..<lanes.count).reversed() {
      if let task = lanes[lane].first { return task }
    }
    return nil
  }

  /// Counts a task by its rank among those that stand behind `first`, itself included.
  func count(_ task: TaskPointer, among first: TaskPointer) {
    task.extras.pointee.countedRank = task.rank
    count(task.rank, 1, among: first)
  }

  /// The task no longer stands there.
  func uncount(_ task: TaskPointer, among first: TaskPointer) {
    count(task.extras.pointee.countedRank, -1, among: first)
  }

  private func count(_ rank: Int8, _ change: Int32, among first: TaskPointer) {
    if rank >= 0 { first.extras.pointee.ranks[Int(rank)] += change }
  }

  /// The lane of the first task of a name is that of the highest rank among the tasks of the name.
  func laneOfAll(_ first: TaskPointer) -> Int8 {
    var rank = TaskPointer.closingRank
    while rank >= 0, first.extras.pointee.ranks[Int(rank)] == 0 { rank -= 1 }
    return rank
  }

  /// Called under the lock: the rank of a queued task has changed since it was put in its place.
  func rankAnew(_ task: TaskPointer) {
    guard task.isNamed else {
      removeFromLane(task)
      appendToOwnLane(task)
      return
    }
    guard let first = table.first(like: task) else { return }
    uncount(task, among: first)
    count(task, among: first)
    relane(first)
  }

  func relane(_ first: TaskPointer) {
    let lane = laneOfAll(first)
    guard lane != first.pointee.lane else { return }
    guard first.pointee.state == .queued else {
      first.pointee.lane = lane
      return
    }
    removeFromLane(first)
    first.pointee.lane = lane
    appendToLane(first)
  }

  // MARK: the next one

  /// The tasks that a thread takes; waiting completions are among them in any case.
  enum Share {
    case all
    /// Only the tasks that ending owners need.
    case closing
    /// Only completions.
    case completions
  }

  var isSuspended: Bool { suspensions > 0 && !isClosed }

  /// Called under the lock. Takes a task whose completion must be made, or else a task to run. Nil:
  /// no task may run.
  func take(_ share: Share = .all) -> TaskPointer? {
    if let task = completions.popFirst() { return task }
    guard share != .completions else { return nil }
    guard running < width else {
      guard share == .all, let task = waitingBackground else { return nil }
      removeFromLane(task)
      start(task)
      return task
    }
    if share == .closing || isSuspended {
      return first(from: TaskPointer.closingRank).map { begin($0) }
    }
    if !oldestRuns, let task = oldest() {
      oldestRuns = true
      task.pointee.progress.insert(.oldest)
      return begin(task)
    }
    return first().map { begin($0) }
  }

  /// The oldest task that may run. It skips a few of those that stand behind a running one. With a
  /// width of 1 there are none, so the order is strict.
  private func oldest() -> TaskPointer? {
    var next = byAge.first
    var passed = 0
    while let task = next, task.isAt(.behind), passed < 32 {
      next = byAge.next(after: task)
      passed += 1
    }
    guard let next, !next.isAt(.behind) else { return nil }
    return next
  }

  /// Called under the lock: the background work if it is queued. While tasks occupy the whole
  /// width, a free thread carries it out beyond the width, and `running` does not count it.
  private var waitingBackground: TaskPointer? {
    guard !isSuspended, let background, background.pointee.state == .queued else { return nil }
    return background
  }

  func begin(_ task: TaskPointer) -> TaskPointer {
    removeFromLane(task)
    running += 1
    task.pointee.progress.insert(.counted)
    start(task)
    if task.has(.joining) {
      table.remove(task)
      // Cancelled tasks leave the row.
      var last = task
      while let member = last.extras.pointee.behind {
        if member.pointee.state == .queued {
          start(member)
          last = member
        } else {
          last.extras.pointee.behind = member.extras.pointee.behind
          dropLater(member)
        }
      }
    }
    if roomWaiters > 0 { progress.broadcast() }
    return task
  }

  private func start(_ task: TaskPointer) {
    byAge.remove(task)
    queued -= 1
    unwatch(task)
    task.pointee.progress.remove(.behind)
    task.pointee.state = .running
    if task.hasExtras && task.extras.pointee.deadline != 0 && !task.has(.irrevocable)
      && Clock.read(CLOCK_MONOTONIC) >= task.extras.pointee.deadline
    {
      task.pointee.state = .late
      task.pointee.status = Status.timedOut.code
    }
    runningTasks.append(task)
    task.pointee.progress.insert(.listed)
  }

  /// Called under the lock: true if there is a task to take.
  var hasMore: Bool {
    if completions.first != nil { return true }
    guard running < width else { return waitingBackground != nil }
    return first(from: isSuspended ? TaskPointer.closingRank : -1) != nil
  }
}
