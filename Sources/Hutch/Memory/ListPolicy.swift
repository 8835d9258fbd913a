/// The policies that keep every entry in a list by what has become of it, exactly: lru, lfu and
/// fifo. One structure with a rule for hits.
///
/// For lfu there is a list for each count of uses: exact below 64, then four lists for each
/// doubling, in which an entry may wait behind one that was used a little less. Of one count
/// the entry goes first whose count has not changed for longest. Counts do not age. The others
/// have one list, and count all the same: a trim may ask.
struct ListPolicy: ~Copyable {
  private static var exact: UInt32 { 64 }

  private let lists: UnsafeMutablePointer<SlotList>?
  /// No list before this one has an entry.
  private var lowest: UInt32 = 0
  private let kind: EvictionPolicy
  private var listCount: Int { ListPolicy.listCount(kind) }

  static func listCount(_ kind: EvictionPolicy) -> Int {
    switch kind {
    case .adaptive: 0
    case .lru, .fifo: 1
    case .lfu: 192
    }
  }

  /// The cache lines that the lists of a shard take.
  static func lines(_ kind: EvictionPolicy) -> Int {
    (listCount(kind) * MemoryLayout<SlotList>.stride + 63) / 64
  }

  /// Empties the lists, which the policies of all shards share.
  init(_ kind: EvictionPolicy, _ lists: UnsafeMutablePointer<SlotList>?) {
    self.kind = kind
    self.lists = lists
    lists?.initialize(repeating: SlotList(), count: listCount)
  }

  /// The list of the entries with so many uses.
  private func list(_ uses: UInt32) -> UnsafeMutablePointer<SlotList> {
    let lists = lists.unsafelyUnwrapped
    if kind != .lfu { return lists }
    if uses < ListPolicy.exact { return lists + Int(uses) }
    let log = 31 - uses.leadingZeroBitCount
    return lists + (Int(ListPolicy.exact) + (log - 6) * 4 + Int(uses >> UInt32(log - 2) & 3))
  }

  mutating func admit(_ slot: Slot, _ entries: borrowing Entries) {
    adopt(slot, uses: 0, entries)
    lowest = 0
  }

  mutating func adopt(_ slot: Slot, uses: UInt32, _ entries: borrowing Entries) {
    entries.slab.uses(slot).pointee = uses
    list(uses).pointee.push(slot, entries)
  }

  /// The entry was read, or written again.
  @_optimize(speed)
  mutating func hit(_ slot: Slot, _ entries: borrowing Entries) {
    let uses = entries.slab.uses(slot)
    let before = uses.pointee
    if before < .max { uses.pointee = before &+ 1 }
    switch kind {
    case .lru: lists.unsafelyUnwrapped.pointee.renew(slot, entries)
    case .lfu:
      let old = list(before)
      let new = list(uses.pointee)
      if old == new {
        old.pointee.renew(slot, entries)
      } else {
        old.pointee.remove(slot, entries)
        new.pointee.push(slot, entries)
      }
    case .fifo, .adaptive: break
    }
  }

  mutating func forget(_ slot: Slot, _ entries: borrowing Entries) {
    list(entries.slab.uses(slot).pointee).pointee.remove(slot, entries)
  }

  mutating func victim(sparing spared: Slot, _ entries: borrowing Entries) -> Slot? {
    let lists = lists.unsafelyUnwrapped
    let count = listCount
    while lowest < count - 1 && lists[Int(lowest)].isEmpty { lowest += 1 }
    for i in Int(lowest)..<count {
      if let slot = lists[i].first(sparing: spared, entries) { return slot }
    }
    return nil
  }

  func forEach(_ entries: borrowing Entries, _ body: (Slot) -> Void) {
    for i in 0..<listCount { lists.unsafelyUnwrapped[i].forEach(entries, body) }
  }

  func violation(_ entries: borrowing Entries) -> StaticString? {
    let lists = lists.unsafelyUnwrapped
    var count = 0
    for i in 0..<listCount {
      if let found = lists[i].violation(entries) { return found }
      if i < lowest && !lists[i].isEmpty { return "an entry is below the lowest count" }
      count += lists[i].count
    }
    return count == entries.count ? nil : "the lists have not every entry once"
  }
}
