internal import CHutch
import CLogTests
import CSystem
import Synchronization

// A loss of power, in the store as the cache has it: with content files, with up to three openings
// of one directory, whose durabilities differ, and with maintenance as time goes by. What is there
// afterwards is the state after one of the writes: under sync the last one, under power one of
// those since the last checkpoint, and under process, or a limit that evicts, less than that.

/// What each key has: the round of its newest put, or -1.
private typealias State = [Int]

private final class FileMachine {
  static let keys = 45
  let path: String
  let limits: TierLimits
  let wanted: Durability
  var random: Random
  private var openings: [LogStorage] = []
  private var states = [State(repeating: -1, count: keys)]
  /// The first state that a loss of power may leave.
  private var least = 0
  private var round = 0
  var found = 0

  init(_ path: String, _ seed: UInt64) {
    self.path = path
    limits = TierLimits(cost: [4_000_000, 400_000][Int(seed / 3 % 2)])
    wanted = Durability(rawValue: UInt32(1 + seed % 3)) ?? .process
    random = Random(seed)
    disk = Disk(path, losesNames: true)
    open()
  }

  /// Every third value is large.
  private func key(_ index: Int) -> Int { index % 3 == 0 ? index * 16 + 15 : index * 16 }

  private var evicts: Bool { limits.cost < 1_000_000 }
  private var durability: Durability { openings[0].store!.durability }
  private var checkpoint: UInt64 { openings[0].store!.words.load(IndexAt.durable) }

  /// The durability of all openings is that of the strongest.
  private func open() {
    let isStrong = openings.count == 2 || random.next(2) == 0
    openings.append(
      LogStorage.openAt(path, isStrong ? wanted : .process, limits, inlineThreshold: 4096))
  }

  /// Any opening but the first ends.
  private func end() {
    guard openings.count > 1 else { return open() }
    let last = openings.removeLast()
    if random.next(2) == 0 { check(last.close(lastVersion: 0) == nil, "close") }
  }

  private func change(_ change: (inout State) -> Void) {
    var state = states[states.count - 1]
    change(&state)
    states.append(state)
  }

  func operate() {
    let storage = openings[random.next(openings.count)]
    let now = LogStore.moment()
    let (index, before) = (random.next(FileMachine.keys), checkpoint)
    var isChanged = true
    switch random.next(200) {
    case 0..<90:
      round += 1
      let isStored = storage.write(.put, key(index), round, at: now)
      change { $0[index] = isStored ? round : -1 }
    case 90..<120:
      _ = storage.write(.remove, key(index), at: now)
      change { $0[index] = -1 }
    case 120..<130:
      _ = storage.write(.touch, key(index), at: now)
      change { _ in }
    case 130:
      _ = storage.write(.clear, 0, at: now)
      change { for i in 0..<$0.count { $0[i] = -1 } }
    case 131..<150:
      TestClock.pass(Int64(random.next(8_000)) * 1_000_000)
      _ = storage.maintain(at: now)
      isChanged = false
    case 150..<153:
      trying { () throws(Failure) in try storage.flush() }
      if durability != .process { least = states.count - 1 }
      isChanged = false
    case 153 where openings.count < 3: open()
    case 154: end()
    default:
      let found = storage.store!.round(key(index), at: now, isAccess: true)
      let expected = states[states.count - 1][index]
      check(
        found == expected || found < 0 && evicts, "a read is wrong, of key", index, found, expected)
      isChanged = false
    }
    // A checkpoint that a write has made may be of the state before.
    if checkpoint != before { least = max(least, states.count - (isChanged ? 2 : 1)) }
    if durability == .sync { least = states.count - 1 }
    disk?.log.look()
  }

