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
  // MARK: opening and closing

  /// Takes over a manifest that others have open.
  func openAmongOthers(_ opened: Manifest, _ directory: Directory) throws(Failure) {
    committer.useLimits(try opened.reload(shared, trustsLog: shared.isComplete, in: directory))
    if !clock.isHosts { clock.setAnchor(opened.boot.offset) }
    if !shared.isComplete { shared.evenAll() }
    use(opened, directory, from: shared.nextVersion.pointee.load(ordering: .relaxed))
  }

  /// The manifest is in order: it is in use from here on, with versions from `first` on.
  func use(_ opened: Manifest, _ directory: Directory, from first: UInt64) {
    leaseStart.store(first, ordering: .relaxed)
    shared.generation = opened.meta.generation
    committer.use(opened)
    service.move(to: directory)
    committer.publish(opened)
  }

  /// The manifest is this tier's, and others may come.
  func begin(isAlone: Bool) {
    // At the next turn the others find it: see `raiseDurability`.
    let own = committer.liveDurability.load(ordering: .relaxed)
    shared.durability = isAlone ? own : max(own, shared.durability)
    committer.liveDurability.max(shared.durability, ordering: .relaxed)
    members.begin(
      isAlone: isAlone, firstVersion: firstVersion, owesSweep: !content.orphans.isDone)
  }

  /// Ends the membership, unless it is the last one: false. This member has the turn.
  func leaveOthers(_ manifest: Manifest) throws(Failure) -> Bool {
    guard members.leaveOthers() else { return false }
    try writeGathered()
    if content.end(in: place) { shared.owesSweep = true }
    content.emptyAll(in: place)
    shared.members = max(1, shared.members) - 1
    // The log stays the others'.
    manifest.leaveAsIs()
    return true
  }

  // MARK: maintenance

  /// Looks for files and entries that others may have left. This member has the turn.
  func lookAfterOthers() {
    guard members.mayHaveOthers, isUp else { return }
    // Read transactions that were kept while this process was alone would hinder others'
    // checkpoints.
    if shared.counters.hasOthers { readers.endKept() }
    let now = Clock.read(CLOCK_MONOTONIC)
    guard let haveLost = members.lookAfterOthers(at: now) else { return }
    if committer.manifest?.meta.mayIdle ?? false { committer.idle.note(Int64.min) }
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
    var found: Sums?
    _ = try? withReader { (reader) throws(Failure) in found = try reader.sums() }
    guard let sums = found else { return nil }
    let (count, bytes) = (UInt64(clamping: sums.count), UInt64(clamping: sums.bytes))
    return (count, bytes &+ UInt64(clamping: sums.dead) &+ UInt64(shared.log.size) &+ removed)
  }
}
