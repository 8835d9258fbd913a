import Synchronization

/// Puts, under a condition or not: of a tier, of both, one or many.
extension Cache {
  /// What a put is to be, beside key and value.
  struct PutSpec {
    var timeToLive: Int64 = 0
    var timeToIdle: Int64 = 0
    var cost: UInt64 = 0
    var extended = Bytes(start: nil, count: 0)
    var writePolicy = WritePolicy.standard
    /// How a store that keeps files is to keep the value; nil: as it likes.
    var file: ValueFile?

    @inline(__always)
    var isPlain: Bool {
      timeToLive | timeToIdle == 0 && cost == 0 && extended.count == 0
        && writePolicy == .standard && file == nil
    }

    /// The record of an entry that is written at this moment.
    @inline(__always)
    func record(at moment: Moment) -> Record {
      var record = Record()
      record.created = moment.time
      record.expires = Record.end(of: timeToLive, from: record.created)
      record.timeToIdle = timeToIdle
      record.cost = cost
      return record
    }
  }

  /// What came of a put.
  struct PutResult {
    /// done, partial, exists, notFound, conflict; or the failure's.
    var status = Status.done
    /// Set if no tier took the value. Behind a reference: every put hands a result up, and
    /// hardly one has this.
    var reason: Reason?
    /// Of this write; where the condition did not hold, of the entry that is there, or 0.
    var version: UInt64 = 0
    var memory = TierOutcome.none
    var disk = TierOutcome.none
    /// Only where processes share: the condition did not hold, and does by now.
    var isUndecided = false
  }

  final class Reason {
    let failure: Failure
    init(_ failure: Failure) { self.failure = failure }
  }

  /// Stores a value if `condition` holds.
  @_optimize(speed)
  func put(
    _ key: Bytes, _ value: Bytes, _ spec: PutSpec, if condition: PutCondition, in scope: Scope
  ) throws(Failure) -> PutResult {
    let moment = clock.moment()
    let hash = memory.hash(key)
    guard storage == nil, spec.isPlain, case .always = condition else {
      return try putWithRecord(key, value, spec, hash, at: moment, if: condition, in: scope)
    }
    // Nobody to tell, no task to overtake, no load to mark.
    if !events.wantsEntries && !tasks.hasKeyedWrites && !usesLoads.load(ordering: .relaxed) {
      return result(of: try memory.put(key, value, hash, at: moment), .always)
    }
    let block = try Block.plain(key: key, value: value, created: moment.time)
    return try putInMemory(block, hash, at: moment, if: .always)
  }

  @inline(never)
  private func putWithRecord(
    _ key: Bytes, _ value: Bytes, _ spec: PutSpec, _ hash: UInt64, at moment: Moment,
    if condition: PutCondition, in scope: Scope
  ) throws(Failure) -> PutResult {
    let record = spec.record(at: moment)
    // Asked again under the lock, if the entry may have moved between the two looks; what will not
    // be stored need not be copied.
    let stripe = Stripes.index(of: hash)
    let mark = stripes.mark(stripe)
    if let refused = try unmet(condition, key, hash, at: moment, in: scope),
      storage == nil || !hasMoved(stripe, since: mark)
    {
      return refused
    }
    if scope == .disk, case .always = condition, !events.wantsEntries {
      let put = try putIntoFile(key, value, spec, hash, at: moment)
      if let put { return put }
    }
    return try put(
      try Block.copying(
        key: key, value: value, extended: spec.extended, record: record,
        wantsChecksum: storage != nil), hash, at: moment, if: condition, in: scope,
      storing: try target(of: spec.writePolicy, in: scope), file: spec.file)
  }

  /// The condition is about what `scope` has; the value goes to `target`, which is the same if
  /// it is nil.
  @_optimize(speed)
  func put(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: PutCondition,
    in scope: Scope, storing target: Target? = nil, file: ValueFile? = nil,
    by task: TaskPointer? = nil
  ) throws(Failure) -> PutResult {
    if storage == nil {
      if case .always = condition {} else { takeCleared(block.unowned.key, hash, at: moment) }
      if let task { return try putInMemory(block, hash, at: moment, by: task) }
      return try putInMemory(block, hash, at: moment, if: condition)
    }
    return try withStorage { (storage) throws(Failure) in
      while true {
        let submitted = try submit(
          block.unowned, hash, at: moment, if: condition, in: scope, storing: target,
          file: file, by: task, to: storage)
        let result = finish(submitted, in: storage)
        if !result.isUndecided { return result }
        // Nobody has seen it: it comes after what it has met.
        block.unowned.version = 0
      }
    }
  }

