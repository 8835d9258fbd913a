import CSystem
import Synchronization

/// Runs tasks: functions with a context, each with one completion.
///
/// Order (TaskQueue+Order). A task that may run is in the lane of its priority; every queued task
/// is in one list by age. One place of the width is for the oldest task, whatever its priority, so
/// that every task runs in the end (PINOperation's serial lane). The other places are for the first
/// task of the highest lane. A width of 1 is therefore strict order of submission. Tasks of one key
/// form a row, and only the first is in a lane, that of the highest priority in the row. Tasks of
/// one identifier also form a row, but run as one (TaskTable).
///
/// A suspended queue starts no task except those that an ending owner needs: a close, or the
/// release of the host's last reference, does not wait for a resume. These tasks are in a lane of
/// their own, and so is the first task of a key that one of them stands behind; tasks of other
/// owners stay where they are. The end of the queue itself (`isClosed`) waits for no resume either.
///
/// Completion (TaskQueue+Workers). The thread that runs a task also makes its completion, with no
/// lock held, or leaves it in the task's port. A cancelled task enters the list of completions,
/// which a worker serves before anything else: no completion is made on the stack of a submission
/// or of a cancel.
///
/// Threads are made when there is work and every thread is busy. A burst of submissions wakes one
/// worker, which wakes the next while there is more work: a thread that finds none was woken in
/// vain. The threads refer to the queue, so it lives as long as they do.
///
/// Background work is one task of the queue itself, of low priority. It is queued again a while
/// after its end, or at once if it reports more work. It does not wait for a place of the width:
/// while functions of the host occupy every worker, one thread more carries it out
/// (TaskQueue+Deadlines).
///
/// After a fork the child has none of the threads: its handles on the queue and on tasks return
/// HUTCH_FORKED. A cache that goes on in the child has a new queue there (`makeForChild`).
///
/// A queue is a cache's own, or the host's. One of the host's may serve several caches as well: its
/// `guests`, whose background work has queues of its own (Parts).
///
/// Locks. `lock` protects every field of the queue and of its tasks that is not constant and has no
/// other comment. Order: stripes of a cache > `lock` > the lock of a group, of a port, of the order
/// of writes of a cache. It is held for O(1), except for walks over all queued tasks: a cancel of
/// all, the end of an owner or of the queue.
final class TaskQueue {
  /// Reports the result of a task to the host; set by the C boundary.
  typealias Deliver = @convention(c) (UnsafeMutableRawPointer) -> Void

  static let mostThreads = 256

  private let hasher: KeyedHash
  let deliver: Deliver
  let hasThreads: Bool
  /// Names the queue among callbacks (see ThreadState): its owner, or the queue itself. Set once,
  /// before the host gets the queue.
  private var ownersIdentity: UnsafeMutableRawPointer?
  // Queued tasks. The lanes are those of the ranks, from the lowest on.
  var lanes = InlineArray<4, TaskList>(repeating: TaskList(.lane))
  var byAge = TaskList(.age)
  var table = TaskTable()
  var queued = 0
  let length: Int
  /// Waiting tasks, by their next deadline or due time.
  var deadlines = DeadlineHeap()
  /// No thread has gone to sleep since a task with a due time was parked.
  var parkedSinceSleep = false
  // Tasks that wait for the start of their group, or are parked.
  var held = TaskList(.age)
  var heldCount = 0
  // Running tasks.
  var runningTasks = TaskList(.age)
  var running = 0
  var width: Int
  var oldestRuns = false
  /// Tasks that have ended except for their completions.
  var completions = TaskList(.lane)
  /// The number of tasks that have not ended, without those that are held.
  var pending = 0
  /// Cancelled tasks that have left the row behind a first task, linked by `bucketNext`. The row's
  /// references to them are released with no lock held.
  var deferredDrops: TaskPointer?

  // Threads that wait: for `progress`, and among them for room; for `wake`, and how many of those
  // have been signalled. The timekeeper is not among them.
  var waiters = 0
  var roomWaiters = 0
  var sleeping = 0
  var waking = 0

  /// The caches that it serves, if it is the host's (TaskGuest).
  var guests: Unmanaged<TaskGuest>?

  var suspensions = 0
  /// Submissions are refused.
  var isClosed = false
  /// Workers end when no task is left.
  var isStopping = false

  // Threads.
  var threads = GrowingArray<pthread_t>()
  var exited = 0
  /// The number of threads that are within a task or a completion.
  var busyThreads = 0

