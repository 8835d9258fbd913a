internal import CHutch
import CSystem
import Synchronization

/// The memory tier: entries in memory, within limits, by key.
///
/// Entries are blocks (Model/Block.swift), counted and immutable, so a reader needs the lock
/// only until it has a reference or a small copy. Beside the block an entry has a word in its
/// shard's table and a slot in its slab.
///
/// CONCURRENCY. Keys are spread over shards by hash, each with a lock of its own that protects
/// its table, slab and policy. No thread ever holds two of these locks, and none while it frees
/// a block, calls out or waits: blocks that leave go into `Departures`, which are given up when
/// the lock is free. (A fork takes them all, in their order: MemoryTier+Fork.swift.) Counters are
/// written under the lock and read by any thread. Reads that would often wait for each other share
/// a shard: each takes a lock that is its thread's in place of the shard's (ShardLock.swift). The
/// only lock that is taken under either is the selector's (Selector.swift), which takes none.
///
/// LOOKUP. Two cache lines that depend on each other: the line of words that the hash leads to,
/// where 15 bits of hash tell the entry from its neighbours, and the block with the key. A hit
/// changes what is in these lines, and for policies that keep lists the slot. It allocates
/// nothing, reads no clock, and retains nothing but the block it gives. Where a cache is as most
/// are, calls of the C ABI go straight to the shard (HitPath.swift).
///
/// LIMITS. One budget for all shards. A put reserves its charge before it stores, and evicts
/// until the reservation succeeds: from its own shard, and if that has no more, from others one
/// at a time. So limits are exact and hold at every moment, for any number of threads. What counts
/// is the memory that entries take, and pages in memory are a few percent more (Budget.swift,
/// System/Heap.swift).
///
/// EXPIRY. A bit in an entry's word says that it may expire; only for such an entry a read looks at
/// the record and at a (coarse) clock. Expired entries are absent for every read and condition.
/// `maintain` finds the expired entries that no call asks for by a list of times beside the slots.
///
/// GROWTH. Tables grow by segments of at most 600 entries, slabs by chunks of 256 slots.
///
/// EVICTION. One instance of the policy a shard (Policy.swift): exact lru, lfu and fifo, or the
/// adaptive default (Adaptive.swift), whose shards follow one selector. A hit raises a count of two
/// bits in the word.
///
/// BYTES. What an entry takes in memory beyond its key, value, extended data and tag, in a tier
/// that is full of some hundred thousand entries (Tests/ABI/bytes.c measures it):
///
/// | part                                             | bytes                                  |
/// |--------------------------------------------------|----------------------------------------|
/// | header of the block: a plain entry               | 32                                     |
/// | with a checksum, extended data or a tag          | 48                                     |
/// | with a time to live, a time to idle or a cost    | 80                                     |
/// | the key's end, so that the value is aligned      | to the next multiple of 16             |
/// | the block's end and the heap's header            | 8, and to the next multiple of 16      |
/// | word in the table                                | 9.2 to 11: 8 at a load of .73 to .87   |
/// | slot: default policy                             | 8.1                                    |
/// | slot: other policies, with a count of uses       | 16.1                                   |
/// | times beside the slots, if it may expire         | 16.1                                   |
/// | ghosts, once entries have been evicted: default  | 4                                      |
/// | sketch: default                                  | 2 to 4                                 |
/// | shadows: default; the most is at 65,536 entries  | up to 8; 0.4 of a million              |
///
/// An entry that came from a disk tier, or went to one, has a checksum. A tier that has no limit,
/// or is not full, has up to 15 bytes of words an entry, and no ghosts.
///
/// COST. The list policies do not look at it. The default weighs age and frequency against cost
/// where costs differ and the cost limit is the one that is reached: it keeps lists by powers of
/// two of cost over frequency, and evicts the head with the largest age times cost
/// (CostLists.swift, after Aggarwal, Wolf and Yu, 1999, and GreedyDual-Size-Frequency, Cherkasova,
/// 1998), and shadows with a limit on cost. It takes no more memory per entry: 7 bits beside the
/// link say which list.
///
/// OBJECTS. A host's object is a block whose value is a pointer (Model/HostObject.swift), under a
/// hash that says so in its lowest bits, and a word with a bit that lookups compare with the tag:
/// a key space of its own that costs a lookup a few instructions and no read.
///
/// REFERENCES. Tags beside pointers, packed lines: Abseil's Swiss tables, Facebook's F14.
/// Directory of segments: extendible hashing (see Table.swift). Slots addressed by index, and
/// values dropped off-lock: quick_cache. The segmented queue: 2Q, S3-FIFO, W-TinyLFU.
final class MemoryTier {
  /// The hash of keys, with the store's secrets if there is a store.
  let keyed: KeyedHash
  /// Called for each block that is evicted, expires or is cleared, with the time of its last
  /// access, before the tier gives up its reference and with no lock held. To be set before
  /// the first put.
  var onDeparture: ((UnownedBlock, DepartureCause, Int64) -> Void)?
  /// Tells of blocks as they leave, replaced ones included, under the locks of the tier.
  let watch = DepartureWatch()
  /// The facts that every call, and the short path of hits, begins with (HitPath.swift).
  let front: HitPath
  let budget: Budget
  /// The tier's reference.
  let held: HeldCounts
  let versions: Versions
  /// Made when the tier is divided, before `front` says so, and not changed after that.
  var recent = RecentKeys()
  /// The count at which the number of shards is considered.
  let divideAt = Atomic<UInt64>(MemoryTier.oneShard + 1)
  /// From this sum of charges on a put has the cache start its background work, for huge pages.
  /// Relaxed: to start it twice does nothing.
  let upkeepAt = Atomic<UInt64>(MemoryTier.leastForUpkeep)
  /// Where `maintain` goes on: shard << 32 | chunk. Two at once do the same work twice.
  let sweep = Atomic<UInt64>(0)
  /// What the policies of all shards share. Read under a shard's lock, or by the call that changes
  /// it; it changes with every lock of the tier held.
  var common: CommonPolicy
  /// Per shard a cache line with its lock, then its state; behind them the lines of readers, and
  /// those of `front`.
  private let memory: UnsafeMutableRawPointer
  let mostBits: UInt64
  /// The last property: what a tier owns is released in the order of its properties.
  private let rest = HeapRest()

