import CSystem
import Synchronization

/// The log-structured store. Entries are appended to a log, and an index of 8-byte words has their
/// addresses. Any number of processes have both in their memory.
///
/// The directory, mode 0700
///
///     hutch.lock       empty; its locks show which processes live (LogMember)
///     hutch-index      the state, the lock, and the tables and pages below; mapped
///     hutch-log        segments of one size, 16 KB to 16 MB; mapped
///     hutch-checkpoint  what of the log a loss of power leaves (LogCheckpoint)
///     content/         files of large values, each named by one entry (LogStorage+Files)
///     trash/           content files that no entry names any more, until they are deleted
///     *.new            an index or a log that is being made
///     manifest.sqlite  tells a library without this store that a newer one made it (LogStub)
///
/// Index (LogFormat.swift)
///
///     head         what the directory is, limits, lock, state, redo record: 4 KB
///     segment table  65,536 pairs of words: the place in the log that a segment has, and how much
///                    of it lives
///     page table     2^20 words: the page that has the slots of some keys
///     shared         what memory tiers go by: 260 KB, beside the limit (LogShared)
///     pages          of 4 KB: 64 buckets of 8 slots, a bucket a cache line
///
/// A key's hash leads to a page, to a bucket in it, and to a tag; a lookup looks through at most
/// four buckets of the one page. A page whose four buckets are full is divided: two new ones
/// are filled, and come into force together. So the index grows with the entries, 4 KB at a time,
/// and a page that is in force does not change its keys.
///
/// A slot's address is the entry's place in all that was ever appended, and is used once. The
/// upper part is the number of a segment. The segment table has the segment's place, unless the
/// segment has gone. So no slot has to be invalidated: a slot that names an entry in a segment that
/// has gone, or before `floor`, names no entry. The slot of an entry that was evicted is free, and
/// is the entry's ghost until another entry takes it. The addresses are enough for a petabyte. A
/// log that has used half of them is made anew, empty, by the next opening that is alone.
///
/// Every operation, in the order of its stores to shared memory. All of them are made with the lock
/// held, but for `use` and `accessed`.
///
///     any write of a key  its counter, if others have the directory open (LogMarks); what follows;
///                its counter again
///     put        the entry, above the head. Redo: slot, head, count, live, files; what lives of
///                the segments of the entry and of the one before, as in all that follows
///     touch      as a put of the same value with other times
///     remove     a record of it, above the head. Redo: slot, count, live, files, head. A trim
///                removes so, too. Without room for the record: redo of the others; then the entry
///                becomes the record, by one store. So does an expired one that a walk removes.
///                Of a key without an entry: a record of what the cleaner has passed, if one is
///                needed. Redo: head, `passed`
///     clear      redo: floor, heads, count, live, files
///     new segment  the file is made longer, or there is a spare segment. Redo: segment table,
///                state. Then its first entry: head
///     release    redo: the oldest segment out of the table, state. It is the spare one then, or
///                its place is given back (LogStore+Places)
///     clean      an entry of an oldest segment at a time. If it is dead: `cleaning`, one store.
///                If it is evicted: redo: slot, count, live, files, cleaning. If it is kept: a copy
///                above the other stream's head; redo: slot, head, moved, cleaning. A whole
///                segment in which nothing lives: `cleaning`, one store
///     end of a kept entry  before its redo: one store behind the entry (LogEntry)
///     divide     two pages that are not in force. Redo: page table, state
///     read       `use` of the slot by an exchange, `accessed` of the entry by another
///
/// A kill before the redo record's count is stored leaves the state before the operation. A kill
/// after it leaves the state after the operation, once the next writer has completed the record
/// (RedoRecord). There is no third state, so there is no recovery.
///
/// Readers take no lock. A reader finds the slot, reads the entry's head once and takes every size
/// from there, copies the value, and then looks whether the segment is still where it was. If it is
/// not, the copy may be any bytes, and the reader begins again. A miss counts only if the page is
/// still in force, and no slot whose tag fitted has changed since it was read: the cleaner may have
/// appended the entry anew.
///
/// Limits. The number of segments keeps `cost`, which includes the index's pages, at any moment;
/// two segments and the index's first pages, 60 KB, always exist. A limit below that is kept by the
/// bytes of the entries. `count` is kept exactly. If no segment may be added, a put cleans as much
/// as it appends (LogStore+Cleaning). Which entries are evicted follows from the two streams of
/// segments (LogStore+Streams). Before the log grows, an oldest segment that is mostly dead is used
/// again (LogStore+Reuse). Without a limit no entry is evicted: once less than half of the log is
/// in use, the oldest segments are cleaned, and every entry in them is kept.
///
/// Invariants, for the holder of the lock, with no redo pending
///     - one slot names an entry whose key's hash leads to it, and no other slot names that key
///     - `count` slots name entries that are there, whose bytes are `live`, 16-byte units counted;
///       of these bytes `files` are content files, whole blocks counted, each of one entry
///     - the table says of each segment how many units its entries have that slots name
///     - segments that are in the table have different places below `places`
///     - every segment's bytes begin with entries without a gap: up to the head in the active
///       one, else to the last that found room
///     - no slot names an entry of a stream's oldest segment below the stream's `cleaning`; a slot
///       that is a ghost names none
///
/// A power loss. Pages go to the disk in any order. In another boot the index counts only if the
/// last process to close it has written everything (`clean`). That flag is removed, on the disk,
/// before the first change. Else a new index is made from the last checkpoint and the log
/// (LogStore+Checkpoint, +Recovery, +Rebuilding), or, without a checkpoint, an empty store.
///
/// Threads and processes. Many may call any function at once, but for `open` and `close`. A process
/// and its forked child have the directory open as any two processes have (`beginInChild`). The
/// lock comes after all others but those of `observer`, which is told under it which entries go. A
/// process that is stopped with the lock held makes writers wait, up to their deadlines, and no
/// reader.
final class LogStore: @unchecked Sendable {
  let directory: Directory
  let member: LogMember
  /// The store that its LogStorage had before this one, until no call can use it any more.
  var earlier: LogStore?
  let indexFile: Descriptor
  let logFile: Descriptor
  /// True if the files are on tmpfs.
  let isInMemory: Bool

