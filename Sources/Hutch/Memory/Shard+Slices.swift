import CSystem

/// Operations on many entries, a slice under each hold of the lock.
///
/// Slices go by the order of hashes, which nothing changes: not growth, not replacement, not
/// the eviction of a neighbour.
extension Shard {
  /// Evicts what has to go for a put elsewhere, or with 0 and 0 for new limits, until that is
  /// enough, the departures are full or nothing is left to go.
  @inline(never)
  mutating func makeRoom(
    cost: UInt64, count: UInt64, at: Moment, _ budget: borrowing Budget,
    into departures: inout Departures
  ) {
    _ = reclaimSome(at: at, budget, into: &departures)
    evictMany(cost: cost, count: count, sparing: .none, at: at, budget, into: &departures)
  }

  /// Evicts an entry for a put that needs so much; if that is the charge of several, as many as the
  /// departures have room for. False: there is none but the spared one, or no room for it.
  @inline(never)
  @_optimize(speed)
  mutating func evictNext(
    cost: UInt64, count: UInt64, sparing spared: Slot, at: Moment, _ budget: borrowing Budget,
    into departures: inout Departures
  ) -> Bool {
    if departures.isFull { return false }
    if _slowPath(budget.isMuch(cost)) {
      let before = departures.count
      evictMany(cost: cost, count: count, sparing: spared, at: at, budget, into: &departures)
      return departures.count > before
    }
    guard let victim = policy.victim(sparing: spared, entries, nil) else { return false }
    evictAtOnce(victim, .evicted, at: at, budget, into: &departures)
    return true
  }

  /// Evicts until so much has room, the departures are full or nothing but the spared entry is left
  /// to go.
  @inline(never)
  private mutating func evictMany(
    cost: UInt64, count: UInt64, sparing spared: Slot, at: Moment, _ budget: borrowing Budget,
    into departures: inout Departures
  ) {
    var ahead = LookAhead()
    withUnsafeMutablePointer(to: &ahead) { ahead in
      while !departures.isFull && !budget.hasRoom(cost: cost, count: count),
        let victim = policy.victim(sparing: spared, entries, ahead)
      {
        let block = victim.place.pointee.block
        evict(victim, at: at, budget, into: &departures)
        // The header of the memory behind it, which the heap reads and writes when it is freed.
        hutch_prefetch(block.raw + block.room)
      }
    }
  }

  /// Reclaims the expired entries among 256 slots; false: the departures are full, come back.
  @inline(never)
  mutating func reclaim(
    chunk: Int, at moment: Moment, _ budget: borrowing Budget, into departures: inout Departures
  ) -> Bool {
    let now = moment.time
    guard let times = entries.slab.times(ofChunk: chunk, dueAt: now) else { return true }
    for i in 0..<Slab.chunkSize where times[i].due <= now {
      if departures.isFull { return false }
      let slot = Slot(UInt32(truncatingIfNeeded: chunk * Slab.chunkSize + i))
      let place = entries.place(of: slot)
      let block = place.pointee.block
      if isExpired(block, at: now) {
        let hash = UInt64(entries.slab[slot].pointee.hash) << 32
        remove(place, hash, .expired, at: moment, budget, into: &departures)
      } else {
        // It was read since, or its time to live waits for the clock.
        setTimes(slot, record(block, at: now), at: now)
      }
    }
    entries.slab.updateBound(ofChunk: chunk)
    return true
  }

  /// Reclaims the expired entries among 256 slots, before a live entry is evicted: all of a small
  /// shard, and of a large one as much as such a moment may cost. Before the earliest time at which
  /// an entry may expire it is a comparison. False: nothing has gone.
  mutating func reclaimSome(
    at moment: Moment, _ budget: borrowing Budget, into departures: inout Departures
  ) -> Bool {
    guard entries.slab.earliestDue != Record.never, !departures.isFull,
      let chunk = entries.slab.searchDue(at: moment.time)
    else { return false }
    let before = departures.count
    if reclaim(chunk: chunk, at: moment, budget, into: &departures) { entries.slab.passChunk() }
    return departures.count > before
  }

  /// Removes an entry if it has expired.
  mutating func reclaim(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, _ budget: borrowing Budget,
    into departures: inout Departures
  ) {
    guard let place = entries.table.find(key, hash), place.pointee.isTimed,
      isExpired(place.pointee.block, at: moment.time)
    else { return }
    remove(place, hash, .expired, at: moment, budget, into: &departures)
  }

  /// Removes the entries that `isWanted` chooses, of those with the home line of `hash` and not
  /// before it, while the tier holds more than `cost`; 0: all of them, since entries may cost
  /// nothing. Returns where to go on, which is `hash` again if the departures are full.
  @inline(never)
  mutating func removeLine(
    at hash: UInt64, _ cause: DepartureCause, at moment: Moment, _ budget: borrowing Budget,
    downTo cost: UInt64 = 0, into departures: inout Departures,
    where isWanted: (borrowing Shard, Word) -> Bool
  ) -> UInt64? {
    var chosen = Departures.Places<UInt32>(repeating: 0)
    var count = 0
    var isMore = false
    let room = departures.room
    let next = entries.table.visitLine(at: hash) { place in
      guard isWanted(self, place.pointee) else { return }
      if count < room {
        chosen[count] = place.pointee.block.slot
        count += 1
      } else {
        isMore = true
      }
    }
    for i in 0..<count where cost == 0 || budget.cost > cost {
      let slot = Slot(chosen[i])
      let itsHash = UInt64(entries.slab[slot].pointee.hash) << 32
      remove(entries.place(of: slot), itsHash, cause, at: moment, budget, into: &departures)
    }
    return isMore ? hash : next
  }