  private init(
    _ hash: KeyedHash, _ versions: Versions, _ common: CommonPolicy, _ budget: consuming Budget,
    _ held: HeldCounts, _ front: HitPath, _ memory: UnsafeMutableRawPointer, mostBits: UInt32
  ) {
    keyed = hash
    self.versions = versions
    self.common = common
    self.budget = budget
    self.held = held
    self.front = front
    self.memory = memory
    self.mostBits = UInt64(mostBits)
  }

  /// `versions`: for blocks that come without one, drawn under the lock of their shard, so that
  /// of two puts at once the newer version wins. `cores`: of the machine, if not given. Delegates:
  /// see Copying.
  convenience init(
    limits: TierLimits, policy: EvictionPolicy, hash: KeyedHash, versions: Versions,
    coherence: CoherenceCounters? = nil, cores: Int = sysconf(Int32(_SC_NPROCESSORS_ONLN))
  ) throws(Failure) {
    let bits = ShardPosition.bits(ofCores: cores)
    Heap.prepare(cores: cores)
    let common = try CommonPolicy(policy, shardBits: bits)
    let budget = try Budget(limits)
    let lines = MemoryTier.lines(Int(bits))
    let memory = try Heap.mapLines(lines)
    let held: HeldCounts
    do throws(Failure) {
      held = try HeldCounts()
    } catch {
      Heap.unmap(memory, lines: lines)
      throw error
    }
    let front = HitPath(hash, at: memory + (lines - HitPath.lineCount) * 64, shards: memory)
    self.init(hash, versions, common, budget, held, front, memory, mostBits: bits)
    initialize(lock(0))
    lock(0).forEachReader(initialize)
    lock(0).lockByCall()
    makeShard(0, of: 0, ages: limits.ages)
    lock(0).unlock()
    front.coherence = coherence
  }

  deinit {
    for i in 0..<shardCount {
      shard(i).pointee.entries.table.forEach { $0.block.release() }
      shard(i).deinitialize(count: 1)
    }
    held.release()
    recent.deallocate()
    Heap.unmap(memory, lines: MemoryTier.lines(Int(mostBits)))
  }

  @inline(never)
  func hash(_ key: Bytes) -> UInt64 { keyed.entry(key) }
  /// The same, inlined.
  @inline(__always)
  func hashAtOnce(_ key: Bytes) -> UInt64 {
    keyed.entry(key.baseAddress.unsafelyUnwrapped, key.count)
  }
  /// With this hash every call is about host objects, which have keys of their own.
  func hash(ofObject key: Bytes) -> UInt64 { keyed.object(key) }

  func hits(isMemory: Bool) -> HitPath { isMemory ? front : front.closed }

  /// Before the first call. `isAll`: the cache has no other tier.
  func prepareHits(_ clock: Clock, isAll: Bool) {
    front.prepare(clock, self, isAll: isAll)
    openHits()
  }

  /// Hits go their short way in this process.
  func openHits() { front.open() }

  /// Where processes share a directory; no read finds an entry that is stale by it.
  @inline(__always)
  var coherence: CoherenceCounters? { front.coherence }

  /// From here on processes share what is below; with every lock of the tier held.
  func share(_ coherence: CoherenceCounters?) { front.coherence = coherence }

  // MARK: shards

