/// Exact least recently used, within a shard.
struct LeastRecentlyUsed: EvictionPolicy, ~Copyable {
  typealias Node = Links
  private var list = SlotList()

  static var seesHits: Bool { true }
  static var samples: Bool { false }
  static func makeCommon() throws(Failure) -> NothingInCommon { NothingInCommon() }

  init(_ position: ShardPosition, _ common: NothingInCommon) {}

  mutating func admit(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Links>) {
    list.push(slot, entries)
  }

  mutating func hit(_ slot: Slot, _ entries: borrowing Entries<Links>) {
    list.renew(slot, entries)
  }

  mutating func forget(_ slot: Slot, _ word: Word, _ entries: borrowing Entries<Links>) {
    list.remove(slot, entries)
  }

  mutating func victim(sparing spared: Slot, _ entries: borrowing Entries<Links>) -> Slot? {
    list.first(sparing: spared, entries)
  }

  func forEach(_ entries: borrowing Entries<Links>, _ body: (Slot) -> Void) {
    list.forEach(entries, body)
  }

  func violation(_ entries: borrowing Entries<Links>) -> StaticString? {
    list.count == entries.count
      ? list.violation(entries) : "the list has not every entry once"
  }
}
