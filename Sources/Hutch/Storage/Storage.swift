import Synchronization

/// The interface of a store below the memory tier, as the composed cache uses it: records and
/// bytes, and nothing that only one store can do.
///
/// This folder is the seam between the cache and the stores on disk. No code above it names a
/// store, its files or its library; a store depends on this folder, Model and System. Another store
/// is a class that conforms, in a folder of its own, and a line in `openStorage` (folder Stores).
///
/// Writes. The cache decides the order of the writes of a key, and no thread waits for a commit
/// while it holds a lock:
///   prepare   with no lock held: slow work that needs no order (a content file)
///   write     under the key's stripe lock, version drawn. From here on every read of this store
///             sees the write. A store that commits at once is done here; another store leaves a
///             ticket in the write, without I/O and without waiting
///   finish    only if there is a ticket, with no lock held: waits until the write is committed, or
///             commits it together with those of callers that came meanwhile
/// Writes of a key are committed in the order in which the store was given them, and a clear comes
/// after the writes before it. A kill leaves a key with its value before a write or with that after
/// it, whole. If a write fails, reads do not return an older value of its key any more: the key is
/// barred until a later commit has removed that value.
///
/// Versions. The cache draws them, and puts and touches carry them: a store keeps a put's version
/// with its entry and returns it. A directory never uses a version twice, even after a kill:
/// `StorageSharing.firstVersion` is above every version that the cache may have drawn before.
///
/// Times. Every moment that a store is given has been read (`Moment.read`): its `time` costs
/// nothing.
///
/// Codecs. A store keeps the bytes of a put's block, with `Record.codec` and `Record.decodedSize`,
/// and returns them; what stands between them and the value is above (`StoredValues`).
///
/// Ages and limits. The store enforces them: no read returns an expired entry (`Record.isExpired`),
/// removed or not, and `limits` hold after each commit. The store tells the observer of each entry
/// that it drops by itself, for a limit, for its age or for damage.
///
/// Threads. Many threads may call any function at once, except opening, `close` and a fork. The
/// store's locks come after the cache's (see `Cache`). The store makes no callback while it holds
/// one of its locks, except those that `StorageObserver` names. The cache may hold a stripe or a
/// lock of the memory tier when it calls `write`, `info`, `pendingVersion`, `noteAccess`, `limits`,
/// `isUp`. These do not wait for a commit of another call.
///
/// A store that is out of service has no entries, refuses puts, and fails other writes; `stats`
/// says so.
///
/// An extension below has defaults for the optional parts: files, processes that share the store, a
/// fork.
protocol Storage: StorageTrimming {
  /// The hash of keys, with the secret that the store's own index and the processes that share it
  /// go by. The tiers above use the same one, so a key is hashed once per call: a function of the
  /// store that gets a key gets its `hash.entry` too. It does not change once the store is open.
  var hash: KeyedHash { get }

  /// Sets the observer. Called once, before the first write. The store reports at once what the
  /// opening has met.
  func watch(by observer: any StorageObserver)

  /// Prefetches the memory that a write of this key will need first. It changes nothing, and reads
  /// only what the store keeps until its end: so it may be called with locks held, and outside the
  /// gate.
  func prefetch(_ hash: UInt64)

  /// Called for every put, with the entry that will be stored and the write's form. The store may
  /// make the form if there is none. A file that is made here is the form's (`ValueForm.file`); if
  /// the write is not made after all, the file goes with the form.
  func prepare(_ entry: UnownedBlock, _ form: inout ValueForm?)
  /// True if `write` has copied a put's value when it returns, so the value need not be in a block
  /// (`ValueForm.bytes`).
  var takesBytes: Bool { get }
  func write(_ write: inout StoreWrite)
  func finish(_ write: inout StoreWrite)

  /// True if at this moment `removeAtOnce` may take the place of `write` and `finish`.
  var removesAtOnce: Bool { get }
  /// True if at this moment `putAtOnce` may take the place of `prepare`, `write` and `finish` for a
  /// value of this size.
  func putsAtOnce(_ size: Int) -> Bool
  /// Stores a value and commits that, as `write` does, without a block. The record has no size. No
  /// tier above has a copy of the key's entry. The key's stripe is held.
  func putAtOnce(
    _ key: Bytes, _ hash: UInt64, _ record: Record, _ value: Bytes, at time: Int64
  ) -> StoreWrite.Result
  /// Removes a key's entry and commits that, as `write` does, for a caller that has not asked
  /// whether there is one. If there is none for a read, nor `isThere` in a tier above, nothing is
  /// done. The key's stripe is held.
  func removeAtOnce(
    _ key: Bytes, _ hash: UInt64, version: UInt64, isThere: Bool, copy: StoreWrite.Copy?,
    at time: Int64
  ) -> StoreWrite.Result
  /// Called when all entries of some kind have been removed by their keys, and no lock is held.
  /// From here on a loss of power brings none of them back, nor one that was dropped before.
  /// What the removals themselves promise is their own durability. Fails if the store is out of
  /// service: it has shown the walk no entries, and they are back when it is in service again.
  func secureRemovals() throws(Failure)

