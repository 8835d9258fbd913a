import CSystem
import Synchronization

/// The short path of a put, which nearly every put into a cache in memory takes: a small value
/// with no options but extended data and a time to live replaces an entry of the same shape, or is
/// a new entry for which a few entries of the same shard may have to go. One function does it under
/// one hold of the lock, on flat arguments. It leaves any other put to MemoryTier+Puts.swift before
/// it has changed anything.
///
/// An increment of a counter that is there goes a path as short.
///
/// A victim of the same shard pays for the new entry: of the budget, which all threads share, only
/// the difference is released or reserved.
extension MemoryTier {
  /// Values up to this size are copied with the lock held.
  static var smallValue: Int { 1024 }
  /// As are extended data up to this size: the name of a type.
  static var smallExtended: Int { 64 }

  /// The charge of an entry whose block needs so much room.
  @inline(__always)
  fileprivate static func charge(of entry: ShortEntry, room: Int) -> UInt64 {
    charge(ofRoom: room) &+ (_slowPath(entry.expires != 0) ? overheadOfTimes : 0)
  }

  /// The outcome of a short put.
  enum ShortPut {
    case done
    /// Nothing has been done: the long path is to do it.
    case unusual
    /// The block is made and the policy prepared, and there is no room yet: the long path goes on.
    case unfinished(UnownedBlock)
  }

  /// Stores a value over whatever there is.
  @inline(__always)
  func putShortly(_ entry: ShortEntry, _ hash: UInt64, at created: Int64) -> ShortPut {
    guard _fastPath(entry.valueSize <= MemoryTier.smallValue),
      _fastPath(entry.extended.count <= MemoryTier.smallExtended), _fastPath(!watch.isOn),
      _fastPath(onDeparture == nil),
      _fastPath(entry.expires == 0) || (hasUpkeep && entry.expires != Record.never)
    else { return .unusual }
    var victims = InlineArray<4, UInt>(repeating: 0)
    let locked = lockShard(hash)
    let outcome = locked.shard.pointee.putShortly(
      entry, locked.hash, created: created, budget, versions, &victims)
    locked.lock.unlock()
    if _slowPath(victims[0] != 0) { give(up: &victims) }
    return outcome
  }

  /// Whether a put that is done may have made the tier large enough to be divided.
  @inline(__always)
  var mayDivide: Bool { bits == 0 && budget.count >= divideAt.load(ordering: .relaxed) }

  /// With fewer bytes the processor finds nearly all pages without huge ones.
  static var leastForUpkeep: UInt64 { 16 << 20 }

  /// Whether a put that is done has made the tier so large that the cache's background work is of
  /// use: it makes huge pages.
  @inline(__always)
  var wantsUpkeep: Bool { budget.cost >= upkeepAt.load(ordering: .relaxed) }

  /// The background work has been started, or cannot be; which entries that may expire are for.
  private var hasUpkeep: Bool { upkeepAt.load(ordering: .relaxed) == .max }

  func setUpkeep(_ isSo: Bool) {
    upkeepAt.store(isSo ? .max : MemoryTier.leastForUpkeep, ordering: .relaxed)
  }

  /// Adds to a counter where it stands, and returns the new version, if it is a plain entry without
  /// times that no reader holds. Nil: nothing has been done.
  @_optimize(speed)
  func increment(
    _ key: Bytes, by delta: Int64, _ hash: UInt64, at: Moment, sum: inout Int64
  ) -> UInt64? {
    if watch.isOn { return nil }
    return with(hash) { shard, hash in
      shard.increment(key, by: delta, hash, at: at, versions, sum: &sum)
    }
  }

  @inline(never)
  @_optimize(speed)
  private func give(up victims: inout InlineArray<4, UInt>) {
    for i in 0..<4 {
      if victims[i] == 0 { return }
      let block = UnownedBlock(
        UnsafeMutableRawPointer(bitPattern: victims[i]).unsafelyUnwrapped)
      block.depart(held)
      block.releaseOutside()
    }
  }
}

extension Shard {
  @inline(__always)
  fileprivate mutating func putShortly(
    _ entry: ShortEntry, _ hash: UInt64, created: Int64, _ budget: borrowing Budget,
    _ versions: Versions, _ victims: inout InlineArray<4, UInt>
  ) -> MemoryTier.ShortPut {
    var due = entry.expires
    if _slowPath(ages.any) && !setDue(&due, created) { return .unusual }
    // The first entry of a shard goes the long way.
    guard let route = entries.table.route(hash) else { return .unusual }
    if let place = placeShortly(entry.key, entry.keySize, hash, route) {
      let value = Bytes(start: entry.value, count: entry.valueSize)
      let isDone =
        _fastPath(entry.extended.count == 0 && due == 0)
        ? overwritePlain(place, value, hash, created: created, versions)
        : overwriteUnusual(
          place, value, entry.extended, entry.expires, due: due, hash, created: created, versions)
      return isDone ? .done : .unusual
    }
    return addShortly(entry, due: due, hash, route, created: created, budget, versions, &victims)
  }

