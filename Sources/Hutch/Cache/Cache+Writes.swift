/// Writes: put under a condition, remove, pop, touch, clear.
extension Cache {
  /// What a put is to be, beside key and value.
  struct PutSpec {
    var timeToLive: Int64 = 0
    var timeToIdle: Int64 = 0
    var cost: UInt64 = 0
    var extended = Bytes(start: nil, count: 0)
  }

  /// What came of a put.
  struct PutResult {
    /// done, partial, exists, notFound, conflict; or the failure's.
    var status = Status.done
    /// Set if no tier took the value for a reason that has words.
    var failure: Failure?
    /// Of this write; where the condition did not hold, of the entry that is there, or 0.
    var version: UInt64 = 0
    var memory = TierOutcome.none
    var disk = TierOutcome.none
  }

  /// Stores a value if `condition` holds.
  func put(
    _ key: Bytes, _ value: Bytes, _ spec: PutSpec, if condition: PutCondition, in scope: Scope
  ) throws(Failure) -> PutResult {
    let moment = clock.moment()
    var record = Record()
    record.created = moment.time
    record.expires = Record.end(of: spec.timeToLive, from: record.created)
    record.timeToIdle = spec.timeToIdle
    record.cost = spec.cost
    let hash = memory.hash(key)
    // Asked again under the lock; what will not be stored need not be copied.
    if let refused = try unmet(condition, key, hash, at: moment, in: scope) { return refused }
    return try put(
      try Block.copying(
        key: key, value: value, extended: spec.extended, record: record,
        wantsChecksum: storage != nil), hash, at: moment, if: condition, in: scope)
  }

  func put(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: PutCondition,
    in scope: Scope
  ) throws(Failure) -> PutResult {
    let entry = block.unowned
    if storage == nil {
      // Without a thread an expired entry is as invisible, and goes when it is in the way.
      if !entry.isPlain && entry.record.mayExpire(under: Ages()) { try? startMaintenance() }
      return try putInMemory(block, hash, at: moment, if: condition)
    }
    return try withStorage { (storage) throws(Failure) in
      // The block is the write's; it lives as long as the write is in scope.
      let write: StorageWrite
      if scope == .memory {
        write = StorageWrite(.remove, entry.retained())
      } else {
        write = StorageWrite(.put, entry.retained())
        storage.prepare(write)
      }
      let stripe = Stripes.index(of: hash)
      stripes.lock(stripe)
      do throws(Failure) {
        if let refused = try unmet(condition, entry.key, hash, at: moment, in: scope) {
          stripes.unlock(stripe)
          storage.abandon(write)
          return refused
        }
      } catch {
        stripes.unlock(stripe)
        storage.abandon(write)
        throw error
      }
      var result = PutResult()
      result.version = versions.draw()
      entry.version = result.version
      write.version = result.version
      if scope == .disk {
        _ = memory.remove(entry.key, hash, at: moment)
        result.memory = .removed
      } else {
        result.memory = putInMemory(entry, hash, at: moment, isBacked: scope == .whole)
      }
      commit(write, to: storage, at: moment, unlocking: stripe)
      if scope == .memory {
        result.disk = write.failure == nil ? .removed : .failed
      } else {
        result.disk = write.outcome
        if write.outcome != .stored {
          memory.setBacked(entry.key, hash, version: result.version, false)
        }
      }
      result.conclude(write.failure)
      return result
    }
  }

  /// Submits a write whose version is drawn and whose stripe is held, lets the stripe go and
  /// waits for the commit.
  private func commit(
    _ write: StorageWrite, to storage: any Storage, at moment: Moment, unlocking stripe: Int
  ) {
    write.time = moment.time
    stripes.begin(stripe)
    storage.submit(write)
    stripes.unlock(stripe)
    storage.complete(write)
    stripes.end(stripe)
  }

  /// The whole of a put where memory is all there is: the condition is decided, and the
  /// version drawn, under the lock of the entry's shard.
  private func putInMemory(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: PutCondition
  ) throws(Failure) -> PutResult {
    var result = PutResult()
    let put = try memory.put(block, hash, at: moment, condition: condition)
    switch put.outcome {
    case .stored:
      result.version = put.version
      result.memory = .stored
      result.conclude(nil)
    case .tooLarge:
      result.version = versions.draw()
      result.memory = .tooLarge
      result.conclude(nil)
    case .exists, .notFound, .conflict:
      result.version = put.existing
      result.status = condition.refusal(of: put.existing)
    }
    return result
  }

