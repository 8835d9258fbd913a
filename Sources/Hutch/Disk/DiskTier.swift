import CSystem
import Synchronization

/// The disk tier: a directory with one SQLite database, the manifest, and a file for each
/// large value.
///
/// The directory, mode 0700
///
///     hutch.lock             empty; the writer lock is on it. The first file that is made
///     manifest.sqlite        the manifest; beside it -wal and -shm while it is open
///     content/xx/<name>      one value each, raw bytes; <name> is `hutch-`, 16 hexadecimal
///                            digits and the suffix that the put asked for; xx are the first two
///                            digits, the others random. With `.tmp` for a suffix while it is
///                            being written
///     trash/<name>           content files that have gone, until they are unlinked
///     hutch.shared           memory that processes share while they have it open (SHARED). One
///                            that is left says that the last of them was killed
///     hutch-<digits>.damaged[-wal]
///                            the last manifest that was found damaged, for a week
///     hutch-<digits>.new     a manifest that is being made
///
///   Ownership. The directory is a cache's if it has a cache's manifest, or `hutch.lock`, which
///   is made only in a directory that is empty, or that the caller says need not be.
///   In it the library opens, moves and unlinks the files with these names and no others:
///   a content file, in `content/xx` as in `trash`, is known by `hutch-` and the digits, in the
///   folder that they say (ContentName). `content`, `trash` and `xx` are folders and no
///   symbolic links; each file is reached through the directory's descriptor, and no link is
///   followed on the way (Files.openBeneath). SQLite alone goes by the path: the file that it
///   has opened is compared with the one that the descriptor leads to (Connection.check).
///
/// The schema (ManifestFile.swift), PRAGMA application_id "HUTC", user_version the format
///
///     meta, one row
///       storage              of the directory; settled when it is made
///       generation           advanced by a clear; rows of an older one do not exist
///       next_version         versions from here on have never been handed out, but for those that
///                            `hutch.shared` has counted since. The first change after a clean
///                            end leases 2^40 of them, and an end gives the rest back
///       count, bytes         of the rows of this generation: how many, the sum of charges. A newer
///                            row's totals count instead (Sums)
///       dead                 the charges of older rows, which maintenance has yet to delete
///       newest               the highest id that had been given out when this row was written
///       idle                 whether entries with a time to idle of their own may be there
///       boot_id, boot_offset the boot that last opened it, and Unix time minus
///                            CLOCK_BOOTTIME: within a boot the wall clock is asked once
///       last_time            of the last write
///       clean                1 after a close, 0 from the first change on; 2 after a close that
///                            came before the sweep for orphans of an earlier end was done
///       durability           the weakest of the openings since the last end that was clean
///       limit_*, time_to_*, min_free
///                            the limits in force, which are the directory's: an opening that
///                            names others changes them
///       has_limits           0 until the first opening has set them
///     entries, one row per entry
///       slot                 the rowid. It is the id that the row was inserted with
///       id                   NULL, or the slot: the slot. Else the id that a long row got when it
///                            was replaced or touched in its slot (RowScan).
///                            Every put and touch gives the row a new id, the greatest, unless the
///                            row had the greatest already: ids are in the order of `created`, but
///                            for entries that were kept in memory before; generations never fall
///                            along them
///       key                  unique
///       version, generation, created, accessed, uses, expires, idle, cost, size
///                            expires and idle as in Record: 0 the tier's, 2^63-1 none
///       charge               the bytes that the entry counts against the limit (Charge)
///       total_count, total_bytes
///                            the sums as the put or touch of this row has left them (Sums)
///       codec                0: the value as it was put; else the id of the host's codec that
///                            made the stored bytes. `size` is the value's own
///       checksum             see Seal
///       file                 the content file's name, with its suffix; NULL: the value is
///                            here
///       extended, value
///     entries_expires        an index: own expiries that will come
///     entries_id             an index: ids above their rows' slots
///
/// Durability. process: nothing waits for the disk, and a kill loses nothing; but a loss of power
/// may leave pages of different ages, so a manifest that was not closed in an earlier boot is
/// checked as a whole (PRAGMA quick_check), and set aside if it is in doubt. power: SQLite syncs
/// the log before a checkpoint and the database after it; a content file is synced before its
/// row is committed. sync: the log is synced with every commit, a content file with its name.
///
/// Order of a put
///     1 prepare, no lock     a large value is written to content/xx/<name>.tmp, then renamed:
///                            a file under its own name is whole
///     2 submit               the write is in the queue; reads see it from here on
///     3 complete             a caller that finds no leader becomes the leader: one transaction
///                            for all that are queued. A row with a new id, or the old row with a
///                            new id and what the put brings; any other old row gone; room made
///                            for the limits, the meta row if the newest row does not have the
///                            sums, COMMIT
///     4 after the commit     content files that lost their rows are renamed into trash/
///   A process that is killed before 3 leaves a file without a row, after 3 likewise: an
///   orphan, which the sweep after an opening that was not clean removes. A row is never
///   without its file, and a key has its old value or its new one, whole.
///   Of a value that comes in pieces, the pieces are written to <name>.tmp as they come, and
///   the rest of 1 is done at its commit. A file that is moved or linked here is linked under
///   its own name instead of 1; of one that is moved the old name goes after 4. While files
///   are held 4 waits, and so do sweeps: a process that is killed then leaves orphans.
///
/// Locks, in the order in which they are taken
///     the cache's stripe     the caller's; submit, get and info may be called under it
///     the writer lock        the manifest's writing connection, the meta row, trash, the OFD
///                            locks on `hutch.lock` (Committer); held for a transaction, a
///                            checkpoint, an unlink. Between processes too, where they share
///     a reader's lock        one connection that reads (Readers). Under it the state's lock and
///                            that of the access times
///     the queue's lock       queued writes and bars (WriteQueue); O(1)
///     the service's lock     where the tier is, and why it is out of service (Service); O(1)
///     the locks of FilesInFlight and AccessTimes: nothing else is taken under them
///   A fork takes all of them, in this order (DiskTier+Fork.swift).
///   `get` and `info` take a reader's lock, and none that is held during I/O of a writer; walks,
///   trims, checks and holds take the writer lock for moments. Nothing calls out (the observer; the
///   host's clock) with any of them held, but for the observer's
///   `storeDrops`, `storeCommits` and `storeReturns`, under the writer lock: the first two take
///   the locks of the events and of one memory shard, the third none, and they hold nothing when
///   they return.
///
/// Out of service. When a commit finds that its file is no longer the one at the path, or
/// SQLite finds the manifest malformed, the tier is down: it has no entries and takes none.
/// Maintenance, and a put after a pause, try to open the directory again, by its path; a malformed
/// manifest is set aside then, and the tier starts empty. A directory that has been removed is
/// not made again, unless the disk is optional: that one is made as `hutch_open` would. A tier
/// that is optional may begin out of service.
///
/// Owners. Each has its state, and its own lock if it needs one; the tier composes them.
///     Committer              the writing half: the writer lock, the manifest, every transaction
///     ManifestLogBuffer      what a COMMIT writes into SQLite's log
///     Service                in service or not, where, why not
///     Membership             the locks among processes, the numbers of their transactions, forks
///     Content                content files that no row names
///     WriteQueue, Bars       writes that are not committed yet; entries that must not come back
///     Readers                the connections that read
///     Transaction            one transaction, and the work that its commit will owe
///     Sweeper, Evictor       the rows that go by age, and those that go for the limits
///     FreeSpace, LogPause    the file system's free space; a log that a reader keeps
///     IdleSearch             the search for entries that were idle for too long
///     AccessTimes            accesses that are not in the rows yet
///   None of them knows the tier, but IdleSearch, which calls what every store has.
///
/// States. `up` (Service) is read without a lock; the others are under the writer lock: `manifest`
/// (Committer), and the rest in Membership.
///
///              up     manifest  isAsleep  hasParentsState  belongToParent
///     up       true   open      false     false            false
///     asleep   true   nil       true      either           false
///     down     false  either    either    either           false
///     left     false  nil       false     false            true
///
///   up: in service. asleep: a fork has closed the connections. Reads open theirs again when they
///   are next needed, the next turn opens the manifest; in the child that turn first drops the work
///   that the parent had under way (hasParentsState). down: Service has the reason; the next holder
///   of the writer lock closes the connections, and `reopen` leads to up. left: a child without a
///   part in the directory, for ever.
///
///     up -> down       Service.goDown: a commit, a read or a turn finds the directory or the
///                      manifest gone or damaged
///     up -> asleep     prepareFork       asleep -> up     wake, or down if the manifest is gone
///     any -> left      beginInChild of a fork that was not prepared
final class DiskTier: Storage, ForkingStorage {
  let clock: Clock
  let queue: WriteQueue
  let readers = Readers()
  let accesses: AccessTimes
  let content = Content()
  let members: Membership
  let service: Service
  let committer: Committer
  let counters: DiskCounters
  /// Whether reads have barred damaged entries since the last `doOwedWork`. Relaxed: it is only a
  /// reminder; the bars are under the queue's lock.
  let foundDamage = Atomic<Bool>(false)
  /// The first of the versions that the last opening has leased. Relaxed: a number by itself.
  let leaseStart = Atomic<UInt64>(1)
  /// The hash of all keys: the directory's if other processes have it open already. It does not
  /// change once the store is open: memory, the queue and the access times have hashes of it.
  var hash: KeyedHash {
    didSet { accesses.hash = hash }
  }
  /// Under the writer lock.
  var attachment = Attachment()
  // The last, since it is long: the instructions that reach the fields before it are shorter.
  let options: StorageOptions

