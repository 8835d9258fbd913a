import CSystem

/// The memory tier: entries in memory, within limits, by key.
///
/// Entries are blocks (Model/Block.swift), counted and immutable, so a reader needs the lock
/// only until it has a reference or a small copy. Beside the block an entry has a word in its
/// shard's table and a slot in its slab.
///
/// CONCURRENCY. Keys are spread over shards by hash, each with a lock of its own that protects
/// its table, slab and policy. No thread ever holds two of these locks, and none while it frees
/// a block, calls out or waits: blocks that leave go into `Departures`, which are given up when
/// the lock is free. (A fork takes them all, in their order: Shards+Fork.swift.) Counters are
/// written under the lock and read by any thread. The only lock that is taken under a shard's is
/// the selector's (Selector.swift), which takes none.
///
/// LOOKUP. Two cache lines that depend on each other: the line of words that the hash leads to,
/// where 15 bits of hash tell the entry from its neighbours, and the block with the key. A hit
/// changes what is in these lines, and for policies that keep lists the slot. It allocates
/// nothing, reads no clock, and retains nothing but the block it gives. Where a cache is as most
/// are, calls of the C ABI go straight to the shard (HitPath.swift).
///
/// LIMITS. One budget for all shards. A put reserves its charge before it stores, and evicts
/// until the reservation succeeds: from its own shard, and if that has no more, from others one
/// at a time. So limits are exact and hold at every moment, for any number of threads.
///
/// EXPIRY. A bit in an entry's word says that it may expire; only for such an entry a read looks at
/// the record and at a (coarse) clock. Expired entries are absent for every read and condition.
/// `maintain` finds the expired entries that no call asks for by a list of times beside the slots.
///
/// GROWTH. Tables grow by segments of at most 448 entries, slabs by chunks of 256 slots.
///
/// EVICTION. Policies stand behind a protocol, one instance a shard: exact lru, lfu and fifo,
/// and the adaptive default (Adaptive.swift), whose shards follow one selector. A hit raises a
/// count of two bits in the word.
///
/// COST. The list policies do not look at it. The default weighs age and frequency against cost
/// where costs differ and the cost limit is the one that is reached: it keeps lists by powers of
/// two of cost over frequency, and evicts the head with the largest age times cost
/// (CostLists.swift, after Aggarwal, Wolf and Yu, 1999, and GreedyDual-Size-Frequency, Cherkasova,
/// 1998), and shadows with a limit on cost. It takes no more memory per entry: 7 bits among the
/// links say which list.
///
/// OBJECTS. A host's object is a block whose value is a pointer (Model/HostObject.swift), under a
/// hash that says so in its lowest bits, and a word with a bit that lookups compare with the tag:
/// a key space of its own that costs a lookup a few instructions and no read.
///
/// REFERENCES. Tags beside pointers, packed lines: Abseil's Swiss tables, Facebook's F14.
/// Directory of segments: extendible hashing (see Table.swift). Slots addressed by index, and
/// values dropped off-lock: quick_cache. The segmented queue: 2Q, S3-FIFO, W-TinyLFU.
final class MemoryTier {
  let shards: any MemoryShards

  /// The cost of a plain entry beyond its key, value and extended data: the block's header and
  /// malloc's, the word, the slot, the rounding of each, and what the policy remembers. Of a
  /// million plain entries it was 68 to 72 bytes of resident memory, and 78 to 82 with the adaptive
  /// policy at its capacity.
  static let overhead: UInt64 = 80
  /// The slab's bytes for an entry that may expire.
  static let overheadOfTimes: UInt64 = 16

