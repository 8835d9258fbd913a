import CSystem
import Synchronization

/// The composed cache: a memory tier, and below it a store, as one.
///
/// Order of writes (WriteOrder.swift). A write of a key takes the key's stripe, draws a version,
/// changes the memory tier, submits the write to the store and lets the stripe go; then it waits
/// for the commit. Both tiers therefore see a key's writes in the order of their versions, and no
/// thread holds a stripe while it waits for a commit. A clear takes all stripes for the same few
/// steps.
///
/// Reads take no lock here: memory first, then the store, which shows submitted writes
/// before they are committed. What was found in the store is promoted into memory under the
/// stripe, by try-lock, and only if no write of the stripe was under way or came meanwhile:
/// no promotion is fine, a stale one is not. The record travels whole.
///
/// Failure. If the store cannot take a put, memory keeps the value (HUTCH_PARTIAL) and the
/// store bars the key, so that no older value comes back from it. If memory does not take a
/// value, it drops the one it has.
///
/// Which entries memory alone has is kept per entry ('unbacked'), so that the count of the
/// whole is the store's count plus those.
///
/// LOCKS. With one of them held, only those below it are taken:
///
///   registry, then roster      Process: which directories are open, which caches a fork meets
///   maintenanceLock            one slice of maintenance
///   gate                       no lock, a count of calls that use the store: to enter it may be to
///                              wait for the end of a fork
///   limitsLock                 changes of limits; what they evict is committed under it
///   stripes, ascending         the order of writes; a promotion tries, and does without
///   loads | task queue         under a stripe, or under none; then a group's, a port's
///   the store's writer lock    never under a stripe; while it commits, it tells memory of it
///   a shard's                  of memory; also under a stripe
///   the store's others         what is submitted or announced, accesses, connections for reading
///   write-back queue, a lane   what leaves memory, and its event, under a shard's lock
///   write order, log, listener nothing is taken under these
///
/// The host's functions (clock, visitor, loader, listener, codec, release) are called with none of
/// them held. Nothing that holds a shard's lock takes a stripe: an entry leaves memory under that
/// lock, and the stripe's state changes without its lock then (Stripes). A fork takes what it needs
/// in this order: Forking.swift.
final class Cache {
  let memory: MemoryTier
  /// Nil: a cache in memory.
  let storage: (any Storage)?
  let clock: Clock
  let settings: Settings
  /// As they were given. Protected by the limits' lock.
  var memoryLimits: TierLimits
  let parts: Parts
  /// See Process.forks.
  let forks = Process.forks
  /// Where the handles find this cache, which it does not keep alive.
  var place: Unmanaged<CachePlace>?
  /// Whether a host's object has ever been put with a tag. Relaxed: who has put one sees it.
  let hasTaggedObjects = Atomic<Bool>(false)
  /// Where processes share the directory. Nil: memory is nobody else's business. A fork may set
  /// it, while no call uses the store.
  private(set) var coherence: CoherenceCounters?
  /// In the child of a fork, before the store is used for the first time. Relaxed: the thread that
  /// resets it acts on it.
  private let isInherited: Atomic<Bool>
  /// In the child of a fork: the store is the parent's alone.
  let isStorageLeft: Bool
  /// The sharing is not SHARED, and there is `coherence` all the same, because of a fork or of the
  /// store: what would be written on eviction is written at once.
  private(set) var isFamily = false
  /// Whether the work in the background has been started. Relaxed: to start it twice does nothing.
  private let maintains = Atomic<Bool>(false)
  /// How many openings are being closed. Relaxed: each is counted by the thread that closes it.
  let closing = Atomic<Int>(0)

  // Of Forking, under the roster's lock.

  var nextOnRoster: Unmanaged<Cache>?
  var preparation = Preparation.none
  var isDrained = false
  var hasStripes = false
  /// The registry's, under its lock: how many openings there are.
  var openings = 1

  /// How the cache was opened; the same for as long as it is open.
  struct Settings {
    let policy: MemoryPolicy
    let pressure: Pressure
    let writePolicy: WritePolicy
    /// Whether the sharing is SHARED.
    let isShared: Bool
    /// Whether the host releases its objects, by asking for it.
    let drainsReleases: Bool
    /// How long the close of an opening waits for its tasks; 0: no limit.
    let closeDeadline: Int64
    /// What stands before the store.
    let codec: Codec?
  }