  private init(
    _ directory: Directory, _ options: StorageOptions, _ clock: Clock, _ hash: KeyedHash,
    _ queue: WriteQueue, _ shared: SharedState, _ counters: DiskCounters
  ) {
    self.clock = clock
    self.options = options
    self.hash = hash
    self.queue = queue
    self.counters = counters
    accesses = AccessTimes(hash)
    members = Membership(shared, mayHaveOthers: options.sharing == .shared)
    service = Service(directory)
    committer = Committer(
      options, mostDelay: clock.isHosts ? 0 : 1_000_000_000, counters, queue, readers, accesses,
      members, service, content)
  }

  /// Out of service, as yet. What can fail comes before the object.
  @inline(never)
  static func make(
    _ directory: Directory, _ options: StorageOptions, _ clock: Clock
  ) throws(Failure) -> DiskTier {
    let hash = try KeyedHash()
    return DiskTier(
      directory, options, clock, hash, try WriteQueue.make(), try SharedState.make(hash),
      try DiskCounters())
  }

  var shared: SharedState { members.shared }

  // MARK: what others ask

  var files: (any FileStorage)? { self }

  var isUp: Bool { service.isUp }

  var firstVersion: UInt64 { leaseStart.load(ordering: .relaxed) }

  var limits: TierLimits { committer.limits }

