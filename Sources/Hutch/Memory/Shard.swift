import CSystem
import Synchronization

/// One shard: entries, the policy's state and counters. Everything here happens under the
/// shard's lock, but for reading the counters, and for reads that share the shard
/// (ShardLock.swift). Nothing here waits, frees a block or calls out.
struct Shard: ~Copyable {
  var entries: Entries
  var policy: Policy
  /// The tier's, as this shard has taken notice of them.
  var ages: Ages
  /// `clock`.
  private let time = Atomic<UInt16>(0)
  private var callsToTick: UInt8 = 1

  /// The bytes of `entries`, as the budget knows them (`review`).
  var counted = 0
  /// The hash at which `tighten` goes on.
  var tightened: UInt64 = 0

  let puts = Counter()
  let removals = Counter()
  let evictions = Counter()
  let expirations = Counter()
  let trims = Counter()
  let replacements = Counter()
  let refusals = Counter()
  let unbacked = Counter()
  /// Entries that may expire.
  let timed = Counter()
  let cost = Counter()
  let count = Counter()

  init(_ position: ShardPosition, _ common: CommonPolicy, ages: Ages) {
    entries = Entries(position, counts: !common.isAdaptive)
    policy = Policy(position, common)
    self.ages = ages
  }

  /// Adds an entry to the counts of its kind, or takes it out.
  @inline(__always)
  func count(_ word: Word, _ sign: Int64) {
    let one = UInt64(bitPattern: sign)
    if !word.isBacked { unbacked.add(one) }
    if word.isTimed { timed.add(one) }
  }

  // MARK: times

  /// Stamps count in units of 2^36 ns, 69 seconds: 16 bits wrap after 52 days.
  private static var stampShift: Int64 { 36 }

  /// Now, in the units of stamps; renewed by the way, see `tick`.
  @inline(__always) var clock: UInt16 { time.load(ordering: .relaxed) }

  /// Keeps `clock` about right at no cost that shows: every 16th call reads the clock.
  @inline(__always)
  mutating func tick(_ at: Moment) {
    if isTimeToTick || at.isGiven { readClock(at) }
  }

  /// Asked by a call that has nothing else to do with the time. True: `readClock` is owed.
  @inline(__always)
  var isTimeToTick: Bool {
    mutating get {
      callsToTick &-= 1
      return callsToTick == 0
    }
  }

  @inline(never)
  mutating func readClock(_ at: Moment) { setClock(at.time) }

  @inline(__always)
  mutating func setClock(_ time: Int64) {
    self.time.store(UInt16(truncatingIfNeeded: time >> Shard.stampShift), ordering: .relaxed)
    callsToTick = 16
  }

  /// For a read that shares the shard with others.
  func renewClock(_ time: Int64) {
    let now = UInt16(truncatingIfNeeded: time >> Shard.stampShift)
    if now != clock { self.time.store(now, ordering: .relaxed) }
  }

  /// When the entry was last read, as far as that is kept: exact if it has a time to idle.
  func accessed(_ block: UnownedBlock, at now: Int64) -> Int64 {
    if let times = entries.slab.times(Slot(block.slot)), times.pointee.accessed != 0 {
      return times.pointee.accessed
    }
    let unit = now >> Shard.stampShift
    let age = UInt16(truncatingIfNeeded: unit) &- block.stamp
    let stamped = (unit - Int64(age)) << Shard.stampShift
    return max(block.created, min(stamped, now))
  }

  @inline(never)
  func record(_ block: UnownedBlock, at now: Int64) -> Record {
    var record = block.record
    record.accessed = accessed(block, at: now)
    return record
  }

  /// True if a timed entry has expired.
  func isExpired(_ block: UnownedBlock, at now: Int64) -> Bool {
    var record = block.lifetime
    if let times = entries.slab.times(Slot(block.slot)) {
      record.accessed = max(record.created, times.pointee.accessed)
    }
    return record.isExpired(at: now, under: ages)
  }

  /// Whether a timed entry is alive, and has no time to idle, which a read would begin again.
  @inline(__always)
  func isAliveUnread(_ block: UnownedBlock, at now: Int64) -> Bool {
    !ages.mayIdle(own: block.timeToIdle) && now < block.lifetime.endOfLife(at: now, under: ages)
  }

