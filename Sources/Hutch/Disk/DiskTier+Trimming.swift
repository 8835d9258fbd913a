import Synchronization

/// The primitives of trims (see StorageTrim): rows are looked for by a connection that reads, and
/// removed in short transactions, between which waiting writers go first. No slice stops a read.
extension DiskTier {
  private static let rowsInSlice = 128
  /// The number of rows that a sample reads for one that it gives up.
  private static let rowsInSample: Int64 = 16

  func occupancy() throws(Failure) -> Occupancy {
    try committer.withTurn { () throws(Failure) in
      guard isUp, let manifest = committer.manifest else { throw downFailure }
      return manifest.meta.occupancy
    }
  }

  // MARK: slices

  /// One transaction of removals. Returns the number of entries that it has deleted.
  func slice(
    at moment: Moment, _ body: (inout Transaction) throws(Failure) -> Void
  ) throws(Failure) -> UInt64 {
    letWritersPast()
    defer { service.tell(observer) }
    var gone: Int64 = 0
    do throws(Failure) {
      try committer.withTurn { () throws(Failure) in
        try committer.checkService()
        committer.latestTime = moment.time
        try committer.transact { (transaction: inout Transaction) throws(Failure) in
          let before = transaction.meta.count
          try body(&transaction)
          gone = before - transaction.meta.count
        }
        _ = content.empty(64, in: place)
      }
    } catch {
      counters.failures.add()
      throw error
    }
    return UInt64(max(0, gone))
  }

  /// A thread that takes a lock again at once gets it before the threads that wait. So the queue
  /// decides: the writes submitted before this call are committed when it returns.
  private func letWritersPast() {
    if !queue.isEmpty { _ = passQueue() }
  }

  // MARK: removals of what a walk has found

  /// A row that is written or touched gets another id.
  func remove(
    _ victims: borrowing GrowingArray<Int64>, _ range: Range<Int>, to goal: TrimGoal?,
    at moment: Moment, if isWanted: (Int, Record) -> Bool
  ) throws(Failure) -> TrimSlice {
    var result = TrimSlice(hasMore: true)
    var ids = GrowingArray<Int64>()
    for i in range { try ids.append(victims[i]) }
    result.removed = try slice(at: moment) { (transaction: inout Transaction) throws(Failure) in
      result.hasMore = true
      let (now, ages) = (transaction.now, transaction.ages.strict)
      for i in 0..<ids.count {
        result.hasMore = (goal?.excess(of: transaction.meta.occupancy) ?? 1) > 0
        if !result.hasMore { return }
        _ = try transaction.drop(id: ids[i]) { record, _ in
          guard isWanted(range.lowerBound + i, record) else { return nil }
          return record.isExpired(at: now, under: ages) ? .expired : .evicted
        }
      }
    }
    return result
  }

  // MARK: removals without a walk

  /// By the order of ids and the index of ends, as maintenance does. An entry that was idle for too
  /// long is in neither: for a goal it is not worth a walk.
  func removeExpired(to goal: TrimGoal?, at moment: Moment) throws(Failure) -> TrimSlice {
    var result = TrimSlice()
    result.removed = try slice(at: moment) { (transaction: inout Transaction) throws(Failure) in
      guard let goal else {
        let done = try self.committer.sweeper.sweepExpired(&transaction, DiskTier.rowsInSlice)
        result.hasMore = done >= DiskTier.rowsInSlice || committer.sweeper.isBehind
        result.mustWalk = transaction.ages.timeToIdle != 0 || transaction.meta.mayIdle
        return
      }
      var done = 0
      while done < DiskTier.rowsInSlice && goal.excess(of: transaction.meta.occupancy) > 0 {
        guard try self.committer.sweeper.sweepExpired(&transaction, 1) > 0 else { break }
        done += 1
      }
      result.hasMore = done == DiskTier.rowsInSlice
    }
    return result
  }

  /// Evicts by samples if few entries are to go. Nil: so many are to go that a look at every row
  /// costs less.
  func makeRoom(to goal: TrimGoal, at moment: Moment) throws(Failure) -> TrimSlice? {
    let all = try occupancy()
    let sum = Int64(clamping: goal.countsEntries ? all.count : all.charge)
    if goal.excess(of: all) > sum / DiskTier.rowsInSample { return nil }
    var result = TrimSlice()
    result.removed = try slice(at: moment) { (transaction: inout Transaction) throws(Failure) in
      for _ in 0..<DiskTier.rowsInSlice {
        guard goal.excess(of: transaction.meta.occupancy) > 0,
          try self.committer.evictor.evict(
            &transaction, &self.committer.sweeper, sparing: transaction.manifest.lastID)
        else { return }
      }
      result.hasMore = true
    }
    return result
  }

  /// Rows that a clear has left, removed files, the log.
  func reclaim(to goal: TrimGoal, at moment: Moment) throws(Failure) -> Reclaimed {
    guard isUp else { throw downFailure }
    guard counters.cost.load(ordering: .relaxed) > goal.amount else { return .enough }
    var result = Reclaimed.nothing
    _ = try slice(at: moment) { (transaction: inout Transaction) throws(Failure) in
      if try self.committer.sweeper.purge(&transaction, DiskTier.rowsInSlice) > 0 { result = .some }
    }
    committer.withTurn {
      if content.empty(64, in: place) { result = .some }
      guard isUp, let manifest = committer.manifest else { return }
      if result == .nothing && manifest.log > 0 {
        committer.checkpoint(manifest, .truncating)
        // A reader that is in the way is gone in a moment.
        if isUp && manifest.log > 0 { result = .blocked }
      }
      if isUp { committer.publish(manifest) }
    }
    if result == .nothing && counters.cost.load(ordering: .relaxed) <= goal.amount {
      return .enough
    }
    return result
  }
}

extension Meta {
  fileprivate var occupancy: Occupancy {
    Occupancy(count: UInt64(max(0, count)), charge: UInt64(max(0, charges)))
  }
}
