import CSystem
import Synchronization

typealias TaskPointer = UnsafeMutablePointer<TaskRecord>

/// One task, in one allocation: this record; then `TaskExtras` if the task has a port, a group, a
/// deadline, an owner or a name; then the data of the work (`payload`).
///
/// A small task, which has none of these, takes 104 bytes and with malloc's own 112.
///
/// Fields without a comment belong to the queue, under its lock. The host's callbacks and contexts
/// (`complete` to `workRelease`) are constant from before the submission.
struct TaskRecord: ~Copyable {
  /// The states of a task. For each: its meaning; the lists that have the task; the counters that
  /// count it; the states that follow.
  ///
  /// held     Its group has not been started. `held`; heldCount. Queued by a start, ending by a
  ///          cancel.
  /// queued   `byAge`, and in a lane unless it is `behind`; queued, pending. Running or late
  ///          in its turn, ending by a cancel or by its deadline.
  /// running  Its work runs, or its completion is being made. `runningTasks`; running, pending.
  ///          Ended, or parked if it `parks`.
  /// late     As running, but its turn came after its deadline, and its work is left out.
  /// parked   Its work waits for something other than its turn. `held`; heldCount, pending. Queued
  ///          by a resume or when it is due, ending by a cancel or by its deadline.
  /// ending   It does not run; its completion is to be made, or is being made. `completions`,
  ///          unless it has a port; pending. Ended.
  /// ended    Its completion has been made, or is in its port. In nothing, and counts as nothing.
  ///
  /// Only a running task can be asked to end, which is a flag of its own.
  enum State {
    case held, queued, running, late, parked, ending, ended
  }

  /// Fixed before the submission.
  struct Flags: OptionSet {
    let rawValue: UInt8
    /// There are `TaskExtras`.
    static let extras = Flags(rawValue: 1)
    /// Ordered by key: `hash` identifies the key. For a load only until it has looked for its
    /// value.
    static let keyed = Flags(rawValue: 2)
    /// Tasks of one identifier are done as one.
    static let joining = Flags(rawValue: 4)
    /// A close carries it out instead of cancelling it.
    static let mustRun = Flags(rawValue: 8)
    /// `workContext` is a part of the record, and has the results for the completion.
    static let payload = Flags(rawValue: 16)
    /// The queue's own work, for which no wait waits. The queue refers to it, and no host sees it.
    static let background = Flags(rawValue: 32)
    /// Its effect began with the submission, so it can neither be cancelled nor be late.
    static let irrevocable = Flags(rawValue: 64)
  }

  /// What the queue notes of a task while it has it. Under the queue's lock.
  struct Progress: OptionSet {
    let rawValue: UInt8
    /// Behind another task of its key or identifier: not in a lane.
    static let behind = Progress(rawValue: 1)
    /// It was asked to end while it ran.
    static let asked = Progress(rawValue: 2)
    /// It has a place of the width.
    static let counted = Progress(rawValue: 4)
    /// That place is the one for the oldest task.
    static let oldest = Progress(rawValue: 8)
    /// It is in the list of running tasks.
    static let listed = Progress(rawValue: 16)
    /// A thread waits for its end.
    static let awaited = Progress(rawValue: 32)
    /// It is parked when its work returns.
    static let parks = Progress(rawValue: 64)
    /// It was resumed before it was parked.
    static let resumed = Progress(rawValue: 128)
  }

  typealias Work = @convention(c) (UnsafeMutableRawPointer?, OpaquePointer?) -> Int32

  /// By the kinds of lists. Under the queue's lock or the port's. It is the first field because
  /// ThreadSanitizer reports a change of any field through a pointer as one of the first.
  var links = InlineArray<2, TaskLinks>(repeating: TaskLinks())

  /// References of the queue until the task has ended, of the host's handles, and of a row that a
  /// cancelled task has not left yet. Relaxed to add one, acquire and release to release one.
  let references = Atomic<UInt32>(1)
  var state = State.queued
  /// The requested priority: -1, 0 or 1.
  var priority: Int8 = 0
  /// The highest rank of its own and of the tasks behind it: the lane that it is in.
  var lane: Int8 = 0
  var flags = Flags()
  /// A counted reference, but for the background work: a host that keeps the task of its function
  /// or of a completion may call it when the queue is gone.
  let queue: Unmanaged<TaskQueue>

  /// The host's completion function, in the form of the C boundary; nil: the host is not told.
  var complete: UnsafeRawPointer?
  var context: UnsafeMutableRawPointer?
  var release: Release?

  /// Returns the status of the completion. The work of a `payload` is called once more without a
  /// task before its completion is made, also if the task has not run, to release what belongs to
  /// the host.
  var work: Work?
  var workContext: UnsafeMutableRawPointer?
  var workRelease: Release?

