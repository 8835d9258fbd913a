import Synchronization

/// Writing on eviction: a put goes into memory, and on disk when memory gives the entry up.
///
/// Such an entry is dirty: memory alone has it, and owes it to the store. What the store had of
/// the key is removed before the put returns, so a kill loses the entry and brings no older value
/// back. While it is dirty, the store has nothing that a read would see.
///
/// An entry that leaves is announced to the store under the lock of its shard (`stage`), so there
/// is no moment at which no tier has it, and waits in `queue` until it is written (`write`): by
/// calls that make entries leave, by maintenance, by a flush and by the end. A newer write of the
/// key, or a clear, takes the announced one's place, and nothing is written. What the store does
/// not take is lost, as if evicted.
///
/// A read looks into memory before the store, the way such an entry goes. The other way goes
/// what a put replaces in the store and adds in memory; a read that may have missed that looks
/// again (`isNowhere`).
///
/// Dirty are the entries that memory alone has and owes. An entry is one of these:
///
///   dirty, not backed   it was put so; the store has nothing that a read would see
///   not dirty, backed   the store has it, or it is submitted (`submitDown`)
///   neither             memory alone has it, and owes it to nobody
///   dirty and backed    impossible
///
/// The caller of a function here is inside the gate, and holds no lock, if the function does not
/// say otherwise. LOCKS: those of the order, of a shard, and the queue's, in that order
/// (Cache.swift).
final class WriteBack {
  /// The cache's, which lives longer than its parts. Not counted references: the child of a fork
  /// leaves this object behind, and frees memory, clock and codec all the same.
  private unowned(unsafe) let memory: MemoryTier
  private unowned(unsafe) let clock: Clock
  private unowned(unsafe) let codec: Codec?
  private let order: WriteOrder
  private let events: Events
  /// Dirty entries that memory has given up, on their way to the store.
  let queue: WriteBackQueue
  /// Whether a dirty entry has ever been put. Relaxed: the thread that has put one sees it.
  private let hasBegun = Atomic<Bool>(false)

  private init(
    _ memory: MemoryTier, _ order: WriteOrder, _ events: Events, _ clock: Clock,
    _ values: StoredValues, _ queue: WriteBackQueue
  ) {
    self.memory = memory
    self.order = order
    self.events = events
    self.clock = clock
    codec = values.codec
    self.queue = queue
  }

  static func make(
    _ memory: MemoryTier, _ order: WriteOrder, _ events: Events, _ clock: Clock,
    _ values: StoredValues
  ) throws(Failure) -> WriteBack {
    WriteBack(memory, order, events, clock, values, try WriteBackQueue.make())
  }

  private var values: StoredValues { StoredValues(codec: codec) }

  /// Whether there can be dirty entries.
  @inline(__always)
  var mayHaveDirty: Bool { hasBegun.load(ordering: .relaxed) }

  /// A dirty entry is about to be put.
  func begin() { hasBegun.store(true, ordering: .relaxed) }

  // MARK: touch

  /// Touches an entry that the store has no row of: it is dirty, or was and is on its way. True:
  /// done. False: it has changed meanwhile. Both let the stripe go, which is held before. Nil:
  /// it is another kind of entry, and the stripe is held.
  func touchDirty(
    _ key: Bytes, _ hash: UInt64, _ touched: (Record) -> Record, at moment: Moment,
    in scope: Tiers, _ storage: any Storage
  ) throws(Failure) -> Bool? {
    guard mayHaveDirty else { return nil }
    let stripe = Stripes.index(of: hash)
    if scope == .whole, let block = memory.peek(key, hash, at: moment), block.unowned.isDirty {
      defer { order.stripes.unlock(stripe) }
      let stored = try memory.put(
        try block.unowned.copied(with: touched(block.unowned.record)), hash, at: moment,
        condition: .version(block.unowned.version))
      return stored.outcome == .stored || stored.outcome == .tooLarge
    }
    // One that has expired is no entry, though it is announced still.
    guard storage.isAnnounced(key, hash), (try? storage.info(key, hash, at: moment)) != nil else {
      return nil
    }
    order.stripes.unlock(stripe)
    guard let block = try storage.get(key, hash, at: moment, isAccess: false) else { return false }
    let copy = try block.unowned.copied(with: touched(block.unowned.record))
    let put = values.put(copy.unowned, hash, to: storage)
    order.stripes.lock(stripe)
    let stored = try? storage.info(key, hash, at: moment)
    guard storage.isAnnounced(key, hash), let stored, stored.version == put.version else {
      order.stripes.unlock(stripe)
      storage.abandon(put)
      return false
    }
    order.commit(put, to: storage, at: moment, unlocking: stripe)
    if put.outcome != .stored { dropLost(block.unowned, hash) }
    if let failure = put.failure { throw failure }
    return true
  }

