import CSystem
import Synchronization

/// The log store as the cache uses it: `Storage`, carried out by `LogStore`.
///
///     LogStorage           state, opening, what memory tiers share
///     +Writing             writes; conditions are decided under the directory's lock
///     +Durability          what a write waits for
///     +Bars                keys whose writes have failed
///     +Reading             gets
///     +Files               large values in content files, and the removal of these
///     +Trimming            trims of every kind, in slices; walks, in the order of the keys' hashes
///     +Upkeep              limits, expired entries, check, statistics
///     +Service             out of service and back, the end, a fork
///     +Destroying          removes a log store from a directory
///
/// A write is committed when `write` returns, so no write is ever undecided or pending; only bars
/// are. `finish` waits for the disk, where the durability asks for that.
///
/// Sharing. Versions are always drawn from `shared`, so a kill brings no version back. Memory tiers
/// go by its counters where several processes may have the directory open. EXCLUSIVE keeps others
/// out until the first fork. Before it the counters mean nothing, and memory may have entries that
/// are written on eviction only.
///
/// The store tells the observer of each entry that it drops: under the directory's lock
/// (`storeDrops`, LogStore.observer), and again with no lock held (`storeDropped`), at the end of
/// the call that has dropped the entry or of the next call.
///
/// Stores. A directory that goes away takes its store out of service. The directory that is opened
/// later has another LogStore. Calls may still use the old one, without any lock. So the newest two
/// stay mapped, and an older one until every call has ended that may use it (LogStorage+Upkeep).
///
/// Locks, in this order: `sweepLock`, `serviceLock`, `contentLock`, `stateLock` or the lock of
/// `service`, the directory's, then `LogOwed`'s, `LogDeadFiles`' and `FilesInFlight`'s, under which
/// nothing is taken.
final class LogStorage: Storage, ForkingStorage, @unchecked Sendable {
  let clock: Clock
  let shared: LogShared
  let counters: StorageCounters
  unowned(unsafe) var observer: (any StorageObserver)?

  /// The newest LogStore; 0: there has been none. Stored with release by the opening, loaded with
  /// acquire by users.
  private let current = Atomic<UInt>(0)
  let service: Service
  /// True in the child of a fork if the directory is the parent's alone.
  var belongsToParent = false
  /// True from the first fork on that hands the directory on. Changes while no call uses the store.
  var hasForked = false

  // Protected by `stateLock`, down to `hasBars`.

  /// The newest store. It keeps the earlier ones, and so their memory mapped.
  private var newest: LogStore?
  /// The bars on single keys (LogStorage+Bars), the number of the newest bar on every key (0: there
  /// is none), and the number of the newest bar.
  var bars = Bars()
  var barOfAll: UInt64 = 0
  var lastBar: UInt64 = 0
  /// True if there is a bar. Stored with `stateLock` held; loaded without it, with acquire.
  let hasBars = Atomic<Bool>(false)

  /// The policy of this process's evictions. Stored with `stateLock` held, so that it is that of
  /// the newest store too; loaded without it, relaxed.
  private let livePolicy: Atomic<UInt8>

  /// The strongest durability that this process's openings ask for. Relaxed.
  let ownDurability: Atomic<UInt32>

  /// The time, by CLOCK_MONOTONIC, of the next look at the directory. Relaxed.
  let nextLook = Atomic<Int64>(0)
  /// The time of the next look whether other processes still have the directory open. Relaxed.
  let nextCount = Atomic<Int64>(0)
  /// The number of the next segment when maintenance last saw a new one, and when that was, by
  /// CLOCK_MONOTONIC. Relaxed: they only put off what is given back.
  let quietNext = Atomic<UInt64>(0)
  let quietSince = Atomic<Int64>(0)

  let content = Content()
  /// What removed files occupy that have not been deleted yet, as `stats` shows it. Relaxed.
  let removedBytes = Atomic<Int64>(0)
  /// How much of `loose` is of processes that have gone, as the opening has found it.
  var looseOfOthers = 0

