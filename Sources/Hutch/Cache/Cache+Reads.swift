/// Reads: memory, then the store, then promotion.
extension Cache {
  /// Runs `body` on the store unless the cache has none or is being shut down. `body` lets go
  /// of the locks that it takes, and the caller holds none, for a fork may have to be waited for;
  /// what it found damaged goes then, and the listener is told.
  @inline(__always)
  func withStorage<R: ~Copyable>(
    _ body: (any Storage) throws(Failure) -> R
  ) throws(Failure) -> R {
    guard let storage else { throw Failure(.unsupported, "this cache has no disk tier") }
    guard enterStorage() else { throw .closed }
    defer { leaveStorage(storage) }
    return try body(storage)
  }

  @inline(never)
  func enterStorage() -> Bool {
    guard gate.enter() else { return false }
    awaken()
    return true
  }

  @inline(never)
  private func leaveStorage(_ storage: any Storage) {
    if leavings.isDue { writeDue(storage) }
    if storage.owesRemovals { storage.settle() }
    gate.leave()
    events.deliver()
  }

  /// The value, counted as an access; nil if there is none.
  @_optimize(speed)
  func get(_ key: Bytes, in scope: Scope) throws(Failure) -> Block? {
    let moment = clock.moment()
    let hash = memory.hash(key)
    if scope != .disk {
      if let block = memory.get(key, hash, at: moment) { return block }
      // The entry may have been found expired.
      events.deliver()
      if storage == nil || scope == .memory { return nil }
    }
    return try getFromStorage(key, hash, at: moment, promoting: scope == .whole)
  }

  /// Copies the value into `buffer` if it fits. Returns its size; nil if there is none.
  @_optimize(speed)
  func copy(
    _ key: Bytes, in scope: Scope, into buffer: UnsafeMutableRawPointer?, capacity: Int
  ) throws(Failure) -> Int? {
    let moment = clock.moment()
    let hash = memory.hash(key)
    if scope != .disk {
      if let size = memory.copy(key, hash, at: moment, into: buffer, capacity: capacity) {
        return size
      }
      events.deliver()
      if storage == nil || scope == .memory { return nil }
    }
    guard
      let block = try getFromStorage(key, hash, at: moment, promoting: scope == .whole)
    else { return nil }
    let size = block.unowned.size
    if size <= capacity, size > 0 {
      buffer!.copyMemory(from: block.unowned.value.baseAddress!, byteCount: size)
    }
    return size
  }

  @inline(never)
  private func getFromStorage(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, promoting: Bool
  ) throws(Failure) -> Block? {
    try withStorage { (storage) throws(Failure) in
      let stripe = Stripes.index(of: hash)
      while true {
        let mark = stripes.settledMark(stripe)
        // Before the store is read.
        let shared = coherence?.mark(hash)
        if let block = try storage.get(key, at: moment, isAccess: true) {
          if promoting { promote(block.unowned, hash, mark, shared, at: moment) }
          return block
        }
        guard promoting else { return nil }
        if let shared {
          var hasChanged = false
          if let block = stillInMemory(key, hash, shared, at: moment, &hasChanged) { return block }
          if hasChanged { continue }
          dropStale(key, hash, mark, at: moment)
        }
        if let block = memory.peek(key, hash, at: moment) { return block }
        if !hasMoved(stripe, since: mark) { return nil }
      }
    }
  }

  /// Brings into memory what the store has given, unless a write of its stripe was under way or
  /// has come since the mark was read.
  /// Where processes share, `shared` is the key's counter, read before the store was: what memory
  /// has under the key is stale then, or the same.
  func promote(
    _ entry: UnownedBlock, _ hash: UInt64, _ mark: Stripes.Mark, _ shared: UInt32?,
    at moment: Moment
  ) {
    let stripe = Stripes.index(of: hash)
    guard mark.isQuiet, (shared ?? 0) & 1 == 0, stripes.tryLock(stripe) else { return }
    if stripes.mark(stripe) == mark {
      if let shared { entry.mark = shared }
      // Nothing is owed to a promotion: without memory for it there is none.
      _ = try? memory.put(
        entry.retained(), hash, at: moment, condition: shared == nil ? .unlessNewer : .always,
        isBacked: true)
    }
    stripes.unlock(stripe)
  }

  /// The value as it is now; no access, no promotion.
  func peek(_ key: Bytes, in scope: Scope) throws(Failure) -> Block? {
    let moment = clock.moment()
    let hash = memory.hash(key)
    if scope != .disk, let block = memory.peek(key, hash, at: moment) { return block }
    if storage == nil || scope == .memory { return nil }
    return try withStorage { (storage) throws(Failure) in
      try current(key, hash, at: moment, in: scope, isAccess: false, of: storage)
    }
  }

  /// The record as it is now, and the tier that has it; no access.
  func info(_ key: Bytes, in scope: Scope) throws(Failure) -> (record: Record, scope: Scope)? {
    let moment = clock.moment()
    let hash = memory.hash(key)
    let stripe = Stripes.index(of: hash)
    while true {
      let mark = stripes.mark(stripe)
      if scope != .disk, let record = memory.info(key, hash, at: moment) { return (record, .memory) }
      if storage == nil || scope == .memory { return nil }
      if stripes.hasWaited(stripe, for: mark) { continue }
      let shared = coherence?.mark(hash)
      let stored = try withStorage { (storage) throws(Failure) in
        try storage.info(key, at: moment)
      }
      if let stored { return (stored, .disk) }
      if scope == .disk { return nil }
      if let shared {
        var hasChanged = false
        if let block = stillInMemory(key, hash, shared, at: moment, &hasChanged) {
          return (block.unowned.record, .memory)
        }
        if hasChanged { continue }
      }
      if !hasMoved(stripe, since: mark) { return nil }
    }
  }

  /// The ages that count for entries of a tier without their own.
  func ages(of scope: Scope) -> Ages {
    scope == .disk
      ? (storage?.limits.ages ?? Ages()) : limitsLock.withLock { memoryLimits.ages }
  }

  func flush() throws(Failure) {
    guard storage != nil else { return }
    let moment = clock.moment()
    try withStorage { (storage) throws(Failure) in
      let failure = writeDirty(storage, by: Deadline(after: Int64.max))
      try storage.flush(at: moment)
      if let failure { throw failure }
    }
  }
}

extension Failure {
  static var closed: Failure { Failure(.closed, "the cache has been closed") }
}
