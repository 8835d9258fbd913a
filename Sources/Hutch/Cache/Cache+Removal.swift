/// A removal in one step.
extension Cache {
  /// Removes an entry from a store that commits at once, without a look before whether there is
  /// one. Returns whether there was; nil: the removal has to go by `submitRemoval`, since a
  /// listener is told of it, or since more than memory and the store may have the key.
  func removeAtOnce(
    _ key: Bytes, at moment: Moment, in scope: Tiers, from storage: any Storage
  ) throws(Failure) -> Bool? {
    guard storage.removesAtOnce, !events.wantsEntries else { return nil }
    let hash = memory.hash(key)
    prefetch(hash)
    let stripe = Stripes.index(of: hash)
    let moment = moment.read
    order.stripes.lock(stripe)
    let isInMemory = memory.has(key, hash, at: moment)
    // The put of a dirty entry of this key has said so under the stripe. A removal from a disk tier
    // that has no entry drops nothing in memory.
    guard !writeBack.mayHaveDirty, order.clearing == nil, order.staged.isEmpty,
      scope == .whole || !isInMemory
    else {
      order.stripes.unlock(stripe)
      return nil
    }
    order.noteWrite(hash)
    let version = order.versions.draw()
    order.stripes.beginChange(stripe)
    let taken = scope == .whole ? memory.remove(key, hash, at: moment) : nil
    var copy: StoreWrite.Copy?
    if coherence != nil, let taken = taken.unowned {
      copy = StoreWrite.Copy(version: taken.version, mark: taken.mark)
    }
    let result = storage.removeAtOnce(
      key, hash, version: version, isThere: isInMemory, copy: copy, at: moment.time)
    // Other processes may have copies of an entry that was evicted on disk.
    if scope == .whole && !result.existed && !isInMemory { coherence?.dropCopies(hash) }
    order.stripes.endChange(stripe)
    order.stripes.unlock(stripe)
    if let failure = result.failure { throw failure }
    return coherence == nil && taken != nil || result.existed || result.existing != 0
  }
}
