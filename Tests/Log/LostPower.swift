import CLogTests
import CSystem

// A loss of power: of each sector of the log and of the checkpoint the disk has any version since
// the last sync, and of each file any length. What a recovery finds must be the state after one of
// the writes, from the last checkpoint on; under a limit, or durability process, less than that,
// but nothing else. A third
// of the machines each has durability process, power and sync. With the last each write is there;
// with the last two nothing is missing that was there at the end, and had not changed since. The
// directory has up to three openings, each as another process has it, and one of them does each
// step; some begin while others give the entries their slots. The power also goes within an
// operation, before one of the syncs that it makes.

/// The seed of the machine that runs.
nonisolated(unsafe) var running: UInt64 = 0

/// What each key has: the round of its newest put, or -1.
private typealias State = [Int]

/// The states that the store may have been in, one after the other, since the last loss of power.
private struct History {
  var states: [State]
  var now: State { states[states.count - 1] }
}

/// One opening of the directory.
private final class Opening {
  let store: LogStore
  var work = LogRebuild()
  init(_ store: LogStore) { self.store = store }
}

private final class Machine {
  static let keys = 150
  let path: String
  let limits: TierLimits
  let durability: Durability
  var random: Random
  /// The machine itself, which is the only one that makes steps after a loss, and others.
  private var openings: [Opening] = []
  private var histories = [History(states: [State(repeating: -1, count: keys)])]
  /// The state that the last checkpoint has.
  private var least = 0
  /// What no loss of power may take: of each key the round, or -1.
  private var safe = State(repeating: -1, count: keys)
  /// The key that the last operation touched. A touch appends the entry anew, and the cleaner may
  /// have evicted the old one for it: with the power gone in between, the entry is lost.
  private var touched: Int?
  private var round = 0
  var found = 0
  var wanted = 0

  init(_ path: String, _ limits: TierLimits, _ seed: UInt64) {
    self.path = path
    self.limits = limits
    durability = Durability(rawValue: UInt32(1 + seed / 3 % 3)) ?? .process
    random = Random(seed)
    disk = Disk(path)
    open()
    if evicts { fill() }
  }

  /// The log has been round: what was read is among the kept entries, and places are used again.
  private func fill() {
    let now = LogStore.moment()
    for _ in 0..<limits.cost / 250 {
      round += 1
      let key = random.next(Machine.keys)
      store.put(key, round, at: now)
      for _ in 0..<2 { _ = store.round(random.next(40), at: now, isAccess: true) }
    }
    let state = (0..<Machine.keys).map { store.round($0, at: now) }
    histories = [History(states: [state])]
    trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
  }

  private var opening: Opening { openings[random.next(openings.count)] }
  private var store: LogStore { opening.store }

  private func open() {
    let isAlone = openings.isEmpty
    let store = LogStore.openAt(path, isAlone ? limits : nil)
    trying { () throws(Failure) in try store.raise(to: durability, isSole: isAlone) }
    openings.append(Opening(store))
  }

  /// Another process opens the directory, or one of several ends: it closes it, or is killed.
  private func changeOpenings() {
    if openings.count < 3 { return open() }
    let last = openings.removeLast()
    if random.next(2) == 0 { check(last.store.close() == nil, "close") }
  }

  private var evicts: Bool { limits.cost < 1_000_000 }
  /// Under `process` a segment that the last checkpoint needs may be used again below the limit too.
  private var forgets: Bool { evicts || durability == .process }

  /// So many states are possible that to follow them all costs too much.
  var isUncertain: Bool { histories.count > 40 }

  private func change(_ change: (inout State) -> Void) {
    for i in 0..<histories.count {
      var state = histories[i].now
      change(&state)
      histories[i].states.append(state)
    }
  }

  /// No key has a value that it had not in any of the histories.
  private func read(_ key: Int, at now: Moment) {
    let round = store.round(key, at: now, isAccess: true)
    if round < 0 { return }
    let before = histories
    histories = before.filter { $0.now[key] == round }
    check(!histories.isEmpty, "an older value, of machine, key", Int(running), key, round)
  }

  func operate() {
    let now = LogStore.moment()
    let key = random.next(Machine.keys)
    let store = store
    let before = least
    touched = nil
    if random.next(8) == 0 { disk?.syncsUntilLoss = 1 + random.next(3) }
    defer {
      disk?.syncsUntilLoss = 0
      // What it has not finished may be there or not.
      if isDown { least = before }
    }
    switch random.next(420) {
    case 0..<200:
      round += 1
      let value = round
      store.put(key, value, at: now)
      change { $0[key] = value }
    case 200..<240:
      store.remove(key, at: now)
      change { $0[key] = -1 }
    case 240..<260:
      touched = key
      store.touch(key, at: now)
    case 260..<391:
      read(key % 40, at: now)
    case 391 where evicts:
      // What it leaves behind is used again, so the state before it is not whole any more.
      trying { () throws(Failure) in try store.clear() }
      change { for i in 0..<$0.count { $0[i] = -1 } }
    case 392: changeOpenings()
    case 393..<396:
      let isWritten = trying { () throws(Failure) in try store.writeCheckpoint() }
      if isWritten { least = histories[0].states.count - 1 }
    case 396 where evicts:
      // Segments are given back.
      trying { () throws(Failure) in
        try store.setLimits(TierLimits(cost: limits.cost * 2 / 3), at: now.time)
        try store.setLimits(limits, at: now.time)
      }
    default: slice()
    }
    if durability == .sync {
      trying { () throws(Failure) in try store.makeDurable() }
      least = histories[0].states.count - 1
    }
    disk?.log.look()
  }