  let words: SharedWords
  let logBase: UnsafeMutableRawPointer
  /// A segment has 2^n bytes, and 2^m units.
  let segmentShift: Int
  let unitShift: UInt64
  let counters: StorageCounters
  /// Reads and conditions do not see an entry of another codec than this one and 0. Set before
  /// anything else uses the store.
  var codecID: UInt32 = 0
  /// True if the tiers above have the same hash. Set before anything else uses the store.
  var hasHashOfTiers = false
  // What the opening has found, for the logger.
  var hasNewLimits = false
  /// An index was made for a log that was there.
  var hasNewIndex = false

  /// How many places of the log, and pages of the index, this process knows to be in the files.
  /// Relaxed: they only grow while a directory is open.
  let knownPlaces = Atomic<Int>(0)
  let knownPages = Atomic<Int>(0)
  /// The pages of the segment table that the file is known to have, a bit each. Protected by the
  /// lock.
  var knownSeats = InlineArray<4, UInt64>(repeating: 0)
  /// This process's, while the limits are the directory's. Set while the store is opened.
  var agesActOnTrim = false
  /// True if the flag of a clean end has been removed. Protected by the lock.
  var hasBegun = false

  /// True while a thread of this process writes a checkpoint.
  let isWritingCheckpoint = Atomic<Bool>(false)

  /// What was appended before this address is on the disk. Stored with `syncLock` held, with
  /// release; loaded without it, with acquire.
  let synced = Atomic<UInt64>(0)

  /// The entry that the write under way replaces; 0: none. Protected by the lock. The observer is
  /// not told if the cleaner removes this entry: for the tiers above the write removes it.
  var replaced: LogAddress = 0

  /// How the cleaner chooses what goes. Relaxed: each entry is judged by itself.
  let livePolicy = Atomic<UInt8>(EvictionPolicy.adaptive.rawValue)

  /// Protected by the lock.
  var round = LogRound()

  /// The address at which the cleaner goes on, and the hash of the key there, which was computed to
  /// prefetch the slot. Another process may have cleaned on since. Protected by the lock.
  var ahead: (position: LogAddress, hash: UInt64) = (0, 0)

