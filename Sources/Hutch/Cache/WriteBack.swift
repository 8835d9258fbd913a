import Synchronization

/// Writing on eviction: a put goes into memory, and on disk when memory gives the entry up.
///
/// Such an entry is dirty: memory alone has it, and owes it to the store. The store's older entry
/// of the key is removed before the put returns, so a kill loses the entry and brings no older
/// value back. While the entry is dirty, the store has nothing of the key that a read would see.
///
/// An entry that leaves is staged under the lock of its shard (`stage`), so there is no moment at
/// which no tier has it. It waits in `queue`, where reads find it, until it is written (`write`):
/// by calls that make entries leave, by maintenance, by a flush and by the end. A newer write of
/// the key, or a clear, takes its place, and nothing is written. An entry that the store refuses is
/// lost, as if the store had evicted it.
///
/// A read looks into memory, then into the queue, then into the store, as such an entry moves. A
/// put moves the other way: it replaces an entry of the store by one in memory. A read that may
/// have missed the entry for that reason looks again (`Cache.search`).
///
/// An entry is in one of these states:
///
///   dirty, not backed   it was put so; the store has nothing that a read would see
///   not dirty, backed   the store has it, or it is submitted (`submitDown`)
///   neither             memory alone has it, and owes it to no store
///   dirty and backed    impossible
///
/// The caller of a function here is inside the gate and holds no lock, unless the function's
/// comment says otherwise. LOCKS, in this order: those of the write order, of a shard, of the
/// queue (Cache.swift).
final class WriteBack {
  // The three belong to the cache: see Parts.letGo.
  private let memory: MemoryTier
  private let clock: Clock
  private let values: StoredValues
  private let order: WriteOrder
  private let events: Events
  /// Dirty entries that memory has given up, on their way to the store.
  let queue: WriteBackQueue
  /// True once a dirty entry has been put. Relaxed: the thread that has put it sees it.
  private let hasBegun = Atomic<Bool>(false)

  init(
    _ memory: MemoryTier, _ order: WriteOrder, _ events: Events, _ clock: Clock,
    _ values: StoredValues
  ) {
    self.memory = memory
    self.order = order
    self.events = events
    self.clock = clock
    self.values = values
    queue = order.staged
    queue.events = events
  }

  /// True if there can be dirty entries.
  @inline(__always)
  var mayHaveDirty: Bool { hasBegun.load(ordering: .relaxed) }

  /// A dirty entry is about to be put.
  func begin() { hasBegun.store(true, ordering: .relaxed) }

  // MARK: touch

  /// Touches an entry that the store has no row of: a dirty entry, or a staged one. The stripe is
  /// held before. True: the entry is touched. False: the entry has changed meanwhile. In both cases
  /// the stripe is unlocked. Nil: the entry is neither dirty nor staged, and the stripe is held.
  func touchDirty(
    _ key: Bytes, _ hash: UInt64, _ new: inout NewTimes, in scope: Tiers, _ storage: any Storage
  ) throws(Failure) -> Bool? {
    guard mayHaveDirty else { return nil }
    let moment = new.moment
    let stripe = Stripes.index(of: hash)
    if scope == .whole, let block = memory.peek(key, hash, at: moment), block.unowned.isDirty {
      defer { order.stripes.unlock(stripe) }
      let stored = try memory.put(
        try new.touched(block.unowned), hash, at: moment,
        condition: .version(block.unowned.version))
      // With its new times it may be too large for memory: then it is in the queue by now, and
      // its times are set there.
      return stored.outcome == .stored
    }
    guard !queue.isEmpty else { return nil }
    let ages = storage.ages
    guard let found = queue.find(key, hash, at: moment, under: ages) else { return nil }
    order.stripes.unlock(stripe)
    let down = DownwardWrite(try new.touched(found.block.unowned), hash, values, storage)
    order.stripes.lock(stripe)
    let isSame =
      switch queue.find(key, hash, at: moment, under: ages) {
      case .some(let now): now.block.unowned.raw == found.block.unowned.raw
      case .none: false
      }
    guard isSame else {
      order.stripes.unlock(stripe)
      return false
    }
    down.pending = events.postPendingWriteBack(down.entry, stripe)
    order.commit(&down.write, to: storage, at: moment)
    noteWritten(down)
    if let failure = down.write.result.failure { throw failure }
    return true
  }

