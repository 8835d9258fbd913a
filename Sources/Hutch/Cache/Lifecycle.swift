import Synchronization

/// The life of a cache in one process: the calls that use the store, the work in the background,
/// and the end.
///
/// INVARIANTS
/// 1 A call that uses the store is inside the gate while it does. A memory hit needs no gate: the
///   memory tier lives as long as the cache. What hands an access time down to the store with locks
///   of memory held is a look: it cannot wait outside.
/// 2 The store is closed when no call is inside, nor a look, and none comes after that. It is
///   prepared for a fork when every call inside has stepped aside, and no call enters before the
///   fork is over.
/// 3 Slices of maintenance come one after the other.
///
/// The states, and what tells them:
///
///   state    gate     closing            what happens
///   open     open     below `openings`   calls, tasks, maintenance
///   ending   open     all openings       `quiesce`: the tasks end, and calls that are inside
///   shut     closed   all openings       `shut`: memory is emptied, and the store closed
///
/// In the child of a fork the cache has another Lifecycle. It begins asleep if there is a store:
/// the first call that uses the store makes it take its place in the directory, and starts the work
/// in the background.
struct Lifecycle: ~Copyable {
  let gate: Gate
  /// Held for one slice of maintenance. Taken before stripes and locks of the tiers.
  let maintenanceLock: Lock
  /// How many openings are being closed. Relaxed: each is counted by the thread that closes it.
  let closing = Atomic<Int>(0)
  /// In the child of a fork: the store is the parent's alone.
  let storageBelongsToParent: Bool
  /// Reset with release, loaded with acquire: the store is awake before.
  private let asleep: Atomic<Bool>
  /// Whether the work in the background has been started. Relaxed: to start it twice does nothing.
  private let started = Atomic<Bool>(false)

  init(isAsleep: Bool = false, storageBelongsToParent: Bool = false) throws(Failure) {
    let gate = try Gate()
    let maintenanceLock = Lock()
    self.gate = gate
    self.maintenanceLock = maintenanceLock
    self.storageBelongsToParent = storageBelongsToParent
    asleep = Atomic(isAsleep)
  }

  @inline(__always) var isAsleep: Bool { asleep.load(ordering: .acquiring) }

  /// True for the one call that wakes the cache.
  func wake() -> Bool { asleep.exchange(false, ordering: .releasing) }

  var hasStarted: Bool { started.load(ordering: .relaxed) }
  func noteStart() { started.store(true, ordering: .relaxed) }
}

extension Cache {
  // MARK: the store's gate

  /// Runs `body` on the store, unless the cache has none or is shut. `body` releases the locks that
  /// it takes, and the caller holds none, since the call may wait for the end of a fork. Afterwards
  /// damaged entries that `body` met are removed, and events are delivered.
  @inline(__always)
  func withStorage<R: ~Copyable>(
    _ body: (any Storage) throws(Failure) -> R
  ) throws(Failure) -> R {
    // No local constant has the store: that would count a reference, whose line all threads change.
    try enterStorage()
    defer { leaveStorage() }
    return try body(storage!)
  }

  /// Afterwards there is a store.
  @inline(never)
  private func enterStorage() throws(Failure) {
    guard storage != nil else { throw Failure(.unsupported, "this cache has no disk tier") }
    guard life.gate.enter() else { throw .closed }
    awaken()
  }

  @inline(never)
  private func leaveStorage() {
    if writeBack.queue.isDue { writeBack.writeDue(storage!) }
    if storage!.owesWork { storage!.doOwedWork() }
    life.gate.leave()
    events.deliver()
  }

  /// Called before the store is used. In the child of a fork the first call makes the store take
  /// its place in the directory, and starts the work in the background.
  @inline(__always)
  func awaken() {
    if life.isAsleep { awakenNow() }
  }

