import Synchronization

/// Puts and removals: the steps that go on under locks are in Shard.swift.
extension MemoryTier {
  /// Stores the block if the condition holds, decided and done as one. When it returns the tier
  /// is within its limits. An entry that is too large is not stored, and what it would have
  /// replaced is removed. Fails with nothing changed but what had to go for it.
  ///
  /// A put of the version that is there already, on the condition that it still is, is a touch. The
  /// entry stays backed or not, whatever `isBacked` says.
  @_optimize(speed)
  func put(
    _ block: consuming Block, _ hash: UInt64, at: Moment, condition: WriteCondition = .always,
    isBacked: Bool = false
  ) throws(Failure) -> MemoryPutResult {
    var departures = makeDepartures()
    return try put(
      block, hash, at: at, condition, isBacked: isBacked, from: .again, isPrepared: false,
      &departures)
  }

  /// A put of an entry with nothing but key and value, that replaces an older entry. For a small
  /// value one hold of the lock is enough.
  @_optimize(speed)
  func put(
    _ key: Bytes, _ value: Bytes, _ hash: UInt64, at: Moment
  ) throws(Failure) -> MemoryPutResult {
    let created = at.time
    var departures = makeDepartures()
    guard value.count <= MemoryTier.smallValue else {
      return try put(
        try Block.plain(key: key, value: value, created: created), hash, at: at, .always,
        isBacked: false, from: .again, isPrepared: false, &departures)
    }
    var done: MemoryPutResult?
    var new: UnownedBlock?
    var step = Shard.Step.again
    var isPrepared = false
    do throws(Failure) {
      try with(hash) { shard, hash throws(Failure) in
        let place = shard.entries.table.find(key, hash)
        if let place, !watch.isOn, !shard.ages.any {
          let block = place.pointee.block
          var result = MemoryPutResult(.stored, existing: block.version)
          if shard.overwritePlain(place, value, hash, created: created, versions) {
            result.version = block.version
            done = result
            return
          }
        }
        let isAbsent = place == nil
        if isAbsent { shard.policy.prefetch(hash) }
        let block = try Block.plain(key: key, value: value, created: created).leak()
        new = block
        step = try shard.put(
          block, hash, at: at, .always, isBacked: false, charge: MemoryTier.charge(of: block),
          budget, versions, isPrepared: &isPrepared, isAbsent: isAbsent, into: &departures)
      }
    } catch {
      deliver(&departures)
      new?.release()
      throw error
    }
    if let done { return done }
    return try put(
      Block(owning: new.unsafelyUnwrapped), hash, at: at, .always, isBacked: false, from: step,
      isPrepared: isPrepared, &departures)
  }

  /// A put of a value of which so many bytes alone are too large; nil: they are not, and nothing
  /// has been done.
  @inline(never)
  func refuse(
    _ key: Bytes, size: Int, _ hash: UInt64, at: Moment, _ condition: WriteCondition
  ) -> MemoryPutResult? {
    var departures = makeDepartures()
    let result = with(hash) { shard, hash in
      shard.refuse(key, size: size, hash, at: at, condition, budget, versions, into: &departures)
    }
    deliver(&departures)
    return result
  }

  /// Counts a put whose value was not given to the tier, since it is too large. `hadEntry`: the
  /// older entry has been removed, which counts as no removal.
  @inline(never)
  func noteRefusal(_ hash: UInt64, hadEntry: Bool) {
    with(hash) { shard, _ in
      shard.refusals.add(1)
      if hadEntry { shard.removals.subtract(1) }
    }
  }

  /// Goes on with a short put, which the policy has been asked about.
  @inline(never)
  func finishShort(_ block: consuming Block, _ hash: UInt64, at: Moment) throws(Failure) {
    var departures = makeDepartures()
    _ = try put(
      block, hash, at: at, .always, isBacked: false, from: .again, isPrepared: true, &departures)
  }