  var ages: Ages { committer.liveLimits.ages }

  var stats: TierStats {
    let sums =
      sharedSums()
      ?? (counters.count.load(ordering: .relaxed), counters.cost.load(ordering: .relaxed))
    return counters.stats(isUp: isUp, count: sums.count, cost: sums.cost)
  }

  /// Nil before the store is watched.
  var observer: (any StorageObserver)? { committer.observer }

  func watch(by observer: any StorageObserver) {
    committer.observer = observer
    if options.sharing == .shared { shared.isHandedOut = true }
    tellMet()
  }

  /// Logs the findings of the last opening.
  func tellMet() {
    if attachment.changesLimits {
      observer?.log(.ofNewLimits)
    }
    if options.standsInForLog && attachment.isNew {
      observer?.log(
        LogLine(.info, "the file system does not suit a log; the directory has a SQLite database"))
    }
    if attachment.setAside {
      observer?.log(
        LogLine(.warning, "the manifest was damaged, has been set aside, and a new one begun"))
    }
    if attachment.unclean {
      observer?.log(
        LogLine(.info, "the directory was not closed; what a kill has left will be swept up"))
    }
  }

  var optionsInForce: StorageOptions {
    var options = self.options
    // Of a directory that has not been opened yet all that is known is how it would be made.
    let kind = StorageKind(rawValue: counters.storage.load(ordering: .relaxed)) ?? .unspecified
    if kind != .unspecified || options.kind == .unspecified {
      options.kind = kind == .unspecified ? .mixed : kind
    }
    options.durability = committer.durability
    options.policy = committer.policy
    options.limits = limits
    return options
  }

  func apply(_ other: StorageOptions) -> Bool {
    if other.chosen.contains(.durability) {
      committer.liveDurability.max(other.durability.rawValue, ordering: .relaxed)
    }
    var asked = other
    asked.policy = other.policy?.ofRows
    return asked.differ(from: optionsInForce)
  }

  var place: Directory { service.place }

  /// The directory, while the tier is up.
  var placeIfUp: Directory? { service.placeIfUp }

  var downFailure: Failure { service.failure }
}

/// The findings of the last opening in the directory, and what the next one has to go by.
struct Attachment {
  var isNew = false
  var setAside = false
  var unclean = false
  var changesLimits = false
  /// Whether the limits in force have been settled: by an opening of the directory, or by
  /// `setLimits` since.
  var hasLimits = false
  /// A check has found the manifest damaged beyond repair: it is set aside when the tier comes
  /// back.
  var isCondemned = false
  /// The tier has gone out of service because the manifest is damaged. The whole manifest is read
  /// when the tier comes back.
  var isSuspect = false

  mutating func begin() {
    isNew = false
    setAside = false
    unclean = false
    changesLimits = false
  }
}
