import Synchronization

/// Operations on all entries of a tier, or on all that a limit no longer allows: a few of them
/// under each hold of a lock.
extension MemoryTier {
  /// Removes every entry up to this version, or every one of these that the disk tier has too.
  func clear(upTo version: UInt64 = .max, keepingUnbacked: Bool = false, at: Moment) {
    // The number of shards may grow behind the first one's lock.
    var index = 0
    while index < shardCount {
      if keepingUnbacked || version != .max || onDeparture != nil || watch.active != nil {
        removeAll(index, .cleared, at: at) {
          $0.block.version <= version && ($0.isBacked || !keepingUnbacked)
        }
      } else {
        detach(index)
      }
      index += 1
    }
  }

  @inline(never)
  private func detach(_ index: Int) {
    let old = with(index: index) { shard in
      budget.release(cost: shard.cost.value, count: shard.count.value)
      return shard.detach(shard.entries.position, common)
    }
    old.entries.table.forEach {
      $0.block.depart(held)
      $0.block.releaseInside()
    }
  }

  /// The same of one entry.
  func clear(
    _ key: Bytes, _ hash: UInt64, upTo version: UInt64, backedUpTo backed: UInt64, at: Moment
  ) {
    var departures = makeDepartures()
    with(hash) { shard, hash in
      guard let place = shard.entries.table.find(key, hash) else { return }
      let found = place.pointee.block.version
      if found <= version || (found <= backed && place.pointee.isBacked) {
        shard.remove(place, hash, .cleared, at: at, budget, into: &departures)
      }
    }
    deliver(&departures)
  }

  /// Removes the entries of a shard that `isWanted` chooses, a few under each hold of the lock.
  @inline(never)
  private func removeAll(
    _ index: Int, _ cause: DepartureCause, at: Moment, where isWanted: (Word) -> Bool
  ) {
    var departures = makeDepartures()
    var position: UInt64? = 0
    while let from = position {
      position = visitLines(of: index, from: from, most: 32) { shard, hash in
        departures.isFull
          ? hash
          : shard.removeLine(
            at: hash, cause, at: at, budget, into: &departures,
            where: { _, word in isWanted(word) })
      }
      deliver(&departures)
    }
  }

  /// Changes limits and ages in use. When the call returns the tier is within them. Calls must not
  /// overlap.
  func setLimits(_ limits: TierLimits, at: Moment) {
    let largest = budget.largestCharge
    budget.set(limits)
    // A put that knew the old limits holds its shard's lock until it is done. This call has had
    // each lock once when it looks at the sums.
    let shardsAtFirst = shardCount
    var hasChanged = false
    var index = 0
    while index < shardCount {
      let changed = with(index: index) { shard -> Bool in
        defer { shard.ages = limits.ages }
        return shard.ages != limits.ages
      }
      if changed {
        hasChanged = true
        retime(index, at: at)
      }
      index += 1
    }
    // A tier that divides meanwhile gives its new shards the first one's new ages together with
    // entries whose turn had not come.
    if hasChanged && shardCount != shardsAtFirst {
      for index in 0..<shardCount { retime(index, at: at) }
    }
    evictToLimits(at: at)
    shrink()
    let bytesPerEntry = with(index: 0) { $0.entries.bytesPerEntry }
    if budget.payIdle(budget.idle(bytesPerEntry)) { evictToLimits(at: at) }
    tighten { true }
    let policyBytes = with(index: 0) { $0.policy.bytes($0.entries) }
    // What goes leaves holes, which count too until they are closed.
    var rounds = 4
    while rounds > 0, budget.payAll(idle: budget.idle(bytesPerEntry), policyBytes: policyBytes) {
      evictToLimits(at: at)
      tighten { true }
      rounds -= 1
    }
    // A limit that was raised is kept by each entry that kept the old one.
    if budget.largestCharge < largest { removeAbove(budget.largestCharge, at: at) }
  }

  private func evictToLimits(at: Moment) {
    var departures = makeDepartures()
    var index = 0
    var idle = 0
    while !budget.hasRoom(cost: 0, count: 0) && idle < shardCount {
      with(index: index) { shard in
        shard.makeRoom(cost: 0, count: 0, at: at, budget, into: &departures)
      }
      idle = departures.isEmpty ? idle + 1 : 0
      deliver(&departures)
      index = (index + 1) & (shardCount - 1)
    }
  }

  /// A limit on single entries holds for those that are there.
  private func removeAbove(_ largest: UInt64, at: Moment) {
    for index in 0..<shardCount {
      removeAll(index, .evicted, at: at) { MemoryTier.charge(of: $0.block) > largest }
    }
  }

  /// Gives the slots back that no entry uses, as far as whole chunks are free.
  func shrink() {
    for index in 0..<shardCount {
      withSlice(of: index) { shard in
        shard.entries.slab.shrink()
        shard.review(budget, 0)
      }
    }
  }

  /// Much has been evicted. If the heap has too many holes between the blocks that stay, closes
  /// them, so that pages go back to the system: goes around the tier, and once more if that was not
  /// enough. `goOn`, called with no lock held, says whether to go on.
  @inline(never)
  func tighten(goOn: () -> Bool) {
    for _ in 0..<2 {
      if !Heap.startEvacuation() { return }
      defer { Heap.endEvacuation() }
      for index in 0..<shardCount {
        var position: UInt64? = 0
        while let from = position {
          if !goOn() { return }
          position = withSlice(of: index) { $0.tighten(lines: 24, from: from) }
        }
      }
    }
  }

  @inline(never)
  private func retime(_ index: Int, at: Moment) {
    var position: UInt64? = 0
    while let from = position {
      position = visitLines(of: index, from: from, most: 8) { $0.retimeLine(at: $1, at: at) }
    }
  }

  /// Reclaims expired entries, one slice of the tier; true: there is more to look at.
  /// 4,096 slots a call; few of them have anything to read.
  func maintain(at: Moment) -> Bool {
    let position = sweep.load(ordering: .relaxed)
    var index = Int(position >> 32)
    var chunk = Int(position & 0xFFFF_FFFF)
    var departures = makeDepartures()
    for _ in 0..<16 {
      if index >= shardCount { break }
      let isEnd = withSlice(of: index) { shard -> Bool in
        guard chunk < shard.entries.slab.chunkCount, shard.timed.value > 0 else { return true }
        if shard.reclaim(chunk: chunk, at: at, budget, into: &departures) { chunk += 1 }
        return false
      }
      deliver(&departures)
      if isEnd {
        index += 1
        chunk = 0
      }
    }
    let isMore = index < shardCount
    sweep.store(isMore ? UInt64(index) << 32 | UInt64(chunk) : 0, ordering: .relaxed)
    return isMore
  }
}
