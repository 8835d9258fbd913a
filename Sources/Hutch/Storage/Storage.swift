import Synchronization

/// What the composed cache asks of a store below the memory tier: records and bytes, and
/// nothing that only one store can do.
///
/// This folder is the seam between the cache and what keeps its entries on disk. Above it nobody
/// names a store, its files or its library; a store knows this folder, Model and System. Another one is
/// a class that conforms, in a folder of its own, and a line in `openStorage`, which chooses.
///
/// Writes. A write has four steps, so that the cache decides the order and nobody waits with a
/// lock held:
///   prepare   off every lock: what is slow and needs no order (a file)
///   submit    under the key's stripe lock, version drawn: O(1), no I/O, no waiting. From
///             here on every read of this store sees the write
///   complete  off every lock: waits until the write is committed, or commits itself and
///             those who came meanwhile (leader-based group commit)
///   result    in the write
/// Writes of a key are committed in the order of their submission, and a clear comes after what
/// was submitted before it. A kill leaves a key with its value before a write or with that after
/// it, whole. Where a write fails, an older value of its key is not given out any more: the key
/// is barred until a later commit has removed it.
///
/// Versions. The cache draws them, and puts and touches carry them: a store keeps a put's with
/// its entry and gives it back. None is drawn twice in a directory, also not after a kill:
/// `firstVersion` is above whatever the cache may have drawn before.
///
/// Ages and limits are the store's to keep: what has expired (`Record.isExpired`) is nowhere to
/// be seen, whether it has been removed or not, and `limits` hold after each commit. What the
/// store drops without being asked, for a limit, for its age or for damage, it tells the
/// observer.
///
/// Threads. Everything may be called by many at once, but for opening, `close` and a fork. The
/// store's locks come after the cache's (see `Cache`), and it calls nobody back with one of them
/// held, but for what `StorageObserver` says of two calls. With a stripe or a lock of the memory
/// tier held are called: `submit`, `announce`, `isAnnounced`, `isUndecided`, `isPending`, `mayHold`,
/// `info`, `noteAccess`, `limits`, `isUp`, `announcedCount`. They do not wait for a commit.
///
/// Out of service a store has no entries, refuses puts, and fails other writes; `stats` says so.
///
/// What a store need not have, an extension below has for it: files, processes that share the
/// store, a fork.
protocol Storage: AnyObject {
  /// Whom to tell, from here on. Once, before the first write; what the opening has met is told
  /// now.
  func watch(by observer: any StorageObserver)

  func prepare(_ write: StorageWrite)
  func submit(_ write: StorageWrite)
  /// Instead of `submit`: the write is not to be (a condition did not hold). Discards what
  /// `prepare` made, or lets go of an announced one.
  func abandon(_ write: StorageWrite)
  func complete(_ write: StorageWrite)

  /// Makes reads see a put that will come: the tier above gives the entry up, and `submit` is
  /// too much for the moment. Under any lock of that tier: O(1), no I/O, no waiting. False: all
  /// tiers have been cleared since its version was drawn, and it is not to come.
  /// A write that is submitted for its key takes its place; with a removal of the same version
  /// it stays. Afterwards the key's stripe is taken, another write with the block submitted if
  /// this one is announced still, and this one abandoned.
  func announce(_ write: StorageWrite) -> Bool
  func isAnnounced(_ write: StorageWrite) -> Bool
  /// Whether a write of a key is submitted and not yet committed, or the key is barred: what reads
  /// see of it is not what a kill would leave.
  func isPending(_ key: Bytes) -> Bool
  /// Whether the store may have anything of a key, now or after a kill: an entry, one that has
  /// expired, or one that a pending write removes. A store that is out of service may.
  func mayHold(_ key: Bytes) -> Bool
  /// Whether a put or a removal of a key is submitted that has a condition and is not shown.
  func isUndecided(_ key: Bytes) -> Bool
  /// Waits for one of these, as `complete`.
  func awaitDecision(_ key: Bytes)

  /// How many are announced.
  var announcedCount: UInt64 { get }
  /// Whether the newest write of a key is an announced one.
  func isAnnounced(_ key: Bytes) -> Bool

  /// The newest entry, submitted writes included, with its value; nil if there is none or it
  /// has expired. An access counts a hit or a miss, and notes the time.
  /// With no lock held: a codec of the host's may be called. `info` may be called with the key's
  /// stripe lock held. Neither calls `storeDropped` (which takes stripes) nor waits for a commit; a
  /// damaged entry is barred at once and its removal left to `settle`, a later commit or
  /// maintenance.
  /// Fails with `io` and the like only if the store could not be read; a damaged entry is
  /// removed and is nil. A store that is out of service has no entries.
  func get(_ key: Bytes, at moment: Moment, isAccess: Bool) throws(Failure) -> Block?

  /// As `get` with an access for each of the keys 0..<count, those that are small together.
  /// `found` is called once per index, in order, with no lock of the store held: the entry, or
  /// nil, or why it could not be read. `key` is called more than once per index, also with
  /// locks held. Whoever promotes what is found notes the marks of all keys before the call.
  func get(
    _ count: Int, at moment: Moment, key: (Int) -> Bytes,
    found: (Int, consuming Block?, Failure?) -> Void)

  /// As `get`, the record only (`accessed` included); never an access.
  func info(_ key: Bytes, at moment: Moment) throws(Failure) -> Record?

  /// Notes an access that another tier answered, for entries whose idle time it lengthens.
  /// Gathered in memory, written in batches.
  func noteAccess(_ key: Bytes, at time: Int64)