  /// The store tells it, with the lock held, of the entries that the store removes by itself. Set
  /// before the first write.
  unowned(unsafe) var observer: (any StorageObserver)?
  /// The cache's. Set before anything is written; nil: the store is used without a cache.
  unowned(unsafe) var clock: Clock?
  /// The entries that were removed so, and of which the observer is still to be told with no lock
  /// held.
  let owed = LogOwed()
  /// Content files that no entry names any more.
  let dead = LogDeadFiles()
  /// Content files that are on their way to an entry. `loose` counts them.
  let inFlight: FilesInFlight
  /// The number of the content file that a touch carries from one entry to the next (0: there is
  /// none), and whether its entry has been evicted meanwhile. Protected by the lock.
  var carried: UInt64 = 0
  var hasLostCarried = false

  // The last, as in DiskTier.
  /// Held while the log is synced (LogStore+Durability). No lock is taken under it.
  let syncLock = Lock()
  let hash: KeyedHash
  let check: LogCheck
  /// Changes only in the child of a fork, which has no other thread then.
  private(set) var lock: LogLock
  private let index: Mapping
  private let log: Mapping

  init(
    _ directory: Directory, _ member: LogMember, _ indexFile: consuming Descriptor,
    _ logFile: consuming Descriptor, _ index: consuming Mapping, _ log: consuming Mapping,
    _ counters: StorageCounters
  ) {
    let words = SharedWords(index.base)
    inFlight = FilesInFlight { words.add(IndexAt.loose, $0) }
    self.counters = counters
    self.directory = directory
    self.member = member
    self.words = words
    logBase = log.base
    lock = LogLock(words, indexFile.number, member)
    let secrets = (
      words.load(IndexAt.secrets), words.load(IndexAt.secrets + 8),
      words.load(IndexAt.secrets + 16), words.load(IndexAt.secrets + 24)
    )
    hash = KeyedHash(secrets.0, secrets.1, secrets.2, secrets.3)
    check = LogCheck(secrets: secrets)
    unitShift = words.load(IndexAt.format) >> 32
    segmentShift = Int(unitShift) + 4
    mappedPlaces = min(log.byteCount &>> segmentShift, IndexAt.seatCount)
    mappedPages = (index.byteCount - IndexAt.slots) / LogPages.pageSize
    self.index = index
    self.log = log
    self.indexFile = indexFile
    self.logFile = logFile
    isInMemory = directory.isInMemory
    noteNoReaders()
  }

  /// The numbers of places and of pages that the mappings reach, and those that may be used: every
  /// process that has the directory open is to find what is there.
  let mappedPlaces: Int
  let mappedPages: Int
  @inline(__always)
  var mostPlaces: Int { min(mappedPlaces, Int(clamping: words.load(IndexAt.mappedPlaces))) }
  var mostPages: Int { min(mappedPages, Int(clamping: words.load(IndexAt.mappedPages))) }

  /// No other process has the directory open.
  func reachAlone() {
    words.store(IndexAt.mappedPlaces, UInt64(mappedPlaces))
    words.store(IndexAt.mappedPages, UInt64(mappedPages))
  }

  /// The files, which this process has mapped, do not grow beyond its mappings from here on. Fails
  /// if they have.
  func reachWithOthers() throws(Failure) {
    try locked { () throws(Failure) in
      guard words.load(IndexAt.places) <= UInt64(mappedPlaces),
        words.load(IndexAt.pages) <= UInt64(mappedPages)
      else { throw Failure(.noMemory, "the process has no addresses for the log") }
      words.store(IndexAt.mappedPlaces, UInt64(mostPlaces))
      words.store(IndexAt.mappedPages, UInt64(mostPages))
    }
  }

  /// The walk for expired entries, the reads for which places wait, and the work after a recovery,
  /// as far as this process has come; and the lines that have not been seen without a call since
  /// this store has taken the place of an earlier one.
  /// Protected by `LogStorage.sweepLock`.
  var sweep = LogSweep()
  var readers = LogReaders()
  var rebuilding = LogRebuild()
  var linesBefore = UInt64.max

  var segmentSize: Int { 1 &<< segmentShift }
  var segmentUnits: UInt64 { 1 &<< unitShift }

