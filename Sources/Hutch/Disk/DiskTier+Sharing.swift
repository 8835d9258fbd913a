import CSystem
import Synchronization

/// The members of a directory: the openings of several processes (sharing SHARED), a process and
/// its forked children (any sharing), or one opening alone. There is one protocol for all of them.
///
/// Each member has connections of its own. A member that writes or checkpoints takes a turn: the
/// writer lock between processes, for one transaction or one checkpoint. At the beginning of its
/// turn the member learns the others' commits since its last turn: the meta row, and the
/// limits, which are the manifest's. So counts and limits are right over all members, and
/// conditions are decided within the transaction. A read takes no turn; it learns of
/// others' commits from `SharedState`. EXCLUSIVE closes the door to other openings (WriterLock):
/// until its first fork such a member keeps its turn, and `SharedState` is memory of its own.
///
/// Versions are drawn from one number for all members. The opening that found itself alone has
/// leased them in the manifest, and every transaction extends the lease.
///
/// The kernel gives up the locks of a process that is killed. Other members put in order the state
/// that it has left: the next turn ends a transaction that was under way; a sweep removes content
/// files without rows once they are an hour old, or at once if its member is alone, since no other
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
    writerMutex.unlock()
    return dropped
  }

  /// Learns the others' commits. The turn is ours. If this throws, nothing may be written.
  func catchUp() throws(Failure) {
    guard isUp, let manifest else { return }
    try raiseDurability(manifest)
    guard members.mayWrite else {
      throw Failure(.io, "cannot lock the directory")
    }
    guard isSameManifest else {
      detach()
      throw downFailure
    }
    if members.isCurrent { return }
    let isComplete = shared.isComplete
    let mayIdle = manifest.meta.mayIdle
    do throws(Failure) {
      useLimits(try manifest.reload(shared, trustsLog: isComplete, in: place))
    } catch {
      if error.status == .corrupt { goDown(error) }
      throw error
    }
    if !isComplete { shared.evenAll() }
    if !mayIdle && manifest.meta.mayIdle { idle.note(Int64.min) }
    shared.generation = manifest.meta.generation
    publish(manifest.meta)
    members.noteLearnt()
  }

  /// The limits are the manifest's.
  private func useLimits(_ limits: TierLimits) {
    if limits != liveLimits.current { liveLimits.set(limits) }
  }

  /// True if the manifest is the one that this tier has open. If another process has set it
  /// aside, the tier goes down, and is opened again by maintenance.
  var isSameManifest: Bool {
    if members.hasSameManifest { return true }
    goDown(Failure(.tierDown, "another process found the manifest damaged"))
    return false
  }

  /// The numbers under which memory may keep these writes' entries: the counters as they will be in
  /// a moment. Memory learns them before, so that its copies stay valid.
  func noteMarks(_ batch: [QueuedWrite]) {
    guard members.mayHaveOthers else { return }
    for (index, queued) in batch.enumerated() {
      guard let entry = queued.entry else { continue }
      // An entry that the same transaction has replaced must not become valid again.
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
      // No entry is there: the copies in all memories end with this removal.
      try shared.touch(write.hash, isForAll: true)
    }
    return !write.result.isUnmet
  }

  // MARK: opening and closing

  /// Takes over a manifest that others have open.
  func openAmongOthers(_ opened: Manifest, _ directory: Directory) throws(Failure) {
    guard options.kind == .unspecified || options.kind == opened.meta.storage else {
      throw Failure(.invalidArgument, "the directory has another storage kind")
    }
    useLimits(try opened.reload(shared, trustsLog: shared.isComplete, in: directory))
    if !clock.isHosts { clock.setAnchor(opened.boot.offset) }
    if !shared.isComplete { shared.evenAll() }
    shared.generation = opened.meta.generation
    use(opened, opened.meta, directory)
    leaseStart.store(shared.nextVersion.pointee.load(ordering: .relaxed), ordering: .relaxed)
    publish(opened.meta)
  }

  /// The manifest is this tier's, and others may come.
  func begin(isAlone: Bool) {
    // At the next turn the others find it: see `raiseDurability`.
    let own = liveDurability.load(ordering: .relaxed)
    shared.durability = isAlone ? own : max(own, shared.durability)
    liveDurability.max(shared.durability, ordering: .relaxed)
    members.begin(
      isAlone: isAlone, firstVersion: firstVersion, owesSweep: !content.orphans.isDone)
  }

  /// Ends the membership, unless it is the last one: false. The turn is ours.
  func leaveOthers(_ manifest: Manifest) throws(Failure) -> Bool {
    guard members.leaveOthers() else { return false }
    for _ in 0..<64 where queue.hasBars { try attempt([]) }
    for _ in 0..<2 {
      while try flushAccesses(1024) {}
    }
    if content.end(in: place) { shared.owesSweep = true }
    content.emptyAll(in: place)
    shared.members = max(1, shared.members) - 1
    // The log stays the others'.
    manifest.leaveAsIs()
    return true
  }

  // MARK: maintenance

  /// Looks for files and entries that others may have left. The turn is ours.
  func lookAfterOthers() {
    guard members.mayHaveOthers, isUp else { return }
    // Read transactions that were kept while this process was alone would hinder others'
    // checkpoints.
    if shared.counters.hasOthers { readers.endKept() }
    let now = Clock.read(CLOCK_MONOTONIC)
    guard let haveLost = members.lookAfterOthers(at: now) else { return }
    if manifest?.meta.mayIdle ?? false { idle.note(Int64.min) }
    if content.lookAfterOthers(haveLost, at: now) { shared.owesSweep = true }
  }

  // MARK: numbers

  /// The count and the cost, after the commits of all processes; nil: `counters` has them.
  func sharedSums() -> (count: UInt64, cost: UInt64)? {
    guard isUp else { return nil }
    switch members.sums({ counters.trash.load(ordering: .acquiring) }) {
    case .counters: return nil
    case .shared(let count, let bytes): return (count, bytes)
    case .manifest: break
    }
    let removed = counters.trash.load(ordering: .acquiring)
    let sums = try? withReader { (reader) throws(Failure) in
      try reader.sums()
    }
    guard let sums else { return nil }
    return (sums.count, sums.charges &+ UInt64(shared.log.size) &+ removed)
  }
}
