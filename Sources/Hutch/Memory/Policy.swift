/// How the memory tier chooses the entries to evict.
enum MemoryPolicy {
  case lru, lfu, fifo
  /// The default: follows the best of several.
  case adaptive
}

/// The entries of one shard.
struct Entries<Node: BitwiseCopyable>: ~Copyable {
  let position: ShardPosition
  var table = Table()
  var slab = Slab<Node>()

  init(_ position: ShardPosition) { self.position = position }

  @inline(__always) var count: Int { table.count }

  /// The word of an entry that is there.
  @inline(__always)
  func place(of slot: Slot) -> Table.Place {
    table.find(slot, slab[slot].pointee.hash).unsafelyUnwrapped
  }

  /// The policy's part of a slot.
  @inline(__always)
  func node(_ slot: Slot) -> UnsafeMutablePointer<Node> {
    // Behind the hash. (Embedded Swift has no key paths to ask for the offset.)
    let offset = max(MemoryLayout<UInt32>.size, MemoryLayout<Node>.alignment)
    return (UnsafeMutableRawPointer(slab[slot]) + offset).assumingMemoryBound(to: Node.self)
  }

  /// Makes room for one more entry; fails with nothing changed.
  mutating func reserve(_ hash: UInt64) throws(Failure) -> Slot {
    let slot = try slab.reserve()
    try table.reserve(hash) { slab[Slot($0.slot)].pointee.hash }
    return slot
  }
}

/// Where a shard stands among the shards: it has the hashes that begin with `index`, and of
/// those it sees the bits that follow.
struct ShardPosition {
  var index: UInt32 = 0
  var bits: UInt32 = 0

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
    (bits == 0 ? hash : index << (32 - bits) | hash >> bits) & ~1
  }
}

/// Which entry of a shard goes first. Pure: no clock, no input or output, no lock but that of
/// what the shards have in common; it sees slots and the bits of words that are the policy's,
/// and is called under the shard's lock.
///
/// The caller guarantees that `admit` and `forget` alternate for a slot, and that every other
/// call is for one that has been admitted.
protocol EvictionPolicy: ~Copyable {
  /// The policy's part of each slot.
  associatedtype Node: BitwiseCopyable
  /// The state that the policies of all shards share.
  associatedtype Common: AnyObject

  init(_ position: ShardPosition, _ common: Common)

  /// Whether `hit` is called for each hit. If not, a hit is counted in the word's `uses` only,
  /// in a line that is touched anyway.
  static var seesHits: Bool { get }
  /// Whether `sample` is called for hits on keys whose hash has none of the bits of
  /// `sampleMask`.
  static var samples: Bool { get }
  var sampleMask: UInt64 { get }
  /// Whether `prepare` is to be told the capacity.
  var wantsCapacity: Bool { get }

  /// A new entry will be stored in a moment: the policy may prefetch the memory that this will
  /// read.
  mutating func prefetch(_ hash: UInt64)
  /// A new entry is to be stored: called before room is made for it. `isFull`: room has to be
  /// made. `charge`: the entry's. `capacity`: the tier's; only right if `wantsCapacity`.
  mutating func prepare(
    _ hash: UInt64, isFull: Bool, charge: UInt64, capacity: TierCapacity,
    _ entries: borrowing Entries<Node>)
  /// The new entry.
  mutating func admit(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Node>)
  /// An entry that another shard's policy had, with its word and node there.
  mutating func adopt(
    _ slot: Slot, _ word: Word, _ node: Node, _ entries: borrowing Entries<Node>)
  /// The entry was read, or written again.
  mutating func hit(_ slot: Slot, _ entries: borrowing Entries<Node>)
  /// A key of the sample was read, or written again. `charge`: its entry's.
  mutating func sample(_ hash: UInt64, charge: UInt64)
  /// The entry was replaced and counts for something else.
  mutating func change(_ slot: Slot, charge: UInt64, _ entries: borrowing Entries<Node>)
  /// How often the entry was used of late, about; for trims.
  func uses(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Node>) -> UInt64
  /// The entry leaves, as the policy's victim or otherwise; this is its word.
  mutating func forget(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Node>)
  /// The entry to go next, but not `spared`; nil if there is no other. The caller evicts it.
  mutating func victim(sparing spared: Slot, _ entries: borrowing Entries<Node>) -> Slot?
  /// Every entry once, in the order in which they would go, as far as there is one.
  func forEach(_ entries: borrowing Entries<Node>, _ body: (Slot) -> Void)
  /// The invariant that does not hold, or nil. For tests.
  func violation(_ entries: borrowing Entries<Node>) -> StaticString?
}

extension EvictionPolicy where Self: ~Copyable {
  var sampleMask: UInt64 { .max }
  var wantsCapacity: Bool { false }
  mutating func prefetch(_ hash: UInt64) {}
  mutating func prepare(
    _ hash: UInt64, isFull: Bool, charge: UInt64, capacity: TierCapacity,
    _ entries: borrowing Entries<Node>
  ) {}
  mutating func adopt(
    _ slot: Slot, _ word: Word, _ node: Node, _ entries: borrowing Entries<Node>
  ) {
    admit(slot, word, entries)
  }
  mutating func hit(_ slot: Slot, _ entries: borrowing Entries<Node>) {}
  mutating func sample(_ hash: UInt64, charge: UInt64) {}
  mutating func change(_ slot: Slot, charge: UInt64, _ entries: borrowing Entries<Node>) {}
}
