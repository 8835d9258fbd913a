import Synchronization

/// Calls as tasks: what is done at the submission, and what the task does later.
extension Cache {
  /// The outcome of a submission.
  enum Submitted {
    case task(TaskPointer)
    /// Done at once; `end` it when it has been told.
    case done(TaskPointer)
    case refused(Status)
  }

  /// Submits an operation on a key. `block` is the entry of a put, and `operation` its number for
  /// the host if it has a condition. `mayFinishNow`: if it can be done at once, it is, and there
  /// will be no completion.
  func submit(
    _ kind: AsyncOperation.Kind, _ key: Bytes, _ block: consuming Block?,
    storing target: WritePolicy = .through, suffix: FileSuffix? = nil,
    if condition: WriteCondition = .always, as operation: UInt8? = nil, load: LoadWork? = nil,
    through handle: Handle, _ spec: inout TaskSpec, mayFinishNow: Bool
  ) throws(Failure) -> Submitted {
    let isWrite = kind == .put || kind == .remove
    let isQuick = mayFinishNow || (spec.port != nil && (kind == .get || kind == .load))
    let task = try makeTask(
      kind, key, operation ?? kind.rawValue, writes: isWrite, through: handle, &spec)
    let made = AsyncOperation.of(task)
    let hash = made.pointee.hash
    made.pointee.block = block?.leak()
    made.pointee.target = target
    made.pointee.suffix = suffix
    made.pointee.condition = condition
    made.pointee.load = load
    if isQuick && spec.group == nil
      && isImmediate(kind, hash, in: handle.scope, mayWrite: mayFinishNow),
      let status = made.runAtOnce(self)
    {
      task.pointee.status = status.code
      if mayFinishNow { return .done(task) }
      task.finishWork()
      return try hand(task) { (task) throws(Failure) in
        try tasks.submitEnded(task, spec)
      }
    }
    if isWrite { reserve(task, spec) }
    return try hand(task) { (task) throws(Failure) in try tasks.submit(task, spec) }
  }

  /// The task of an operation on a key, or of a call. `key`: nil, if a call is about no key or
  /// about several. `operation`: its number for the host. `writes`: a close carries it out.
  @inline(never)
  func makeTask(
    _ kind: AsyncOperation.Kind, _ key: Bytes?, _ operation: UInt8, writes: Bool,
    through handle: Handle, _ spec: inout TaskSpec
  ) throws(Failure) -> TaskPointer {
    try handle.check()
    guard spec.identifier.count == 0 else {
      throw Failure(.unsupported, "only an operation on the whole cache takes an identifier")
    }
    var hash: UInt64 = 0
    if let key {
      hash = memory.hash(key)
      spec.keyHash = Cache.keyHash(hash)
      if writes && spec.group != nil {
        spec.starting = { $0!.assumingMemoryBound(to: AsyncOperation.self).reserve() }
      }
    }
    spec.mustRun = writes
    spec.owner = handle.opening.tasks
    spec.operation = operation
    return try AsyncOperation.makeTask(
      kind, handle, of: self, key: key ?? Bytes(start: nil, count: 0), hash: hash, spec)
  }

  /// A write counts from its submission, or from the start of its group (see `makeTask`).
  func reserve(_ task: TaskPointer, _ spec: borrowing TaskSpec) {
    if spec.group == nil { AsyncOperation.of(task).reserve() }
  }

  /// `TaskSpec.keyHash` of a key with this hash.
  private static func keyHash(_ hash: UInt64) -> UInt64 { hash == 0 ? 1 : hash }

  /// Frees the task where it was not taken.
  func hand(
    _ task: TaskPointer, _ submit: (TaskPointer) throws(Failure) -> Status
  ) throws(Failure) -> Submitted {
    do throws(Failure) {
      let status = try submit(task)
      if status == .done { return .task(task) }
      task.end()
      return .refused(status)
    } catch {
      task.end()
      throw error
    }
  }

  /// Whether an operation may need no waiting and no order: a read that memory answers, a write
  /// where memory is all there is, of a key that no task is about.
  private func isImmediate(
    _ kind: AsyncOperation.Kind, _ hash: UInt64, in scope: Tiers, mayWrite: Bool
  ) -> Bool {
    let isWrite = kind == .put || kind == .remove
    guard scope != .disk, !isWrite || (storage == nil && mayWrite) else { return false }
    // Reads of one key may pass each other; a read may not pass a write.
    guard isWrite || order.isReserved(hash) else { return true }
    return !tasks.hasTask(ofKey: Cache.keyHash(hash))
  }

  /// Submits an operation on the whole cache, or on one tier.
  func submit(
    _ kind: AsyncOperation.Kind, trim: TrimSpec = TrimSpec(kind: .expired),
    through handle: Handle, _ spec: inout TaskSpec
  ) throws(Failure) -> Submitted {
    try handle.check()
    let scope = handle.scope
    spec.owner = handle.opening.tasks
    spec.operation = kind.rawValue
    spec.mustRun = kind != .trim
    let isClear = kind == .clear
    if isClear {
      guard spec.group == nil, spec.identifier.count == 0 else {
        throw Failure(.unsupported, "a clear takes no group and no identifier")
      }
      spec.isIrrevocable = true
    }
    // Operations that run as one are of one cache, and differ only in how much they do. The cache's
    // address is a multiple of 16, and below 2^57.
    spec.identifierSalt = UInt64(UInt(bitPattern: identity)) << 7
      | UInt64(kind.rawValue) << 6 | UInt64(trim.kind.rawValue) << 2 | UInt64(scope.rawValue)
    spec.merge = { into, from in
      into!.assumingMemoryBound(to: AsyncOperation.self)
        .merge(from!.assumingMemoryBound(to: AsyncOperation.self))
    }
    let task = try AsyncOperation.makeTask(
      kind, handle, of: self, key: Bytes(start: nil, count: 0), hash: 0, spec)
    let operation = AsyncOperation.of(task)
    operation.pointee.trim = trim
    guard isClear else {
      return try hand(task) { (task) throws(Failure) in try tasks.submit(task, spec) }
    }
    // Once the queue has the task, which cannot run before it is started.
    spec.isHeld = true
    return try hand(task) { (task) throws(Failure) in
      let status = try tasks.submit(task, spec)
      guard status == .done else { return status }
      // Nil if a close has ended the store meanwhile, after its deadline: the task fails.
      operation.pointee.clear = try? submitClear(in: scope, isTask: true)
      tasks.startHeld(task)
      return status
    }
  }
}
