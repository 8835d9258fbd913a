import CSystem
import Synchronization

/// Once it goes, the heap gives back what no request needs any more.
struct HeapRest: ~Copyable {
  deinit { Heap.trim() }
}

/// The first bits of a key's hash choose its shard. There is one shard at first, so that the
/// policy is exact, and up to 4,096 entries; then `divide` makes as many as the capacity asks
/// for, once. Only that changes `bits`, from 0, under the lock of shard 0.
extension MemoryTier {
  /// So many entries are one shard's, however large the limits.
  static var oneShard: UInt64 { 4096 }
  /// A shard is made for so many entries that the limits allow.
  private static var entriesPerShard: UInt64 { 2048 }

  /// Makes several shards of the first one, if the limits allow for so many entries of the
  /// present average charge; else looks again when there are twice as many. A few thousand
  /// entries move under one hold of the lock, once in the life of a tier.
  @inline(never)
  func divide(at: Moment) {
    lock(0).lockByCall()
    let first = shard(0)
    let count = first.pointee.count.value
    guard bits == 0, count >= divideAt.load(ordering: .relaxed) else {
      lock(0).unlock()
      return
    }
    let capacity = budget.capacity.entries
    var bits: UInt64 = 0
    while bits < mostBits && capacity >> (bits + 1) >= MemoryTier.entriesPerShard { bits += 1 }
    guard bits > 0, let places = EntryPlaces(first) else {
      divideAt.store(count * 2, ordering: .relaxed)
      lock(0).unlock()
      return
    }
    for i in 1..<1 << Int(bits) { makeShard(i, of: bits, ages: first.pointee.ages) }
    let former = rebuild(0, of: bits, from: places)
    for i in 1..<1 << Int(bits) { shard(i).pointee.review(budget, 0) }
    recent = RecentKeys.make()
    front.set(HitPath.Way(bits: bits))
    lock(0).unlock()
    giveUp(former, at: at)
  }
}