  /// Of an entry under the tier's ages. False: the short path does not know such ages.
  @inline(never)
  private func setDue(_ due: inout Int64, _ created: Int64) -> Bool {
    if ages.mayIdle(own: 0) || ages.actOnTrim { return false }
    if due == 0 { due = Record.sum(created, ages.timeToLive) }
    return true
  }

  /// Where the entry of a key is whose value is going to be overwritten.
  @inline(__always)
  private func placeShortly(
    _ key: UnsafeRawPointer, _ keySize: Int, _ hash: UInt64, _ route: Table.Route
  ) -> Table.Place? {
    guard let place = entries.table.firstGuess(route) else { return nil }
    // The value's memory is asked for before the key's is read.
    let block = place.pointee.blockIfAny
    block?.prefetchValue()
    if block?.hasKey(key, keySize) ?? false { return place }
    return entries.table.find(Bytes(start: key, count: keySize), hash)
  }

  /// The short put of a key that has no entry. `due`: when the entry expires; 0: it does not.
  @inline(__always)
  private mutating func addShortly(
    _ entry: ShortEntry, due: Int64, _ hash: UInt64, _ found: Table.Route, created: Int64,
    _ budget: borrowing Budget, _ versions: Versions, _ victims: inout InlineArray<4, UInt>
  ) -> MemoryTier.ShortPut {
    // Expired entries go before live ones: the long path looks for them.
    let room = UnownedBlock.room(of: entry)
    let charge = MemoryTier.charge(of: entry, room: room)
    let isTimed = due != 0
    if _slowPath(
      created >= entries.slab.earliestDue || charge > budget.largestCharge || budget.isPaying)
    {
      return .unusual
    }
    policy.prefetch(hash)
    var route = found
    var fill = entries.table.fill(route)
    if _slowPath(!entries.slab.hasRoom || !route.hasRoom(fill)) {
      do throws(Failure) { _ = try entries.reserve(hash, budget) } catch { return .unusual }
      review(budget, 0)
      route = entries.table.route(hash).unsafelyUnwrapped
      fill = entries.table.fill(route)
    }
    let isFull = !budget.hasRoom(cost: charge, count: 1)
    if _fastPath(policy.isAdaptive) {
      policy.adaptive.prepare(hash, charge: charge, isFull: isFull, budget, entries)
    } else if puts.value & 15 == 0 {
      // The default policy sees to it.
      review(budget, charge)
    }
    var memory: UnsafeMutableRawPointer?
    var isReserved = !isFull && budget.reserve(cost: charge, count: 1)
    if !isReserved {
      isReserved = makeRoomShortly(charge, budget, &victims)
      memory = Shard.reuse(&victims, room)
    }
    if memory == nil { memory = Heap.take(room, seed: hash >> 32) }
    guard let memory else {
      if isReserved { budget.release(cost: charge, count: 1) }
      return .unusual
    }
    // Drawn before the block is written: an atomic operation waits for the stores before it.
    let version = versions.draw()
    let block = UnownedBlock(memory, entry, created: created)
    if _slowPath(!isReserved || (isTimed && !reserveTimes(budget, charge))) {
      return .unfinished(block)
    }
    setClock(created)
    puts.add(1)
    block.stamp = clock
    block.version = version
    let slot = entries.slab.take(UInt32(truncatingIfNeeded: hash >> 32))
    block.slot = slot.number
    entries.table.insert(
      Word(block, isTimed: isTimed, isBacked: false, isObject: false), route, fill)
    if _slowPath(isTimed) { noteTimed(slot, due: due) }
    unbacked.add(1)
    count.add(1)
    cost.add(charge)
    policy.admit(slot, charge: charge, entries)
    return .done
  }

  /// For the slot that the next entry gets, which counts for so much. False: there is no memory,
  /// and the budget has the charge back. The long path fails then.
  @inline(never)
  private mutating func reserveTimes(_ budget: borrowing Budget, _ charge: UInt64) -> Bool {
    do throws(Failure) { try reserveTimesOfNext(budget, charge) } catch { return false }
    if entries.bytes != counted { review(budget, 0) }
    return true
  }

  @inline(never)
  private mutating func noteTimed(_ slot: Slot, due: Int64) {
    timed.add(1)
    entries.slab.set(slot, Slab.Times(due: due, accessed: 0))
  }

