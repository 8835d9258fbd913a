/// Many keys in one call: what the caller knows beforehand goes to the store together. Each key
/// is treated by itself all the same, as if it had come alone.
extension Cache {
  /// Keys, or values, by index.
  struct ManyBytes {
    let pointers: UnsafePointer<UnsafeRawPointer?>?
    let sizes: UnsafePointer<Int>?
    let count: Int

    subscript(_ index: Int) -> Bytes {
      Bytes(start: pointers.unsafelyUnwrapped[index], count: sizes.unsafelyUnwrapped[index])
    }
  }

  /// So many writes are submitted before the first of them is awaited. The store makes
  /// transactions of them as it sees fit; what waits is held in memory.
  private static let writesTogether = 128

  func get(_ keys: ManyBytes, in scope: Tiers) throws(Failure) -> Batch {
    let batch = try Batch.make(.values, keys.count, for: self)
    let moment = clock.moment()
    var missing = GrowingArray<Missing>()
    for index in 0..<keys.count {
      if scope != .disk && index % MemoryTier.fetchedTogether == 0 {
        memory.fetch(keys.count - index) { keys[index + $0] }
      }
      batch.add(.notFound)
      let key = keys[index]
      let hash = memory.hash(key)
      if scope != .disk, let block = memory.get(key, hash, at: moment) {
        batch.set(index, block)
      } else if storage != nil, scope != .memory {
        let state = order.stripes.stableState(Stripes.index(of: hash))
        if !order.staged.isEmpty {
          let found = try withStorage { (storage) throws(Failure) -> Block? in
            staged(key, hash, at: moment, isAccess: true, storage)
          }
          if let found {
            batch.set(index, found)
            continue
          }
        }
        try missing.append(
          Missing(index: index, hash: hash, state: state, shared: coherence?.mark(hash)))
      }
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
            promote(found.unowned, place.hash, place.state, place.shared, at: known)
            if writeBack.queue.isDue { writeBack.writeDue(storage) }
          }
          batch.set(place.index, found)
        } else if failure == nil && scope == .whole {
          moved(place, keys[place.index], at: known, to: batch)
        }
      }
    }
    return batch
  }

  /// A key that the store does not have may be in memory by now.
  private func moved(_ place: Missing, _ key: Bytes, at moment: Moment, to batch: Batch) {
    do throws(Failure) {
      if memory.info(key, place.hash, at: moment) != nil {
        // An access, as the first look would have been.
        if let block = memory.get(key, place.hash, at: moment) {
          batch.set(place.index, block)
          return
        }
      }
      var hasChanged = false
      if let shared = place.shared,
        let block = stillInMemory(key, place.hash, shared, at: moment, &hasChanged)
      {
        batch.set(place.index, block)
        return
      }
      let stripe = Stripes.index(of: place.hash)
      if !hasChanged && order.stripes.isSettled(stripe, since: place.state) { return }
      guard let block = try peek(key, in: .whole) else { return }
      storage?.noteAccess(key, place.hash, at: moment.time)
      batch.set(place.index, block)
    } catch {
      batch.set(place.index, error)
    }
  }

  /// A key that memory has not, and the state of its stripe before the store was asked.
  private struct Missing: BitwiseCopyable {
    let index: Int
    let hash: UInt64
    let state: Stripes.State
    /// Of its counter, likewise, where processes share.
    let shared: UInt32?
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
        let moment = clock.moment().read
        var pending: [SubmittedPut] = []
        for index in slice {
          pending.append(
            submit(keys[index], values[index], spec, at: moment, in: scope, to: storage))
        }
        for put in pending { batch.add(finish(put, in: storage, waits: false)) }
        for put in pending { events.awaitDelivery(put.pending) }
        if writeBack.queue.isDue { writeBack.writeDue(storage) }
      }
    }
    return batch
  }

  private func forEachSlice(of count: Int, _ body: (Range<Int>) -> Void) {
    var next = 0
    while next < count {
      let end = min(next + Cache.writesTogether, count)
      body(next..<end)
      next = end
    }
  }

  /// As one of many: what fails at once is in the put.
  private func submit(
    _ key: Bytes, _ value: Bytes, _ spec: PutSpec, at moment: Moment, in scope: Tiers,
    to storage: any Storage
  ) -> SubmittedPut {
    do throws(Failure) {
      let block = try Block.copying(
        key: key, value: value, extended: spec.extended, record: spec.record(at: moment),
        wantsChecksum: true)
      let target = try target(of: spec.writePolicy, in: scope)
      var put = try submit(
        block.unowned, memory.hash(key), as: plan(block.unowned, to: target, spec.suffix, storage),
        at: moment, in: scope, to: storage)
      if put.write != nil { put.block = BlockBox(block) }
      return put
    } catch {
      return SubmittedPut(failed: error)
    }
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
        let moment = clock.moment().read
        var pending: [SubmittedRemoval] = []
        for index in slice {
          pending.append(
            submitRemoval(keys[index], at: moment, in: scope, wantsValue: false, to: storage))
        }
        for place in 0..<pending.count {
          do throws(Failure) {
            batch.add(try finish(&pending[place], in: storage, waits: false) ? .done : .notFound)
          } catch {
            batch.add(error)
          }
        }
        for removal in pending { events.awaitDelivery(removal.pending) }
      }
    }
    return batch
  }
}
