import CSystem

/// The entries of a shard, in the order in which its policy would evict them, and the places of
/// their words. The places are found before any entry moves. An entry that has moved names a slot
/// of its new shard, and of two entries with the same tag the slot tells which one is meant.
struct EntryPlaces: ~Copyable {
  private let places: UnsafeMutablePointer<(slot: Slot, place: Table.Place)>
  private let size: Int
  private(set) var count = 0

  /// The shard's lock is held. Nil: there is no memory for the list.
  @inline(never)
  init?(_ shard: UnsafeMutablePointer<Shard>) {
    let room = max(1, shard.pointee.entries.count)
    // The list is mapped, since malloc would keep memory that is never needed again.
    size = room * MemoryLayout<(slot: Slot, place: Table.Place)>.stride
    guard let memory = Heap.map(size) else { return nil }
    places = memory.bindMemory(to: (slot: Slot, place: Table.Place).self, capacity: room)
    let list = places
    var found = 0
    shard.pointee.policy.forEach(shard.pointee.entries) { slot in
      list[found] = (slot, shard.pointee.entries.place(of: slot))
      found += 1
    }
    count = found
  }

  deinit { munmap(places, size) }

  subscript(index: Int) -> (slot: Slot, place: Table.Place) { places[index] }
}

/// The state that a shard had before it was rebuilt. Its words with uses of 0 are entries that
/// found no memory in the new state; the tier's references to their blocks are the owner's.
struct FormerEntries: ~Copyable {
  let state: DetachedEntries
  let lost: UInt64
}

/// A shard gets a new state and keeps its entries: when the first one is divided, and when the
/// policy changes. The entries move under one hold of the shard's lock.
extension MemoryTier {
  /// Gives a shard a new state under the present policy, and its entries to the shards of their
  /// hashes, of which there are 2^bits. The locks of the shards are held, or no thread knows of
  /// them. The caller gives the result to `giveUp` when it holds no lock.
  func rebuild(
    _ index: Int, of bits: UInt64, from places: consuming EntryPlaces
  ) -> FormerEntries {
    let shard = shard(index)
    let old = shard.pointee.detach(MemoryTier.position(index, of: bits), common)
    let isSamePolicy = old.policy.kind == common.kind
    var lost: UInt64 = 0
    var lostCost: UInt64 = 0
    for i in 0..<places.count {
      let (slot, place) = places[i]
      let word = place.pointee
      let key = word.block.key
      let hash = word.isObject ? keyed.object(key) : keyed.entry(key)
      let target = self.shard(Int((hash >> 1) &>> (63 &- bits)))
      do throws(Failure) {
        try target.pointee.adopt(
          word, hash &<< bits, isSamePolicy ? old.entries.link(slot).pointee : nil,
          uses: common.isAdaptive ? 0 : UInt32(clamping: old.policy.uses(slot, word, old.entries)),
          word.isTimed ? old.entries.slab.times(slot)?.pointee : nil,
          isMain: isSamePolicy && old.entries.slab[slot].pointee.isMain, budget)
        place.pointee.uses = 1
      } catch {
        // No memory for it: evicted.
        lost += 1
        lostCost += MemoryTier.charge(of: word.block)
        place.pointee.uses = 0
        if word.block.isDirty { watch.onDirty(word.block, word.block.created) }
      }
    }
    shard.pointee.review(budget, 0)
    budget.release(cost: lostCost, count: lost)
    shard.pointee.evictions.add(lost)
    return FormerEntries(state: old, lost: lost)
  }

  /// Tells of the entries that found no memory, and releases them. No lock is held.
  func giveUp(_ former: consuming FormerEntries, at: Moment) {
    if former.lost == 0 { return }
    let now = at.time
    former.state.entries.table.forEach { word in
      if word.uses == 1 { return }
      watch.active?._withUnsafeGuaranteedRef { $0.onLeaving(word.block, .evicted) }
      if let onDeparture { onDeparture(word.block, .evicted, min(word.block.created, now)) }
      word.block.depart(held)
      word.block.releaseInside()
    }
  }

  /// Changes the policy. The entries stay, in the order in which the former policy would have
  /// evicted them; each shard changes under its own lock. One call at a time. Fails with no memory:
  /// then shards may be left that have the former policy until a later call.
  func setPolicy(_ kind: EvictionPolicy, at moment: Moment) throws(Failure) {
    if kind != common.kind {
      let next = try CommonPolicy(kind, shardBits: UInt32(mostBits))
      next.former = common
      _ = lockAll(until: .never)
      common = next
      unlockAll()
    }
    // The number of shards may grow meanwhile. The new ones have the policy.
    var index = 0
    while index < shardCount {
      let lock = lock(index)
      lock.lockByCall()
      // Not by the kind: after a change that has failed a shard may have an older policy of it.
      guard !shard(index).pointee.policy.shares(common) else {
        lock.unlockByCall()
        index += 1
        continue
      }
      guard let places = EntryPlaces(shard(index)) else {
        lock.unlockByCall()
        throw .noMemory
      }
      let old = rebuild(index, of: bits, from: places)
      lock.unlockByCall()
      giveUp(old, at: moment)
      index += 1
    }
    common.former = nil
  }
}
