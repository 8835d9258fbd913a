/// One write to the store.
final class StorageWrite {
  enum Kind {
    /// Store `block`.
    case put
    /// Remove the entry of `block`'s key.
    case remove
    /// Set the times of the entry of `block`'s key to `created`, `expires` and `timeToIdle`
    /// of `record`, if it is there.
    case touch
    /// Advance the generation: removes every entry submitted before.
    case clear
  }

  let kind: Kind
  /// The value with key and record. For `remove` and `touch`: a block of which only the key counts.
  /// For `clear`: nil.
  let block: Block?
  /// Of the block's key; 0 for a clear.
  let hash: UInt64
  /// Drawn by the cache before `submit`; a put's block has the same version.
  var version: UInt64 = 0
  /// For `touch`: the times to set. Its version is that of the entry.
  var record = Record()
  /// When the write was submitted.
  var time: Int64 = 0
  /// For a clear: tiers above also lose the entries of older versions.
  var isOfAllTiers = false

  // Results, valid after `complete`.

  /// Nil: committed.
  var failure: Failure?
  /// For a put, also if it was refused: stored, tooLarge, noSpace or failed. If a put is not
  /// stored, the commit has removed the entry that was there.
  var outcome = TierOutcome.none
  /// True if there was an entry, not expired, before the write.
  var existed = false

  /// Set before `prepare` for a put whose value could not be encoded: the write removes the entry
  /// that is there, its outcome is `failed`, and this is its failure.
  var encodingFailure: Failure?

  /// For a put to a store that keeps files: how to keep its value, or where the value is already.
  var file: ValueFile?

  // Where several processes share the store (`Storage.sharing`); otherwise these keep their initial
  // values.

  /// Decided where the write is committed; until then no read sees a write that has a condition.
  var condition = WriteCondition.always
  /// Reads see the write from its submission nevertheless: only another process can be in its way.
  var isShown = false
  /// The condition did not hold, and nothing was done. A result, like those below.
  var isUnmet = false
  /// For a write with a condition: the version that it found; 0: none.
  var existing: UInt64 = 0
  /// The number under which memory may remember the entry (CoherenceCounters).
  var mark: UInt32 = 1
  /// The number when the write was carried out: a copy with this number counted then.
  var markBefore: UInt32 = 1

  /// Belongs to the cache, see WriteBackQueue.
  var next: StorageWrite?

  /// Belongs to the store, from `prepare` or `submit` on: the write's place in a queue, a file that
  /// waits.
  var storage: AnyObject?

  init(_ kind: Kind, _ block: consuming Block?, _ hash: UInt64) {
    self.kind = kind
    self.block = block
    self.hash = hash
  }
}

extension StorageWrite {
  /// The block, which lives as long as the write.
  var entry: UnownedBlock? {
    switch block {
    case .some(let block): block.unowned
    case .none: nil
    }
  }
}