  /// The power has gone within the last operation.
  var isDown: Bool { disk?.isDown ?? false }

  private func slice() {
    let opening = opening
    _ = trying { () throws(Failure) in
      try opening.store.rebuild(&opening.work, at: LogStore.moment())
    }
  }

  /// The machine goes down, and the directory is opened again. The index is not worth anything.
  func losePower() {
    if !isDown {
      let report = trying { () throws(Failure) in try store.verify() }
      check(report.isSound, "the index was not sound, of machine", Int(running))
    }
    safe = State(repeating: -1, count: Machine.keys)
    if durability != .process {
      let now = LogStore.moment()
      for key in 0..<Machine.keys where !isDown || key != touched {
        let states = histories[0].states[least...]
        if histories.count == 1, states.allSatisfy({ $0[key] == states[least][key] }) {
          safe[key] = store.round(key, at: now)
        }
      }
    }
    openings = []
    disk?.lose(&random)
    let damage = random.next(3)
    let index = path + "/hutch-index"
    index.withCString { name in
      let file = Descriptor(owning: Files.open(name, O_RDWR)!)
      switch damage {
      case 0: ftruncate(file.number, 0)
      case 1:
        let zeroes = [UInt8](repeating: 0, count: 4096)
        _ = zeroes.withUnsafeBytes { Files.write($0, to: file.number) }
      default:
        var boot: UInt64 = 77
        _ = withUnsafeBytes(of: &boot) { Files.write($0, to: file.number, at: IndexAt.boot) }
      }
    }
    open()
    let now = LogStore.moment()
    for key in 0..<Machine.keys where safe[key] >= 0 {
      check(
        store.round(key, at: now) == safe[key], "an entry is lost, of machine, key",
        Int(running), key, safe[key])
    }
    var states: [State] = []
    for history in histories {
      for i in min(least, history.states.count - 1)..<history.states.count
      where states.last != history.states[i] { states.append(history.states[i]) }
    }
    histories = states.map { History(states: [$0]) }
    least = 0
  }

  /// Ends the recovery, and compares everything.
  func judge() {
    while store.isRebuilding { slice() }
    let store = store
    let now = LogStore.moment()
    let report = trying { () throws(Failure) in try store.verify() }
    check(report.isSound, "the index is not sound, of machine", Int(running))
    let state = (0..<Machine.keys).map { store.round($0, at: now) }
    let before = histories
    histories = before.filter { history in
      (0..<Machine.keys).allSatisfy { history.now[$0] == state[$0] || forgets && state[$0] < 0 }
    }
    if histories.isEmpty {
      func wrong(_ history: History) -> [Int] {
        (0..<Machine.keys).filter {
          history.now[$0] != state[$0] && !(forgets && state[$0] < 0)
        }
      }
      let counts = before.map { wrong($0).count }
      let nearest = counts.indices.min { counts[$0] < counts[$1] } ?? 0
      print("nearest: \(nearest) of \(before.count)")
      for key in wrong(before[nearest]) {
        print("key \(key) had \(before[nearest].now[key]), has \(state[key])")
      }
    }
    check(!histories.isEmpty, "what is there was never so, in machine", Int(running))
    found += state.count { $0 >= 0 }
    wanted += histories[0].now.count { $0 >= 0 }
  }
}

/// log_tests lost_power [COUNT] [SEED]
func lostPower(_ arguments: Arguments) -> Int32 {
  let count = arguments[0].map { Int(atoi($0)) } ?? (getenv("HUTCH_LONG") != nil ? 20_000 : 90)
  let first = seed(arguments[1])
  var (found, wanted) = (0, 0)
  for i in 0..<count {
    let seed = first &+ UInt64(i)
    var random = Random(seed)
    libraryRandom = Random(seed)
    let scratch = Scratch("power")
    let limits = TierLimits(cost: [4_000_000, 300_000, 130_000][Int(seed % 3)])
    running = seed
    let machine = Machine(scratch.path, limits, seed)
    for _ in 0..<1 + random.next(3) {
      for _ in 0..<random.next(500) where !machine.isDown { machine.operate() }
      machine.losePower()
      if random.next(2) == 0 || machine.isUncertain { machine.judge() }
      if machine.isUncertain { break }
    }
    machine.judge()
    found += machine.found
    wanted += machine.wanted
  }
  print("\(count) machines; \(found) of \(wanted) entries found")
  check(found * 2 > wanted, "too little is found")
  return 0
}
