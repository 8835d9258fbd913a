import CLogTests
import CSystem
import Synchronization

// After a loss of power a process dies in the midst of a recovery, while another process opens the
// directory, writes and gives entries their slots too; or a forked one does. The other one goes on,
// and finds what it has put; then the judge looks.

/// Fifteen segments, whose entries get their slots in several slices.
private var scenario: Scenario {
  Scenario(name: "recover", limits: TierLimits(cost: 450_000), keys: 250) { _, _ in }
}

/// A directory as a loss of power leaves it.
private func loseBoot(_ path: String) {
  let wasKilled = isKilled {
    let store = prepare(scenario, path)
    trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
    store.put(5, 1, at: LogStore.moment())
    store.words.store(IndexAt.boot, 77)
  }
  check(!wasKilled, "killed without a point")
}

/// A process at work in the directory, a step at a time.
private struct Worker: ~Copyable {
  let store: LogStore
  /// The keys that it puts begin here.
  let first: Int
  var work = LogRebuild()

  init(_ store: LogStore, first: Int) {
    self.store = store
    self.first = first
  }

  mutating func step(_ number: Int) {
    let now = LogStore.moment()
    check(store.put(first + number, 1, at: now).outcome == .stored, "a put fails")
    store.remove(first + 23 + 10 * number, at: now)
    trying { () throws(Failure) in _ = try store.rebuild(&work, at: now) }
  }

  /// Goes on to the end of the rebuilding, and finds what it has put.
  mutating func end(of steps: Int, _ point: Int) {
    let now = LogStore.moment()
    trying { () throws(Failure) in while try store.rebuild(&work, at: now) {} }
    for number in 0..<steps {
      check(store.round(first + number, at: now) == 1, "a put is lost, at point", point)
      check(
        store.round(first + 23 + 10 * number, at: now) < 0, "a removed entry is back, at point",
        point)
    }
  }
}

private let steps = 4

/// Waits for the other one's next step. False: it has gone.
private func hears(_ end: Int32) -> Bool {
  var byte: UInt8 = 0
  return read(end, &byte, 1) == 1
}

private func tell(_ end: Int32) {
  var byte: UInt8 = 1
  check(write(end, &byte, 1) == 1, "a pipe")
}

/// Two processes open at the same time. The one that dies recovers; the other one waits for that,
/// or takes over. Then they work in turns.
func goThroughSharedRecovery(_ exploration: inout Exploration) -> Tally {
  let scratch = Scratch("shared")
  return explore(&exploration) { point, trace in
    Scratch.empty(scratch.path)
    loseBoot(scratch.path)
    let (firstsTurn, toFirst) = makePipe()
    let (othersTurn, toOther) = makePipe()
    log_ignore_broken_pipes()
    fflush(nil)
    let other = fork()
    check(other >= 0, "fork")
    if other == 0 {
      close(toOther)
      close(firstsTurn)
      // The first one is in the midst of its opening, or has died there.
      _ = hears(othersTurn)
      var worker = Worker(LogStore.openAt(scratch.path, nil), first: 100)
      var byte: UInt8 = 1
      for number in 0..<steps {
        _ = write(toFirst, &byte, 1)
        _ = hears(othersTurn)
        worker.step(number)
      }
      _ = write(toFirst, &byte, 1)
      while hears(othersTurn) {}
      worker.end(of: steps, point)
      _exit(0)
    }
    let wasKilled = isKilled {
      close(toFirst)
      close(othersTurn)
      CrashPoint.arm(point, trace)
      let text = strdup(scratch.path)!
      let store = trying { () throws(Failure) in
        try LogStore.open(try Directory.open(path: text), limits: nil) { _, _ in tell(toOther) }
      }
      var worker = Worker(store, first: 10)
      for number in 0..<steps {
        check(hears(firstsTurn), "the other process has gone")
        worker.step(number)
        tell(toOther)
      }
      check(hears(firstsTurn), "the other process has gone")
      worker.end(of: steps, point)
    }
    for end in [firstsTurn, toFirst, othersTurn, toOther] { close(end) }
    var status: Int32 = 0
    check(waitpid(other, &status, 0) == other, "waitpid")
    check(status == 0, "the other process has failed, at point", Int(status), point)
    judge(scenario, scratch.path, point)
    return wasKilled
  }
}

/// A process forks in the midst of a rebuilding. Parent or child dies, and the other one goes on.
func goThroughForkedRecovery(_ exploration: inout Exploration, childDies: Bool) -> Tally {
  let scratch = Scratch("forked")
  let forks = StoreTrace()
  return explore(&exploration) { point, trace in
    Scratch.empty(scratch.path)
    loseBoot(scratch.path)
    // The end of the one that dies, and what the other one has to say.
    let (isGone, lives) = makePipe()
    let (answers, says) = makePipe()
    forks.count = 0
    let wasKilled = isKilled {
      if !childDies { CrashPoint.arm(point, trace) }
      var worker = Worker(LogStore.openAt(scratch.path, nil), first: 10)
      worker.step(0)
      forks.append(0)
      let child = fork()
      check(child >= 0, "fork")
      if child == 0 {
        // Until then it is no process of the directory, and it makes no store.
        if childDies { CrashPoint.arm(point, trace) } else { CrashPoint.arm(0) }
        trying { () throws(Failure) in try worker.store.beginInChild() }
        worker = Worker(worker.store, first: 100)
      }
      if (child == 0) == childDies {
        for number in 1..<steps { worker.step(number) }
        if child == 0 { _exit(0) }
        if !childDies { return }
      }
      var status: Int32 = 0
      if child != 0 {
        check(waitpid(child, &status, 0) == child, "waitpid")
      } else {
        close(lives)
        while hears(isGone) {}
        for number in 0..<steps { worker.step(number) }
      }
      worker.end(of: child == 0 ? steps : 1, point)
      tell(says)
      // As the child has ended.
      if status & 0x7F == SIGKILL { kill(getpid(), SIGKILL) }
      _exit(status >> 8)
    }
    close(lives)
    close(says)
    if forks.count == 1 {
      check(hears(answers), "the one that goes on has failed, at point", point)
      while hears(answers) {}
    }
    close(answers)
    close(isGone)
    judge(scenario, scratch.path, point)
    return wasKilled
  }
}