  /// Called before a fork: takes the locks that are held for a few steps only.
  func hold(until end: Deadline) -> Bool {
    guard owed.hold(until: end) else { return false }
    if dead.hold(until: end) {
      if inFlight.hold(until: end) { return true }
      dead.letGo()
    }
    owed.letGo()
    return false
  }

  func letGo() {
    inFlight.letGo()
    dead.letGo()
    owed.letGo()
  }

  /// Called in the child of a fork before anything else uses the store: the child is a member of
  /// its own from here on. Memory and files stay as they were. Fails if no more processes can have
  /// the directory open; then nothing may use the store.
  func beginInChild() throws(Failure) {
    try member.beginInChild(directory)
    lock = LogLock(words, indexFile.number, member)
    // The parent may be closing the directory.
    hasBegun = false
    // Another thread of the parent may have been in the midst of a write.
    ahead = (0, 0)
    replaced = 0
    carried = 0
    noteNoReaders()
    // The parent's thread that writes one is not here.
    isWritingCheckpoint.store(false, ordering: .relaxed)
    syncLock.renew()
  }

  func syncIndex() throws(Failure) {
    guard let status = Files.status(of: indexFile.number) else {
      throw .system("cannot look at the index")
    }
    do throws(Failure) {
      try index.sync(0, min(status.size, index.byteCount))
    } catch {
      words.store(IndexAt.failedToSync, 1)
      throw error
    }
  }

  /// A sync that fails may be tried again: a caller stores to the head each time.
  func syncHead() throws(Failure) { try index.sync(0, IndexAt.seats) }

  /// The counters by which other memory tiers know that their copies are stale.
  @inline(__always) var marks: LogMarks { LogMarks(words) }

  /// The counter from which all processes draw their versions.
  var nextVersion: UnsafeMutablePointer<Atomic<UInt64>> { words[IndexAt.versions] }

  var count: UInt64 { words.load(IndexAt.count) }
  /// The bytes of the existing entries, with their content files.
  var live: UInt64 { words.load(IndexAt.live) }

  /// The bytes of content files that entries name.
  var files: UInt64 { words.load(IndexAt.files) }

  var ages: Ages {
    Ages(
      timeToLive: Int64(bitPattern: words.load(IndexAt.limits + 24)),
      timeToIdle: Int64(bitPattern: words.load(IndexAt.limits + 32)), actOnTrim: agesActOnTrim)
  }

  var limits: TierLimits {
    var limits = TierLimits(TierLimits.Words { words.load(IndexAt.limits + $0 * 8) })
    limits.ages.actOnTrim = agesActOnTrim
    return limits
  }

  static let stoppedWords: StaticString = "a process that was stopped has the directory's lock"

  /// Runs `body` with the lock held. Fails with `busy` if the lock cannot be had in time. `end`
  /// nil: the caller has no deadline (LogLock).
  @inline(never)
  func locked<R>(
    until end: Deadline? = nil, _ body: () throws(Failure) -> R
  ) throws(Failure) -> R {
    try lockToChange(until: end)
    defer { endChange() }
    return try body()
  }

  @inline(never)
  private func lockToChange(until end: Deadline?) throws(Failure) {
    guard lock.lock(until: end) else {
      throw Failure(.busy, LogStore.stoppedWords)
    }
    do throws(Failure) {
      try begin()
    } catch {
      unlock()
      throw error
    }
  }

  @inline(never)
  private func endChange() { unlock() }

  /// Ends what `lock.lock` has begun. Everything that was changed has been committed.
  @inline(__always)
  func unlock() {
    dead.settle()
    lock.unlock()
  }

  /// Called before a change. Before the first one it removes the flag of a clean end.
  @inline(__always)
  func begin() throws(Failure) {
    if !hasBegun { try takeMarkBack() }
  }
}

extension Atomic where Value == UInt64 {
  @inline(__always)
  borrowing func count() { wrappingAdd(1, ordering: .relaxed) }

  /// The same, for a counter that changes with the directory's lock held only. An exchange would
  /// wait for all stores to the log before it.
  @inline(__always)
  borrowing func countLocked() {
    store(load(ordering: .relaxed) &+ 1, ordering: .relaxed)
  }
}
