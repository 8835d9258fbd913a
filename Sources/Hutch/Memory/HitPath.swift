import CSystem
import Synchronization

/// The short path of a hit: everything that a read of a live entry in memory needs, in one cache
/// line, and one word that says whether the read may go by it.
///
/// On a hit instructions are memory parallelism: the fewer there are, the more reads the processor
/// has in flight, so that their misses overlap. The short path therefore serves only the commonest
/// read: a key that is there, or is not, in a cache whose handle is open and whose clock is the
/// system's.
/// A read finds anything else (a time to idle, a value that does not fit the buffer) before it has
/// changed anything, and the call begins again on the long path, which asks everything in its turn.
///
/// STATE. One word, so that the straight path (HitPath+Straight.swift) asks all of it at once:
///
///     31..0   pass: the count of forks of this process (Process.forks) while the cache may be read
///             so, and `never` otherwise. So in the child of a fork it is another number, until the
///             child has made the cache its own; a cache that the child cannot have stays closed to
///             it. It changes with every lock of the tier held, or before the first call.
///     62..32  biases: the number of shards with a bias (ShardLock.swift). While it is 0, as it is
///             where one thread reads at a time, a read takes the lock of its shard at once.
///             Otherwise it looks whether that shard has one.
///     63      shared: `coherence` is not nil, and changes with it
struct HitPath {
  /// One cache line, which every call reads and hardly any writes.
  private struct Line: ~Copyable {
    let hash: KeyedHash
    let shards: UnsafeMutableRawPointer
    /// How a hash leads to its shard. Changes once, under the lock of the first shard.
    let way: Atomic<UInt64>
    let state: Atomic<UInt64>
    /// Not nil: processes share the directory. Changes with every lock of the tier held, or before
    /// the first call.
    var coherence: CoherenceCounters?
    /// Whether a key that memory has not is in no tier.
    var isAll: Bool
    /// The cache's, which the cache keeps.
    var clock: Unmanaged<Clock>?
    /// The tier's, which keeps this.
    var tier: Unmanaged<MemoryTier>?
  }

  private let line: UnsafeMutablePointer<Line>
  private static var never: UInt64 { UInt64(UInt32.max) }
  private static var oneBias: UInt64 { 1 << 32 }
  private static var sharedBit: UInt64 { 1 << 63 }
  /// A hit reads the first 64 bytes, a put the bytes behind them too.
  private static var lineSize: Int { 128 }
  /// The cache lines that the path takes, with those of `closed`.
  static var lineCount: Int { 2 * lineSize / 64 }

  /// In the memory of its owner.
  init(_ hash: KeyedHash, at memory: UnsafeMutableRawPointer, shards: UnsafeMutableRawPointer) {
    assert(MemoryLayout<Line>.size <= HitPath.lineSize)
    line = memory.bindMemory(to: Line.self, capacity: 1)
    begin(hash, shards)
    closed.begin(hash, shards)
  }

  private func begin(_ hash: KeyedHash, _ shards: UnsafeMutableRawPointer) {
    line.initialize(
      to: Line(
        hash: hash, shards: shards, way: Atomic(Way(bits: 0).shards), state: Atomic(HitPath.never),
        coherence: nil, isAll: false, clock: nil, tier: nil))
  }

  private init(_ line: UnsafeMutablePointer<Line>) { self.line = line }

  /// For handles of the disk tier: never open.
  var closed: HitPath {
    HitPath((UnsafeMutableRawPointer(line) + HitPath.lineSize).assumingMemoryBound(to: Line.self))
  }

  /// The first bits of a hash choose the shard, those that follow are the shard's: the halves of
  /// its product with the number of shards.
  struct Way: Equatable {
    /// A power of two.
    fileprivate let shards: UInt64

    init(bits: UInt64) { shards = 1 << bits }
    fileprivate init(shards: UInt64) { self.shards = shards }

