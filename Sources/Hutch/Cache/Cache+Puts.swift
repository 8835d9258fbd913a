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
    /// What the name of the value's file ends with, where a store keeps it in one; nil: it may
    /// keep the value as it likes.
    var suffix: FileSuffix?

    @inline(__always)
    var isPlain: Bool {
      timeToLive | timeToIdle == 0 && cost == 0 && extended.count == 0
        && writePolicy == .standard && suffix == nil
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
    _ key: Bytes, _ value: Bytes, _ spec: PutSpec, if condition: WriteCondition, in scope: Tiers
  ) throws(Failure) -> PutResult {
    let moment = clock.moment()
    let hash = memory.hash(key)
    guard storage == nil, spec.isPlain, condition.isAlways else {
      return try putWithRecord(key, value, spec, hash, at: moment, if: condition, in: scope)
    }
    // There is no listener to tell, and nothing to overtake.
    if !events.wantsEntries && !order.isReserved(hash) {
      return result(of: try memory.put(key, value, hash, at: moment), .always)
    }
    let block = try Block.plain(key: key, value: value, created: moment.time)
    return try putInMemory(block, hash, at: moment, if: .always)
  }

  @inline(never)
  private func putWithRecord(
    _ key: Bytes, _ value: Bytes, _ spec: PutSpec, _ hash: UInt64, at moment: Moment,
    if condition: WriteCondition, in scope: Tiers
  ) throws(Failure) -> PutResult {
    let record = spec.record(at: moment)
    // Asked again under the lock, if the entry may have moved between the two looks; what will not
    // be stored need not be copied.
    let stripe = Stripes.index(of: hash)
    if storage == nil || scope == .memory {
      if let refused = try unmet(condition, key, hash, at: moment, in: scope) { return refused }
    } else if !condition.isAlways {
      let mark = order.stripes.mark(stripe)
      let refused = try withStorage { (_) throws(Failure) in
        try unmet(condition, key, hash, at: moment, in: scope)
      }
      if let refused, !hasMoved(stripe, since: mark) { return refused }
    }
    if scope == .disk, condition.isAlways, !events.wantsEntries {
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
  /// it is nil. `late`: what the write was reserved by.
  @_optimize(speed)
  func put(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: WriteCondition,
    in scope: Tiers, storing target: WritePolicy? = nil, file: ValueFile? = nil,
    by late: LateWrite? = nil
  ) throws(Failure) -> PutResult {
    if storage == nil {
      if !condition.isAlways { carryOutClears(of: block.unowned.key, hash, at: moment) }
      return try putInMemory(block, hash, at: moment, if: condition, by: late)
    }
    return try withStorage { (storage) throws(Failure) in
      var isTold = false
      while true {
        let submitted = try submit(
          block.unowned, hash, at: moment, if: condition, in: scope, storing: target,
          file: file, by: late, isTold: isTold, to: storage)
        isTold = true
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
    var target = WritePolicy.through
    var owed: OwedEvents?
    /// Where processes share: decided by the store; and of the stripe, once it is submitted.
    fileprivate(set) var condition = WriteCondition.always
    var mark: Stripes.Mark?

    init() {}

    init(_ refused: PutResult) { result = refused }

    init(failed failure: Failure) {
      result.status = failure.status
      result.reason = Reason(failure)
    }
  }

  /// The first half of a put in a cache with a store: everything but the wait for the commit.
  /// `finish` is owed. `isTold`: the listener knows already that it will be made.
  func submit(
    _ entry: UnownedBlock, _ hash: UInt64, at moment: Moment, if condition: WriteCondition,
    in scope: Tiers, storing target: WritePolicy? = nil, file: ValueFile? = nil,
    by late: LateWrite? = nil, isTold wasTold: Bool = false, to storage: any Storage
  ) throws(Failure) -> SubmittedPut {
    var target = target ?? WritePolicy(scope)
    // There may have been a fork since it was chosen.
    if isFamily && target == .onEviction { target = .through }
    var isTold = wasTold
    if target == .onEviction {
      let isTaken = storage.files?.takes(
        key: entry.keySize, size: entry.size, extended: entry.extendedSize) ?? true
      if file == nil && isTaken {
        if MemoryTier.charge(of: entry) <= memory.largestCharge {
          if let put = try submitDeferred(
            entry, hash, at: moment, if: condition, in: scope, by: late, to: storage)
          {
            return put
          }
          isTold = true
          target = .through
        } else {
          target = .disk
        }
      } else {
        target = .through
      }
    }
    // Else the value is in a file, and the block has none.
    let hasValue = file == nil || file!.memoryOutcome == .none
    if !isTold { tellWillAdd(entry, hash, hasValue: hasValue, in: target.tiers) }
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
      order.stripes.lock(stripe)
    }
    // Before the store is read.
    let mark = coherence?.mark(hash)
    do throws(Failure) {
      if let refused = try refusal(condition, entry.key, hash, at: moment, in: scope, by: late) {
        order.stripes.unlock(stripe)
        storage.abandon(write)
        return SubmittedPut(refused)
      }
      if isDecided {
        write.condition = .versionOrNone(try storage.info(entry.key, at: moment)?.version ?? 0)
        write.isShown = true
      } else if coherence != nil {
        write.condition = try conditionInStore(
          condition, entry.key, hash, at: moment, in: scope, storage)
      }
    } catch {
      order.stripes.unlock(stripe)
      storage.abandon(write)
      throw error
    }
    var put = begin(
      entry, hash, target, hasValue: hasValue, replacing: old.unowned, at: moment, by: late)
    put.write = write
    write.version = put.result.version
    var wasInMemory = false
    order.stripes.flip(stripe)
    if !write.condition.isAlways && !isDecided {
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
        entry, hash, at: moment, isBacked: target == .through,
        mark: isDecided ? mark : coherence?.mark(hash), isDecided: isDecided,
        wasThere: &wasInMemory)
    }
    put.owed?.wasInMemory = wasInMemory
    if target == .memory {
      put.result.disk = .removed
    }
    put.mark = submit(write, to: storage, at: moment, unlocking: stripe, isEntered: true)
    return put
  }

  /// What a put answers that is not to be: its condition does not hold, or it has been overtaken.
  /// Nil: it is to be. The stripe is held.
  func refusal(
    _ condition: WriteCondition, _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers,
    by late: LateWrite?
  ) throws(Failure) -> PutResult? {
    if let late, order.isOvertaken(late) { return .superseded }
    return try unmet(condition, key, hash, at: moment, in: scope)
  }

  /// A put that is to be: its version is drawn, and its events are owed. The stripe is held.
  func begin(
    _ entry: UnownedBlock, _ hash: UInt64, _ target: WritePolicy, hasValue: Bool,
    replacing old: UnownedBlock?, at moment: Moment, by late: LateWrite?
  ) -> SubmittedPut {
    order.noteWrite(hash, by: late)
    // A load's was drawn when it began.
    if entry.version == 0 { entry.version = order.versions.draw() }
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
    order.stripes.begin(stripe, isEntered: isEntered)
    storage.submit(write)
    if isEntered { order.stripes.flip(stripe) }
    let mark = order.stripes.mark(stripe)
    order.stripes.unlock(stripe)
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
    order.stripes.end(Stripes.index(of: put.hash))
    if let decision {
      if let refused = decision.refused {
        if let owed = put.owed {
          settle(owed, leftDisk: false, storedIn: Tiers(), waits: waits)
        }
        return refused
      }
      result.memory = decision.memory
    }
    if put.target == .memory || put.target == .onEviction {
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
      log(LogLine(.warning, "a value was not stored on disk: it is too large"))
    } else {
      log(LogLine(.warning, "a value was not stored on disk"))
    }
  }

  /// The whole of a put where memory is all there is: the condition is decided, and the version
  /// drawn, under the lock of the entry's shard. The stripe is taken if there is a listener, which
  /// has to learn the order of a key's writes, or if the write may overtake another or be
  /// overtaken.
  @_optimize(speed)
  private func putInMemory(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: WriteCondition,
    by late: LateWrite? = nil
  ) throws(Failure) -> PutResult {
    // Without a thread an expired entry is as invisible, and goes when it is in the way.
    let entry = block.unowned
    if !entry.isPlain && entry.record.mayExpire(under: Ages()) { try? startMaintenance() }
    guard late != nil || events.wantsEntries || order.isReserved(hash) else {
      return result(of: try memory.put(block, hash, at: moment, condition: condition), condition)
    }
    return try putInOrder(block, hash, at: moment, if: condition, by: late)
  }

  /// As above, with the stripe.
  @inline(never)
  private func putInOrder(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: WriteCondition,
    by late: LateWrite?
  ) throws(Failure) -> PutResult {
    let entry = block.unowned
    tellWillAdd(entry, hash, in: .memory)
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    if let late, order.isOvertaken(late) {
      order.stripes.unlock(stripe)
      return .superseded
    }
    // The events tell it.
    if events.wantsEntries && entry.version == 0 { entry.version = order.versions.draw() }
    let owed = oweEvents(entry.key, hash, adding: entry, replacing: nil, at: moment)
    do throws(Failure) {
      let put = try memory.put(block, hash, at: moment, condition: condition)
      if put.isWrite { order.noteWrite(hash, by: late) }
      order.stripes.unlock(stripe)
      let result = result(of: put, condition)
      if let owed {
        owed.wasInMemory = put.isWrite && put.existing != 0
        settle(owed, leftDisk: false, storedIn: result.tiers)
      }
      return result
    } catch {
      order.stripes.unlock(stripe)
      if let owed { settle(owed, leftDisk: false, storedIn: Tiers()) }
      throw error
    }
  }

  /// What the memory tier's answer means where it is all there is.
  @inline(__always)
  private func result(of put: MemoryPutResult, _ condition: WriteCondition) -> PutResult {
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

  /// Carries out, for one key, the clears that are under way, which may be tasks that wait: a
  /// condition is decided for a write that comes later than they do.
  private func carryOutClears(of key: Bytes, _ hash: UInt64, at moment: Moment) {
    guard let clearing = order.clearing, let version = memory.info(key, hash, at: moment)?.version,
      version <= max(clearing.all, clearing.backed)
    else { return }
    memory.clear(key, hash, upTo: clearing.all, backedUpTo: clearing.backed, at: moment)
  }

  /// The version of the entry that is there; 0 if there is none.
  func currentVersion(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Tiers
  ) throws(Failure) -> UInt64 {
    carryOutClears(of: key, hash, at: moment)
    while true {
      if scope != .disk, let record = memory.info(key, hash, at: moment) { return record.version }
      guard let storage, scope != .memory else { return 0 }
      assert(ThreadState.isInside)
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

  /// Those that have the value.
  fileprivate var tiers: Tiers {
    (memory == .stored ? .memory : Tiers()).union(disk == .stored ? .disk : Tiers())
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
