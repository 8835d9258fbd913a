import CSystem

/// The entries of one shard, or of a shadow (Shadow.swift), which has no table.
struct Entries: ~Copyable {
  let position: ShardPosition
  var table = Table()
  var slab: Slab
  /// Of a shadow, which keeps this memory: the words by the numbers of the slots.
  private let words: UnsafeMutablePointer<Word>?
  /// Whether the sketch counts the accesses here: the entries are a shard's, or the shadow has a
  /// sketch of its own.
  let countsAccesses: Bool
  private let inPlace = InPlace()

  /// `counts`: each slot has a count of uses.
  init(_ position: ShardPosition, counts: Bool) {
    self.position = position
    slab = Slab(counts: counts)
    words = nil
    countsAccesses = true
  }

  /// Of a shadow.
  init(_ words: UnsafeMutablePointer<Word>, countsAccesses: Bool) {
    position = ShardPosition()
    slab = Slab(counts: false)
    self.words = words
    self.countsAccesses = countsAccesses
  }

  @inline(__always) var count: Int { table.count }

  /// The bytes of the slab and of the table's segments.
  @inline(__always) var bytes: Int { slab.bytes &+ table.bytes }
  /// What an entry of a full tier uses of them, at most.
  @inline(__always) var bytesPerEntry: Int { slab.bytesPerSlot &+ 11 }

  /// The word of an entry that is there.
  @inline(__always)
  func place(of slot: Slot) -> Table.Place {
    if _slowPath(words != nil) { return words.unsafelyUnwrapped + Int(slot.number) }
    return table.find(slot, slab[slot].pointee.hash).unsafelyUnwrapped
  }

  /// Makes room for one more entry; fails with nothing changed.
  mutating func reserve(_ hash: UInt64, _ budget: borrowing Budget) throws(Failure) -> Slot {
    let slot = try slab.reserve()
    if !table.hasRoom(hash) { try makeRoom(hash, budget) }
    return slot
  }

  @inline(never)
  private mutating func makeRoom(_ hash: UInt64, _ budget: borrowing Budget) throws(Failure) {
    let isFull = !budget.hasRoom(cost: MemoryTier.leastCharge, count: 1)
    let expected = budget.capacity.entries >> UInt64(position.bits)
    try table.reserve(hash, slab, expected: Int(clamping: expected), isFull: isFull)
  }
}

/// Where a shard stands among the shards: it has the hashes that begin with `index`, and of
/// those it sees the bits that follow.
struct ShardPosition {
  /// The number of bits of `index`.
  let bits: UInt32
  /// The bits of `index`, with which all its hashes begin, and zeroes.
  private let prefix: UInt32

  init(index: UInt32 = 0, bits: UInt32 = 0) {
    self.bits = bits
    prefix = index << (32 - bits)
  }

  var index: UInt32 { prefix >> (32 - bits) }

  /// A tier has at most this many: a few for each core, and of many cores not so many that what
  /// is kept for each adds up.
  static var mostShards: Int { 256 }

  /// log2 of how many shards a large tier has.
  static func bits(ofCores cores: Int) -> UInt32 {
    let shards = 4 * max(1, min(mostShards / 4, cores))
    return UInt32(Int.bitWidth - 1 - shards.leadingZeroBitCount)
  }

  /// The upper half of the hash in the whole tier but for its last bit, from what is kept in a
  /// slot. It is the same however many shards there are, so that what has been counted stays true
  /// when a tier divides.
  @inline(__always)
  func key(_ hash: UInt32) -> UInt32 {
    (prefix | hash &>> bits) & ~1
  }
}

/// Which entry of a shard goes first: the default policy, or one that keeps lists. No clock, no
/// input or output, no lock but the selector's; it sees slots and the bits of words that are the
/// policy's, and is called under the shard's lock.
///
/// One type for all policies, and a branch that goes the same way until the policy is changed. Code
/// that is generic over policies would be there once for each.
///
/// The caller guarantees that `admit` and `forget` alternate for a slot, and that every other
/// call is for one that has been admitted.
struct Policy: ~Copyable {
  /// The default policy's state; with another policy it is as it was made.
  var adaptive: Adaptive
  /// The lists of the other policies; with the default one there are none.
  var lists: ListPolicy
  let kind: EvictionPolicy
  let isAdaptive: Bool

