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
  func rank(_ row: Row, uses: Int64) -> (Int64, Int64) {
    switch spec.kind {
    case .largestFirst: (-row.charge, row.id)
    case .leastFrequent: (uses, row.record.accessed)
    default: (row.record.accessed, row.id)
    }
  }
}

/// The rows that go first by rank, of all that a scan offers: no more than are needed, and no
/// more than there is room for; another scan finds the next ones. No index is kept for this,
/// and nothing is sorted by SQLite, which would read as long as the table is.
///
/// A binary heap: the row that goes last is at its root, to be let go when a better one comes.
struct TrimScan: ~Copyable {
  struct Candidate {
    var rank: (Int64, Int64)
    var id: Int64
    var charge: Int64

    func goes(before other: Candidate) -> Bool {
      if rank.0 != other.rank.0 { return rank.0 < other.rank.0 }
      if rank.1 != other.rank.1 { return rank.1 < other.rank.1 }
      return id < other.id
    }
  }

  /// 1.3 MB.
  static let room = 32_768

  private var heap = GrowingArray<Candidate>()
  private var charges: Int64 = 0
  private var needed: Int64 = 0

  init() {}

  /// A new scan, for rows with so many bytes of charges.
  mutating func begin(needing bytes: Int64) {
    heap.removeAll()
    charges = 0
    needed = bytes
  }

  mutating func offer(_ candidate: Candidate) throws(Failure) {
    if heap.count == TrimScan.room || (heap.count > 0 && charges >= needed) {
      guard candidate.goes(before: heap[0]) else { return }
    }
    if heap.count == TrimScan.room {
      charges -= heap[0].charge
      heap[0] = candidate
      sink(0, heap.count)
    } else {
      try heap.append(candidate)
      rise(heap.count - 1)
    }
    charges += candidate.charge
    while heap.count > 1 && charges - heap[0].charge >= needed {
      charges -= heap[0].charge
      let last = heap.popLast()!
      heap[0] = last
      sink(0, heap.count)
    }
  }

  /// Who goes first comes first; nothing is offered after this.
  mutating func sort() {
    var count = heap.count
    while count > 1 {
      count -= 1
      let root = heap[0]
      heap[0] = heap[count]
      heap[count] = root
      sink(0, count)
    }
  }

  var count: Int { heap.count }

  subscript(_ index: Int) -> Candidate { heap[index] }

  private func rise(_ start: Int) {
    var at = start
    let moving = heap[at]
    while at > 0 {
      let parent = (at - 1) / 2
      guard heap[parent].goes(before: moving) else { break }
      heap[at] = heap[parent]
      at = parent
    }
    heap[at] = moving
  }

  private func sink(_ start: Int, _ count: Int) {
    guard start < count else { return }
    var at = start
    let moving = heap[at]
    while 2 * at + 1 < count {
      var child = 2 * at + 1
      if child + 1 < count && heap[child].goes(before: heap[child + 1]) { child += 1 }
      guard moving.goes(before: heap[child]) else { break }
      heap[at] = heap[child]
      at = child
    }
    heap[at] = moving
  }
}
