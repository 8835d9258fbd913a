/// Many keys in one call: what the caller knows beforehand goes to the store together. Each key
/// is treated by itself all the same, as if it had come alone.
extension Cache {
  /// So many writes are submitted before the first of them is awaited. The store makes
  /// transactions of them as it sees fit; what waits is held in memory.
  private static let writesTogether = 128

  func get(_ keys: ManyBytes, in scope: Tiers) throws(Failure) -> Batch {
    let batch = try Batch.make(.values, keys.count, for: self)
    batch.addMissing(keys.count)
    let moment = clock.moment()
    var missing = GrowingArray<Missing>()
    var first = 0
    while first < keys.count {
      try look(keys, &first, at: moment, in: scope, &missing, to: batch)
    }
    guard missing.count > 0 else {
      events.deliver()
      return batch
    }
    let known = moment.read
    try withStorage { (storage) throws(Failure) in
      storage.get(missing.count, at: known, key: { (keys[missing[$0].index], missing[$0].hash) }) {
        at, block, failure in
        let place = missing[at]
        var failure = failure
        var block = consume block
        if block.unowned?.isEncoded ?? false, let encoded = block.take() {
          do throws(Failure) {
            block = try values.decoded(encoded.unowned, place.hash, in: storage)
          } catch {
            failure = error
          }
        }
        if let failure { batch.set(place.index, failure) }
        if case .some(let found) = consume block {
          if scope == .whole {
            promote(found.unowned, place.hash, place.round, at: known)
            if writeBack.queue.isDue { writeBack.writeDue(storage) }
          }
          batch.set(place.index, found)
        } else if failure == nil && scope == .whole {
          do throws(Failure) {
            let found = try getAgain(
              keys[place.index], place.hash, at: known, after: place.round, storage)
            if let found { batch.set(place.index, found) }
          } catch {
            batch.set(place.index, error)
          }
        }
      }
    }
    return batch
  }

  /// Looks in memory for the keys of a batch from `first` on, as many as are looked for at once.
  @inline(__always)
  private func look(
    _ keys: ManyBytes, _ first: inout Int, at moment: Moment, in scope: Tiers,
    _ missing: inout GrowingArray<Missing>, to batch: Batch
  ) throws(Failure) {
    var results = FoundRoom(repeating: FoundBlock())
    assert(results.count == MemoryTier.keysAtOnce)
    let count = min(results.count, keys.count &- first)
    try withUnsafeMutablePointer(to: &results) { (results) throws(Failure) in
      let found = FoundBlocks(
        start: UnsafeMutableRawPointer(results).assumingMemoryBound(to: FoundBlock.self),
        count: count)
      if scope == .disk {
        for i in 0..<count { found[i].hash = memory.hash(keys[first &+ i]) }
      } else {
        memory.getMany(keys, first, at: moment, found)
        batch.set(first, found)
      }
      guard storage != nil && scope != .memory else { return }
      for i in 0..<count where found[i].block == nil {
        try lookBelow(keys, first &+ i, found[i].hash, at: moment, &missing, to: batch)
      }
    }
    first &+= count
  }

  /// A key of a batch that memory does not have: its value is in the write-back queue, or
  /// the store is to be asked.
  private func lookBelow(
    _ keys: ManyBytes, _ index: Int, _ hash: UInt64, at moment: Moment,
    _ missing: inout GrowingArray<Missing>, to batch: Batch
  ) throws(Failure) {
    let round = beginRound(hash)
    if !order.staged.isEmpty {
      let found = try withStorage { (storage) throws(Failure) -> Block? in
        staged(keys[index], hash, at: moment, isAccess: true, storage)
      }
      if let found { return batch.set(index, found) }
    }
    try missing.append(Missing(index: index, hash: hash, round: round))
  }

  /// A key that memory has not.
  private struct Missing: BitwiseCopyable {
    let index: Int
    let hash: UInt64
    /// Begun before the store was asked.
    let round: Round
  }