  /// Valid once the task is ending.
  var status: Int32 = 0
  /// Its HUTCH_OPERATION_*.
  var operation: UInt8 = 0
  var progress = Progress()
  /// See Process.forks: the queue of a cache serves the child too, but the parent's tasks do not.
  private let forks = UInt16(truncatingIfNeeded: Process.forks)

  var isParents: Bool { forks != UInt16(truncatingIfNeeded: Process.forks) }

  init(queue: Unmanaged<TaskQueue>) { self.queue = queue }
}

/// Fields that most small tasks do not need.
struct TaskExtras {
  /// Linked in the table of keys and identifiers. The first field for the same reason as
  /// `links`.
  var bucketNext: TaskPointer?
  var port: Unmanaged<CompletionPort>?
  var group: Unmanaged<WorkGroup>?
  var owner: Unmanaged<TaskOwner>?
  /// CLOCK_MONOTONIC; 0: none.
  var deadline: Int64 = 0
  /// The time of the next check, and the task's place among the queue's deadlines (DeadlineHeap).
  var due: Int64 = 0
  var dueChild: TaskPointer?
  var dueNext: TaskPointer?
  var duePrevious: TaskPointer?
  var isWatched = false
  /// The hash of the key, or of the identifier.
  var hash: UInt64 = 0
  /// The next task of the same key or identifier.
  var behind: TaskPointer?
  /// For the first of them: the last one, and how many of them have which rank from 0 on.
  var tail: TaskPointer?
  var ranks = InlineArray<3, Int32>(repeating: 0)
  /// The rank by which it is counted among them.
  var countedRank: Int8 = 0
  var identifier: UnsafeRawPointer?
  var identifierSize = 0
  var merge: (@convention(c) (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) -> Void)?
  var starting: (@convention(c) (UnsafeMutableRawPointer?) -> Void)?
  var progress: (@convention(c) (UnsafeMutableRawPointer?, UInt64, UInt64) -> Int32)?
}

/// A part of what a queue runs that may end before the queue: an opening of a cache, and the tasks
/// that were submitted through it. Belongs to the queue, under its lock.
final class TaskOwner {
  /// The cache, if it has its queue from the host. Constant.
  let guest: TaskGuest?
  /// The number of tasks that have not ended.
  var pending = 0
  /// Submissions are refused.
  var isClosed = false
  /// It ends, by a close or with its last reference: its tasks wait for no resume.
  var isEnding = false
  /// See Process.forks.
  private var forks = Process.forks

  init(_ guest: TaskGuest? = nil) { self.guest = guest }

  /// Its end does not wait for tasks of the parent.
  func forgetParents() {
    if Process.isParents(forks) { pending = 0 }
    forks = Process.forks
  }
}

/// One of the caches that a queue of the host serves. Belongs to the queue, under its lock.
final class TaskGuest {
  /// The cache, as ThreadState knows it: set before the first task, and by a fork.
  var identity: UnsafeMutableRawPointer?
  /// How many tasks of the cache `TaskQueue.pending` counts.
  var pending = 0
  /// The next guest of the queue.
  fileprivate(set) var next: Unmanaged<TaskGuest>?
}

extension TaskQueue {
  /// From here on a callback of the cache counts as one of the queue.
  func join(_ guest: TaskGuest) {
    lock.withLock {
      guest.pending = 0
      guest.next = guests
      guests = .passUnretained(guest)
    }
  }

  func leave(_ guest: TaskGuest) {
    lock.withLock {
      let gone = Unmanaged.passUnretained(guest)
      if guests?.toOpaque() == gone.toOpaque() { guests = guest.next }
      var other = guests
      while let this = other?.takeUnretainedValue() {
        if this.next?.toOpaque() == gone.toOpaque() { this.next = guest.next }
        other = this.next
      }
    }
  }

  /// True if this thread is within a callback of the queue, or of a cache that it serves.
  var isWithinCallback: Bool {
    lock.withLock { isWithinCallbackNow }
  }

  /// Called under the lock.
  var isWithinCallbackNow: Bool {
    if ThreadState.isWithinCallback(of: identity) { return true }
    var other = guests
    while let guest = other?.takeUnretainedValue() {
      if let cache = guest.identity, ThreadState.isWithinCallback(of: cache) { return true }
      other = guest.next
    }
    return false
  }

  /// Runs a callback of the host for a task: one of the queue, and of the task's cache.
  func within<R>(_ task: TaskPointer, _ callback: () -> R) -> R {
    ThreadState.within(identity) {
      guard let cache = task.guest?.identity else { return callback() }
      return ThreadState.within(cache, callback)
    }
  }

