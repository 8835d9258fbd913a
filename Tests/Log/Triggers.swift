import CLogTests
import CSystem

// When a checkpoint is written, and by which call; which calls wait for one; what a disk that
// refuses a sync costs. The clocks stand still but where a test moves them.

let second: Int64 = 1_000_000_000

extension LogStorage {
  /// How many checkpoints are on the disk.
  var checkpoints: UInt64 { store!.words.load(IndexAt.durable) }

  /// Whether `body` has made a checkpoint.
  func makesCheckpoint(_ body: () -> Void) -> Bool {
    let before = checkpoints
    body()
    return checkpoints != before
  }

  fileprivate func keys(below end: Int) -> [Int] {
    let now = LogStore.moment()
    return (0..<end).filter { store!.round($0, at: now) >= 0 }
  }
}

/// The machine goes down; the disk has all that was written to the files, and an index that does
/// not count.
func loseIndex(_ path: String) {
  (path + "/hutch-index").withCString { name in
    guard let number = Files.open(name, O_RDWR) else { return }
    let file = Descriptor(owning: number)
    var boot: UInt64 = 77
    _ = withUnsafeBytes(of: &boot) { Files.write($0, to: file.number, at: IndexAt.boot) }
  }
}

/// Durability process: maintenance writes one every 30 s. Power and sync: each write and each
/// maintenance does after 5 s. None does if there is nothing new.
private func checkPauses(_ durability: Durability) {
  let scratch = Scratch("pauses")
  let pause = durability == .process ? 30 * second : 5 * second
  let storage = LogStorage.openAt(scratch.path, durability, TierLimits())
  var round = 0
  func write() {
    round += 1
    check(storage.write(.put, round % 50, round, at: LogStore.moment()), "a put fails")
  }
  func maintain() { storage.maintainAll(at: LogStore.moment()) }
  write()
  TestClock.pass(2 * pause)
  maintain()
  for byMaintenance in [true, false] {
    write()
    TestClock.pass(pause - 1)
    let isEarly = storage.makesCheckpoint { byMaintenance ? maintain() : write() }
    check(!isEarly, "a checkpoint comes early; durability", Int(durability.rawValue))
    TestClock.pass(1)
    let isDue = byMaintenance || durability != .process
    check(
      storage.makesCheckpoint { byMaintenance ? maintain() : write() } == isDue,
      "the pause is over; durability, by maintenance", Int(durability.rawValue),
      byMaintenance ? 1 : 0)
  }
  maintain()
  TestClock.pass(10 * pause)
  check(
    !storage.makesCheckpoint(maintain), "a checkpoint of nothing new; durability",
    Int(durability.rawValue))
  write()
  maintain()
  let isAtOnce = storage.makesCheckpoint { _ = storage.write(.clear, 0, at: LogStore.moment()) }
  check(
    isAtOnce == (durability == .sync), "a clear waits, or not; durability",
    Int(durability.rawValue))
  if isAtOnce { return }
  TestClock.pass(pause)
  check(
    storage.makesCheckpoint(maintain), "no checkpoint of a clear; durability",
    Int(durability.rawValue))
}

/// What is appended while a checkpoint is on its way is new to the next one, and so are limits.
private func checkWritesMeanwhile(_ change: @escaping (LogStore, Moment) -> Void) {
  let scratch = Scratch("meanwhile")
  let storage = LogStorage.openAt(scratch.path, .power, TierLimits())
  let store = storage.store!
  let now = LogStore.moment()
  _ = storage.write(.put, 1, 1, at: now)
  duringSync = { change(store, now) }
  for _ in 0..<2 {
    TestClock.pass(5 * second)
    check(
      storage.makesCheckpoint { storage.maintainAll(at: LogStore.moment()) },
      "what came meanwhile is nothing new")
  }
  check(duringSync == nil, "no sync")
}

/// A checkpoint with any byte wrong does not count, and the one before does.
private func checkTorn() {
  let scratch = Scratch("torn")
  let store = LogStore.openAt(scratch.path, TierLimits())
  let now = LogStore.moment()
  for key in 0..<2 {
    store.put(key, 1, at: now)
    trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
  }
  func newest() -> UInt64 {
    trying { () throws(Failure) in
      let found = try LogCheckpoint.read(
        in: store.directory, log: Files.status(of: store.logFile.number)!)
      return found?[LogCheckpoint.At.number] ?? 0
    }
  }
  let number = newest()
  check(number == 2, "the newest checkpoint", Int(number))
  let path = scratch.path + "/hutch-checkpoint"
  let file = Descriptor(owning: path.withCString { Files.open($0, O_RDWR)! })
  // In the first place, since its number is even: a head of 26 words, and a segment.
  for offset in 0..<27 * 8 {
    var byte: UInt8 = 0
    _ = withUnsafeMutableBytes(of: &byte) { Files.read(file.number, into: $0, at: offset) }
    byte ^= 0x10
    _ = withUnsafeBytes(of: &byte) { Files.write($0, to: file.number, at: offset) }
    check(newest() == 1, "a torn checkpoint counts; byte", offset)
    byte ^= 0x10
    _ = withUnsafeBytes(of: &byte) { Files.write($0, to: file.number, at: offset) }
  }
  check(newest() == 2, "the whole one counts")
}

