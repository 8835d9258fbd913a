internal import CHutch
import CLogTests
import CSystem
import Synchronization

// A process dies after a store to shared memory; then a judge in another process looks at what is
// left. With HUTCH_LONG a process dies after every store of every operation. Otherwise a sample of
// the stores is tried, which has, for each place in the program that an operation's stores come
// from, the first and the last store, and some others.

/// One operation, and how a directory is made in which it is tried.
struct Scenario {
  let name: StaticString
  var limits = TierLimits()
  /// Those that the directory is made with; nil: the same.
  var firstLimits: TierLimits?
  /// Values have been put as round 0, or not at all, of keys 0..<keys.
  var keys = 0
  /// Any entry may go.
  var evicts = false
  /// How many puts are made after the first ones, to fill the log some times over.
  var churn = 0
  /// What is tried, of keys that it puts as round 1, or leaves, or removes.
  let operation: (LogStore, Moment) -> Void
}

func prepare(_ scenario: Scenario, _ path: String) -> LogStore {
  let store = LogStore.openAt(path, scenario.firstLimits ?? scenario.limits)
  let now = LogStore.moment()
  if scenario.firstLimits != nil {
    trying { () throws(Failure) in try store.setLimits(scenario.limits, at: now.time) }
  }
  for key in 0..<scenario.keys { store.put(key, 0, at: now) }
  var random = Random(1)
  for _ in 0..<scenario.churn {
    let key = random.next(scenario.keys)
    if random.next(3) == 0 { _ = store.round(random.next(scenario.keys), at: now, isAccess: true) }
    store.put(key, 0, at: now)
  }
  return store
}

/// What a process does in the child of a fork; how it ended: true, by the kill.
func isKilled(_ body: () -> Void) -> Bool {
  fflush(nil)
  let child = fork()
  check(child >= 0, "fork")
  if child == 0 {
    body()
    _exit(0)
  }
  var status: Int32 = 0
  check(waitpid(child, &status, 0) == child, "waitpid")
  if status & 0x7F == SIGKILL { return true }
  check(status == 0, "a process ended with", Int(status))
  return false
}

/// Every key has its value from before or from after, whole; the sums are exact; and the store
/// takes writes.
func judge(_ scenario: Scenario, _ path: String, _ point: Int) {
  let store = LogStore.openAt(path, nil)
  let now = LogStore.moment()
  var work = LogRebuild()
  trying { () throws(Failure) in while try store.rebuild(&work, at: now) {} }
  let report = trying { () throws(Failure) in try store.verify() }
  check(report.damaged == 0, "damaged entries, at point", Int(report.damaged), point)
  check(report.manifest == 0, "misplaced segments, at point", point)
  check(report.counters == 0, "the sums are wrong, at point", point)
  check(!store.hasWrongCopies, "a kept copy is wrong, at point", point)
  var found: UInt64 = 0
  for key in 0..<scenario.keys + 100 {
    let round = store.round(key, at: now)
    found += round < 0 ? 0 : 1
    if key < scenario.keys, !scenario.evicts, !scenario.mayRemove(key) {
      check(round >= 0, "an entry is lost, at point", key, point)
    }
    check(round <= 1, "a value that was never put", key, point)
  }
  check(
    !store.hasOrphans || store.words.load(IndexAt.loose) > 0,
    "a content file without an entry that no sweep looks for, at point", point)
  check(found == report.entries, "entries that were never put", Int(report.entries), point)
  let limit = scenario.limits.count
  check(limit == 0 || report.entries <= limit, "more entries than there may be", point)
  for key in 0..<3 {
    let write = store.put(key, 1, at: now)
    check(write.outcome == .stored, "a put fails afterwards, at point", point)
    check(store.round(key, at: now) == 1, "a put is not there afterwards, at point", point)
  }
  let after = trying { () throws(Failure) in try store.verify() }
  check(after.isSound, "a put does harm afterwards, at point", point)
}

extension Scenario {
  /// Keys that the operation removes end with 3.
  func mayRemove(_ key: Int) -> Bool { key % 10 == 3 }
}

/// How the stores of a run are chosen.
struct Exploration {
  /// Every store.
  var isWhole = false
  var random: Random
  let seed: UInt64
  /// How many stores are chosen beside those that stand for a place in the program.
  static let others = 3

