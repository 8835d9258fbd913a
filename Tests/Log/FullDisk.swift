import CLogTests
import CSystem
import Synchronization

// Every request for room on the file system is refused once; then removals for which there is no
// room are not undone by a loss of power, and cost no other entry.

/// How many requests there were, and which one is refused; 0: none.
nonisolated(unsafe) private var requests = 0
nonisolated(unsafe) private var refused = 0
/// The disk is full.
nonisolated(unsafe) var isFull = false
/// How many puts were refused for it, and how many openings.
nonisolated(unsafe) private var refusedPuts = 0
nonisolated(unsafe) private var refusedOpenings = 0

/// Stands before libc's.
@_cdecl("posix_fallocate")
func reserveOrRefuse(_ file: Int32, _ offset: off_t, _ length: off_t) -> Int32 {
  requests += 1
  if isFull || requests == refused { return ENOSPC }
  return fallocate(file, 0, offset, length) == 0 ? 0 : hutch_errno()
}

/// A put that has no room is refused, and its key has nothing then; all else is as it was.
private func fill(_ store: LogStore, _ request: Int) {
  let now = LogStore.moment()
  for step in 0..<4000 {
    let key = step * 7 % 2000
    let write = store.put(key, step, at: now)
    let round = store.round(key, at: now)
    if write.outcome == .stored {
      check(round == step, "a put is not there, at request", request)
    } else {
      check(write.outcome == .noSpace, "a put fails, at request", request)
      check(round < 0, "an older value is there, at request", request)
      refusedPuts += 1
    }
  }
  let report = trying { () throws(Failure) in try store.verify() }
  check(report.isSound, "the store is not sound, at request", request)
}

// MARK: removals

/// Keys 0 to 14 are there. The disk is full, and the only segment has no room for a record.
private func fillSegment(_ path: String, _ durability: Durability) -> LogStore {
  let store = LogStore.openAt(path, TierLimits(cost: 300_000))
  trying { () throws(Failure) in try store.raise(to: durability) }
  let now = LogStore.moment()
  for key in 0..<15 { store.put(key, 0, at: now) }
  for key in [4, 0] {
    let before = store.end
    store.put(key, 0, at: now)
    let units = store.end - before
    while store.room(.new) >= units { store.put(key, 0, at: now) }
  }
  // The record of another removal, if it fits.
  if store.room(.new) >= LogFormat.units(LogEntry.removalSize(key: 16)) {
    store.remove(14, at: now)
  }
  trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
  check(store.segmentCount == 1, "more than one segment")
  isFull = true
  return store
}

/// The machine loses power: the index is not believed any more.
private func loseBoot(_ store: LogStore, _ path: String) -> LogStore {
  store.words.store(IndexAt.boot, 77)
  store.member.leave()
  let found = LogStore.openAt(path, nil)
  var work = LogRebuild()
  trying { () throws(Failure) in while try found.rebuild(&work, at: LogStore.moment()) {} }
  let report = trying { () throws(Failure) in try found.verify() }
  check(report.isSound, "the store is not sound after a loss of power")
  return found
}

/// `checkpoints`: there is another checkpoint before the loss of power.
private func removeWithoutRoom(_ path: String, _ durability: Durability, checkpoints: Bool) {
  Scratch.empty(path)
  let store = fillSegment(path, durability)
  let now = LogStore.moment()
  let end = store.end
  let removed = [3, 4, 11]
  let entries = removed.map { key in
    store.withKey(key) { bytes, hash in store.find(bytes, hash)!.entry }
  }
  for key in removed { check(store.remove(key, at: now).existed, "an entry is not there", key) }
  check(store.end == end, "there was room for a record")
  check(store.round(8, at: now) == 0, "another entry has gone")
  isFull = false
  store.put(8, 1, at: now)
  if checkpoints {
    trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
  }
  if durability == .process && !checkpoints {
    // What has not been synced may not be on the disk.
    for entry in entries { SharedWords.store(entry.start + LogEntry.At.sizes, entry.sizes) }
  }
  let found = loseBoot(store, path)
  for key in 0..<14 {
    let round = found.round(key, at: now)
    if removed.contains(key) {
      check(round < 0, "a removed entry is back", key)
    } else if checkpoints || durability != .process {
      check(round == (key == 8 ? 1 : 0), "an entry is lost for the removal of another", key)
    }
  }
  check(found.close() == nil, "close")
}

