import CSystem
import Synchronization

/// Reads: the queued writes, then the manifest, then the content file.
extension DiskTier {
  func get(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool
  ) throws(Failure) -> Block? {
    var isDamaged = false
    let block = try find(key, hash, at: moment, isDamaged: &isDamaged)
    guard isAccess else { return block }
    if block == nil {
      counters.countMiss()
    } else {
      counters.countHit()
      accesses.note(key, hash, at: moment.time)
    }
    return block
  }

  /// A few rounds, as a row may be replaced between its reading and that of its file.
  static let mostRounds = 16

  /// As `get`, but never an access; tells whether it found the entry damaged.
  func find(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isDamaged: inout Bool
  ) throws(Failure) -> Block? {
    var lastID: Int64 = 0
    for _ in 0..<DiskTier.mostRounds {
      let view = overlay(key, hash, at: moment)
      if view.isGone { return nil }
      if let write = view.write {
        if let block = try block(of: write, view.record, view.touch != nil) { return block }
        // Its file has gone, with its row: something newer is there.
        continue
      }
      var found = FoundEntry()
      guard
        try read(key, view.touch, view.barred, at: moment, wantsBlock: true, into: &found)
      else { return nil }
      // Without a block: the file is not there, or cannot be the one that the row names.
      if found.row.isSound, let block = found.block.take(), let directory = found.directory,
        try fill(block.unowned, found.row, in: directory)
      {
        return block
      }
      // A file that has gone may have been replaced together with its row: only if the same
      // row is there still, the entry is damaged.
      if found.row.file == nil || found.row.id == lastID || !found.row.isSound {
        noteDamage(key, hash, found.row.record.version)
        isDamaged = true
        return nil
      }
      lastID = found.row.id
    }
    return nil
  }

  /// Completes the block of a row with the bytes of the file. False: they are not the row's value.
  private func fill(
    _ entry: UnownedBlock, _ row: Row, in directory: Directory
  ) throws(Failure) -> Bool {
    guard let name = row.file else { return isRight(Bytes(entry.value), row) }
    guard options.checksChecksums else {
      return try ContentFiles.read(name, into: entry.value, in: directory)
    }
    var sum = Checksum.Sum()
    return try ContentFiles.read(name, into: entry.value, &sum, in: directory)
      && sum.value == row.record.checksum
  }

  func isRight(_ stored: Bytes, _ row: Row) -> Bool {
    !options.checksChecksums || Checksum.xxh3(stored) == row.record.checksum
  }

