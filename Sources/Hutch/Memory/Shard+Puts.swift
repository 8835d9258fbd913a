import CSystem

/// What a put does under one hold of the shard's lock; MemoryTier+Puts.swift goes from one step to
/// the next.
extension Shard {
  /// How far a put came under one hold of the lock.
  enum Step {
    case done(MemoryPutResult)
    /// The departures are full: give them up and come back.
    case again
    /// This shard has given its share, or has nothing more that could go: give the departures up,
    /// make room elsewhere and come back.
    case elsewhere(cost: UInt64, count: UInt64)
  }

  /// Decides and stores as one. Fails with nothing changed but that entries had expired, or were
  /// evicted to make room.
  @inline(never)
  @_optimize(speed)
  mutating func put(
    _ block: UnownedBlock, _ hash: UInt64, at: Moment, _ condition: WriteCondition,
    isBacked: Bool, charge: UInt64, _ budget: borrowing Budget, _ versions: Versions,
    isPrepared: inout Bool, isAbsent: Bool = false, into departures: inout Departures
  ) throws(Failure) -> Step {
    let key = block.key
    var found = isAbsent ? nil : entries.table.find(key, hash)
    if let place = found, place.pointee.isTimed,
      isExpired(place.pointee.block, at: at.time)
    {
      if departures.isFull { return .again }
      remove(place, hash, .expired, at: at, budget, into: &departures)
      found = nil
    }
    let existing = found?.pointee.block.version ?? 0
    if let refusal = condition.refusal(existing: existing, new: block.version) {
      return .done(MemoryPutResult(refusal, existing: existing))
    }
    var isTouch = false
    var isBacked = isBacked
    if condition.kind == .version, let place = found, block.version == existing {
      // Touched: it counts as what it is a copy of, which may have changed since it was read. The
      // store has this version, or does not, as before.
      isTouch = true
      isBacked = place.pointee.isBacked
      block.mark = place.pointee.block.mark
    }
    if charge > budget.largestCharge {
      // New times may make an entry too large. No write has come: the entry is evicted.
      var refused = refuse(
        found, isTouch ? .evicted : .replaced, hash, at: at, budget, into: &departures)
      refused.version = block.version == 0 ? versions.draw() : block.version
      return .done(refused)
    }

    if !block.isPlain && block.cost != 0 { budget.noteOwnCost() }
    if pay(with: charge, budget, &departures), found != nil {
      found = entries.table.find(key, hash)
    }
    let isTimed = block.isPlain ? ages.any : block.lifetime.mayExpire(under: ages)
    let slot = found == nil ? try entries.reserve(hash, budget) : Slot(found!.pointee.block.slot)
    if isTimed { try entries.slab.reserveTimes(slot) }

    let isNew = found == nil
    let old = found.map { MemoryTier.charge(of: $0.pointee.block) } ?? 0
    if isNew && !isPrepared {
      isPrepared = true
      policy.prepare(hash, charge: charge, budget, entries)
    }
    let more = (cost: charge > old ? charge - old : 0, count: UInt64(isNew ? 1 : 0))
    var hasLooked = false
    while !budget.reserve(cost: more.cost, count: more.count) {
      var hasRoom = false
      if !hasLooked && !departures.isFull {
        hasLooked = true
        hasRoom = reclaimSome(at: at, budget, into: &departures)
      }
      guard
        hasRoom
          || evictNext(
            cost: more.cost, count: more.count, sparing: isNew ? .none : slot, at: at, budget,
            into: &departures)
      else {
        return .elsewhere(cost: more.cost, count: more.count)
      }
      // The eviction may have given the reserved slot a better one, and moved words.
      if !isNew { found = entries.table.find(key, hash) }
    }

    // Evictions may have freed a slot, which `take` gives in place of the reserved one.
    if isTimed && isNew { try reserveTimesOfNext(budget, charge) }

    tick(at)
    puts.add(1)
    if block.isDeparted {
      // Promoted again, while a reader has held it since it left.
      block.endDeparture()
      block.setDeparted(false)
    }
    block.stamp = clock
    if block.version == 0 { block.version = versions.draw() }
    var result = MemoryPutResult(.stored, existing: existing)
    if let place = found {
      result.wasDirty = !place.pointee.isBacked && place.pointee.block.isDirty
      if old > charge { budget.release(cost: old - charge, count: 0) }
      let word = place.pointee.with(block).with(isTimed: isTimed).with(isBacked: isBacked)
      departures.add(
        replace(place, by: word, hash, charge: charge, insteadOf: old), .replaced, accessed: 0)
    } else {
      insert(block, hash, isTimed: isTimed, isBacked: isBacked, charge: charge)
    }
    if isTimed { setTimes(of: block, at: at) }
    result.version = block.version
    return .done(result)
  }

  /// A put of a value of which so many bytes alone are too large, without the value; nil: they are
  /// not. `departures` is empty.
  mutating func refuse(
    _ key: Bytes, size: Int, _ hash: UInt64, at: Moment, _ condition: WriteCondition,
    _ budget: borrowing Budget, _ versions: Versions, into departures: inout Departures
  ) -> MemoryPutResult? {
    if UInt64(size) <= budget.largestCharge { return nil }
    let found = findLive(key, hash, at: at, budget, into: &departures)
    let existing = found?.pointee.block.version ?? 0
    if let refusal = condition.refusal(existing: existing, new: 0) {
      return MemoryPutResult(refusal, existing: existing)
    }
    var refused = refuse(found, .replaced, hash, at: at, budget, into: &departures)
    refused.version = versions.draw()
    return refused
  }