  /// A shard's share of the policy's memory: this, and the rounding of its ghosts.
  static var size: Int { MemoryLayout<Policy>.size + 64 }

  /// The memory of the policy in all shards, at most.
  func bytes(_ entries: borrowing Entries) -> Int {
    isAdaptive ? adaptive.bytes : 64 &* ListPolicy.lines(kind) &<< Int(entries.position.bits)
  }

  @inline(never)
  init(_ position: ShardPosition, _ common: CommonPolicy) {
    adaptive = Adaptive(position, common.selector)
    lists = ListPolicy(common.kind, common.lists(ofShard: Int(position.index)))
    kind = common.kind
    isAdaptive = common.isAdaptive
    if !isAdaptive { adaptive.tellAll() }
  }

  /// Whether it shares what it needs with the policies of other shards by this.
  func shares(_ common: CommonPolicy) -> Bool { adaptive.hasSelector(common.selector) }

  /// A new entry will be stored in a moment: prefetches the memory that this will read.
  @inline(__always)
  mutating func prefetch(_ hash: UInt64) {
    if isAdaptive { adaptive.prefetch(hash) }
  }

  /// A new entry is to be stored: called before room is made for it. `charge`: the entry's.
  @inline(__always)
  mutating func prepare(
    _ hash: UInt64, charge: UInt64, _ budget: borrowing Budget, _ entries: borrowing Entries
  ) {
    if isAdaptive {
      adaptive.prepare(
        hash, charge: charge, isFull: !budget.hasRoom(cost: charge, count: 1), budget, entries)
    }
  }

  /// The new entry.
  @inline(__always)
  mutating func admit(_ slot: Slot, charge: UInt64, _ entries: borrowing Entries) {
    if isAdaptive {
      adaptive.admit(slot, charge: charge, entries)
    } else {
      lists.admit(slot, entries)
    }
  }

  /// An entry that another shard's policy of the same kind had, with its link there; or, with no
  /// link, one that a policy of another kind had, and that this one was asked about (`prepare`).
  /// `uses`: those that the other policy has counted, if this one counts.
  mutating func adopt(
    _ slot: Slot, _ link: ForwardLink?, uses: UInt32, charge: UInt64, _ entries: borrowing Entries
  ) {
    if !isAdaptive { return lists.adopt(slot, uses: uses, entries) }
    if let link {
      adaptive.adopt(slot, link, entries)
    } else {
      adaptive.admit(slot, charge: charge, entries)
    }
  }

  /// Whether an entry that was replaced, and counts for something else, needs another slot.
  func isOff(_ slot: Slot, charge: UInt64, _ entries: borrowing Entries) -> Bool {
    isAdaptive && adaptive.isOff(slot, charge: charge, entries)
  }

  /// A hit whose hash has none of the bits of `adaptive.sampleMask`: one of the default policy's
  /// sample, or any of another policy.
  @inline(__always)
  mutating func tell(_ hash: UInt64, _ block: UnownedBlock, _ entries: borrowing Entries) {
    if isAdaptive {
      adaptive.sample(hash, charge: MemoryTier.charge(of: block), as: .hit)
    } else {
      lists.hit(Slot(block.slot), entries)
    }
  }

  /// Whether a miss is to be told: only the default policy learns from it.
  @inline(__always)
  func wantsMiss(_ hash: UInt64) -> Bool { hash & adaptive.sampleMask == 0 && isAdaptive }

  @inline(never)
  mutating func tellMiss(_ hash: UInt64) { adaptive.sample(hash, charge: 0, as: .miss) }

  /// The entry of a place is about to go, though it is not the next.
  mutating func remember(_ place: Table.Place, _ entries: borrowing Entries) {
    if isAdaptive { adaptive.remember(Slot(place.pointee.block.slot), place, entries) }
  }

