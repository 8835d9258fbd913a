import CSystem
import Synchronization

/// The writing half of the tier: it owns what the writer lock protects, and every transaction is
/// its.
///
/// The writer lock is `mutex` within the process, and the turn on `hutch.lock` among processes
/// (Membership). `withTurn` takes both. It protects the fields of that mark here, and the owners
/// that say so in their heads: `manifest` with its meta row, Evictor, Sweeper, Content but for
/// `inFlight`, Membership but for its atomics. It is held for a transaction, a checkpoint, an
/// unlink. Its place in the order of locks is in the head of DiskTier.
///
/// Invariants, whenever the writer lock is free
///     `manifest.meta` is the meta row as it was committed last, if no other process has committed
///     since: then the next turn reads it anew (`catchUp`)
///     the sums of the meta row are the rows'; with trash and log they are within the limit, unless
///     a reader keeps the log or the file system refuses (SpaceLedger)
///     the log is moved into the manifest before it is longer than its bound, unless a reader keeps
///     it (`moveLog`)
///     no version at or above the lease of the meta row has been committed (`extendLease`)
///     a content file that lost its row in a commit is in the trash
///     `untold` is empty: the entries that a turn has dropped are told to the observer when the
///     turn has ended
///
/// Writes come through the queue. The thread that finds no leader in it becomes the leader, takes a
/// batch, and commits it in one transaction (`lead`). Checks, trims, maintenance and changes of the
/// limits make transactions of their own (`transact`), between those of leaders.
final class Committer {
  let queue: WriteQueue
  let readers: Readers
  let accesses: AccessTimes
  let members: Membership
  let service: Service
  let content: Content
  let counters: DiskCounters
  let liveLimits: LiveLimits
  /// The event that completed puts survive: the strongest durability that an opening of the
  /// directory has asked for, in this process or, once a turn has been had since, in another one.
  /// Only rises.
  let liveDurability: Atomic<UInt32>
  /// The policy of this process's evictions. Relaxed: a number by itself.
  let livePolicy: Atomic<UInt8>
  /// Set before the first write.
  unowned(unsafe) var observer: (any StorageObserver)?
  /// True from before a commit that drops entries until the observer has been told of them: reads
  /// miss their rows before that. Stored with release, under the writer lock; a load with acquire
  /// after a read sees it if the read has seen the commit.
  let dropsUntold = Atomic<Bool>(false)
  /// Replaced in the child of a fork, before the child has other threads.
  private(set) var idle = IdleSearch()

  // MARK: under the writer lock

  /// Nil while the tier is out of service, or asleep after a fork.
  var manifest: Manifest?
  var evictor = Evictor()
  var sweeper = Sweeper()
  var upkeep = Upkeep()
  /// The entries that committed transactions have dropped, until the end of the turn (`endTurn`).
  var untold = DroppedEntries()
  /// The highest version that a write has had.
  var highestVersion: UInt64 = 0
  /// The time of the last write or maintenance.
  var latestTime: Int64 = 0
  var space = FreeSpace()
  var logPause = LogPause()
  /// As `logPause`, for a log that is full.
  var fullPause = LogPause()

  /// Not under the writer lock: the leader's, which alone uses it.
  var batch: [QueuedWrite] = []
  // The last, as in DiskTier.
  /// The part of the writer lock that is this process's. `beginTurn` and a fork alone take it.
  let mutex = Lock()
  let options: StorageOptions
  /// A row that is put so long after its `created` still counts as in the order of ids: the sweep
  /// may find it so much too late. 0 by a host's clock, where counts are exact.
  let mostDelay: Int64

  init(
    _ options: StorageOptions, mostDelay: Int64, _ counters: DiskCounters, _ queue: WriteQueue,
    _ readers: Readers, _ accesses: AccessTimes, _ members: Membership, _ service: Service,
    _ content: Content
  ) {
    self.options = options
    self.mostDelay = mostDelay
    self.counters = counters
    self.queue = queue
    self.readers = readers
    self.accesses = accesses
    self.members = members
    self.service = service
    self.content = content
    liveLimits = LiveLimits(options.limits)
    liveDurability = Atomic(options.durability.rawValue)
    livePolicy = Atomic((options.policy ?? .adaptive).ofRows.rawValue)
  }

