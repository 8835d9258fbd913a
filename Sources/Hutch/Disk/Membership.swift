import CSystem
import Synchronization

/// One opening as a member of a directory (DiskTier+Sharing.swift): its locks, the numbers of the
/// transactions that it knows of, and the lock that it makes for the child of a fork. Used under
/// the tier's writer lock, except for its atomics.
///
/// The transactions of all members are numbered (`SharedState.begun`). `sequence` is the last one
/// that this member has learnt the outcome of: its manifest's meta row and limits are those after
/// it. The sums that the tier's counters show are those after `shown`.
final class Membership {
  let shared: SharedState
  /// Nil before the first opening of a directory, and in a child without a part.
  private(set) var lock: WriterLock?
  /// True if there may be other members: sharing is SHARED, or the process has forked. Set with
  /// every lock of the tier held, and never cleared but in a child without a part.
  var mayHaveOthers: Bool { canShare.load(ordering: .relaxed) }
  private let canShare: Atomic<Bool>
  private var sequence: UInt64 = 0
  private let shown = Atomic<UInt64>(0)
  /// True while a transaction of this process is under way, those before it having been learnt of.
  private let isTransacting = Atomic<Bool>(false)
  /// The epoch of the manifest that is open (`SharedState.epoch`). Reads compare it.
  private let epoch = Atomic<UInt64>(0)
  private var lookedAfter: Int64 = 0

  // Fork (DiskTier+Fork.swift): the states are in the head of DiskTier.

  /// The connections were closed; the next turn opens the manifest again.
  var isAsleep = false
  /// The tier is a child's copy that has had no turn yet.
  private(set) var hasParentsState = false
  /// The tier is a child's copy without a part in the directory.
  private(set) var belongToParent = false
  /// The lock's open file that was made for a child; -1: none. Of the thread that forks.
  private var forChild: Int32 = -1
  /// The descriptors of the lock's open files; -1: none. A child without a part closes them.
  /// Release when they change: a child that is forked meanwhile must not close what another file
  /// has by then.
  private let lockNumber = Atomic<Int32>(-1)
  private let doorNumber = Atomic<Int32>(-1)

  init(_ shared: SharedState, mayHaveOthers: Bool) {
    self.shared = shared
    canShare = Atomic(mayHaveOthers)
  }

  // MARK: locks

  /// The numbers first: see there.
  func use(_ new: WriterLock?) {
    lockNumber.store(new?.descriptors.file ?? -1, ordering: .releasing)
    doorNumber.store(new?.descriptors.door ?? -1, ordering: .releasing)
    lock = new
  }

  /// True if no other member is present. This member has the turn.
  var isAlone: Bool { lock?.isAlone ?? true }

  var mayWrite: Bool { lock?.mayWrite ?? false }

  // MARK: opening and closing

  /// Becomes a member of the directory, unless it is one, and has the turn from here on. True:
  /// there is no other member. Where sharing is EXCLUSIVE, the shared state is memory of this
  /// process and its children.
  func enter(_ directory: Directory, _ sharing: Sharing) throws(Failure) -> Bool {
    if let lock, lock.belongs(to: directory) {
      try lock.beginTurn()
      if lock.isAlone { shared.evenAll() }
      return lock.isAlone
    }
    let new = try WriterLock(directory)
    // The file is the same one if a look at it failed: the new lock must not wait for this one.
    lock?.endTurn()
    try new.acquire(sharing)
    let isAlone = new.isAlone
    if shared.isHandedOut && !isAlone {
      // Memory goes by another hash of keys, and by counters that are no more.
      throw Failure(.busy, "other processes have opened the directory meanwhile")
    }
    try shared.map(sharing == .shared ? directory : nil, isAlone: isAlone)
    if !isAlone { shared.members &+= 1 }
    // A try that has failed before leaves no lock, so the next one does all this again.
    use(new)
    return isAlone
  }

  /// The manifest is this member's, and others may come.
  func begin(isAlone: Bool, firstVersion: UInt64, owesSweep: Bool) {
    if isAlone {
      shared.members = 1
      shared.idleMembers = 0
      shared.nextVersion.pointee.max(firstVersion, ordering: .relaxed)
      shared.owesSweep = owesSweep
    }
    epoch.store(shared.epoch, ordering: .releasing)
    noteLearnt()
  }

  /// Leaves the others. Returns false if there is none.
  func leaveOthers() -> Bool {
    if !isAlone { return true }
    // A member that is lost may have left files.
    if shared.noteAlone() { shared.owesSweep = true }
    return false
  }

  // MARK: transactions

