import CSystem
import Synchronization

/// Dirty entries that memory has given up and the store has yet to be given. A read that finds
/// nothing in memory looks here before it looks into the store (Cache+Below.swift).
///
/// INVARIANTS
/// 1 An entry is here before the lock of the shard that gives it up is free, and until the store
///   shows the entry itself, or a newer write of its key. So there is no moment at which no tier
///   has the entry.
/// 2 The table has at most one entry of a key, the newest that memory has given up, and no entry
///   that is older than a write of its key that the store has been given (`makeWay`).
/// 3 A clear of all tiers removes what is here, and refuses what memory gives up later with an
///   older version.
///
/// The states of an entry here:
///
///     in the table   in the list   the entry
///     yes            yes           waits to be written
///     yes            no            is in the batch of the thread that writes it
///     no             yes or no     need not be written: the store has it, or a newer write
///
/// Few entries wait at any time: a call that makes entries leave memory takes a batch when enough
/// wait. So the number of entries that are neither in memory nor on disk does not grow with the
/// number of evictions.
final class WriteBackQueue {
  /// A call that makes an entry leave memory writes a batch if the list has this many entries, or
  /// this many bytes.
  private static let most = 32
  private static let mostBytes = 1 << 20
  /// The most entries of a batch, which are written together.
  private static let batch = 64

  /// Chains by hash, and the number of entries in all of them. The number changes under the lock,
  /// with release. Readers load it without the lock, with acquire: a reader that does not find an
  /// entry here because the store has it finds the entry in the store.
  private let table: ChainedTable<StagedEntry>
  private let inTable = Atomic<Int>(0)
  /// The list, in the order in which the entries were staged.
  private var first: StagedEntry?
  private var last: StagedEntry?
  private var waiting = 0
  private var bytes = 0
  /// The version of the newest clear of all tiers.
  private var clearedUpTo: UInt64 = 0
  /// How many entries have ever been added to the list, and taken from it.
  private var added: UInt64 = 0
  private var taken: UInt64 = 0
  /// The tickets of the batches that are being written. A ticket is the number of entries that were
  /// taken before its batch.
  private var batches: [UInt64] = []
  private var waiters = 0
  private var isEnded = false
  /// `count` and `isDue`. They change under the lock; loads are relaxed, and may be out of date.
  private let unwritten = Atomic<Int>(0)
  private let due = Atomic<Bool>(false)
  /// Set before the first entry is staged.
  var events: Events?
  /// The number of reads that found their entry here. Relaxed: it is a statistic.
  private let hitCount = Atomic<UInt64>(0)

  // The last: the instructions that reach the fields before them are shorter.
  /// Protects the fields that are not atomic, and the entries' fields. Taken under a stripe or a
  /// shard's lock; only those of events, a lane's and the listener's place's, are taken under it.
  private let lock = Lock()
  /// Signalled when a batch has been written while a thread waits for it.
  private let written = Condition()

  private init(_ table: consuming ChainedTable<StagedEntry>) { self.table = table }

  static func make() throws(Failure) -> WriteBackQueue {
    WriteBackQueue(try ChainedTable(size: 256))
  }

  /// True if so many entries wait that a call should write a batch.
  @inline(__always)
  var isDue: Bool { due.load(ordering: .relaxed) }

  /// The number of entries that are submitted and not known to be committed, those that memory
  /// keeps included. They count neither as memory's alone nor as the store's. For a moment after
  /// its commit an entry is counted twice rather than not at all.
  private let submitted = Atomic<Int>(0)
  var underWay: UInt64 { UInt64(max(0, submitted.load(ordering: .relaxed))) }

  /// An entry is submitted (1), or its commit is over (-1).
  func note(_ change: Int) { _ = submitted.wrappingAdd(change, ordering: .relaxed) }

  /// The number of entries that were staged and whose batch is not over.
  var count: UInt64 { UInt64(max(0, unwritten.load(ordering: .relaxed))) }

