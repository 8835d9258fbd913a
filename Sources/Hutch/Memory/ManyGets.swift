import CSystem

/// The result of a look for one of several keys.
struct FoundBlock: BitwiseCopyable {
  var hash: UInt64 = 0
  /// A reference, which the caller owns. Nil: there is no entry.
  var block: OpaquePointer?
}

/// The results of a look for several keys, index by index.
typealias FoundBlocks = UnsafeMutableBufferPointer<FoundBlock>

/// A set of keys of one look, by their indexes.
private typealias KeySet = UInt32
/// The room for the results of one look.
typealias FoundRoom = InlineArray<32, FoundBlock>

extension MemoryTier {
  /// So many keys at most are looked for at once: more misses than a processor has under way, and
  /// a few keys for each shard, whose lock is taken once for all of them.
  static var keysAtOnce: Int { KeySet.bitWidth }

  /// As `get` of each of the keys from `first` on: references to their entries' blocks. The memory
  /// of all is asked for before that of the first is read. `found` has as many empty results.
  @inline(never)
  @_optimize(speed)
  func getMany(_ keys: ManyBytes, _ first: Int, at moment: Moment, _ found: FoundBlocks) {
    let path = front
    let way = path.way
    var groups = ShardGroups()
    for i in 0..<found.count {
      let hash = hashAtOnce(keys[first &+ i])
      found[i].hash = hash
      groups.add(i, way.shard(hash))
    }
    fetch(groups, found, way)
    var left = KeySet.max &>> KeySet(truncatingIfNeeded: MemoryTier.keysAtOnce &- found.count)
    if path.isOpen {
      forEachShard(left, groups, found, way) { spot, keysOfShard in
        forEach(keysOfShard) { i in
          let outcome = path.note(keys[first &+ i], found[i].hash, way, spot, &found[i].block)
          if _fastPath(outcome != .unusual) { left &= ~set(i) }
        }
        // After all notes: an atomic change waits for the reads before it, and would keep the
        // misses of these keys apart.
        forEach(keysOfShard) { i in
          if let block = found[i].block { UnownedBlock(UnsafeMutableRawPointer(block)).retain() }
        }
      }
    }
    forEach(left) { i in
      if let block = get(keys[first &+ i], found[i].hash, at: moment) {
        found[i].block = OpaquePointer(block.leak().raw)
      }
    }
  }

  /// Prefetches the memory that accesses of these hashes will read: the lines of words of all, then
  /// the blocks of all, so that the misses of many entries overlap. Each look has its shard's lock,
  /// since a table may be freed without it; it counts nothing. A shard that was divided meanwhile
  /// is the wrong one: then the prefetch is of no use.
  ///
  /// The two looks cost as much as half the access of an entry that the processor's caches have.
  /// Keys of recent batches are therefore left out, and so are all in a tier with one shard, whose
  /// few thousand words and headers the caches hold.
  @inline(__always)
  private func fetch(
    _ groups: borrowing ShardGroups, _ found: FoundBlocks, _ way: HitPath.Way
  ) {
    guard way.bits > 0 else { return }
    var cold: KeySet = 0
    for i in 0..<found.count {
      if recent.isNew(found[i].hash) { cold |= set(i) }
    }
    if cold == 0 { return }
    for step in 0..<2 {
      forEachShard(cold, groups, found, way) { spot, keys in
        let shard = spot.lock.shard
        forEach(keys) {
          let hash = way.local(found[$0].hash)
          if step == 0 {
            shard.pointee.entries.table.prefetch(hash)
          } else {
            shard.pointee.entries.table.prefetchBlock(hash)
          }
        }
      }
    }
  }

  /// Calls `body` for each shard of these keys with the keys in it. The shard's lock is held.
  @inline(__always)
  private func forEachShard(
    _ keys: KeySet, _ groups: borrowing ShardGroups, _ found: FoundBlocks, _ way: HitPath.Way,
    _ body: (HitPath.Spot, KeySet) -> Void
  ) {
    for group in 0..<ShardGroups.count {
      var left = groups[group] & keys
      while left != 0 {
        let index = way.shard(found[left.trailingZeroBitCount].hash)
        var inShard = left
        if _slowPath(way.bits > ShardGroups.bits) {
          forEach(left) { if way.shard(found[$0].hash) != index { inShard &= ~set($0) } }
        }
        left &= ~inShard
        let spot = lock(index).lockToReadShared()
        body(spot, inShard)
        spot.unlock()
      }
    }
  }
}

/// The set of one key.
@inline(__always)
private func set(_ key: Int) -> KeySet { 1 &<< KeySet(truncatingIfNeeded: key) }

/// Calls `body` with each key of a set.
@inline(__always)
private func forEach(_ keys: KeySet, _ body: (Int) -> Void) {
  var left = keys
  while left != 0 {
    body(left.trailingZeroBitCount)
    left &= left &- 1
  }
}

/// The keys of one look by their shards. Where there are more shards than groups, a group has the
/// keys of several.
private struct ShardGroups {
  static var bits: UInt64 { 4 }
  static var count: Int { 1 &<< Int(bits) }
  private var sets = InlineArray<16, KeySet>(repeating: 0)

  @inline(__always)
  subscript(_ group: Int) -> KeySet { sets[unchecked: group] }

  @inline(__always)
  mutating func add(_ key: Int, _ shard: Int) {
    sets[unchecked: shard & (ShardGroups.count &- 1)] |= set(key)
  }
}