  func info(_ keys: ManyBytes, in scope: Tiers) throws(Failure) -> Batch {
    let batch = try Batch.make(.infos, keys.count, for: self)
    for index in 0..<keys.count {
      do throws(Failure) {
        guard let found = try info(keys[index], in: scope) else {
          batch.add(.notFound)
          continue
        }
        batch.add(found.record, isOnDisk: found.tier == .disk)
      } catch {
        batch.add(error)
      }
    }
    return batch
  }

  func put(
    _ keys: ManyBytes, _ values: ManyBytes, _ spec: PutSpec, in scope: Tiers
  ) throws(Failure) -> Batch {
    let batch = try Batch.make(.puts, keys.count, for: self)
    guard storage != nil else {
      for index in 0..<keys.count {
        do throws(Failure) {
          batch.add(try put(keys[index], values[index], spec, if: .always, in: scope))
        } catch {
          batch.add(error)
        }
      }
      return batch
    }
    try withStorage { (storage) throws(Failure) in
      forEachSlice(of: keys.count) { slice in
        let moment = clock.current
        var pending: [OnePut] = []
        var failure: Failure?
        for index in slice where failure == nil {
          do throws(Failure) {
            pending.append(
              try submit(keys[index], values[index], spec, at: moment, in: scope, to: storage))
          } catch {
            failure = error
          }
        }
        for one in pending {
          finish(&one.put, in: storage, waits: false)
          batch.add(one.put.result)
        }
        // The results are in the order of the keys: the next slice begins behind the failure.
        if let failure { batch.add(failure) }
        for one in pending { events.awaitDelivery(one.put.pending) }
        if writeBack.queue.isDue { writeBack.writeDue(storage) }
        return pending.count + (failure == nil ? 0 : 1)
      }
    }
    return batch
  }

  /// Calls `body` with a slice of the indexes until it has carried out all. It returns of how many
  /// it has: the first ones of the slice.
  private func forEachSlice(of count: Int, _ body: (Range<Int>) -> Int) {
    var next = 0
    while next < count { next += body(next..<min(next + Cache.writesTogether, count)) }
  }

  /// A put that is one of many. It is an object, since an array of such large values copies each of
  /// them several times.
  private final class OnePut {
    private let block: Block
    var put: SubmittedPut

    init(_ block: consuming Block, _ hash: UInt64, _ plan: WritePlan) {
      put = SubmittedPut(block.unowned, hash, plan)
      self.block = block
    }
  }

  private func submit(
    _ key: Bytes, _ value: Bytes, _ spec: PutSpec, at moment: Moment, in scope: Tiers,
    to storage: any Storage
  ) throws(Failure) -> OnePut {
    let target = try target(of: spec.writePolicy, in: scope)
    let block = try spec.block(key, value, at: moment, wantsChecksum: true)
    let entry = block.unowned
    let hash = memory.hash(key)
    let plan = plan(entry, to: target, spec.suffix, storage)
    tellWillAdd(entry, hash, in: plan.tiers)
    let one = OnePut(block, hash, plan)
    try submit(&one.put, at: moment, in: scope, to: storage)
    return one
  }

  func remove(_ keys: ManyBytes, in scope: Tiers) throws(Failure) -> Batch {
    let batch = try Batch.make(.removals, keys.count, for: self)
    guard storage != nil, scope != .memory else {
      let moment = clock.moment()
      for index in 0..<keys.count {
        let key = keys[index]
        do throws(Failure) {
          let removed = try removeFromMemory(key, memory.hash(key), at: moment)
          batch.add(removed == nil ? .notFound : .done)
        } catch {
          batch.add(error)
        }
      }
      return batch
    }
    try withStorage { (storage) throws(Failure) in
      forEachSlice(of: keys.count) { slice in
        let moment = clock.current
        var pending: [SubmittedRemoval] = []
        for index in slice {
          pending.append(
            submitRemoval(keys[index], at: moment, in: scope, wantsValue: false, to: storage))
        }
        for place in 0..<pending.count {
          do throws(Failure) {
            batch.add(try finish(pending[place], in: storage, waits: false) ? .done : .notFound)
          } catch {
            batch.add(error)
          }
        }
        for removal in pending { events.awaitDelivery(removal.pending) }
        return slice.count
      }
    }
    return batch
  }
}
