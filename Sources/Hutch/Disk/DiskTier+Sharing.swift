import CSystem
import Synchronization

/// The members of a directory: the openings of several processes (sharing SHARED), a process and
/// its forked children (any sharing), or one opening alone. There is one protocol for all of them.
///
/// Each member has connections of its own. A member that writes or checkpoints takes a turn: the
/// writer lock between processes, for one transaction or one checkpoint. At the beginning of its
/// turn the member learns what others have committed since its last one: the meta row, and the
/// limits, which are the manifest's. So counts and limits are right over all members, and
/// conditions are decided within the transaction. A read takes no turn; what it must know of
/// others' commits is in `SharedState`. EXCLUSIVE closes the door to other openings (WriterLock):
/// until its first fork such a member keeps its turn, and `SharedState` is memory of its own.
///
/// Versions are drawn from one number for all members. The opening that found itself alone has
/// leased them in the manifest, and every transaction extends the lease.
///
/// The kernel gives up the locks of a process that is killed. Other members put in order what it
/// has left: the next turn ends a transaction that was under way; a sweep removes content files
/// without rows once they are an hour old, or at once if its member is alone, since no other
/// member's can be on their way; every member empties the trash once a minute.
extension DiskTier {
  /// A turn, as a lock. Within the process it is `writerMutex`.
  struct WriterTurn {
    let tier: DiskTier

    @inline(__always)
    func withLock<R: ~Copyable, E: Error>(_ body: () throws(E) -> R) throws(E) -> R {
      tier.beginTurn()
      defer { tier.tell(tier.endTurn()) }
      return try body()
    }
  }

  var writerLock: WriterTurn { WriterTurn(tier: self) }

  // MARK: turns

