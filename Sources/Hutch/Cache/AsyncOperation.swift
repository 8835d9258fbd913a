import CSystem

/// The operation of a cache's task, and its outcome: the payload of its record, followed by the
/// reservation of a write, and by the key. Its maker's, then its runner's, then read by the thread
/// that tells the host.
struct AsyncOperation {
  /// The numbers are the header's (HUTCH_OPERATION_*), but for `call`, which is several of them.
  enum Kind: UInt8 {
    case get = 3
    case put = 4
    case remove = 5
    case contains = 6
    case clear = 7
    case flush = 8
    case trim = 9
    case load = 10
    case call = 11
  }

  let kind: Kind
  /// Keeps the cache open until the task has ended.
  let handle: Handle
  let hash: UInt64
  let keySize: Int
  /// A put's entry, until the put is done; a get's value. A reference.
  var block: UnownedBlock?
  /// What the submission of a clear has begun.
  var clear: Cache.SubmittedClear?
  var trim = TrimSpec(kind: .expired)
  /// Where a put's value goes, and how a store that keeps files is to keep it.
  var target = WritePolicy.through
  var suffix: FileSuffix?
  /// The condition of a put.
  var condition = WriteCondition.always
  var load: LoadWork?
  var call: AsyncCall?

  // The outcome.
  var isDone = false
  var put = Cache.PutResult()
  var removed: UInt64 = 0
  var failure: Failure?

  var cache: Unmanaged<Cache> { handle.unretained }
  var scope: Tiers { handle.scope }

  /// The bytes before the key.
  fileprivate static var headSize: Int {
    MemoryLayout<AsyncOperation>.stride + MemoryLayout<WriteOrder.Reservation>.stride
  }

  /// The operation of a cache's task.
  static func of(_ task: TaskPointer) -> UnsafeMutablePointer<AsyncOperation> {
    task.pointee.workContext!.assumingMemoryBound(to: AsyncOperation.self)
  }

  /// A task that does this.
  @inline(never)
  static func makeTask(
    _ kind: Kind, _ handle: Handle, of cache: Cache, key: Bytes, hash: UInt64,
    _ spec: borrowing TaskSpec
  ) throws(Failure) -> TaskPointer {
    let size = AsyncOperation.headSize
    let task = try TaskPointer.make(spec, for: cache.tasks, payload: size + key.count)
    let payload = task.pointee.workContext!
    payload.bindMemory(to: AsyncOperation.self, capacity: 1).initialize(
      to: AsyncOperation(kind: kind, handle: handle, hash: hash, keySize: key.count))
    AsyncOperation.of(task).late.initialize(to: WriteOrder.Reservation())
    if key.count > 0 {
      (payload + size).copyMemory(from: key.baseAddress!, byteCount: key.count)
    }
    task.pointee.work = { payload, task in
      let operation = payload!.assumingMemoryBound(to: AsyncOperation.self)
      guard let task else {
        operation.withdraw()
        operation.pointee.load?.end()
        return 0
      }
      return operation.pointee.cache._withUnsafeGuaranteedRef {
        operation.run(TaskPointer(task), $0).code
      }
    }
    task.pointee.workRelease = { payload in
      let operation = payload!.assumingMemoryBound(to: AsyncOperation.self)
      operation.withdraw()
      operation.pointee.block?.release()
      operation.deinitialize(count: 1)
    }
    return task
  }

  /// The status of what `put` says, or its failure.
  func answer() throws(Failure) -> Status {
    if let failure = put.failure { throw failure }
    return put.status
  }

  private init(kind: Kind, handle: Handle, hash: UInt64, keySize: Int) {
    self.kind = kind
    self.handle = handle
    self.hash = hash
    self.keySize = keySize
  }
}

extension UnsafeMutablePointer where Pointee == AsyncOperation {
  private var key: Bytes {
    Bytes(
      start: UnsafeRawPointer(self) + AsyncOperation.headSize, count: pointee.keySize)
  }

  /// The reservation of a put or a removal.
  var late: LateWrite {
    (UnsafeMutableRawPointer(self) + MemoryLayout<AsyncOperation>.stride)
      .assumingMemoryBound(to: WriteOrder.Reservation.self)
  }

  /// The order of the write is decided: see WriteOrder.
  func reserve() {
    pointee.cache._withUnsafeGuaranteedRef {
      $0.order.reserve(late, pointee.hash, forLoad: false)
    }
  }

  /// The write is done, or is not to be done.
  fileprivate func withdraw() {
    if pointee.kind == .put || pointee.kind == .remove || pointee.kind == .call {
      pointee.cache._withUnsafeGuaranteedRef { $0.order.withdraw(late) }
    }
  }

  /// Does it, as a task. Returns the completion's status.
  fileprivate func run(_ task: TaskPointer, _ cache: Cache) -> Status {
    let scope = pointee.scope
    defer { pointee.isDone = true }
    return outcome { () throws(Failure) in
      switch pointee.kind {
      case .clear: try clear(cache, scope, task)
      case .flush: if scope != .memory { try cache.flush() }
      case .trim: return try trim(cache, scope, task)
      case .load: return try load(pointee.load!, cache, key, task)
      case .call: return try make(pointee.call!, cache, key, task)
      case .get, .contains, .put, .remove: return try perform(cache, in: scope, by: late)
      }
      return .done
    }
  }