  /// The stores to die after, of a run that made those of `trace`. `known`: places that need no
  /// store of this run; those of this run are added.
  mutating func choose(
    _ trace: StoreTrace, others: Int = Exploration.others, known: inout [UInt]
  ) -> [Int] {
    var chosen = [Bool](repeating: isWhole, count: trace.count + 1)
    for point in 1...max(trace.count, 1) where point <= trace.count && !known.contains(trace[point]) {
      known.append(trace[point])
      chosen[point] = true
      var last = trace.count
      while trace[last] != trace[point] { last -= 1 }
      chosen[last] = true
    }
    for _ in 0..<(trace.count == 0 ? 0 : others) { chosen[1 + random.next(trace.count)] = true }
    return (0..<chosen.count).filter { $0 > 0 && chosen[$0] }
  }
}

/// How many deaths there were, and of how many stores.
struct Tally {
  var tried = 0
  var stores = 0
  var places = 0
}

/// Runs `attempt` undisturbed, then once for each store that is chosen. `attempt` judges what is
/// left, and returns whether the process was killed.
func explore(_ exploration: inout Exploration, _ attempt: (Int, StoreTrace) -> Bool) -> Tally {
  let trace = StoreTrace()
  libraryRandom = Random(exploration.seed)
  check(!attempt(0, trace), "killed without a point")
  var places: [UInt] = []
  let points = exploration.choose(trace, known: &places)
  var tally = Tally(stores: trace.count, places: places.count)
  let stores = (1...max(trace.count, 1)).map { trace[$0] }
  for point in points {
    libraryRandom = Random(exploration.seed)
    let wasKilled = attempt(point, trace)
    // The scenario is the same every time, so each place has been tried.
    check(wasKilled && trace[point] == stores[point - 1], "another run of the scenario, at", point)
    tally.tried += 1
  }
  return tally
}

/// Kills a process in a scenario.
func goThrough(_ scenario: Scenario, _ exploration: inout Exploration) -> Tally {
  let scratch = Scratch("points")
  return explore(&exploration) { point, trace in
    Scratch.empty(scratch.path)
    let wasKilled = isKilled {
      let store = prepare(scenario, scratch.path)
      // So each access is noted.
      TestClock.pass(2_000_000_000)
      CrashPoint.arm(point, trace)
      scenario.operation(store, LogStore.moment())
    }
    judge(scenario, scratch.path, point)
    return wasKilled
  }
}

/// A process that takes over from a dead one dies, too; a third one goes on.
func goThroughTakeOver(_ exploration: inout Exploration) -> Tally {
  let scenario = Scenario(name: "take over", keys: 40) { store, now in store.put(5, 1, at: now) }
  let scratch = Scratch("takeover")
  let (trace, secondTrace) = (StoreTrace(), StoreTrace())
  func attempt(_ first: Int, _ second: Int) -> (Bool, Bool) {
    libraryRandom = Random(exploration.seed)
    Scratch.empty(scratch.path)
    let wasKilled = isKilled {
      let store = prepare(scenario, scratch.path)
      CrashPoint.arm(first, trace)
      scenario.operation(store, LogStore.moment())
    }
    let wasKilledToo = isKilled {
      CrashPoint.arm(second, secondTrace)
      let store = LogStore.openAt(scratch.path, nil)
      store.remove(13, at: LogStore.moment())
    }
    judge(scenario, scratch.path, first * 1000 + second)
    return (wasKilled, wasKilledToo)
  }
  _ = attempt(0, 0)
  var tally = Tally()
  var places: [UInt] = []
  // The first one's stores are few, and what the second one does depends on each.
  for first in 1...trace.count {
    check(attempt(first, 0) == (true, false), "another run of the first process, at", first)
    let points = exploration.choose(secondTrace, others: 3, known: &places)
    tally.stores += secondTrace.count
    for second in points {
      check(attempt(first, second) == (true, true), "another run of the second process, at", first, second)
      tally.tried += 1
    }
  }
  tally.places = places.count
  return tally
}

private let small = TierLimits(cost: 80_000)

