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
/// before they are committed. An entry that was found in the store is promoted into memory under
/// the stripe, by try-lock, and only if no write of the stripe was under way or came meanwhile:
/// a promotion may be left out, and must not be stale. The record travels whole.
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
///   review's lock              one slice of the review of memory (BackedReview)
///   limitsChange               one change of limits; its evictions are committed under it
///   limitsLock                 the limits of memory, for a moment
///   stripes, ascending         the order of writes; a promotion tries, and does without
///   loads | task queue         under a stripe, or under none; then a group's, a port's
///   the store's writer lock    never under a stripe; while it commits, it tells memory of it
///   a shard's                  of memory; also under a stripe
///   the store's others         what is submitted, accesses, connections for reading
///   write-back queue           what leaves memory, under a shard's lock
///   a lane                     an event, likewise
///   write order, log, listener nothing is taken under these
///
/// The host's functions (clock, visitor, loader, listener, codec, release) are called with none of
/// them held. Nothing that holds a shard's lock takes a stripe: an entry leaves memory under that
/// lock, and the stripe's state changes without its lock then (Stripes). A fork takes what it needs
/// in this order, but the write order's lock before those of the shards (Forking.swift).
final class Cache {
  let memory: MemoryTier
  /// Nil: a cache in memory.
  let storage: (any Storage)?
  let clock: Clock
  /// See Process.forks.
  let forks = Process.forks
  let parts: Parts
  let life: Lifecycle
  /// Where the handles find this cache, which it does not keep alive.
  var place: Unmanaged<CachePlace>?
  /// Whether a host's object has ever been put with a tag. Relaxed: the thread that has put one
  /// sees it.
  let hasTaggedObjects = Atomic<Bool>(false)
  /// Where processes share the directory. Nil: no other process needs to know what memory has. A
  /// fork may set it, while no call uses the store.
  private(set) var coherence: CoherenceCounters?
  /// The sharing is not SHARED, and there is `coherence` all the same, because of a fork: an entry
  /// that is to be written on eviction is written at once.
  var defersNothing: Bool { coherence != nil && !settings.isShared }
  /// How far a fork has come with this cache. Forking changes it, under the roster's lock.
  var fork = Forking.Stage()
  /// The registry's, under its lock: how many openings there are.
  var openings = 1
  // The last, as in DiskTier.
  let settings: Settings
  /// As they were given. Protected by `limitsLock`; changed with `limitsChange` too.
  var memoryLimits: TierLimits
  /// Likewise.
  var memoryPolicy: EvictionPolicy
  /// Likewise.
  var pressure: Pressure

  /// How the cache was opened; the same for as long as it is open.
  struct Settings {
    let writePolicy: WritePolicy
    /// Whether the sharing is SHARED.
    let isShared: Bool
    /// Whether the host releases its objects, by asking for it.
    let drainsReleases: Bool
    /// How long the close of an opening waits for its tasks; Int64.max: no limit.
    let closeDeadline: Int64
    /// Between values and what the store keeps of them.
    let values: StoredValues
    /// With it an object is the value of its key.
    let objectCodec: ObjectCodec?
    /// With a queue of the host's: the cache there.
    let guest: TaskGuest?
  }

  init(
    _ memory: MemoryTier, _ storage: (any Storage)?, _ clock: Clock, _ settings: Settings,
    _ limits: TierLimits, _ pressure: Pressure, _ coherence: CoherenceCounters?,
    _ life: consuming Lifecycle, _ parts: consuming Parts
  ) {
    self.memory = memory
    self.storage = storage
    self.clock = clock
    self.settings = settings
    memoryLimits = limits
    memoryPolicy = memory.common.kind
    self.pressure = pressure
    self.coherence = coherence
    self.life = life
    self.parts = parts
    self.parts.belong(to: identity, drainsReleases: settings.drainsReleases)
    settings.values.codec?.owner = identity
    settings.objectCodec?.owner = identity
    if let guest = settings.guest {
      guest.identity = identity
      tasks.join(guest)
    }
    watchMemory()
    if storage != nil { watchDepartures() }
  }

  /// An initialiser that throws would leak the instance (Embedded Swift 6.3).
  static func make(
    memory: MemoryTier, storage: (any Storage)?, clock: Clock,
    versions: Versions, options: OpenOptions, coherence: CoherenceCounters? = nil
  ) throws(Failure) -> Cache {
    let values = StoredValues(codec: options.codec)
    let life = try Lifecycle()
    let parts = try Parts.make(memory, clock, values, versions, options.tasks)
    let settings = Settings(
      writePolicy: options.writePolicy,
      isShared: coherence != nil && options.disk.sharing == .shared,
      drainsReleases: options.drainsReleases,
      closeDeadline: options.tasks.closeDeadline ?? 30_000_000_000,
      values: values, objectCodec: options.objectCodec,
      guest: options.tasks.hosts == nil ? nil : TaskGuest())
    let cache = Cache(
      memory, storage, clock, settings, options.memory, Pressure().changed(options.change),
      coherence, life, parts)
    memory.prepareHits(clock, isAll: storage == nil)
    cache.followAges(at: clock.current)
    return cache
  }

  /// The blocks that the memory tier gave up after the end.
  deinit {
    if Process.isParents(forks) { return }
    if let guest = settings.guest { tasks.leave(guest) }
    endReleases()
  }

  /// The name of this cache among callbacks (see ThreadState).
  var identity: UnsafeMutableRawPointer { Unmanaged.passUnretained(self).toOpaque() }

  var versions: Versions { order.versions }

  /// The store may be shared from here on. Every lock of memory is held, no call uses the store.
  func followSharing() {
    guard coherence == nil, let sharing = storage?.sharing, let counters = sharing.counters
    else { return }
    coherence = counters
    memory.share(counters)
    if let nextVersion = sharing.nextVersion { versions.share(nextVersion) }
  }
}

extension Cache {
  /// Where the value of a put goes that a caller in `scope` makes; never `standard`.
  @inline(never)
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

  /// The policy of a put that names none.
  var writePolicy: WritePolicy {
    (try? target(of: .standard, in: .whole)) ?? settings.writePolicy
  }

  /// How many threads of its own run its tasks at most; 0: none does.
  var workers: Int {
    let queue = parts.upkeep
    return queue.hasThreads && parts.hosts == nil ? queue.lock.withLock { queue.width } : 0
  }
}
