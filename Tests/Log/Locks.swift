import CLogTests
import CSystem
import Synchronization

// The writers' lock after the death of its holder, and in the child of a fork: each step by itself,
// which random kills meet seldom.

extension LogStore {
  fileprivate var lockWord: UnsafeMutablePointer<Atomic<UInt32>> {
    (words.base + IndexAt.lock).assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  fileprivate var holder: UInt32 { lockWord.pointee.load(ordering: .acquiring) }

  /// Whether the lock can be had within 5 ms.
  fileprivate var isLockFree: Bool {
    guard lock.lock(until: Deadline(after: 5_000_000)) else { return false }
    lock.unlock()
    return true
  }
}

/// A process does not take the lock from another thread of its own, nor from a process that lives.
private func checkLiving() {
  let scratch = Scratch("living")
  let first = LogStore.openAt(scratch.path, TierLimits())
  let second = LogStore.openAt(scratch.path, nil)
  for store in [first, second] {
    check(store.lock.lock(), "a free lock cannot be had")
    check(!first.isLockFree && !second.isLockFree, "the lock of one that lives is taken over")
    store.lock.unlock()
    check(first.isLockFree && second.isLockFree, "a lock that was given back is not free")
  }
}

/// What the thread of `checkPatience` has come to: 0, it waits; 1, it has the lock; 2, it gave up.
private let outcome = Atomic<Int>(0)

/// A thread waits for another one of its own process for as long as that has the lock, and takes it
/// for no process that was stopped.
private func checkPatience() {
  let scratch = Scratch("patience")
  let store = LogStore.openAt(scratch.path, TierLimits())
  check(store.lock.lock(), "a free lock cannot be had")
  var thread = pthread_t()
  let context = Unmanaged.passUnretained(store).toOpaque()
  let code = pthread_create(
    &thread, nil,
    { context in
      let store = Unmanaged<LogStore>.fromOpaque(context!).takeUnretainedValue()
      let isHeld = store.lock.lock()
      outcome.store(isHeld ? 1 : 2, ordering: .releasing)
      if isHeld { store.lock.unlock() }
      return nil
    }, context)
  check(code == 0, "no thread", Int(code))
  while (store.lockWord + 1).pointee.load(ordering: .relaxed) == 0 { sched_yield() }
  // It looks once a millisecond, so it most likely sees that more than 5 s have gone by.
  TestClock.pass(6_000_000_000)
  for _ in 0..<50 where outcome.load(ordering: .acquiring) == 0 { usleep(1000) }
  store.lock.unlock()
  pthread_join(thread, nil)
  check(outcome.load(ordering: .acquiring) == 1, "a thread gives up its own process's lock")
  check(store.member.stopped.load(ordering: .relaxed) == 0, "this process counts as stopped")
}

private func dieWithLock(_ path: String) {
  let wasKilled = isKilled {
    let store = LogStore.openAt(path, nil)
    store.put(1, 1, at: LogStore.moment())
    check(store.lock.lock(), "a free lock cannot be had")
    kill(getpid(), SIGKILL)
  }
  check(wasKilled, "not killed")
}

/// A process dies with the lock. One that lives takes it over; and a later process that has the
/// dead one's number, so that the dead one seems to live, gives it back.
private func checkDead() {
  let scratch = Scratch("dead")
  dieWithLock(scratch.path)
  let later = LogStore.openAt(scratch.path, nil)
  check(later.member.number == 1 && later.holder == 0, "a dead one's lock", later.member.number)
  dieWithLock(scratch.path)
  check(later.holder != 0, "it died without the lock")
  check(later.isLockFree, "the lock of a dead process cannot be had")
  check(later.put(2, 1, at: LogStore.moment()).outcome == .stored, "a put fails")
  check(later.round(1, at: LogStore.moment()) == 1, "an entry is lost")
}

/// A waiter that is about to take the lock from a dead holder takes it from no later process with
/// the same number.
private func checkIncarnation() {
  let scratch = Scratch("incarnation")
  let waiter = LogStore.openAt(scratch.path, TierLimits())
  var word: UInt32 = 0
  for round in 0..<3 {
    let store = LogStore.openAt(scratch.path, nil)
    check(store.member.number == 2, "another number")
    check(store.lock.lock(), "a free lock cannot be had")
    if round > 0 {
      let isTaken = waiter.lockWord.pointee.compareExchange(
        expected: word, desired: 1, ordering: .acquiringAndReleasing
      ).exchanged
      check(!isTaken, "the lock is taken from a process that lives")
    }
    word = store.holder
    store.lock.unlock()
    store.member.leave()
  }
}

/// A process died in its operation. A waiter that cannot look at the index, and so completes
/// nothing, leaves the lock to one that can.
private func checkUnknownLength() {
  let scratch = Scratch("length")
  let store = LogStore.openAt(scratch.path, TierLimits())
  let blind = LogLock(store.words, -1, store.member)
  store.words.store(IndexAt.redo + 8, UInt64(IndexAt.walkEnd))
  store.words.store(IndexAt.redo + 16, 7)
  store.words.store(IndexAt.redo, 1)
  store.lockWord.pointee.store(1 << 8 | 200, ordering: .releasing)
  check(!blind.lock(until: Deadline(after: 5_000_000)), "the lock is taken over blindly")
  check(store.isLockFree, "the lock of a dead process cannot be had")
  check(store.words.load(IndexAt.walkEnd) == 7, "a dead process's operation is lost")
}

/// A process forks while a checkpoint is on its way. The child, which has no thread that ends it,
/// makes others, and syncs.
private func checkFork() {
  let scratch = Scratch("fork")
  let store = LogStore.openAt(scratch.path, TierLimits())
  store.put(1, 1, at: LogStore.moment())
  let (isOver, ends) = makePipe()
  var child: pid_t = -1
  duringSync = {
    fflush(nil)
    child = fork()
    guard child == 0 else { return }
    alarm(60)
    close(ends)
    trying { () throws(Failure) in try store.beginInChild() }
    var byte: UInt8 = 0
    check(read(isOver, &byte, 1) == 0, "a pipe")
    store.put(2, 1, at: LogStore.moment())
    let before = store.words.load(IndexAt.durable)
    let isWritten = trying { () throws(Failure) in try store.writeCheckpoint() }
    check(isWritten && store.words.load(IndexAt.durable) > before, "no checkpoint of a child")
    store.put(3, 1, at: LogStore.moment())
    trying { () throws(Failure) in try store.makeDurable() }
    _exit(0)
  }
  trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
  close(ends)
  var status: Int32 = -1
  check(child > 0 && waitpid(child, &status, 0) == child, "waitpid")
  check(status == 0, "the child has failed", Int(status))
  close(isOver)
  check(store.round(3, at: LogStore.moment()) == 1, "the child's entry is not there")
}

/// A process forks while a thread of it touches an entry with a content file. The child's removal
/// of the entry leaves the file to be deleted.
private func checkForkAmidTouch() {
  TestClock.stop()
  let scratch = Scratch("touch")
  let store = LogStore.openAt(scratch.path, TierLimits(cost: 300_000))
  let before = LogStore.moment()
  for key in 2..<1000 { store.put(key, 1, at: before) { $0.timeToIdle = second } }
  store.put(1, 1, at: before, inFile: true)
  TestClock.pass(2 * second)
  let above = TierAbove()
  store.observer = above
  var child: pid_t = -1
  // The touch makes room, and the cleaner asks for the last read of what it comes to.
  above.whileAsked = {
    guard child < 0 else { return }
    fflush(nil)
    child = fork()
    guard child == 0 else { return }
    alarm(60)
    trying { () throws(Failure) in try store.beginInChild() }
    check(store.remove(1, at: LogStore.moment()).existed, "the child does not find the entry")
    check(!store.dead.isEmpty, "the child loses the file of the entry that it removes")
    _exit(0)
  }
  for _ in 0..<1000 where child < 0 { store.touch(1, at: LogStore.moment()) }
  var status: Int32 = -1
  check(child > 0 && waitpid(child, &status, 0) == child, "waitpid")
  check(status == 0, "the child has failed", Int(status))
  TestClock.go()
}

/// A call that needs a checkpoint waits for a process that was stopped while it writes one, but not
/// for ever.
private func checkStoppedCheckpoint() {
  let scratch = Scratch("stopped")
  let store = LogStore.openAt(scratch.path, TierLimits())
  store.put(1, 1, at: LogStore.moment())
  let other = LogStore.openAt(scratch.path, nil)
  check(other.member.tryCheckpoint(), "a checkpoint is under way already")
  outcome.store(0, ordering: .relaxed)
  var thread = pthread_t()
  let context = Unmanaged.passUnretained(store).toOpaque()
  let code = pthread_create(
    &thread, nil,
    { context in
      let store = Unmanaged<LogStore>.fromOpaque(context!).takeUnretainedValue()
      do throws(Failure) {
        try store.writeNewCheckpoint()
        outcome.store(1, ordering: .releasing)
      } catch {
        outcome.store(error.status == .busy ? 2 : 3, ordering: .releasing)
      }
      return nil
    }, context)
  check(code == 0, "no thread", Int(code))
  for _ in 0..<5000 where outcome.load(ordering: .acquiring) == 0 {
    TestClock.pass(1_000_000_000)
    usleep(1000)
  }
  let reached = outcome.load(ordering: .acquiring)
  other.member.endCheckpoint()
  pthread_join(thread, nil)
  check(reached == 2, "a stopped process's checkpoint is waited for", reached)
  trying { () throws(Failure) in try store.writeNewCheckpoint() }
}

/// log_tests locks
func locks() -> Int32 {
  checkLiving()
  checkPatience()
  checkStoppedCheckpoint()
  checkDead()
  checkIncarnation()
  checkUnknownLength()
  checkFork()
  checkForkAmidTouch()
  print("every lock")
  return 0
}
