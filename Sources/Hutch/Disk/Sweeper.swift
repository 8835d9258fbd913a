import CSystem

/// Removes rows that have expired, and rows that a clear has left, within transactions. Used
/// under the tier's writer lock.
///
/// An own expiry is found by its index. The rows that live by the tier's time to live are found in
/// the order of ids, which is that of `created`; so are dead rows, since generations never fall
/// along the ids. Entries out of that order, and those that were idle for too long, are
/// IdleSearch's.
struct Sweeper {
  /// Rows up to this id have an expiry of their own, or are dead: the sweep of those that live by
  /// the tier's time to live begins behind them.
  private var ownUpTo: Int64 = 0
  /// The last id of older generations than this one, once it has been looked for.
  private var dead = (generation: Int64(0), upTo: Int64(0))
  /// True if the sweep has more rows to look at before it comes to one that lives.
  private(set) var isBehind = false
  /// Rows before this id may have a `created` in the future; 0: none has.
  private var redateFrom: Int64 = 0

  init() {}

  /// Rows may have a `created` in the future, since the wall clock was set back.
  mutating func noteSetBack() { redateFrom = Int64.max }

  /// A transaction was not committed: the rows that it removed are there again.
  mutating func noteRollback() {
    ownUpTo = 0
    // Of a generation that has not begun.
    dead.generation = 0
  }

  /// Removes up to `most` expired rows. Returns how many.
  @inline(never)
  mutating func sweepExpired(
    _ transaction: inout Transaction, _ most: Int, sparing newest: Int64 = Int64.max
  ) throws(Failure) -> Int {
    let done = try sweepOwn(&transaction, most, newest)
    return done < most ? try done + sweepAged(&transaction, most - done, newest) : done
  }

  /// Removes expired rows with an expiry of their own.
  private func sweepOwn(
    _ transaction: inout Transaction, _ most: Int, _ newest: Int64
  ) throws(Failure) -> Int {
    var ids = GrowingArray<Int64>()
    try transaction.manifest.ended(at: transaction.now, limit: Int64(most)) {
      (id) throws(Failure) in
      if id <= newest { try ids.append(id) }
    }
    return try expire(ids, &transaction)
  }

  /// Removes expired rows that live by the tier's time to live.
  private mutating func sweepAged(
    _ transaction: inout Transaction, _ most: Int, _ newest: Int64
  ) throws(Failure) -> Int {
    let (now, ages, generation) = (transaction.now, transaction.ages, transaction.meta.generation)
    guard ages.timeToLive != 0 else { return 0 }
    var ended = GrowingArray<Int64>()
    var future = GrowingArray<Int64>()
    // The first that is neither dead nor has an expiry of its own.
    var first: Int64?
    var isStopped = false
    let reached = try transaction.manifest.walk(after: ownUpTo, limit: Int64(most + 512)) {
      (row, _) throws(Failure) in
      if row.id > newest {
        isStopped = true
      } else if row.generation != generation || row.record.expires != 0 {
        return true
      } else if row.record.created > now {
        try future.append(row.id)
        isStopped = future.count == most
      } else if now >= row.record.endOfLife(at: now, under: ages) {
        try ended.append(row.id)
        isStopped = ended.count == most
      } else {
        isStopped = true
      }
      if first == nil { first = row.id }
      return !isStopped
    }
    ownUpTo = first.map { $0 - 1 } ?? reached.last
    isBehind = !isStopped && !reached.isEnd
    let done = try expire(ended, &transaction)
    // A clock that went back: a row created later than now counts as created now, and must not hide
    // the rows behind it.
    if future.count > 0 && future.count == most {
      for i in 0..<future.count { try redate(future[i], &transaction) }
    }
    return done
  }

  /// Removes those of the rows that have expired or are dead. Returns how many.
  private func expire(
    _ ids: borrowing GrowingArray<Int64>, _ transaction: inout Transaction
  ) throws(Failure) -> Int {
    let (now, ages) = (transaction.now, transaction.ages)
    var done = 0
    for i in 0..<ids.count {
      let isGone = try transaction.drop(id: ids[i], takesDead: true) { record, _ in
        record.isExpired(at: now, under: ages) ? .expired : nil
      }
      if isGone { done += 1 }
    }
    return done
  }

  // MARK: rows of older generations

  /// Deletes up to `most` of them. Returns how many.
  @inline(never)
  func purge(_ transaction: inout Transaction, _ most: Int) throws(Failure) -> Int {
    guard transaction.meta.dead > 0 else { return 0 }
    let generation = transaction.meta.generation
    var dead = GrowingArray<Row>()
    _ = try transaction.manifest.walk(after: 0, limit: Int64(most)) { (row, _) throws(Failure) in
      if row.generation < generation { try dead.append(row) }
      return row.generation < generation
    }
    for i in 0..<dead.count { try transaction.delete(dead[i]) }
    if dead.isEmpty {
      // No such row is there: the sum was wrong.
      transaction.meta.dead = 0
      transaction.hasChanged = true
    }
    return dead.count
  }

  /// The id up to which all rows are of older generations.
  mutating func lastDead(_ transaction: borrowing Transaction) throws(Failure) -> Int64 {
    let generation = transaction.meta.generation
    guard transaction.meta.dead > 0 else { return 0 }
    if dead.generation == generation { return dead.upTo }
    var low: Int64 = 0
    var high = transaction.manifest.lastID
    while low < high {
      let middle = low + (high - low) / 2
      var next: Row?
      _ = try transaction.manifest.walk(after: middle, limit: 1) { (row, _) throws(Failure) in
        next = row
        return false
      }
      if let next, next.generation < generation {
        low = next.id
      } else {
        high = middle
      }
    }
    dead = (generation, low)
    return low
  }

  // MARK: a clock that was set back

  /// Sets the times of a row with a `created` in the future as if it was written now.
  @inline(never)
  private func redate(_ id: Int64, _ transaction: inout Transaction) throws(Failure) {
    let now = transaction.now
    var found: Row?
    try transaction.manifest.find(id: id) { (row, _) in found = row }
    guard let row = found, row.record.created > now else { return }
    var record = row.record
    if record.expires != 0 && record.expires != Record.never {
      record.expires = max(
        1, Record.sum(now, Record.difference(record.expires, record.created)))
    }
    record.created = now
    record.accessed = now
    try transaction.manifest.redate(row, record)
    transaction.hasChanged = true
  }

  /// After a reboot with a wall clock that was set back: the newest rows, from the last back to
  /// the first that is not of the future. True if there are more.
  mutating func redateNewest(
    _ transaction: inout Transaction, _ most: Int
  ) throws(Failure) -> Bool {
    guard redateFrom != 0 else { return false }
    let now = transaction.now
    var ids = GrowingArray<Int64>()
    var isPast = false
    let reached = try transaction.manifest.walkBack(before: redateFrom, limit: Int64(most)) {
      (row) throws(Failure) in
      isPast = row.record.created <= now
      if !isPast { try ids.append(row.id) }
      return !isPast
    }
    for i in 0..<ids.count { try redate(ids[i], &transaction) }
    redateFrom = isPast || reached.isEnd ? 0 : reached.last
    return redateFrom != 0
  }
}