    /// log2 of the number of shards.
    @inline(__always) var bits: UInt64 { UInt64(shards.trailingZeroBitCount) }
    @inline(__always)
    func shard(_ hash: UInt64) -> Int {
      Int(truncatingIfNeeded: hash.multipliedFullWidth(by: shards).high)
    }
    @inline(__always)
    func local(_ hash: UInt64) -> UInt64 { hash.multipliedFullWidth(by: shards).low }
    @inline(__always) var isToOne: Bool { shards == 1 }

    /// Where in the tier the shard's lock is, and `local`. The branch lets a processor go to the
    /// only shard before it has the hash: so the loads from there do not wait for it.
    @inline(__always)
    func split(_ hash: UInt64) -> (offset: Int, local: UInt64) {
      isToOne ? (0, hash) : (shard(hash) &* MemoryTier.stride, local(hash))
    }
  }

  /// Acquire: a thread that sees the shards divided sees them whole.
  @inline(__always) var way: Way { Way(shards: line.pointee.way.load(ordering: .acquiring)) }
  func set(_ way: Way) { line.pointee.way.store(way.shards, ordering: .releasing) }

  // MARK: opening and closing the path

  /// Before the first call. `isAll`: the tier is all of the cache.
  func prepare(_ clock: Clock, _ tier: MemoryTier, isAll: Bool) {
    line.pointee.isAll = isAll
    line.pointee.tier = .passUnretained(tier)
    line.pointee.clock = clock.isHosts ? nil : .passUnretained(clock)
  }

  /// Reads may go this way in this process, if the clock is the system's.
  func open() {
    if line.pointee.clock == nil { return }
    let pass = state & HitPath.never
    line.pointee.state.wrappingAdd(UInt64(Process.forks) &- pass, ordering: .relaxed)
  }

  @inline(__always)
  private var state: UInt64 { line.pointee.state.load(ordering: .relaxed) }

  @inline(__always)
  var isOpen: Bool { !Process.isParents(UInt32(truncatingIfNeeded: state)) }

  /// Open, without biases, and not shared.
  @inline(__always)
  var isStraight: Bool { state == UInt64(Process.forks) }

  /// Whether a shard has a bias, or had one a moment ago.
  @inline(__always)
  var isBiased: Bool { (state &<< 1) &>> 33 != 0 }

  /// A shard more has a bias, or one less: 1 or -1. Under the shard's lock.
  func countBias(_ change: Int) {
    line.pointee.state.wrappingAdd(
      UInt64(bitPattern: Int64(change)) &* HitPath.oneBias, ordering: .relaxed)
  }

  @inline(__always) var isAll: Bool { line.pointee.isAll }

  var coherence: CoherenceCounters? {
    @inline(__always) get { line.pointee.coherence }
    nonmutating set {
      if (newValue == nil) != (line.pointee.coherence == nil) {
        line.pointee.state.bitwiseXor(HitPath.sharedBit, ordering: .relaxed)
      }
      line.pointee.coherence = newValue
    }
  }

  /// False: another process may have written the key, and the long path counts a miss.
  @inline(__always)
  private func isCurrent(_ block: UnownedBlock, _ hash: UInt64, _ kind: KeySize) -> Bool {
    _fastPath(line.pointee.coherence == nil)
      || (kind == .short ? isCurrentForAll(block) : isCurrentForAll(block, hash))
  }

  /// Makes the hash anew: to keep it for this would take short reads a register.
  @inline(never)
  private func isCurrentForAll(_ block: UnownedBlock) -> Bool {
    isCurrentForAll(block, line.pointee.hash.entry(block.key))
  }

  @inline(never)
  private func isCurrentForAll(_ block: UnownedBlock, _ hash: UInt64) -> Bool {
    line.pointee.coherence.unsafelyUnwrapped.isCurrent(block, hash)
  }

  // MARK: a read

  enum Outcome {
    case done
    /// Memory has no entry of the key, and no other tier is asked.
    case absent
    /// The long path has to look. Nothing has been done or counted.
    case unusual
  }