  /// The part in memory of a put whose stripe is held. Where it cannot be stored, the older
  /// value goes.
  private func putInMemory(
    _ entry: UnownedBlock, _ hash: UInt64, at moment: Moment, isBacked: Bool
  ) -> TierOutcome {
    do throws(Failure) {
      let put = try memory.put(entry.retained(), hash, at: moment, isBacked: isBacked)
      return put.outcome == .stored ? .stored : .tooLarge
    } catch {
      _ = memory.remove(entry.key, hash, at: moment)
      return .failed
    }
  }

  /// The result of a put whose condition does not hold; nil if it does. An expired entry
  /// counts as none.
  private func unmet(
    _ condition: PutCondition, _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Scope
  ) throws(Failure) -> PutResult? {
    if case .always = condition { return nil }
    let version = try currentVersion(key, hash, at: moment, in: scope)
    guard !condition.holds(for: version) else { return nil }
    var result = PutResult()
    result.status = condition.refusal(of: version)
    result.version = version
    return result
  }

  /// The version of the entry that is there; 0 if there is none.
  private func currentVersion(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Scope
  ) throws(Failure) -> UInt64 {
    if scope != .disk, let record = memory.info(key, hash, at: moment) { return record.version }
    guard let storage, scope != .memory else { return 0 }
    return try storage.info(key, at: moment)?.version ?? 0
  }

  // MARK: remove

  /// Removes the entry, and hands out its value if `wantsValue`. `existed` says whether
  /// there was one.
  func remove(
    _ key: Bytes, in scope: Scope, wantsValue: Bool
  ) throws(Failure) -> (existed: Bool, value: Holder?) {
    let moment = clock.moment()
    let hash = memory.hash(key)
    if storage == nil || scope == .memory {
      guard let block = memory.remove(key, hash, at: moment) else { return (false, nil) }
      return (true, wantsValue ? Holder(block) : nil)
    }
    return try withStorage { (storage) throws(Failure) in
      let write = StorageWrite(.remove, try Block.allocate(key: key, record: Record()))
      let stripe = Stripes.index(of: hash)
      stripes.lock(stripe)
      var value: Holder?
      do throws(Failure) {
        // A key that is nowhere costs no commit.
        var isThere = false
        if scope == .whole {
          if let block = memory.peek(key, hash, at: moment) {
            isThere = true
            if wantsValue { value = Holder(block) }
          }
        }
        if !isThere {
          if wantsValue {
            if let block = try storage.get(key, at: moment, isAccess: true) {
              isThere = true
              value = Holder(block)
            }
          } else {
            isThere = try storage.info(key, at: moment) != nil
          }
        }
        guard isThere else {
          stripes.unlock(stripe)
          return (false, nil)
        }
      } catch {
        stripes.unlock(stripe)
        throw error
      }
      write.version = versions.draw()
      _ = memory.remove(key, hash, at: moment)
      commit(write, to: storage, at: moment, unlocking: stripe)
      if let failure = write.failure { throw failure }
      return (true, value)
    }
  }

  // MARK: touch

  /// Sets the times of an entry anew. False: there is none.
  func touch(
    _ key: Bytes, timeToLive: Int64, timeToIdle: Int64, in scope: Scope
  ) throws(Failure) -> Bool {
    let moment = clock.moment()
    let hash = memory.hash(key)
    let touched = { (record: Record) in
      record.touched(at: moment.time, timeToLive: timeToLive, timeToIdle: timeToIdle)
    }
    if storage == nil || scope == .memory {
      // The record is part of an immutable block: a touch makes a new one, for the same
      // version, and begins again if another write came between.
      while true {
        guard let block = memory.peek(key, hash, at: moment) else { return false }
        let version = block.unowned.version
        // Whether the store has it too is a question for the store only.
        let isBacked = try storage?.info(key, at: moment)?.version == version
        let result = try memory.put(
          try block.unowned.copied(with: touched(block.unowned.record)), hash, at: moment,
          condition: .ifVersion(version), isBacked: isBacked)
        if result.outcome == .stored || result.outcome == .tooLarge { return true }
      }
    }
    return try withStorage { (storage) throws(Failure) in
      let write = StorageWrite(.touch, try Block.allocate(key: key, record: Record()))
      let stripe = Stripes.index(of: hash)
      stripes.lock(stripe)
      do throws(Failure) {
        let resident = memory.peek(key, hash, at: moment)
        let isResident = resident != nil
        if let resident {
          if scope == .disk {
            _ = memory.remove(key, hash, at: moment)
          } else {
            let version = resident.unowned.version
            write.record = touched(resident.unowned.record)
            let stored = try storage.info(key, at: moment)
            _ = try memory.put(
              try resident.unowned.copied(with: write.record), hash, at: moment,
              condition: .ifVersion(version), isBacked: stored?.version == version)
          }
        }
        if !isResident || scope == .disk {
          guard let stored = try storage.info(key, at: moment) else {
            stripes.unlock(stripe)
            return false
          }
          write.record = touched(stored)
        }
      } catch {
        stripes.unlock(stripe)
        throw error
      }
      write.version = versions.draw()
      commit(write, to: storage, at: moment, unlocking: stripe)
      if let failure = write.failure { throw failure }
      return true
    }
  }