  /// Of any entry.
  func isExpired(_ word: Word, at: Moment) -> Bool {
    word.isTimed && isExpired(word.block, at: at.time)
  }

  @inline(never)
  mutating func setTimes(_ slot: Slot, _ record: Record, at now: Int64) {
    entries.slab.set(
      slot,
      Slab.Times(
        due: min(record.endOfLife(at: now, under: ages), record.endOfIdle(at: now, under: ages)),
        accessed: ages.mayIdle(own: record.timeToIdle) ? record.accessed : 0))
  }

  // MARK: reading

  /// A live entry's place. Expired ones stay for a caller that may free them.
  @inline(__always)
  private func live(_ key: Bytes, _ hash: UInt64, at: Moment) -> Table.Place? {
    guard let place = entries.table.find(key, hash) else { return nil }
    if place.pointee.isTimed && isExpired(place.pointee.block, at: at.time) { return nil }
    return place
  }

  /// An access. `expired`: it has found an expired entry, which the caller is to remove.
  @inline(__always)
  mutating func access(
    _ key: Bytes, _ hash: UInt64, at: Moment, _ expired: inout Bool
  ) -> UnownedBlock? {
    guard let place = entries.table.findAtOnce(key, hash) else { return nil }
    let block = place.pointee.block
    if place.pointee.isTimed && !noteTimedAccess(block, at: at) {
      expired = true
      return nil
    }
    tick(at)
    if block.stamp != clock { block.stamp = clock }
    noteUse(place, block, hash)
    return block
  }

  @inline(__always)
  mutating func noteUse(_ place: Table.Place, _ block: UnownedBlock, _ hash: UInt64) {
    if place.pointee.uses < Word.mostUses { place.pointee.bits &+= 1 }
    if hash & policy.adaptive.sampleMask == 0 { policy.tell(hash, block, entries) }
  }

  /// Another value has taken the place of an entry's: a use to all policies but the default one.
  @inline(never)
  mutating func noteWrite(_ place: Table.Place, _ block: UnownedBlock, _ hash: UInt64) {
    if !policy.isAdaptive { return noteUse(place, block, hash) }
    if hash & policy.adaptive.sampleMask == 0 {
      policy.adaptive.sample(hash, charge: MemoryTier.charge(of: block), as: .put)
    }
  }

  @inline(__always)
  mutating func noteMiss(_ hash: UInt64) {
    if policy.wantsMiss(hash) { policy.tellMiss(hash) }
  }

  /// Whether the entry is alive; if so, and if it has a time to idle, that begins again.
  @inline(never)
  private func noteTimedAccess(_ block: UnownedBlock, at: Moment) -> Bool {
    let now = at.time
    if isExpired(block, at: now) { return false }
    if let times = entries.slab.times(Slot(block.slot)), times.pointee.accessed != 0 {
      times.pointee.accessed = max(times.pointee.accessed, now)
    }
    return true
  }

  func peek(_ key: Bytes, _ hash: UInt64, at: Moment) -> UnownedBlock? {
    live(key, hash, at: at)?.pointee.block
  }

  // MARK: removing

  @inline(never)
  mutating func evict(
    _ victim: Victim, _ cause: DepartureCause = .evicted, at: Moment, _ budget: borrowing Budget,
    into departures: inout Departures
  ) {
    evictAtOnce(victim, cause, at: at, budget, into: &departures)
  }

  /// The same, inlined.
  @inline(__always)
  mutating func evictAtOnce(
    _ victim: Victim, _ cause: DepartureCause, at: Moment, _ budget: borrowing Budget,
    into departures: inout Departures
  ) {
    let hash = UInt64(entries.slab[victim.slot].pointee.hash) << 32
    remove(victim.place, hash, cause, at: at, budget, into: &departures)
  }

