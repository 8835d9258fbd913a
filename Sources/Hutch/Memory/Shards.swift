import CSystem
import Synchronization

/// The shards of a tier with one policy, each behind its lock, and the budget that they share.
///
/// The first bits of a key's hash choose its shard. There is one shard at first, so that the
/// policy is exact, and up to 4,096 entries; then `divide` makes as many as the capacity asks
/// for, once. Only that changes `bits`, from 0, under the lock of shard 0.
final class ShardsOf<Policy: EvictionPolicy & ~Copyable>: MemoryShards {
  /// So many entries are one shard's, however large the limits.
  private static var oneShard: UInt64 { 4096 }
  /// A shard is made for so many entries that the limits allow.
  private static var entriesPerShard: UInt64 { 2048 }

  let hash: KeyedHash
  /// Set before the tier has its first entry.
  var onDeparture: ((UnownedBlock, DepartureCause, Int64) -> Void)?
  /// Where processes share a directory; no read finds an entry that is stale by it. Set
  /// likewise, or with every lock held.
  var coherence: CoherenceCounters? {
    @inline(__always) get { front.coherence }
    set { front.coherence = newValue }
  }
  let watch = DepartureWatch()

  /// The facts that every call, and the short path of hits, begins with (HitPath.swift).
  let front: HitPath
  /// Per shard a cache line with its lock, then its state.
  private let memory: UnsafeMutableRawPointer
  private let mostBits: UInt64
  let budget: Budget
  /// The tier's reference.
  let held: HeldCounts
  let common: Policy.Common
  /// The count at which the number of shards is considered.
  let divideAt = Atomic<UInt64>(ShardsOf.oneShard + 1)
  /// Where `maintain` goes on: shard << 32 | chunk. Two at once do the same work twice.
  private let sweep = Atomic<UInt64>(0)

  let versions: Versions
  /// Made when the tier is divided, before `bits` says so, and not changed after that.
  private(set) var recent = RecentKeys()

  init(
    _ common: Policy.Common, limits: TierLimits, hash: KeyedHash, versions: Versions,
    mostBits: UInt32
  ) throws(Failure) {
    self.hash = hash
    self.versions = versions
    self.common = common
    budget = try Budget(limits)
    held = try HeldCounts()
    self.mostBits = UInt64(mostBits)
    memory = try Allocation.lines((ShardsOf.stride / 64) << Int(mostBits))
    front = try HitPath(hash, shards: memory)
    lock(0).initialize()
    lock(0).lock()
    makeShard(0, of: 0, ages: limits.ages)
    lock(0).unlock()
  }

  deinit {
    for i in 0..<shardCount {
      shard(i).pointee.entries.table.forEach { $0.block.release() }
      shard(i).deinitialize(count: 1)
    }
    held.release()
    front.deallocate()
    recent.deallocate()
    free(memory)
  }

  // MARK: shards

  /// The bytes that a shard's lock takes of its first line.
  static var lockSize: Int { 64 }
  static var stride: Int { (lockSize + MemoryLayout<Shard<Policy>>.size + 63) & ~63 }

  @inline(__always)
  func lock(_ index: Int) -> LockInPlace {
    LockInPlace(at: memory + index &* ShardsOf.stride)
  }

  @inline(__always)
  func shard(_ index: Int) -> UnsafeMutablePointer<Shard<Policy>> {
    (memory + (index &* ShardsOf.stride &+ ShardsOf.lockSize))
      .assumingMemoryBound(to: Shard<Policy>.self)
  }

  private static func position(_ index: Int, of bits: UInt64) -> ShardPosition {
    ShardPosition(index: UInt32(index), bits: UInt32(bits))
  }

  /// With the lock of shard 0 held: a policy takes the selector's lock.
  private func makeShard(_ index: Int, of bits: UInt64, ages: Ages) {
    if index > 0 { lock(index).initialize() }
    (memory + (index * ShardsOf.stride + ShardsOf.lockSize))
      .bindMemory(to: Shard<Policy>.self, capacity: 1)
      .initialize(
        to: Shard(
          ShardsOf.position(index, of: bits), Policy(ShardsOf.position(index, of: bits), common),
          ages: ages))
  }

  /// log2 of the number of shards.
  @inline(__always) var bits: UInt64 { front.way.bits }

  var shardCount: Int { 1 << Int(bits) }

  /// A shard whose lock is held, and the bits of a hash that the shard goes by.
  struct Held {
    let shard: UnsafeMutablePointer<Shard<Policy>>
    let lock: LockInPlace
    let hash: UInt64
  }