  /// How often the entry was used of late, about; for trims.
  func uses(_ slot: Slot, _ word: Word, _ entries: borrowing Entries) -> UInt64 {
    isAdaptive
      ? adaptive.uses(slot, word, entries) : UInt64(entries.slab.uses(slot).pointee)
  }

  /// The entry leaves, as the policy's victim or otherwise. Its slot, and those that may be used
  /// again now, go back to the slab.
  @inline(__always)
  mutating func forget(_ slot: Slot, _ entries: inout Entries) {
    if isAdaptive {
      if _fastPath(adaptive.forget(slot, entries)) { entries.slab.give(back: slot) }
      while let freed = adaptive.takeFreed(entries) { entries.slab.give(back: freed) }
    } else {
      lists.forget(slot, entries)
      entries.slab.give(back: slot)
    }
  }

  /// The entry to go next, but not `spared`; nil if there is no other. The caller evicts it.
  /// `ahead`: of a call that evicts many; else nil.
  @inline(__always)
  mutating func victim(
    sparing spared: Slot, _ entries: borrowing Entries, _ ahead: UnsafeMutablePointer<LookAhead>?
  ) -> Victim? {
    isAdaptive
      ? adaptive.victim(sparing: spared, entries, ahead)
      : victimOfLists(sparing: spared, entries, ahead)
  }

  /// The same for a put that evicts few entries, inlined.
  @inline(__always)
  mutating func victimAtOnce(_ entries: borrowing Entries) -> Victim? {
    isAdaptive
      ? adaptive.victimAtOnce(sparing: .none, entries, nil)
      : victimOfLists(sparing: .none, entries, nil)
  }

  @inline(never)
  @_optimize(speed)
  private mutating func victimOfLists(
    sparing spared: Slot, _ entries: borrowing Entries, _ ahead: UnsafeMutablePointer<LookAhead>?
  ) -> Victim? {
    guard let slot = lists.victim(sparing: spared, entries) else { return nil }
    if let ahead {
      ahead.pointee.prefetch(after: slot, entries)
    } else {
      entries.lookAhead(from: slot)
    }
    return Victim(slot: slot, place: entries.place(of: slot))
  }

  /// Every entry once, in the order in which they would go, as far as there is one.
  func forEach(_ entries: borrowing Entries, _ body: (Slot) -> Void) {
    if isAdaptive { adaptive.forEach(entries, body) } else { lists.forEach(entries, body) }
  }

  /// The invariant that does not hold, or nil. For tests.
  func violation(_ entries: borrowing Entries) -> StaticString? {
    isAdaptive ? adaptive.violation(entries) : lists.violation(entries)
  }
}

/// The entry that a policy would evict next. Valid until an entry of its shard comes or goes.
struct Victim {
  let slot: Slot
  let place: Table.Place
}

/// What the policies of all shards share.
final class CommonPolicy {
  let kind: EvictionPolicy
  let selector: Selector
  /// The lists of all shards that there may be. Nil: the policy is the default one.
  private let lists: UnsafeMutableRawPointer?
  private let lines: Int
  /// The one before, while shards may still have it (`MemoryTier.setPolicy`).
  var former: CommonPolicy?

  @inline(__always) var isAdaptive: Bool { kind == .adaptive }

  private init(
    _ kind: EvictionPolicy, _ selector: Selector, _ lists: UnsafeMutableRawPointer?, _ lines: Int
  ) {
    self.kind = kind
    self.selector = selector
    self.lists = lists
    self.lines = lines
  }

  /// Delegates: see Copying.
  convenience init(_ kind: EvictionPolicy, shardBits: UInt32) throws(Failure) {
    let selector = try Selector(shardBits: shardBits)
    let lines = ListPolicy.lines(kind) << Int(shardBits)
    self.init(kind, selector, lines == 0 ? nil : try Heap.mapLines(lines), lines)
  }

  deinit { if let lists { Heap.unmap(lists, lines: lines) } }

  func lists(ofShard index: Int) -> UnsafeMutablePointer<SlotList>? {
    guard let lists else { return nil }
    return (lists + 64 * ListPolicy.lines(kind) * index)
      .bindMemory(to: SlotList.self, capacity: ListPolicy.listCount(kind))
  }
}