  /// A put that has been submitted, or refused.
  struct SubmittedPut {
    var result = PutResult()
    /// Nil: refused, or nothing to do for the store.
    var write: StorageWrite?
    var hash: UInt64 = 0
    var target = Target.whole
    var owed: OwedEvents?
    /// Where processes share: decided by the store; and of the stripe, once it is submitted.
    fileprivate(set) var condition = PutCondition.always
    var mark: Stripes.Mark?

    init() {}

    init(_ refused: PutResult) { result = refused }

    init(failed failure: Failure) {
      result.status = failure.status
      result.reason = Reason(failure)
    }
  }

  /// The first half of a put in a cache with a store: everything but the wait for the commit.
  /// `finish` is owed.
  func submit(
    _ entry: UnownedBlock, _ hash: UInt64, at moment: Moment, if condition: PutCondition,
    in scope: Scope, storing target: Target? = nil, file: ValueFile? = nil,
    by task: TaskPointer? = nil, to storage: any Storage
  ) throws(Failure) -> SubmittedPut {
    var target = target ?? Target(scope)
    // There may have been a fork since it was chosen.
    if isFamily && target == .deferred { target = .whole }
    var isTold = false
    if target == .deferred {
      let isTaken = storage.files?.takes(
        key: entry.keySize, size: entry.size, extended: entry.extendedSize) ?? true
      if file == nil && isTaken {
        if MemoryTier.charge(of: entry) <= memory.largestCharge {
          if let put = try submitDeferred(
            entry, hash, at: moment, if: condition, in: scope, by: task, to: storage)
          {
            return put
          }
          isTold = true
          target = .whole
        } else {
          target = .disk
        }
      } else {
        target = .whole
      }
    }
    // Else the value is in a file, and the block has none.
    let hasValue = file == nil || file!.memoryOutcome == .none
    if !isTold { tellWillAdd(entry, hash, hasValue: hasValue, in: target.scope) }
    // A value is read before the stripe is taken: a codec of the host's may be called.
    let old = events.wants(.didRemove) ? (try? peek(entry.key, in: .whole)) ?? nil : nil
    // The write keeps the block for as long as it is there itself.
    let write = StorageWrite(target == .memory ? .remove : .put, entry.retained())
    write.file = file
    if target != .memory { storage.prepare(write) }
    let stripe = Stripes.index(of: hash)
    let isDecided = isDecidedAtOnce(condition, in: scope, target)
    if coherence != nil && target == .memory {
      lockDecided(stripe, entry.key, storage)
    } else {
      stripes.lock(stripe)
    }
    // Before the store is read.
    let mark = coherence?.mark(hash)
    do throws(Failure) {
      if let refused = try refusal(condition, entry.key, hash, at: moment, in: scope, by: task) {
        stripes.unlock(stripe)
        storage.abandon(write)
        return SubmittedPut(refused)
      }
      if isDecided {
        write.condition = .atMost(try storage.info(entry.key, at: moment)?.version ?? 0)
        write.isShown = true
      } else if coherence != nil {
        write.condition = try conditionInStore(
          condition, entry.key, hash, at: moment, in: scope, storage)
      }
    } catch {
      stripes.unlock(stripe)
      storage.abandon(write)
      throw error
    }
    var put = begin(
      entry, hash, target, hasValue: hasValue, replacing: old.unowned, at: moment,
      overtakes: task == nil && !condition.isLoads)
    put.write = write
    write.version = put.result.version
    var wasInMemory = false
    stripes.flip(stripe)
    if write.condition != .none && !isDecided {
      // Memory follows when it has been decided.
      put.condition = condition
    } else if target == .disk {
      wasInMemory = memory.remove(entry.key, hash, at: moment) != nil
      put.result.memory = .removed
    } else if let file, file.memoryOutcome != .none {
      wasInMemory = memory.remove(entry.key, hash, at: moment) != nil
      put.result.memory = file.memoryOutcome
    } else {
      put.result.memory = putInMemory(
        entry, hash, at: moment, isBacked: target == .whole,
        mark: isDecided ? mark : coherence?.mark(hash), isDecided: isDecided,
        wasThere: &wasInMemory)
    }
    put.owed?.wasInMemory = wasInMemory
    if target == .memory {
      put.result.disk = .removed
      noteUp(entry.key, hash, at: moment, from: storage)
    }
    put.mark = submit(write, to: storage, at: moment, unlocking: stripe, isEntered: true)
    return put
  }

