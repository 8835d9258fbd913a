import CSystem
import Synchronization

typealias TaskPointer = UnsafeMutablePointer<TaskRecord>

/// One task, in one allocation of its own: this record; `TaskExtras` where the task has a
/// port, a group, a deadline, an owner or a name; then what the work needs (`payload`).
///
/// A small task, which has none of these, takes 104 bytes and with malloc's own 112.
///
/// Fields without a word on it are the queue's, under its lock. What the host gave
/// (`complete` to `workRelease`) is fixed from before the submission.
struct TaskRecord: ~Copyable {
  /// Where a task stands: what the state means; what the task is in; what it counts as; what it
  /// becomes.
  ///
  /// held     Its group has not been started. `held`; heldCount. Queued by a start, ending by a
  ///          cancel.
  /// queued   `byAge`, and in a lane unless it is marked `behind`; queued, pending. Running or late
  ///          in its turn, ending by a cancel or by its deadline.
  /// running  Its work runs, or its completion is being made. `runningTasks`; running, pending.
  ///          Ended, or parked if it is marked `parks`.
  /// late     As running, but its turn came after its deadline, and its work is left out.
  /// parked   Its work waits for something other than its turn. `held`; heldCount, pending. Queued
  ///          by a resume or when it is due, ending by a cancel or by its deadline.
  /// ending   It does not run; its completion is to be made, or is being made. `completions`,
  ///          unless it has a port; pending. Ended.
  /// ended    Its completion has been made, or is in its port. In nothing, and counts as nothing.
  ///
  /// Only a running task can be asked to end, which is a mark of its own.
  enum State: UInt8 {
    case held = 0
    case queued = 1
    case running = 2
    case late = 5
    case ending = 3
    case ended = 4
    case parked = 6
  }

  /// Fixed before the submission.
  struct Flags: OptionSet {
    let rawValue: UInt8
    /// There are `TaskExtras`.
    static let extras = Flags(rawValue: 1)
    /// Ordered by key: `hash` names the key. Of a load only until it has looked for its value.
    static let keyed = Flags(rawValue: 2)
    /// Tasks of one identifier are done as one.
    static let joining = Flags(rawValue: 4)
    /// A close carries it out rather than cancel it.
    static let mustRun = Flags(rawValue: 8)
    /// The record has a reference to its queue.
    static let holdsQueue = Flags(rawValue: 16)
    /// `workContext` is part of the record, and has what the completion tells.
    static let payload = Flags(rawValue: 32)
    /// The queue's own work: no wait is for it.
    static let background = Flags(rawValue: 64)
    /// Its effect began with the submission: it cannot be cancelled, nor be late.
    static let irrevocable = Flags(rawValue: 128)
  }

  struct Marks: OptionSet {
    let rawValue: UInt8
    /// Behind another task of its key or identifier: not in a lane.
    static let behind = Marks(rawValue: 1)
    /// It was asked to end while it ran.
    static let asked = Marks(rawValue: 2)
    /// It has a place of the width.
    static let counted = Marks(rawValue: 4)
    /// And that is the one of the oldest.
    static let oldest = Marks(rawValue: 8)
    /// Among those that run.
    static let listed = Marks(rawValue: 16)
    /// A thread waits for its end.
    static let awaited = Marks(rawValue: 32)
    /// When its work returns it is to be parked.
    static let parks = Marks(rawValue: 64)
    /// It was resumed before it was parked.
    static let resumed = Marks(rawValue: 128)
  }

  typealias Function = @convention(c) (UnsafeMutableRawPointer?) -> Void
  typealias Work = @convention(c) (UnsafeMutableRawPointer?, OpaquePointer?) -> Int32

  /// In the lane; of a task that is ending in `completions`; of one that has ended in its port.
  /// Under the queue's lock only, or the port's, and therefore first: to ThreadSanitizer a change
  /// of any field through a pointer is one of the first.
  var laneNext: TaskPointer?
  var lanePrevious: TaskPointer?

  /// Of the queue until the task has ended, of the host's handles, and of a table that a
  /// cancelled task has not left yet. Relaxed to make one, acquire and release to give one up.
  let references = Atomic<UInt32>(1)
  var state = State.queued
  /// As it was asked for: -1, 0 or 1.
  var priority: Int8 = 0
  /// The highest rank of its own and those behind it: the lane that it is in.
  var lane: Int8 = 0
  var flags = Flags()
  /// A counted reference with `holdsQueue`, else valid until the task has ended.
  let queue: Unmanaged<TaskQueue>