  /// An entry's charge in the tier's cost: its explicit cost, or the memory that it takes.
  /// It follows from the block alone, so that it is the same when the entry leaves. An entry that
  /// expires only by the tier's own ages is charged no times.
  @inline(__always)
  static func charge(of block: UnownedBlock) -> UInt64 {
    // No sum overflows: the block was allocated.
    let plain = overhead &+ UInt64(block.keySize &+ block.size &+ block.extendedSize)
    if block.isPlain { return plain }
    let cost = block.cost
    if cost != 0 { return cost }
    let mayExpire = block.expires != 0 || block.timeToIdle != 0
    return plain &+ UInt64(block.extraSize) &+ (mayExpire ? overheadOfTimes : 0)
  }

  /// The same, of a plain entry, or of one that has only these extended data besides.
  @inline(__always)
  static func charge(_ key: Bytes, _ value: Bytes, _ extended: Bytes) -> UInt64 {
    let header =
      extended.count == 0 ? 0 : UnownedBlock.At.extendedHeader &- UnownedBlock.At.header
    let size = key.count &+ value.count &+ extended.count &+ header
    return overhead &+ UInt64(bitPattern: Int64(size))
  }

  /// `versions`: for blocks that come without one, drawn under the lock of their shard, so that
  /// of two puts at once the newer version wins. `cores`: of the machine, if not given.
  init(
    limits: TierLimits, policy: MemoryPolicy, hash: KeyedHash, versions: Versions,
    coherence: CoherenceCounters? = nil, cores: Int = sysconf(Int32(_SC_NPROCESSORS_ONLN))
  ) throws(Failure) {
    let bits = ShardPosition.bits(ofCores: cores)
    let order: ListPolicy.Order? =
      switch policy {
      case .lru: .used
      case .lfu: .count
      case .fifo: .stored
      case .adaptive: nil
      }
    if let order {
      shards = try ShardsOf<ListPolicy>(
        ListPolicy.Rule(order), limits: limits, hash: hash, versions: versions, mostBits: bits)
      adaptive = nil
    } else {
      let made = try ShardsOf<Adaptive>(
        Selector(shardBits: bits), limits: limits, hash: hash, versions: versions, mostBits: bits)
      shards = made
      adaptive = made
    }
    keyed = hash
    shards.coherence = coherence
  }

  /// The hash of keys, with the store's secrets if there is a store.
  let keyed: KeyedHash
  /// The shards, if the policy is the one with short paths.
  private let adaptive: ShardsOf<Adaptive>?

  func hits(isMemory: Bool) -> HitPath { isMemory ? shards.front : shards.front.closed }

  /// Before the first call. `isAll`: the cache has no other tier.
  func prepareHits(_ clock: Clock, isAll: Bool) {
    if let adaptive { adaptive.front.prepare(clock, adaptive, isAll: isAll) }
    openHits()
  }

  /// Hits go their short way in this process.
  func openHits() { shards.front.open() }

  @inline(__always)
  func hash(_ key: Bytes) -> UInt64 { keyed.entry(key) }
  /// The same, inlined.
  @inline(__always)
  func hashAtOnce(_ key: Bytes) -> UInt64 {
    keyed.entry(key.baseAddress.unsafelyUnwrapped, key.count)
  }
  /// With this hash every call is about host objects, which have keys of their own.
  func hash(ofObject key: Bytes) -> UInt64 { keyed.object(key) }

  /// Called for each block that is evicted, expires or is cleared, with the time of its last
  /// access, before the tier gives up its reference and with no lock held. To be set before
  /// the first put.
  var onDeparture: ((UnownedBlock, DepartureCause, Int64) -> Void)? {
    get { shards.onDeparture }
    set { shards.onDeparture = newValue }
  }

  /// Tells of blocks as they leave, replaced ones included, under the locks of the tier.
  var watch: DepartureWatch { shards.watch }

  // MARK: reading