  // MARK: leaving

  /// Memory is giving up a dirty entry, and the lock of its shard is held; or memory cannot take
  /// one, and its stripe is held.
  func stage(_ entry: UnownedBlock, _ accessed: Int64) {
    if queue.hasEnded { return }
    let hash = memory.hash(entry.key)
    let stripe = Stripes.index(of: hash)
    // The entry's batch ends this write. Until then no entry of the stripe is promoted, so no read
    // brings this block back into memory.
    order.stripes.beginWrite(stripe)
    if !queue.add(entry.retained(), hash, accessed: accessed) { order.stripes.endWrite(stripe) }
  }

  /// Tells the store of the last access, from which a time to idle goes on.
  func noteIdle(
    _ entry: UnownedBlock, _ hash: UInt64, _ accessed: Int64, in storage: any Storage
  ) {
    if accessed > entry.created && isIdling(entry, in: storage) {
      storage.noteAccess(entry.key, hash, at: accessed)
    }
  }

  /// True if the store's entry ends by being idle.
  func isIdling(_ entry: UnownedBlock, in storage: any Storage) -> Bool {
    storage.ages.mayIdle(own: entry.timeToIdle)
  }

  // MARK: writing

  @inline(never)
  func writeDue(_ storage: any Storage) {
    while queue.isDue, writeBatch(storage) {}
  }

  /// Writes the entries that wait by now. No lock is held.
  func write(_ storage: any Storage, by deadline: Deadline = .never) {
    guard queue.count > 0 else { return }
    let position = queue.position
    while writeBatch(before: position, storage) {}
    // The batch of another thread may wait for a codec of the host.
    if !ThreadState.isWithinCallback(of: events.owner!) {
      queue.wait(before: position, until: deadline)
    }
  }

  /// Writes a batch. False: no entry waits.
  @discardableResult
  func writeBatch(before position: UInt64 = .max, _ storage: any Storage) -> Bool {
    var batch: [StagedEntry] = []
    let ticket = queue.take(before: position, into: &batch)
    if batch.isEmpty { return false }
    let moment = clock.momentForMaintenance()
    var submitted: [DownwardWrite] = []
    for staged in batch {
      let down = DownwardWrite(staged.entry.retained(), staged.hash, values, storage)
      let stripe = Stripes.index(of: staged.hash)
      order.stripes.lock(stripe)
      if queue.isStaged(staged) {
        queue.note(1)
        down.write.accessed = queue.lastAccess(of: staged)
        down.pending = events.postPendingWriteBack(staged.entry, stripe)
        order.submit(&down.write, to: storage, at: moment)
        submitted.append(down)
      } else {
        order.stripes.unlock(stripe)
      }
    }
    for down in submitted {
      order.complete(&down.write, in: storage)
      queue.note(-1)
      noteWritten(down)
    }
    for staged in batch { order.stripes.endWrite(Stripes.index(of: staged.hash)) }
    queue.endBatch(ticket, batch.count)
    return true
  }

  /// The cache ends: the entries that still wait are lost, and so are those that leave memory
  /// later.
  func end() {
    queue.end()
    var rest: [StagedEntry] = []
    while true {
      let ticket = queue.take(before: .max, into: &rest)
      if rest.isEmpty { return }
      for staged in rest { queue.drop(staged) }
      queue.endBatch(ticket, rest.count)
      rest = []
    }
  }

  /// The store has not taken a write that it has shown: memory's copy is memory's alone. The stripe
  /// is taken, since a touch that has seen the write in the store puts its copy under it.
  func noteRefusal(_ key: Bytes, _ hash: UInt64, _ version: UInt64, isDirty: Bool = false) {
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    memory.setBacked(key, hash, version: version, false, isDirty: isDirty)
    order.stripes.unlock(stripe)
  }

  /// The write of an entry that memory has given up is over. If the store has not taken the entry,
  /// it is lost.
  private func noteWritten(_ down: DownwardWrite) {
    let isLost = down.write.result.outcome != .stored
    if isLost { noteRefusal(down.entry.key, down.write.hash, down.entry.version) }
    events.resolve(down.pending, leftDisk: isLost, waits: false)
  }

  // MARK: writing entries that memory keeps