  /// Called under the lock: `pending` counts the task, or no longer does.
  func countPending(_ task: TaskPointer, _ change: Int) {
    pending += change
    if let guest = task.guest { guest.pending += change }
  }
}

/// The options of a submission.
struct TaskSpec: ~Copyable {
  var priority: Int8 = 0
  var waitsForRoom = false
  var mustRun = false
  var isIrrevocable = false
  /// A duration; 0: none.
  var deadline: Int64 = 0
  var complete: UnsafeRawPointer?
  var progress: (@convention(c) (UnsafeMutableRawPointer?, UInt64, UInt64) -> Int32)?
  var context: UnsafeMutableRawPointer?
  var release: Release?
  var port: CompletionPort?
  var group: WorkGroup?
  var owner: TaskOwner?
  /// The hash of the key that orders the task; 0: none.
  var keyHash: UInt64 = 0
  var identifier = Bytes(start: nil, count: 0)
  /// Tasks with another salt are separate, even with the same identifier.
  var identifierSalt: UInt64 = 0
  /// Waits for `startHeld`.
  var isHeld = false
  var merge: (@convention(c) (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) -> Void)?
  /// Called with the task's work when its group starts, before it may run, under the queue's lock.
  var starting: (@convention(c) (UnsafeMutableRawPointer?) -> Void)?
  var operation: UInt8 = 0
  /// The host gets a reference.
  var wantsHandle = false
  /// The queue's own work.
  var isBackground = false

  fileprivate var needsExtras: Bool {
    deadline != 0 || port != nil || group != nil || owner != nil || keyHash != 0
      || identifier.count != 0 || progress != nil
  }
}

extension TaskPointer {
  private static var extrasOffset: Int { (MemoryLayout<TaskRecord>.size + 7) & ~7 }

  @inline(__always)
  var extras: UnsafeMutablePointer<TaskExtras> {
    (UnsafeMutableRawPointer(self) + TaskPointer.extrasOffset)
      .assumingMemoryBound(to: TaskExtras.self)
  }

  @inline(__always) var hasExtras: Bool { pointee.flags.contains(.extras) }
  @inline(__always) func has(_ flag: TaskRecord.Flags) -> Bool { pointee.flags.contains(flag) }
  @inline(__always) func isAt(_ flag: TaskRecord.Progress) -> Bool {
    pointee.progress.contains(flag)
  }
  /// True if it has a place in the table.
  @inline(__always) var isNamed: Bool { !pointee.flags.isDisjoint(with: [.keyed, .joining]) }

  /// The rank of tasks of an ending owner, above every priority.
  static let closingRank: Int8 = 2

  /// Decides the lane of a queued task: its priority, unless its owner ends. Under the queue's
  /// lock.
  var rank: Int8 {
    guard hasExtras, let owner = extras.pointee.owner?.takeUnretainedValue(), owner.isEnding
    else { return pointee.priority }
    return TaskPointer.closingRank
  }

  /// The cache whose task it is, if the queue serves several.
  var guest: TaskGuest? {
    hasExtras ? extras.pointee.owner?.takeUnretainedValue().guest : nil
  }

  var port: CompletionPort? { hasExtras ? extras.pointee.port?.takeUnretainedValue() : nil }

  /// A record for `queue` with room for `payload` bytes, 16-byte aligned, which are the context of
  /// its work. The task owes nothing yet: `drop` frees it without a call to the host.
  static func make(
    _ spec: borrowing TaskSpec, for queue: TaskQueue, payload: Int = 0
  ) throws(Failure) -> TaskPointer {
    let needsExtras = spec.needsExtras
    var size = needsExtras ? extrasOffset + MemoryLayout<TaskExtras>.size : extrasOffset
    let identifierOffset = size
    size += spec.identifier.count
    let payloadOffset = (size + 15) & ~15
    if payload > 0 { size = payloadOffset + payload }
    let raw = try Allocation.bytes(size)
    let task = raw.bindMemory(to: TaskRecord.self, capacity: 1)
    task.initialize(to: TaskRecord(queue: Unmanaged.passUnretained(queue)))
    task.pointee.priority = spec.priority
    task.pointee.lane = spec.priority
    task.pointee.complete = spec.complete
    task.pointee.context = spec.context
    task.pointee.release = spec.release
    task.pointee.operation = spec.operation
    if spec.mustRun { task.pointee.flags.insert(.mustRun) }
    if spec.isIrrevocable { task.pointee.flags.insert(.irrevocable) }
    if payload > 0 {
      task.pointee.flags.insert(.payload)
      task.pointee.workContext = raw + payloadOffset
    }
    if spec.isBackground {
      task.pointee.flags.insert(.background)
    } else {
      _ = task.pointee.queue.retain()
    }
    guard needsExtras else { return task }
    task.pointee.flags.insert(.extras)
    var extras = TaskExtras()
    extras.port = spec.port.map { Unmanaged.passRetained($0) }
    extras.group = spec.group.map { Unmanaged.passRetained($0) }
    extras.owner = spec.owner.map { Unmanaged.passRetained($0) }
    if spec.deadline != 0 { extras.deadline = Deadline(after: spec.deadline).end }
    extras.progress = spec.progress
    extras.starting = spec.starting
    if spec.keyHash != 0 {
      task.pointee.flags.insert(.keyed)
      extras.hash = spec.keyHash
    } else if spec.identifier.count > 0 {
      task.pointee.flags.insert(.joining)
      let copy = raw + identifierOffset
      copy.copyMemory(from: spec.identifier.baseAddress!, byteCount: spec.identifier.count)
      extras.identifier = UnsafeRawPointer(copy)
      extras.identifierSize = spec.identifier.count
      extras.hash = queue.hash(spec.identifier) ^ spec.identifierSalt
      extras.merge = spec.merge
    }
    task.extras.initialize(to: extras)
    return task
  }