  // MARK: leaving

  /// Memory is giving up a dirty entry, whose shard is locked.
  func stage(_ entry: UnownedBlock, _ accessed: Int64, for storage: any Storage) {
    if queue.hasEnded { return }
    let key = entry.key
    let hash = memory.hash(key)
    let stripe = Stripes.index(of: hash)
    let write = StorageWrite(.put, entry.retained(), hash)
    write.version = entry.version
    noteIdle(entry, hash, accessed, in: storage)
    // Ended when it has been written: until then nothing of the stripe is promoted, least of
    // all this block.
    order.stripes.beginWrite(stripe)
    guard storage.announce(write) else {
      order.stripes.endWrite(stripe)
      return
    }
    queue.add(write)
    if events.wants(.didAdd) {
      events.post(
        Event(
          .didAdd, .writtenBack, entry.retained(), hasValue: true, tiers: .disk, lane: stripe))
    }
  }

  /// An idle time goes on from the last access.
  private func noteIdle(
    _ entry: UnownedBlock, _ hash: UInt64, _ accessed: Int64, in storage: any Storage
  ) {
    let idle = entry.timeToIdle != 0 ? entry.timeToIdle : storage.limits.ages.timeToIdle
    if idle != 0 && idle != Record.never && accessed > entry.created {
      storage.noteAccess(entry.key, hash, at: accessed)
    }
  }

  // MARK: writing

  @inline(never)
  func writeDue(_ storage: any Storage) {
    while queue.isDue, writeBatch(storage) {}
  }

  /// Writes those that wait by now. No lock is held.
  func write(_ storage: any Storage, by deadline: Deadline = Deadline(at: Int64.max)) {
    guard queue.count > 0 else { return }
    let position = queue.position
    while writeBatch(before: position, storage) {}
    // A codec of the host's may be what the batch of another waits for.
    if !ThreadState.isWithinCallback(of: events.owner!) {
      queue.wait(before: position, until: deadline)
    }
  }

  /// Writes a batch; false: none waits.
  @discardableResult
  func writeBatch(before position: UInt64 = .max, _ storage: any Storage) -> Bool {
    var announced: [StorageWrite] = []
    let ticket = queue.take(before: position, into: &announced)
    if announced.isEmpty { return false }
    let moment = clock.momentForMaintenance()
    var submitted: [(put: StorageWrite, of: StorageWrite)] = []
    for write in announced {
      guard let entry = write.entry else { continue }
      let stripe = Stripes.index(of: write.hash)
      // Reads look at the announced one, which is not changed.
      let put = values.put(entry, write.hash, to: storage)
      order.stripes.lock(stripe)
      if storage.isAnnounced(write) {
        queue.note(1)
        order.submit(put, to: storage, at: moment, unlocking: stripe)
        submitted.append((put, write))
      } else {
        order.stripes.unlock(stripe)
        storage.abandon(put)
      }
      storage.abandon(write)
    }
    for (put, write) in submitted {
      storage.complete(put)
      queue.note(-1)
      guard let entry = write.entry else { continue }
      order.stripes.endWrite(Stripes.index(of: put.hash))
      if put.outcome != .stored { dropLost(entry, put.hash) }
    }
    for write in announced { order.stripes.endWrite(Stripes.index(of: write.hash)) }
    queue.finish(ticket, announced.count)
    return true
  }

  /// The end: who still waits is gone, and so is who leaves from here on.
  func end(_ storage: any Storage) {
    queue.end()
    var rest: [StorageWrite] = []
    while true {
      let ticket = queue.take(before: .max, into: &rest)
      if rest.isEmpty { return }
      for write in rest { storage.abandon(write) }
      queue.finish(ticket, rest.count)
      rest = []
    }
  }

  /// The store has not taken an entry that memory has given up.
  private func dropLost(_ entry: UnownedBlock, _ hash: UInt64) {
    memory.setBacked(entry.key, hash, version: entry.version, false)
    if events.wantsEntries {
      events.postRemoval(
        entry.retained(), hasValue: true, .evicted, .disk, Stripes.index(of: hash))
    }
  }

  // MARK: writing what stays

