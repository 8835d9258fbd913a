/// A store's own copy of a write in its WriteQueue, from `write` to the end of the commit.
final class QueuedWrite: Chained {
  /// Nil: none of the cache's, but a barrier that only waits for its turn.
  let kind: StoreWrite.Kind?
  /// Keeps the entry that is written. Nil for a clear and a barrier.
  private let block: Block?
  let hash: UInt64
  /// Of a barrier: `Int64.min`, which no write has.
  let time: Int64
  let condition: WriteCondition
  let copy: StoreWrite.Copy?
  var version: UInt64

  /// A removal of which the caller has found no entry, and which is to find none: if there is one
  /// by now, it stays.
  var removesNothing: Bool { kind == .remove && condition.kind == .absent }

  // Fields of a put.

  /// The size and the checksum of the stored bytes.
  var size = 0
  var checksum: UInt64 = 0
  /// False: the content file alone has the value.
  let isInBlock: Bool
  /// The value's content file.
  let file: PendingFile?
  var charge: Int64 = 0
  /// Not `none`: the value is not stored, and the existing entry goes. After the submission the
  /// leader sets it, under the queue's lock (`WriteQueue.refuse`), under which reads look at it.
  var refusal: TierOutcome
  var refusalFailure: Failure?

  /// The findings of the commit. The leader's, until `isDone`.
  var result = StoreWrite.Result()
  /// The version of the expired entry that a put has found in its place; 0: none. The put takes
  /// memory's copy of that along, so the cache need not look at it afterwards (`storeDropped`).
  var expired: UInt64 = 0

  // The queue's, under its lock.

  var sequence: UInt64 = 0
  var next: QueuedWrite?
  var chain: QueuedWrite?
  /// A touch has the write before it of the same key, while that is not committed.
  var base: QueuedWrite?
  var isDone = false
  /// No read may return an entry of this key up to this version, though there is no bar: of a
  /// failed write which a touch came after, and of a touch which has ended a bar.
  var barred: UInt64?

  @inline(__always)
  init(_ write: borrowing StoreWrite) {
    kind = write.kind
    block = write.entry?.retained()
    hash = write.hash
    time = write.time
    condition = write.condition
    copy = write.copy
    version = write.version
    let form = write.form
    isInBlock = form?.isInBlock ?? true
    file = form?.file
    refusal = form?.refusal ?? .none
    refusalFailure = form?.failure
    checksum = form?.file?.checksum ?? 0
  }

  /// A barrier.
  init() {
    kind = nil
    block = nil
    hash = 0
    time = .min
    condition = .always
    copy = nil
    version = 0
    isInBlock = true
    file = nil
    refusal = .none
  }

  var entry: UnownedBlock? { block.unowned }

  /// The times that a touch sets.
  var times: Record { entry!.record }

  /// Whether no read sees it before it is carried out.
  var isUndecided: Bool { condition.isOfCaller }

  /// Every entry on disk under its key is older, whatever its version.
  func barsAll() { version = UInt64(Int64.max) }

  /// Not for a clear or a barrier.
  var key: Bytes { entry!.key }

  /// Rows up to this version must not come back, nor be touched by this touch. Nil: none.
  var barredBase: UInt64? { base.map { $0.barred } ?? barred }
}
