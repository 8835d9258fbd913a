import CSystem
import Synchronization

/// The writers' lock, a word in the index, so that one exchange locks it. The word has an
/// incarnation and a member's number; 0: the lock is free. The word beside it has the number of
/// waiters.
///
/// It protects the state in the index's head, the log above the head, and every page and segment
/// that is not in force. It is the last lock of all: nothing is called while it is held. Readers
/// never take it.
///
/// A waiter asks the kernel once a millisecond whether the holder lives. If the holder has died,
/// the waiter becomes the holder in one exchange, and completes the operation of the dead process
/// (RedoRecord). An exchange that was prepared for a dead holder cannot take the lock from a new
/// process with the same number, which has another incarnation.
///
/// A holder that is stopped (SIGSTOP) lives, so its lock cannot be taken over. A caller without a
/// deadline of its own waits 5 s for it, which is longer than any operation. Once a wait for a
/// holder has ended so, the next ones for the same holder take 20 ms (`LogMember.stopped`). A wait
/// that its caller's deadline has ended says nothing about the holder. A holder of this process is
/// a thread that runs whenever the waiter does, so it is waited for as long as it takes: on a busy
/// machine a waiter may find the process's word at every look, of one thread after the other.
struct LogLock {
  private let held: UnsafeMutablePointer<Atomic<UInt32>>
  private let words: SharedWords
  private let index: Int32
  /// The store keeps it.
  private unowned(unsafe) let member: LogMember
  private let own: UInt32

  /// The time between two looks whether the holder lives. This and the two below are nanoseconds.
  private static let question: Int64 = 1_000_000
  private static let patience: Int64 = 5_000_000_000
  private static let shortPatience: Int64 = 20_000_000

  /// The lock for a member that has its number. Begins a new incarnation of the number. `index`:
  /// the descriptor of the index.
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
    // An earlier process with this number may have died with the lock. To the others it seems to
    // live, since its number is taken again. So this process frees the lock.
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

  /// False: the lock could not be had in time. `end` nil: the caller waits for as long as the head
  /// comment says.
  @inline(__always)
  func lock(until end: Deadline? = nil) -> Bool {
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
    // A waiter that goes to sleep between the two steps is not woken, and sleeps a millisecond.
    if waiters.pointee.load(ordering: .relaxed) != 0 { hutch_futex_wake_shared(held) }
  }

  @inline(never)
  private func lockSlowly(until end: Deadline?) -> Bool {
    for _ in 0..<200 {
      hutch_spin_pause()
      if held.pointee.load(ordering: .relaxed) == 0 && take() { return true }
    }
    // A process that dies while it waits leaves the number too high: then unlocking wakes no
    // process now and then, which costs a call of the system.
    waiters.pointee.wrappingAdd(1, ordering: .acquiringAndReleasing)
    defer { waiters.pointee.wrappingSubtract(1, ordering: .relaxed) }
    let hasPatience = end == nil
    var end = end ?? Deadline(after: patience(with: held.pointee.load(ordering: .relaxed)))
    while !take() {
      let holder = held.pointee.load(ordering: .acquiring)
      if holder == 0 { continue }
      if !member.isAlive(Int(holder & 0xFF)) && takeOver(from: holder) { return true }
      if end.hasPassed {
        if !hasPatience { return false }
        if holder != own {
          member.stopped.store(holder, ordering: .relaxed)
          return false
        }
        end = Deadline(after: LogLock.patience)
      }
      hutch_futex_wait_shared(held, holder, min(LogLock.question, max(1, end.left)))
    }
    return true
  }

  private func patience(with holder: UInt32) -> Int64 {
    holder != 0 && holder == member.stopped.load(ordering: .relaxed)
      ? LogLock.shortPatience : LogLock.patience
  }

  private func takeOver(from holder: UInt32) -> Bool {
    // Without the length nothing could be completed: the holder's operation stays as it is.
    guard let length = Files.status(of: index)?.size else { return false }
    let taken = held.pointee.compareExchange(
      expected: holder, desired: own, ordering: .acquiringAndReleasing
    ).exchanged
    CrashPoint.pass()
    guard taken else { return false }
    RedoRecord.complete(words, limit: length)
    LogMarks(words).complete()
    return true
  }
}
