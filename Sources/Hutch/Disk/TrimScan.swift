/// What of a trim is about single rows: which ones it wants, or in which order they go.
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

  /// Of a filter. A time in the future, after the wall clock was set back, counts as now.
  func wants(_ record: Record) -> Bool {
    switch spec.kind {
    case .expired: record.isExpired(at: now, under: ages)
    case .writtenBefore: min(record.created, now) < spec.time
    case .olderThan: min(record.created, now) < Record.difference(now, spec.time)
    case .idleFor:
      min(max(record.accessed, record.created), now) < Record.difference(now, spec.time)
    case .largerThan: UInt64(record.size) > spec.amount
    default: false
    }
  }

  /// Of the others: who has less goes first.
  func item(_ row: Row, uses: Int64) -> RankedHeap.Item {
    let rank: (Int64, Int64) =
      switch spec.kind {
      case .largestFirst: (-row.charge, row.id)
      case .leastFrequent: (uses, row.record.accessed)
      default: (row.record.accessed, row.id)
      }
    return RankedHeap.Item(first: rank.0, second: rank.1, tag: row.id, weight: row.charge)
  }
}

/// The rows that go first by rank, of all that a scan offers: no more than are needed, and no
/// more than there is room for; another scan finds the next ones. No index is kept for this,
/// and nothing is sorted by SQLite, which would read as long as the table is.
struct TrimScan: ~Copyable {
  /// 1 MB.
  static let room = 32_768

  private(set) var heap = RankedHeap()
  private var charges: Int64 = 0
  private var needed: Int64 = 0

  init() {}

  /// A new scan, for rows with so many bytes of charges.
  mutating func begin(needing bytes: Int64) {
    heap.removeAll()
    charges = 0
    needed = bytes
  }

  mutating func offer(_ item: RankedHeap.Item) throws(Failure) {
    if let last = heap.last, heap.count == TrimScan.room || charges >= needed {
      guard item.comes(before: last) else { return }
    }
    if heap.count == TrimScan.room {
      charges -= heap.last!.weight
      heap.replaceLast(with: item)
    } else {
      try heap.insert(item)
    }
    charges += item.weight
    while heap.count > 1, let last = heap.last, charges - last.weight >= needed {
      charges -= last.weight
      heap.removeLast()
    }
  }

  /// Who goes first comes first; nothing is offered after this.
  mutating func sort() { heap.sort() }

  var count: Int { heap.count }

  subscript(_ index: Int) -> RankedHeap.Item { heap[index] }
}