  // Background work.
  var background: TaskPointer?
  var backgroundPause: Int64 = 0
  var backgroundDue: Int64 = 0
  var backgroundIsOff = true
  /// It was requested since it last began.
  var backgroundIsWanted = false
  /// The sleeping thread that wakes when the background work is due. `woken`: it has been
  /// signalled. While the background work rests and a thread sleeps that is not being woken, there
  /// is a timekeeper.
  enum Timekeeper {
    case none
    case asleep
    case woken
  }
  var timekeeper = Timekeeper.none
  /// The background work waits for its time.
  var backgroundRests: Bool { !backgroundIsOff && background?.pointee.state == .ended }
  var ticks = 0

  // The last: the instructions that reach the fields before them are shorter.
  /// See above.
  let lock = Lock()
  /// Workers sleep here.
  let wake = Condition()
  /// The timekeeper sleeps here.
  let wakeTimekeeper = Condition()
  /// Signals that a task has ended, or has left room.
  let progress = Condition()

  private init(
    _ hasher: KeyedHash, width: Int, hasThreads: Bool, length: Int, deliver: @escaping Deliver
  ) {
    self.hasher = hasher
    self.deliver = deliver
    self.hasThreads = hasThreads
    self.length = length
    self.width = width
  }

  /// Delegates: see Copying.
  convenience init(
    width: Int, hasThreads: Bool, length: Int, deliver: @escaping Deliver
  ) throws(Failure) {
    self.init(
      try KeyedHash(), width: width, hasThreads: hasThreads, length: length, deliver: deliver)
  }

  /// A queue with the settings of this one, and without its tasks and threads: for the child of a
  /// fork.
  func makeForChild() throws(Failure) -> TaskQueue {
    let queue = try TaskQueue(
      width: width, hasThreads: hasThreads, length: length, deliver: deliver)
    queue.suspensions = suspensions
    return queue
  }

  deinit { background?.drop() }

  var identity: UnsafeMutableRawPointer {
    ownersIdentity ?? Unmanaged.passUnretained(self).toOpaque()
  }

  func belong(to owner: UnsafeMutableRawPointer) { ownersIdentity = owner }

  func hash(_ identifier: Bytes) -> UInt64 { hasher.callAsFunction(identifier) }

  /// True if a task of the key has not ended.
  func hasTask(ofKey hash: UInt64) -> Bool {
    lock.withLock { table.first(ofKey: hash) != nil }
  }

  /// A thread that is within a callback of the queue may not wait for the queue.
  func checkMayWait() throws(Failure) {
    if isWithinCallback { throw .ownQueue }
  }

  // MARK: submission

  /// Takes the task over. If it throws, or returns that the queue is full, the caller still has the
  /// task.
  func submit(_ task: TaskPointer, _ spec: borrowing TaskSpec) throws(Failure) -> Status {
    lock.lock()
    var sleeper = Sleeper.none
    do throws(Failure) {
      if spec.waitsForRoom { try waitForRoom(spec) }
      try checkOpen(spec)
      if length != 0 && queued >= length {
        lock.unlock()
        return .wouldBlock
      }
      try makeThread()
      if spec.group != nil || spec.isHeld {
        try spec.group?.add(task)
        task.pointee.state = .held
        held.append(task)
        heldCount += 1
        watch(task)
      } else {
        try enqueue(task)
        countPending(task, 1)
        sleeper = workerToWake()
      }
      if deadlines.first == task && sleeper == .none { sleeper = timekeeperToWake() }
      count(spec.owner)
    } catch {
      lock.unlock()
      throw error
    }
    // The host's reference, before the queue's can be released.
    if spec.wantsHandle { task.retain() }
    lock.unlock()
    signal(sleeper)
    return .done
  }

  /// Takes over a task that has been done; its completion goes to its port.
  func submitEnded(_ task: TaskPointer, _ spec: borrowing TaskSpec) throws(Failure) -> Status {
    lock.lock()
    do throws(Failure) {
      try checkOpen(spec)
    } catch {
      lock.unlock()
      throw error
    }
    task.pointee.state = .ending
    countPending(task, 1)
    count(spec.owner)
    if spec.wantsHandle { task.retain() }
    retire(task)
    return .done
  }

  private func count(_ owner: TaskOwner?) {
    guard let owner else { return }
    owner.forgetParents()
    owner.pending += 1
  }

  private func checkOpen(_ spec: borrowing TaskSpec) throws(Failure) {
    if isClosed || (spec.owner?.isClosed ?? false) {
      throw Failure(.closed, "the queue, or its cache, has been closed")
    }
  }

  private func waitForRoom(_ spec: borrowing TaskSpec) throws(Failure) {
    guard length != 0 && queued >= length else { return }
    if isWithinCallbackNow { throw .ownQueue }
    let end = Deadline(after: spec.deadline == 0 ? Int64.max : spec.deadline)
    while queued >= length {
      try checkOpen(spec)
      roomWaiters += 1
      let isInTime = wait(until: end)
      roomWaiters -= 1
      guard isInTime else {
        throw Failure(.timedOut, "the queue was full until the deadline")
      }
    }
  }

