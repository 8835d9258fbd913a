/// Caches whose directory other processes write too. An entry in memory counts only while its
/// counter says so (CoherenceCounters).
///
/// An entry that memory alone has belongs to this process. The entry is dropped when another
/// process writes a key of the same counter, or when this process writes such a key under a
/// condition.
extension Cache {
  // MARK: reads

  /// The store has no entry of the key, so an entry that memory may have is stale.
  func dropStale(_ key: Bytes, _ hash: UInt64, _ state: Stripes.State, at moment: Moment) {
    let stripe = Stripes.index(of: hash)
    guard state.hasNothingPending, order.stripes.tryLock(stripe) else { return }
    if order.stripes.state(stripe) == state && !memory.has(key, hash, at: moment) {
      dropCopy(key, hash, at: moment)
    }
    order.stripes.unlock(stripe)
  }

  // MARK: touch

  /// As `touch`, of the whole or of the store.
  func touchShared(
    _ key: Bytes, _ hash: UInt64, _ new: inout NewTimes, in scope: Tiers, _ storage: any Storage
  ) throws(Failure) -> Bool {
    let moment = new.moment
    let stripe = Stripes.index(of: hash)
    while true {
      order.stripes.lock(stripe)
      let counter = coherence.unsafelyUnwrapped.mark(hash)
      // As in `touchResident`.
      if scope == .whole && memory.has(key, hash, at: moment) {
        storage.noteAccess(key, hash, at: moment.time)
      }
      let stored = try order.stripes.holding(stripe) { () throws(Failure) in
        try infoBelow(key, hash, at: moment, storage)
      }
      guard let stored else {
        // The stripe is held for both looks: a put on disk alone takes the entry from memory to
        // the store.
        let isInMemory = try order.stripes.holding(stripe) { () throws(Failure) in
          guard scope == .whole else { return false }
          carryOutClears(of: key, hash, at: moment)
          return try touchInMemory(key, hash, &new, isInOrder: true)
        }
        order.stripes.unlock(stripe)
        if isInMemory || scope != .whole { return isInMemory }
        // A commit between the two looks, or one that is under way, may have brought the entry.
        let copy = memory.peekDuringCommit(key, hash, at: moment)
        if copy == nil && coherence?.mark(hash) == counter { return false }
        storage.doOwedWork()
        continue
      }
      // For memory, whose value no codec has made.
      let times = new.set(stored.ofValue)
      let named = try order.stripes.holding(stripe) { () throws(Failure) in
        try touchBlock(key, times)
      }
      // Memory's copy, which the commit finds to be the same entry, would keep its old times.
      if scope == .disk { dropCopy(key, hash, touchedAt: moment, storage) }
      let result = commitTouch(
        named.unowned, hash, at: moment, if: .version(stored.version), to: storage)
      _ = consume named
      if let failure = result.failure { throw failure }
      if !result.isUnmet {
        // The store may have found its entry damaged.
        let isInMemory =
          scope == .whole && touchCopy(key, stored.version, times, result.mark, hash, at: moment)
        return isInMemory || result.existed
      }
      if result.existing == 0 && (scope == .disk || !memory.has(key, hash, at: moment)) {
        return false
      }
    }
  }

  /// If memory has the entry, with its times before a touch: it counts again, with the new ones.
  private func touchCopy(
    _ key: Bytes, _ version: UInt64, _ times: Record, _ mark: UInt32, _ hash: UInt64,
    at moment: Moment
  ) -> Bool {
    guard mark & 1 == 0 else { return false }
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    defer { order.stripes.unlock(stripe) }
    let copy = memory.peek(key, hash, at: moment)
    guard let copy = copy.unowned, copy.version == version else { return false }
    do throws(Failure) {
      let put = try memory.put(
        try copy.copied(with: times), hash, at: moment, condition: .version(version))
      return put.outcome == .stored
    } catch {
      _ = memory.remove(key, hash, at: moment, condition: .version(version))
      return false
    }
  }
}