  func losePower() {
    let now = LogStore.moment()
    let promised = durability
    least = max(0, least)
    var safe = State(repeating: -1, count: FileMachine.keys)
    for i in 0..<FileMachine.keys where promised != .process {
      let isSteady = states[least...].allSatisfy { $0[i] == states[least][i] }
      if isSteady { safe[i] = openings[0].store!.round(key(i), at: now) }
    }
    openings = []
    disk?.lose(&random)
    (path + "/hutch-index").withCString { name in
      guard let number = Files.open(name, O_RDWR) else { return }
      let file = Descriptor(owning: number)
      var boot: UInt64 = 77
      _ = withUnsafeBytes(of: &boot) { Files.write($0, to: file.number, at: IndexAt.boot) }
    }
    open()
    while random.next(3) == 0 && openings.count < 3 { open() }
    for storage in openings { storage.maintainAll(at: now) }
    let store = openings[random.next(openings.count)].store!
    check(!store.isRebuilding, "the rebuild does not end")
    let state = (0..<FileMachine.keys).map { store.round(key($0), at: now) }
    for i in 0..<FileMachine.keys where safe[i] >= 0 {
      check(state[i] == safe[i], "an entry is lost, key", i, safe[i])
    }
    let mayMiss = evicts || promised == .process
    let first = promised == .process ? 0 : least
    let isOne = states[first...].contains { candidate in
      (0..<FileMachine.keys).allSatisfy { i in
        candidate[i] == state[i] || mayMiss && state[i] < 0
      }
    }
    if !isOne {
      for i in 0..<FileMachine.keys where states[states.count - 1][i] != state[i] {
        print("key \(i) had \(states[least][i])...\(states[states.count - 1][i]), has \(state[i])")
      }
    }
    check(isOne, "what is there was never so; durability", Int(promised.rawValue))
    let report = trying { () throws(Failure) in try store.verify() }
    check(
      report.isSound, "the index is not sound; damaged, misplaced, counters, round",
      Int(report.damaged), Int(report.manifest), Int(report.counters), round)
    check(
      !store.hasOrphans || store.words.load(IndexAt.loose) > 0,
      "a content file without an entry that no sweep looks for")
    found += state.count { $0 >= 0 }
    states = [state]
    least = 0
  }
}

extension LogStorage {
  static func openAt(
    _ path: String, _ durability: Durability, _ limits: TierLimits, inlineThreshold: Int? = nil
  ) -> LogStorage {
    trying { () throws(Failure) in
      var options = StorageOptions()
      options.kind = .log
      options.limits = limits
      options.durability = durability
      if let inlineThreshold {
        options.inlineThreshold = inlineThreshold
        options.chosen.insert(.inlineThreshold)
      }
      let text = strdup(path)!
      defer { free(text) }
      return try LogStorage.open(
        directory: try Directory.open(path: text), options: options,
        clock: Clock(function: nil, context: nil, release: nil))
    }
  }

  /// As a call of the cache: the write, and the wait for the disk. Whether a put was stored.
  func write(
    _ kind: StoreWrite.Kind, _ key: Int, _ round: Int = 0, size: Int? = nil, at moment: Moment
  ) -> Bool {
    let outcome = store!.withKey(key) { bytes, hash in
      var record = Record()
      record.version = sharing.nextVersion!.pointee.wrappingAdd(1, ordering: .relaxed)
        .oldValue
      record.created = moment.time
      record.accessed = moment.time
      record.size = kind == .put ? size ?? Value.size(key, round) : 0
      let block = trying { () throws(Failure) in try Block.allocate(key: bytes, record: record) }
      var form: ValueForm?
      if kind == .put {
        Value.fill(block.unowned.value, key, round)
        prepare(block.unowned, &form)
      }
      var write = StoreWrite(kind, kind == .clear ? nil : block.unowned, hash)
      write.form = form
      write.version = record.version
      write.time = moment.time
      self.write(&write)
      finish(&write)
      if write.result.failure != nil { fail("a write fails, of key", key) }
      return write.result.outcome
    }
    doOwedWork()
    return outcome == .stored
  }
}

/// log_tests lost_files [COUNT] [SEED]
func lostFiles(_ arguments: Arguments) -> Int32 {
  let count = arguments[0].map { Int(atoi($0)) } ?? (getenv("HUTCH_LONG") != nil ? 10_000 : 40)
  let first = seed(arguments[1])
  var found = 0
  for i in 0..<count {
    let seed = first &+ UInt64(i)
    var random = Random(seed)
    libraryRandom = Random(seed)
    running = seed
    let scratch = Scratch("files")
    let machine = FileMachine(scratch.path, seed)
    for _ in 0..<1 + random.next(3) {
      for _ in 0..<random.next(250) { machine.operate() }
      machine.losePower()
    }
    found += machine.found
    disk = nil
  }
  print("\(count) machines; \(found) entries found")
  return found > 0 ? 0 : 1
}