  private init(
    _ memory: MemoryTier, _ storage: (any Storage)?, _ clock: Clock, _ settings: Settings,
    _ limits: TierLimits, _ coherence: CoherenceCounters?, isInherited: Bool, isStorageLeft: Bool,
    _ parts: consuming Parts
  ) {
    self.memory = memory
    self.storage = storage
    self.clock = clock
    self.settings = settings
    memoryLimits = limits
    self.coherence = coherence
    isFamily = coherence != nil && !settings.isShared
    self.isInherited = Atomic(isInherited)
    self.isStorageLeft = isStorageLeft
    self.parts = parts
    self.parts.belong(to: identity, drainsReleases: settings.drainsReleases)
    settings.codec?.owner = identity
    watchMemory()
    if storage != nil { watchDepartures() }
  }

  /// An initialiser that throws would leak the instance (Embedded Swift 6.3).
  static func make(
    memory: MemoryTier, storage: (any Storage)?, clock: Clock,
    versions: Versions, options: OpenOptions, coherence: CoherenceCounters? = nil
  ) throws(Failure) -> Cache {
    let settings = Settings(
      policy: options.policy ?? .adaptive, pressure: options.pressure,
      writePolicy: options.writePolicy,
      isShared: coherence != nil && options.disk.sharing == .shared,
      drainsReleases: options.drainsReleases, closeDeadline: options.tasks.closeDeadline,
      codec: options.disk.codec)
    let cache = Cache(
      memory, storage, clock, settings, options.memory, coherence, isInherited: false,
      isStorageLeft: false, try Parts(memory, clock, versions, options.tasks))
    memory.prepareHits(clock, isAll: storage == nil)
    return cache
  }

  /// What the memory tier gave up after the end.
  deinit { if !Process.isParents(forks) { endReleases() } }

  /// What names this cache among callbacks (see ThreadState).
  var identity: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

  var versions: Versions { order.versions }

  // MARK: maintenance

  /// Starts the background work, once: with a store when the cache is whole, else when the
  /// first entry comes that time can end.
  func startMaintenance() throws(Failure) {
    guard !maintains.load(ordering: .relaxed) else { return }
    try tasks.startBackground(
      pause: 1_000_000_000, context: Unmanaged.passUnretained(self).toOpaque(),
      work: { context, _ in
        Unmanaged<Cache>.fromOpaque(context!)._withUnsafeGuaranteedRef {
          $0.workInBackground() ? 1 : 0
        }
      })
    maintains.store(true, ordering: .relaxed)
  }

  /// What a worker does beside the tasks. True if there is more.
  private func workInBackground() -> Bool {
    if !settings.drainsReleases { releaseObjects(most: .max) }
    return maintain()
  }

  /// One slice of what can wait. True if there is more.
  func maintain() -> Bool {
    defer { events.deliver() }
    if writeBack.queue.count > 0 {
      try? withStorage { (storage) throws(Failure) in writeBack.write(storage) }
    }
    parts.maintenanceLock.lock()
    defer { parts.maintenanceLock.unlock() }
    let moment = clock.momentForMaintenance()
    var hasMore = memory.maintain(at: moment)
    if let storage, enterStorage() {
      hasMore = storage.maintain(at: moment) || hasMore
      parts.gate.leave()
    }
    return hasMore
  }

  /// What waits to be done, on the caller's thread. Without workers the tasks too.
  func maintain(until end: Deadline) {
    if !tasks.hasThreads { _ = tasks.runForHost(until: end) }
    while workInBackground() && !end.hasPassed {}
  }

  /// Reclaims what has expired, if the time is the host's: our thread goes by real seconds,
  /// and a host that sets its clock forward wants exact counts all the same.
  func reclaimByHostsClock() {
    guard clock.isHosts else { return }
    _ = clock.moment()
    // The first round may have begun in the middle.
    for _ in 0..<2 { while maintain() {} }
  }

  // MARK: the end

  /// Before `shut`: ends the tasks, and waits for the calls that use the store. With no lock held,
  /// the registry's neither: the host's functions that run, and that are called here, may open
  /// and close caches.
  func quiesce(by deadline: Deadline) {
    tasks.stop(by: deadline)
    parts.gate.awaitEmpty()
    // An end is no event.
    events.silence()
    try? withStorage { (storage) throws(Failure) in
      _ = writeBack.writeDirty(storage, by: deadline)
    }
  }

