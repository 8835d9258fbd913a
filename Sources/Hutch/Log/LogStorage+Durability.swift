import Synchronization

/// Durability beyond the end of the process: the wait for the disk after a write, with no lock held
/// (LogStore+Durability).
extension LogStorage {
  var durability: Durability {
    store?.durability ?? Durability(rawValue: ownDurability.load(ordering: .relaxed)) ?? .process
  }

  /// An opening of this process asks for a durability. If the disk refuses what that needs, the
  /// durability stays as it is, which the opening's answer says (`apply`).
  func raiseDurability(to wanted: Durability) {
    if let store = live, store.durability.rawValue < wanted.rawValue {
      let failure = withContent { () -> Failure? in
        do throws(Failure) {
          try store.member.beginOpening()
          defer { store.member.endOpening() }
          try store.raise(to: wanted)
          return nil
        } catch {
          return error
        }
      }
      if failure != nil { return counters.failures.count() }
    }
    ownDurability.max(wanted.rawValue, ordering: .relaxed)
  }

  /// The write has been carried out, and waits in `finish` if it has to.
  func leaveTicket(_ write: inout StoreWrite, _ store: LogStore) {
    guard write.result.failure == nil, !write.result.isUnmet,
      store.durability == .sync || store.isCheckpointDue || !store.dead.isEmpty
    else { return }
    write.ticket = Unmanaged<AnyObject>.passUnretained(store)
  }

  func finish(_ write: inout StoreWrite) {
    guard let ticket = write.ticket else { return }
    write.ticket = nil
    let store = unsafeDowncast(ticket.takeUnretainedValue(), to: LogStore.self)
    do throws(Failure) {
      try settle(store)
    } catch {
      counters.failures.count()
      endFailed(&write, for: error)
    }
    if !store.dead.isEmpty { moveDead(of: store) }
  }

  func secureRemovals() throws(Failure) { try serving().secureRemovals() }

  /// Brings to the disk what has to be there before a call returns.
  func settle(_ store: LogStore) throws(Failure) {
    if store.isCheckpointDue { try store.writeCheckpoint() }
    if store.durability == .sync { try store.makeDurable() }
  }
}