  /// The memory of the first victim, if no reader holds it and it is of that size: it need not go
  /// to the heap and come back.
  @inline(__always)
  private static func reuse(
    _ victims: inout InlineArray<4, UInt>, _ room: Int
  ) -> UnsafeMutableRawPointer? {
    guard let raw = UnsafeMutableRawPointer(bitPattern: victims[0]),
      UnownedBlock(raw).isSoleAndBare, UnownedBlock(raw).room == room
    else { return nil }
    // The others, which are few, move up.
    victims[0] = victims[1]
    victims[1] = victims[2]
    victims[2] = victims[3]
    victims[3] = 0
    return raw
  }

  /// Puts another value into the block of the entry at a place, if nothing else has to change: a
  /// plain entry without times that no reader holds, of about the same size. False: something else
  /// has to, and nothing has been done.
  @inline(never)
  @_optimize(speed)
  mutating func overwritePlain(
    _ place: Table.Place, _ value: Bytes, _ hash: UInt64, created: Int64,
    _ versions: Versions
  ) -> Bool {
    overwrite(
      place, value, Bytes(start: nil, count: 0), 0, due: 0, hash, created: created, versions)
  }

  /// Likewise, of an entry with these extended data besides, with an end of its own if `expires` is
  /// not 0, and which expires at `due` if that is not 0.
  @inline(never)
  @_optimize(speed)
  private mutating func overwriteUnusual(
    _ place: Table.Place, _ value: Bytes, _ extended: Bytes, _ expires: Int64, due: Int64,
    _ hash: UInt64, created: Int64, _ versions: Versions
  ) -> Bool {
    overwrite(place, value, extended, expires, due: due, hash, created: created, versions)
  }

  @inline(__always)
  private mutating func overwrite(
    _ place: Table.Place, _ value: Bytes, _ extended: Bytes, _ expires: Int64, due: Int64,
    _ hash: UInt64, created: Int64, _ versions: Versions
  ) -> Bool {
    let word = place.pointee
    let block = word.block
    guard word.isTimed == (due != 0), !word.isBacked,
      block.isPlain(with: extended, expires: expires != 0), block.isSole,
      block.hasRoom(for: value.count, extendedSize: extended.count),
      due == 0 || isAliveUnread(block, at: created)
    else { return false }
    setClock(created)
    puts.add(1)
    replacements.add(1)
    block.overwrite(
      value, extended: extended, expires: expires, version: versions.draw(), created: created)
    if due != 0 { entries.slab.set(Slot(block.slot), Slab.Times(due: due, accessed: 0)) }
    block.stamp = clock
    noteWrite(place, block, hash)
    return true
  }

  /// See MemoryTier. The entry keeps the time of its write, and the call counts as a put, as on the
  /// long path.
  @inline(__always)
  fileprivate mutating func increment(
    _ key: Bytes, by delta: Int64, _ hash: UInt64, at: Moment, _ versions: Versions,
    sum: inout Int64
  ) -> UInt64? {
    guard let place = entries.table.find(key, hash) else { return nil }
    let block = place.pointee.block
    guard !place.pointee.isTimed, !place.pointee.isBacked, block.isPlain, block.isSole,
      block.size == 8
    else { return nil }
    let old = Int64(littleEndian: block.value.baseAddress.unsafelyUnwrapped.load(as: Int64.self))
    let (new, overflow) = old.addingReportingOverflow(delta)
    if overflow { return nil }
    tick(at)
    puts.add(1)
    replacements.add(1)
    withUnsafeBytes(of: new.littleEndian) {
      block.overwrite(
        Bytes($0), extended: Bytes(start: nil, count: 0), version: versions.draw(),
        created: block.created)
    }
    block.stamp = clock
    noteUse(place, block, hash)
    sum = new
    return block.version
  }

  /// Evicts until so much is reserved for one entry. False: a few were not enough.
  @inline(never)
  @_optimize(speed)
  private mutating func makeRoomShortly(
    _ charge: UInt64, _ budget: borrowing Budget, _ victims: inout InlineArray<4, UInt>
  ) -> Bool {
    for i in 0..<4 {
      guard let victim = policy.victimAtOnce(entries) else {
        return false
      }
      let block = victim.place.pointee.block
      let paid = takeOutAtOnce(
        victim.place, UInt64(entries.slab[victim.slot].pointee.hash) << 32, victim.slot)
      evictions.add(1)
      victims[i] = UInt(bitPattern: block.raw)
      if paid >= charge {
        // The count is what it was.
        if paid > charge { budget.release(cost: paid &- charge, count: 0) }
        return true
      }
      if budget.reserve(cost: charge &- paid, count: 0) { return true }
      budget.release(cost: paid, count: 1)
      if budget.reserve(cost: charge, count: 1) { return true }
    }
    return false
  }
}