  /// As above, within a call that uses the store, or when none comes any more: before a flush, a
  /// fork, the end. The first failure; what could not be written stays dirty. A fork leaves it to
  /// others to tell the listener.
  func writeDirty(
    _ storage: any Storage, by deadline: Deadline, tells: Bool = true
  ) -> Failure? {
    guard mayHaveDirty else { return nil }
    write(storage, by: deadline)
    var failure: Failure?
    var position: UInt64 = 0
    while true {
      if deadline.hasPassed {
        return Failure(.timedOut, "entries were still to be written at the deadline")
      }
      let moment = clock.momentForMaintenance()
      var writes: [DownwardWrite] = []
      let count = memory.dirty(after: &position, limit: 64, at: moment) { entry in
        if let write = submitDown(entry, at: moment, to: storage) { writes.append(write) }
      }
      for write in writes {
        let failed = finish(write, in: storage)
        if failure == nil { failure = failed }
      }
      if tells { events.deliver() }
      if count == 0 { break }
    }
    write(storage, by: deadline)
    return failure
  }

  /// A dirty entry on its way down that memory keeps.
  struct DownwardWrite {
    fileprivate let write: StorageWrite
    /// Memory had it when it was submitted, and took notice.
    fileprivate let isKept: Bool
    fileprivate let pending: Events.Pending?
  }

  /// Nil: it is not there any more, or not dirty.
  func submitDown(
    _ entry: UnownedBlock, at moment: Moment, to storage: any Storage
  ) -> DownwardWrite? {
    let key = entry.key
    let hash = memory.hash(key)
    let stripe = Stripes.index(of: hash)
    let write = values.put(entry, hash, to: storage)
    order.stripes.lock(stripe)
    // What a clear that is under way takes is not to come after it.
    guard memory.peek(key, hash, at: moment).unowned?.raw == entry.raw, entry.isDirty,
      entry.version > order.clearing?.all ?? 0
    else {
      order.stripes.unlock(stripe)
      storage.abandon(write)
      return nil
    }
    if let record = memory.info(key, hash, at: moment) {
      noteIdle(entry, hash, record.accessed, in: storage)
    }
    let pending = events.postPendingWriteBack(entry, stripe)
    write.time = moment.time
    order.stripes.beginWrite(stripe)
    storage.submit(write)
    // From here on memory may let it go. If it has by now, it has been announced, and that told.
    queue.note(1)
    let isKept = memory.setBacked(key, hash, version: entry.version, true)
    if !isKept { queue.note(-1) }
    order.stripes.unlock(stripe)
    return DownwardWrite(write: write, isKept: isKept, pending: pending)
  }

  func finish(_ down: DownwardWrite, in storage: any Storage) -> Failure? {
    let write = down.write
    storage.complete(write)
    if down.isKept { queue.note(-1) }
    order.stripes.endWrite(Stripes.index(of: write.hash))
    let isStored = write.outcome == .stored
    if !isStored && down.isKept, let entry = write.entry {
      memory.setBacked(
        entry.key, write.hash, version: entry.version, false, isDirty: write.outcome != .tooLarge)
    }
    events.resolve(
      down.pending, leftDisk: false, storedIn: isStored && down.isKept ? .disk : [], waits: false)
    return isStored ? nil : write.failure
  }
}

/// For calls that are not inside the gate.
extension Cache {
  /// For calls that may have made dirty entries leave: writes some if many wait. No lock is
  /// held. True, for who asks whether to go on.
  @discardableResult
  func helpWriteBack() -> Bool {
    if writeBack.queue.isDue { try? withStorage { (_) throws(Failure) in } }
    return true
  }

  /// Writes all dirty entries, which memory keeps. No lock is held.
  func writeDirty() throws(Failure) {
    guard writeBack.mayHaveDirty else { return }
    let failure = try withStorage { (storage) throws(Failure) in
      writeBack.writeDirty(storage, by: Deadline(after: Int64.max))
    }
    if let failure { throw failure }
  }

  /// Writes the entry of a key if it is dirty; memory keeps it. Returns what it has looked at.
  func writeDown(_ key: Bytes, _ hash: UInt64, at moment: Moment) -> Block? {
    let resident = memory.peek(key, hash, at: moment)
    guard let entry = resident.unowned else { return nil }
    if entry.isDirty {
      try? withStorage { (storage) throws(Failure) in
        if let write = writeBack.submitDown(entry, at: moment, to: storage) {
          _ = writeBack.finish(write, in: storage)
        }
      }
    }
    return resident
  }

  /// Empties the memory tier, up to a version: copies go, and dirty entries go on disk.
  func emptyMemory(upTo version: UInt64 = .max, at moment: Moment) {
    try? writeDirty()
    memory.clear(upTo: version, at: moment)
    helpWriteBack()
  }
}