  /// False: another member has set the manifest aside that this one has open.
  var hasSameManifest: Bool { shared.epoch == epoch.load(ordering: .acquiring) }

  /// True if this member knows the outcome of the last transaction.
  var isCurrent: Bool { shared.begun == sequence && shared.isComplete }

  /// Whatever the shared state says, the manifest is to be asked.
  func forgetSequence() { sequence = shared.begun &- 1 }

  /// This member knows the outcome of every transaction, and the counters show it.
  func noteLearnt() {
    sequence = shared.begun
    show()
    shared.noteDone()
  }

  /// The counters show the sums after the last transaction that is known of.
  func show() { shown.store(sequence, ordering: .releasing) }

  func beginTransaction() { isTransacting.store(true, ordering: .releasing) }
  func endTransaction() { isTransacting.store(false, ordering: .releasing) }

  /// Where the sums of the rows are to be had.
  enum Sums {
    case counters
    /// The count of entries, and the bytes without removed files.
    case shared(count: UInt64, bytes: UInt64)
    case manifest
  }

  /// The count and the cost, after the commits of all processes. `removed` gives the bytes of
  /// removed files of this process; those of others are not counted.
  ///
  ///     the last transaction that has begun is          the numbers are in
  ///     the one after which the counters are            the counters
  ///     this process's, and under way                   the counters, as before it
  ///     another one, which has ended                    the shared state
  ///     another one, under way, or its process died     the manifest
  ///
  /// A sum is never taken of rows before a commit and of removed files after it: that would be
  /// above the limit.
  func sums(_ removed: () -> UInt64) -> Sums {
    for _ in 0..<8 {
      let begun = shared.begun
      let last = shown.load(ordering: .acquiring)
      if last == begun { return .counters }
      if last == begun &- 1 && isTransacting.load(ordering: .acquiring) { return .counters }
      guard shared.isComplete else { continue }
      let files = removed()
      let sums = Sums.shared(
        count: shared.count, bytes: shared.charges &+ UInt64(shared.log.size) &+ files)
      if shared.isComplete && shared.begun == begun { return sums }
    }
    return .manifest
  }

  // MARK: maintenance

  /// A minute in nanoseconds.
  private static let minute: Int64 = 60_000_000_000

  /// Once a minute, while there may be others: true if a member was lost. Nil: not now.
  func lookAfterOthers(at now: Int64) -> Bool? {
    guard mayHaveOthers, lock != nil, now - lookedAfter >= Membership.minute else { return nil }
    lookedAfter = now
    return isAlone && shared.members > 1 && shared.noteAlone()
  }

  // MARK: fork

  /// The lock's open file that the child will have, and its membership. Nothing for a tier that
  /// has never been in service: the child will see for itself.
  func makeForChild(_ place: Directory, until end: Deadline) throws(Failure) {
    guard let lock else { return }
    lock.shareTurn()
    shared.isHandedOut = true
    canShare.store(true, ordering: .relaxed)
    var pause: useconds_t = 0
    while !lock.tryTurn() {
      if end.hasPassed { throw Failure(.timedOut, "another process writes") }
      pause = min(pause + 20, 1000)
      usleep(pause)
    }
    defer { lock.endTurn() }
    forChild = try lock.makeForChild(place)
    shared.members &+= 1
    shared.idleMembers &+= 1
  }

  /// The child has the file, or there will be no child. Then the child stays counted, as a process
  /// that was killed does, until a member finds itself alone: the turn is over, and without it
  /// nothing may write to the shared state.
  func closeForChild() {
    if forChild >= 0 { CSystem.close(forChild) }
    forChild = -1
  }

  func beginInChild() {
    if forChild >= 0 { lock?.takeOver(forChild) }
    forChild = -1
    hasParentsState = true
    isAsleep = true
  }

  /// The child's first turn.
  func dropParentsState() {
    hasParentsState = false
    shared.idleMembers = max(1, shared.idleMembers) - 1
  }

  /// Gives up the copies of the lock's descriptors, which would keep the directory locked for as
  /// long as this process lives.
  func closeLocks() {
    _ = Descriptor(owning: lockNumber.exchange(-1, ordering: .relaxed))
    _ = Descriptor(owning: doorNumber.exchange(-1, ordering: .relaxed))
  }

  /// In a child without a part. The parent's objects are neither closed nor freed.
  func leave() {
    closeLocks()
    if let lock { _ = Unmanaged.passRetained(lock) }
    // Versions are still drawn from there.
    _ = Unmanaged.passRetained(shared)
    lock = nil
    canShare.store(false, ordering: .relaxed)
    isAsleep = false
    hasParentsState = false
    belongToParent = true
  }
}
