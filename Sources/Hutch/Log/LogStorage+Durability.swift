import Synchronization

/// Durability beyond the end of the process: the wait for the disk after a write, with no lock held
/// (LogStore+Durability).
extension LogStorage {
  var durability: Durability {
    store?.durability ?? Durability(rawValue: ownDurability.load(ordering: .relaxed)) ?? .process
  }

  /// A further opening of this process asks for a durability.
  func raiseDurability(to wanted: Durability) {
    ownDurability.max(wanted.rawValue, ordering: .relaxed)
    guard let store = live else { return }
    do throws(Failure) {
      try store.raise(to: wanted)
    } catch {
      counters.failures.count()
    }
  }

  /// The write has been carried out, and waits in `finish` if it has to.
  func leaveTicket(_ write: inout StoreWrite, _ store: LogStore) {
    guard write.result.failure == nil, !write.result.isUnmet,
      store.durability == .sync || store.isCheckpointDue
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
      bar((write.entry?.key).map { Bytes($0) }, write.hash)
      write.result.failure = error
      write.result.outcome = .failed
    }
  }

  /// Brings to the disk what has to be there before a call returns.
  func settle(_ store: LogStore) throws(Failure) {
    if store.isCheckpointDue { try store.writeCheckpoint() }
    if store.durability == .sync { try store.makeDurable() }
  }
}
