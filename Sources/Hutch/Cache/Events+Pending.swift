/// Events of writes that are submitted and not yet committed, and of entries that leave a tier by
/// themselves.
extension Events {
  /// The changes of a write of a key, as one event of its lane: posted while the key's stripe is
  /// held, before the entry can be evicted again, and resolved when the commit is over. The
  /// listener is told up to three events of it: that the old entry will go, that it has gone, and
  /// that the new one has come.
  final class Pending: Event {
    /// An entry that goes or comes, and why.
    struct Side {
      /// A counted reference.
      let entry: UnownedBlock
      let hasValue: Bool
      let cause: Cause
    }

    /// Nil: there is none, or the listener wants no event of it.
    private let gone: Side?
    private let added: Side?
    /// The kinds that the listener wanted when the write was submitted.
    private let kinds: UInt32
    /// Whether memory had the entry that goes, and whether the store had it.
    var wasInMemory = false
    var wasOnDisk = false
    /// Known when the write is over: the tiers that the old entry has left, and those that have the
    /// new one. An event that concerns no tier does not happen.
    fileprivate var left = Tiers()
    fileprivate var stored = Tiers()

    /// `version`: the write's, which is its place among events of its key.
    @inline(never)
    init(removing gone: Side?, adding added: Side?, version: UInt64, kinds: UInt32, lane: Int) {
      self.gone = gone
      self.added = added
      self.kinds = kinds
      super.init(lane: lane)
      self.version = version
      entry = (added ?? gone)?.entry
    }

    deinit {
      gone?.entry.release()
      added?.entry.release()
    }

    /// Whether it is in its lane: there may be something to tell.
    var isPosted: Bool { gone != nil || added != nil }

    /// Whether there is an entry that goes, and the listener wants to know.
    var removes: Bool { gone != nil }

    /// The version of that entry; 0: there is none.
    var goneVersion: UInt64 { gone?.entry.version ?? 0 }
    var goneCause: Cause { gone?.cause ?? .none }

    override func forEachStep(_ tell: () -> Void) {
      if let gone, !left.isEmpty {
        tellStep(.willRemove, gone, left, tell)
        tellStep(.didRemove, gone, left, tell)
      }
      if let added, !stored.isEmpty { tellStep(.didAdd, added, stored, tell) }
    }

    private func tellStep(_ kind: Kind, _ side: Side, _ tiers: Tiers, _ tell: () -> Void) {
      if kinds & kind.rawValue == 0 { return }
      self.kind = kind
      self.tiers = tiers
      cause = side.cause
      entry = side.entry
      hasValue = side.hasValue
      version = side.entry.version
      tell()
    }
  }

  /// For a dirty entry that is about to be written, and whose stripe is held: that the disk has got
  /// the entry, or that the entry is lost, since the store has not taken it.
  func postPendingWriteBack(_ entry: UnownedBlock, _ lane: Int) -> Pending? {
    guard wantsEntries else { return nil }
    func side(_ cause: Event.Cause) -> Pending.Side {
      Pending.Side(entry: entry.retained().leak(), hasValue: true, cause: cause)
    }
    let pending = Pending(
      removing: side(.evicted), adding: side(.writtenBack), version: entry.version,
      kinds: kindsOfEntries, lane: lane)
    pending.wasOnDisk = true
    post(pending, isReady: false)
    return pending
  }

  /// Resolves what a write has changed, delivers it, and waits until that is done. `leftDisk`:
  /// whether the commit has removed an entry of the key, or has failed, so that it is barred if it
  /// was there. No lock is held.
  func resolve(
    _ pending: Pending?, leftDisk: Bool, storedIn tiers: Tiers = [], waits: Bool = true
  ) {
    guard let pending else { return }
    if pending.wasInMemory { pending.left.insert(.memory) }
    if leftDisk && pending.wasOnDisk { pending.left.insert(.disk) }
    pending.stored = tiers
    if pending.isPosted { resolve(pending) }
    if waits { awaitDelivery(pending) }
  }

  /// Waits until what is resolved is delivered.
  func awaitDelivery(_ pending: Pending?) {
    guard let pending else { return }
    deliver()
    if pending.isPosted { wait(for: pending) }
  }

  /// An entry has left a tier, as a rule by itself. `isAnnounced`: a removal has reported before
  /// that it will.
  func postRemoval(
    _ block: consuming Block, hasValue: Bool, _ cause: Event.Cause, _ tiers: Tiers,
    _ lane: Int, isAnnounced: Bool = false
  ) {
    if !isAnnounced && wants(.willRemove) {
      post(
        Event(
          .willRemove, cause, block.unowned.retained(), hasValue: hasValue, tiers: tiers,
          lane: lane))
    }
    if wants(.didRemove) {
      post(
        Event(.didRemove, cause, block, hasValue: hasValue, tiers: tiers, lane: lane))
    }
  }
}
