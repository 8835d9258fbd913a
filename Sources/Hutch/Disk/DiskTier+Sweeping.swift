import CSystem

/// How far the sweeps have come. Under the tier's writer lock.
struct SweepState {
  /// Rows up to this id have an expiry of their own, or are dead: the sweep of those that live
  /// by the tier's time to live begins behind them.
  var ownUpTo: Int64 = 0
  /// The last id of older generations than this one, once it has been looked for.
  var dead = (generation: Int64(0), upTo: Int64(0))
  /// Whether it has not come to their end yet.
  var isBehind = false
  /// Rows before this id may have a `created` in the future; 0: none has.
  var redateFrom: Int64 = 0
  /// CLOCK_MONOTONIC of the last time that access times were written out.
  var lastFlush = Clock.read(CLOCK_MONOTONIC)
  var isFlushing = false
  /// Whether the first maintenance of an opening has been.
  var hasBegun = false

  init() {}
}

/// What time has ended, and what a clear has left.
extension DiskTier {
  /// Removes up to `most` rows whose life has ended, within a transaction. Returns how many.
  func sweepExpired(
    _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes, _ most: Int,
    sparing newest: Int64 = Int64.max
  ) throws(Failure) -> Int {
    var done = try sweepOwn(manifest, &meta, changes, most, newest)
    if done < most { done += try sweepAged(manifest, &meta, changes, most - done, newest) }
    return done
  }

  /// Those with an expiry of their own, by the index.
  private func sweepOwn(
    _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes, _ most: Int, _ newest: Int64
  ) throws(Failure) -> Int {
    var ids = GrowingArray<Int64>()
    try manifest.ended(at: latestTime, limit: Int64(most)) { (id) throws(Failure) in
      if id <= newest { try ids.append(id) }
    }
    var done = 0
    for i in 0..<ids.count where try expire(ids[i], manifest, &meta, changes) { done += 1 }
    return done
  }

  /// Those that live by the tier's time to live: the oldest ids, as ids are in the order of
  /// `created`.
  private func sweepAged(
    _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes, _ most: Int, _ newest: Int64
  ) throws(Failure) -> Int {
    guard ages.timeToLive != 0 else { return 0 }
    let now = latestTime
    let ages = self.ages
    let generation = meta.generation
    var ended = GrowingArray<Int64>()
    var future = GrowingArray<Int64>()
    // The first that is neither dead nor has an expiry of its own.
    var first: Int64?
    var isStopped = false
    let reached = try manifest.walk(after: sweep.ownUpTo, limit: Int64(most + 512)) {
      (found, _) throws(Failure) in
      if found.id > newest {
        isStopped = true
      } else if found.generation != generation || found.record.expires != 0 {
        return true
      } else if found.record.created > now {
        try future.append(found.id)
        isStopped = future.count == most
      } else if now >= found.record.endOfLife(at: now, under: ages) {
        try ended.append(found.id)
        isStopped = ended.count == most
      } else {
        isStopped = true
      }
      if first == nil { first = found.id }
      return !isStopped
    }
    sweep.ownUpTo = first.map { $0 - 1 } ?? reached.last
    sweep.isBehind = !isStopped && !reached.isEnd
    var done = 0
    for i in 0..<ended.count where try expire(ended[i], manifest, &meta, changes) { done += 1 }
    // A clock that went back: what was created later than now counts as created now, and
    // must not stand in the way of what is behind it.
    if future.count > 0 && future.count == most {
      for i in 0..<future.count { try redate(future[i], manifest, changes) }
    }
    return done
  }

  /// Removes a row whose time has come. False: it has not, or the row has gone.
  func expire(
    _ id: Int64, _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes
  ) throws(Failure) -> Bool {
    let generation = meta.generation
    var ended: Row?
    _ = try manifest.find(id: id) { (found, key) throws(Failure) in
      if found.generation == generation {
        guard self.isExpired(found.record, key, at: self.latestTime) else { return }
        try changes.drop(key, found.record.version, .expired)
      }
      ended = found
    }
    guard let ended else { return false }
    try delete(ended, manifest, &meta, changes)
    return true
  }

  /// Deletes up to `most` rows of older generations, which have the lowest ids. Returns how
  /// many.
  func purge(
    _ manifest: Manifest, _ meta: inout Meta, _ changes: Changes, _ most: Int
  ) throws(Failure) -> Int {
    guard meta.dead > 0 else { return 0 }
    let generation = meta.generation
    var dead = GrowingArray<Row>()
    _ = try manifest.walk(after: 0, limit: Int64(most)) { (found, _) throws(Failure) in
      if found.generation < generation { try dead.append(found) }
      return found.generation < generation
    }
    for i in 0..<dead.count { try delete(dead[i], manifest, &meta, changes) }
    return dead.count
  }

  /// Sets the times of a row with a `created` in the future as if it was written now.
  private func redate(_ id: Int64, _ manifest: Manifest, _ changes: Changes) throws(Failure) {
    let now = latestTime
    var row: Row?
    _ = try manifest.find(id: id) { (found, _) throws(Failure) in row = found }
    guard let row, row.record.created > now else { return }
    var record = row.record
    if record.expires != 0 && record.expires != Record.never {
      record.expires = max(
        1, Record.sum(now, Record.difference(record.expires, record.created)))
    }
    record.created = now
    record.accessed = now
    try manifest.redate(row, record)
    changes.isAny = true
  }

  /// After a reboot with a wall clock that was set back: the newest rows, from the last back to
  /// the first that is not of the future. True if there are more.
  func redateNewest(_ manifest: Manifest, _ changes: Changes, _ most: Int) throws(Failure) -> Bool {
    guard sweep.redateFrom != 0 else { return false }
    let now = latestTime
    var ids = GrowingArray<Int64>()
    var isPast = false
    let reached = try manifest.walkBack(before: sweep.redateFrom, limit: Int64(most)) {
      (found) throws(Failure) in
      isPast = found.record.created <= now
      if !isPast { try ids.append(found.id) }
      return !isPast
    }
    for i in 0..<ids.count { try redate(ids[i], manifest, changes) }
    sweep.redateFrom = isPast || reached.isEnd ? 0 : reached.last
    return sweep.redateFrom != 0
  }
}