  /// The result of a put that is too large, which removes what it would have replaced.
  @inline(__always)
  private mutating func refuse(
    _ found: Table.Place?, _ cause: DepartureCause, _ hash: UInt64, at: Moment,
    _ budget: borrowing Budget, into departures: inout Departures
  ) -> MemoryPutResult {
    let refused = MemoryPutResult(.tooLarge, existing: found?.pointee.block.version ?? 0)
    if let found { remove(found, hash, cause, at: at, budget, into: &departures) }
    refusals.add(1)
    return refused
  }

  /// Sets the limit in force, if it has to change. True: words may have moved.
  @inline(__always)
  private mutating func pay(
    with charge: UInt64, _ budget: borrowing Budget, _ departures: inout Departures
  ) -> Bool {
    if _slowPath(puts.value & 15 == 0 || entries.bytes != counted || budget.isMuch(charge)) {
      review(budget, charge)
    }
    // Once for all steps of a put: a step that evicts leaves less, so that one put would evict all
    // at once. But without room for it in an empty tier it would not end.
    let hasRoom = charge <= budget.costInForce
    guard _slowPath(budget.isPaying || !hasRoom), !hasRoom || !departures.hasPaid else {
      return false
    }
    departures.hasPaid = true
    let idle = budget.idle(entries.bytesPerEntry)
    let lines = budget.pay(with: charge, idle: idle)
    guard Heap.isTight || entries.table.isSparse || budget.isTooMuch(idle) else { return false }
    // The more, the larger the put is, and the more room the holes have.
    tightened = tighten(lines: 1 + min(63, Int(charge >> 8) + lines), from: tightened) ?? 0
    return true
  }

  /// Puts the word of another block in the place of an entry's, and returns the former block.
  @inline(__always)
  private mutating func replace(
    _ place: Table.Place, by word: Word, _ hash: UInt64, charge: UInt64, insteadOf old: UInt64
  ) -> UnownedBlock {
    let replaced = place.pointee.block
    let block = word.block
    let slot = replaced.slot
    replacements.add(1)
    count(place.pointee, -1)
    block.slot = slot
    place.pointee = word
    count(word, 1)
    cost.add(charge &- old)
    noteWrite(place, block, hash)
    entries.slab.times(Slot(slot))?.pointee = .none
    if charge != old && policy.isOff(Slot(slot), charge: charge, entries) {
      move(block, charge: charge, isTimed: word.isTimed)
    }
    return replaced
  }

  /// Puts a new entry in, for which all is reserved.
  @inline(__always)
  private mutating func insert(
    _ block: UnownedBlock, _ hash: UInt64, isTimed: Bool, isBacked: Bool, charge: UInt64
  ) {
    let slot = entries.slab.take(UInt32(truncatingIfNeeded: hash >> 32))
    block.slot = slot.number
    let word = Word(
      block, isTimed: isTimed, isBacked: isBacked, isObject: hash & KeyedHash.kindBits != 0)
    entries.table.insert(word, hash)
    count(word, 1)
    count.add(1)
    cost.add(charge)
    policy.admit(slot, charge: charge, entries)
  }

  /// Gives the entry another slot, in the list of its new charge. Without memory it stays where it
  /// is.
  private mutating func move(_ block: UnownedBlock, charge: UInt64, isTimed: Bool) {
    let old = Slot(block.slot)
    do throws(Failure) {
      let next = try entries.slab.reserve()
      if isTimed { try entries.slab.reserveTimes(next) }
    } catch { return }
    let slot = entries.slab.take(entries.slab[old].pointee.hash)
    entries.slab.setMain(slot, entries.isMain(old))
    block.slot = slot.number
    policy.adaptive.move(from: old, to: slot, charge: charge, entries)
    forget(old)
  }

  @inline(never)
  private mutating func forget(_ slot: Slot) { policy.forget(slot, &entries) }

  mutating func reserveTimesOfNext(
    _ budget: borrowing Budget, _ charge: UInt64
  ) throws(Failure) {
    do throws(Failure) {
      try entries.slab.reserveTimes(try entries.slab.reserve())
    } catch {
      budget.release(cost: charge, count: 1)
      throw error
    }
  }

  private mutating func setTimes(of block: UnownedBlock, at: Moment) {
    let now = at.time
    var record = block.lifetime
    record.accessed = max(record.created, now)
    setTimes(Slot(block.slot), record, at: now)
  }

  /// Tells the budget of the bytes of slab and table, which seldom change, and has it look at the
  /// limit in force.
  @inline(never)
  mutating func review(_ budget: borrowing Budget, _ charge: UInt64) {
    budget.addPlaces(entries.bytes &- counted)
    counted = entries.bytes
    budget.review(
      with: charge, idle: budget.idle(entries.bytesPerEntry), policyBytes: policy.bytes(entries))
  }
}
