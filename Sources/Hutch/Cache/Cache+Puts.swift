import Synchronization

/// Puts with and without a condition, into one tier or into both.
extension Cache {
  /// The options of a put.
  struct PutSpec {
    var timeToLive: Int64 = 0
    var timeToIdle: Int64 = 0
    var cost: UInt64 = 0
    var extended = Extended()
    var writePolicy = WritePolicy.standard
    /// The end of the name of the value's file, if the store keeps the value in one; nil: the value
    /// need not have a file.
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

    /// The block of an entry that is written at this moment. Without `value` the block has none.
    @inline(never)
    func block(
      _ key: Bytes, _ value: Bytes = Bytes(start: nil, count: 0), at moment: Moment,
      version: UInt64 = 0, wantsChecksum: Bool = false, attaching object: UnownedBlock? = nil
    ) throws(Failure) -> Block {
      var record = record(at: moment)
      record.version = version
      return try Block.copying(
        key: key, value: value, extended: extended, record: record, wantsChecksum: wantsChecksum,
        attaching: object)
    }
  }

  /// The result of a put.
  struct PutResult {
    /// done, partial, exists, notFound, conflict, superseded; or the status of the failure.
    var status = Status.done
    /// Set if no tier took the value.
    var failure: Failure?
    /// The version of this write. If the condition did not hold: that of the existing entry, or 0.
    var version: UInt64 = 0
    var memory = TierOutcome.none
    var disk = TierOutcome.none
  }

  /// Stores a value if `condition` holds.
  func put(
    _ key: Bytes, _ value: Bytes, _ spec: PutSpec, if condition: WriteCondition, in scope: Tiers
  ) throws(Failure) -> PutResult {
    let moment = clock.current
    let hash = memory.hash(key)
    guard storage == nil, spec.isPlain, condition.isAlways, !isTooLarge(value) else {
      return try putWithRecord(key, value, spec, hash, at: moment, if: condition, in: scope)
    }
    // Without a listener and a reservation the put needs no stripe.
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
    let target = try target(of: spec.writePolicy, in: scope)
    // No copy is made of a value that memory refuses: it could take all of the machine's memory.
    if storage == nil, spec.cost == 0, isTooLarge(value), !events.wantsEntries,
      !order.isReserved(hash)
    {
      if !condition.isAlways { carryOutClears(of: key, hash, at: moment) }
      if let refused = memory.refuse(key, size: value.count, hash, at: moment, condition) {
        return Cache.result(ofRefused: refused, condition)
      }
    }
    // A value that will not be stored need not be copied. The condition is decided again under the
    // stripe if a write of the stripe has come since `state`.
    let stripe = Stripes.index(of: hash)
    if scope == .disk && condition.isAlways && spec.extended.count == 0 && spec.suffix == nil
      && values.codec == nil && storage != nil
    {
      let put = try withStorage { (storage) throws(Failure) in
        putAtOnce(key, value, spec.record(at: moment), hash, at: moment, to: storage)
      }
      if let put { return put }
    } else if mayCopyFirst(value, condition) {
      // Memory decides.
    } else if storage == nil || scope == .memory {
      let refused = try failedCondition(condition, key, hash, at: moment, in: scope, inOrder: false)
      if let refused { return refused }
    } else if !condition.isAlways {
      let state = order.stripes.state(stripe)
      var version = versionInMemory(key, hash, at: moment, in: scope)
      // The store is entered only if memory does not have the entry.
      if version == 0 {
        version = try withStorage { (_) throws(Failure) in
          try currentVersion(key, hash, at: moment, in: scope, inOrder: false)
        }
      }
      let refused = refusal(by: condition, version)
      if let refused, order.stripes.isSettled(stripe, since: state) { return refused }
    }
    if scope == .disk, value.count >= Cache.sizeWithoutBlock, condition.isAlways,
      !events.wantsEntries, let put = try putWithoutBlock(key, value, spec, hash, at: moment)
    {
      return put
    }
    return try put(
      try spec.block(key, value, at: moment, wantsChecksum: storage != nil), hash, at: moment,
      if: condition, in: scope, storing: target, suffix: spec.suffix)
  }

  /// Whether the memory tier refuses a value without a cost of its own, for its size alone.
  @inline(__always)
  private func isTooLarge(_ value: Bytes) -> Bool { UInt64(value.count) > memory.largestCharge }

