import CSystem
import Synchronization

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
    var old = Entries(ShardPosition(), counts: !common.isAdaptive)
    lock(0).lock()
    let first = shard(0)
    let count = first.pointee.count.value
    guard bits == 0, count >= divideAt.load(ordering: .relaxed) else {
      lock(0).unlock()
      return
    }
    let capacity = budget.capacity.entries
    var bits: UInt64 = 0
    while bits < mostBits && capacity >> (bits + 1) >= MemoryTier.entriesPerShard { bits += 1 }
    guard bits > 0 else {
      divideAt.store(count * 2, ordering: .relaxed)
      lock(0).unlock()
      return
    }
    // The places are found before any entry moves. An entry that has moved names a slot of its new
    // shard, and of two entries with the same tag the slot tells which one is meant.
    let places: UnsafeMutablePointer<(slot: Slot, place: Table.Place)>
    do throws(Failure) {
      places = try Allocation.array((slot: Slot, place: Table.Place).self, Int(count))
    } catch {
      divideAt.store(count * 2, ordering: .relaxed)
      lock(0).unlock()
      return
    }
    defer { free(places) }
    var found = 0
    first.pointee.policy.forEach(first.pointee.entries) { slot in
      places[found] = (slot, first.pointee.entries.place(of: slot))
      found += 1
    }
    for i in 1..<1 << Int(bits) { makeShard(i, of: bits, ages: first.pointee.ages) }
    old = Entries(MemoryTier.position(0, of: bits), counts: !common.isAdaptive)
    var policy = Policy(MemoryTier.position(0, of: bits), common)
    swap(&old, &first.pointee.entries)
    swap(&policy, &first.pointee.policy)
    first.pointee.forgetSums()
    var lost: UInt64 = 0
    var lostCost: UInt64 = 0
    for i in 0..<found {
      let (slot, place) = places[i]
      let word = place.pointee
      let key = word.block.key
      let hash = word.isObject ? keyed.object(key) : keyed.entry(key)
      let times = word.isTimed ? old.slab.times(slot)?.pointee : nil
      let target = shard(Int((hash >> 1) &>> (63 &- bits)))
      do throws(Failure) {
        try target.pointee.adopt(
          word, hash &<< bits, old.links(slot).pointee,
          uses: common.isAdaptive ? 0 : old.slab.uses(slot).pointee, times,
          isMain: old.slab[slot].pointee.isMain)
        place.pointee.uses = 1
      } catch {
        // No memory for it: evicted.
        lost += 1
        lostCost += MemoryTier.charge(of: word.block)
        place.pointee.uses = 0
        if word.block.isDirty { watch.onDirty(word.block, word.block.created) }
      }
    }
    budget.release(cost: lostCost, count: lost)
    first.pointee.evictions.add(lost)
    recent = RecentKeys.make()
    front.set(HitPath.Way(bits: bits))
    lock(0).unlock()

    if lost == 0 { return }
    let now = at.time
    old.table.forEach { word in
      if word.uses == 1 { return }
      watch.active?._withUnsafeGuaranteedRef { $0.onLeaving(word.block, .evicted) }
      if let onDeparture { onDeparture(word.block, .evicted, min(word.block.created, now)) }
      word.block.depart(held)
      word.block.releaseInside()
    }
  }
}