/// Fills the index's first page until one more key does not fit, and puts that.
private func fillPage(_ store: LogStore, _ now: Moment) -> Int {
  var key = 40
  while true {
    let isFull = store.withKey(key) { _, hash in
      store.page(for: hash).map { store.freeSlot($0, hash) == nil } ?? false
    }
    if isFull { return key }
    store.put(key, 0, at: now)
    key += 1
  }
}

private func scenarios() -> [Scenario] {[
  Scenario(name: "put the first") { store, now in store.put(0, 1, at: now) },
  Scenario(name: "put a new one", keys: 40) { store, now in store.put(50, 1, at: now) },
  Scenario(name: "put with every field", keys: 40) { store, now in
    store.put(50, 1, at: now) {
      $0.expires = now.time + 1_000_000_000_000
      $0.timeToIdle = 1_000_000_000_000
      $0.cost = 3
    }
  },
  Scenario(name: "replace", keys: 40) { store, now in
    for key in 0..<4 { store.put(key, 1, at: now) }
    // A value that is written through the file.
    store.put(15, 1, at: now)
  },
  Scenario(name: "remove", keys: 40) { store, now in
    store.remove(3, at: now)
    store.remove(13, at: now)
  },
  Scenario(name: "touch", keys: 40) { store, now in store.touch(7, at: now) },
  Scenario(name: "content files", keys: 40) { store, now in
    for key in 0..<3 { store.put(key, 1, at: now, inFile: true) }
    store.touch(1, at: now)
    store.put(1, 1, at: now, inFile: true)
    store.put(2, 1, at: now)
    store.put(3, 1, at: now, inFile: true)
    store.remove(3, at: now)
    store.deleteDead()
  },
  Scenario(
    name: "content files that evict", limits: small, keys: 200, evicts: true, churn: 300
  ) { store, now in
    for key in 0..<20 { store.put(key, 1, at: now, inFile: true) }
    store.deleteDead()
  },
  Scenario(name: "read", keys: 40) { store, now in
    for key in 0..<9 { _ = store.round(key, at: now, isAccess: true) }
  },
  Scenario(name: "clear", keys: 40, evicts: true) { store, now in
    trying { () throws(Failure) in try store.clear() }
    store.put(5, 1, at: now)
  },
  Scenario(name: "clean and reuse", limits: small, keys: 200, evicts: true, churn: 900) {
    store, now in
    for key in 0..<90 { store.put(key, 1, at: now) }
  },
  Scenario(
    name: "keep what was read", limits: TierLimits(cost: 300_000), keys: 600, evicts: true,
    churn: 4000
  ) { store, now in
    check(store.words.load(IndexAt.keptSegments) > 2, "too little is kept")
    for key in 0..<90 {
      store.put(key, 1, at: now)
      _ = store.round(key * 7 % 600, at: now, isAccess: true)
      if key % 10 == 3 { store.remove(key, at: now) }
    }
  },
  Scenario(
    name: "use again below the limit", limits: TierLimits(cost: 2_000_000), keys: 60, churn: 2500
  ) { store, now in
    let (segments, next) = (store.segmentCount, store.words.load(IndexAt.next))
    check(segments < 12, "below the limit the log grows with every put")
    let kept = store.words.load(IndexAt.keptHead)
    for key in 0..<160 { store.put(10 + key % 50, 1, at: now) }
    check(store.words.load(IndexAt.next) > next + 3, "no segment was begun")
    check(store.segmentCount <= segments + 1, "no segment was used again")
    check(store.words.load(IndexAt.keptHead) > kept, "nothing that lives was moved")
  },
  Scenario(
    name: "clean without a limit", firstLimits: TierLimits(cost: 300_000), keys: 300, churn: 4000
  ) { store, now in
    check(store.segmentCount < 60, "without a limit the log grows with every put")
    for key in 0..<60 { store.put(key, 1, at: now) }
  },
  Scenario(
    name: "evict to the count", limits: TierLimits(cost: 200_000, count: 100), keys: 120,
    evicts: true, churn: 300
  ) { store, now in for key in 0..<30 { store.put(key, 1, at: now) } },
  Scenario(name: "lower the limits", limits: TierLimits(cost: 300_000), keys: 200, evicts: true,
    churn: 900
  ) { store, now in
    trying { () throws(Failure) in
      try store.setLimits(TierLimits(cost: 100_000, count: 90), at: now.time)
    }
  },
  Scenario(name: "checkpoint", keys: 40) { store, now in
    trying { () throws(Failure) in
      store.put(0, 1, at: now)
      check(try store.writeCheckpoint(), "no checkpoint")
      store.put(1, 1, at: now)
    }
  },
  Scenario(name: "close", keys: 40) { store, now in
    check(store.close() == nil, "close")
  },
]}

