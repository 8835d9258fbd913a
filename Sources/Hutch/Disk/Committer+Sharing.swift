import Synchronization

/// A turn begins with what the other members of the directory have done since the last one
/// (DiskTier+Sharing.swift), and a commit is shown to them.
extension Committer {
  /// Learns the others' commits. This member has the turn. If this throws, nothing may be written.
  func catchUp() throws(Failure) {
    guard isUp, let manifest else { return }
    try raiseDurability(manifest)
    guard members.mayWrite else { throw noTurn }
    guard isSameManifest else {
      detach()
      throw service.failure
    }
    if members.isCurrent { return }
    let isComplete = shared.isComplete
    let mayIdle = manifest.meta.mayIdle
    do throws(Failure) {
      useLimits(try manifest.reload(shared, trustsLog: isComplete, in: place))
    } catch {
      if error.status == .corrupt { service.goDown(error) }
      throw error
    }
    if !isComplete { shared.evenAll() }
    if !mayIdle && manifest.meta.mayIdle { idle.note(Int64.min) }
    shared.generation = manifest.meta.generation
    publish(manifest)
    members.noteLearnt()
  }

  /// Why this process has no turn.
  var noTurn: Failure {
    members.lock?.isStopped ?? false
      ? WriterLock.busy : Failure(.io, "cannot lock the directory")
  }

  /// The limits are the manifest's.
  func useLimits(_ limits: TierLimits) {
    if limits != liveLimits.current { liveLimits.set(limits) }
  }

  /// True if the manifest is the one that this tier has open. If another process has set it
  /// aside, the tier goes down, and is opened again by maintenance.
  var isSameManifest: Bool {
    if members.hasSameManifest { return true }
    service.goDown(Failure(.tierDown, "another process found the manifest damaged"))
    return false
  }

  /// The numbers under which memory may keep these writes' entries: the counters as they will be in
  /// a moment. Memory learns them before, so that its copies stay valid.
  /// A counter that a failed transaction has left odd is made even by the next turn.
  func noteMarks(_ batch: [QueuedWrite], ofFailed: Bool = false) {
    guard members.mayHaveOthers else { return }
    for (index, queued) in batch.enumerated() {
      guard let entry = queued.entry, (queued.result.failure != nil) == ofFailed else { continue }
      // A removal that was to find nothing leaves the copies as they were.
      if queued.removesNothing { continue }
      // An entry that the same transaction has replaced must not become valid again.
      let isReplaced = batch[(index + 1)...].contains {
        $0.hash == queued.hash && $0.entry != nil && !$0.result.isUnmet && !$0.removesNothing
      }
      if isReplaced && !ofFailed { queue.giveWay(queued) }
      if isReplaced || queued.result.isUnmet { continue }
      queued.result.mark = (shared.counters.mark(queued.hash) &+ 1) & ~1
      observer?.storeCommits(
        entry.key, queued.hash,
        queued.kind == .touch ? queued.result.existing : queued.version, queued.result.mark)
    }
  }

  /// Makes commits from here on as durable as the strongest opening wants them. Writes that weaker
  /// openings have left unsynced are synced first: a manifest of which some pages are
  /// older than its log would not be whole. The writer lock is held, no transaction has begun.
  func raiseDurability(_ manifest: Manifest) throws(Failure) {
    let others = shared.durability
    let raised = max(others, liveDurability.load(ordering: .relaxed))
    if raised != others { shared.durability = raised }
    liveDurability.max(raised, ordering: .relaxed)
    guard durability.rawValue > manifest.durability.rawValue else { return }
    if manifest.durability == .process { try Files.syncAll(at: place.descriptor) }
    try manifest.raise(to: durability)
  }
}