  /// True if the condition need not be looked at before the value is copied: the value is small,
  /// and a replacement or a swap seldom fails. A listener is told before the copy is stored.
  @inline(__always)
  private func mayCopyFirst(_ value: Bytes, _ condition: WriteCondition) -> Bool {
    if condition.kind == .absent { return false }
    return storage == nil && value.count <= MemoryTier.smallValue && !events.wantsEntries
  }

  /// The condition is about the entry that `scope` has; the value goes to `target`. `late`: the
  /// reservation of the write.
  func put(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: WriteCondition,
    in scope: Tiers, storing target: WritePolicy, suffix: FileSuffix? = nil,
    by late: LateWrite? = nil
  ) throws(Failure) -> PutResult {
    if storage == nil {
      if !condition.isAlways { carryOutClears(of: block.unowned.key, hash, at: moment) }
      return try putInMemory(block, hash, at: moment, if: condition, by: late)
    }
    return try withStorage { (storage) throws(Failure) in
      let plan = plan(block.unowned, to: target, suffix, storage)
      return try put(
        block.unowned, hash, as: plan, at: moment, if: condition, in: scope, by: late, to: storage)
    }
  }

  /// The whole of a put in a cache without a store. The memory tier decides the condition, and
  /// draws the version, under the lock of the entry's shard. The put takes the stripe if there is a
  /// listener, which is told of a key's writes in their order, or if the put may overtake a write
  /// or be overtaken.
  private func putInMemory(
    _ block: consuming Block, _ hash: UInt64, at moment: Moment, if condition: WriteCondition,
    by late: LateWrite? = nil
  ) throws(Failure) -> PutResult {
    // If no thread can be made, an expired entry stays invisible until a put evicts it.
    let entry = block.unowned
    if !entry.isPlain && entry.lifetime.mayExpire(under: Ages()) { try? startMaintenance() }
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
    if let late, order.isOvertaken(late, tag: entry.extended.tag) {
      order.stripes.unlock(stripe)
      return .superseded
    }
    // The events have the version.
    if events.wantsEntries && entry.version == 0 { entry.version = order.versions.draw() }
    let pending = postPending(entry.key, hash, adding: entry, replacing: nil, at: moment)
    do throws(Failure) {
      let put = try memory.put(block, hash, at: moment, condition: condition)
      if put.isWrite { order.noteWrite(hash, by: late) }
      order.stripes.unlock(stripe)
      let result = result(of: put, condition)
      pending?.wasInMemory = put.isWrite && put.existing != 0
      events.resolve(pending, leftDisk: false, storedIn: result.tiers)
      return result
    } catch {
      order.stripes.unlock(stripe)
      events.resolve(pending, leftDisk: false)
      throw error
    }
  }

  /// The result of a put in a cache without a store, from the memory tier's result.
  @inline(__always)
  private func result(of put: MemoryPutResult, _ condition: WriteCondition) -> PutResult {
    guard put.outcome == .stored else { return Cache.result(ofRefused: put, condition) }
    var result = PutResult()
    result.version = put.version
    result.memory = .stored
    if _slowPath(memory.wantsUpkeep) { try? startMaintenance() }
    return result
  }

  @inline(never)
  private static func result(
    ofRefused put: MemoryPutResult, _ condition: WriteCondition
  ) -> PutResult {
    var result = PutResult()
    if put.outcome == .tooLarge {
      result.version = put.version
      result.memory = .tooLarge
      result.setStatus(storageFailure: nil)
    } else {
      result.version = put.existing
      result.status = condition.refusal(of: put.existing)
    }
    return result
  }
}

extension Cache.PutResult {
  static var superseded: Cache.PutResult {
    var result = Cache.PutResult()
    result.status = .superseded
    return result
  }

  /// The tiers that have the value.
  var tiers: Tiers {
    (memory == .stored ? .memory : Tiers()).union(disk == .stored ? .disk : Tiers())
  }

  /// Sets the status from the outcomes of the tiers.
  mutating func setStatus(storageFailure: Failure?) {
    if !tiers.isEmpty {
      status = memory.isRefusal || disk.isRefusal ? .partial : .done
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
    self.failure = failure
  }
}

extension MemoryPutResult {
  /// True if the put has changed anything: a put of an entry that is too large drops the older one.
  fileprivate var isWrite: Bool { outcome == .stored || outcome == .tooLarge }
}