/// Puts the keys that fill the index's first page as part of the preparation. A reader that has the
/// directory open finds all of them in what the dead process has left, before a writer completes
/// its operation. The process dies after every store: one place puts the words of all pages into
/// force, and their order counts.
func goThroughDivision(_ exploration: inout Exploration) -> Tally {
  let scratch = Scratch("division")
  let end = StoreTrace()
  var whole = exploration
  whole.isWhole = true
  return explore(&whole) { point, trace in
    Scratch.empty(scratch.path)
    let reader = LogStore.openAt(scratch.path, TierLimits())
    let wasKilled = isKilled {
      let now = LogStore.moment()
      let store = LogStore.openAt(scratch.path, nil)
      for key in 0..<40 { store.put(key, 0, at: now) }
      let key = fillPage(store, now)
      end.count = key
      CrashPoint.arm(point, trace)
      store.put(key, 1, at: now)
      check(store.words.load(IndexAt.top) == 1, "the page was not divided")
    }
    for key in 0..<end.count {
      check(
        reader.round(key, at: LogStore.moment()) >= 0, "a reader finds no entry, at point", key,
        point)
    }
    reader.member.leave()
    judge(Scenario(name: "divide", keys: end.count) { _, _ in }, scratch.path, point)
    return wasKilled
  }
}

/// Fills the active segment as part of the preparation: the put begins another one. The process
/// dies after every store of it, since few operations change so many words in one step.
func goThroughRoll(_ exploration: inout Exploration) -> Tally {
  let scratch = Scratch("roll")
  var whole = exploration
  whole.isWhole = true
  return explore(&whole) { point, trace in
    Scratch.empty(scratch.path)
    let wasKilled = isKilled {
      let now = LogStore.moment()
      let store = LogStore.openAt(scratch.path, TierLimits(cost: 300_000))
      for key in 0..<40 { store.put(key, 0, at: now) }
      let before = store.end
      store.put(4, 1, at: now)
      let units = store.end - before
      repeat { store.put(4, 0, at: now) } while store.room(.new) >= units
      let segments = store.segmentCount
      CrashPoint.arm(point, trace)
      store.put(4, 1, at: now)
      check(store.segmentCount > segments, "no segment was begun")
    }
    judge(Scenario(name: "roll", keys: 40) { _, _ in }, scratch.path, point)
    return wasKilled
  }
}

/// A process dies whose forked child has the store, too: the child goes on, before the judge does.
func goThroughFork(_ exploration: inout Exploration) -> Tally {
  let scenario = Scenario(name: "fork", keys: 40) { store, now in store.put(5, 1, at: now) }
  let scratch = Scratch("fork")
  return explore(&exploration) { point, trace in
    Scratch.empty(scratch.path)
    // The judge reads the end of it when the child has gone.
    let (end, childs) = makePipe()
    let wasKilled = isKilled {
      close(end)
      let store = prepare(scenario, scratch.path)
      let (parentIsGone, parents) = makePipe()
      let child = fork()
      check(child >= 0, "fork")
      if child == 0 {
        close(parents)
        trying { () throws(Failure) in try store.beginInChild() }
        var byte: UInt8 = 0
        check(read(parentIsGone, &byte, 1) == 0, "a pipe")
        let now = LogStore.moment()
        check(store.put(6, 1, at: now).outcome == .stored, "the child's put fails, at", point)
        check(store.round(6, at: now) == 1, "the child's put is not there, at", point)
        byte = 1
        check(write(childs, &byte, 1) == 1, "a pipe")
        _exit(0)
      }
      CrashPoint.arm(point, trace)
      scenario.operation(store, LogStore.moment())
    }
    close(childs)
    var byte: UInt8 = 0
    check(read(end, &byte, 1) == 1, "the child of a fork has failed, at point", point)
    while read(end, &byte, 1) > 0 {}
    close(end)
    judge(scenario, scratch.path, point)
    return wasKilled
  }
}

