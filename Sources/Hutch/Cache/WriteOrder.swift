import CSystem
import Synchronization

/// The order of a cache's writes: of two writes of a key it decides which is the newer one,
/// whatever the order in which their threads run.
///
/// INVARIANTS
/// 1 A write of a key holds the key's stripe from before its version is drawn until it is
///   submitted to the store and done in memory. A clear holds all stripes for the same steps. So
///   both tiers see the writes of a key in the order of their versions.
/// 2 A late writer has a reservation from the moment at which its order is decided: a task from its
///   submission, or from the start of its group, a load from its beginning. A write or a clear that
///   comes after that moment overtakes the reservation (`noteWrite`, `beginClear`), in the critical
///   section in which it writes. The late writer asks `isOvertaken` in the critical section in
///   which it would write, and writes nothing if the answer is true. One of two critical sections
///   comes second, so an older value never comes after a newer one.
/// 3 `clearing` tells of a clear that has been submitted and that memory has not carried out for
///   all keys. A condition is decided as if the clear had been carried out.
///
/// The writes that overtake a reservation:
///
///   the write of        a reservation of a task   of a load
///   a call              overtaken                 overtaken
///   a task              not (1)                   overtaken
///   a load              not (2)                   overtaken, but for its own
///   a call that takes   not                       overtaken
///   a copy alone (3)
///
///   (1) The tasks of a key run in the order of their submission: a task that still has its
///       reservation is later.
///   (2) A load is older than any write that is still to come.
///   (3) A removal through the memory view of a cache with a store.
///
/// A removal of the entries with a tag overtakes, as a clear does, the older reservations that turn
/// out to write with that tag. It is recorded under a hash of the tag, so it may overtake a
/// reservation of another tag too.
///
/// VERSIONS. A reservation has a version, drawn when it is made. A clear records its own version,
/// and a late writer compares the two: the clear does not visit the reservations. The value that a
/// load stores has the reservation's version, since its key has not been written in between. The
/// value that a task writes has a version of its own, since a load's write may have come in
/// between.
///
/// MEMORY-ONLY CACHES decide and write under the lock of the key's shard. There a write takes the
/// stripe only if a reservation of its hash exists (`isReserved`), or if a listener has to be told.
/// A write that looks just before a reservation is made counts as the earlier one: the two calls
/// overlap.
///
/// THE STORE is given each write under the key's stripe (`submit`). An entry that waits to be
/// written back, and is older, makes way in the same critical section.
///
/// WHAT READS SEE MEANWHILE. While a stripe is free, the queue and the store show nothing that is
/// older than memory's entry of the key. So a read may ask memory first, then what is below
/// (Cache+Search.swift). A write that changes the tiers one after the other keeps to it as follows:
///
///   the write                    changes         what a read that misses memory does in between
///   a put, whatever its tiers    memory, store   waits for the stripe (Stripes, bit 24): what it
///   and the write policy                         finds below is the put, or the removal of what
///                                                the put replaces
///   a removal, a pop, by a tag   memory, store   waits likewise
///   a touch of memory's entry    memory, store   waits likewise: the store's entry has the old end
///   an entry that is written     store, memory   finds it in the queue, or in the store
///   back
///   a clear                      store, memory   misses the key
///   a write that the store       store, memory   finds what the store has decided; memory's copy
///   decides                                      does not count any more
///   the memory view's alone      memory          finds the store's entry, which is the same one
///   a removal by the disk view   as any removal, but memory keeps what the store does not have
///   an eviction, an expiry       one tier        finds what the other tier has: the same entry
///
/// The store shows a write when `Storage.write` returns. A log has carried it out by then. The
/// queue of a store whose commits are slow shows it in one step in the place of what it showed
/// before (WriteQueue). A put that the store refuses, and a write that fails, hide the older entry
/// all the same (Bars).
///
/// LOCKS. Stripes first, ascending; `lock` is taken under a stripe, under the lock of the loads or
/// of a queue of tasks, or under none, and never under a shard's. Under it nothing is taken, except
/// the locks that a fork takes after it.
final class WriteOrder {
  let stripes: Stripes
  /// Versions are drawn under the key's stripe, or in a cache without a store under its shard's
  /// lock.
  let versions: Versions
  /// Entries that memory has given up and the store has yet to be given.
  let staged: WriteBackQueue

  /// Protects the lists below, the reservations that they link, and the clears. A load takes it
  /// five times. Its memory is the cache line before the lists.
  private let lock: LockInPlace
  /// Two lists by hash, of tasks and of loads: a task overtakes loads alone, and does not walk
  /// along the tasks, of which any number may wait. The heads change under `lock`, with release,
  /// and are looked at without it.
  private let buckets: UnsafeMutablePointer<Bucket>
  private static let bucketCount = 1024
  private static let lineSize = 64
  private typealias Bucket = Atomic<UInt>
  /// How many reservations there are. Changes under `lock`, with release: a call that comes after
  /// a submission sees it.
  private let reserved = Atomic<Int>(0)