  // The last, as in DiskTier.
  /// Protects the fields from `newest` to `hasBars`.
  let stateLock = Lock()
  /// Held while the store is brought back into service, and while bars are dropped.
  let serviceLock = Lock()
  /// Protects `sweep`, `readers`, `rebuilding` and `linesBefore` of each store.
  let sweepLock = Lock()
  /// Protects `content`, but for the files in flight, `looseOfOthers`, and the member's opening
  /// byte, which the process's threads cannot keep from each other.
  let contentLock = Lock()
  let options: StorageOptions

  private init(
    _ directory: Directory, _ options: StorageOptions, _ clock: Clock, _ shared: LogShared,
    _ counters: StorageCounters
  ) {
    self.options = options
    self.clock = clock
    service = Service(directory)
    ownDurability = Atomic(options.durability.rawValue)
    livePolicy = Atomic((options.policy ?? .adaptive).rawValue)
    self.shared = shared
    self.counters = counters
    hash = shared.hash
  }

  /// The store in a directory that nothing else of this process has open.
  @inline(never)
  static func open(
    directory: Directory, options: StorageOptions, clock: Clock
  ) throws(Failure) -> LogStorage {
    let storage = LogStorage(
      directory, options, clock, try LogShared(), try StorageCounters())
    do throws(Failure) {
      guard directory.isOpen else {
        throw Failure(.badDirectory, "the directory cannot be opened")
      }
      try storage.attach(directory)
      storage.service.begin()
    } catch {
      guard options.isOptional && error.isOfDirectory else { throw error }
      storage.service.beginDown(error)
    }
    storage.shared.isHandedOut = true
    return storage
  }

  /// True if only this process and its forked children may have the directory open.
  private var keepsOthersOut: Bool { options.sharing == .exclusive }

  /// True if memory tiers go by the counters of `shared`.
  var mayHaveOthers: Bool { hasForked || !keepsOthersOut }

  /// Opens the store in a directory, or makes it.
  func attach(_ directory: Directory) throws(Failure) {
    var isStubDamaged = false
    switch try LogStub.look(directory) {
    case .stub: break
    case .damaged: isStubDamaged = true
    case .other:
      throw Failure(.invalidArgument, "the directory has another storage kind")
    case .absent:
      if options.allowsNonempty { break }
      try LockFile.checkHasNoOthers(directory)
    }
    let earlier = stateLock.withLock { newest?.member }
    let store = try LogStore.open(
      directory, limits: earlier == nil ? options.limits : limits,
      given: earlier == nil ? options.given : .all, keepsOthersOut: keepsOthersOut, after: earlier,
      makesStub: isStubDamaged, counters: counters, prepare: meet)
    store.observer = observer
    try dropBars(from: store, upToTheirVersions: false)
    stateLock.withLock {
      store.livePolicy.store(policy.rawValue, ordering: .relaxed)
      store.earlier = newest
      newest = store
      current.store(
        UInt(bitPattern: Unmanaged.passUnretained(store).toOpaque()), ordering: .releasing)
    }
    service.move(to: directory)
  }

  /// Learns what the tiers above share by this store. The directory is being opened. `isSole`:
  /// nothing else has it open, not even an earlier store of this object.
  private func meet(_ store: LogStore, isSole: Bool) throws(Failure) {
    store.clock = clock
    store.agesActOnTrim = options.limits.ages.actOnTrim
    try shared.attach(
      store.indexFile.number, store.words, isSole: isSole,
      isAlone: isSole || store.member.isAlone())
    if !shared.isHandedOut { hash = shared.hash }
    store.codecID = options.codecID
    store.hasHashOfTiers = store.hash.isSame(as: hash)
    beginFiles(store, isSole: isSole)
    store.beginReading()
    // Waits for the end of the writes that do not know of this store yet.
    if !isSole { try store.locked { () throws(Failure) in } }
    let boot = store.adoptBoot(isSole: isSole)
    if !clock.isHosts { clock.setAnchor(boot.offset) }
    if isSole { store.mendIfDamaged() }
    let wanted = Durability(rawValue: ownDurability.load(ordering: .relaxed)) ?? .process
    try store.raise(to: wanted, isSole: isSole)
  }

