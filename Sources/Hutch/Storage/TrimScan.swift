/// What of a trim is about single entries: which ones it wants, or that it takes them by rank.
struct TrimRule {
  let spec: TrimSpec
  let now: Int64
  let ages: Ages

  /// Whether it matters when an entry was last read, so that tiers above have to be asked.
  var goesByAccess: Bool {
    switch spec.kind {
    case .expired, .leastRecent, .leastFrequent, .idleFor: true
    default: false
    }
  }

  /// Whether it is to end at so many entries, or else at so many bytes.
  var countsEntries: Bool { spec.kind == .toCount }

  /// Of a filter. A time in the future, after the wall clock was set back, counts as now.
  func wants(_ record: Record) -> Bool {
    switch spec.kind {
    case .expired: record.isExpired(at: now, under: ages)
    case .writtenBefore: min(record.created, now) < spec.time
    case .olderThan: min(record.created, now) < Record.difference(now, spec.time)
    case .idleFor:
      min(max(record.accessed, record.created), now) < Record.difference(now, spec.time)
    case .largerThan: UInt64(record.valueSize) > spec.amount
    default: false
    }
  }
}

/// The entries that go first by rank, of all that a scan offers: no more than are needed, and no
/// more than there is room for; another scan finds the next ones. No index is kept for this,
/// and nothing is sorted as a whole.
struct TrimScan: ~Copyable {
  private(set) var heap = RankedHeap()
  private var weight: Int64 = 0
  private let needed: Int64
  private let room: Int

  /// For entries that come to so many bytes, or so many. Room for a sixteenth of all, so that
  /// a trim takes 16 scans at most; 8 MB at least.
  init(needing needed: Int64, of all: Int64) {
    self.needed = needed
    room = max(1 << 18, Int(clamping: all / 16))
  }

  mutating func offer(_ item: RankedHeap.Item) throws(Failure) {
    if let last = heap.last, heap.count == room || weight >= needed {
      guard item.comes(before: last) else { return }
    }
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

  /// The first to go comes first; nothing is offered after this.
  mutating func sort() { heap.sort() }

  var count: Int { heap.count }

  subscript(_ index: Int) -> RankedHeap.Item { heap[index] }
}
