/// A put in one step.
extension Cache {
  /// A put on disk alone, into a store that commits at once: the store copies the value from the
  /// caller's bytes, and no block is made of it. Nil: it is an ordinary put. The caller is inside
  /// the gate.
  func putAtOnce(
    _ key: Bytes, _ value: Bytes, _ record: Record, _ hash: UInt64, at moment: Moment,
    to storage: any Storage
  ) -> PutResult? {
    guard storage.putsAtOnce(value.count), !events.wantsEntries, !writeBack.mayHaveDirty else {
      return nil
    }
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    guard order.staged.isEmpty else {
      order.stripes.unlock(stripe)
      return nil
    }
    order.noteWrite(hash)
    var record = record
    record.version = order.versions.draw()
    order.stripes.beginChange(stripe)
    _ = memory.remove(key, hash, at: moment)
    let done = storage.putAtOnce(key, hash, record, value, at: record.created)
    order.stripes.endChange(stripe)
    order.stripes.unlock(stripe)
    var result = PutResult()
    result.version = record.version
    result.memory = .removed
    result.disk = done.outcome
    result.setStatus(storageFailure: done.failure)
    if done.outcome != .stored { logUnstored(.put, done) }
    return result
  }
}