  /// At the end: no descriptor stays open.
  func forgetStores() {
    service.close()
    stateLock.withLock {
      current.store(0, ordering: .releasing)
      newest = nil
    }
  }

  var policy: EvictionPolicy { EvictionPolicy(livePolicy) }

  func setPolicy(_ policy: EvictionPolicy) {
    stateLock.withLock {
      livePolicy.store(policy.rawValue, ordering: .relaxed)
      newest?.livePolicy.store(policy.rawValue, ordering: .relaxed)
    }
  }

  /// The newest store, in service or not; nil: there has been none.
  @inline(__always)
  var store: LogStore? {
    let address = UnsafeRawPointer(bitPattern: current.load(ordering: .acquiring))
    return address.map { Unmanaged<LogStore>.fromOpaque($0).takeUnretainedValue() }
  }

  /// The store, if it is in service.
  var live: LogStore? {
    @inline(never) get { isUp ? store : nil }
  }

  /// As `store` and `live`, for the calls of every get and write: no reference is counted, since a
  /// store stays until these calls have ended.
  @inline(__always)
  var uncountedStore: Unmanaged<LogStore>? {
    UnsafeRawPointer(bitPattern: current.load(ordering: .acquiring)).map {
      Unmanaged<LogStore>.fromOpaque($0)
    }
  }

  @inline(__always)
  var uncounted: Unmanaged<LogStore>? { isUp ? uncountedStore : nil }

  /// The store if it is in service; fails with the reason why it is not.
  func serving() throws(Failure) -> LogStore {
    guard let live else { throw service.failure }
    return live
  }

  @inline(__always) var isUp: Bool { service.isUp }

  func watch(by observer: any StorageObserver) {
    self.observer = observer
    store?.observer = observer
    service.tell(observer)
    guard let store else { return }
    if store.hasNewLimits { observer.log(.ofNewLimits) }
    if store.hasNewIndex {
      observer.log(LogLine(.warning, "the log's index could not be used, and was made anew"))
    }
  }

  // MARK: sharing

  var sharing: StorageSharing {
    StorageSharing(
      firstVersion: firstVersion, nextVersion: shared.nextVersion,
      counters: mayHaveOthers ? shared.counters : nil)
  }

  var forking: (any ForkingStorage)? { self }

  /// The hash by which the tiers above go. A store that is opened later in the place of another one
  /// may have its own secrets.
  private(set) var hash: KeyedHash

  /// The hash of a key by the secrets of a store. `hash`: the key's, by the hash of the tiers
  /// above.
  @inline(never)
  func own(_ hash: UInt64, _ key: Bytes, in store: LogStore) -> UInt64 {
    _fastPath(store.hasHashOfTiers) ? hash : store.hash.entry(key)
  }

  /// All processes draw the directory's versions from one counter.
  var firstVersion: UInt64 { shared.nextVersion.pointee.load(ordering: .relaxed) }

  // MARK: what has gone

  var owesWork: Bool {
    if service.owesNews { return true }
    guard let store = uncountedStore else { return false }
    return store._withUnsafeGuaranteedRef {
      !$0.owed.isEmpty || !$0.dead.isEmpty && !$0.isDurable
    }
  }

  /// A read makes this call, too: where files go only after a wait for the disk, the next write or
  /// maintenance moves them.
  func doOwedWork() { doOwedWork(waits: false) }

  /// `waits`: the caller may wait for the disk.
  func doOwedWork(waits: Bool) {
    if let store {
      if !store.owed.isEmpty {
        store.removeNoted()
        if let observer { store.owed.tell(observer) }
      }
      if !store.dead.isEmpty && (waits || !store.isDurable) { moveDead(of: store) }
    }
    service.tell(observer)
  }
}