  /// A live entry without a time to idle. Its shard's lock is held.
  struct Hit {
    fileprivate let spot: Spot
    fileprivate let place: Table.Place
    fileprivate let word: Word
    fileprivate let hash: UInt64
    let block: UnownedBlock
    let shape: UnownedBlock.Shape
  }

  /// What the caller knows of a key's size: a constant, by which the code is chosen.
  enum KeySize {
    /// 8 to 16 bytes: hashed and compared in place, as two numbers.
    case short
    /// 4 to 16 bytes: likewise, after one test more.
    case small
    /// Any size but 0.
    case any
  }

  @inline(__always)
  static func isShort(_ keySize: Int) -> Bool { UInt(bitPattern: keySize &- 8) <= 8 }
  @inline(__always)
  static func isSmall(_ keySize: Int) -> Bool { UInt(bitPattern: keySize &- 4) <= 12 }

  /// Where a read looks: a shard, and the lock that is held.
  typealias Spot = ShardLock.Reading

  /// Calls `use` with the entry that it finds; `use` returns whether the call needs that entry.
  /// Rare cases are left to `search`, which goes on with `findSlowly`, so that no loop and no call
  /// is on the path of the others.
  @inline(__always)
  func find(
    _ key: UnsafeRawPointer, _ keySize: Int, _ kind: KeySize,
    isAccess: Bool = true, _ use: (Hit) -> Bool, search: (Spot) -> Outcome
  ) -> Outcome {
    let hash =
      switch kind {
      case .short: shortHash(key, keySize)
      case .small: smallHash(key, keySize)
      case .any: line.pointee.hash.entry(key, keySize)
      }
    return find(
      key, keySize, hash, kind, isAccess: isAccess, use, search: search)
  }

  /// As above, of a key whose hash is known.
  @inline(__always)
  func find(
    _ key: UnsafeRawPointer, _ keySize: Int, _ hash: UInt64, _ kind: KeySize,
    isAccess: Bool = true, _ use: (Hit) -> Bool, search: (Spot) -> Outcome
  ) -> Outcome {
    let (lock, localHash) = self.lock(hash)
    let spot = _slowPath(isBiased) ? lock.lockToReadShared() : lock.lockToRead()
    return look(
      key, keySize, hash, localHash, kind, spot, keepsLock: false, isAccess: isAccess, use,
      search: search)
  }

  /// As above, with a lock held: that of the shard to which the way led when it was read, as it led
  /// to `localHash`. `keepsLock`: a constant; false: releases the lock. So does `search` then.
  @inline(__always)
  func look(
    _ key: UnsafeRawPointer, _ keySize: Int, _ hash: UInt64, _ localHash: UInt64, _ kind: KeySize,
    _ spot: Spot, keepsLock: Bool, isAccess: Bool = true, _ use: (Hit) -> Bool,
    search: (Spot) -> Outcome
  ) -> Outcome {
    let lock = spot.lock
    @inline(__always)
    func miss() -> Outcome {
      keepsLock
        ? missAtOnce(key, keySize, localHash, spot, isAccess: isAccess)
        : self.miss(key, keySize, localHash, spot, isAccess: isAccess)
    }
    guard let route = lock.shard.pointee.entries.table.route(localHash) else { return miss() }
    guard let place = lock.shard.pointee.entries.table.guess(route) else { return miss() }
    let word = place.word
    if _fastPath(!word.isTimed), let block = word.blockIfAny {
      if isAccess { block.prefetchValue() }
      // For short keys once for each kind of header, so that its size is a number in the code.
      @inline(__always)
      func isUsed(_ shape: UnownedBlock.Shape) -> Bool {
        _fastPath(block.keySize == keySize)
          && _fastPath(block.hasKeyBytes(key, keySize, kind, shape))
          && _fastPath(isCurrent(block, hash, kind))
          && _fastPath(
            use(
              Hit(
                spot: spot, place: place, word: word, hash: localHash, block: block, shape: shape)))
      }
      if kind != .short {
        if isUsed(block.shape) {
          if !keepsLock { spot.unlock() }
          return .done
        }
      } else if let size = block.plainSize() {
        if isUsed(
          UnownedBlock.Shape(keySize: keySize, header: UnownedBlock.At.header, size: size))
        {
          if !keepsLock { spot.unlock() }
          return .done
        }
      } else if let size = block.extendedEntrySize,
        isUsed(
          UnownedBlock.Shape(keySize: keySize, header: UnownedBlock.At.extendedHeader, size: size))
      {
        if !keepsLock { spot.unlock() }
        return .done
      }
    }
    return search(spot)
  }

