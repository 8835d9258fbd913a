/// The policies that keep every entry in a list by what has become of it, exactly: lru, lfu and
/// fifo. One structure with a rule for hits: each policy of its own would be another copy of
/// all that is generic over policies.
///
/// For lfu there is a list for each count of uses: exact below 64, then four lists for each
/// doubling, in which an entry may wait behind one that was used a little less. Of one count
/// the entry goes first whose count has not changed for longest. Counts do not age. The others
/// have one list, and count all the same: a trim may ask.
struct ListPolicy: EvictionPolicy, ~Copyable {
  struct Node: LinkedNode {
    var links = Links()
    /// Uses since it was stored.
    var count: UInt32 = 0
  }

  /// The entry that is evicted first.
  enum Order {
    /// The entry that was stored first; neither a read nor a replacement changes the order.
    case stored
    /// The entry that was used least recently.
    case used
    /// The entry that was used least often since it was stored.
    case count
  }

  final class Rule {
    let order: Order
    init(_ order: Order) { self.order = order }
  }

  private static var exact: UInt32 { 64 }
  private static var listCount: Int { 192 }

  private var lists = InlineArray<192, SlotList>(repeating: SlotList())
  /// No list before this one has an entry.
  private var lowest = 0
  private let order: Order

  static var seesHits: Bool { true }
  static var samples: Bool { false }

  init(_ position: ShardPosition, _ common: Rule) { order = common.order }

  private func list(of count: UInt32) -> Int {
    if order != .count { return 0 }
    if count < ListPolicy.exact { return Int(count) }
    let log = 31 - count.leadingZeroBitCount
    return Int(ListPolicy.exact) + (log - 6) * 4 + Int(count >> UInt32(log - 2) & 3)
  }

  mutating func admit(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Node>) {
    entries.node(slot).pointee = Node()
    lists[0].push(slot, entries)
    lowest = 0
  }

  mutating func adopt(
    _ slot: Slot, _ word: Word, _ node: Node, _ entries: borrowing Entries<Node>
  ) {
    entries.node(slot).pointee = node
    lists[list(of: node.count)].push(slot, entries)
  }

  mutating func hit(_ slot: Slot, _ entries: borrowing Entries<Node>) {
    let node = entries.node(slot)
    let old = list(of: node.pointee.count)
    if node.pointee.count < .max { node.pointee.count += 1 }
    if order == .stored { return }
    let new = list(of: node.pointee.count)
    if old == new {
      lists[old].renew(slot, entries)
    } else {
      lists[old].remove(slot, entries)
      lists[new].push(slot, entries)
    }
  }

  func uses(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Node>) -> UInt64 {
    UInt64(entries.node(slot).pointee.count)
  }

  mutating func forget(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Node>) {
    lists[list(of: entries.node(slot).pointee.count)].remove(slot, entries)
  }

  mutating func victim(sparing spared: Slot, _ entries: borrowing Entries<Node>) -> Slot? {
    while lowest < ListPolicy.listCount - 1 && lists[lowest].isEmpty { lowest += 1 }
    for i in lowest..<ListPolicy.listCount {
      if let slot = lists[i].first(sparing: spared, entries) { return slot }
    }
    return nil
  }

  func forEach(_ entries: borrowing Entries<Node>, _ body: (Slot) -> Void) {
    for i in 0..<ListPolicy.listCount { lists[i].forEach(entries, body) }
  }

  func violation(_ entries: borrowing Entries<Node>) -> StaticString? {
    var count = 0
    for i in 0..<ListPolicy.listCount {
      if let found = lists[i].violation(entries) { return found }
      if i < lowest && !lists[i].isEmpty { return "an entry is below the lowest count" }
      count += lists[i].count
    }
    return count == entries.count ? nil : "the lists have not every entry once"
  }
}