  /// Under the lock. Puts a task in its place.
  func enqueue(_ task: TaskPointer) throws(Failure) {
    if task.isNamed {
      let extras = task.extras
      if let first = table.first(like: task) {
        let last = first.extras.pointee.tail!
        last.extras.pointee.behind = task
        first.extras.pointee.tail = task
        task.pointee.progress.insert(.behind)
        // The task before it refers to it.
        task.retain()
        count(task, among: first)
        appendByAge(task)
        relane(first)
        return
      }
      try table.insert(task)
      extras.pointee.tail = task
      count(task, among: task)
    }
    appendByAge(task)
    appendToOwnLane(task)
  }

  func appendByAge(_ task: TaskPointer) {
    task.pointee.state = .queued
    byAge.append(task)
    queued += 1
    watch(task)
  }

  // MARK: the end of a task

  /// Called under the lock, which it releases. The task has run, or will not run, and its
  /// completion has been made, or enters its port here.
  func retire(_ task: TaskPointer) {
    if task.isAt(.parks) {
      park(task)
      return lock.unlock()
    }
    if task.isAt(.counted) {
      running -= 1
      if task.isAt(.oldest) { oldestRuns = false }
      if task.has(.keyed) { advance(task) }
    }
    if task.isAt(.listed) { runningTasks.remove(task) }
    if task.has(.background) {
      retireBackground(task)
      return lock.unlock()
    }
    task.pointee.state = .ended
    countPending(task, -1)
    var isAwaited = task.isAt(.awaited) || (pending == 0 && waiters > 0)
    let status = task.pointee.status
    var group: WorkGroup?
    var port: CompletionPort?
    var toSignal: CompletionPort?
    if task.hasExtras {
      let extras = task.extras
      if let owner = extras.pointee.owner?.takeUnretainedValue() {
        owner.pending -= 1
        isAwaited = isAwaited || (owner.pending == 0 && owner.isClosed)
        if let guest = owner.guest { isAwaited = isAwaited || (guest.pending == 0 && waiters > 0) }
      }
      group = extras.pointee.group?.takeUnretainedValue()
      port = extras.pointee.port?.takeUnretainedValue()
      // From here on the reference is the port's.
      if let port, port.append(task) { toSignal = port }
    }
    if isAwaited { progress.broadcast() }
    lock.unlock()
    toSignal?.signal()
    group?.ended(status)
    // Last, since the last reference of the task may end the queue.
    if port == nil { task.end() }
  }

  /// `retire`, called with no lock held.
  func finish(_ task: TaskPointer) {
    lock.lock()
    retire(task)
  }

  /// The next task of the key may run.
  func advance(_ task: TaskPointer) {
    guard let next = nextAlive(behind: task) else {
      table.remove(task)
      return
    }
    uncount(task, among: task)
    inherit(next, from: task)
    next.pointee.lane = laneOfAll(next)
    appendToLane(next)
  }

  /// The first task behind this one that has not been cancelled.
  func nextAlive(behind task: TaskPointer) -> TaskPointer? {
    while let next = task.extras.pointee.behind {
      if next.pointee.state == .queued { return next }
      task.extras.pointee.behind = next.extras.pointee.behind
      dropLater(next)
    }
    return nil
  }

  /// `next`, the first task behind `first`, takes its place in the table.
  func inherit(_ next: TaskPointer, from first: TaskPointer) {
    next.extras.pointee.ranks = first.extras.pointee.ranks
    let tail = first.extras.pointee.tail
    next.extras.pointee.tail = tail == first ? next : tail
    first.extras.pointee.behind = nil
    table.replace(first, by: next)
    next.pointee.progress.remove(.behind)
    // The reference of the task before it. It is not the last one, since the task is queued.
    next.drop()
  }

  /// Called under the lock: records the reference of the task that stood before this one, for
  /// release after the lock.
  func dropLater(_ task: TaskPointer) {
    task.extras.pointee.bucketNext = deferredDrops
    deferredDrops = task
  }

  func takeDeferredDrops() -> TaskPointer? {
    defer { deferredDrops = nil }
    return deferredDrops
  }

  static func dropAll(_ drops: TaskPointer?) {
    var next = drops
    while let task = next {
      next = task.extras.pointee.bucketNext
      task.drop()
    }
  }
}

extension Failure {
  static var ownQueue: Failure {
    Failure(.deadlock, "a task or completion cannot wait for tasks of its own queue")
  }
}