  func info(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Record? {
    while true {
      let rounds = accesses.rounds
      guard var record = try locate(key, hash, at: moment)?.record else { return nil }
      record.accessed = max(record.accessed, accesses.latest(key, hash))
      if accesses.rounds == rounds { return record }
    }
  }

  func tag(
    of key: Bytes, _ hash: UInt64, at moment: Moment, visit: (UInt64, Bytes) -> Void
  ) throws(Failure) {
    for _ in 0..<DiskTier.mostRounds {
      guard let record = try info(key, hash, at: moment) else { return }
      if record.tagSize == 0 { return visit(record.version, Bytes(start: nil, count: 0)) }
      let view = overlay(key, hash, at: moment)
      if let entry = view.write?.entry {
        guard entry.version == record.version else { continue }
        return visit(record.version, entry.extended.tag)
      }
      var isFound = false
      let isUp = try withReader { (reader) throws(Failure) in
        isFound = try reader.tag(of: key, version: record.version) { visit(record.version, $0) }
      }
      if isFound || !isUp { return }
    }
  }

  func isExpired(_ record: Record, _ key: Bytes, at now: Int64) -> Bool {
    accesses.isExpired(record, key, at: now, under: ages, asking: observer)
  }

  func noteAccess(_ key: Bytes, _ hash: UInt64, at time: Int64) {
    accesses.note(key, hash, at: time)
  }

  /// The state of a key in the queue, for reads; nothing, as a rule.
  func overlay(_ key: Bytes, _ hash: UInt64, at moment: Moment) -> WriteQueue.View {
    guard queue.isOverlaid else { return WriteQueue.View() }
    var view = queue.look(up: key, hash)
    if let write = view.write {
      if let record = visible(write, view.touch, at: moment) {
        view.record = record
      } else {
        view.isGone = true
      }
    }
    return view
  }

  /// The record of a put that is queued, with the times of a touch that is queued after it; nil
  /// if it has expired.
  private func visible(
    _ write: QueuedWrite, _ touch: QueuedWrite?, at moment: Moment
  ) -> Record? {
    var record = write.entry!.record
    record.size = write.size
    record.checksum = write.checksum
    if let touch { record.takeTimes(of: touch) }
    if record.mayExpire(under: ages), isExpired(record, write.key, at: moment.time) { return nil }
    return record
  }

  /// The value of a put that is queued; nil if it was in a file alone, which has gone.
  private func block(
    of write: QueuedWrite, _ record: Record, _ isTouched: Bool
  ) throws(Failure) -> Block? {
    let entry = write.entry!
    if write.isInBlock {
      guard isTouched else { return entry.retained() }
      return try Block.copying(
        key: entry.key, value: Bytes(entry.value), extended: entry.extended,
        record: record)
    }
    guard let file = write.file else { return nil }
    let block = try Block.allocate(key: entry.key, record: record)
    let made = block.unowned
    if entry.extendedSize > 0 { made.extendedData.copyMemory(from: Bytes(entry.extendedData)) }
    guard try ContentFiles.read(file.name, into: made.value, in: file.directory),
      Checksum.xxh3(Bytes(made.value)) == file.checksum
    else { return nil }
    return block
  }

  /// Runs `body` with a connection that reads; false: the tier is down.
  @discardableResult
  func withReader(_ body: (ReadConnection) throws(Failure) -> Void) throws(Failure) -> Bool {
    try readers.withConnection(in: { placeIfUp }, at: quietState, body)
  }

  /// The commits of the directory so far, if no other process can add to them.
  private var quietState: UInt64? {
    guard members.mayHaveOthers else { return 0 }
    return options.isMaintained ? shared.quietState : nil
  }

  /// The row of a key, if a reader may see it: of this generation, not barred, not expired, of a
  /// codec that is here. Its record has the times that it is to have. Nil also if the tier is
  /// down.
  func read(
    _ key: Bytes, _ touch: QueuedWrite?, _ barred: UInt64?, at moment: Moment, wantsBlock: Bool,
    into entry: inout FoundEntry
  ) throws(Failure) -> Bool {
    guard isUp, committer.isSameManifest else { return false }
    let filter = RowFilter(self, at: moment)
    var isThere = false
    var isVisible = false
    do throws(Failure) {
      try withReader { (reader) throws(Failure) in
        func judge(_ row: inout Row) {
          if let touch { row.record.takeTimes(of: touch) }
          if let barred, row.record.version <= barred { return }
          isVisible = self.options.knows(row.record.codec) && filter.shows(row, key)
        }
        guard wantsBlock else {
          isThere = try reader.look(key, into: &entry) { (row) throws(Failure) in judge(&row) }
          return
        }
        isThere = try reader.find(key, into: &entry) { (row) throws(Failure) in
          judge(&row)
          return isVisible
        }
      }
      guard isThere else { return false }
      if isVisible { return true }
      if !filter.isCurrent {
        return try read(key, touch, barred, at: moment, wantsBlock: wantsBlock, into: &entry)
      }
      // An impossible row is told of, unless it has been already.
      if let barred, entry.row.record.version <= barred { return false }
      return !entry.row.isSound
    } catch {
      note(error)
      if error.status == .corrupt || !isUp { return false }
      // To a reader a connection that cannot be opened is a failed read.
      throw error.status == .badDirectory ? error.with(.io) : error
    }
  }

  func noteDamage(_ key: Bytes, _ hash: UInt64, _ version: UInt64) {
    counters.damaged.add()
    queue.barDamaged(key, hash, version: version)
    foundDamage.store(true, ordering: .relaxed)
  }

  var owesWork: Bool { foundDamage.load(ordering: .relaxed) }

  func doOwedWork() {
    if members.belongToParent { return }
    foundDamage.store(false, ordering: .relaxed)
    // Every transaction removes barred rows; a removal that fails is tried again later.
    _ = passQueue()
  }

  /// A read has failed.
  func note(_ failure: Failure) {
    counters.failures.add()
    if failure.status == .corrupt {
      counters.damaged.add()
      service.goDown(failure)
    }
    // Not SQLite's word, but `Connection.check`'s: another directory is at the path.
    if failure.status == .badDirectory && failure.sqlite == 0 { service.goDown(failure) }
  }
}

extension StorageOptions {
  /// Whether a row's value can be read: an entry of a codec that is not here is kept for when it
  /// is.
  func knows(_ codec: UInt32) -> Bool { codec == 0 || codec == codecID }
}

/// The rows that a read of a moment may see; with no moment, those of any age. Made before the rows
/// are read: rows only get newer.
struct RowFilter {
  private let generation: Int64
  private let now: Int64?
  private let ages: Ages
  private unowned(unsafe) let tier: DiskTier
  private let rounds: UInt64

  @inline(never)
  init(_ tier: DiskTier, at moment: Moment?) {
    generation = tier.shared.generation
    now = moment?.time
    ages = tier.ages
    self.tier = tier
    rounds = tier.accesses.rounds
  }

  /// False: a row that was not shown may have been read since.
  var isCurrent: Bool { tier.accesses.rounds == rounds }

  @inline(never)
  func shows(_ row: Row, _ key: Bytes) -> Bool {
    guard row.generation >= generation else { return false }
    guard let now, row.record.mayExpire(under: ages) else { return true }
    return !tier.isExpired(row.record, key, at: now)
  }
}

extension Record {
  /// As a touch sets them.
  @inline(never)
  fileprivate mutating func takeTimes(of touch: QueuedWrite) {
    let other = touch.times
    created = other.created
    accessed = max(other.accessed, other.created)
    expires = other.expires
    timeToIdle = other.timeToIdle
  }
}
