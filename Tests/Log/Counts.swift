internal import CHutch
import CLogTests
import CSystem
import Synchronization

// The statistics of a store: what each call counts, and what it does not.

/// The counters that have changed since the last look, in the order of TierStats.
private struct Counts {
  let storage: LogStorage
  private var last = TierStats(isUp: true)

  init(_ storage: LogStorage) {
    self.storage = storage
    last = storage.stats
  }

  /// `changes`: by how much each of these has grown; all others have not.
  mutating func expect(
    _ words: StaticString, hits: UInt64 = 0, misses: UInt64 = 0, puts: UInt64 = 0,
    removals: UInt64 = 0, refusals: UInt64 = 0, failures: UInt64 = 0, damaged: UInt64 = 0,
    evictions: UInt64 = 0, expirations: UInt64 = 0
  ) {
    let now = storage.stats
    check(now.hits - last.hits == hits, words, 1, Int(now.hits - last.hits))
    check(now.misses - last.misses == misses, words, 2, Int(now.misses - last.misses))
    check(now.puts - last.puts == puts, words, 3, Int(now.puts - last.puts))
    check(now.removals - last.removals == removals, words, 4, Int(now.removals - last.removals))
    check(now.refusals - last.refusals == refusals, words, 5, Int(now.refusals - last.refusals))
    check(now.failures - last.failures == failures, words, 6, Int(now.failures - last.failures))
    check(now.damaged - last.damaged == damaged, words, 7, Int(now.damaged - last.damaged))
    check(
      now.evictions - last.evictions == evictions, words, 8, Int(now.evictions - last.evictions))
    check(
      now.expirations - last.expirations == expirations, words, 9,
      Int(now.expirations - last.expirations))
    last = now
  }
}

/// Carries out a write as the cache does, and returns its result.
extension LogStorage {
  fileprivate func carryOut(
    _ kind: StoreWrite.Kind, _ key: Int, size: Int = 50, if condition: WriteCondition = .always
  ) -> StoreWrite.Result {
    let now = LogStore.moment()
    let result = store!.withKey(key) { bytes, hash in
      var record = Record()
      record.version = sharing.nextVersion!.pointee.wrappingAdd(1, ordering: .relaxed).oldValue
      record.created = now.time
      record.accessed = now.time
      record.size = kind == .put ? size : 0
      let block = trying { () throws(Failure) in try Block.allocate(key: bytes, record: record) }
      var form: ValueForm?
      if kind == .put {
        Value.fill(block.unowned.value, key, 1)
        prepare(block.unowned, &form)
      }
      var write = StoreWrite(kind, block.unowned, hash)
      write.form = form
      write.version = record.version
      write.time = now.time
      write.condition = condition
      self.write(&write)
      finish(&write)
      return write.result
    }
    doOwedWork()
    return result
  }

  fileprivate func putAtOnce(_ key: Int, size: Int = 50) -> StoreWrite.Result {
    let now = LogStore.moment()
    return store!.withKey(key) { bytes, hash in
      var record = Record()
      record.version = sharing.nextVersion!.pointee.wrappingAdd(1, ordering: .relaxed).oldValue
      record.created = now.time
      return withUnsafeTemporaryAllocation(byteCount: size, alignment: 8) { buffer in
        Value.fill(buffer, key, 1)
        return putAtOnce(bytes, hash, record, Bytes(buffer), at: now.time)
      }
    }
  }

  fileprivate func removeAtOnce(_ key: Int) {
    store!.withKey(key) { bytes, hash in
      _ = removeAtOnce(
        bytes, hash, version: 0, isThere: false, copy: nil, at: LogStore.moment().time)
    }
  }

  fileprivate func read(_ key: Int, isAccess: Bool = true) {
    _ = store!.round(key, at: LogStore.moment(), isAccess: isAccess)
  }

  /// Whether a copy was made into a buffer.
  fileprivate func copies(_ key: Int) -> Bool {
    store!.withKey(key) { bytes, hash in
      withUnsafeTemporaryAllocation(byteCount: 10_000, alignment: 8) { buffer in
        let moment = LogStore.moment()
        if case .copied = store!.copy(bytes, hash, at: moment, .value, into: buffer) { return true }
        return false
      }
    }
  }

  /// A byte of a key's value is another one from here on.
  fileprivate func damage(_ key: Int) {
    store!.withKey(key) { bytes, hash in
      let value = store!.find(bytes, hash)!.entry.value
      let byte = UnsafeMutableRawPointer(mutating: value.baseAddress! + 20)
      byte.storeBytes(of: ~byte.load(as: UInt8.self), as: UInt8.self)
    }
  }
}

