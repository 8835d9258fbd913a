import CSystem
import Synchronization

/// The processes that have a directory open, and which of them live.
///
/// Each has a number from 1 to 250 and, for as long as it lives, an open-file-description lock
/// on that byte of the file `lock`: the kernel takes it away, however the process ends, and not
/// before. Byte 0 is held while a directory is being opened or closed. Process numbers are
/// never used: containers that share a directory do not share them.
///
/// A number is used again, so it comes with an incarnation, which the index counts.
final class LogMember {
  static let most = 250

  private let file: Descriptor
  /// 0: none yet.
  private(set) var number = 0

  init(_ directory: Directory) throws(Failure) {
    guard
      let opened = Files.open(
        Files.path("lock"), at: directory.descriptor, O_RDWR | O_CREAT | O_NOFOLLOW)
    else { throw .system("cannot open the lock file", otherwise: .badDirectory) }
    file = Descriptor(owning: opened)
  }

  /// Keeps others from opening and closing the directory. They are quick, so it is waited for.
  func beginOpening() throws(Failure) {
    while hutch_ofd_lock_byte(file.number, Int16(F_WRLCK), 0, 1) != 0 {
      if hutch_errno() != EINTR { throw .system("cannot lock the directory") }
    }
  }

  func endOpening() { _ = hutch_ofd_lock_byte(file.number, Int16(F_UNLCK), 0, 0) }

  /// Whether no other process has the directory open. While it is being opened or closed.
  func isAlone() -> Bool {
    var lock = hutch_flock(Int16(F_WRLCK), 1, Int64(LogMember.most))
    return hutch_ofd_first(file.number, &lock) == 0
  }

  /// Takes a number.
  func join() throws(Failure) {
    for candidate in 1...LogMember.most
    where hutch_ofd_lock_byte(file.number, Int16(F_WRLCK), Int64(candidate), 0) == 0 {
      number = candidate
      return
    }
    throw Failure(.busy, "too many processes have the directory open")
  }

  /// In the child of a fork: a number of its own, on an open file of its own. The parent's open
  /// file, which the child has inherited, would say that the parent lives for as long as the child
  /// does; it is let go last, so that one of the two always says that somebody is there.
  func beginInChild(_ directory: Directory) throws(Failure) {
    let own = try LogMember(directory)
    try own.join()
    guard dup3(own.file.number, file.number, O_CLOEXEC) >= 0 else {
      throw .system("cannot lock the directory")
    }
    number = own.number
  }

  /// Whether the process with this number is there, or another one has it since.
  func isAlive(_ other: Int) -> Bool {
    other == number || hutch_ofd_is_locked(file.number, Int64(other)) != 0
  }
}

/// The lock of whoever writes, in the index itself, so that it is one exchange of a word to take
/// it: an incarnation and a member's number, 0 if it is free; beside it, how many wait.
///
/// It protects the state in the index's head, the log above the head, and every page and segment
/// that is not in force. It is the last lock of all: nothing is called while it is held. Readers
/// never take it.
///
/// A holder that died is found by who waits: once a millisecond it asks the kernel whether the
/// holder lives. The lock goes from the dead to the asker in one exchange, then the dead one's
/// operation is completed (RedoRecord). An exchange that was prepared for a dead holder cannot
/// rob a new process with the same number, which has another incarnation. A holder that is
/// stopped lives: its lock is waited for until the caller's deadline.
struct LogLock {
  private let held: UnsafeMutablePointer<Atomic<UInt32>>
  private let words: SharedWords
  private let index: Int32
  let member: LogMember
  private let own: UInt32

  private static let patience: Int64 = 1_000_000

  /// Of a member that has its number: it begins a new incarnation. `index`: the file's
  /// descriptor.
  init(_ words: SharedWords, _ index: Int32, _ member: LogMember) {
    self.words = words
    self.index = index
    self.member = member
    held = (words.base + IndexAt.lock).assumingMemoryBound(to: Atomic<UInt32>.self)
    let incarnations = (words.base + IndexAt.incarnations)
      .assumingMemoryBound(to: Atomic<UInt32>.self)
    let begun = incarnations[member.number].wrappingAdd(1, ordering: .relaxed).newValue
    CrashPoint.pass()
    own = begun << 8 | UInt32(member.number)
    // What an earlier process with this number left: nobody else asks for it now.
    let left = held.pointee.load(ordering: .acquiring)
    if left & 0xFF == UInt32(member.number) && takeOver(from: left) { release() }
  }

  private var waiters: UnsafeMutablePointer<Atomic<UInt32>> { held + 1 }

  @inline(__always)
  private func take() -> Bool {
    let taken = held.pointee.compareExchange(
      expected: 0, desired: own, successOrdering: .acquiring, failureOrdering: .relaxed
    ).exchanged
    CrashPoint.pass()
    return taken
  }

  /// False: it could not be had in time.
  @inline(__always)
  func lock(until end: Deadline) -> Bool {
    if !take() && !lockSlowly(until: end) { return false }
    ThreadState.countLocks(1)
    return true
  }

  @inline(__always)
  func unlock() {
    ThreadState.countLocks(-1)
    release()
  }

  @inline(__always)
  private func release() {
    held.pointee.store(0, ordering: .releasing)
    CrashPoint.pass()
    hutch_compiler_fence()
    // Somebody who goes to sleep in these few nanoseconds is missed, and sleeps a millisecond.
    if waiters.pointee.load(ordering: .relaxed) != 0 { hutch_futex_wake_shared(held) }
  }

  @inline(never)
  private func lockSlowly(until end: Deadline) -> Bool {
    for _ in 0..<200 {
      hutch_spin_pause()
      if held.pointee.load(ordering: .relaxed) == 0 && take() { return true }
    }
    // One that dies while it waits leaves the number too high, and others wake in vain.
    waiters.pointee.wrappingAdd(1, ordering: .acquiringAndReleasing)
    defer { waiters.pointee.wrappingSubtract(1, ordering: .relaxed) }
    while !take() {
      let holder = held.pointee.load(ordering: .acquiring)
      if holder == 0 { continue }
      if !member.isAlive(Int(holder & 0xFF)) && takeOver(from: holder) { return true }
      if end.hasPassed { return false }
      hutch_futex_wait_shared(held, holder, min(LogLock.patience, max(1, end.left)))
    }
    return true
  }

  private func takeOver(from holder: UInt32) -> Bool {
    let taken = held.pointee.compareExchange(
      expected: holder, desired: own, ordering: .acquiringAndReleasing
    ).exchanged
    CrashPoint.pass()
    if taken { RedoRecord.complete(words, limit: Int(Files.status(of: index)?.st_size ?? 0)) }
    return taken
  }
}
