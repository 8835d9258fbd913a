/// One write on its way to the store.
final class StorageWrite {
  enum Kind {
    /// Store `block`.
    case put
    /// Remove the entry of `block`'s key.
    case remove
    /// Set the times of the entry of `block`'s key to `created`, `expires` and `timeToIdle`
    /// of `record`, if it is there.
    case touch
    /// Advance the generation: every entry submitted before is gone.
    case clear
  }

  let kind: Kind
  /// The value with key and record; for `remove` and `touch` a block of which only the key
  /// counts; for `clear` nil.
  let block: Block?
  /// Drawn by the cache, before `submit`; a put's block has the same one.
  var version: UInt64 = 0
  /// For `touch`: the times to set. Its version is the entry's.
  var record = Record()
  /// When the write was submitted.
  var time: Int64 = 0
  /// Of a clear: what tiers above have of older versions goes too.
  var isOfAllTiers = false

  // Results, valid after `complete`.

  /// Nil: committed.
  var failure: Failure?
  /// For a put, also whether it was refused: stored, tooLarge, noSpace or failed. For a put
  /// that is not stored, the commit has removed the entry that was there.
  var outcome = TierOutcome.none
  /// Whether there was an entry, not expired, before the write.
  var existed = false

  /// Of a put to a store that keeps files: how its value is to be kept, or where it is
  /// already.
  var file: ValueFile?

  // Where several processes share the store (`Storage.sharing`); else they stay as they are.

  /// Decided where the write is committed; until then no read sees a write that has one.
  var condition = WriteCondition.always
  /// Reads see it from the beginning all the same: another process alone can be in its way.
  var isShown = false
  /// The condition did not hold, nothing was done: a result, as are those below.
  var isUnmet = false
  /// Of a write with a condition: the version that it found; 0: none.
  var existing: UInt64 = 0
  /// The number under which memory may remember the entry (CoherenceCounters).
  var mark: UInt32 = 1
  /// The number when the write was carried out: what memory remembers under it counted then.
  var markBefore: UInt32 = 1

  /// The cache's, see Leavings.
  var next: StorageWrite?

  /// The store's own, from `prepare` or `submit` on: its place in a queue, a file that waits.
  var storage: AnyObject?

  init(_ kind: Kind, _ block: consuming Block?) {
    self.kind = kind
    self.block = block
  }
}

extension StorageWrite {
  /// The block, which lives as long as the write does.
  var entry: UnownedBlock? {
    switch block {
    case .some(let block): block.unowned
    case .none: nil
    }
  }
}
