import CSystem

/// A call that has no operation of its own among the tasks (`AsyncOperation.Kind`): the function
/// that makes it on a worker, the copies of its arguments, and its results. One task has it; what
/// the function leaves here is valid until the task is freed.
final class AsyncCall {
  /// Makes the call. `key`: the task's; empty: the call is about no key.
  typealias Body = (
    _ operation: UnsafeMutablePointer<AsyncOperation>, _ cache: Cache, _ key: Bytes,
    _ task: TaskPointer
  ) throws(Failure) -> Status

  fileprivate let body: Body
  private let arguments: ArgumentCopies

  // The results, beside those of the operation.
  var batch: Batch?
  /// A struct of the C boundary.
  var info: UnsafeRawPointer?
  var number: Int64 = 0
  /// Ends with NUL.
  var path: UnsafePointer<CChar>?

  @inline(never)
  init(_ arguments: ArgumentCopies, _ body: @escaping Body) {
    self.arguments = arguments
    self.body = body
  }

  /// Memory for a result.
  func room(_ size: Int) throws(Failure) -> UnsafeMutableRawPointer { try arguments.room(size) }
}

extension UnsafeMutablePointer where Pointee == AsyncOperation {
  func make(
    _ call: AsyncCall, _ cache: Cache, _ key: Bytes, _ task: TaskPointer
  ) throws(Failure) -> Status {
    let status = try call.body(self, cache, key, task)
    // Of a read a close may be the reason.
    if status == .notFound && !task.has(.mustRun) { try pointee.handle.check() }
    return status
  }

  /// True if every submission of the task was cancelled.
  func isAsked(_ task: TaskPointer) -> Bool {
    task.pointee.queue._withUnsafeGuaranteedRef { $0.status(of: task).isAsked }
  }
}

extension Cache {
  /// Submits a call. `operation`: its number for the host. `key`: nil, if it is about no key or
  /// about several. `writes`: a close carries it out.
  func submit(
    _ call: AsyncCall, _ operation: UInt8, _ key: Bytes?, writes: Bool, through handle: Handle,
    _ spec: inout TaskSpec
  ) throws(Failure) -> Submitted {
    let task = try makeTask(.call, key, operation, writes: writes, through: handle, &spec)
    let made = AsyncOperation.of(task)
    made.pointee.call = call
    if writes && key != nil { reserve(task, spec) }
    return try hand(task) { (task) throws(Failure) in try tasks.submit(task, spec) }
  }
}

/// Copies of what a caller has passed by pointer, for a call that is made later.
final class ArgumentCopies {
  private var pieces = GrowingArray<UnsafeMutableRawPointer>()

  deinit { while let piece = pieces.popLast() { free(piece) } }

  /// Memory that lives as long as this.
  func room(_ size: Int) throws(Failure) -> UnsafeMutableRawPointer {
    let piece = try Allocation.bytes(max(size, 1))
    do throws(Failure) {
      try pieces.append(piece)
    } catch {
      free(piece)
      throw error
    }
    return piece
  }

  func copy(_ bytes: Bytes) throws(Failure) -> Bytes {
    let piece = try room(bytes.count)
    if let start = bytes.baseAddress { memcpy(piece, start, bytes.count) }
    return Bytes(start: piece, count: bytes.count)
  }

  /// A path, or another text that ends with NUL.
  func copy(_ text: UnsafePointer<CChar>) throws(Failure) -> UnsafePointer<CChar> {
    let size = strlen(text) + 1
    let copied = try copy(Bytes(start: text, count: size))
    return copied.baseAddress!.assumingMemoryBound(to: CChar.self)
  }

  func copy(_ spec: Cache.PutSpec) throws(Failure) -> Cache.PutSpec {
    var copied = spec
    if spec.extended.count > 0 {
      copied.extended = Extended(try copy(spec.extended.data), tag: try copy(spec.extended.tag))
    }
    return copied
  }

  /// All in one piece of memory.
  func copy(_ many: ManyBytes) throws(Failure) -> ManyBytes {
    var size = many.count * (MemoryLayout<UnsafeRawPointer>.stride + MemoryLayout<Int>.stride)
    for index in 0..<many.count {
      let (sum, overflow) = size.addingReportingOverflow(many[index].count)
      guard !overflow else { throw .noMemory }
      size = sum
    }
    let piece = try room(size)
    let pointers = piece.bindMemory(to: UnsafeRawPointer?.self, capacity: many.count)
    let sizes = UnsafeMutableRawPointer(pointers + many.count)
      .bindMemory(to: Int.self, capacity: many.count)
    var place = UnsafeMutableRawPointer(sizes + many.count)
    for index in 0..<many.count {
      let bytes = many[index]
      if let start = bytes.baseAddress { memcpy(place, start, bytes.count) }
      pointers[index] = UnsafeRawPointer(place)
      sizes[index] = bytes.count
      place += bytes.count
    }
    return ManyBytes(
      pointers: UnsafePointer(pointers), sizes: UnsafePointer(sizes), count: many.count)
  }
}
