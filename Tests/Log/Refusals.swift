import CLogTests
import CSystem

// A disk that refuses a sync, and a process that dies within one: what may still count on the disk
// afterwards. The clocks stand still but where a test moves them.

/// A checkpoint after a sync that was refused would name what the disk does not have.
private func checkRefusedLog() {
  let scratch = Scratch("refused")
  var storage: LogStorage? = LogStorage.openAt(scratch.path, .power, TierLimits())
  _ = storage!.write(.put, 1, 1, at: LogStore.moment())
  syncsUntilRefusal = 1
  check((try? storage!.flush()) == nil, "a flush without the disk")
  check((try? storage!.flush()) == nil, "a flush after one that failed")
  TestClock.pass(5 * second)
  check(
    !storage!.makesCheckpoint { storage!.maintainAll(at: LogStore.moment()) },
    "a checkpoint of what the disk has refused")
  check(storage!.close(lastVersion: 0) != nil, "a clean end")
  storage = LogStorage.openAt(scratch.path, .power, TierLimits())
  let found = storage!.store!.round(1, at: LogStore.moment())
  check(found == 1, "an entry is lost without a loss of power")
  _ = storage!.write(.put, 2, 1, at: LogStore.moment())
  trying { () throws(Failure) in try storage!.flush() }
  check(storage!.close(lastVersion: 0) == nil, "no clean end")
}

/// The kernel tells of bytes that it could not write once, and a process that opens the directory
/// later is not told. So after a refusal no process makes a write or a checkpoint count, and no end
/// is clean, until an opening that is alone has written everything again.
private func checkRefusedOther() {
  let scratch = Scratch("refused")
  let first = LogStorage.openAt(scratch.path, .sync, TierLimits())
  check(first.write(.put, 1, 1, at: LogStore.moment()), "a put fails")
  // Without the wait for the disk.
  first.store!.put(2, 1, at: LogStore.moment())
  syncsUntilRefusal = 1
  check((try? first.flush()) == nil, "a flush without the disk")
  let other = LogStorage.openAt(scratch.path, .process, TierLimits())
  for storage in [other, first] {
    check(
      (try? storage.flush()) == nil,
      "a process counts on a sync after another one's was refused")
    TestClock.pass(60 * second)
    check(
      !storage.makesCheckpoint { storage.maintainAll(at: LogStore.moment()) },
      "a checkpoint of what the disk has refused to another process")
  }
  check(other.close(lastVersion: 0) == nil, "an end that is not the last one fails")
  check(first.close(lastVersion: 0) != nil, "the last end is clean")

  // The disk refuses what is written again, too.
  syncsUntilRefusal = 1
  let third = LogStore.openAt(scratch.path, nil)
  check(syncsUntilRefusal == 0, "an opening writes nothing again")
  check(third.hasFailedToSync, "what the disk has refused twice counts")
  check(third.close() != nil, "an end is clean")

  // What the log has is what is written: what the process reads here is on the disk afterwards.
  let last = LogStorage.openAt(scratch.path, .sync, TierLimits())
  check(!last.store!.hasFailedToSync, "a refusal is never made good")
  check(last.store!.round(2, at: LogStore.moment()) == 1, "an entry is lost")
  trying { () throws(Failure) in try last.flush() }
  check(last.close(lastVersion: 0) == nil, "no clean end")
}

/// An index that the disk has refused is not clean at the end, however often the end is tried.
private func checkRefusedIndex() {
  let scratch = Scratch("refused")
  let store = LogStore.openAt(scratch.path, TierLimits())
  store.put(1, 1, at: LogStore.moment())
  mapsUntilRefusal = 1
  check(store.close() != nil, "a clean end of an index that the disk has refused")
  check(store.hasFailedToSync, "what the disk has refused of the index is forgotten")
  let other = LogStore.openAt(scratch.path, nil)
  check(!other.hasFailedToSync, "the index was not written again")
  check(other.close() == nil, "no clean end")
}

/// The file of checkpoints.
private struct CheckpointFile {
  let path: String

  private var file: Descriptor {
    Descriptor(owning: (path + "/hutch-checkpoint").withCString { Files.open($0, O_RDWR)! })
  }

  /// The beginning of what each place has.
  var places: [[UInt8]] {
    let file = file
    return (0..<2).map { place in
      [UInt8](unsafeUninitializedCapacity: 1024) { buffer, count in
        let target = UnsafeMutableRawBufferPointer(buffer)
        count = Files.read(file.number, into: target, at: place << 20) ?? 0
      }
    }
  }

  /// The number of the newest one that counts; 0: there is none.
  var newest: UInt64 {
    let log = (path + "/hutch-log").withCString { Files.status($0, at: AT_FDCWD)! }
    return trying { () throws(Failure) in
      let text = strdup(path)!
      defer { free(text) }
      let found = try LogCheckpoint.read(in: try Directory.open(path: text), log: log)
      return found?[LogCheckpoint.At.number] ?? 0
    }
  }

  /// Of a place that has other bytes than before, not all have come to the disk.
  func tear(unlike before: [[UInt8]]) {
    let after = places
    let file = file
    let torn = [UInt8](repeating: 0x55, count: 64)
    for place in 0..<2 where before[place] != after[place] {
      _ = torn.withUnsafeBytes { Files.write($0, to: file.number, at: place << 20 + 64) }
    }
  }
}

