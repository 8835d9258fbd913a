import Synchronization

/// Tags: what an entry was put with, and removals by it.
///
/// A removal looks for the entries by a walk, and removes each as it was when the look found it
/// with the tag: an entry that is written in between is looked at again, so one that has the tag no
/// more stays.
extension Cache {
  /// Calls `visit` with the version and the tag of the entry as it is now, which is empty if it has
  /// none; not if there is no entry. No access.
  func tag(
    of key: Bytes, in scope: Tiers, visit: (_ version: UInt64, _ tag: Bytes) -> Void
  ) throws(Failure) {
    let hash = memory.hash(key)
    // An entry goes from tier to tier, or a newer one comes: the looks may miss it.
    for _ in 0..<16 {
      let moment = clock.current
      if scope != .disk, let block = memory.peek(key, hash, at: moment) {
        return visit(block.unowned.version, block.unowned.extended.tag)
      }
      guard let found = try info(key, in: scope) else { return }
      if found.record.tagSize == 0 {
        return visit(found.record.version, Bytes(start: nil, count: 0))
      }
      if storage == nil || scope == .memory { continue }
      var isThere = false
      try withStorage { (storage) throws(Failure) in
        let staged =
          order.staged.isEmpty
          ? nil : staged(key, hash, at: moment, isAccess: false, storage)
        if let staged {
          isThere = true
          return visit(staged.unowned.version, staged.unowned.extended.tag)
        }
        try storage.tag(of: key, hash, at: moment) { version, tag in
          isThere = true
          visit(version, tag)
        }
      }
      if isThere { return }
    }
    guard let block = try peek(key, in: scope) else { return }
    visit(block.unowned.version, block.unowned.extended.tag)
  }

  /// Removes the entries that have this tag from the tiers of the handle's scope. `removed` is how
  /// many there were, also if it fails. All are tried; the first failure is thrown. An entry that
  /// was there before the call is met wherever it goes meanwhile (see WholeWalk).
  func remove(
    tagged tag: Bytes, through handle: Handle, removed: inout UInt64
  ) throws(Failure) {
    order.noteRemoval(ofTag: tag)
    if handle.scope != .disk { removed += removeObjects(tagged: tag) }
    var failure: Failure?
    var pointers = GrowingArray<UnsafeRawPointer?>()
    var sizes = GrowingArray<Int>()
    let walk = try WholeWalk(handle, tag: tag)
    while true {
      pointers.removeAll()
      sizes.removeAll()
      try walk.take(most: Cache.removalsTogether, into: &pointers, &sizes)
      if sizes.count == 0 { break }
      try handle.check()
      let keys = ManyBytes(
        pointers: UnsafePointer(pointers.elements.baseAddress),
        sizes: UnsafePointer(sizes.elements.baseAddress), count: sizes.count)
      if storage == nil || handle.scope == .memory {
        for index in 0..<keys.count {
          do throws(Failure) {
            if try removeFromMemory(keys[index], tagged: tag) { removed += 1 }
          } catch {
            if failure == nil { failure = error }
          }
        }
      } else {
        try withStorage { (storage) throws(Failure) in
          remove(keys, tagged: tag, in: handle.scope, storage, &removed, &failure)
        }
      }
    }
    events.deliver()
    secureRemovals(in: handle.scope, &failure)
    if let failure { throw failure }
  }

  @inline(never)
  private func removeFromMemory(_ key: Bytes, tagged tag: Bytes) throws(Failure) -> Bool {
    let hash = memory.hash(key)
    while true {
      let moment = clock.moment()
      guard let block = memory.peek(key, hash, at: moment) else {
        // Under other ages it would be back.
        memory.reclaim(key, hash, at: moment)
        return false
      }
      guard block.unowned.hasTag(tag) else { return false }
      let removed = try removeFromMemory(
        key, hash, at: moment, condition: .version(block.unowned.version))
      if removed != nil { return true }
    }
  }

  /// The keys whose removals are submitted share a commit, as in a removal of many.
  @inline(never)
  private func remove(
    _ keys: ManyBytes, tagged tag: Bytes, in scope: Tiers, _ storage: any Storage,
    _ removed: inout UInt64, _ failure: inout Failure?
  ) {
    var pending: [SubmittedRemoval] = []
    var indexes = GrowingArray<Int>()
    for index in 0..<keys.count {
      do throws(Failure) {
        // Nothing may fail once a removal has been submitted.
        try indexes.reserve(keys.count)
        let removal = try submitRemoval(keys[index], tagged: tag, in: scope, storage)
        guard let removal else { continue }
        pending.append(removal)
        try indexes.append(index)
      } catch {
        if failure == nil { failure = error }
      }
    }
    for place in 0..<pending.count {
      do throws(Failure) {
        while true {
          if try finish(pending[place], in: storage, waits: false) {
            removed += 1
            break
          }
          guard pending[place].isUnmet,
            let next = try submitRemoval(keys[indexes[place]], tagged: tag, in: scope, storage)
          else { break }
          // An unmet removal has no event to wait for, and its place in the lane may be behind
          // events of later keys, which this call has yet to finish.
          pending[place] = next
        }
      } catch {
        if failure == nil { failure = error }
      }
    }
    for removal in pending { events.awaitDelivery(removal.pending) }
  }

  /// Nil: the entry has the tag no more.
  private func submitRemoval(
    _ key: Bytes, tagged tag: Bytes, in scope: Tiers, _ storage: any Storage
  ) throws(Failure) -> SubmittedRemoval? {
    while true {
      var version: UInt64 = 0
      var hasOtherTag = false
      try self.tag(of: key, in: scope) {
        if $1.hasSameBytes(as: tag) { version = $0 } else { hasOtherTag = true }
      }
      if hasOtherTag { return nil }
      // 0: the entry has gone or has expired. The removal is of what has expired.
      let removal = submitRemoval(
        key, at: clock.current, in: scope, wantsValue: false, ifVersion: version, to: storage)
      if !removal.isSuperseded { return removal }
    }
  }

  /// Removes the host objects with a tag. Returns how many.
  private func removeObjects(tagged tag: Bytes) -> UInt64 {
    guard hasTaggedObjects.load(ordering: .relaxed) else { return 0 }
    let moment = clock.moment()
    var removed: UInt64 = 0
    var position: UInt64 = 0
    while memory.blocks(
      after: &position, limit: Cache.removalsTogether, at: .first, .objects,
      visit: { block in
        guard block.hasTag(tag) else { return }
        let hash = memory.hash(ofObject: block.key)
        let condition = WriteCondition.version(block.version)
        if memory.remove(block.key, hash, at: moment, condition: condition) != nil { removed += 1 }
      }) > 0
    {}
    return removed
  }
}
