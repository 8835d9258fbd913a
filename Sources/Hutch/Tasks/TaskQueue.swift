import CSystem
import Synchronization

/// Runs tasks: functions with a context, each with one completion.
///
/// Order. A task that may run is in the lane of its priority; every queued task is in one list
/// by age. Of the places of the width one goes to the oldest task, whatever its priority, so
/// that nothing starves (PINOperation's serial lane); the others go to the first of the highest
/// lane. A width of 1 is therefore strict order of submission. Tasks of one key stand behind
/// each other, and only the first is in a lane, that of the highest priority among them; tasks
/// of one identifier likewise, but they run as one (see TaskTable).
///
/// Completion. Who runs a task makes its completion too, with no lock held; or, if the task
/// has a port, leaves it there. A task that is cancelled goes to a list of those that are
/// ending, from where a worker takes it before anything else: a completion is never made on
/// the stack of a submission, nor of a cancel.
///
/// Threads are made when there is work and nobody free for it. A burst of submissions wakes one
/// worker, which wakes the next while there is more: a thread that finds nothing was woken
/// in vain. They refer to the queue, so it lives as long as they do.
///
/// Background work is one task of the queue's own, of low priority, that is queued anew a
/// while after its end, or at once if it says that there is more.
///
/// After fork the child has none of the threads: its handles on the queue are dead, and so are
/// those on tasks. The queue of a cache itself is the child's too, with nothing in it
/// (`beginInChild`).
final class TaskQueue {
  /// Tells the host what came of a task; the border's.
  typealias Deliver = @convention(c) (UnsafeMutableRawPointer) -> Void

  static let mostThreads = 256

  /// Protects everything below but what is constant. May be taken under a stripe; the locks
  /// of a group and of a port may be taken under it. Held for O(1), but for walks over
  /// all that is queued (a cancel of all, a close).
  let lock: Lock
  /// Workers sleep here.
  let wake: Condition
  /// That a task has ended, or has left room: for those who wait for it.
  let progress: Condition
  private let hasher: KeyedHash
  let deliver: Deliver
  let hasThreads: Bool
  /// What names the queue among callbacks (see ThreadState): its owner, or itself. Set once,
  /// before anybody has the queue.
  private var ownersIdentity: UnsafeMutableRawPointer?
  // What is queued.
  var high = Lane()
  var normal = Lane()
  var low = Lane()
  var byAge = AgeList()
  var table = TaskTable()
  var queued = 0
  let length: Int
  /// Of those that wait, by when they are to be looked at.
  var deadlines = DeadlineHeap()
  // What waits for the start of its group, or is parked.
  var held = AgeList()
  var heldCount = 0
  // What runs.
  var runningTasks = AgeList()
  var running = 0
  var width: Int
  var oldestRuns = false
  /// Whose completions are to be made, through `laneNext`.
  var ending = Lane()
  /// Tasks that have not ended, but for those that are held.
  var pending = 0
  /// Cancelled tasks that nobody stands behind any more, through `bucketNext`: to be dropped
  /// with no lock held.
  var graves: TaskPointer?

  // Who waits.
  var waiters = 0
  var roomWaiters = 0
  var sleeping = 0
  var waking = 0

  var suspensions = 0
  /// Closes under way, which do not wait for a resume.
  var closers = 0
  /// Nothing is submitted any more.
  var isClosed = false
  /// Workers end when nothing is left.
  var isStopping = false

  // Threads.
  var threads = GrowingArray<pthread_t>()
  var exited = 0
  /// Threads that are within a task or a completion.
  var away = 0

  // The order of writes by tasks and by calls: see TaskQueue+Tickets.
  var tickets: UInt64 = 0
  var cleared: UInt64 = 0
  /// Writes of keys that have not ended. Release on a submission, acquire by calls: who was
  /// called after a submission sees it.
  let keyedWrites = Atomic<Int>(0)

  // Background work.
  var background: TaskPointer?
  var backgroundPause: Int64 = 0
  var backgroundDue: Int64 = 0
  var backgroundIsOff = true
  /// It was asked for since it last began.
  var backgroundIsWanted = false
  var hasTimekeeper = false
  private var ticks = 0

  init(
    width: Int, hasThreads: Bool, length: Int, deliver: @escaping Deliver
  ) throws(Failure) {
    let lock = try Lock()
    let wake = try Condition()
    let progress = try Condition()
    let hasher = try KeyedHash()
    self.lock = lock
    self.wake = wake
    self.progress = progress
    self.hasher = hasher
    self.deliver = deliver
    self.hasThreads = hasThreads
    self.length = length
    self.width = width
  }

  deinit { background?.drop() }

  var identity: UnsafeMutableRawPointer {
    ownersIdentity ?? Unmanaged.passUnretained(self).toOpaque()
  }

  func belong(to owner: UnsafeMutableRawPointer) { ownersIdentity = owner }

  func hash(_ identifier: Bytes) -> UInt64 { hasher.callAsFunction(identifier) }