func makePipe() -> (reads: Int32, writes: Int32) {
  var ends: (Int32, Int32) = (0, 0)
  check(withUnsafeMutablePointer(to: &ends) {
    $0.withMemoryRebound(to: Int32.self, capacity: 2) { pipe($0) }
  } == 0, "pipe")
  return (ends.0, ends.1)
}

/// A directory that is being made or opened.
func goThroughOpening(_ exploration: inout Exploration) -> Tally {
  let scratch = Scratch("opening")
  return explore(&exploration) { point, trace in
    Scratch.empty(scratch.path)
    let wasKilled = isKilled {
      CrashPoint.arm(point, trace)
      let store = LogStore.openAt(scratch.path, TierLimits())
      store.put(0, 0, at: LogStore.moment())
    }
    judge(Scenario(name: "open", keys: 0) { _, _ in }, scratch.path, point)
    return wasKilled
  }
}

/// A process dies while it opens a directory after a loss of power, or in the first writes, or
/// while it gives the entries their slots.
func goThroughRecovery(_ exploration: inout Exploration) -> Tally {
  let scenario = Scenario(name: "recover", keys: 40) { _, _ in }
  let scratch = Scratch("recover")
  return explore(&exploration) { point, trace in
    Scratch.empty(scratch.path)
    let diedEarly = isKilled {
      let store = prepare(scenario, scratch.path)
      trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
      store.put(5, 1, at: LogStore.moment())
      store.words.store(IndexAt.boot, 77)
    }
    check(!diedEarly, "killed without a point")
    let wasKilled = isKilled {
      CrashPoint.arm(point, trace)
      let store = LogStore.openAt(scratch.path, nil)
      let now = LogStore.moment()
      store.put(6, 1, at: now)
      store.remove(13, at: now)
      var work = LogRebuild()
      trying { () throws(Failure) in while try store.rebuild(&work, at: now) {} }
      store.remove(23, at: now)
    }
    // Else a loss of power would bring back what the last one has taken.
    let store = LogStore.openAt(scratch.path, nil)
    withExtendedLifetime(store) {
      check(
        store.words.load(IndexAt.durable) > 1, "a recovery without a checkpoint, at point", point)
    }
    judge(scenario, scratch.path, point)
    return wasKilled
  }
}

/// log_tests crash_points [scenario|all] [seed]
func crashPoints(_ arguments: Arguments) -> Int32 {
  let only = arguments[0].flatMap { strcmp($0, "all") == 0 ? nil : $0 }
  let seed = seed(arguments[1])
  var exploration = Exploration(
    isWhole: getenv("HUTCH_LONG") != nil, random: Random(seed), seed: seed)
  var all = Tally()
  func run(_ name: StaticString, _ body: (inout Exploration) -> Tally) {
    let text = UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
    if let only, strcmp(only, text) != 0 { return }
    let tally = body(&exploration)
    print("\(name): \(tally.tried) of \(tally.stores) stores, \(tally.places) places")
    all.tried += tally.tried
    all.stores += tally.stores
  }
  TestClock.stop()
  run("opening") { goThroughOpening(&$0) }
  for scenario in scenarios() { run(scenario.name) { goThrough(scenario, &$0) } }
  run("divide") { goThroughDivision(&$0) }
  run("begin a segment") { goThroughRoll(&$0) }
  run("full disk") { goThroughFullDisk(&$0) }
  run("take over") { goThroughTakeOver(&$0) }
  run("fork") { goThroughFork(&$0) }
  run("recover") { goThroughRecovery(&$0) }
  run("recover with another process") { goThroughSharedRecovery(&$0) }
  run("recover and fork") { goThroughForkedRecovery(&$0, childDies: false) }
  run("recover and fork, the child dies") { goThroughForkedRecovery(&$0, childDies: true) }
  run("files") { goThroughFiles(&$0) }
  print("\(all.tried) of \(all.stores) stores")
  // A place is a store that the compiler has inlined. Without inlining all stores are of few
  // places, and a whole run tries some 300; with it some 2,100.
  check(only != nil || all.tried > 1500, "the compiler has not inlined the stores of an index")
  return all.tried > 0 ? 0 : 1
}