/// Power and sync: the write that has appended 64 MB since the last checkpoint makes one.
private func checkAmount(_ durability: Durability) {
  let scratch = Scratch("amount")
  let storage = LogStorage.openAt(scratch.path, durability, TierLimits())
  let store = storage.store!
  let most: UInt64 = 64 << 20
  var made = 0
  for round in 0..<7000 {
    let from = store.words.load(IndexAt.durableEnd)
    let isMade = storage.makesCheckpoint {
      check(
        storage.write(.put, round, round, size: 20_000, at: LogStore.moment()),
        "a put fails")
    }
    let isDue = durability != .process && (store.end - from) * 16 >= most
    check(isMade == isDue, "after a put; durability, put", Int(durability.rawValue), round)
    if isMade { made += 1 }
  }
  check(made == (durability == .process ? 0 : 2), "the number of checkpoints", made)
}

/// Under sync no entry that a call has evicted is there after a loss of power.
private func checkEvictions(_ name: StaticString, _ evict: (LogStorage, Moment) -> Void) {
  let scratch = Scratch("evictions")
  let limits = TierLimits(cost: 400_000)
  var storage: LogStorage? = LogStorage.openAt(scratch.path, .sync, limits)
  for key in 0..<600 { _ = storage!.write(.put, key, 1, at: LogStore.moment()) }
  let before = storage!.keys(below: 600)
  evict(storage!, LogStore.moment())
  let after = storage!.keys(below: 600)
  check(after.count <= 200 && after.count > 50, "evicted", after.count)
  check(before.count > 2 * after.count, "there was more", before.count)
  let inForce = storage!.limits
  storage = nil
  loseIndex(scratch.path)
  storage = LogStorage.openAt(scratch.path, .sync, inForce)
  storage!.maintainAll(at: LogStore.moment())
  let found = storage!.keys(below: 600)
  check(found == after, name, found.count, after.count)
  storage = nil
}

/// Limits that were set count after a loss of power: under sync at once, under power after 5 s.
private func checkLimits(_ durability: Durability) {
  let scratch = Scratch("limits")
  var storage: LogStorage? = LogStorage.openAt(scratch.path, durability, TierLimits(cost: 400_000))
  TestClock.pass(10 * second)
  storage!.maintainAll(at: LogStore.moment())
  let limits = TierLimits(cost: 300_000)
  trying { () throws(Failure) in try storage!.setLimits(limits, at: LogStore.moment()) }
  if durability == .power {
    TestClock.pass(5 * second)
    storage!.maintainAll(at: LogStore.moment())
  }
  storage = nil
  loseIndex(scratch.path)
  let store = LogStore.openAt(scratch.path, nil)
  check(store.limits == limits, "limits are lost; durability", Int(durability.rawValue))
}

/// Durability options for a further opening.
private var wantingSync: StorageOptions {
  var options = StorageOptions()
  options.kind = .log
  options.given = []
  options.chosen = .durability
  options.durability = .sync
  return options
}

/// Each sync that a stronger durability needs is refused once. Then the one before is in force, and
/// the caller is told. Returns whether a sync was refused.
private func checkRefusal(_ number: Int, ofOtherProcess isOther: Bool) -> Bool {
  let scratch = Scratch("refusal")
  let storage = LogStorage.openAt(scratch.path, .process, TierLimits())
  let now = LogStore.moment()
  check(storage.write(.put, 1, 1, at: now), "a put fails")
  syncsUntilRefusal = number
  var isRaised = true
  if isOther {
    do throws(Failure) {
      var options = wantingSync
      options.limits = TierLimits()
      let text = strdup(scratch.path)!
      defer { free(text) }
      let other = try LogStorage.open(
        directory: try Directory.open(path: text), options: options,
        clock: Clock(function: nil, context: nil, release: nil))
      check(other.durability == .sync, "another process has another durability")
    } catch {
      check(error.status == .io, "an opening fails with", Int(error.status.code))
      isRaised = false
    }
  } else {
    isRaised = !storage.apply(wantingSync)
  }
  let isRefused = syncsUntilRefusal == 0
  syncsUntilRefusal = 0
  check(isRaised != isRefused, "the answer, of sync", number)
  check(storage.durability == (isRaised ? .sync : .process), "the durability, of sync", number)
  let before = syncs
  check(storage.write(.put, 2, 2, at: now), "a put fails")
  check((syncs > before) == isRaised, "a put waits, or not, of sync", number)
  if isRefused && !isOther {
    // What the disk has refused of the log it does not have: no later sync makes that good.
    let isWorthLess = storage.store!.hasFailedToSync
    check(storage.apply(wantingSync) == isWorthLess, "another try, of sync", number)
    check(storage.write(.put, 2, 3, at: now), "a put fails")
  }
  return isRefused
}

