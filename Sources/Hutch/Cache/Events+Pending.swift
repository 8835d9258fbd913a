/// Events of writes that are submitted and not yet committed, and of entries that leave a tier by
/// themselves.
extension Events {
  /// The events of a write of a key: posted while its stripe is held, before the entry can be
  /// evicted again, and resolved when its commit is over.
  final class Pending {
    var willRemove: Event?
    var didRemove: Event?
    var didAdd: Event?
    /// Whether memory had the entry that goes.
    var wasInMemory = false
    /// Whether the store had it.
    var wasOnDisk = false
  }

  /// For a dirty entry that is about to be written, and whose stripe is held.
  func postPendingWriteBack(_ entry: UnownedBlock, _ lane: Int) -> Pending? {
    guard wants(.didAdd) else { return nil }
    let pending = Pending()
    pending.didAdd = postPending(.didAdd, .writtenBack, entry, true, lane)
    return pending
  }

  /// Posts an event that waits for a commit; its tiers are known then. Nil: nobody wants it.
  func postPending(
    _ kind: Event.Kind, _ cause: Event.Cause, _ entry: UnownedBlock, _ hasValue: Bool, _ lane: Int
  ) -> Event? {
    guard wants(kind) else { return nil }
    let event = Event(
      kind, cause, entry.retained(), hasValue: hasValue, tiers: Tiers(), lane: lane)
    post(event, isReady: false)
    return event
  }

  /// Resolves the events of a write, delivers them, and waits until that is done. `leftDisk`:
  /// whether the commit has removed an entry of the key, or has failed, so that it is barred if it
  /// was there. No lock is held.
  func resolve(
    _ pending: Pending?, leftDisk: Bool, storedIn tiers: Tiers = [], waits: Bool = true
  ) {
    guard let pending else { return }
    var left = Tiers()
    if pending.wasInMemory { left.insert(.memory) }
    if leftDisk && pending.wasOnDisk { left.insert(.disk) }
    resolve(pending.willRemove, tiers: left)
    resolve(pending.didRemove, tiers: left)
    resolve(pending.didAdd, tiers: tiers)
    if waits { awaitDelivery(pending) }
  }

  /// Waits until what is resolved is delivered.
  func awaitDelivery(_ pending: Pending?) {
    guard let pending else { return }
    deliver()
    if let last = pending.didAdd ?? pending.didRemove { wait(for: last) }
  }

  /// An event that concerns no tier does not happen.
  private func resolve(_ event: Event?, tiers: Tiers) {
    guard let event else { return }
    event.tiers = tiers
    resolve(event, happens: !tiers.isEmpty)
  }

  /// An entry has left a tier by itself.
  func postRemoval(
    _ block: consuming Block, hasValue: Bool, _ cause: Event.Cause, _ tiers: Tiers,
    _ lane: Int
  ) {
    if wants(.willRemove) {
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