  /// In the order of age; of a running task among those that run; of a held one among those
  /// that are held.
  var ageNext: TaskPointer?
  var agePrevious: TaskPointer?

  /// The host's completion, as the border knows it; nil: the host is not told.
  var complete: UnsafeRawPointer?
  var context: UnsafeMutableRawPointer?
  var release: Function?

  /// Returns the status of the completion. That of a `payload` is called once more without a task
  /// before its completion is made, also if it has not run: to let go of what is the host's.
  var work: Work?
  var workContext: UnsafeMutableRawPointer?
  var workRelease: Function?

  /// Once the task is ending.
  var status: Int32 = 0
  /// What the border calls it (HUTCH_OPERATION_*).
  var operation: UInt8 = 0
  var marks = Marks()
  /// See Process.forks: the queue of a cache is the child's too, its tasks are not.
  private let forks = UInt16(truncatingIfNeeded: Process.forks)

  var isParents: Bool { forks != UInt16(truncatingIfNeeded: Process.forks) }

  init(queue: Unmanaged<TaskQueue>) { self.queue = queue }
}

/// What most small tasks do without.
struct TaskExtras {
  /// In the table of keys and identifiers; first for the reason that `laneNext` is.
  var bucketNext: TaskPointer?
  var port: Unmanaged<CompletionPort>?
  var group: Unmanaged<WorkGroup>?
  var owner: Unmanaged<TaskOwner>?
  /// CLOCK_MONOTONIC; 0: none.
  var deadline: Int64 = 0
  /// Where it is among the deadlines of the queue, or -1; and by when it is to be looked at.
  var place = -1
  var due: Int64 = 0
  /// Of the key, or the identifier.
  var hash: UInt64 = 0
  /// The next of the same key or identifier.
  var behind: TaskPointer?
  /// Of the first of them: the last, and how many of them all have which rank.
  var tail: TaskPointer?
  var closings: Int32 = 0
  var highs: Int32 = 0
  var normals: Int32 = 0
  /// By which rank it is counted among them.
  var countedRank: Int8 = 0
  var identifier: UnsafeRawPointer?
  var identifierSize = 0
  var merge: (@convention(c) (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) -> Void)?
  var progress: (@convention(c) (UnsafeMutableRawPointer?, UInt64, UInt64) -> Int32)?
}

/// A part of what a queue runs that may end before the queue: an opening of a cache, and the tasks
/// that were submitted through it. The queue's, under its lock.
final class TaskOwner {
  /// Tasks that have not ended.
  var pending = 0
  /// Nothing is submitted any more.
  var isClosed = false
  /// It ends, by a close or for want of references: its tasks wait for no resume.
  var isEnding = false
  /// See Process.forks.
  private var forks = Process.forks

  /// Tasks of the parent are not waited for.
  func forgetParents() {
    if Process.isParents(forks) { pending = 0 }
    forks = Process.forks
  }
}

/// How a task is to be submitted, beside what it does.
struct TaskSpec {
  var priority: Int8 = 0
  var waitsForRoom = false
  var mustRun = false
  var isIrrevocable = false
  /// A duration; 0: none.
  var deadline: Int64 = 0
  var complete: UnsafeRawPointer?
  var progress: (@convention(c) (UnsafeMutableRawPointer?, UInt64, UInt64) -> Int32)?
  var context: UnsafeMutableRawPointer?
  var release: TaskRecord.Function?
  var port: CompletionPort?
  var group: WorkGroup?
  var owner: TaskOwner?
  /// Of a key that orders the task; 0: none.
  var keyHash: UInt64 = 0
  var identifier = Bytes(start: nil, count: 0)
  /// Tasks with other salt are another's, whatever their identifier.
  var identifierSalt: UInt64 = 0
  /// Waits for `startHeld`.
  var isHeld = false
  var merge: (@convention(c) (UnsafeMutableRawPointer?, UnsafeMutableRawPointer?) -> Void)?
  var operation: UInt8 = 0
  /// The host is to have a reference.
  var wantsHandle = false

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
  @inline(__always) func isMarked(_ mark: TaskRecord.Marks) -> Bool { pointee.marks.contains(mark) }
  /// Whether it has a place in the table.
  @inline(__always) var isNamed: Bool { !pointee.flags.isDisjoint(with: [.keyed, .joining]) }

  /// Of tasks of an owner that ends: above every priority.
  static let closingRank: Int8 = 2

