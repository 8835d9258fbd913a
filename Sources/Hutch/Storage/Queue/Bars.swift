/// Keys whose entries on disk no read may return: a write of the key has failed, so that the entry
/// on disk is older than the cache has told, or a read has found the entry damaged. A bar goes up
/// to a version, and ends with the transaction that removes the entry, or with the next write of
/// the key.
///
/// Under the lock of their owner (WriteQueue, LogStorage). Each operation on one key is O(1). The
/// bars are dense in one array; `heads` and `next` chain those with the same hash bits. A bar is 40
/// bytes and a block with the key.
struct Bars: ~Copyable {
  struct Bar: BitwiseCopyable {
    /// The bars own a reference.
    let block: UnsafeMutableRawPointer
    let hash: UInt64
    let version: UInt64
    /// When it began, in the owner's order.
    let sequence: UInt64
    /// The entry was found damaged; no write of it has failed.
    let isOfDamage: Bool
    /// The index of the next in its chain; -1: the last.
    fileprivate var next: Int32 = -1

    var key: Bytes { UnownedBlock(block).key }
  }

  /// Beyond this the owner bars everything at once, which costs every entry.
  static let most = 65_536

  private var bars = GrowingArray<Bar>()
  private var heads = GrowingArray<Int32>()

  init() {}

  deinit { for bar in bars.elements { UnownedBlock(bar.block).release() } }

  var count: Int { bars.count }
  var isEmpty: Bool { bars.isEmpty }

  private func chain(_ hash: UInt64) -> Int { KeyedHash.place(of: hash, mask: heads.count - 1) }

  func find(_ key: Bytes, _ hash: UInt64) -> Bar? {
    guard let index = index(key, hash) else { return nil }
    return bars[index]
  }

  @inline(never)
  private func index(_ key: Bytes, _ hash: UInt64) -> Int? {
    guard !bars.isEmpty else { return nil }
    var index = Int(heads[chain(hash)])
    while index >= 0 {
      if bars[index].hash == hash && bars[index].key.hasSameBytes(as: key) { return index }
      index = Int(bars[index].next)
    }
    return nil
  }

  /// Bars a key that is not barred. False: there are too many, or no memory.
  @inline(never)
  mutating func insert(
    _ key: Bytes, _ hash: UInt64, version: UInt64, _ sequence: UInt64, isOfDamage: Bool
  ) -> Bool {
    guard count < Bars.most else { return false }
    do throws(Failure) {
      if bars.count == heads.count { try grow() }
      let block = try Block.allocate(key: key, record: Record())
      try bars.append(
        Bar(
          block: block.unowned.raw, hash: hash, version: version, sequence: sequence,
          isOfDamage: isOfDamage))
      _ = block.leak()
      link(bars.count - 1)
      return true
    } catch {
      return false
    }
  }

  private mutating func grow() throws(Failure) {
    let wanted = max(64, heads.count * 2)
    try heads.reserve(wanted)
    while heads.count < wanted { try heads.append(-1) }
    for i in 0..<wanted { heads[i] = -1 }
    for i in 0..<bars.count { link(i) }
  }

  @inline(never)
  private func link(_ index: Int) {
    let chain = chain(bars[index].hash)
    bars[index].next = heads[chain]
    heads[chain] = Int32(truncatingIfNeeded: index)
  }

  @inline(never)
  private func unlink(_ index: Int) {
    let chain = chain(bars[index].hash)
    if Int(heads[chain]) == index {
      heads[chain] = bars[index].next
      return
    }
    var previous = Int(heads[chain])
    while Int(bars[previous].next) != index { previous = Int(bars[previous].next) }
    bars[previous].next = bars[index].next
  }

  mutating func remove(_ key: Bytes, _ hash: UInt64) {
    if let index = index(key, hash) { remove(at: index) }
  }

  @inline(never)
  private mutating func remove(at index: Int) {
    let block = bars[index].block
    let last = bars.count - 1
    unlink(index)
    if index != last { unlink(last) }
    bars.removeBySwapping(at: index)
    if index != last { link(index) }
    UnownedBlock(block).release()
  }

  mutating func removeAll(before sequence: UInt64) {
    var index = bars.count
    while index > 0 {
      index -= 1
      // The bar that takes its place has been looked at.
      if bars[index].sequence < sequence { remove(at: index) }
    }
  }

  /// The entries of these bars have been removed. A bar that has begun on one of the keys since
  /// stays.
  mutating func remove(_ lifted: borrowing LiftedBars) {
    for i in 0..<lifted.count {
      let bar = lifted[i]
      if let index = index(bar.key, bar.hash), bars[index].sequence == bar.sequence {
        remove(at: index)
      }
    }
  }

  /// Up to `limit` of them, for a transaction.
  func lift(_ limit: Int) -> LiftedBars {
    var lifted = LiftedBars()
    for index in 0..<min(limit, bars.count) { if !lifted.add(bars[index]) { break } }
    return lifted
  }
}

/// Bars whose rows a transaction removes. Their keys stay valid when the bars end.
struct LiftedBars: ~Copyable {
  private var bars = GrowingArray<Bars.Bar>()
  /// The owner's bar on everything; 0: none.
  var all: UInt64 = 0

  init() {}

  deinit { for bar in bars.elements { UnownedBlock(bar.block).release() } }

  var isEmpty: Bool { bars.isEmpty && all == 0 }
  var count: Int { bars.count }
  subscript(_ index: Int) -> Bars.Bar { bars[index] }

  fileprivate mutating func add(_ bar: Bars.Bar) -> Bool {
    do throws(Failure) { try bars.append(bar) } catch { return false }
    _ = UnownedBlock(bar.block).retained().leak()
    return true
  }
}