  /// A reference to the entry's block; an access.
  @inline(__always)
  func get(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block? { shards.get(key, hash, at: at) }

  /// The part that is asked for, copied if it fits, else by reference; an access either way. A
  /// miss is not counted if the caller means to come back.
  @inline(__always)
  func look(
    _ key: Bytes, _ hash: UInt64, at: Moment, into buffer: UnsafeMutableRawBufferPointer,
    _ part: Look.Part, countsMiss: Bool
  ) -> Look {
    shards.look(key, hash, at: at, into: buffer, part, countsMiss: countsMiss)
  }

  /// Whether there is an entry; no access.
  @inline(__always)
  func has(_ key: Bytes, _ hash: UInt64, at: Moment) -> Bool {
    version(key, hash, at: at) != 0
  }

  /// The version of the entry, or 0 if there is none; no access.
  @inline(__always)
  func version(_ key: Bytes, _ hash: UInt64, at: Moment) -> UInt64 {
    shards.version(key, hash, at: at)
  }

  /// As `get`, but no access.
  func peek(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block? {
    shards.peek(key, hash, at: at)
  }

  /// Where processes share a directory, for a reader that has found nothing in it: as `peek`, but
  /// an entry counts also while the commit is under way that ends it.
  func peekDuringCommit(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block? {
    shards.peekDuringCommit(key, hash, at: at)
  }

  /// Of the entry that `peekDuringCommit` finds, the version and the mark at one moment: the end of
  /// a commit may change the mark of a block that is in the tier.
  func copyDuringCommit(
    _ key: Bytes, _ hash: UInt64, at: Moment
  ) -> (version: UInt64, mark: UInt32)? {
    shards.copyDuringCommit(key, hash, at: at)
  }

  /// The entry's record with the time of its last access: exact for an entry with a time to
  /// idle, else within minutes. No access.
  func info(_ key: Bytes, _ hash: UInt64, at: Moment) -> Record? {
    shards.info(key, hash, at: at)
  }

  /// When the entry was last read, if the disk tier has this version of it: reads of a newer one
  /// keep no older row alive. No access.
  func lastAccess(_ key: Bytes, _ hash: UInt64, at: Moment) -> Int64? {
    shards.lastAccess(key, hash, at: at)
  }

  // MARK: writing

  /// Stores the block if the condition holds, decided and done as one. When it returns the tier
  /// is within its limits. An entry that is too large is not stored, and what it would have
  /// replaced is removed. Fails with nothing changed but what had to go for it.
  func put(
    _ block: consuming Block, _ hash: UInt64, at: Moment, condition: WriteCondition = .always,
    isBacked: Bool = false
  ) throws(Failure) -> MemoryPutResult {
    try shards.put(block, hash, at: at, condition, isBacked: isBacked)
  }

  /// Stores a value with no record but that it was written now, over whatever there is.
  @inline(__always)
  func put(
    _ key: Bytes, _ value: Bytes, _ hash: UInt64, at: Moment
  ) throws(Failure) -> MemoryPutResult {
    try shards.put(key, value, hash, at: at)
  }

  /// Takes the entry out and returns its block; nil: none, or the condition does not hold.
  func remove(
    _ key: Bytes, _ hash: UInt64, at: Moment, condition: WriteCondition = .always
  ) -> Block? {
    shards.remove(key, hash, at: at, condition)
  }

  /// Where processes share a directory: see Shards+Coherence.swift.
  func setMark(_ key: Bytes, _ hash: UInt64, committed version: UInt64, _ mark: UInt32) {
    shards.setMark(key, hash, committed: version, mark)
  }

  /// Says whether the disk tier has this version of the entry too, or if not, with `isDirty`,
  /// that it is owed it. False: memory has not this version.
  @discardableResult
  func setBacked(
    _ key: Bytes, _ hash: UInt64, version: UInt64, _ isBacked: Bool, isDirty: Bool = false
  ) -> Bool {
    shards.setBacked(key, hash, version: version, isBacked, isDirty: isDirty)
  }

  /// Removes every entry up to this version, or every one of these that the disk tier has too.
  func clear(upTo version: UInt64 = .max, keepingUnbacked: Bool = false, at: Moment) {
    shards.clear(upTo: version, keepingUnbacked: keepingUnbacked, at: at)
  }

  /// The same of one entry.
  func clear(
    _ key: Bytes, _ hash: UInt64, upTo version: UInt64, backedUpTo backed: UInt64, at: Moment
  ) {
    shards.clear(key, hash, upTo: version, backedUpTo: backed, at: at)
  }

  /// Changes limits and ages in use. When the call returns the tier is within them. Calls must not
  /// overlap.
  func setLimits(_ limits: TierLimits, at: Moment) { shards.setLimits(limits, at: at) }

  /// Reclaims expired entries, one slice of the tier; true: there is more to look at.
  func maintain(at: Moment) -> Bool { shards.maintain(at: at) }

  // MARK: walking

  /// Calls `visit` with the keys of some entries, about `limit` of them, and moves `position`
  /// on, which begins at 0; returns how many, 0 at the end. An entry that is there from
  /// beginning to end is visited exactly once, another at most once. `visit` may change the
  /// tier.
  func keys(
    after position: inout UInt64, limit: Int, at: Moment, onlyUnbacked: Bool = false,
    visit: (Bytes) -> Void
  ) -> Int {
    shards.blocks(
      after: &position, limit: limit, at: at, onlyUnbacked ? .unbacked : .all,
      visit: { visit($0.key) })
  }

  /// As `keys`, with the blocks of all entries, or of host objects.
  func blocks(
    after position: inout UInt64, limit: Int, at: Moment, areObjects: Bool = false,
    visit: (UnownedBlock) -> Void
  ) -> Int {
    shards.blocks(
      after: &position, limit: limit, at: at, areObjects ? .objects : .all, visit: visit)
  }

  /// As `keys`, with the blocks of entries that the disk tier is owed.
  func dirty(
    after position: inout UInt64, limit: Int, at: Moment, visit: (UnownedBlock) -> Void
  ) -> Int {
    shards.blocks(after: &position, limit: limit, at: at, .dirty, visit: visit)
  }

  // MARK: numbers

  var stats: TierStats { shards.stats }
  /// Entries, those included that have expired and are not yet reclaimed.
  var count: UInt64 { shards.count }
  var cost: UInt64 { shards.cost }
  /// Entries that the disk tier has not.
  var unbackedCount: UInt64 { shards.unbackedCount }
  /// Whether `maintain` can have anything to do, now or later.
  var hasExpiring: Bool { shards.hasExpiring }

  /// The tier refuses an entry with a larger charge.
  var largestCharge: UInt64 { shards.largestCharge }

  // MARK: fork

  func lockAll(until end: Deadline) -> Bool { shards.lockAll(until: end) }
  func unlockAll(inChild: Bool = false) { shards.unlockAll(inChild: inChild) }

  /// From here on processes share what is below; with every lock of the tier held.
  func share(_ coherence: CoherenceCounters?) { shards.coherence = coherence }

  /// How many shards there are by now.
  var shardCount: Int { shards.shardCount }
  /// The invariant that does not hold, or nil; for tests, while no thread writes.
  func violation() -> StaticString? { shards.violation() }
}

extension WriteCondition {
  /// The answer of a put whose condition does not hold; nil: it does. `existing`: 0 for none.
  @inline(__always)
  func refusal(existing: UInt64, new: UInt64) -> MemoryPutResult.Outcome? {
    if holds(for: existing, new: new) { return nil }
    if case .absent = self { return .exists }
    return existing == 0 ? .notFound : .conflict
  }
}

struct MemoryPutResult {
  enum Outcome { case stored, tooLarge, exists, notFound, conflict }
  let outcome: Outcome
  /// The version that was there; 0: there was no entry.
  let existing: UInt64
  /// Of a put that was done, or was too large; else 0.
  var version: UInt64 = 0
  /// The disk tier was owed the one that was there.
  var wasDirty = false

  init(_ outcome: Outcome, existing: UInt64) {
    self.outcome = outcome
    self.existing = existing
  }
}