  /// A clear has overtaken the reservations of tasks, and those of loads, with lower versions.
  private var tasksClearedUpTo: UInt64 = 0
  private var loadsClearedUpTo: UInt64 = 0
  /// A removal of a tag has overtaken the reservations with lower versions that write with the tag.
  /// The index is made of the tag's hash.
  private var tagsRemovedUpTo = InlineArray<64, UInt64>(repeating: 0)
  /// How many clears have begun and are not carried out in memory. Changes under `lock`; a look
  /// without it is enough for a write, which holds a stripe, as each clear has begun with all.
  private let clearsUnderWay = Atomic<Int>(0)
  private var clearsNow = Clearing()

  /// The entries that clears under way take.
  struct Clearing {
    /// They take every entry with a version up to this one,
    var all: UInt64 = 0
    /// and every entry that the store has too with a version up to this one.
    var backed: UInt64 = 0
  }

  private init(
    _ versions: Versions, _ staged: WriteBackQueue, _ stripes: consuming Stripes,
    _ memory: UnsafeMutableRawPointer
  ) {
    self.versions = versions
    self.staged = staged
    self.stripes = stripes
    lock = LockInPlace(at: memory)
    lock.initialize()
    buckets = (memory + WriteOrder.lineSize)
      .bindMemory(to: Bucket.self, capacity: 2 * WriteOrder.bucketCount)
  }

  static func make(_ versions: Versions) throws(Failure) -> WriteOrder {
    let staged = try WriteBackQueue.make()
    let stripes = try Stripes()
    return WriteOrder(versions, staged, stripes, try Heap.mapLines(lineCount))
  }

  deinit {
    Heap.unmap(
      UnsafeMutableRawPointer(buckets) - WriteOrder.lineSize, lines: WriteOrder.lineCount)
  }

  /// Without reservations most of them take no memory.
  private static var lineCount: Int {
    1 + 2 * bucketCount * MemoryLayout<Bucket>.stride / lineSize
  }

  // MARK: reservations

  /// The right to write a key later. It is linked into the lists by its address, which does not
  /// change before it is withdrawn. Only the order uses its fields. One that is overtaken stays so:
  /// it leaves its list at once, and no later write comes by it.
  struct Reservation {
    fileprivate var hash: UInt64 = 0
    fileprivate(set) var version: UInt64 = 0
    fileprivate var isLoads = false
    fileprivate var isListed = false
    fileprivate var isOvertaken = false
    fileprivate var next: LateWrite?
    fileprivate var previous: LateWrite?
  }

  private func bucket(_ hash: UInt64, ofLoads: Bool) -> UnsafeMutablePointer<Bucket> {
    buckets + 2 * KeyedHash.place(of: hash, mask: WriteOrder.bucketCount - 1) + (ofLoads ? 1 : 0)
  }

  private func first(_ bucket: UnsafeMutablePointer<Bucket>) -> LateWrite? {
    LateWrite(bitPattern: bucket.pointee.load(ordering: .relaxed))
  }

  private func setFirst(_ bucket: UnsafeMutablePointer<Bucket>, _ late: LateWrite?) {
    bucket.pointee.store(UInt(bitPattern: late), ordering: .releasing)
  }

  /// Makes a reservation; the caller owes `withdraw`. For a load the key's stripe is held.
  func reserve(_ late: LateWrite, _ hash: UInt64, forLoad isLoads: Bool) {
    lock.lock()
    let bucket = bucket(hash, ofLoads: isLoads)
    late.pointee.hash = hash
    late.pointee.version = versions.draw()
    late.pointee.isLoads = isLoads
    late.pointee.isListed = true
    late.pointee.next = first(bucket)
    late.pointee.next?.pointee.previous = late
    setFirst(bucket, late)
    reserved.wrappingAdd(1, ordering: .releasing)
    lock.unlock()
  }

  /// Ends a reservation. Later calls do nothing.
  func withdraw(_ late: LateWrite) {
    lock.lock()
    defer { lock.unlock() }
    if late.pointee.isListed { unlist(late) }
  }

  private func unlist(_ late: LateWrite) {
    late.pointee.isListed = false
    if let previous = late.pointee.previous {
      previous.pointee.next = late.pointee.next
    } else {
      setFirst(bucket(late.pointee.hash, ofLoads: late.pointee.isLoads), late.pointee.next)
    }
    late.pointee.next?.pointee.previous = late.pointee.previous
    late.pointee.next = nil
    late.pointee.previous = nil
    reserved.wrappingSubtract(1, ordering: .relaxed)
  }