  /// The lock of the shard of a hash, and the bits of the hash that the shard goes by.
  @inline(__always)
  func lock(_ hash: UInt64) -> (ShardLock, UInt64) {
    let (offset, localHash) = way.split(hash)
    return (ShardLock(at: line.pointee.shards + offset), localHash)
  }

  /// Of `look`: goes on in a place of its own.
  @inline(__always)
  func findSlowly(
    _ key: UnsafeRawPointer, _ keySize: Int, _ spot: Spot, keepsLock: Bool = false,
    isAccess: Bool = true, _ use: (Hit) -> Bool
  ) -> Outcome {
    defer { if !keepsLock { spot.unlock() } }
    let found = search(key, keySize, spot.lock)
    guard let place = found.place else {
      return outcome(spot, found.hash, isAbsent: found.isAbsent, isAccess: isAccess)
    }
    let block = place.word.block
    let isUsed = use(
      Hit(
        spot: spot, place: place, word: place.word, hash: found.hash, block: block,
        shape: block.shape))
    return isUsed ? .done : .unusual
  }

  /// What a search returns, in registers: the place of an entry that a hit may use, and its hash in
  /// the shard. `isAbsent`: there is no entry.
  private struct Found {
    var place: Table.Place?
    var hash: UInt64 = 0
    var isAbsent = false
  }

  /// The hash and the way are made anew: to keep them for this would take the others two registers.
  @inline(never)
  @_optimize(speed)
  private func search(
    _ key: UnsafeRawPointer, _ keySize: Int, _ shardLock: ShardLock
  ) -> Found {
    let hash = self.hash(key, keySize)
    let (lock, localHash) = self.lock(hash)
    // As in `missAtOnce`.
    guard lock.raw == shardLock.raw else { return Found() }
    let place = shardLock.shard.pointee.entries.table.findAtOnce(
      Bytes(start: key, count: keySize), localHash)
    guard let place else { return Found(hash: localHash, isAbsent: true) }
    let block = place.word.block
    let isUsable =
      (!place.word.isTimed || shardLock.shard.pointee.isAliveUnread(block, at: now))
      && isCurrent(block, hash, .any)
    return Found(place: isUsable ? place : nil, hash: localHash)
  }

  /// There is no entry, if the read has looked in the right place. A read that waited while the
  /// first shard was divided has not. (What it finds there is right all the same, for keys are
  /// compared.) The way does not change while that lock is held.
  @inline(__always)
  private func missAtOnce(
    _ key: UnsafeRawPointer, _ keySize: Int, _ localHash: UInt64, _ spot: Spot, isAccess: Bool
  ) -> Outcome {
    let isRight = isRight(spot.lock) || isWay(key, keySize, localHash)
    return outcome(spot, localHash, isAbsent: isRight, isAccess: isAccess)
  }

  /// The same, and releases the lock.
  @inline(never)
  @_optimize(speed)
  private func miss(
    _ key: UnsafeRawPointer, _ keySize: Int, _ localHash: UInt64, _ spot: Spot, isAccess: Bool
  ) -> Outcome {
    defer { spot.unlock() }
    return missAtOnce(key, keySize, localHash, spot, isAccess: isAccess)
  }

  /// Whether a look in a shard whose lock is held can only have been one in the right shard.
  @inline(__always)
  func isRight(_ lock: ShardLock) -> Bool { lock.raw != line.pointee.shards || way.isToOne }

