/// The existing entry, for a write with a condition.
extension Cache {
  /// The result of a put whose condition does not hold; nil if it does. An expired entry
  /// counts as none.
  func failedCondition(
    _ condition: WriteCondition, _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers
  ) throws(Failure) -> PutResult? {
    if condition.isAlways { return nil }
    let version = try currentVersion(key, hash, at: moment, in: scope)
    guard !condition.holds(for: version) else { return nil }
    var result = PutResult()
    result.status = condition.refusal(of: version)
    result.version = version
    return result
  }

  /// Carries out the clears that are under way for one key. A clear may be a task that waits, and a
  /// write whose condition is decided now comes after the clear. A copy that does not count now, for
  /// another write of its coherence counter is being committed, goes too: it could count again.
  func carryOutClears(of key: Bytes, _ hash: UInt64, at moment: Moment) {
    guard let clearing = order.clearing else { return }
    memory.clear(key, hash, upTo: clearing.all, backedUpTo: clearing.backed, at: moment)
  }

  /// The version of the existing entry; 0: there is none.
  func currentVersion(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers
  ) throws(Failure) -> UInt64 {
    carryOutClears(of: key, hash, at: moment)
    while true {
      if scope != .disk {
        let version = memory.version(key, hash, at: moment)
        if version != 0 { return version }
      }
      guard let storage, scope != .memory else { return 0 }
      assert(ThreadState.isInside)
      let shared = coherence?.mark(hash)
      if let stored = try infoBelow(key, hash, at: moment, storage) { return stored.version }
      guard let shared, scope == .whole else { return 0 }
      var hasChanged = false
      let block = stillInMemory(key, hash, shared, at: moment, &hasChanged)
      if let block = block.unowned { return block.version }
      if !hasChanged { return 0 }
    }
  }
}
