/// How the memory tier chooses what goes.
enum MemoryPolicy {
  case lru
}

/// The entries of one shard.
struct Entries<Node: BitwiseCopyable>: ~Copyable {
  var table = Table()
  var slab = Slab<Node>()

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

/// Which entry of a shard goes first. Pure: no lock, no clock, no input or output; it sees slots
/// and the bits of words that are the policy's, and is called under the shard's lock.
///
/// The caller guarantees that `admit` and `forget` alternate for a slot, and that every other
/// call is for one that has been admitted.
protocol EvictionPolicy: ~Copyable {
  /// What the policy keeps in each slot.
  associatedtype Node: BitwiseCopyable

  init()

  /// Whether `hit` is called for each hit. If not, a hit is counted in the word's `uses` only,
  /// in a line that is touched anyway.
  static var seesHits: Bool { get }

  /// A new entry.
  mutating func admit(_ slot: Slot, _ entries: borrowing Entries<Node>)
  /// The entry was read, or written again.
  mutating func hit(_ slot: Slot, _ entries: borrowing Entries<Node>)
  /// The entry has left, as the policy's victim or otherwise. Its word is gone already.
  mutating func forget(_ slot: Slot, _ entries: borrowing Entries<Node>)
  /// The entry to go next, but not `spared`; nil if there is no other. It stays until `forget`.
  mutating func victim(sparing spared: Slot, _ entries: borrowing Entries<Node>) -> Slot?
  /// Every entry once, in the order in which they would go, as far as there is one.
  func forEach(_ entries: borrowing Entries<Node>, _ body: (Slot) -> Void)
  /// What is wrong, or nil. For tests.
  func violation(_ entries: borrowing Entries<Node>) -> StaticString?
}