  /// What a put answers that is not to be: its condition does not hold, or a later write than its
  /// task has been done. Nil: it is to be. The stripe is held.
  func refusal(
    _ condition: PutCondition, _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Scope,
    by task: TaskPointer?
  ) throws(Failure) -> PutResult? {
    if let task, tasks.isOvertaken(task) { return .superseded }
    return try unmet(condition, key, hash, at: moment, in: scope)
  }

  /// A put that is to be: its version is drawn, and its events are owed. The stripe is held.
  func begin(
    _ entry: UnownedBlock, _ hash: UInt64, _ target: Target, hasValue: Bool,
    replacing old: UnownedBlock?, at moment: Moment, overtakes: Bool
  ) -> SubmittedPut {
    if overtakes && tasks.hasKeyedWrites { tasks.overtake(hash) }
    // A load's was drawn when it began.
    if entry.version == 0 { entry.version = versions.draw() }
    noteWrite(hash)
    var put = SubmittedPut()
    put.result.version = entry.version
    put.hash = hash
    put.target = target
    put.owed = oweEvents(
      entry.key, hash, adding: entry, hasValue: hasValue, replacing: old, at: moment)
    return put
  }

  /// Submits a write whose version is drawn and whose stripe is held, and lets the stripe go.
  /// Returns the stripe's mark with it.
  @discardableResult
  func submit(
    _ write: StorageWrite, to storage: any Storage, at moment: Moment, unlocking stripe: Int,
    isEntered: Bool = false
  ) -> Stripes.Mark {
    write.time = moment.time
    stripes.begin(stripe, isEntered: isEntered)
    storage.submit(write)
    if isEntered { stripes.flip(stripe) }
    let mark = stripes.mark(stripe)
    stripes.unlock(stripe)
    return mark
  }

  /// The second half: waits for the commit, and settles what came of the put. Who has submitted
  /// several settles all before what one owes is waited for: it may come after what another does.
  func finish(
    _ put: SubmittedPut, in storage: any Storage, waits: Bool = true
  ) -> PutResult {
    guard let write = put.write else {
      if let owed = put.owed {
        settle(owed, leftDisk: false, storedIn: put.result.tiers, waits: waits)
      }
      return put.result
    }
    var result = put.result
    storage.complete(write)
    let decision = coherence == nil ? nil : decision(on: put, write)
    stripes.end(Stripes.index(of: put.hash))
    if let decision {
      if let refused = decision.refused {
        if let owed = put.owed {
          settle(owed, leftDisk: false, storedIn: Event.Tiers(), waits: waits)
        }
        return refused
      }
      result.memory = decision.memory
    }
    if put.target == .memory || put.target == .deferred {
      if write.failure != nil { result.disk = .failed }
    } else {
      result.disk = write.outcome
      if write.outcome != .stored, let key = write.block.unowned?.key {
        memory.setBacked(key, put.hash, version: result.version, false)
      }
    }
    result.conclude(write.failure)
    switch result.disk {
    case .failed, .noSpace, .tooLarge: logUnstored(write)
    default: break
    }
    if let owed = put.owed {
      settle(
        owed, leftDisk: write.existed || write.failure != nil, storedIn: result.tiers,
        waits: waits)
    }
    return result
  }

  @inline(never)
  private func logUnstored(_ write: StorageWrite) {
    if write.failure != nil {
      log(
        LogLine(
          .warning, "a value was not stored on disk; an older one of its key is barred there",
          write.failure))
    } else if write.outcome == .noSpace {
      log(LogLine(.warning, "a value was not stored on disk: there is no space"))
    } else if write.outcome == .tooLarge {
      log(LogLine(.debug, "a value was not stored on disk: it is too large"))
    } else {
      log(LogLine(.warning, "a value was not stored on disk"))
    }
  }