  /// Up to `limit` keys after `key` (nil: from the beginning), in the order of their bytes,
  /// of entries that are committed and not expired. Returns how many; 0 at the end only. No
  /// lock is held while `visit` runs.
  func keys(
    after key: Bytes?, limit: Int, at moment: Moment, visit: (Bytes) -> Void
  ) throws(Failure) -> Int

  /// Up to `limit` entries behind `position` with their records, in the order in which they
  /// were written or touched, else as `keys`. What is written or touched after the first call
  /// is not seen; an entry that is touched or replaced leaves its place.
  func entries(
    after position: inout WalkPosition, limit: Int, at moment: Moment,
    visit: (Bytes, Record) -> Void
  ) throws(Failure) -> Int

  var limits: TierLimits { get }
  /// Evicts until the new limits hold.
  func setLimits(_ limits: TierLimits, at moment: Moment) throws(Failure)

  /// Removes what `spec` says, in slices that stop nobody; `removed` is how many entries have
  /// gone, also if it fails. `goOn` is called between slices with no lock held: how many have
  /// gone, and of how many (0: not known); false stops. What goes is told as dropped.
  func trim(
    _ spec: TrimSpec, at moment: Moment, removed: inout UInt64,
    goOn: (_ removed: UInt64, _ total: UInt64) -> Bool
  ) throws(Failure)

  /// Whether it is in service.
  var isUp: Bool { get }
  /// Stops nobody.
  var stats: TierStats { get }

  /// Whether reads have found damaged entries whose removal `settle` would commit.
  var owesRemovals: Bool { get }
  /// Commits the removal of damaged entries that reads have found. With no lock held.
  func settle()

  /// Looks through everything that is stored, while others read and write, and repairs what it
  /// can. `isQuick`: values are not read.
  func check(isQuick: Bool, at moment: Moment) throws(Failure) -> CheckReport

  /// Commits what was submitted, and the access times gathered so far.
  func flush(at moment: Moment) throws(Failure)

  /// One slice of what can wait: expired entries, trash, orphans, access times, checkpoint,
  /// reopening. True if there is more to do at once.
  func maintain(at moment: Moment) -> Bool

  /// The first version that no write in this directory has had.
  var firstVersion: UInt64 { get }

  /// What it can do beyond this protocol if it keeps large values in files of their own; nil:
  /// it does not.
  var files: (any FileStorage)? { get }

  /// Whether these options are not the ones in force. So it may be after the opening already,
  /// if other processes have the store open.
  func differs(from options: StorageOptions) -> Bool

  /// No call is under way or comes later. `lastVersion`: the newest that was drawn. The failure,
  /// if the end was not clean.
  func close(lastVersion: UInt64) -> Failure?

  // A fork: see Forking.

  /// Where processes share the store; nil: they do not.
  var sharing: StorageSharing? { get }
  /// Makes ready for a fork: whatever the process has only once is given up, and locks are held
  /// so that a copy of the store's memory is whole. No write is under way. `hash`: of keys, as
  /// memory has it. False: not in time, or not at all, and nothing is held.
  func prepareFork(_ hash: KeyedHash, until end: Deadline) -> Bool
  /// In the parent, of a store that is prepared.
  func endFork()
  /// In the child: the store is another opening of the same directory. One that is not prepared
  /// is out of service for ever, with HUTCH_FORKED for a reason.
  func beginInChild(isPrepared: Bool)
  /// In the child, before it first uses the store.
  func awaken()
  /// In a child that does not use the cache at all: what would keep others out is given up.
  func closeLocks()
}

/// What a store need not have.
extension Storage {
  func prepare(_ write: StorageWrite) {}

  // Where no write has a condition: nobody shares the store.
  func isUndecided(_ key: Bytes) -> Bool { false }
  func awaitDecision(_ key: Bytes) {}
  var sharing: StorageSharing? { nil }

  func get(
    _ count: Int, at moment: Moment, key: (Int) -> Bytes,
    found: (Int, consuming Block?, Failure?) -> Void
  ) {
    for index in 0..<count {
      do throws(Failure) {
        found(index, try get(key(index), at: moment, isAccess: true), nil)
      } catch {
        found(index, nil, error)
      }
    }
  }

  // Where a read finds no damage.
  var owesRemovals: Bool { false }
  func settle() {}

  var files: (any FileStorage)? { nil }

  // Where a child cannot have the store.
  func prepareFork(_ hash: KeyedHash, until end: Deadline) -> Bool { false }
  func endFork() {}
  func awaken() {}
  func closeLocks() {}
}

/// What the processes have in common that share a store.
struct StorageSharing {
  let counters: CoherenceCounters
  let nextVersion: UnsafeMutablePointer<Atomic<UInt64>>
  /// Of keys, which leads to the counters.
  let hash: KeyedHash
}

/// How far a walk in the order of writes has come. The store's own numbers.
struct WalkPosition {
  let isDescending: Bool
  var last: Int64
  /// Entries behind this one are newer than the walk. Nil before the first step.
  var newest: Int64?

  init(descending: Bool) {
    isDescending = descending
    last = descending ? Int64.max : Int64.min
  }
}

/// What a check has found; see hutch_check_report.
struct CheckReport {
  var entries: UInt64 = 0
  var bytes: UInt64 = 0
  var damaged: UInt64 = 0
  var orphans: UInt64 = 0
  var counters: UInt64 = 0
  /// Errors of what the store finds its entries by.
  var index: UInt64 = 0
}