  @inline(never)
  private func awakenNow() {
    // Before the cache is awake: a call that finds it so uses the store at once.
    if !life.storageBelongsToParent { storage?.forking?.awaken() }
    guard life.wake(), !life.storageBelongsToParent else { return }
    try? startMaintenance()
  }

  // MARK: maintenance

  /// Starts the background work, once: with a store when the cache is whole, else when the
  /// first entry comes that time can end, or when memory has become large.
  func startMaintenance() throws(Failure) {
    // A large tier asks once, with or without success.
    memory.setUpkeep(true)
    if life.hasStarted { return }
    try parts.upkeep.startBackground(
      pause: 1_000_000_000, context: Unmanaged.passUnretained(self).toOpaque(),
      work: { context, _ in
        Unmanaged<Cache>.fromOpaque(context!)._withUnsafeGuaranteedRef {
          $0.workInBackground().rawValue
        }
      })
    if storage?.isRecovering ?? false { parts.upkeep.wakeBackground() }
    life.noteStart()
  }

  /// The work of a worker beside the tasks.
  private func workInBackground() -> TaskQueue.Background {
    if !settings.drainsReleases { releaseObjects(most: .max) }
    let hasMore = maintain()
    let isDueSoon = Heap.collapse()
    return hasMore ? .hasMore : isDueSoon ? .isDueSoon : .rests
  }

  /// One slice of what can wait. True if there is more.
  func maintain() -> Bool {
    defer { events.deliver() }
    if writeBack.queue.count > 0 {
      try? withStorage { (storage) throws(Failure) in writeBack.write(storage) }
    }
    life.maintenanceLock.lock()
    defer { life.maintenanceLock.unlock() }
    let moment = clock.momentForMaintenance()
    var hasMore = memory.maintain(at: moment)
    if let storage, (try? enterStorage()) != nil {
      hasMore = storage.maintain(at: moment) || hasMore
      // Not beside a change of limits, which does the same.
      if parts.limitsChange.tryLock() {
        followAges(at: moment)
        parts.limitsChange.unlock()
      }
      // Not of a store that has come back and gone down in this slice: the next slice would bring
      // it back at once, and the review would begin anew, again and again.
      if storage.isUp { hasMore = review.step(storage) || hasMore }
      life.gate.leave()
    }
    return hasMore
  }

  /// Does the work that waits on the caller's thread; in a cache without workers also the tasks,
  /// unless they are on a queue of the host's.
  func maintain(until end: Deadline) {
    if !tasks.hasThreads && parts.hosts == nil { _ = tasks.runForHost(until: end) }
    while workInBackground() == .hasMore && !end.hasPassed {}
  }

  /// Reclaims what has expired, if the time is the host's. Maintenance goes by real seconds, and a
  /// host that sets its clock forward expects exact counts at once.
  func reclaimByHostsClock() {
    guard clock.isHosts else { return }
    _ = clock.moment()
    // The first round may have begun in the middle.
    for _ in 0..<2 { while maintain() {} }
  }

  // MARK: the end

  /// Before `shut`: ends the tasks, and waits for the calls that use the store. The caller holds no
  /// lock, not even the registry's: functions of the host run here, and may open and close caches.
  func quiesce(by deadline: Deadline) {
    parts.upkeep.stop(by: deadline)
    life.gate.awaitEmpty()
    // An end is no event.
    events.silence()
    try? writeDirty(by: deadline)
  }

  /// Shuts down: empties memory and closes the store. Once, when the last opening ends. Returns
  /// the failure if the end was not clean.
  func shut(by deadline: Deadline) -> Failure? {
    life.gate.close()
    var failure: Failure?
    if let storage {
      failure = writeBack.writeDirty(storage, by: deadline)
      writeBack.end()
    }
    // First memory, whose departing entries hand their access times down.
    memory.clear(at: clock.momentForMaintenance())
    life.gate.closeToLooks()
    return storage?.close(lastVersion: versions.last) ?? failure
  }
}

extension Failure {
  static var closed: Failure { Failure(.closed, "the cache has been closed") }
}