  /// Writes all dirty entries, which memory keeps: for a flush, a fork, or the end of the cache.
  /// The caller is inside the gate, or no call can enter any more. Returns the first failure; an
  /// entry that could not be written stays dirty. `tells`: delivers events, which a fork leaves to
  /// later calls.
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
      let count = memory.blocks(after: &position, limit: 64, at: moment, .dirty) { entry in
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

  /// The put of an entry that goes down to the store.
  final class DownwardWrite {
    fileprivate var write: StoreWrite
    /// Keeps the key and the value that the write names, as `form` does.
    private let block: Block
    private let form: ValueForm?
    fileprivate var pending: Events.Pending?

    /// Calls the host's codec: no lock is held.
    fileprivate init(
      _ block: consuming Block, _ hash: UInt64, _ values: StoredValues, _ storage: any Storage
    ) {
      var form: ValueForm?
      write = values.put(block.unowned, hash, &form, to: storage)
      self.form = form
      self.block = block
    }

    fileprivate var entry: UnownedBlock { block.unowned }
  }

  /// Submits a dirty entry, which memory keeps. Nil: the entry has left memory, or is not dirty.
  func submitDown(
    _ entry: UnownedBlock, at moment: Moment, to storage: any Storage
  ) -> DownwardWrite? {
    let key = entry.key
    let hash = memory.hash(key)
    let stripe = Stripes.index(of: hash)
    let down = DownwardWrite(entry.retained(), hash, values, storage)
    order.stripes.lock(stripe)
    // An entry that a clear under way takes must not be written after the clear.
    let resident = memory.peek(key, hash, at: moment)
    guard let now = resident.unowned, now.version == entry.version, now.isDirty,
      now.version > order.clearing?.all ?? 0
    else {
      order.stripes.unlock(stripe)
      return nil
    }
    if now.raw != entry.raw {
      // A touch has come between.
      order.stripes.unlock(stripe)
      return submitDown(now, at: moment, to: storage)
    }
    if let record = memory.info(key, hash, at: moment) {
      noteIdle(entry, hash, record.accessed, in: storage)
      down.write.accessed = record.accessed
    }
    down.pending = events.postPendingWriteBack(entry, stripe)
    // From here on memory may give the entry up without staging it, and a reader waits for the
    // stripe until the store has been given the entry.
    order.stripes.beginChange(stripe)
    queue.note(1)
    guard memory.setBacked(key, hash, version: entry.version, true) else {
      // Memory has given it up by now: it is staged, and is written from there, or it had expired.
      queue.note(-1)
      order.stripes.endChange(stripe)
      order.stripes.unlock(stripe)
      events.resolve(down.pending, leftDisk: false, waits: false)
      return nil
    }
    order.submit(&down.write, to: storage, at: moment, isInChange: true)
    return down
  }

  func finish(_ down: DownwardWrite, in storage: any Storage) -> Failure? {
    order.complete(&down.write, in: storage)
    queue.note(-1)
    let result = down.write.result
    let isStored = result.outcome == .stored
    if !isStored {
      // Where memory has evicted the entry, the eviction is all that the listener is told.
      noteRefusal(
        down.entry.key, down.write.hash, down.entry.version, isDirty: result.outcome != .tooLarge)
    }
    events.resolve(
      down.pending, leftDisk: false, storedIn: isStored ? .disk : [], waits: false)
    return isStored ? nil : result.failure
  }
}

/// For calls that are not inside the gate.
extension Cache {
  /// For calls that may have made dirty entries leave: writes a batch if many wait. No lock is
  /// held. Always true, for callers whose step returns whether to go on.
  @discardableResult
  func helpWriteBack() -> Bool {
    if writeBack.queue.isDue { try? withStorage { (_) throws(Failure) in } }
    return true
  }

  /// Writes all dirty entries, which memory keeps, but for those that have expired by now: the
  /// host's clock is asked. No lock is held.
  func writeDirty(by deadline: Deadline = .never) throws(Failure) {
    _ = clock.moment()
    let failure = try withStorage { (storage) throws(Failure) in
      writeBack.writeDirty(storage, by: deadline)
    }
    if let failure { throw failure }
  }

  /// Writes the entry of a key if it is dirty; memory keeps it. Returns the block that it found.
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