  /// Does it before it is a task, by what memory has. Nil: memory cannot tell, and nothing has been
  /// done.
  func runAtOnce(_ cache: Cache) -> Status? {
    let isAll = pointee.load == nil && (cache.storage == nil || pointee.scope == .memory)
    let status = outcome { () throws(Failure) in
      switch pointee.kind {
      case .get, .load: try getAtOnce(cache, countsMiss: isAll)
      default: try perform(cache, in: .memory, by: nil)
      }
    }
    guard status == .notFound else { return status }
    // Expired entries may be the reason.
    cache.events.deliver()
    return isAll ? status : nil
  }

  /// The value that memory has, unless a load is to refresh it. A look after which the task looks
  /// again is no access.
  private func getAtOnce(_ cache: Cache, countsMiss: Bool) throws(Failure) -> Status {
    let moment = cache.clock.moment()
    if let load = pointee.load, load.spec.softTimeToLive != 0,
      let old = cache.memory.peek(key, pointee.hash, at: moment),
      cache.isStale(old.unowned, load.spec)
    {
      return .notFound
    }
    pointee.block = cache.memory.get(key, pointee.hash, at: moment, countsMiss: countsMiss)?.leak()
    return pointee.block == nil ? try notFound() : .done
  }

  private func outcome(_ body: () throws(Failure) -> Status) -> Status {
    do throws(Failure) {
      return try body()
    } catch {
      pointee.failure = error
      return error.status
    }
  }

  /// An operation on a key is the call of its name. `scope`: the handle's, or memory, if it is done
  /// at once; `late`: what a write was reserved by.
  private func perform(
    _ cache: Cache, in scope: Tiers, by late: LateWrite?
  ) throws(Failure) -> Status {
    switch pointee.kind {
    case .get:
      pointee.block = try cache.get(key, in: scope)?.leak()
      return pointee.block == nil ? try notFound() : .done
    case .contains:
      return try cache.contains(key, in: scope) ? .done : try notFound()
    case .put:
      let block = Block(owning: pointee.block!)
      pointee.block = nil
      pointee.put = try cache.put(
        block, pointee.hash, at: cache.clock.current, if: pointee.condition, in: scope,
        storing: pointee.target, suffix: pointee.suffix, by: late)
      pointee.failure = pointee.put.failure
      return pointee.put.status
    case .remove:
      return try cache.remove(key, in: scope, by: late)
    case .clear, .flush, .trim, .load, .call:
      return .done
    }
  }

  /// An entry that is not there may have gone because the cache was closed meanwhile.
  private func notFound() throws(Failure) -> Status {
    try pointee.handle.check()
    return .notFound
  }

  private func clear(_ cache: Cache, _ scope: Tiers, _ task: TaskPointer) throws(Failure) {
    let total =
      task.extras.pointee.progress == nil ? 0 : (try? cache.count(in: scope)) ?? 0
    _ = report(task, 0, total)
    guard let clear = pointee.clear else { throw .closed }
    pointee.clear = nil
    try cache.finish(clear, in: scope)
    _ = report(task, total, total)
  }

  private func trim(
    _ cache: Cache, _ scope: Tiers, _ task: TaskPointer
  ) throws(Failure) -> Status {
    var isOff = false
    try cache.trim(pointee.trim, in: scope, removed: &pointee.removed) { done, total in
      if isAsked(task) { isOff = true }
      return !isOff && report(task, done, total)
    }
    return isOff ? .cancelled : .done
  }

  /// False: the host wants no more.
  private func report(_ task: TaskPointer, _ done: UInt64, _ total: UInt64) -> Bool {
    guard task.hasExtras, let progress = task.extras.pointee.progress else { return true }
    return ThreadState.within(pointee.cache.toOpaque()) {
      progress(task.pointee.context, done, total)
    } == 0
  }

  /// Before the work: `other`, of the same kind and identifier, is done with this one; of two
  /// trims the stronger one is done. After the work: this one gets the result of the other.
  func merge(_ other: UnsafeMutablePointer<AsyncOperation>) {
    if other.pointee.isDone {
      pointee.removed = other.pointee.removed
      pointee.failure = other.pointee.failure
    } else if pointee.kind == .trim {
      pointee.trim = pointee.trim.stronger(other.pointee.trim)
    }
  }
}

extension TrimSpec {
  /// The one of two of the same kind that removes more.
  fileprivate func stronger(_ other: TrimSpec) -> TrimSpec {
    var result = self
    switch kind {
    case .writtenBefore, .accessedBefore: result.time = max(time, other.time)
    case .olderThan, .idleFor: result.time = min(time, other.time)
    default: result.amount = min(amount, other.amount)
    }
    return result
  }
}
