/// What was used least often since it was stored goes first; of those the one whose count has
/// not changed for longest.
///
/// Entries are in lists by their count: exact below 64, then four lists for each doubling, in
/// which an entry may wait behind one that was used a little less. Counts do not age.
struct LeastFrequentlyUsed: EvictionPolicy, ~Copyable {
  struct Node: LinkedNode {
    var links = Links()
    var count: UInt32 = 0
  }

  private static var exact: UInt32 { 64 }
  private static var listCount: Int { 192 }

  private var lists = InlineArray<192, SlotList>(repeating: SlotList())
  /// No list before this one has an entry.
  private var lowest = 0

  static var seesHits: Bool { true }
  static var samples: Bool { false }
  static func makeCommon() throws(Failure) -> NothingInCommon { NothingInCommon() }

  init(_ position: ShardPosition, _ common: NothingInCommon) {}

  private static func list(of count: UInt32) -> Int {
    if count < exact { return Int(count) }
    let log = 31 - count.leadingZeroBitCount
    return Int(exact) + (log - 6) * 4 + Int(count >> UInt32(log - 2) & 3)
  }

  mutating func admit(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Node>) {
    entries.node(slot).pointee.count = 0
    lists[0].push(slot, entries)
    lowest = 0
  }

  mutating func adopt(
    _ slot: Slot, _ word: Word, _ node: Node, _ entries: borrowing Entries<Node>
  ) {
    entries.node(slot).pointee.count = node.count
    lists[LeastFrequentlyUsed.list(of: node.count)].push(slot, entries)
  }

  mutating func hit(_ slot: Slot, _ entries: borrowing Entries<Node>) {
    let node = entries.node(slot)
    let old = LeastFrequentlyUsed.list(of: node.pointee.count)
    if node.pointee.count < .max { node.pointee.count += 1 }
    let new = LeastFrequentlyUsed.list(of: node.pointee.count)
    if old == new {
      lists[old].renew(slot, entries)
    } else {
      lists[old].remove(slot, entries)
      lists[new].push(slot, entries)
    }
  }

  mutating func forget(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Node>) {
    lists[LeastFrequentlyUsed.list(of: entries.node(slot).pointee.count)].remove(slot, entries)
  }

  mutating func victim(sparing spared: Slot, _ entries: borrowing Entries<Node>) -> Slot? {
    while lowest < LeastFrequentlyUsed.listCount - 1 && lists[lowest].isEmpty { lowest += 1 }
    for i in lowest..<LeastFrequentlyUsed.listCount {
      if let slot = lists[i].first(sparing: spared, entries) { return slot }
    }
    return nil
  }

  func forEach(_ entries: borrowing Entries<Node>, _ body: (Slot) -> Void) {
    for i in 0..<LeastFrequentlyUsed.listCount { lists[i].forEach(entries, body) }
  }

  func violation(_ entries: borrowing Entries<Node>) -> StaticString? {
    var count = 0
    for i in 0..<LeastFrequentlyUsed.listCount {
      if let found = lists[i].violation(entries) { return found }
      if i < lowest && !lists[i].isEmpty { return "an entry is below the lowest count" }
      count += lists[i].count
    }
    return count == entries.count ? nil : "the lists have not every entry once"
  }
}
