import CSystem
import Synchronization

/// Reads: what is queued, then the manifest, then the content file.
extension DiskTier {
  func get(_ key: Bytes, at moment: Moment, isAccess: Bool) throws(Failure) -> Block? {
    let block = try find(key, at: moment)
    guard isAccess else { return block }
    if block == nil {
      counters.misses.add()
    } else {
      counters.hits.add()
      accesses.note(key, at: moment.time)
    }
    return block
  }

  /// A few rounds, as a row may be replaced between its reading and that of its file.
  private static let mostRounds = 16

  private func find(_ key: Bytes, at moment: Moment) throws(Failure) -> Block? {
    var times: Record?
    var barred: UInt64?
    if queue.isOverlaid {
      var view = queue.look(up: key)
      if view.isGone { return nil }
      if let block = view.block.take() { return try visible(block, view.times, at: moment) }
      times = view.times
      barred = view.barred
    }
    var lastID: Int64 = 0
    for _ in 0..<DiskTier.mostRounds {
      var block: Block?
      var directory: Directory?
      guard
        let row = try read(
          key, times, barred, at: moment, wantsBlock: true, into: &block, from: &directory)
      else { return nil }
      // Without a block: its file is not there, or cannot be the one that the row means.
      if row.isSound, let found = block.take(), let directory {
        var isWhole = true
        if let name = row.file {
          isWhole =
            try ContentFiles.read(name, into: found.unowned.value, in: directory) == .whole
        }
        if isWhole && Checksum.xxh64(Bytes(found.unowned.value)) == row.record.checksum {
          return found
        }
      }
      // A file that has gone may have been replaced together with its row: only if the same
      // row is there still, the entry is damaged.
      if row.file == nil || row.id == lastID || !row.isSound {
        noteDamage(key, row)
        return nil
      }
      lastID = row.id
    }
    return nil
  }

  func info(_ key: Bytes, at moment: Moment) throws(Failure) -> Record? {
    var times: Record?
    var barred: UInt64?
    if queue.isOverlaid {
      var view = queue.look(up: key)
      if view.isGone { return nil }
      if let block = view.block.take() {
        guard let found = try visible(block, view.times, at: moment) else { return nil }
        var record = found.unowned.record
        record.accessed = max(record.accessed, accesses.latest(key))
        return record
      }
      times = view.times
      barred = view.barred
    }
    var block: Block?
    var directory: Directory?
    guard
      let row = try read(
        key, times, barred, at: moment, wantsBlock: false, into: &block, from: &directory)
    else { return nil }
    guard row.isSound else {
      noteDamage(key, row)
      return nil
    }
    var record = row.record
    record.accessed = max(record.accessed, accesses.latest(key))
    return record
  }

  func noteAccess(_ key: Bytes, at time: Int64) { accesses.note(key, at: time) }

  /// A queued block, with the times of a touch that is queued after it; nil if it has expired.
  private func visible(
    _ block: consuming Block, _ times: Record?, at moment: Moment
  ) throws(Failure) -> Block? {
    let entry = block.unowned
    var record = entry.record
    if let times { record.takeTimes(of: times) }
    let ages = self.ages
    if record.mayExpire(under: ages), isExpired(record, entry.key, at: moment.time) {
      return nil
    }
    guard times != nil else { return block }
    return try Block.copying(
      key: entry.key, value: Bytes(entry.value), extended: Bytes(entry.extendedData),
      record: record)
  }

  /// The row of a key, if a reader may see it: of this generation, not barred, not expired, of a
  /// codec that is here. Its record has the times that it is to have. Nil also if the tier is
  /// down.
  private func read(
    _ key: Bytes, _ times: Record?, _ barred: UInt64?, at moment: Moment, wantsBlock: Bool,
    into block: inout Block?, from directory: inout Directory?
  ) throws(Failure) -> Row? {
    guard isUp, isSameManifest else { return nil }
    // Before the row is read: rows only get newer.
    let generation = self.generation.load(ordering: .acquiring)
    var isVisible = false
    var source: Directory?
    do throws(Failure) {
      let row = try readers.withConnection(in: { placeIfUp }) {
        (reader) throws(Failure) -> Row? in
        source = reader.directory
        return try reader.find(key, into: &block) { (row) throws(Failure) in
          if let times { row.record.takeTimes(of: times) }
          if let barred, row.record.version <= barred { return false }
          guard row.generation >= generation, row.codec == 0 else { return false }
          if row.record.mayExpire(under: self.ages),
            self.isExpired(row.record, key, at: moment.time)
          {
            return false
          }
          isVisible = true
          return wantsBlock
        }
      }
      directory = source
      guard let found = row, let row = found else { return nil }
      if isVisible { return row }
      // An impossible row is told of, unless it has been already.
      if let barred, row.record.version <= barred { return nil }
      return row.isSound ? nil : row
    } catch {
      note(error)
      if error.status == .corrupt || !isUp { return nil }
      // To a reader a connection that cannot be opened is a failed read.
      throw error.status == .badDirectory ? error.with(.io, error.words) : error
    }
  }

  private func noteDamage(_ key: Bytes, _ row: Row) {
    counters.damaged.add()
    queue.barDamaged(key, version: row.record.version)
    foundDamage.store(true, ordering: .relaxed)
  }

  var owesRemovals: Bool { foundDamage.load(ordering: .relaxed) }

  func settle() {
    guard foundDamage.exchange(false, ordering: .relaxed) else { return }
    // Every transaction removes what is barred; what cannot be is tried again later.
    let barrier = QueuedWrite()
    queue.submit(barrier)
    while queue.waitOrLead(for: barrier) { lead() }
  }

  /// A read has failed.
  func note(_ failure: Failure) {
    counters.failures.add()
    if failure.status == .corrupt {
      counters.damaged.add()
      goDown(failure)
    }
  }

  // MARK: keys

  func keys(
    after key: Bytes?, limit: Int, at moment: Moment, visit: (Bytes) -> Void
  ) throws(Failure) -> Int {
    var found = KeyList()
    var count = 0
    // Without a single key of a page of rows, the caller would not know where to go on.
    var from = KeyList()
    try from.append(key ?? Bytes(start: nil, count: 0), 0)
    while count == 0 && isUp {
      let generation = self.generation.load(ordering: .acquiring)
      let ages = self.ages
      var rows = 0
      var last = KeyList()
      do throws(Failure) {
        _ = try readers.withConnection(in: { placeIfUp }) { (reader) throws(Failure) in
          try reader.list(after: from.first!, limit: max(1, limit)) { (key, row) throws(Failure) in
            rows += 1
            last.removeAll()
            try last.append(key, 0)
            guard row.generation >= generation else { return }
            if row.record.mayExpire(under: ages),
              self.isExpired(row.record, key, at: moment.time)
            {
              return
            }
            // No key of ours is longer, or empty.
            guard key.count > 0 && key.count <= Row.longestKey else { return }
            try found.append(key, 0)
            count += 1
          }
        }
      } catch {
        note(error)
        if error.status == .corrupt || !isUp { return 0 }
        throw error
      }
      if rows == 0 { break }
      swap(&from, &last)
    }
    found.forEach { key, _ in visit(key) }
    return count
  }
}

extension Record {
  /// As a touch sets them.
  fileprivate mutating func takeTimes(of other: Record) {
    created = other.created
    accessed = max(other.accessed, other.created)
    expires = other.expires
    timeToIdle = other.timeToIdle
  }
}