  /// Goes on with a put until it is done.
  @inline(never)
  private func put(
    _ block: consuming Block, _ hash: UInt64, at: Moment, _ condition: WriteCondition,
    isBacked: Bool, from first: Shard.Step, isPrepared: Bool,
    _ departures: inout Departures
  ) throws(Failure) -> MemoryPutResult {
    let new = block.unowned
    var step = first
    var isPrepared = isPrepared
    // The lowest bits of a hash are the same for all keys.
    var next = Int(truncatingIfNeeded: hash >> 32)
    while true {
      deliver(&departures)
      switch step {
      case .done(let result):
        if result.outcome == .stored {
          _ = block.leak()
          if bits == 0
            && budget.count >= divideAt.load(ordering: .relaxed)
          {
            divide(at: at)
          }
        }
        return result
      case .again:
        break
      case .elsewhere(let cost, let count):
        makeRoom(
          cost: cost, count: count, own: (hash >> 1) &>> (63 &- bits),
          &next, at: at, &departures)
      }
      do throws(Failure) {
        step = try with(hash) { shard, hash throws(Failure) in
          try shard.put(
            new, hash, at: at, condition, isBacked: isBacked,
            charge: MemoryTier.charge(of: new), budget, versions, isPrepared: &isPrepared,
            into: &departures)
        }
      } catch {
        deliver(&departures)
        throw error
      }
    }
  }

  /// A put that has evicted so many entries has the rest from the reserve, if that is enough.
  private static var mostOfPut: Int { 64 }

  /// Evicts a few entries of one shard after the other in turn, one lock at a time, until so much
  /// would fit, or no shard but `own` has more to give. So a large put takes what each shard can
  /// spare best, and not all of one. `own` evicts in the put itself, which spares the entry that it
  /// replaces.
  @inline(never)
  private func makeRoom(
    cost: UInt64, count: UInt64, own: UInt64, _ next: inout Int, at: Moment,
    _ departures: inout Departures
  ) {
    let shards = shardCount
    // In a row had nothing to give.
    var empty = 0
    while empty < shards && !budget.hasRoom(cost: cost, count: count) {
      if departures.delivered >= MemoryTier.mostOfPut && budget.lend(cost: cost, count: count) {
        return
      }
      next = (next &+ 1) & (shards - 1)
      with(index: next) { shard in
        if UInt64(next) != own {
          shard.makeRoom(cost: cost, count: count, at: at, budget, into: &departures)
        }
        // A window is given back when it has no block of any shard.
        shard.closeHoles(of: cost)
      }
      empty = departures.isEmpty ? empty + 1 : 0
      deliver(&departures)
    }
  }

  // MARK: removing

  /// Takes the entry out and returns its block; nil: none, or the condition does not hold.
  func remove(
    _ key: Bytes, _ hash: UInt64, at: Moment, condition: WriteCondition = .always
  ) -> Block? {
    var departures = makeDepartures()
    let block = with(hash) { shard, hash -> Block? in
      shard.remove(key, hash, at: at, condition, budget, into: &departures)
        .map { Block(owning: $0) }
    }
    deliver(&departures)
    block.unowned?.depart(held)
    return block
  }

  /// Says whether the disk tier has this version of the entry too, or if not, with `isDirty`,
  /// that it is owed it. False: memory has not this version.
  ///
  /// A copy that does not count any more (`isCurrent`), and whose version the disk tier has
  /// dropped, stays backed: no get finds it, so it must not count as an entry of memory alone.
  /// Another process has touched the entry, for example, and the times of that touch have ended.
  @discardableResult
  func setBacked(
    _ key: Bytes, _ hash: UInt64, version: UInt64, _ isBacked: Bool, isDirty: Bool = false
  ) -> Bool {
    with(hash) { shard, shardHash in
      if !isBacked && !isDirty, let block = shard.entries.table.find(key, shardHash)?.pointee.block,
        !isCurrent(block, hash)
      {
        return block.version == version
      }
      return shard.setBacked(key, shardHash, version: version, isBacked, isDirty: isDirty)
    }
  }
}