  // The end of a task is three steps, each once and with no lock held:
  //   finishWork         the work has run, or will not: releases the host's context of the work
  //   releaseCompletion  the completion has been made, or will not be: releases its context
  //   end                the task has left its queue: frees the completion's content and the
  //                      reference to the queue's owner
  // The first two are callbacks of the host's. A task that its queue never took has the last alone.

  /// For a payload, the results for the completion stay.
  func finishWork() {
    if has(.payload) { _ = pointee.work?(pointee.workContext, nil) } else { releaseWork() }
  }

  func releaseCompletion() {
    guard let release = pointee.release else { return }
    pointee.release = nil
    release(pointee.context)
  }

  @inline(never)
  func end() {
    releaseWork()
    drop()
  }

  private func releaseWork() {
    guard let release = pointee.workRelease else { return }
    pointee.workRelease = nil
    release(pointee.workContext)
  }

  func retain() { _ = pointee.references.wrappingAdd(1, ordering: .relaxed) }

  /// Releases a reference. The last release frees the record, without a call to the host. The
  /// caller holds no lock, since a group, a port or a queue may end with the record.
  func drop() {
    if pointee.references.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 {
      destroy()
    }
  }

  @inline(never)
  private func destroy() {
    if hasExtras {
      extras.pointee.port?.release()
      extras.pointee.group?.release()
      extras.pointee.owner?.release()
    }
    let queue = has(.background) ? nil : pointee.queue
    deinitialize(count: 1)
    free(self)
    queue?.release()
  }
}

/// The tasks before and behind a task in a list.
struct TaskLinks {
  var next: TaskPointer?
  var previous: TaskPointer?
}

/// Tasks in a row. A task is in one list of each kind at most.
struct TaskList {
  enum Kind: Int {
    /// A lane; the completions that are to be made; the tasks of a port.
    case lane
    /// The queued, held or running tasks by age.
    case age
  }

  private(set) var first: TaskPointer?
  private var last: TaskPointer?
  private let kind: Kind

  init(_ kind: Kind) { self.kind = kind }

  func next(after task: TaskPointer) -> TaskPointer? {
    task.pointee.links[unchecked: kind.rawValue].next
  }

  func previous(of task: TaskPointer) -> TaskPointer? {
    task.pointee.links[unchecked: kind.rawValue].previous
  }

  /// Nil: the beginning of the row, and its end.
  private mutating func connect(_ one: TaskPointer?, _ next: TaskPointer?) {
    if let one { one.pointee.links[unchecked: kind.rawValue].next = next } else { first = next }
    if let next { next.pointee.links[unchecked: kind.rawValue].previous = one } else { last = one }
  }

  @inline(never)
  mutating func append(_ task: TaskPointer) {
    connect(last, task)
    connect(task, nil)
  }

  @inline(never)
  mutating func remove(_ task: TaskPointer) {
    let links = task.pointee.links[unchecked: kind.rawValue]
    connect(links.previous, links.next)
  }

  /// `new` takes the place of `old`.
  mutating func replace(_ old: TaskPointer, by new: TaskPointer) {
    let links = old.pointee.links[unchecked: kind.rawValue]
    connect(links.previous, new)
    connect(new, links.next)
  }

  mutating func popFirst() -> TaskPointer? {
    guard let task = first else { return nil }
    remove(task)
    return task
  }
}