  var shared: SharedState { members.shared }
  var place: Directory { service.place }
  var isUp: Bool { service.isUp }
  @inline(never)
  var limits: TierLimits { liveLimits.current }
  var durability: Durability {
    Durability(rawValue: liveDurability.load(ordering: .relaxed)) ?? .sync
  }

  var policy: EvictionPolicy { EvictionPolicy(livePolicy) }

  func replaceIdleSearch() { idle = IdleSearch(after: idle) }

  // MARK: turns

  /// Runs `body` with the writer lock.
  @inline(__always)
  func withTurn<R: ~Copyable, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
    beginTurn()
    defer { endTurnAndTell() }
    return try body()
  }

  @inline(never)
  private func endTurnAndTell() { tell(endTurn()) }

  @inline(never)
  func beginTurn() {
    mutex.lock()
    do throws(Failure) {
      try members.lock?.beginTurn()
      if members.isAsleep { try wake() }
      try catchUp()
    } catch {
      // A transaction asks again and fails; a checkpoint asks for the turn (`mayWrite`).
      counters.failures.add()
    }
  }

  /// The caller tells of the entries that it gets.
  @inline(never)
  func endTurn() -> DroppedEntries {
    var dropped = DroppedEntries()
    swap(&dropped, &untold)
    members.lock?.endTurn()
    mutex.unlock()
    return dropped
  }

  /// Tells of entries that committed transactions have dropped. No lock is held.
  func tell(_ dropped: borrowing DroppedEntries) {
    guard !dropped.isEmpty, let observer else { return }
    dropped.forEach { key, version, _ in observer.storeDropped(key, version) }
  }

  // MARK: the manifest

  /// Begins to use a manifest. The writer lock is held.
  func use(_ opened: Manifest) {
    manifest = opened
    let meta = opened.meta
    content.forgetTrash()
    beginAnew()
    idle.begin(meta.mayIdle || limits.ages.timeToIdle != 0)
    latestTime = max(latestTime, meta.lastTime)
    counters.storage.store(meta.storage.rawValue, ordering: .relaxed)
  }

  private func beginAnew() {
    evictor = Evictor()
    sweeper = Sweeper()
    upkeep = Upkeep()
  }

  /// Throws if the tier is out of service. The writer lock is held.
  func checkService() throws(Failure) {
    guard isUp, manifest != nil else {
      detach()
      throw service.failure
    }
  }

  /// Closes the connections that a tier still has open while it is down. The writer lock is held.
  func detach() {
    guard !isUp else { return }
    // Also after a fork, when reads open theirs again before the manifest is.
    readers.close()
    guard let manifest else { return }
    manifest.leaveAsIs()
    self.manifest = nil
    content.forgetTrash()
  }

  static var hasMoved: Failure { Failure(.tierDown, "the directory was removed or replaced") }

  /// Whether an error means that the tier cannot go on. The writer lock is held.
  func fail(_ failure: Failure, _ manifest: Manifest) {
    switch failure.status {
    case .corrupt:
      counters.damaged.add()
      service.goDown(failure)
    case .badDirectory:
      service.goDown(failure)
    default:
      if manifest.hasMoved { service.goDown(Committer.hasMoved) }
    }
    if !isUp { detach() }
  }

  // MARK: fork

  /// The first turn after a fork opens the manifest.
  private func wake() throws(Failure) {
    members.isAsleep = false
    if members.hasParentsState { dropParentsState() }
    guard isUp, manifest == nil else { return }
    do throws(Failure) {
      manifest = try Manifest.open(place, durability)
    } catch {
      if error.isOfDamage || error.status == .badDirectory || error.status == .newerFormat {
        service.goDown(error)
      } else {
        // The next turn tries again. The entries are there, and reads have their own connections.
        members.isAsleep = true
      }
      throw error
    }
    members.forgetSequence()
  }

  /// The work that this tier has under way is the parent's.
  private func dropParentsState() {
    members.dropParentsState()
    content.forget()
    beginAnew()
    accesses.forget()
  }

  /// In a child without a part in the directory. SQLite's connections must not be touched.
  func leave() {
    if let manifest { _ = Unmanaged.passRetained(manifest) }
    manifest = nil
  }
}