  /// Takes an entry out and returns its charge to the budget. The block departs.
  @inline(never)
  mutating func remove(
    _ place: Table.Place, _ hash: UInt64, _ cause: DepartureCause, at: Moment,
    _ budget: borrowing Budget, into departures: inout Departures
  ) {
    let block = place.pointee.block
    var accessed: Int64 = 0
    if departures.wantsTimes {
      accessed = self.accessed(block, at: at.time)
      if accessed > block.created { departures.noteRead(block, cause, accessed, at: at.time) }
    }
    if !place.pointee.isBacked && block.isDirty && cause != .expired && cause != .replaced
      && !isExpired(place.pointee, at: at)
    {
      departures.stage(block, accessed: accessed)
    }
    if cause == .expired && place.pointee.uses != 0 { policy.remember(place, entries) }
    takeOut(place, hash, budget)
    if cause == .evicted { evictions.add(1) }
    if cause == .expired { expirations.add(1) }
    if cause == .trimmed { trims.add(1) }
    departures.add(block, cause, accessed: accessed)
  }

  /// Takes an entry out; the tier's reference to its block is then the caller's.
  @inline(never)
  @_optimize(speed)
  private mutating func takeOut(
    _ place: Table.Place, _ hash: UInt64, _ budget: borrowing Budget
  ) {
    budget.release(cost: takeOutAtOnce(place, hash, Slot(place.pointee.block.slot)), count: 1)
  }

  /// Likewise. Its charge, which the budget still holds.
  @inline(__always)
  mutating func takeOutAtOnce(_ place: Table.Place, _ hash: UInt64, _ slot: Slot) -> UInt64 {
    let word = place.pointee
    let charge = MemoryTier.charge(of: word.block)
    count(word, -1)
    count.subtract(1)
    cost.subtract(charge)
    entries.slab.times(slot)?.pointee = .none
    policy.forget(slot, &entries)
    entries.table.remove(place, hash)
    return charge
  }

  /// Where a live entry is; one that has expired is removed. `departures` is not full.
  @inline(never)
  mutating func findLive(
    _ key: Bytes, _ hash: UInt64, at: Moment, _ budget: borrowing Budget,
    into departures: inout Departures
  ) -> Table.Place? {
    guard let place = entries.table.find(key, hash) else { return nil }
    if place.pointee.isTimed && isExpired(place.pointee.block, at: at.time) {
      remove(place, hash, .expired, at: at, budget, into: &departures)
      return nil
    }
    return place
  }

  /// The block, whose reference is the caller's, of a live entry that meets the condition.
  mutating func remove(
    _ key: Bytes, _ hash: UInt64, at: Moment, _ condition: WriteCondition,
    _ budget: borrowing Budget, into departures: inout Departures
  ) -> UnownedBlock? {
    guard let place = findLive(key, hash, at: at, budget, into: &departures) else { return nil }
    let block = place.pointee.block
    guard condition.holds(for: block.version) else { return nil }
    policy.remember(place, entries)
    takeOut(place, hash, budget)
    removals.add(1)
    return block
  }

  /// False: this version is not here.
  mutating func setBacked(
    _ key: Bytes, _ hash: UInt64, version: UInt64, _ isBacked: Bool, isDirty: Bool
  ) -> Bool {
    guard let place = entries.table.find(key, hash), place.pointee.block.version == version
    else { return false }
    count(place.pointee, -1)
    place.pointee = place.pointee.with(isBacked: isBacked)
    count(place.pointee, 1)
    if isDirty || isBacked { place.pointee.block.setDirty(isDirty) }
    return true
  }

  /// Takes everything out at once, and leaves an empty state under this policy. What was there is
  /// the caller's: to free with no lock held.
  @inline(never)
  mutating func detach(_ position: ShardPosition, _ common: CommonPolicy) -> DetachedEntries {
    // Another policy has other slots. It may have come since the entries did.
    var old = Entries(position, counts: !common.isAdaptive)
    swap(&old, &entries)
    // Made here: a policy takes the selector's lock, which belongs under the shard's.
    var oldPolicy = Policy(position, common)
    swap(&oldPolicy, &policy)
    cost.subtract(cost.value)
    count.subtract(count.value)
    unbacked.subtract(unbacked.value)
    timed.subtract(timed.value)
    return DetachedEntries(entries: old, policy: oldPolicy)
  }
}

/// The entries of a shard before it got a new state. The owner has the tier's references to the
/// blocks.
struct DetachedEntries: ~Copyable {
  let entries: Entries
  let policy: Policy
}