  /// The whole of a put where memory is all there is: the condition is decided, and the
  /// version drawn, under the lock of the entry's shard.
  @_optimize(speed)
  private func putInMemory(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: PutCondition
  ) throws(Failure) -> PutResult {
    // Without a thread an expired entry is as invisible, and goes when it is in the way.
    let entry = block.unowned
    if !entry.isPlain && entry.record.mayExpire(under: Ages()) { try? startMaintenance() }
    if events.wantsEntries {
      return try putTelling(block, hash, at: moment, if: condition, by: nil)
    }
    if !condition.isLoads && tasks.hasKeyedWrites {
      return try putOvertaking(block, hash, at: moment, if: condition)
    }
    let stripe = holdForLoads(hash)
    defer { letGo(stripe) }
    let put = try memory.put(block, hash, at: moment, condition: condition)
    if stripe != nil && put.isWrite { loads.noteWrite(hash) }
    return result(of: put, condition)
  }

  /// As above, while there are tasks to overtake: before the write, so that a task that writes
  /// at the same time finds afterwards that the entry has changed. Where a condition is to be
  /// decided, it must hold first.
  private func putOvertaking(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: PutCondition
  ) throws(Failure) -> PutResult {
    let stripe = holdForLoads(hash)
    defer { letGo(stripe) }
    var isOwed = true
    if case .always = condition {
      tasks.overtake(hash)
      isOwed = false
    }
    let put = try memory.put(block, hash, at: moment, condition: condition)
    if isOwed && put.outcome == .stored { tasks.overtake(hash) }
    if stripe != nil && put.isWrite { loads.noteWrite(hash) }
    return result(of: put, condition)
  }

  /// As a put that is a task, unless a later write has been done. The entry that is replaced is
  /// the one that was there before the question.
  private func putInMemory(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, by task: TaskPointer
  ) throws(Failure) -> PutResult {
    let entry = block.unowned
    if !entry.isPlain && entry.record.mayExpire(under: Ages()) { try? startMaintenance() }
    if events.wantsEntries {
      return try putTelling(block, hash, at: moment, if: .always, by: task)
    }
    while true {
      let current = memory.info(entry.key, hash, at: moment)?.version
      if tasks.isOvertaken(task) { return .superseded }
      let stripe = holdForLoads(hash)
      defer { letGo(stripe) }
      let condition = current.map { PutCondition.ifVersion($0) } ?? .ifAbsent
      let put = try memory.put(entry.retained(), hash, at: moment, condition: condition)
      if stripe != nil && put.isWrite { loads.noteWrite(hash) }
      if put.outcome == .stored || put.outcome == .tooLarge { return result(of: put, condition) }
    }
  }

  /// As above, for a listener, to whom the order of a key's writes must be known.
  private func putTelling(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: PutCondition,
    by task: TaskPointer?
  ) throws(Failure) -> PutResult {
    let entry = block.unowned
    tellWillAdd(entry, hash, in: .memory)
    let stripe = Stripes.index(of: hash)
    stripes.lock(stripe)
    if let task, tasks.isOvertaken(task) {
      stripes.unlock(stripe)
      return .superseded
    }
    if entry.version == 0 { entry.version = versions.draw() }
    let owed = oweEvents(entry.key, hash, adding: entry, replacing: nil, at: moment)
    do throws(Failure) {
      let put = try memory.put(block, hash, at: moment, condition: condition)
      if put.isWrite { noteWrite(hash) }
      if task == nil && !condition.isLoads && put.outcome == .stored && tasks.hasKeyedWrites {
        tasks.overtake(hash)
      }
      stripes.unlock(stripe)
      let result = result(of: put, condition)
      if let owed {
        owed.wasInMemory = put.isWrite && put.existing != 0
        settle(owed, leftDisk: false, storedIn: result.tiers)
      }
      return result
    } catch {
      stripes.unlock(stripe)
      if let owed { settle(owed, leftDisk: false, storedIn: Event.Tiers()) }
      throw error
    }
  }