  /// Takes the lock of the shard of a hash.
  @inline(__always)
  func hold(_ hash: UInt64) -> Held {
    let way = front.way
    let index = way.shard(hash)
    let lock = lock(index)
    lock.lock()
    // Shard 0 may have been divided while we waited for it.
    if _slowPath(way != front.way) {
      lock.unlock()
      return holdDivided(hash)
    }
    return Held(shard: shard(index), lock: lock, hash: way.local(hash))
  }

  @inline(never)
  private func holdDivided(_ hash: UInt64) -> Held {
    let way = front.way
    let index = way.shard(hash)
    lock(index).lock()
    return Held(shard: shard(index), lock: lock(index), hash: way.local(hash))
  }

  /// Runs `body` with the shard of a hash, its lock held.
  @inline(__always)
  func with<R: ~Copyable, E: Error>(
    _ hash: UInt64, _ body: (inout Shard<Policy>, UInt64) throws(E) -> R
  ) throws(E) -> R {
    let held = hold(hash)
    defer { held.lock.unlock() }
    return try body(&held.shard.pointee, held.hash)
  }

  @inline(__always)
  func with<R: ~Copyable>(
    index: Int, _ body: (inout Shard<Policy>) -> R
  ) -> R {
    let lock = lock(index)
    lock.lock()
    defer { lock.unlock() }
    return body(&shard(index).pointee)
  }

  /// Releases the blocks that have left. No lock is held.
  func deliver(_ departures: inout Departures) {
    if departures.isEmpty { return }
    departures.deliver(held) { block, cause, accessed in
      if cause != .replaced, let onDeparture { onDeparture(block, cause, accessed) }
    }
  }

  func makeDepartures() -> Departures {
    Departures(wantsTimes: onDeparture != nil, watch: .passUnretained(watch))
  }

  // MARK: reading

  /// An access. If an entry is found, the shard's lock is held.
  @inline(__always)
  func find(
    _ key: Bytes, _ hash: UInt64, at: Moment, countsMiss: Bool = true
  ) -> (UnownedBlock, Held)? {
    var expired = false
    let held = hold(hash)
    if let coherence { coherence.prefetch(hash) }
    guard let block = held.shard.pointee.access(key, held.hash, at: at, &expired) else {
      if !countsMiss { held.shard.pointee.misses.subtract(1) }
      held.lock.unlock()
      if expired { reclaim(key, hash, at: at) }
      return nil
    }
    if let coherence, !coherence.isCurrent(block, hash) {
      miss(held, counts: countsMiss)
      return nil
    }
    return (block, held)
  }

