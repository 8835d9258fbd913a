/// Clears: submitted under all stripes, and then carried out, by the same call or by a task.
extension Cache {
  func clear(in scope: Tiers) throws(Failure) {
    try finish(submitClear(in: scope), in: scope)
  }

  /// A clear that has been submitted.
  final class SubmittedClear {
    fileprivate var write = StoreWrite(.clear, nil, 0)
    /// False: it is memory's alone.
    fileprivate var isOfStore = false
    /// Newer entries stay in memory.
    fileprivate var newest = UInt64.max
    /// Where memory is all there is: conditions are decided as if it had been carried out.
    fileprivate var isKnown = false
  }

  /// The first half of a clear: what comes before it is decided here. `finish` is owed. `isTask`:
  /// that will be a task, and what is put meanwhile is to stay.
  func submitClear(in scope: Tiers, isTask: Bool = false) throws(Failure) -> SubmittedClear {
    tell(.willClear, tiers(of: scope))
    let clear = SubmittedClear()
    if storage != nil && scope != .memory {
      try withStorage { (storage) throws(Failure) in
        // Copies of what the store has go; so it must be known which these are.
        if scope == .disk { review.end(storage) }
        clear.isOfStore = true
        clear.write.time = clock.moment().time
        order.stripes.lockAll()
        let version = order.beginClear(ofMemory: scope == .whole, ofStore: scope == .disk)
        clear.write.version = version
        clear.newest = version
        for stripe in 0..<Stripes.count { order.stripes.beginWrite(stripe) }
        storage.write(&clear.write)
        order.staged.clear(upTo: version, isOfAllTiers: scope == .whole)
        order.stripes.unlockAll()
      }
    } else if storage == nil && isTask {
      order.stripes.lockAll()
      clear.newest = order.beginClear(ofMemory: true, ofStore: false)
      order.stripes.unlockAll()
      clear.isKnown = true
    } else {
      order.noteClear(ofCopies: storage != nil)
      if isTask { clear.newest = versions.last }
    }
    return clear
  }

  /// The second half: what is older goes from memory, where newer puts may be already. Nothing
  /// is promoted meanwhile.
  func finish(_ clear: SubmittedClear, in scope: Tiers) throws(Failure) {
    if clear.isOfStore {
      try withStorage { (storage) throws(Failure) in
        memory.clear(upTo: clear.newest, keepingUnbacked: scope == .disk, at: clock.moment())
        order.endClear()
        if clear.write.ticket != nil { storage.finish(&clear.write) }
        for stripe in 0..<Stripes.count { order.stripes.endWrite(stripe) }
        if let failure = clear.write.result.failure { throw failure }
      }
    } else {
      emptyMemory(upTo: clear.newest, at: clock.moment())
      if clear.isKnown { order.endClear() }
    }
    events.tellAll()
    tell(.didClear, tiers(of: scope))
  }
}