  /// What the memory tier's answer means where it is all there is.
  @inline(__always)
  private func result(of put: MemoryPutResult, _ condition: PutCondition) -> PutResult {
    var result = PutResult()
    switch put.outcome {
    case .stored:
      result.version = put.version
      result.memory = .stored
    case .tooLarge:
      result.version = put.version
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
  func putInMemory(
    _ entry: UnownedBlock, _ hash: UInt64, at moment: Moment, isBacked: Bool, mark: UInt32?,
    isDecided: Bool, wasThere: inout Bool
  ) -> TierOutcome {
    do throws(Failure) {
      // During a commit: it counts when that has ended, for it comes later.
      if let mark { entry.mark = mark & 1 == 0 || isDecided ? mark : mark &+ 1 }
      let put = try memory.put(entry.retained(), hash, at: moment, isBacked: isBacked)
      wasThere = put.existing != 0
      return put.outcome == .stored ? .stored : .tooLarge
    } catch {
      wasThere = memory.remove(entry.key, hash, at: moment) != nil
      return .failed
    }
  }

  /// The result of a put whose condition does not hold; nil if it does. An expired entry
  /// counts as none.
  func unmet(
    _ condition: PutCondition, _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Scope
  ) throws(Failure) -> PutResult? {
    if case .always = condition { return nil }
    if case .unlessSet(let flag) = condition { return flag.pointee ? .conflict : nil }
    let version = try currentVersion(key, hash, at: moment, in: scope)
    guard !condition.holds(for: version) else { return nil }
    var result = PutResult()
    result.status = condition.refusal(of: version)
    result.version = version
    return result
  }

  /// Takes an entry out of memory if a clear has been submitted that is to do so, and has not come
  /// to it: it may be a task that waits. Who decides by what is there writes later than that clear.
  private func takeCleared(_ key: Bytes, _ hash: UInt64, at moment: Moment) {
    let cleared = clearedVersion.load(ordering: .relaxed)
    let ofStore = storeClearedVersion.load(ordering: .relaxed)
    guard cleared | ofStore != 0, let version = memory.info(key, hash, at: moment)?.version,
      version <= max(cleared, ofStore)
    else { return }
    memory.clear(key, hash, upTo: cleared, backedUpTo: ofStore, at: moment)
  }

  /// The version of the entry that is there; 0 if there is none.
  func currentVersion(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Scope
  ) throws(Failure) -> UInt64 {
    takeCleared(key, hash, at: moment)
    while true {
      if scope != .disk, let record = memory.info(key, hash, at: moment) { return record.version }
      guard let storage, scope != .memory else { return 0 }
      let shared = coherence?.mark(hash)
      if let stored = try storage.info(key, at: moment) { return stored.version }
      guard let shared, scope == .whole else { return 0 }
      var hasChanged = false
      let block = stillInMemory(key, hash, shared, at: moment, &hasChanged)
      if let block = block.unowned { return block.version }
      if !hasChanged { return 0 }
    }
  }
}

extension Cache.PutResult {
  static var superseded: Cache.PutResult {
    var result = Cache.PutResult()
    result.status = .superseded
    return result
  }

  /// Of a put that came too late.
  fileprivate static var conflict: Cache.PutResult {
    var result = Cache.PutResult()
    result.status = .conflict
    return result
  }

  /// Those that have the value.
  fileprivate var tiers: Event.Tiers {
    (memory == .stored ? .memory : Event.Tiers()) | (disk == .stored ? .disk : Event.Tiers())
  }

  /// Settles the status once each tier's outcome is known.
  mutating func conclude(_ storageFailure: Failure?) {
    let outcomes = (memory, disk)
    let isStored = outcomes.0 == .stored || outcomes.1 == .stored
    let isWhole =
      (outcomes.0 == .stored || outcomes.0 == .none || outcomes.0 == .removed)
      && (outcomes.1 == .stored || outcomes.1 == .none || outcomes.1 == .removed
        || outcomes.1 == .deferred)
    if isStored {
      status = isWhole ? .done : .partial
      return
    }
    let failure: Failure
    if let storageFailure {
      failure = storageFailure
    } else if memory == .failed {
      failure = .noMemory
    } else {
      failure = Failure(.tooLarge, "the entry is larger than any tier takes")
    }
    status = failure.status
    reason = Cache.Reason(failure)
  }
}

extension MemoryPutResult {
  /// Whether the put has changed anything: of an entry that is too large the older one goes.
  fileprivate var isWrite: Bool { outcome == .stored || outcome == .tooLarge }
}

extension PutCondition {
  /// `version`: the entry's that is there; 0 if there is none.
  func holds(for version: UInt64) -> Bool {
    switch self {
    case .always: true
    case .ifAbsent: version == 0
    case .ifPresent: version != 0
    case .ifVersion(let wanted): version != 0 && version == wanted
    case .unlessNewer, .unlessSet: version == 0
    }
  }

  /// What a put that does not hold answers.
  func refusal(of version: UInt64) -> Status {
    switch self {
    case .ifAbsent: .exists
    case .ifVersion where version != 0: .conflict
    case .unlessSet: .conflict
    default: .notFound
    }
  }
}