  /// Of so many shards, of which most tiers use a few, of their readers and of `front`.
  private static func lines(_ bits: Int) -> Int {
    (stride / 64) << bits + ShardLock.lines(ofReaders: 1 << bits) + HitPath.lineCount
  }

  static var stride: Int { (ShardLock.size + MemoryLayout<Shard>.size + 63) & ~63 }

  @inline(__always)
  func lock(_ index: Int) -> ShardLock { ShardLock(at: memory + index &* MemoryTier.stride) }

  @inline(__always)
  func shard(_ index: Int) -> UnsafeMutablePointer<Shard> { lock(index).shard }

  /// There are as many lines of readers as there may be shards, behind them.
  private func initialize(_ lock: ShardLock) {
    lock.initialize(front, memory + MemoryTier.stride << Int(mostBits), 1 << Int(mostBits))
  }

  static func position(_ index: Int, of bits: UInt64) -> ShardPosition {
    ShardPosition(index: UInt32(index), bits: UInt32(bits))
  }

  /// With the lock of shard 0 held: a policy takes the selector's lock.
  func makeShard(_ index: Int, of bits: UInt64, ages: Ages) {
    if index > 0 { initialize(lock(index)) }
    shard(index).initialize(to: Shard(MemoryTier.position(index, of: bits), common, ages: ages))
  }

  /// log2 of the number of shards.
  @inline(__always) var bits: UInt64 { front.way.bits }

  var shardCount: Int { 1 &<< Int(bits) }

  /// A shard whose lock is held, and the bits of a hash that the shard goes by.
  struct LockedShard {
    let shard: UnsafeMutablePointer<Shard>
    let lock: ShardLock
    let hash: UInt64
  }

  /// Takes the lock of the shard of a hash.
  @inline(__always)
  func lockShard(_ hash: UInt64) -> LockedShard {
    let way = front.way
    let (offset, localHash) = way.split(hash)
    let lock = ShardLock(at: memory + offset)
    lock.lock()
    // Shard 0 may have been divided while this thread waited for its lock.
    if _slowPath(way != front.way) {
      lock.unlock()
      return lockByCall(hash)
    }
    return LockedShard(shard: lock.shard, lock: lock, hash: localHash)
  }

  /// The same, for calls that are less frequent than hits and short puts.
  @inline(never)
  private func lockByCall(_ hash: UInt64) -> LockedShard { lockShard(hash) }

  /// Runs `body` with the shard of a hash, its lock held.
  @inline(__always)
  func with<R: ~Copyable, E: Error>(
    _ hash: UInt64, _ body: (inout Shard, UInt64) throws(E) -> R
  ) throws(E) -> R {
    let locked = lockByCall(hash)
    defer { locked.lock.unlockByCall() }
    return try body(&locked.shard.pointee, locked.hash)
  }

  @inline(__always)
  func with<R: ~Copyable>(
    index: Int, _ body: (inout Shard) -> R
  ) -> R {
    let lock = lock(index)
    lock.lockByCall()
    defer { lock.unlockByCall() }
    return body(&lock.shard.pointee)
  }

  /// As `with(index:)`, for a caller that sees all entries of a shard, a slice under each hold of
  /// the lock: a put or a read waits for one slice, not for all of them.
  @inline(__always)
  func withSlice<R: ~Copyable>(
    of index: Int, _ body: (inout Shard) -> R
  ) -> R {
    let lock = lock(index)
    lock.lockByCall()
    defer { lock.unlockFairly() }
    return body(&lock.shard.pointee)
  }

  /// Goes from line to line of a shard's table under one such hold, over at most so many lines.
  /// `visit` gets the hash of a line, and returns the hash to go on from; nil at the end. So does
  /// this function.
  @inline(never)
  func visitLines(
    of index: Int, from hash: UInt64, most: Int, _ visit: (inout Shard, UInt64) -> UInt64?
  ) -> UInt64? {
    withSlice(of: index) { shard in
      var next: UInt64? = hash
      for _ in 0..<most {
        guard let hash = next else { break }
        next = visit(&shard, hash)
      }
      return next
    }
  }

  /// Releases the blocks that have left. No lock is held.
  @inline(__always)
  func deliver(_ departures: inout Departures) {
    if !departures.isEmpty { deliverAll(&departures) }
  }

  @inline(never)
  private func deliverAll(_ departures: inout Departures) {
    departures.deliver(held) { block, cause, accessed in
      if cause != .replaced, let onDeparture { onDeparture(block, cause, accessed) }
    }
  }

  /// Built for size it would clear them byte by byte.
  @inline(never) @_optimize(speed)
  func makeDepartures() -> Departures {
    Departures(wantsTimes: onDeparture != nil, watch: .passUnretained(watch))
  }

  // MARK: numbers

