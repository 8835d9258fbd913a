/// Items by rank, with the last one at hand: finds the first few of many in bounded memory. A
/// binary heap with its greatest item at the root.
struct RankedHeap: ~Copyable {
  struct Item: BitwiseCopyable {
    var first: Int64
    var second: Int64
    /// The owner's.
    var tag: Int64
    var weight: Int64

    func comes(before other: Item) -> Bool {
      first != other.first ? first < other.first : second < other.second
    }
  }

  private var items = GrowingArray<Item>()

  init() {}

  var count: Int { items.count }

  subscript(_ index: Int) -> Item { items[index] }

  /// The item with the greatest rank; nil if there is none.
  var last: Item? { items.isEmpty ? nil : items[0] }

  mutating func insert(_ item: Item) throws(Failure) {
    try items.append(item)
    var at = items.count - 1
    while at > 0 {
      let parent = (at - 1) / 2
      guard items[parent].comes(before: item) else { break }
      items[at] = items[parent]
      at = parent
    }
    items[at] = item
  }

  /// For a heap that is not empty.
  mutating func replaceLast(with item: Item) { sink(item, items.count) }

  mutating func removeLast() {
    guard let moved = items.popLast(), !items.isEmpty else { return }
    sink(moved, items.count)
  }

  /// Sorts the items, the first at index 0. Nothing is inserted after that.
  mutating func sort() {
    var count = items.count
    while count > 1 {
      count -= 1
      let last = items[0]
      let moved = items[count]
      items[count] = last
      sink(moved, count)
    }
  }

  mutating func removeAll() { items.removeAll() }

  /// Lets an item sink from the root of the first `count`.
  @inline(never)
  private func sink(_ item: Item, _ count: Int) {
    var at = 0
    while 2 * at + 1 < count {
      var child = 2 * at + 1
      if child + 1 < count && items[child].comes(before: items[child + 1]) { child += 1 }
      guard item.comes(before: items[child]) else { break }
      items[at] = items[child]
      at = child
    }
    items[at] = item
  }
}