  // MARK: increment

  /// Adds to the counter under `key`; the sum goes to `sum`.
  func increment(
    _ key: Bytes, by delta: Int64, initial: Int64, _ spec: PutSpec, in scope: Scope,
    sum: inout Int64
  ) throws(Failure) -> PutResult {
    let hash = memory.hash(key)
    while true {
      let moment = clock.moment()
      var old = initial
      var record = Record()
      var condition = PutCondition.ifAbsent
      let held = try peek(key, in: scope)
      let current = held.unowned
      if let current {
        guard current.size == 8 else {
          throw Failure(.wrongType, "the value is not a counter: it has not 8 bytes")
        }
        old = Int64(littleEndian: current.value.baseAddress!.load(as: Int64.self))
        record = current.record
        condition = .ifVersion(record.version)
        record.version = 0
      } else {
        record.created = moment.time
        record.expires = Record.end(of: spec.timeToLive, from: record.created)
        record.timeToIdle = spec.timeToIdle
        record.cost = spec.cost
      }
      let (new, overflow) = old.addingReportingOverflow(delta)
      guard !overflow else { throw Failure(.overflow, "the counter's sum does not fit") }
      let block = try withUnsafeBytes(of: new.littleEndian) { (value) throws(Failure) -> Block in
        try Block.copying(
          key: key, value: value,
          extended: current.map { Bytes($0.extendedData) } ?? spec.extended,
          record: record, wantsChecksum: storage != nil)
      }
      let result = try put(block, hash, at: moment, if: condition, in: scope)
      switch result.status {
      case .exists, .notFound, .conflict: continue
      default:
        sum = new
        return result
      }
    }
  }

  // MARK: clear

  func clear(in scope: Scope) throws(Failure) {
    if storage == nil || scope == .memory {
      memory.clear(at: clock.moment())
      return
    }
    let moment = clock.moment()
    try withStorage { (storage) throws(Failure) in
      let write = StorageWrite(.clear, nil)
      for stripe in 0..<Stripes.count { stripes.lock(stripe) }
      write.version = versions.draw()
      write.time = moment.time
      for stripe in 0..<Stripes.count { stripes.begin(stripe) }
      storage.submit(write)
      for stripe in (0..<Stripes.count).reversed() { stripes.unlock(stripe) }
      // What is older goes; newer puts may be in memory already. Nothing is promoted
      // meanwhile.
      memory.clear(upTo: write.version, keepingUnbacked: scope == .disk, at: moment)
      storage.complete(write)
      for stripe in 0..<Stripes.count { stripes.end(stripe) }
      if let failure = write.failure { throw failure }
    }
  }
}

extension Cache.PutResult {
  /// Settles the status once each tier's outcome is known.
  fileprivate mutating func conclude(_ storageFailure: Failure?) {
    let outcomes = (memory, disk)
    let isStored = outcomes.0 == .stored || outcomes.1 == .stored
    let isWhole =
      (outcomes.0 == .stored || outcomes.0 == .none || outcomes.0 == .removed)
      && (outcomes.1 == .stored || outcomes.1 == .none || outcomes.1 == .removed)
    if isStored {
      status = isWhole ? .done : .partial
      return
    }
    if let storageFailure {
      failure = storageFailure
    } else if memory == .failed {
      failure = .noMemory
    } else {
      failure = Failure(.tooLarge, "the entry is larger than any tier takes")
    }
    status = failure!.status
  }
}

extension PutCondition {
  /// `version`: the entry's that is there; 0 if there is none.
  func holds(for version: UInt64) -> Bool {
    switch self {
    case .always: true
    case .ifAbsent: version == 0
    case .ifPresent: version != 0
    case .ifVersion(let wanted): version != 0 && version == wanted
    case .unlessNewer: version == 0
    }
  }

  /// What a put that does not hold answers.
  func refusal(of version: UInt64) -> Status {
    switch self {
    case .ifAbsent: .exists
    case .ifVersion where version != 0: .conflict
    default: .notFound
    }
  }
}

/// A block that travels in a tuple, which cannot hold what cannot be copied.
final class Holder {
  private var block: Block?
  init(_ block: consuming Block) { self.block = consume block }
  func take() -> Block? { block.take() }
}

extension UnownedBlock {
  /// A block with the same key, value and extended data and another record.
  func copied(with record: Record) throws(Failure) -> Block {
    try Block.copying(
      key: key, value: Bytes(value), extended: Bytes(extendedData), record: record)
  }
}