  /// What decides on the lane of a queued task: its priority, unless its owner ends. Under the
  /// queue's lock.
  var rank: Int8 {
    guard hasExtras, let owner = extras.pointee.owner?.takeUnretainedValue(), owner.isEnding
    else { return pointee.priority }
    return TaskPointer.closingRank
  }

  var port: CompletionPort? { hasExtras ? extras.pointee.port?.takeUnretainedValue() : nil }

  /// A record for `queue` with room for `payload` bytes, 16-byte aligned, which are its work's
  /// context. The task owes nothing yet: `drop` frees it without a call to the host.
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
    // A handle, a completion in a port, and a group may outlive the queue.
    if spec.wantsHandle || spec.port != nil || spec.group != nil {
      task.pointee.flags.insert(.holdsQueue)
      _ = task.pointee.queue.retain()
    }
    guard needsExtras else { return task }
    task.pointee.flags.insert(.extras)
    var extras = TaskExtras()
    extras.port = spec.port.map { Unmanaged.passRetained($0) }
    extras.group = spec.group.map { Unmanaged.passRetained($0) }
    extras.owner = spec.owner.map { Unmanaged.passRetained($0) }
    if spec.deadline != 0 {
      let (end, overflow) = Clock.read(CLOCK_MONOTONIC).addingReportingOverflow(spec.deadline)
      extras.deadline = overflow ? Int64.max : end
    }
    extras.progress = spec.progress
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
  //   finishWork         the work has run, or will not: the host gets back what it gave for it
  //   releaseCompletion  the completion has been made, or will not be: likewise
  //   end                the task has left its queue: what the completion told goes, and with it
  //                      what kept the queue's owner
  // The first two are callbacks of the host's. A task that its queue never took has the last alone.

  /// Of a payload, what the completion tells stays.
  func finishWork() {
    if has(.payload) { _ = pointee.work?(pointee.workContext, nil) } else { releaseWork() }
  }

  func releaseCompletion() {
    guard let release = pointee.release else { return }
    pointee.release = nil
    release(pointee.context)
  }

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

  /// Gives up a reference. The last one frees the record, without a call to the host; with no lock
  /// held, for a group, a port or a queue may go with it.
  func drop() {
    if pointee.references.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue == 0 {
      destroy()
    }
  }

  private func destroy() {
    if hasExtras {
      extras.pointee.port?.release()
      extras.pointee.group?.release()
      extras.pointee.owner?.release()
    }
    let queue = has(.holdsQueue) ? pointee.queue : nil
    deinitialize(count: 1)
    free(self)
    queue?.release()
  }
}

/// Tasks in a row, through `laneNext` and `lanePrevious`.
struct Lane {
  var first: TaskPointer?
  var last: TaskPointer?

  mutating func append(_ task: TaskPointer) {
    task.pointee.lanePrevious = last
    task.pointee.laneNext = nil
    if let last { last.pointee.laneNext = task } else { first = task }
    last = task
  }

  mutating func remove(_ task: TaskPointer) {
    let next = task.pointee.laneNext
    let previous = task.pointee.lanePrevious
    if let previous { previous.pointee.laneNext = next } else { first = next }
    if let next { next.pointee.lanePrevious = previous } else { last = previous }
    task.pointee.laneNext = nil
    task.pointee.lanePrevious = nil
  }

  /// `new` takes the place of `old`.
  mutating func replace(_ old: TaskPointer, by new: TaskPointer) {
    let next = old.pointee.laneNext
    let previous = old.pointee.lanePrevious
    new.pointee.laneNext = next
    new.pointee.lanePrevious = previous
    if let previous { previous.pointee.laneNext = new } else { first = new }
    if let next { next.pointee.lanePrevious = new } else { last = new }
    old.pointee.laneNext = nil
    old.pointee.lanePrevious = nil
  }

  mutating func popFirst() -> TaskPointer? {
    guard let task = first else { return nil }
    remove(task)
    return task
  }
}

/// Tasks in a row, through `ageNext` and `agePrevious`.
struct AgeList {
  var first: TaskPointer?
  var last: TaskPointer?

  mutating func append(_ task: TaskPointer) {
    task.pointee.agePrevious = last
    task.pointee.ageNext = nil
    if let last { last.pointee.ageNext = task } else { first = task }
    last = task
  }

  mutating func remove(_ task: TaskPointer) {
    let next = task.pointee.ageNext
    let previous = task.pointee.agePrevious
    if let previous { previous.pointee.ageNext = next } else { first = next }
    if let next { next.pointee.agePrevious = previous } else { last = previous }
    task.pointee.ageNext = nil
    task.pointee.agePrevious = nil
  }
}