  /// Shuts down: empties memory and closes the store. Once, when the last opening ends. Returns
  /// the failure if the end was not clean.
  func shut(by deadline: Deadline) -> Failure? {
    parts.gate.close()
    var failure: Failure?
    if let storage {
      failure = writeBack.writeDirty(storage, by: deadline)
      writeBack.end(storage)
    }
    // First memory, whose departing entries hand their access times down.
    memory.clear(at: clock.momentForMaintenance())
    return storage?.close(lastVersion: versions.last) ?? failure
  }
}

// MARK: fork

extension Cache {
  /// How far a cache is ready for a fork.
  enum Preparation {
    /// Not at all: the child's handles are dead.
    case none
    /// What the child has of memory will be whole; the store is the parent's.
    case memory
    case whole
  }

  /// What changes memory and the order of writes stands still. False: not in time.
  func lockWrites(until end: Deadline) -> Bool {
    guard parts.limitsLock.lock(until: end) else { return false }
    if order.lockAll(until: end) { return true }
    parts.limitsLock.unlock()
    return false
  }

  func unlockWrites() {
    order.unlockAll()
    parts.limitsLock.unlock()
  }

  /// What memory owes to the store is written. The store's gate is paused, and nobody inside.
  /// False: not in time, or not all of it.
  func writesAllDown(until end: Deadline) -> Bool {
    guard writeBack.mayHaveDirty, let storage else { return true }
    return writeBack.writeDirty(storage, by: end, tells: false) == nil
      && writeBack.queue.count == 0
  }

  /// The store may be shared from here on. Every lock of memory is held, no call uses the store.
  func followSharing() {
    guard coherence == nil, let sharing = storage?.sharing else { return }
    isFamily = true
    coherence = sharing.counters
    memory.share(sharing.counters)
    versions.share(sharing.nextVersion)
  }

  /// In the child, with the locks held that were taken before the fork: a cache over the same
  /// tiers. This one stays as it is for ever, but for its references to what a cache frees at its
  /// end: the tiers, and the host's functions.
  func makeForChild() throws(Failure) -> Cache {
    let parts = try parts.makeForChild(memory, clock)
    let isLeftNow = storage != nil && preparation == .memory
    let isStorageLeft = isLeftNow || self.isStorageLeft
    let cache = Cache(
      memory, storage, clock, settings, memoryLimits, isStorageLeft ? nil : coherence,
      isInherited: storage != nil, isStorageLeft: isStorageLeft, parts)
    cache.openings = openings
    cache.hasTaggedObjects.store(
      hasTaggedObjects.load(ordering: .relaxed), ordering: .relaxed)
    storage?.beginInChild(isPrepared: preparation == .whole, observer: cache)
    if isStorageLeft { memory.share(nil) }
    memory.openHits()
    memory.unlockAll(inChild: true)
    unlockWrites()
    // What the parent writes from here on would be news to nobody.
    if isLeftNow { memory.clear(at: clock.momentForMaintenance()) }
    Unmanaged.passUnretained(memory).release()
    Unmanaged.passUnretained(clock).release()
    if let codec = settings.codec { Unmanaged.passUnretained(codec).release() }
    if let storage {
      let object: AnyObject = storage
      Unmanaged.passUnretained(object).release()
    }
    return cache
  }

  /// The store is about to be used, in the child for the first time: it takes its place, and what
  /// works in the background begins.
  @inline(__always)
  func awaken() {
    if isInherited.load(ordering: .relaxed) { awakenNow() }
  }

  @inline(never)
  private func awakenNow() {
    guard isInherited.exchange(false, ordering: .relaxed), !isStorageLeft else { return }
    storage?.awaken()
    try? startMaintenance()
  }

}

extension Cache {
  /// Where the value of a put goes that a caller in `scope` makes; never `standard`.
  @inline(__always)
  func target(of policy: WritePolicy, in scope: Tiers) throws(Failure) -> WritePolicy {
    guard scope == .whole else { return WritePolicy(scope) }
    let target = policy == .standard ? settings.writePolicy : policy
    guard storage != nil else {
      guard target != .disk else { throw Failure(.unsupported, "this cache has no disk tier") }
      return .memory
    }
    // Other processes would not see what only this one's memory has.
    if target == .onEviction && settings.isShared { return .through }
    return target == .standard ? .through : target
  }
}