  /// The newest entry, submitted writes included, with its value; nil if there is none or it has
  /// expired. An access counts a hit or a miss, and notes the time. The caller holds no lock;
  /// `info` may be called with the key's stripe held. Neither calls `storeDropped` (which takes
  /// stripes) nor waits for a commit. A damaged entry is barred at once and is nil; `doOwedWork`, a
  /// later commit or maintenance removes it. Fails with `io` and the like only if the store could
  /// not be read. A store that is out of service has no entries.
  func get(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool
  ) throws(Failure) -> Block?

  /// Like `get` with an access, but copies the value, and behind it the extended data if the caller
  /// asks for them, into the buffer of a caller that needs no block. `tooLarge` and `refused` are
  /// no access: the caller calls `get`, or this function with a larger buffer. If nothing was
  /// copied, the buffer may have any bytes.
  func copy(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, _ part: Look.Part,
    into buffer: UnsafeMutableRawBufferPointer
  ) -> ValueCopy

  /// Like `get` with an access for each of the keys 0..<count; the store reads the small ones
  /// together. `found` is called once per index, in order, with no lock of the store held: with the
  /// entry, with nil, or with the failure to read it. `key` gives a key and its hash; it is called
  /// more than once per index, also with locks held. A caller that promotes entries begins the
  /// rounds of all keys (`Cache.Round`) before the call.
  func get(
    _ count: Int, at moment: Moment, key: (Int) -> (Bytes, UInt64),
    found: (Int, consuming Block?, Failure?) -> Void)

  /// Like `get`, for the record only (`accessed` included); never an access.
  func info(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Record?

  /// The version of the newest write of a key that is submitted and whose commit has not ended; 0:
  /// there is none. A write whose condition the store has yet to decide does not count. The key's
  /// stripe may be held.
  func pendingVersion(_ key: Bytes, _ hash: UInt64) -> UInt64

  /// The bytes of the entry with this version, or an older one, are not what a codec has made: from
  /// here on it is damaged, as if `get` had found it so. The caller holds no lock.
  func noteDamage(_ key: Bytes, _ hash: UInt64, _ version: UInt64)

  /// Notes an access that another tier answered, for entries whose idle time it extends. The store
  /// gathers accesses in memory and writes them in batches.
  func noteAccess(_ key: Bytes, _ hash: UInt64, at time: Int64)

  /// True if `keys` goes by the order of keys, and `walk` by the order of writes. False: `keys` is
  /// not called, and `walk` goes by the places of keys.
  var isOrdered: Bool { get }

  /// The place of a key with this hash in the walk of a store that is not ordered.
  func place(of hash: UInt64) -> Int64

  /// Visits up to `limit` keys after `key` (nil: from the beginning), in the order of their bytes,
  /// of entries that are committed and not expired, and have this tag (nil: of all such entries).
  /// `moment` nil: also keys of entries that have expired or that a clear has removed, for a caller
  /// that asks for each entry afterwards, as every caller with a tag does. A store may then leave
  /// the entries unread.
  /// Returns how many; 0 only at the end. No lock is held while `visit` runs.
  func keys(
    tagged tag: Bytes?, after key: Bytes?, limit: Int, at moment: Moment?, visit: (Bytes) -> Void
  ) throws(Failure) -> Int

  /// Calls `visit` with the version and the tag of the newest entry of a key, if there is one. Like
  /// `info`, it is not an access. The caller holds no lock.
  func tag(
    of key: Bytes, _ hash: UInt64, at moment: Moment,
    visit: (_ version: UInt64, _ tag: Bytes) -> Void
  ) throws(Failure)

  var limits: TierLimits { get }
  /// Those of `limits`.
  var ages: Ages { get }
  /// Evicts until the new limits hold.
  func setLimits(_ limits: TierLimits, at moment: Moment) throws(Failure)

  /// From here on this process evicts by that policy. A store may come only close to it.
  /// `adaptive`: the policy that the store is made for.
  func setPolicy(_ policy: EvictionPolicy)

  /// True if the store is in service.
  var isUp: Bool { get }
  /// No other call waits for it.
  var stats: TierStats { get }

  /// True if `doOwedWork` has something to do.
  var owesWork: Bool { get }
  /// Commits the writes submitted before, and the removal of damaged entries that reads have found,
  /// and tells the observer of what it does not know yet. The caller holds no lock.
  func doOwedWork()

  /// Checks everything that is stored while other threads read and write, and repairs what it can.
  /// `isQuick`: does not read values.
  func check(isQuick: Bool, at moment: Moment) throws(Failure) -> CheckReport

  /// Commits the submitted writes, and the access times gathered so far.
  func flush() throws(Failure)

  /// One slice of deferred work: expired entries, trash, orphans, access times, checkpoint,
  /// reopening. True if there is more to do at once.
  func maintain(at moment: Moment) -> Bool

  /// True while reads miss entries that slices of maintenance are still to find.
  var isRecovering: Bool { get }

  /// Where versions begin, and the state of the processes that share the store. A fork may change
  /// the second.
  var sharing: StorageSharing { get }

  /// Its abilities beyond this protocol if it keeps large values in files of their own; nil: it
  /// does not.
  var files: (any FileStorage)? { get }

  /// Applies the options of an opening in this process as far as one that is not the first can: a
  /// stronger durability holds for all openings. True if these options are not the ones in force
  /// then. They may differ also after the first opening, if other processes have the store open.
  func apply(_ options: StorageOptions) -> Bool

  /// The options in force: those of this opening, and what the directory and other openings have
  /// made of them. No other call waits for it.
  var optionsInForce: StorageOptions { get }

  /// Closes the store. No call is in progress or comes later. `lastVersion`: the newest version
  /// that was drawn. Returns the failure if the end was not clean.
  func close(lastVersion: UInt64) -> Failure?

  /// Nil: the child of a fork cannot have the store, and is a cache without one.
  var forking: (any ForkingStorage)? { get }
}

/// Defaults for the optional parts of a store.
extension Storage {
  func prefetch(_ hash: UInt64) {}
  func copy(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, _ part: Look.Part,
    into buffer: UnsafeMutableRawBufferPointer
  ) -> ValueCopy { .refused }
  func prepare(_ entry: UnownedBlock, _ form: inout ValueForm?) {}
  var takesBytes: Bool { false }

