/// A write between `prepare` and the end of its commit.
final class QueuedWrite {
  /// Nil: none of the cache's, but a barrier that only waits for its turn.
  let write: StorageWrite?
  let kind: StorageWrite.Kind?
  /// What the write is about: the write keeps it. Nil for a clear and a barrier.
  let entry: UnownedBlock?
  var version: UInt64 = 0
  let hash: UInt64

  // What `prepare` found out.

  /// Of a put: the size and checksum of what is stored, and whether the entry's block has it; else it is in
  /// the content file alone.
  var size = 0
  var checksum: UInt64 = 0
  var hasValue = true
  var charge: Int64 = 0
  var file: ContentName?
  /// Where the content file is.
  var directory: Directory?
  /// Whether the file of that name is the row's, or gone. Of who completes the write, or abandons
  /// it.
  var hasLanded = false
  /// Not `none`: the value is not stored, the entry that is there goes. Set by `prepare`, or by
  /// the leader under the queue's lock (`WriteQueue.refuse`), where reads look at it.
  var refusal = TierOutcome.none
  var refusalFailure: Failure?

  // What the commit found out. The leader's, until `isDone`.

  var failure: Failure?
  var existed = false

  // The queue's, under its lock.

  var sequence: UInt64 = 0
  var next: QueuedWrite?
  var chain: QueuedWrite?
  /// Of a touch: the write before it of the same key, while that is not committed.
  var base: QueuedWrite?
  var isDone = false
  /// What is on disk under this key up to this version is not to be given out, though there is no
  /// bar: of a failed write which a touch came after, and of a touch which has ended a bar.
  var barred: UInt64?
  /// In the table and not in the queue: reads see it, and another write with its value will be
  /// submitted, if no newer one is.
  var isAnnounced = false
  /// The record of the announced put whose place it took.
  var replaced: Record?
  init(_ write: StorageWrite) {
    self.write = write
    hash = write.hash
    kind = write.kind
    entry = write.entry
  }

  /// A barrier.
  init() {
    write = nil
    hash = 0
    kind = nil
    entry = nil
  }

  /// Whether it may turn out that nothing is to be done.
  var isUndecided: Bool {
    guard let write else { return false }
    return !write.condition.isAlways && !write.isShown
  }

  /// What is on disk under its key is older, whatever its version.
  func barsAll() { version = UInt64(Int64.max) }

  /// Not for a clear or a barrier.
  var key: Bytes { entry!.key }

  /// Of a touch: rows up to this version must not come back, nor be touched.
  /// Nil: none.
  var barredBase: UInt64? { base.map { $0.barred } ?? barred }
}
