/// Which entries a walk visits.
enum WalkKind {
  case all
  /// The entries that the disk tier does not have.
  case unbacked
  /// The dirty entries: the unbacked ones that the disk tier is owed.
  case dirty
  /// Host objects, which no other walk visits.
  case objects
}

/// Walks over a tier's entries while others write.
///
/// They go by the order of hashes, which nothing changes: not growth, not replacement, not the
/// removal of a neighbour.
extension MemoryTier {
  /// How many blocks a step of a walk holds at most.
  private static var walkBuffer: Int { 128 }

  /// Calls `visit` with the blocks of some entries, about `limit` of them, and moves `position`
  /// on; returns how many, 0 at the end. An entry that is there from beginning to end is visited
  /// exactly once, another at most once. `visit` may change the tier.
  ///
  /// `position` is 0 at first, then a hash: all entries with lesser ones have been seen; all ones:
  /// the end.
  func blocks(
    after position: inout UInt64, limit: Int, at: Moment, _ kind: WalkKind = .all,
    visit: (UnownedBlock) -> Void
  ) -> Int {
    var visited = 0
    while visited == 0 && position != .max {
      visited = blocksOfStep(&position, max(1, limit), at, kind, visit)
    }
    return visited
  }

  /// Retains the blocks of a few lines under the lock, and visits them without.
  private func blocksOfStep(
    _ position: inout UInt64, _ limit: Int, _ at: Moment, _ kind: WalkKind,
    _ visit: (UnownedBlock) -> Void
  ) -> Int {
    let from = position
    var next = UInt64.max
    return withUnsafeTemporaryAllocation(of: UInt.self, capacity: MemoryTier.walkBuffer) {
      buffer -> Int in
      var count = 0
      with(from) { shard, hash in
        let bits = self.bits
        var here: UInt64? = hash
        while let line = here, count < limit, count <= MemoryTier.walkBuffer / 2 {
          here = shard.entries.table.visitLine(at: line) { place in
            let word = place.pointee
            if word.isObject != (kind == .objects) { return }
            if (kind == .unbacked || kind == .dirty) && word.isBacked { return }
            if kind == .dirty && !word.block.isDirty { return }
            guard count < MemoryTier.walkBuffer, !shard.isExpired(word, at: at) else { return }
            buffer[count] = UInt(bitPattern: word.block.retained().leak().raw)
            count += 1
          }
        }
        // Back to a hash of the whole tier; behind the shard's last line, the next shard.
        let index = bits == 0 ? 0 : from >> (64 - bits)
        if let here {
          next = bits == 0 ? here : index << (64 - bits) | here >> bits
        } else if bits > 0 && index + 1 < 1 << bits {
          next = (index + 1) << (64 - bits)
        }
      }
      position = next
      var visited = 0
      for i in 0..<count {
        let block = Block(
          owning: UnownedBlock(UnsafeMutableRawPointer(bitPattern: buffer[i]).unsafelyUnwrapped))
        // A table that was emptied meanwhile may have coarser lines than the walk began with.
        let key = block.unowned.key
        if from == 0 || (kind == .objects ? keyed.object(key) : keyed.entry(key)) >= from {
          visit(block.unowned)
          visited += 1
        }
      }
      return visited
    }
  }
}
