/// The results of one call on many keys, index by index. The call writes them before it returns the
/// batch; later they are only read.
final class Batch {
  struct Item: BitwiseCopyable {
    var status = Status.done.code
    var memory = TierOutcome.none.rawValue
    var disk = TierOutcome.none.rawValue
    /// True if the disk tier answered an info.
    var isOnDisk = false
    /// The version in a put's result.
    var version: UInt64 = 0
    /// A reference, given up by the batch. Nil: no value.
    var value: UnsafeMutableRawPointer?
  }

  enum Kind {
    case values, infos, puts, removals
  }

  let kind: Kind
  /// Of a batch of infos: when the records were read, and the ages that count for them.
  let time: Int64
  let memoryAges: Ages
  let diskAges: Ages
  private(set) var items = GrowingArray<Item>()
  /// A batch of infos has one per key.
  private(set) var records = GrowingArray<Record>()

  /// The first failure that was added.
  private(set) var firstFailure: Failure?
  /// The failure that was noted last: a thread that gets the batch from another one asks for it.
  private(set) var lastFailure: Failure?

  private init(_ kind: Kind, time: Int64, memoryAges: Ages, diskAges: Ages) {
    self.kind = kind
    self.time = time
    self.memoryAges = memoryAges
    self.diskAges = diskAges
  }

  /// With room for `count` results, so that none is lost for lack of memory once work is done.
  static func make(_ kind: Kind, _ count: Int, for cache: Cache) throws(Failure) -> Batch {
    // To know the ages takes locks.
    let hasInfos = kind == .infos
    let batch = Batch(
      kind, time: hasInfos ? cache.clock.now : 0,
      memoryAges: hasInfos ? cache.ages(of: .memory) : Ages(),
      diskAges: hasInfos ? cache.ages(of: .disk) : Ages())
    try batch.items.reserve(count)
    if hasInfos { try batch.records.reserve(count) }
    return batch
  }

  deinit {
    for item in items.elements {
      if let value = item.value { UnownedBlock(value).release() }
    }
  }

  // The room for what is added is there since `make`.

  private func note(_ failure: Failure) {
    lastFailure = failure
    ThreadState.note(failure, failure.detail)
  }

  private func add(_ item: Item) { try? items.append(item) }

  /// Adds to a batch of values that none of the next `count` keys was found.
  func addMissing(_ count: Int) {
    var item = Item()
    item.status = Status.notFound.code
    try? items.append(item, count)
  }

  func add(_ status: Status) {
    var item = Item()
    item.status = status.code
    add(item)
    if kind == .infos { try? records.append(Record()) }
  }

  func add(_ failure: Failure) {
    if firstFailure == nil { firstFailure = failure }
    note(failure)
    add(failure.status)
  }

  /// Sets the value of an index, in the place of `addMissing`'s result.
  func set(_ index: Int, _ value: consuming Block) {
    items[index].value = value.leak().raw
    items[index].status = Status.done.code
  }

  /// Likewise the values that memory has for the keys from `first` on. The batch owns the
  /// references from here on.
  @inline(never) @_optimize(speed)
  func set(_ first: Int, _ found: FoundBlocks) {
    let items = items.elements
    for i in 0..<found.count {
      guard let value = found[i].block else { continue }
      items[first &+ i].value = UnsafeMutableRawPointer(value)
      items[first &+ i].status = Status.done.code
    }
  }

  /// Sets the failure of an index, likewise.
  func set(_ index: Int, _ failure: Failure) {
    note(failure)
    var item = Item()
    item.status = failure.status.code
    items[index] = item
  }

  func add(_ result: Cache.PutResult) {
    if let failure = result.failure { note(failure) }
    var item = Item()
    item.status = result.status.code
    item.memory = result.memory.rawValue
    item.disk = result.disk.rawValue
    item.version = result.version
    add(item)
  }

  func add(_ record: Record, isOnDisk: Bool) {
    var item = Item()
    item.isOnDisk = isOnDisk
    add(item)
    try? records.append(record)
  }
}
