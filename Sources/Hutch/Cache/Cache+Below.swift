/// The tiers below memory: entries on their way to the store (WriteBackQueue), then the store. An
/// entry goes down in this order, and a read looks in this order: memory, the queue, the store.
extension Cache {
  /// The newest entry of a key below memory, with its value; nil if there is none. An access counts
  /// a hit or a miss of the disk tier. No lock is held.
  func below(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool, _ storage: any Storage
  ) throws(Failure) -> Block? {
    if !order.staged.isEmpty, let block = staged(key, hash, at: moment, isAccess: isAccess, storage)
    {
      return block
    }
    return try values.get(key, hash, at: moment, isAccess: isAccess, from: storage)
  }

  /// As above, of the queue alone.
  @inline(never)
  func staged(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool, _ storage: any Storage
  ) -> Block? {
    guard
      let found = order.staged.find(
        key, hash, at: moment, under: storage.ages, isAccess: isAccess)
    else { return nil }
    // The entry's row has the time when there is a row.
    if isAccess { storage.noteAccess(key, hash, at: moment.time) }
    return found.block
  }

  /// As above, the record alone; never an access. The key's stripe may be held.
  func infoBelow(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, _ storage: any Storage
  ) throws(Failure) -> Record? {
    if !order.staged.isEmpty,
      let found = order.staged.find(key, hash, at: moment, under: storage.ages)
    {
      var record = found.block.unowned.record
      record.accessed = max(record.accessed, found.accessed)
      return record
    }
    return try storage.info(key, hash, at: moment)
  }
}