  // MARK: the table

  /// True if no read has to look here.
  @inline(__always)
  var isEmpty: Bool { inTable.load(ordering: .acquiring) == 0 }

  /// The number of entries that are in no tier.
  var stagedCount: UInt64 { UInt64(max(0, inTable.load(ordering: .relaxed))) }

  var hits: UInt64 { hitCount.load(ordering: .relaxed) }

  private func remove(_ staged: StagedEntry) {
    _ = table.remove(staged)
    staged.isInTable = false
    inTable.wrappingSubtract(1, ordering: .releasing)
  }

  /// The entry of a key, with its last access; nil if there is none or it has expired under the
  /// store's ages. `isAccess`: notes the access.
  func find(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, under ages: Ages, isAccess: Bool = false
  ) -> StagedEntry.Found? {
    lock.lock()
    defer { lock.unlock() }
    guard let staged = table.find(key, hash), staged.isAlive(at: moment, under: ages) else {
      return nil
    }
    if isAccess {
      staged.accessed = max(staged.accessed, moment.time)
      hitCount.wrappingAdd(1, ordering: .relaxed)
    }
    return StagedEntry.Found(block: staged.entry.retained(), accessed: staged.accessed)
  }

  /// The store shows a write of a key: an older entry makes way here, and so does the entry that
  /// the write itself stores. The stripe is held. True: an entry that had not expired, or that the
  /// write stores, has made way, here or before for the entry of a put that has left memory by now.
  /// The listener is told of one that had expired.
  func makeWay(
    for kind: StoreWrite.Kind, _ key: Bytes, _ hash: UInt64, _ version: UInt64, at moment: Moment,
    under ages: Ages
  ) -> Bool {
    lock.lock()
    var gone: StagedEntry?
    if let staged = table.find(key, hash) {
      if staged.entry.version < version || kind == .put && staged.entry.version == version {
        remove(staged)
        gone = staged
      } else if staged.entry.version == version {
        // A removal of the same version removes what the tiers below had before the entry.
        gone = staged.older
        staged.older = nil
      }
    }
    let isThere =
      gone.map { $0.entry.version == version || $0.isAlive(at: moment, under: ages) } ?? false
    lock.unlock()
    if let gone, !isThere {
      events?.postRemoval(
        gone.entry.retained(), hasValue: true, .expired, .disk, Stripes.index(of: hash))
    }
    return isThere
  }

  /// All stripes are held. `isOfAllTiers`: an entry that memory gives up later with an older
  /// version is refused.
  func clear(upTo version: UInt64, isOfAllTiers: Bool) {
    lock.lock()
    if isOfAllTiers { clearedUpTo = version }
    let dropped = takeTable()
    lock.unlock()
    _ = dropped
  }

  /// Takes every entry out of the table. The caller frees them after the lock.
  private func takeTable() -> [StagedEntry] {
    var dropped: [StagedEntry] = []
    while let staged = table.first() {
      dropped.append(staged)
      remove(staged)
    }
    return dropped
  }

  /// True if an entry that was taken is still to be written. Under the key's stripe the answer
  /// holds until the stripe is unlocked.
  func isStaged(_ staged: StagedEntry) -> Bool { lock.withLock { staged.isInTable } }

  /// The time of the last known read of an entry.
  func lastAccess(of staged: StagedEntry) -> Int64 { lock.withLock { staged.accessed } }

  /// An entry that was taken is not to be written any more.
  func drop(_ staged: StagedEntry) { lock.withLock { if staged.isInTable { remove(staged) } } }

  // MARK: the list