/// Writers that wait at the same time share a sync, but what is appended while a sync is under way
/// needs another one.
private func checkSharedWait() {
  let scratch = Scratch("shared")
  let storage = LogStorage.openAt(scratch.path, .sync, TierLimits())
  let store = storage.store!
  let now = LogStore.moment()
  duringSync = { store.put(2, 1, at: now) }
  let before = syncs
  check(storage.write(.put, 1, 1, at: now), "a put fails")
  check(syncs == before + 1 && duringSync == nil, "the syncs of a put", syncs - before)
  for wanted in [2, 2] {
    trying { () throws(Failure) in try store.makeDurable() }
    check(syncs == before + wanted, "the syncs of one that waits", syncs - before, wanted)
  }
}

/// While one thread moves a content file that has lost its entry, a call that waits for this finds
/// that there is something to wait for.
private func checkMovedFile() {
  let scratch = Scratch("moved")
  let storage = LogStorage.openAt(scratch.path, .process, TierLimits())
  let store = storage.store!
  let now = LogStore.moment()
  for key in 0..<3 { store.put(key, 1, at: now, inFile: true) }
  for key in 0..<3 {
    if key == 2 { store.put(key, 2, at: now) } else { store.remove(key, at: now) }
  }
  var (moves, waiting) = (0, 0)
  duringRename = {
    moves += 1
    if !store.dead.isEmpty { waiting += 1 }
    // Another one loses its entry meanwhile.
    guard moves == 1 else { return }
    let again = duringRename
    duringRename = nil
    store.put(4, 1, at: now, inFile: true)
    store.remove(4, at: now)
    duringRename = again
  }
  storage.doOwedWork()
  duringRename = nil
  check(moves == 4 && waiting == 4, "moves of files, and seen by others", moves, waiting)
  check(store.dead.isEmpty && !store.hasOrphans && store.loose == 0, "files are left", store.loose)
}

/// The name of the directory is on the disk with the first checkpoint.
private func checkNames(_ seed: UInt64) {
  let scratch = Scratch("names")
  var random = Random(seed)
  disk = Disk(scratch.path, losesNames: true)
  var storage: LogStorage? = LogStorage.openAt(scratch.path, .process, TierLimits())
  _ = storage!.write(.put, 1, 1, at: LogStore.moment())
  TestClock.pass(60 * second)
  check(
    storage!.makesCheckpoint { storage!.maintainAll(at: LogStore.moment()) }, "no checkpoint")
  storage = nil
  disk!.lose(&random)
  loseIndex(scratch.path)
  storage = LogStorage.openAt(scratch.path, .process, TierLimits())
  storage!.maintainAll(at: LogStore.moment())
  check(
    storage!.store!.round(1, at: LogStore.moment()) == 1, "what a checkpoint has is lost, of seed",
    Int(seed))
  disk = nil
}

/// log_tests triggers
func triggers() -> Int32 {
  TestClock.stop()
  // Long after the machine's start.
  TestClock.pass(1000 * second)
  for durability in [Durability.process, .power, .sync] {
    checkPauses(durability)
    checkAmount(durability)
    if durability != .process { checkLimits(durability) }
  }
  checkEvictions("a trim's evictions are undone; found, left") { storage, now in
    while true {
      let slice = trying { () throws(Failure) in
        try storage.makeRoom(to: TrimGoal(amount: 200, countsEntries: true), at: now)
      }
      if !(slice?.hasMore ?? false) { break }
    }
  }
  checkEvictions("the evictions of a lower limit are undone; found, left") { storage, now in
    trying { () throws(Failure) in
      try storage.setLimits(TierLimits(cost: 400_000, count: 200), at: now)
    }
  }
  for isOther in [false, true] {
    var number = 1
    while checkRefusal(number, ofOtherProcess: isOther) { number += 1 }
    check(number >= 5, "syncs of a first checkpoint", number)
  }
  checkSharedWait()
  checkMovedFile()
  checkWritesMeanwhile { store, now in store.put(2, 1, at: now) }
  checkWritesMeanwhile { store, now in
    trying { () throws(Failure) in
      try store.setLimits(TierLimits(cost: 400_000_000), at: now.time)
    }
  }
  checkTorn()
  for seed in 1...20 { checkNames(UInt64(seed)) }
  print("every trigger")
  return 0
}