  /// Whether a look in the first shard was one for this key.
  @inline(never)
  private func isWay(_ key: UnsafeRawPointer, _ keySize: Int, _ localHash: UInt64) -> Bool {
    let hash = self.hash(key, keySize)
    return way.shard(hash) == 0 && (way.local(hash) ^ localHash) >> 32 == 0
  }

  /// `isAbsent`: the shard has no entry of the key.
  @inline(__always)
  private func outcome(
    _ spot: Spot, _ hash: UInt64, isAbsent: Bool, isAccess: Bool
  ) -> Outcome {
    let isAbsent = isAbsent && line.pointee.isAll
    if isAbsent && isAccess { HitPath.noteMiss(spot, hash) }
    return isAbsent ? .absent : .unusual
  }

  /// Counts the hit as an access.
  @inline(__always)
  func note(_ hit: Hit) {
    let spot = hit.spot
    spot.line.pointee.hits.add(1)
    if _slowPath(spot.line.pointee.isTimeToTick) { readClock(spot) }
    let shard = spot.lock.shard
    HitPath.noteUse(hit.place, hit.word, hit.block, at: shard.pointee.clock)
    if _slowPath(hit.hash & shard.pointee.policy.adaptive.sampleMask == 0) {
      HitPath.tell(spot, hit.hash, hit.block)
    }
  }

  /// Of a block's stamp and of a word's uses.
  @inline(__always)
  static func noteUse(_ place: Table.Place, _ word: Word, _ block: UnownedBlock, at clock: UInt16) {
    if _slowPath(block.stamp != clock) { block.stamp = clock }
    // One more, unless it is at its most.
    let more = word.bits &+ 1
    if more & Word.mostUses != 0 { place.set(Word(bits: more)) }
  }

  @inline(never)
  func readClock(_ spot: Spot) {
    spot.line.pointee.startTicks()
    spot.lock.shard.pointee.renewClock(now)
    if isBiased && spot.isAlone { endBiases() }
  }

  @inline(never)
  @_optimize(speed)
  static func tell(_ spot: Spot, _ hash: UInt64, _ block: UnownedBlock) {
    spot.tell {
      let shard = spot.lock.shard
      shard.pointee.policy.tell(hash, block, shard.pointee.entries)
    }
  }

  @inline(never)
  static func noteMiss(_ spot: Spot, _ hash: UInt64) {
    spot.line.pointee.misses.add(1)
    if _fastPath(!spot.lock.shard.pointee.policy.wantsMiss(hash)) { return }
    spot.tell { spot.lock.shard.pointee.policy.tellMiss(hash) }
  }
}

// MARK: puts

extension HitPath {
  /// Whether puts may go this way: memory is all of the cache.
  @inline(__always) var takesPuts: Bool { line.pointee.isAll }

  /// The hash of a key of 8 to 16 bytes, but for the lowest bits, at which no read looks.
  @inline(__always)
  func shortHash(_ key: UnsafeRawPointer, _ keySize: Int) -> UInt64 {
    line.pointee.hash.shortStart(key, keySize)
  }

  /// The hash of a key of 4 to 16 bytes.
  @inline(__always)
  func smallHash(_ key: UnsafeRawPointer, _ keySize: Int) -> UInt64 {
    line.pointee.hash.smallEntry(key, keySize)
  }

  /// The hash of a key, which is not empty.
  @inline(__always)
  func hash(_ key: UnsafeRawPointer, _ keySize: Int) -> UInt64 {
    _fastPath(HitPath.isShort(keySize))
      ? line.pointee.hash.shortEntry(key, keySize)
      : line.pointee.hash.entry(Bytes(start: key, count: keySize))
  }

  /// The time of a write, while the path is open.
  @inline(__always)
  var now: Int64 { line.pointee.clock.unsafelyUnwrapped._withUnsafeGuaranteedRef { $0.coarseNow } }

  /// The tier, which lives as long as the path.
  @inline(__always) var tier: Unmanaged<MemoryTier> { line.pointee.tier.unsafelyUnwrapped }
}