  /// True if there is a reservation.
  @inline(__always)
  var hasReservations: Bool { reserved.load(ordering: .acquiring) != 0 }

  /// True if there may be a reservation of this hash: then a write of it takes the stripe.
  @inline(__always)
  func isReserved(_ hash: UInt64) -> Bool { hasReservations && isListed(hash) }

  @inline(never)
  private func isListed(_ hash: UInt64) -> Bool {
    let tasks = bucket(hash, ofLoads: false)
    return tasks[0].load(ordering: .acquiring) | tasks[1].load(ordering: .acquiring) != 0
  }

  /// A write of a key is done in this critical section: the key's stripe is held. `late`: the
  /// writer's reservation; nil: a call writes. `ofCopy`: the store keeps the entry.
  @inline(never)
  func noteWrite(_ hash: UInt64, by late: LateWrite? = nil, ofCopy: Bool = false) {
    if isReserved(hash) { overtake(hash, by: late, ofCopy: ofCopy) }
  }

  @inline(never)
  private func overtake(_ hash: UInt64, by late: LateWrite?, ofCopy: Bool) {
    lock.lock()
    var ofLoads = true
    while true {
      var next = first(bucket(hash, ofLoads: ofLoads))
      while let other = next {
        next = other.pointee.next
        guard other.pointee.hash == hash, other != late else { continue }
        other.pointee.isOvertaken = true
        unlist(other)
      }
      guard ofLoads, late == nil, !ofCopy else { break }
      ofLoads = false
    }
    lock.unlock()
  }

  /// How many tasks, or loads, of this hash a write comes by: for tests.
  func length(_ hash: UInt64, ofLoads: Bool) -> Int {
    lock.lock()
    defer { lock.unlock() }
    var length = 0
    var next = first(bucket(hash, ofLoads: ofLoads))
    while let late = next {
      length += 1
      next = late.pointee.next
    }
    return length
  }