  var removesAtOnce: Bool { false }
  func putsAtOnce(_ size: Int) -> Bool { false }
  func putAtOnce(
    _ key: Bytes, _ hash: UInt64, _ record: Record, _ value: Bytes, at time: Int64
  ) -> StoreWrite.Result { StoreWrite.Result() }
  func removeAtOnce(
    _ key: Bytes, _ hash: UInt64, version: UInt64, isThere: Bool, copy: StoreWrite.Copy?,
    at time: Int64
  ) -> StoreWrite.Result { StoreWrite.Result() }

  // For a store that commits at once.
  func finish(_ write: inout StoreWrite) {}
  func pendingVersion(_ key: Bytes, _ hash: UInt64) -> UInt64 { 0 }

  func get(
    _ count: Int, at moment: Moment, key: (Int) -> (Bytes, UInt64),
    found: (Int, consuming Block?, Failure?) -> Void
  ) {
    for index in 0..<count {
      do throws(Failure) {
        let (key, hash) = key(index)
        found(index, try get(key, hash, at: moment, isAccess: true), nil)
      } catch {
        found(index, nil, error)
      }
    }
  }

  var ages: Ages { limits.ages }

  var isOrdered: Bool { true }
  func place(of hash: UInt64) -> Int64 { 0 }
  // For a store without that order.
  func keys(
    tagged tag: Bytes?, after key: Bytes?, limit: Int, at moment: Moment?, visit: (Bytes) -> Void
  ) throws(Failure) -> Int { 0 }

  // For a store whose reads find no damage.
  var owesWork: Bool { false }
  func doOwedWork() {}

  var isRecovering: Bool { false }
  var files: (any FileStorage)? { nil }

  var forking: (any ForkingStorage)? { nil }
}

/// The numbers that the tiers above go by, and share with other processes.
struct StorageSharing {
  /// The first version that no write in this directory has had.
  let firstVersion: UInt64
  /// Where versions are drawn from; all processes that have the store draw from it. Nil: no other
  /// process has the store, and the cache counts for itself.
  var nextVersion: UnsafeMutablePointer<Atomic<UInt64>>?
  /// Selected by the store's hash of keys. Nil: no other process has the store. Then no write has a
  /// condition.
  var counters: CoherenceCounters?
}

/// What came of `Storage.copy`.
enum ValueCopy {
  case copied(Look)
  case absent
  /// It does not fit. With the sizes.
  case tooLarge(Look)
  /// What is stored is not the value itself, or the store has no way to do this.
  case refused
}