/// The same of entries that the cleaner has kept.
private func removeKeptWithoutRoom(_ path: String) {
  Scratch.empty(path)
  let store = LogStore.openAt(path, TierLimits(cost: 300_000))
  trying { () throws(Failure) in try store.raise(to: .power) }
  let now = LogStore.moment()
  var random = Random(1)
  // The next segment needs another page of the table.
  let pages = UInt64(LogPages.pageSize / 8)
  func put() {
    let key = random.next(600)
    if random.next(3) == 0 { _ = store.round(random.next(600), at: now, isAccess: true) }
    store.put(key, 0, at: now)
  }
  repeat { put() } while store.words.load(IndexAt.next) % pages != 0
  while store.room(.new) >= 30 { put() }
  while store.room(.new) >= 6 { store.put(0, 0, at: now) }
  if store.room(.new) == 5 { store.remove(0, at: now) }
  trying { () throws(Failure) in check(try store.writeCheckpoint(), "no checkpoint") }
  isFull = true
  var removed: [Int] = []
  for key in 1..<600 {
    let isKept = store.withKey(key) { bytes, hash in store.find(bytes, hash)?.seat.isKept ?? false }
    if isKept && removed.count < 20 {
      store.remove(key, at: now)
      removed.append(key)
    }
  }
  check(removed.count == 20, "too little is kept", removed.count)
  var present: [Int] = []
  for key in 0..<600 where store.round(key, at: now) >= 0 { present.append(key) }
  isFull = false
  let found = loseBoot(store, path)
  for key in removed { check(found.round(key, at: now) < 0, "a removed entry is back", key) }
  for key in present { check(found.round(key, at: now) == 0, "an entry is lost", key) }
  check(found.close() == nil, "close")
}

/// The segment table needs a page, and the place that is given up for it waits for the readers of
/// another process: no other segment goes meanwhile.
private func keepSegmentsWithoutRoom(_ path: String) {
  Scratch.empty(path)
  let storage = LogStorage.openAt(path, .process, TierLimits(cost: 1_500_000))
  let other = LogStorage.openAt(path, .process, TierLimits(cost: 1_500_000))
  let store = storage.store!
  let now = LogStore.moment()
  let pages = UInt64(LogPages.pageSize / 8)
  var key = 0
  func put() -> Bool {
    key += 1
    return store.put(key, 0, at: now).outcome == .stored
  }
  repeat { _ = put() } while store.words.load(IndexAt.next) % pages != 0
  let count = store.segmentCount
  check(count > 10, "the log is short", count)
  isFull = true
  var refused = 0
  for _ in 0..<3000 where !put() { refused += 1 }
  isFull = false
  check(refused > 2000, "there is room", refused)
  check(store.hasWaitingPlaces, "no place waits for its readers")
  check(store.segmentCount >= count - 1, "segments have gone for nothing", store.segmentCount)
  check(put(), "a put is refused on a disk with room")
  let report = trying { () throws(Failure) in try store.verify() }
  check(report.isSound, "the store is not sound on a full disk")
  for storage in [other, storage] { check(storage.close(lastVersion: 0) == nil, "close") }
}

/// A process dies after a store of a removal for which there is no room.
func goThroughFullDisk(_ exploration: inout Exploration) -> Tally {
  let scratch = Scratch("full")
  return explore(&exploration) { point, trace in
    Scratch.empty(scratch.path)
    let wasKilled = isKilled {
      let store = fillSegment(scratch.path, .process)
      CrashPoint.arm(point, trace)
      store.remove(3, at: LogStore.moment())
      store.remove(13, at: LogStore.moment())
    }
    let store = LogStore.openAt(scratch.path, nil)
    let newest = trying { () throws(Failure) in
      let found = try LogCheckpoint.read(
        in: store.directory, log: Files.status(of: store.logFile.number)!)
      return found?[LogCheckpoint.At.number] ?? 0
    }
    check(newest > 0 || store.isAheadOfCheckpoint, "no checkpoint, and none to come, at", point)
    judge(Scenario(name: "full disk", keys: 14) { _, _ in }, scratch.path, point)
    return wasKilled
  }
}

/// log_tests full_disk
func fullDisk() -> Int32 {
  let scratch = Scratch("full")
  var request = 0
  repeat {
    request += 1
    Scratch.empty(scratch.path)
    requests = 0
    refused = request
    do throws(Failure) {
      let text = strdup(scratch.path)!
      defer { free(text) }
      let directory = try Directory.open(path: text)
      fill(try LogStore.open(directory, limits: TierLimits(cost: 3_000_000)), request)
    } catch {
      check(error.status == .noSpace, "opening fails, at request", request)
      refusedOpenings += 1
      // What was begun is in no writer's way.
      refused = 0
      fill(LogStore.openAt(scratch.path, TierLimits(cost: 3_000_000)), request)
    }
  } while requests >= request
  refused = 0
  for durability in [Durability.process, .power] {
    for checkpoints in [false, true] {
      removeWithoutRoom(scratch.path, durability, checkpoints: checkpoints)
    }
  }
  removeKeptWithoutRoom(scratch.path)
  keepSegmentsWithoutRoom(scratch.path)
  print("\(request - 1) requests, \(refusedOpenings) openings and \(refusedPuts) puts refused")
  return refusedOpenings > 0 && refusedPuts > 0 ? 0 : 1
}