  /// True if a later write has been done. Under the key's stripe the answer holds until the stripe
  /// is unlocked.
  func isOvertaken(_ late: LateWrite) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    return late.pointee.isOvertaken
      || late.pointee.version
        < (late.pointee.isLoads ? loadsClearedUpTo : tasksClearedUpTo)
  }

  /// As above for a write with this tag: also true if the entries with the tag have been removed.
  func isOvertaken(_ late: LateWrite, tag: Bytes) -> Bool {
    isOvertaken(late) || tag.count > 0 && isRemoved(tag, after: late)
  }

  /// True if the entries with this tag have been removed since the reservation was made.
  func isRemoved(_ tag: Bytes, after late: LateWrite) -> Bool {
    let slot = WriteOrder.slot(of: tag)
    return lock.withLock { late.pointee.version < tagsRemovedUpTo[slot] }
  }

  private static func slot(of tag: Bytes) -> Int { Int(Checksum.xxh3(tag) & 63) }

  /// The entries with this tag are about to be removed. A late writer that has not been overtaken
  /// holds its stripe until its entry is in memory or submitted. This call takes all stripes, so
  /// the removal finds that entry.
  func noteRemoval(ofTag tag: Bytes) {
    guard hasReservations else { return }
    let slot = WriteOrder.slot(of: tag)
    stripes.lockAll()
    lock.withLock { tagsRemovedUpTo[slot] = versions.draw() }
    stripes.unlockAll()
  }

  // MARK: clears

  /// A clear is submitted in this critical section: all stripes are held. Returns its version.
  /// `endClear` is owed when memory has carried it out.
  func beginClear(ofMemory: Bool, ofStore: Bool) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    let version = versions.draw()
    overtakeAll(version)
    if ofMemory { clearsNow.all = version }
    if ofStore { clearsNow.backed = version }
    clearsUnderWay.wrappingAdd(1, ordering: .releasing)
    return version
  }

  func endClear() {
    lock.lock()
    if clearsUnderWay.wrappingSubtract(1, ordering: .releasing).newValue == 0 {
      clearsNow = Clearing()
    }
    lock.unlock()
  }

  /// A call is about to empty memory at once. `ofCopies`: the store keeps the entries. A late
  /// writer that has not been overtaken holds its stripe until its entry is in memory. This call
  /// takes all stripes, so the caller finds that entry in memory.
  func noteClear(ofCopies: Bool) {
    guard hasReservations else { return }
    stripes.lockAll()
    lock.lock()
    overtakeAll(versions.draw(), ofCopies: ofCopies)
    lock.unlock()
    stripes.unlockAll()
  }

  private func overtakeAll(_ version: UInt64, ofCopies: Bool = false) {
    loadsClearedUpTo = version
    if !ofCopies { tasksClearedUpTo = version }
  }

  /// The entries that clears under way take; nil: there is no clear. For a call that is later than
  /// the clear, with a stripe held or in a cache without a store.
  @inline(__always)
  var clearing: Clearing? {
    clearsUnderWay.load(ordering: .acquiring) == 0 ? nil : clearingNow
  }

  private var clearingNow: Clearing {
    @inline(never) get { lock.withLock { clearsNow } }
  }

  // MARK: submission

  /// Gives the store a write whose version is drawn and whose stripe is held. The caller owes
  /// `complete`. `isInChange`: after `beginChange`; this call does `endChange`.
  func give(
    _ write: inout StoreWrite, to storage: any Storage, at moment: Moment, isInChange: Bool = false
  ) {
    let stripe = Stripes.index(of: write.hash)
    write.time = moment.time
    if !isInChange { stripes.beginWrite(stripe) }
    storage.write(&write)
    // After the store shows the write: a reader looks here first.
    if !staged.isEmpty { makeWay(for: &write, at: moment, storage) }
    let isPending = write.ticket != nil
    if isPending && write.condition.isOfCaller { stripes.setUndecided(stripe, write.version) }
    if isInChange {
      stripes.endChange(stripe, isPending: isPending)
    } else if !isPending {
      stripes.endWrite(stripe)
    }
  }

  /// As `give`, and unlocks the stripe. Returns the stripe's state with the write.
  @discardableResult
  func submit(
    _ write: inout StoreWrite, to storage: any Storage, at moment: Moment, isInChange: Bool = false
  ) -> Stripes.State {
    let stripe = Stripes.index(of: write.hash)
    give(&write, to: storage, at: moment, isInChange: isInChange)
    let state = stripes.state(stripe)
    stripes.unlock(stripe)
    return state
  }

  /// A staged entry makes way for a newer write. The stripe is held.
  @inline(never)
  private func makeWay(
    for write: inout StoreWrite, at moment: Moment, _ storage: any Storage
  ) {
    guard let key = write.entry?.key, write.kind != .touch else { return }
    write.hasReplaced = staged.makeWay(
      for: write.kind, key, write.hash, write.version, at: moment, under: storage.ages)
  }

  /// Waits for the commit of a submitted write, if the store owes it. No lock is held.
  @inline(never)
  func complete(_ write: inout StoreWrite, in storage: any Storage) {
    if write.ticket != nil {
      storage.finish(&write)
      let stripe = Stripes.index(of: write.hash)
      // The store decides in the order of submission. A holder of the stripe may rely on what is
      // undecided, and this call does not wait for it: the commit of a later write does the same.
      if stripes.tryLock(stripe) {
        noteDecided(stripe, upTo: write.version)
        stripes.unlock(stripe)
      }
      stripes.endWrite(stripe)
    }
    if write.hasReplaced { write.result.existed = true }
    // Where nothing was carried out, the entry that was there is hidden all the same. `noMemory`
    // says that nothing has changed.
    if let failure = write.result.failure, failure.status == .noMemory {
      write.result.failure = failure.with(.io)
    }
  }

  /// Submits a write whose version is drawn and whose stripe is held, unlocks the stripe and waits
  /// for the commit. `isInChange`: as in `give`.
  func commit(
    _ write: inout StoreWrite, to storage: any Storage, at moment: Moment, isInChange: Bool = false
  ) {
    submit(&write, to: storage, at: moment, isInChange: isInChange)
    complete(&write, in: storage)
  }

  /// The version of the newest write of a stripe whose condition the store may have yet to decide;
  /// nil: all conditions are decided. The stripe is held.
  func newestUndecided(_ stripe: Int) -> UInt64? {
    let newest = stripes.undecided(stripe)
    return newest == 0 ? nil : newest
  }

  /// The store has decided the writes of a stripe up to this version. The stripe is held.
  func noteDecided(_ stripe: Int, upTo version: UInt64) {
    if stripes.undecided(stripe) <= version { stripes.setUndecided(stripe, 0) }
  }

  // MARK: fork

  /// Takes every lock, so that no write begins. False: not in time, and no lock is held.
  func lockAll(until end: Deadline) -> Bool {
    guard stripes.lockAll(until: end) else { return false }
    if lock.lock(until: end) { return true }
    stripes.unlockAll()
    return false
  }

  func unlockAll() {
    lock.unlock()
    stripes.unlockAll()
  }
}

/// The reservation of a write that comes later.
typealias LateWrite = UnsafeMutablePointer<WriteOrder.Reservation>
