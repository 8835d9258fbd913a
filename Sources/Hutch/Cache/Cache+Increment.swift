/// Counters.
extension Cache {
  /// Adds to the counter under `key`; the sum goes to `sum`. `late`: the reservation of the write.
  func increment(
    _ key: Bytes, by delta: Int64, initial: Int64, _ spec: PutSpec, in scope: Tiers,
    late: LateWrite? = nil, sum: inout Int64
  ) throws(Failure) -> PutResult {
    let hash = memory.hash(key)
    if let result = incrementInPlace(key, by: delta, hash, spec, sum: &sum) { return result }
    while true {
      // In memory a counter that is there may need no clock.
      let moment = storage == nil ? clock.moment() : clock.current
      var old = initial
      var record = Record()
      var condition = WriteCondition.absent
      var held = try peek(key, hash, at: moment, in: scope)
      let current = held.unowned
      if let current {
        guard current.size == 8 else {
          throw Failure(.wrongType, "the value is not a counter, which has 8 bytes")
        }
        // Eight bytes of text are no counter, and only their writer can tell.
        guard current.extended.data.hasSameBytes(as: spec.extended.data) else {
          throw Failure(.wrongType, "the value is not this counter: its extended data differ")
        }
        old = Int64(littleEndian: current.value.baseAddress!.load(as: Int64.self))
        record = current.record
        condition = .version(record.version)
        record.version = 0
      } else {
        record = spec.record(at: moment.read)
      }
      let (new, overflow) = old.addingReportingOverflow(delta)
      guard !overflow else { throw Failure(.overflow, "the counter's sum does not fit") }
      let block = try withUnsafeBytes(of: new.littleEndian) { (value) throws(Failure) -> Block in
        try Block.copying(
          key: key, value: value,
          extended: current.map { $0.extended } ?? spec.extended,
          record: record, wantsChecksum: storage != nil)
      }
      // A block that its reader holds while it is replaced would be counted as held.
      held = nil
      let result = try put(
        block, hash, at: moment, if: condition, in: scope,
        storing: try target(of: spec.writePolicy, in: scope), suffix: spec.suffix, by: late)
      switch result.status {
      case .exists, .notFound, .conflict: continue
      case .superseded: return result
      default:
        sum = new
        return result
      }
    }
  }

  /// The short path of an increment: the counter is there, and the cache is in memory and has no
  /// listener. Nil: nothing has been done.
  private func incrementInPlace(
    _ key: Bytes, by delta: Int64, _ hash: UInt64, _ spec: PutSpec, sum: inout Int64
  ) -> PutResult? {
    // As in a short put, a load, a task or a clear that is under way needs the long path.
    guard storage == nil, spec.writePolicy == .standard, spec.extended.data.count == 0,
      !events.wantsEntries, !order.isReserved(hash), order.clearing == nil,
      let version = memory.increment(key, by: delta, hash, at: clock.moment(), sum: &sum)
    else { return nil }
    var result = PutResult()
    result.version = version
    result.memory = .stored
    return result
  }
}