  /// Entries, those included that have expired and are not yet reclaimed.
  var count: UInt64 { budget.count }
  var cost: UInt64 { budget.cost }

  private func sum(_ part: (borrowing Shard) -> UInt64) -> UInt64 {
    var sum: UInt64 = 0
    for i in 0..<shardCount { sum &+= part(shard(i).pointee) }
    return sum
  }

  /// Of what reads count.
  private func sumOfLines(_ part: (borrowing ShardLock.Line) -> UInt64) -> UInt64 {
    var sum: UInt64 = 0
    for i in 0..<shardCount { sum &+= part(lock(i).line.pointee) }
    lock(0).forEachReader { sum &+= part($0.line.pointee) }
    return sum
  }

  /// The ages that count for entries without their own. The first shard takes notice of others
  /// first.
  var ages: Ages { with(index: 0) { $0.ages } }

  /// Entries that the disk tier has not.
  var unbackedCount: UInt64 { sum { $0.unbacked.value } }
  /// Whether `maintain` can have anything to do, now or later.
  var hasExpiring: Bool { sum { $0.timed.value } > 0 }
  /// The tier refuses an entry with a larger charge.
  var largestCharge: UInt64 { budget.largestCharge }

  @inline(never)
  var stats: TierStats {
    var stats = TierStats(isUp: true)
    stats.count = count
    stats.cost = cost
    stats.hits = sumOfLines { $0.hits.value }
    stats.misses = sumOfLines { $0.misses.value }
    stats.puts = sum { $0.puts.value }
    stats.removals = sum { $0.removals.value }
    stats.evictions = sum { $0.evictions.value }
    stats.expirations = sum { $0.expirations.value }
    stats.refusals = sum { $0.refusals.value }
    stats.replacements = sum { $0.replacements.value }
    stats.trims = sum { $0.trims.value }
    stats.held_count = held.count
    stats.held_bytes = held.bytes
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

extension MemoryTier {
  /// The charge of an entry beyond the room of its block: the heap's header, the word, the slot,
  /// and what the policy remembers. At capacity they were 34 to 35 bytes, and with the default
  /// policy at 65,536 entries 41. Tests/ABI/bytes.c compares the charge with the memory.
  static let overhead: UInt64 = 38
  /// The slab's bytes for an entry that may expire.
  static let overheadOfTimes: UInt64 = 16

  /// An entry's charge in the tier's cost: its explicit cost, or the memory that it takes: key,
  /// value and the rest of the block, as the heap rounds them, and the overhead. The rounding
  /// counts, since for small entries it is up to a fifth of the memory.
  /// It follows from the block alone, so that it is the same when the entry leaves. An entry that
  /// expires only by the tier's own ages is charged no times.
  @inline(never) @_optimize(speed)
  static func charge(of block: UnownedBlock) -> UInt64 {
    guard let size = block.plainSize() else { return charge(ofUnusual: block) }
    return charge(block.keySize, size, 0)
  }

  @inline(never)
  private static func charge(ofUnusual block: UnownedBlock) -> UInt64 {
    let cost = block.cost
    if cost != 0 { return cost == Record.noCost ? 0 : cost }
    let mayExpire = block.expires != 0 || block.timeToIdle != 0
    return charge(ofRoom: block.room) &+ (mayExpire ? overheadOfTimes : 0)
  }

  /// The same, of a plain entry, or of one that has only these extended data besides.
  @inline(__always)
  static func charge(_ keySize: Int, _ valueSize: Int, _ extendedSize: Int) -> UInt64 {
    charge(ofRoom: UnownedBlock.room(keySize, valueSize, extendedSize))
  }

  /// The same, of an entry whose block needs so much room (`UnownedBlock.room`).
  @inline(__always)
  static func charge(ofRoom room: Int) -> UInt64 {
    overhead &+ UInt64(bitPattern: Int64(room))
  }

  /// No entry without a cost of its own has a lower charge.
  static var leastCharge: UInt64 { charge(0, 0, 0) }
}

extension WriteCondition {
  /// The answer of a put whose condition does not hold; nil: it does. `existing`: 0 for none.
  @inline(__always)
  func refusal(existing: UInt64, new: UInt64) -> MemoryPutResult.Outcome? {
    if holds(for: existing, new: new) { return nil }
    if kind == .absent { return .exists }
    return existing == 0 ? .notFound : .conflict
  }
}

struct MemoryPutResult {
  enum Outcome { case stored, tooLarge, exists, notFound, conflict }
  let outcome: Outcome
  /// The version that was there; 0: there was no entry.
  let existing: UInt64
  /// The version of a put that was done, or was too large; else 0.
  var version: UInt64 = 0
  /// The disk tier was owed the one that was there.
  var wasDirty = false

  init(_ outcome: Outcome, existing: UInt64) {
    self.outcome = outcome
    self.existing = existing
  }
}