  /// Who would wait for itself is told.
  func checkMayWait() throws(Failure) {
    if ThreadState.isWithinCallback(of: identity) {
      throw Failure(.deadlock, "a task or completion cannot wait for tasks of its own queue")
    }
  }

  // MARK: submission

  /// Takes the task over, or throws or answers that the queue is full; then the caller still
  /// has it.
  @_optimize(speed)
  func submit(_ task: TaskPointer, _ spec: borrowing TaskSpec) throws(Failure) -> Status {
    lock.lock()
    var signals = false
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
        pending += 1
        signals = wantsWorker()
      }
      if deadlines.first == task && !signals { signals = wantsTimekeeper() }
      count(spec.owner)
      if task.has(.keyed) && task.has(.mustRun) {
        keyedWrites.wrappingAdd(1, ordering: .releasing)
      }
    } catch {
      lock.unlock()
      throw error
    }
    // The host's, before anybody can give up the queue's.
    if spec.wantsHandle { task.retain() }
    lock.unlock()
    if signals { wake.signal() }
    return .done
  }

  /// Takes over a task that has been done, whose port is to have the completion.
  func submitEnded(_ task: TaskPointer, _ spec: borrowing TaskSpec) throws(Failure) -> Status {
    lock.lock()
    do throws(Failure) {
      try checkOpen(spec)
    } catch {
      lock.unlock()
      throw error
    }
    task.pointee.state = .ending
    pending += 1
    count(spec.owner)
    if spec.wantsHandle { task.retain() }
    let aftermath = settle(task)
    lock.unlock()
    aftermath.run()
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
    try checkMayWait()
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
      if task.has(.keyed) { extras.pointee.ticket = nextTicket() }
      if let first = table.first(like: task) {
        let last = first.extras.pointee.tail!
        last.extras.pointee.behind = task
        first.extras.pointee.tail = task
        task.pointee.marks.insert(.behind)
        // The one before refers to it.
        task.retain()
        count(task.pointee.priority, 1, among: first)
        appendByAge(task)
        relane(first)
        return
      }
      try table.insert(task)
      extras.pointee.tail = task
      count(task.pointee.priority, 1, among: task)
    }
    appendByAge(task)
    appendToLane(task)
  }

  func appendByAge(_ task: TaskPointer) {
    task.pointee.state = .queued
    byAge.append(task)
    queued += 1
    watch(task)
  }

  // MARK: lanes

  func appendToLane(_ task: TaskPointer) {
    switch task.pointee.lane {
    case 1: high.append(task)
    case 0: normal.append(task)
    default: low.append(task)
    }
  }

  func removeFromLane(_ task: TaskPointer) {
    switch task.pointee.lane {
    case 1: high.remove(task)
    case 0: normal.remove(task)
    default: low.remove(task)
    }
  }

  /// `change` more of `priority` are among those who stand behind `first`, itself included.
  func count(_ priority: Int8, _ change: Int32, among first: TaskPointer) {
    if priority > 0 { first.extras.pointee.highs += change }
    if priority == 0 { first.extras.pointee.normals += change }
  }

  /// The lane of the first of a name is that of the highest priority among them.
  func laneOfAll(_ first: TaskPointer) -> Int8 {
    first.extras.pointee.highs > 0 ? 1 : first.extras.pointee.normals > 0 ? 0 : -1
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

  /// Under the lock. A task whose completion is to be made, or else one to run; nil: none may.
  @_optimize(speed)
  func take() -> TaskPointer? {
    if let task = ending.popFirst() { return task }
    guard running < width, suspensions == 0 || closers > 0 else { return nil }
    if !oldestRuns, let task = oldest() {
      oldestRuns = true
      task.pointee.marks.insert(.oldest)
      return begin(task)
    }
    guard let task = high.first ?? normal.first ?? low.first else { return nil }
    return begin(task)
  }

  /// The oldest task that may run. Of those that stand behind one that runs a few are
  /// passed over: with a width of 1 there are none, so that its order is strict.
  private func oldest() -> TaskPointer? {
    var next = byAge.first
    var passed = 0
    while let task = next, task.isMarked(.behind), passed < 32 {
      next = task.pointee.ageNext
      passed += 1
    }
    guard let next, !next.isMarked(.behind) else { return nil }
    return next
  }

  @_optimize(speed)
  func begin(_ task: TaskPointer) -> TaskPointer {
    removeFromLane(task)
    running += 1
    task.pointee.marks.insert(.counted)
    start(task)
    if task.has(.joining) {
      table.remove(task)
      // Those who have left are behind it no more.
      var last = task
      while let member = last.extras.pointee.behind {
        if member.pointee.state == .queued {
          start(member)
          last = member
        } else {
          last.extras.pointee.behind = member.extras.pointee.behind
          bury(member)
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
    task.pointee.marks.remove(.behind)
    task.pointee.state = .running
    if task.hasExtras && task.extras.pointee.deadline != 0 && !task.has(.begun)
      && Clock.read(CLOCK_MONOTONIC) >= task.extras.pointee.deadline
    {
      task.pointee.state = .late
      task.pointee.status = Status.timedOut.code
    }
    runningTasks.append(task)
    task.pointee.marks.insert(.listed)
  }

  /// Under the lock: whether anything can be taken.
  var hasMore: Bool {
    if ending.first != nil { return true }
    return running < width && (suspensions == 0 || closers > 0)
      && (high.first ?? normal.first ?? low.first) != nil
  }

  // MARK: the end of a task

  /// What is left to do about a task that has ended, with no lock held.
  struct Aftermath {
    fileprivate var task: TaskPointer?
    fileprivate var port: CompletionPort?
    fileprivate var group: WorkGroup?
    fileprivate var status: Int32 = 0

    func run() {
      port?.signal()
      group?.ended(status)
      guard let task else { return }
      // After the end: what it refers to may end the queue in its turn.
      task.releaseWork()
      task.drop()
    }
  }

  /// Under the lock. The task has run, or is not to run, and its completion has been made,
  /// or goes to its port here. Gives back what is to be done once the lock is free.
  @_optimize(speed)
  func settle(_ task: TaskPointer) -> Aftermath {
    if task.isMarked(.parks) {
      park(task)
      return Aftermath()
    }
    if task.isMarked(.counted) {
      running -= 1
      if task.isMarked(.oldest) { oldestRuns = false }
      if task.has(.keyed) { advance(task) }
    }
    if task.isMarked(.listed) { runningTasks.remove(task) }
    if task.has(.background) {
      settleBackground(task)
      return Aftermath()
    }
    task.pointee.state = .ended
    pending -= 1
    var isAwaited = task.isMarked(.awaited) || (pending == 0 && waiters > 0)
    var aftermath = Aftermath(task: task)
    if task.hasExtras {
      let extras = task.extras
      if task.has(.keyed) && task.has(.mustRun) {
        keyedWrites.wrappingSubtract(1, ordering: .relaxed)
      }
      if let owner = extras.pointee.owner?.takeUnretainedValue() {
        owner.pending -= 1
        isAwaited = isAwaited || (owner.pending == 0 && owner.isClosed)
      }
      if let group = extras.pointee.group?.takeUnretainedValue() {
        aftermath.group = group
        aftermath.status = task.pointee.status
      }
      if let port = extras.pointee.port?.takeUnretainedValue() {
        // The reference is the port's from here on.
        aftermath.task = nil
        if port.append(task) { aftermath.port = port }
      }
    }
    if isAwaited { progress.broadcast() }
    return aftermath
  }

  /// The next one of the key may run.
  func advance(_ task: TaskPointer) {
    guard let next = nextAlive(behind: task) else {
      table.remove(task)
      return
    }
    count(task.pointee.priority, -1, among: task)
    inherit(next, from: task)
    next.pointee.lane = laneOfAll(next)
    appendToLane(next)
  }

  /// The first task behind this one that has not been cancelled.
  func nextAlive(behind task: TaskPointer) -> TaskPointer? {
    while let next = task.extras.pointee.behind {
      if next.pointee.state == .queued { return next }
      task.extras.pointee.behind = next.extras.pointee.behind
      bury(next)
    }
    return nil
  }

  /// `next`, the first behind `first`, takes its place in the table.
  func inherit(_ next: TaskPointer, from first: TaskPointer) {
    next.extras.pointee.highs = first.extras.pointee.highs
    next.extras.pointee.normals = first.extras.pointee.normals
    next.extras.pointee.overtaken = first.extras.pointee.overtaken
    let tail = first.extras.pointee.tail
    next.extras.pointee.tail = tail == first ? next : tail
    first.extras.pointee.behind = nil
    table.replace(first, by: next)
    next.pointee.marks.remove(.behind)
    // Nobody stands before it any more. Not the last reference: it is queued.
    next.drop()
  }

  func bury(_ task: TaskPointer) {
    task.extras.pointee.bucketNext = graves
    graves = task
  }

  func takeGraves() -> TaskPointer? {
    defer { graves = nil }
    return graves
  }

  static func drop(_ graves: TaskPointer?) {
    var next = graves
    while let task = next {
      next = task.extras.pointee.bucketNext
      task.drop()
    }
  }

  // MARK: background work

  private func settleBackground(_ task: TaskPointer) {
    task.pointee.marks = []
    task.pointee.lane = -1
    if !backgroundIsOff && (task.pointee.status != 0 || backgroundIsWanted) {
      backgroundIsWanted = false
      try? enqueue(task)
      return
    }
    task.pointee.state = .ended
    backgroundDue = Clock.read(CLOCK_MONOTONIC) + backgroundPause
    if waiters > 0 { progress.broadcast() }
  }

  /// Under the lock: queues the background work if its time has come. Reads the clock now and
  /// then only, unless the caller has nothing else to do.
  func tick(isIdle: Bool) {
    guard !backgroundIsOff, let background, background.pointee.state == .ended else { return }
    ticks &+= 1
    guard isIdle || ticks & 63 == 0, Clock.read(CLOCK_MONOTONIC) >= backgroundDue else { return }
    backgroundIsWanted = false
    try? enqueue(background)
  }
}