  /// Memory gives an entry up. False: all tiers have been cleared since the entry was put.
  func add(_ block: consuming Block, _ hash: UInt64, accessed: Int64) -> Bool {
    let staged = StagedEntry(block, hash, accessed)
    lock.lock()
    if staged.entry.version <= clearedUpTo {
      lock.unlock()
      return false
    }
    // Before another thread can write the entry, and the store evict it.
    if let events, events.wants(.didAdd) {
      events.post(
        Event(
          .didAdd, .writtenBack, staged.entry.retained(), hasValue: true, tiers: .disk,
          lane: Stripes.index(of: hash)))
    }
    let older = table.find(staged.entry.key, hash)
    // First: a read that looks without the lock must find one of the two here.
    table.insert(staged)
    inTable.wrappingAdd(1, ordering: .releasing)
    if let older {
      remove(older)
      older.older = nil
      staged.older = older
    }
    if let last { last.next = staged } else { first = staged }
    last = staged
    waiting += 1
    added += 1
    bytes &+= staged.entry.byteCount
    _ = unwritten.wrappingAdd(1, ordering: .relaxed)
    if waiting >= WriteBackQueue.most || bytes >= WriteBackQueue.mostBytes {
      due.store(true, ordering: .relaxed)
    }
    lock.unlock()
    return true
  }

  /// The end of the cache: an entry that memory gives up later is lost.
  func end() { lock.withLock { isEnded = true } }

  var hasEnded: Bool { lock.withLock { isEnded } }

  /// How many entries have been added by now.
  var position: UInt64 { lock.withLock { added } }

  /// Takes the entries that have waited longest, of those that were added before `position`.
  /// Returns the batch's ticket. Unless the batch is empty the caller owes `endBatch` with it.
  func take(before position: UInt64, into batch: inout [StagedEntry]) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    let ticket = taken
    while batch.count < WriteBackQueue.batch, taken < position, let staged = first {
      first = staged.next
      staged.next = nil
      if first == nil { last = nil }
      waiting -= 1
      taken += 1
      bytes &-= staged.entry.byteCount
      batch.append(staged)
    }
    if !batch.isEmpty { batches.append(ticket) }
    due.store(
      waiting >= WriteBackQueue.most || bytes >= WriteBackQueue.mostBytes, ordering: .relaxed)
    return ticket
  }

  func endBatch(_ ticket: UInt64, _ count: Int) {
    lock.lock()
    batches.removeAll { $0 == ticket }
    _ = unwritten.wrappingSubtract(count, ordering: .relaxed)
    let isAwaited = waiters > 0
    lock.unlock()
    if isAwaited { written.broadcast() }
  }

  /// Waits until other threads have written the batches that begin before `position`. Those threads
  /// may be within a codec of the host.
  func wait(before position: UInt64, until end: Deadline) {
    let before = ThreadState.stepAside()
    lock.lock()
    waiters += 1
    while batches.contains(where: { $0 < position }), !end.hasPassed {
      written.wait(lock, nanoseconds: min(end.left, 1_000_000_000))
    }
    waiters -= 1
    lock.unlock()
    ThreadState.stepBack(to: before)
  }
}

/// An entry on its way to the store.
final class StagedEntry: Chained {
  private let block: Block
  let hash: UInt64
  /// The time of the last known read. Protected by the queue's lock, like the fields below.
  fileprivate var accessed: Int64
  fileprivate var isInTable = true
  fileprivate var next: StagedEntry?
  /// The entry that this one has replaced in the table, before the put of this one was submitted.
  fileprivate var older: StagedEntry?
  var chain: StagedEntry?

  fileprivate init(_ block: consuming Block, _ hash: UInt64, _ accessed: Int64) {
    self.block = block
    self.hash = hash
    self.accessed = accessed
  }

  var entry: UnownedBlock { block.unowned }
  var key: Bytes { entry.key }

  /// Under the queue's lock.
  fileprivate func isAlive(at moment: Moment, under ages: Ages) -> Bool {
    var record = entry.record
    guard record.mayExpire(under: ages) else { return true }
    record.accessed = max(record.accessed, accessed)
    return !record.isExpired(at: moment.time, under: ages)
  }

  /// The result of a read.
  struct Found: ~Copyable {
    let block: Block
    let accessed: Int64
  }
}