  @_optimize(speed)
  func get(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block? {
    guard let (block, held) = find(key, hash, at: at) else { return nil }
    let reference = block.retained()
    held.lock.unlock()
    return reference
  }

  /// An access found an entry that is stale: it is as if there was none.
  @inline(never)
  private func miss(_ held: Held, counts: Bool) {
    held.shard.pointee.hits.subtract(1)
    if counts { held.shard.pointee.misses.add(1) }
    held.lock.unlock()
  }

  /// Removes an entry that a read found expired.
  @inline(never)
  private func reclaim(_ key: Bytes, _ hash: UInt64, at: Moment) {
    var departures = makeDepartures()
    with(hash) { shard, hash in
      shard.reclaim(key, hash, at: at, budget, into: &departures)
    }
    deliver(&departures)
  }

  // MARK: removing

  func remove(
    _ key: Bytes, _ hash: UInt64, at: Moment, _ condition: WriteCondition
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

  func setBacked(
    _ key: Bytes, _ hash: UInt64, version: UInt64, _ isBacked: Bool, isDirty: Bool
  ) -> Bool {
    with(hash) { shard, hash in
      shard.setBacked(key, hash, version: version, isBacked, isDirty: isDirty)
    }
  }

  // MARK: dividing

  /// Makes several shards of the first one, if the limits allow for so many entries of the
  /// present average charge; else looks again when there are twice as many. A few thousand
  /// entries move under one hold of the lock, once in the life of a tier.
  @inline(never)
  func divide(at: Moment) {
    var old = Entries<Policy.Node>(ShardPosition())
    lock(0).lock()
    let first = shard(0)
    let count = first.pointee.count.value
    guard bits == 0, count >= divideAt.load(ordering: .relaxed) else {
      lock(0).unlock()
      return
    }
    let capacity = budget.capacity.entries
    var bits: UInt64 = 0
    while bits < mostBits && capacity >> (bits + 1) >= ShardsOf.entriesPerShard { bits += 1 }
    guard bits > 0 else {
      divideAt.store(count * 2, ordering: .relaxed)
      lock(0).unlock()
      return
    }
    // The places are found before any entry moves. An entry that has moved names a slot of its new
    // shard, and of two entries with the same tag the slot tells which one is meant.
    let places: UnsafeMutablePointer<(slot: Slot, place: Table.Place)>
    do throws(Failure) {
      places = try Allocation.array((slot: Slot, place: Table.Place).self, Int(count))
    } catch {
      divideAt.store(count * 2, ordering: .relaxed)
      lock(0).unlock()
      return
    }
    defer { free(places) }
    var found = 0
    first.pointee.policy.forEach(first.pointee.entries) { slot in
      places[found] = (slot, first.pointee.entries.place(of: slot))
      found += 1
    }
    for i in 1..<1 << Int(bits) { makeShard(i, of: bits, ages: first.pointee.ages) }
    old = Entries(ShardsOf.position(0, of: bits))
    var policy = Policy(ShardsOf.position(0, of: bits), common)
    swap(&old, &first.pointee.entries)
    swap(&policy, &first.pointee.policy)
    first.pointee.forgetSums()
    var lost: UInt64 = 0
    var lostCost: UInt64 = 0
    for i in 0..<found {
      let (slot, place) = places[i]
      let word = place.pointee
      let key = word.block.key
      let hash = word.isObject ? hash.object(key) : hash.entry(key)
      let times = word.isTimed ? old.slab.times(slot)?.pointee : nil
      let target = shard(Int((hash >> 1) &>> (63 &- bits)))
      do throws(Failure) {
        try target.pointee.adopt(
          word, hash &<< bits, old.node(slot).pointee, times,
          isMarked: old.slab[slot].pointee.isMarked)
        place.pointee.uses = 1
      } catch {
        // No memory for it: evicted.
        lost += 1
        lostCost += MemoryTier.charge(of: word.block)
        place.pointee.uses = 0
        if word.block.isDirty { watch.onDirty(word.block, word.block.created) }
      }
    }
    budget.release(cost: lostCost, count: lost)
    first.pointee.evictions.add(lost)
    recent = RecentKeys.make()
    front.set(HitPath.Way(bits: bits))
    lock(0).unlock()

    if lost == 0 { return }
    let now = at.time
    old.table.forEach { word in
      if word.uses == 1 { return }
      watch.active?._withUnsafeGuaranteedRef { $0.onLeaving(word.block, .evicted) }
      if let onDeparture { onDeparture(word.block, .evicted, min(word.block.created, now)) }
      word.block.depart(held)
      word.block.releaseInside()
    }
  }

  /// 4,096 slots a call; few of them have anything to read.
  func maintain(at: Moment) -> Bool {
    let position = sweep.load(ordering: .relaxed)
    var index = Int(position >> 32)
    var chunk = Int(position & 0xFFFF_FFFF)
    var departures = makeDepartures()
    for _ in 0..<16 {
      if index >= shardCount { break }
      let isEnd = with(index: index) { shard -> Bool in
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

  // MARK: numbers

  var count: UInt64 { budget.count }
  var cost: UInt64 { budget.cost }

  private func sum(_ part: (borrowing Shard<Policy>) -> UInt64) -> UInt64 {
    var sum: UInt64 = 0
    for i in 0..<shardCount { sum &+= part(shard(i).pointee) }
    return sum
  }

  var unbackedCount: UInt64 { sum { $0.unbacked.value } }
  var hasExpiring: Bool { sum { $0.timed.value } > 0 }
  var largestCharge: UInt64 { budget.largestCharge }

  var stats: TierStats {
    var stats = TierStats()
    stats.count = count
    stats.cost = cost
    stats.hits = sum { $0.hits.value }
    stats.misses = sum { $0.misses.value }
    stats.puts = sum { $0.puts.value }
    stats.removals = sum { $0.removals.value }
    stats.evictions = sum { $0.evictions.value }
    stats.expirations = sum { $0.expirations.value }
    stats.refusals = sum { $0.refusals.value }
    stats.replacements = sum { $0.replacements.value }
    stats.trims = sum { $0.trims.value }
    stats.heldCount = held.count
    stats.heldBytes = held.bytes
    return stats
  }

  /// The invariant that does not hold, or nil; for tests, while no thread writes.
  func violation() -> StaticString? {
    var cost: UInt64 = 0
    var count: UInt64 = 0
    for i in 0..<shardCount {
      let found = with(index: i) { shard -> StaticString? in
        cost &+= shard.cost.value
        count += shard.count.value
        return shard.violation()
      }
      if let found { return found }
    }
    if cost != budget.cost { return "the budget's cost is wrong" }
    if count != budget.count { return "the budget's count is wrong" }
    return budget.isWithinLimits ? nil : "above the limits"
  }
}
