import Synchronization

/// What the composed cache asks of a store below the memory tier: records and bytes, and
/// nothing that only one store can do.
///
/// A write has four steps, so that the cache decides the order and nobody waits with a lock
/// held:
///   prepare   off every lock: what is slow and needs no order (a content file)
///   submit    under the key's stripe lock, version drawn: O(1), no I/O, no waiting. From
///             here on every read of this store sees the write
///   complete  off every lock: waits until the write is committed, or commits itself and
///             those who came meanwhile (leader-based group commit)
///   result    in the write
/// Writes are committed in the order of their submission.
///
/// Where a write fails, an older value of its key is not given out any more: the key is
/// barred until a later commit has removed it.
protocol Storage: AnyObject {
  func prepare(_ write: StorageWrite)
  func submit(_ write: StorageWrite)
  /// Instead of `submit`: the write is not to be (a condition did not hold). Discards what
  /// `prepare` made.
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
  /// stripe lock held. Neither calls `onDropped` (which takes stripes) nor waits for a commit; a
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
  /// gone, and of how many (0: not known); false stops. `onDropped` tells of what goes.
  func trim(
    _ spec: TrimSpec, at moment: Moment, removed: inout UInt64,
    goOn: (_ removed: UInt64, _ total: UInt64) -> Bool
  ) throws(Failure)

  /// Gives back, in slices, the space of what clears have left. `goOn` is called as in `trim`
  /// with the part of `total` that is done, the last time with all of it unless it stopped;
  /// who clears passes the count of before.
  func reclaim(
    of total: UInt64, at moment: Moment, goOn: (_ done: UInt64, _ total: UInt64) -> Bool
  ) throws(Failure)

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

  /// The first version that no write in this directory has had. Writes have versions below
  /// `firstVersion + versionLease`; the store extends the lease as they come in.
  var firstVersion: UInt64 { get }

  /// What it can do beyond this protocol if it keeps large values in files of their own; nil:
  /// it does not.
  var files: (any FileStorage)? { get }

  /// Whether these options are not the ones in force.
  func differs(from options: DiskOptions) -> Bool

  /// No call is under way or comes later. The failure, if the end was not clean.
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

/// What the processes have in common that share a store.
struct StorageSharing {
  let counters: CoherenceCounters
  let nextVersion: UnsafeMutablePointer<Atomic<UInt64>>
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

/// One write on its way to the store.
final class StorageWrite {
  enum Kind {
    /// Store `block`.
    case put
    /// Remove the entry of `block`'s key.
    case remove
    /// Set the times of the entry of `block`'s key to `created`, `expires` and `timeToIdle`
    /// of `record`, if it is there.
    case touch
    /// Advance the generation: every entry submitted before is gone.
    case clear
  }

  let kind: Kind
  /// The value with key and record; for `remove` and `touch` a block of which only the key
  /// counts; for `clear` nil.
  let block: Block?
  /// Drawn by the cache, before `submit`; a put's block has the same one.
  var version: UInt64 = 0
  /// For `touch`: the times to set. Its version is the entry's.
  var record = Record()
  /// When the write was submitted.
  var time: Int64 = 0
  /// Of a clear: what tiers above have of older versions goes too.
  var isOfAllTiers = false

  // Results, valid after `complete`.

  /// Nil: committed.
  var failure: Failure?
  /// For a put, also whether it was refused: stored, tooLarge, noSpace or failed. For a put
  /// that is not stored, the commit has removed the entry that was there.
  var outcome = TierOutcome.none
  /// Whether there was an entry, not expired, before the write.
  var existed = false

  /// Of a put to a store that keeps files: how its value is to be kept, or where it is
  /// already.
  var file: ValueFile?

  // Where several processes share the store.

  /// Decided where the write is committed; until then no read sees a write that has one.
  var condition = WriteCondition.none
  /// Reads see it from the beginning all the same: another process alone can be in its way.
  var isShown = false
  /// The condition did not hold, nothing was done: a result, as are those below.
  var isUnmet = false
  /// Of a write with a condition: the version that it found; 0: none.
  var existing: UInt64 = 0
  /// The number under which memory may remember the entry (CoherenceCounters).
  var mark: UInt32 = 1
  /// The number when the write was carried out: what memory remembers under it counted then.
  var markBefore: UInt32 = 1

  /// The cache's, see Leavings.
  var next: StorageWrite?

  /// The store's own: a content file that waits for its row, its place in the queue.
  var storage: AnyObject?

  init(_ kind: Kind, _ block: consuming Block?) {
    self.kind = kind
    self.block = block
  }
}

/// Why a store has dropped an entry that nobody asked it to.
enum DropCause: UInt64 {
  case evicted = 0
  case expired = 1
  case damaged = 2
  /// Left by a write that failed, and not given out since.
  case barred = 3
}

/// What a check has found; see hutch_check_report.
struct CheckReport {
  var entries: UInt64 = 0
  var bytes: UInt64 = 0
  var damaged: UInt64 = 0
  var orphans: UInt64 = 0
  var counters: UInt64 = 0
  var manifest: UInt64 = 0
}