  @inline(never)
  func beginTurn() {
    writerMutex.lock()
    do throws(Failure) {
      try directoryLock?.beginTurn()
      if isAsleep { try wake() }
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
    directoryLock?.endTurn()
    writerMutex.unlock()
    return dropped
  }

  /// Learns what others have committed. The turn is ours. Throws if it cannot be learnt: then
  /// nothing is to be written.
  func catchUp() throws(Failure) {
    guard isUp, let manifest else { return }
    try raiseDurability(manifest)
    guard directoryLock?.mayWrite ?? false else {
      throw Failure(.io, "the directory's lock cannot be had")
    }
    guard isSameManifest else {
      detach()
      throw downFailure
    }
    let begun = shared.begun
    let isSettled = shared.isSettled
    if begun == sequence && isSettled { return }
    let mayIdle = manifest.meta.mayIdle
    do throws(Failure) {
      takeLimits(try manifest.reload(shared, trustsLog: isSettled, in: place))
    } catch {
      if error.status == .corrupt { goDown(error) }
      throw error
    }
    if !isSettled { shared.evenAll() }
    if !mayIdle && manifest.meta.mayIdle { idle.note(Int64.min) }
    shared.generation = manifest.meta.generation
    sequence = begun
    publish(manifest.meta)
    shared.noteDone()
  }

  /// The limits are the manifest's.
  private func takeLimits(_ limits: TierLimits) {
    if limits != liveLimits.current { liveLimits.set(limits) }
  }

  /// Whether the manifest is the one that this tier has open. If another process has set it
  /// aside, the tier goes down, and is opened again by maintenance.
  var isSameManifest: Bool {
    guard shared.epoch != epoch.load(ordering: .acquiring) else { return true }
    goDown(Failure(.tierDown, "another process found the manifest damaged"))
    return false
  }

  /// A transaction is committed, or has changed nothing.
  func endSharing() {
    shared.ended()
    sequence = shared.begun
    shownSequence.store(sequence, ordering: .releasing)
    shared.noteDone()
  }

  /// The numbers under which these writes' entries may be remembered above: what the counters
  /// will be in a moment. Memory learns them before, so that what it has does not stop counting.
  func noteMarks(_ batch: [QueuedWrite]) {
    guard mayHaveOthers else { return }
    for (index, queued) in batch.enumerated() {
      guard let entry = queued.entry else { continue }
      // What the same transaction has replaced is not to count again.
      let isReplaced = batch[(index + 1)...].contains {
        $0.hash == queued.hash && $0.entry != nil && !$0.result.isUnmet
      }
      if isReplaced || queued.result.isUnmet { continue }
      let counter = shared.counters.mark(queued.hash)
      queued.result.mark = (counter &+ 1) & ~1
      observer?.storeCommits(
        entry.key, queued.hash,
        queued.kind == .touch ? queued.result.existing : queued.version, queued.result.mark)
    }
  }

  /// Whether the condition of a write holds for the row that is there; its version is in the write.
  func holds(
    _ write: QueuedWrite, _ found: Row?, _ transaction: borrowing Transaction
  ) throws(Failure) -> Bool {
    if write.condition.isAlways { return true }
    var version: UInt64 = 0
    // An entry of a codec that is not here is none for this cache.
    if let found, transaction.isAlive(found, write.key), knows(found.record.codec) {
      version = found.record.version
    }
    write.result.existing = version
    write.result.isUnmet = !write.condition.holds(for: version)
    if write.result.isUnmet && write.kind == .remove && version == 0 {
      // Nothing is there: what memories have of it ends with this removal, everywhere.
      try shared.touch(write.hash, isForAll: true)
    }
    return !write.result.isUnmet
  }

  // MARK: opening and closing

  /// Becomes a member. True: there is no other. The turn is ours.
  func enter(_ directory: Directory, isNew: Bool) throws(Failure) -> Bool {
    guard let directoryLock else { return true }
    try directoryLock.beginTurn()
    let isAlone = directoryLock.isAlone
    guard isNew else {
      if isAlone { shared.evenAll() }
      return isAlone
    }
    if shared.isHandedOut && !isAlone {
      // Memory goes by another hash of keys, and by counters that are no more.
      throw Failure(.busy, "other processes have opened the directory anew")
    }
    try shared.map(options.sharing == .shared ? directory : nil, isAlone: isAlone)
    if !shared.isHandedOut { hash = shared.hash }
    if !isAlone { shared.members += 1 }
    return isAlone
  }

  /// Takes over a manifest that others have open.
  func join(_ opened: Manifest, _ directory: Directory) throws(Failure) {
    guard options.kind == .unspecified || options.kind == opened.meta.storage else {
      throw Failure(.invalidArgument, "the directory has another storage kind")
    }
    takeLimits(try opened.reload(shared, trustsLog: shared.isSettled, in: directory))
    if !clock.isHosts { clock.setAnchor(opened.boot.offset) }
    if !shared.isSettled { shared.evenAll() }
    shared.generation = opened.meta.generation
    take(opened, opened.meta, directory)
    leaseStart.store(shared.nextVersion.pointee.load(ordering: .relaxed), ordering: .relaxed)
    publish(opened.meta)
  }

  /// The manifest is this tier's, and others may come.
  func settleIn(isAlone: Bool) {
    // At the next turn the others find it: see `raiseDurability`.
    let own = liveDurability.load(ordering: .relaxed)
    shared.durability = isAlone ? own : max(own, shared.durability)
    liveDurability.max(shared.durability, ordering: .relaxed)
    if isAlone {
      shared.members = 1
      shared.idleMembers = 0
      shared.nextVersion.pointee.max(firstVersion, ordering: .relaxed)
      shared.owesSweep = !orphans.isDone
    }
    epoch.store(shared.epoch, ordering: .releasing)
    sequence = shared.begun
    shownSequence.store(sequence, ordering: .releasing)
    shared.noteDone()
  }

  /// Ends a membership that is not the last one. False: it is. The turn is ours.
  func leaveOthers(_ manifest: Manifest) throws(Failure) -> Bool {
    guard let directoryLock, !directoryLock.isAlone else {
      // Somebody died, and may have left files.
      if shared.noteAlone() { shared.owesSweep = true }
      return false
    }
    for _ in 0..<64 where queue.hasBars { try attempt([]) }
    for _ in 0..<2 {
      while try flushAccesses(1024) {}
    }
    trash.endHolds(in: place)
    while trash.empty(4096, in: place) {}
    if inFlight.discardAll(in: place) || trash.hasLostSight { shared.owesSweep = true }
    shared.members = max(1, shared.members) - 1
    // The log stays the others'.
    manifest.leaveAsIs()
    return true
  }

  // MARK: maintenance

  /// A minute, and an hour, in nanoseconds.
  private static let minute: Int64 = 60_000_000_000
  private static let hour: Int64 = 60 * minute

  /// What others may have left. The turn is ours.
  func lookAfterOthers() {
    guard mayHaveOthers, let directoryLock, isUp else { return }
    // What was kept while this process was alone would stand in the way of others' checkpoints.
    if shared.counters.hasOthers { readers.letGo() }
    let now = Clock.read(CLOCK_MONOTONIC)
    guard now - lookedAfter >= DiskTier.minute else { return }
    lookedAfter = now
    trash.lookForOlder()
    if manifest?.meta.mayIdle ?? false { idle.note(Int64.min) }
    let lostSome = directoryLock.isAlone && shared.members > 1 && shared.noteAlone()
    if orphans.isDone && (lostSome || now - sweptOrphans >= DiskTier.hour) {
      sweptOrphans = now
      orphans.begin()
      shared.owesSweep = true
    }
  }

  /// Whether a content file without a row may be another process's on its way to one. The turn
  /// is ours.
  func mayBeOnItsWay(_ name: ContentName) -> Bool {
    guard let directoryLock, !directoryLock.isAlone else { return false }
    // Its owner has taken it away since it was listed.
    guard let status = ContentFiles.status(name, in: place) else { return true }
    // The change, and not the writing: a file that was linked or moved here keeps the time of the
    // latter.
    let since = Int64(status.st_ctim.tv_sec) &* 1_000_000_000
    return Record.difference(Clock.read(CLOCK_REALTIME), since) < DiskTier.hour
  }

  // MARK: numbers

  /// The count and the cost, after the commits of all processes; nil: `counters` has them. The
  /// files that this process has removed are counted, those of others are not.
  ///
  ///     the last transaction that has begun is          the numbers are in
  ///     the one after which `counters` was published    `counters`
  ///     this process's, and under way                   `counters`, as before it
  ///     another one, which has ended                    the shared state
  ///     another one, under way, or its process died     the manifest
  ///
  /// A sum is never taken of rows before a commit and of removed files after it: that would be
  /// above the limit.
  func sharedSums() -> (count: UInt64, cost: UInt64)? {
    guard isUp else { return nil }
    for _ in 0..<8 {
      let begun = shared.begun
      let shown = shownSequence.load(ordering: .acquiring)
      if shown == begun { return nil }
      if shown == begun &- 1 && isTransacting.load(ordering: .acquiring) { return nil }
      guard shared.isSettled else { continue }
      let removed = counters.trash.load(ordering: .acquiring)
      let sums = (shared.count, shared.charges &+ UInt64(shared.log.size) &+ removed)
      if shared.isSettled && shared.begun == begun { return sums }
    }
    let removed = counters.trash.load(ordering: .acquiring)
    let sums = try? withReader { (reader) throws(Failure) in
      try reader.sums()
    }
    guard let sums else { return nil }
    return (sums.count, sums.charges &+ UInt64(shared.log.size) &+ removed)
  }
}
