/// The entries that go first by rank, of all that a scan offers: no more than are needed, and no
/// more than there is room for; another scan finds the next ones. No index is kept for this,
/// and nothing is sorted as a whole.
struct TrimScan: ~Copyable {
  private(set) var heap = RankedHeap()
  private var weight: Int64 = 0
  private let needed: Int64
  private let room: Int

  /// `needed`: the bytes, or the number, of the entries that have to go. There is room for a
  /// sixteenth of all entries, so a trim takes 16 scans at most; 8 MB at least.
  init(needing needed: Int64, of all: Int64) {
    self.needed = needed
    room = max(1 << 18, Int(clamping: all / 16))
  }

  /// False: `offer` would not keep the item, nor one of the same entry that comes later.
  func wants(_ item: RankedHeap.Item) -> Bool {
    guard let last = heap.last, heap.count == room || weight >= needed else { return true }
    return item.comes(before: last)
  }

  mutating func offer(_ item: RankedHeap.Item) throws(Failure) {
    guard wants(item) else { return }
    if heap.count == room {
      weight -= heap.last!.weight
      heap.replaceLast(with: item)
    } else {
      try heap.insert(item)
    }
    weight += item.weight
    while heap.count > 1, let last = heap.last, weight - last.weight >= needed {
      weight -= last.weight
      heap.removeLast()
    }
  }

  /// The item that goes first comes first. Nothing is offered after this call.
  mutating func sort() { heap.sort() }

  var count: Int { heap.count }

  subscript(_ index: Int) -> RankedHeap.Item { heap[index] }
}