/// A checkpoint that comes to nothing, since the disk refuses it or its process dies, may have left
/// any bytes in its place. The newest one that is on the disk has the other place, and so on.
private func checkFailedCheckpoint(dies: Bool) {
  let scratch = Scratch("failed")
  let store = LogStore.openAt(scratch.path, TierLimits())
  let file = CheckpointFile(path: scratch.path)
  let now = LogStore.moment()
  for round in 1...3 {
    store.put(round, 1, at: now)
    trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
    let good = file.newest
    check(good == store.words.load(IndexAt.durable), "the newest checkpoint", Int(good))
    for _ in 0..<3 {
      store.put(round, 2, at: now)
      let before = file.places
      // The first sync is the log's.
      if dies {
        let wasKilled = isKilled {
          let own = LogStore.openAt(scratch.path, nil)
          duringSync = { duringSync = { kill(getpid(), SIGKILL) } }
          _ = try? own.writeCheckpoint()
        }
        check(wasKilled, "a checkpoint without a sync")
      } else {
        syncsUntilRefusal = 2
        check((try? store.writeCheckpoint()) == nil, "a checkpoint that the disk refuses")
      }
      file.tear(unlike: before)
      check(file.newest == good, "the last checkpoint is lost to one that failed", Int(good))
    }
  }
}

/// While a program removes the directory, no checkpoint makes a file there.
private func checkRemoval() {
  let scratch = Scratch("removed")
  let store = LogStore.openAt(scratch.path, TierLimits())
  store.put(1, 1, at: LogStore.moment())
  Scratch.empty(scratch.path + "/.")
  check((try? store.writeCheckpoint()) == nil, "a checkpoint in no directory")
  check(store.close() == nil, "without durability the end needs no checkpoint")
  check(rmdir(scratch.path) == 0, "the directory has something again")
}

/// Neither is one lost from which a recovery has begun whose own one comes to nothing.
private func checkFailedRecovery(of number: Int) {
  let scratch = Scratch("failed")
  let file = CheckpointFile(path: scratch.path)
  let wasKilled = isKilled {
    let store = LogStore.openAt(scratch.path, TierLimits())
    for round in 1...number {
      store.put(round, 1, at: LogStore.moment())
      trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
    }
    store.words.store(IndexAt.boot, 77)
  }
  check(!wasKilled && file.newest == UInt64(number), "no checkpoint", number)
  for _ in 0..<3 {
    let before = file.places
    syncsUntilRefusal = 2
    let text = strdup(scratch.path)!
    let opened = try? LogStore.open(try Directory.open(path: text), limits: nil)
    check(opened == nil, "a recovery without a checkpoint", number)
    file.tear(unlike: before)
    check(file.newest == UInt64(number), "the last checkpoint is lost to a recovery", number)
  }
  let store = LogStore.openAt(scratch.path, nil)
  var work = LogRebuild()
  trying { () throws(Failure) in while try store.rebuild(&work, at: LogStore.moment()) {} }
  check(store.round(1, at: LogStore.moment()) == 1, "an entry is lost", number)
}

/// The flag of a clean end is not on the disk any more before anything changes; also if the disk
/// refuses that first, or the process dies meanwhile.
private func checkFlagOfEnd() {
  let scratch = Scratch("flag")
  let heads = StoreTrace()
  func reopen() -> LogStore {
    Scratch.empty(scratch.path)
    let made = LogStore.openAt(scratch.path, TierLimits())
    made.put(1, 1, at: LogStore.moment())
    check(made.close() == nil, "no clean end")
    let store = LogStore.openAt(scratch.path, nil)
    heads.count = 0
    return store
  }
  atHeadSync = { heads.append(UInt($0)) }
  let refused = reopen()
  mapsUntilRefusal = 1
  check(refused.put(2, 1, at: LogStore.moment()).failure != nil, "a put with the flag there")
  check(refused.put(2, 1, at: LogStore.moment()).outcome == .stored, "a put fails")
  check(heads.count == 1 && heads[1] != 1, "the flag of a clean end is there", heads.count)
  var point = 0
  var wasKilled = true
  while wasKilled {
    point += 1
    let store = reopen()
    wasKilled = isKilled {
      let own = LogStore.openAt(scratch.path, nil)
      CrashPoint.arm(point)
      own.put(2, 1, at: LogStore.moment())
    }
    check(store.put(3, 1, at: LogStore.moment()).outcome == .stored, "a put fails, at", point)
    check(
      heads.count > 0 && heads[heads.count] != 1, "the flag of a clean end is there, at", point)
    check(store.close() == nil, "no clean end, at", point)
  }
  check(point > 10, "the stores of a first put", point)
  atHeadSync = nil
}

/// log_tests refusals
func refusals() -> Int32 {
  TestClock.stop()
  TestClock.pass(1000 * second)
  checkRefusedLog()
  checkRefusedOther()
  checkRefusedIndex()
  for dies in [false, true] { checkFailedCheckpoint(dies: dies) }
  for number in 1...2 { checkFailedRecovery(of: number) }
  checkFlagOfEnd()
  checkRemoval()
  print("every refusal")
  return 0
}