private func checkCalls() {
  let scratch = Scratch("calls")
  let storage = LogStorage.openAt(scratch.path, .process, TierLimits())
  var counts = Counts(storage)
  // A value of the size that belongs to its key.
  func put(_ key: Int) -> StoreWrite.Result {
    storage.carryOut(.put, key, size: Value.size(key, 1))
  }
  for key in 0..<3 { check(put(key).outcome == .stored, "a put") }
  counts.expect("three puts", puts: 3)
  check(put(0).existed, "a put of what is there")
  counts.expect("a put of what is there", puts: 1)
  check(storage.carryOut(.put, 0, if: .absent).isUnmet, "a put under a condition")
  counts.expect("a put under a condition that does not hold")

  storage.read(0)
  storage.read(0, isAccess: false)
  counts.expect("a get of what is there, and a look", hits: 1)
  storage.read(7)
  storage.read(7, isAccess: false)
  counts.expect("a get of what is not there, and a look", misses: 1)
  check(storage.copies(0) && !storage.copies(7), "copies")
  counts.expect("a copy of what is there, and one of what is not", hits: 1, misses: 1)

  check(storage.carryOut(.remove, 0).existed && !storage.carryOut(.remove, 0).existed, "removals")
  counts.expect("a removal of what is there, and of what is not", removals: 1)
  storage.removeAtOnce(0)
  storage.removeAtOnce(1)
  counts.expect("removals at once", removals: 1)
  check(storage.putAtOnce(0, size: Value.size(0, 1)).outcome == .stored, "a put at once")
  storage.read(0)
  storage.removeAtOnce(0)
  counts.expect("a put at once, a get and a removal", hits: 1, puts: 1, removals: 1)
  _ = storage.carryOut(.touch, 0)
  counts.expect("a touch of what is not there")

  storage.damage(2)
  storage.read(2)
  storage.read(2)
  counts.expect("gets of a damaged entry", misses: 2, damaged: 1)
  check(put(2).outcome == .stored, "a put")
  storage.damage(2)
  _ = storage.carryOut(.touch, 2)
  storage.read(2)
  counts.expect("a touch of a damaged entry", misses: 1, puts: 1, damaged: 1)
  check(put(2).outcome == .stored, "a put")
  storage.damage(2)
  check(!storage.copies(2), "a copy of a damaged entry")
  counts.expect("a copy of a damaged entry", misses: 1, puts: 1, damaged: 1)
  let left = storage.stats
  check(left.count == 0 && left.cost == 0, "what is left", Int(left.count), Int(left.cost))
}

/// A put that is too large, one for which the disk has no room, and one that the disk refuses.
private func checkRefusals() {
  let scratch = Scratch("refused")
  var storage: LogStorage? = LogStorage.openAt(scratch.path, .process, TierLimits(cost: 300_000))
  var counts = Counts(storage!)
  check(storage!.carryOut(.put, 1).outcome == .stored, "a put")
  check(storage!.carryOut(.put, 1, size: 290_000).outcome == .tooLarge, "a put that is too large")
  counts.expect("a put that is too large", puts: 1, refusals: 1)
  isFull = true
  var stored: UInt64 = 0
  var last = storage!.carryOut(.put, 2, size: 3000)
  while last.outcome == .stored && stored < 1000 {
    stored += 1
    // All of it stays: there is no second segment to clean.
    last = storage!.carryOut(.put, Int(stored) + 2, size: 3000)
  }
  isFull = false
  check(last.outcome == .noSpace, "the disk is not full", Int(stored))
  counts.expect("a put without room", puts: stored, refusals: 1)
  check(storage!.close(lastVersion: 0) == nil, "close")
  storage = nil

  storage = LogStorage.openAt(scratch.path, .process, TierLimits(cost: 300_000))
  counts = Counts(storage!)
  // The first write takes the flag of a clean end back, which the disk refuses.
  mapsUntilRefusal = 1
  let refused = storage!.carryOut(.put, 1)
  check(refused.outcome == .failed && refused.failure != nil, "a put that the disk refuses")
  counts.expect("a put that the disk refuses", failures: 1)
  check(storage!.carryOut(.put, 1).outcome == .stored, "the next put")
  counts.expect("the next put", puts: 1)
}

/// Where there are limits, each entry that has come is there or has gone, for one reason.
private func checkGoings() {
  TestClock.stop()
  let scratch = Scratch("goings")
  let storage = LogStorage.openAt(scratch.path, .process, TierLimits(cost: 400_000, count: 900))
  let store = storage.store!
  let above = TierAbove()
  storage.watch(by: above)
  let now = LogStore.moment()
  for key in 0..<6000 {
    store.put(key * 16, 1, at: now) { if key % 3 == 0 { $0.expires = now.time + 10 * second } }
    if key == 5000 { TestClock.pass(11 * second) }
    if key == 5500 { storage.maintainAll(at: LogStore.moment()) }
  }
  storage.doOwedWork()
  let stats = storage.stats
  check(stats.puts == 6000 && stats.count <= 900, "entries", Int(stats.count))
  check(
    stats.puts == stats.count + stats.evictions + stats.expirations, "entries that have gone",
    Int(stats.evictions), Int(stats.expirations))
  check(stats.evictions > 4000 && stats.expirations > 100, "entries that have expired")
  let drops = [Int(stats.evictions), Int(stats.expirations), 0, 0]
  check(above.drops == drops, "what the tier above knows")
  check(stats.removals == 0 && stats.damaged == 0, "nothing else")
  check(stats.cost == store.live, "the cost", Int(stats.cost))
  TestClock.go()
}

/// log_tests counts
func counts() -> Int32 {
  checkCalls()
  checkRefusals()
  checkGoings()
  print("every count")
  return 0
}