  /// Takes notice of the tier's new ages for the entries with the home line of `hash`.
  mutating func retimeLine(at hash: UInt64, at moment: Moment) -> UInt64? {
    var slots = InlineArray<64, UInt32>(repeating: 0)
    var count = 0
    let next = entries.table.visitLine(at: hash) { place in
      // A line has 8 entries, seldom as many again behind it.
      if count < 64 {
        slots[count] = place.pointee.block.slot
        count += 1
      }
    }
    for i in 0..<count { retime(Slot(slots[i]), at: moment) }
    return next
  }

  private mutating func retime(_ slot: Slot, at moment: Moment) {
    let place = entries.place(of: slot)
    let block = place.pointee.block
    let now = moment.time
    let record = record(block, at: now)
    let isTimed = record.mayExpire(under: ages)
    self.count(place.pointee, -1)
    place.pointee = place.pointee.with(isTimed: isTimed)
    self.count(place.pointee, 1)
    if isTimed {
      // Without room for its times the entry still expires, when a call asks for it.
      do throws(Failure) { try entries.slab.reserveTimes(slot) } catch { return }
      setTimes(slot, record, at: now)
    } else {
      entries.slab.times(slot)?.pointee = .none
    }
  }

  /// Takes over an entry from another state of a shard, with its word's flags and its times.
  /// `link`, `uses`: see `Policy.adopt`.
  mutating func adopt(
    _ word: Word, _ hash: UInt64, _ link: ForwardLink?, uses: UInt32, _ times: Slab.Times?,
    isMain: Bool, _ budget: borrowing Budget
  ) throws(Failure) {
    let next = try entries.reserve(hash, budget)
    if times != nil { try entries.slab.reserveTimes(next) }
    let block = word.block
    let charge = MemoryTier.charge(of: block)
    if link == nil { policy.prepare(hash, charge: charge, budget, entries) }
    let slot = entries.slab.take(UInt32(truncatingIfNeeded: hash >> 32))
    block.slot = slot.number
    entries.slab.setMain(slot, isMain)
    entries.table.insert(word, hash)
    if let times { entries.slab.set(slot, times) }
    self.count(word, 1)
    self.count.add(1)
    cost.add(charge)
    policy.adopt(slot, link, uses: uses, charge: charge, entries)
  }

  /// Closes holes of the heap, and gives sparse segments of the table fewer lines: looks at some
  /// lines of the table, and moves what the heap has a better place for. Only blocks without
  /// another reference move: a reader has none but under the shard's lock. At most 64 KB are moved,
  /// and one block more. Returns where to go on; nil: the table is at its end. `isLoose`: single
  /// blocks move too (HeapEvacuation.swift, SMALL TIERS).
  @inline(never)
  mutating func tighten(
    lines: Int, from hash: UInt64, isLoose: Bool = Heap.hasSmallTiers
  ) -> UInt64? {
    var next: UInt64? = hash
    var lines = lines
    var room = 64 << 10
    while let hash = next, lines > 0 && room > 0 {
      entries.table.tighten(hash)
      next = entries.table.visitLine(at: hash) { place in
        let block = place.pointee.block
        guard Heap.mayMove(block.raw, isLoose: isLoose), block.isSoleAndBare,
          let copy = Heap.moved(block.raw)
        else { return }
        place.pointee = place.pointee.with(UnownedBlock(copy))
        room -= block.byteCount
        Heap.give(block.raw)
      }
      entries.slab.tighten(from: hash, to: next)
      lines -= 1
    }
    if next == nil { entries.slab.shrink() }
    return next
  }

  /// The largest put that leaves few holes alone.
  private static var mostOfQuietPut: UInt64 { 72 << 10 }
  /// The largest ones look at so many lines, times the share of the holes in the bytes in use.
  private static var linesForAll: UInt64 { 4 << 10 }

  /// A put that needs so much has had this shard evict a few entries: closes holes, for the entries
  /// leave as many.
  @inline(__always)
  mutating func closeHoles(of cost: UInt64) {
    let most = Int(min(Shard.linesForAll, cost >> 3))
    let lines = Heap.linesToClose(most: most, allowsFew: cost <= Shard.mostOfQuietPut)
    if lines > 0 { tightened = tighten(lines: lines, from: tightened, isLoose: false) ?? 0 }
  }

  /// The invariant that does not hold, or nil. For tests.
  func violation() -> StaticString? {
    if let found = entries.table.violation() { return found }
    var found: StaticString?
    var cost: UInt64 = 0
    var unbacked: UInt64 = 0
    var timed: UInt64 = 0
    entries.table.forEach { word in
      cost &+= MemoryTier.charge(of: word.block)
      if !word.isBacked { unbacked += 1 }
      if word.isTimed { timed += 1 }
      let slot = Slot(word.block.slot)
      if entries.place(of: slot).pointee.bits != word.bits { found = "a slot has another word" }
    }
    if self.count.value != UInt64(entries.count) { return "the shard's count is wrong" }
    if self.cost.value != cost { return "the shard's cost is wrong" }
    if self.unbacked.value != unbacked { return "the count of unbacked entries is wrong" }
    if self.timed.value != timed { return "the count of timed entries is wrong" }
    return found ?? entries.slab.violation() ?? policy.violation(entries)
  }
}
