internal import CHutch
import CLogTests
import CSystem
import Synchronization

// Content files, in the store as the cache has it: a process dies after a store to shared memory;
// the next opening sweeps, and there is no file but those of entries. Values of keys that end a
// group of sixteen are large (Value.size).

extension LogStorage {
  static func openAt(_ path: String) -> LogStorage {
    trying { () throws(Failure) in
      let text = strdup(path)!
      defer { free(text) }
      var options = StorageOptions()
      options.kind = .log
      options.limits = TierLimits(cost: 300_000)
      options.inlineThreshold = 1000
      return try LogStorage.open(
        directory: try Directory.open(path: text), options: options,
        clock: Clock(function: nil, context: nil, release: nil))
    }
  }

  func put(_ key: Int, _ round: Int, at moment: Moment) {
    store!.withKey(key) { bytes, hash in
      var record = Record()
      record.version = sharing.nextVersion!.pointee.wrappingAdd(1, ordering: .relaxed)
        .oldValue
      record.created = moment.time
      record.size = Value.size(key, round)
      let block = trying { () throws(Failure) in try Block.allocate(key: bytes, record: record) }
      Value.fill(block.unowned.value, key, round)
      var form: ValueForm?
      prepare(block.unowned, &form)
      var write = StoreWrite(.put, block.unowned, hash)
      write.form = form
      write.version = record.version
      write.time = moment.time
      self.write(&write)
      if write.result.outcome != .stored { fail("a put fails, of key", key) }
      if (form?.file != nil) != keepsInFile(record.size) { fail("a value is in the wrong place") }
    }
    doOwedWork()
  }

  func change(_ kind: StoreWrite.Kind, _ key: Int, at moment: Moment) {
    store!.withKey(key) { bytes, hash in
      var record = Record()
      record.created = moment.time
      record.accessed = moment.time
      let block = trying { () throws(Failure) in try Block.allocate(key: bytes, record: record) }
      var write = StoreWrite(kind, kind == .clear ? nil : block.unowned, hash)
      write.time = moment.time
      self.write(&write)
      if write.result.failure != nil { fail("a write fails, of key", key) }
    }
    doOwedWork()
  }

  func maintainAll(at moment: Moment) { while maintain(at: moment) {} }
}

private func judge(_ path: String, _ point: Int) {
  let storage = LogStorage.openAt(path)
  let now = LogStore.moment()
  storage.maintainAll(at: now)
  let store = storage.store!
  check(!store.hasOrphans, "a content file without an entry, at point", point)
  check(store.loose == 0, "files that are counted and not there, at point", store.loose, point)
  let report = trying { () throws(Failure) in try storage.check(isQuick: false, at: now) }
  check(
    report.isSound, "damage, at point", Int(report.damaged), Int(report.counters),
    Int(report.orphans), point)
  for key in 0..<200 { check(store.round(key, at: now) <= 1, "a value that was never put", point) }
  storage.put(15, 1, at: now)
  check(store.round(15, at: now) == 1, "a put is not there afterwards, at point", point)
  check(storage.close(lastVersion: 0) == nil, "close, at point", point)
}

/// One operation of the store, of keys that have been put as round 0.
private struct FileScenario {
  let name: StaticString
  let operation: (LogStorage, Moment) -> Void
}

private var fileScenarios: [FileScenario] {[
  FileScenario(name: "a file's life") { storage, now in
    storage.put(79, 1, at: now)
    storage.put(15, 1, at: now)
    storage.change(.touch, 31, at: now)
    storage.change(.remove, 47, at: now)
    storage.maintainAll(at: now)
  },
  FileScenario(name: "files that are held") { storage, now in
    storage.hold()
    storage.put(15, 1, at: now)
    storage.change(.remove, 47, at: now)
    storage.release()
    storage.maintainAll(at: now)
  },
  FileScenario(name: "files that evict") { storage, now in
    for key in 10..<50 { storage.put(key * 16 + 15, 1, at: now) }
    storage.maintainAll(at: now)
  },
  FileScenario(name: "a clear of files") { storage, now in
    storage.change(.clear, 0, at: now)
    storage.put(15, 1, at: now)
    storage.maintainAll(at: now)
  },
  FileScenario(name: "a close with files held") { storage, now in
    storage.hold()
    storage.change(.remove, 47, at: now)
    check(storage.close(lastVersion: 0) == nil, "close")
  },
]}

/// A process dies in an operation; another one dies in its sweep of what the first has left.
func goThroughFiles(_ exploration: inout Exploration) -> Tally {
  var all = Tally()
  for scenario in fileScenarios {
    let scratch = Scratch("files")
    let tally = explore(&exploration) { point, trace in
      Scratch.empty(scratch.path)
      let wasKilled = isKilled {
        let now = LogStore.moment()
        let storage = LogStorage.openAt(scratch.path)
        for key in 0..<70 { storage.put(key, 0, at: now) }
        CrashPoint.arm(point, trace)
        scenario.operation(storage, now)
      }
      judge(scratch.path, point)
      return wasKilled
    }
    all.tried += tally.tried
    all.stores += tally.stores
    all.places += tally.places
  }
  let scratch = Scratch("sweep")
  let tally = explore(&exploration) { point, trace in
    Scratch.empty(scratch.path)
    let wasKilledFirst = isKilled {
      let now = LogStore.moment()
      let storage = LogStorage.openAt(scratch.path)
      for key in 0..<70 { storage.put(key, 0, at: now) }
      storage.hold()
      storage.change(.clear, 0, at: now)
      storage.put(15, 1, at: now)
      kill(getpid(), SIGKILL)
    }
    check(wasKilledFirst, "the first process lives")
    let wasKilled = isKilled {
      CrashPoint.arm(point, trace)
      let storage = LogStorage.openAt(scratch.path)
      storage.maintainAll(at: LogStore.moment())
    }
    judge(scratch.path, point)
    return wasKilled
  }
  all.tried += tally.tried
  all.stores += tally.stores
  all.places += tally.places
  return all
}
