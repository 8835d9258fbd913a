/// A transaction under way: the manifest, the meta row that it will be committed with, and the work
/// that its commit will owe. `Committer.transact` begins and ends it, under the writer lock.
///
/// A row that goes is subtracted from the meta row, and its content file is noted, in the same call
/// (`delete`, `put`): so the sums are the rows', and a file goes exactly if its row has gone.
struct Transaction: ~Copyable {
  let manifest: Manifest
  /// As the commit will write it.
  var meta: Meta
  /// The time by which it decides, and the limits in force.
  let now: Int64
  let limits: TierLimits
  let policy: EvictionPolicy
  let accesses: AccessTimes
  unowned(unsafe) let observer: (any StorageObserver)?
  /// False: it has changed nothing, and is not committed.
  var hasChanged = false
  /// True: it changes access times alone. The meta row stays, and so does the mark of a clean end:
  /// a kill in its midst leaves nothing to put in order.
  var isOfAccesses = false
  /// True: the newest row is this transaction's, and has the sums of `meta`. Every change of the
  /// sums makes it false, but for a put, whose row has them.
  private var isCarried = false
  /// The rows that it has put have this id or a greater one.
  private(set) var oldestOwn: Int64
  /// Content files that lost their rows.
  private(set) var files = GrowingArray<DeadFile>()
  private(set) var dropped = DroppedEntries()
  private(set) var evictions: UInt64 = 0
  private(set) var expirations: UInt64 = 0

  init(
    _ manifest: Manifest, at now: Int64, _ limits: TierLimits, _ policy: EvictionPolicy,
    _ accesses: AccessTimes, _ observer: (any StorageObserver)?
  ) {
    self.manifest = manifest
    meta = manifest.meta
    oldestOwn = manifest.lastID + 1
    self.now = now
    self.limits = limits
    self.policy = policy
    self.accesses = accesses
    self.observer = observer
  }

  var ages: Ages { limits.ages }

  // MARK: rows

  /// True if a reader would find the entry of this row.
  func isAlive(_ row: Row, _ key: Bytes) -> Bool {
    row.generation == meta.generation && !isExpired(row.record, key)
  }

  /// Counts the accesses that have gathered and are not in the row yet.
  func isExpired(_ record: Record, _ key: Bytes) -> Bool {
    accesses.isExpired(record, key, at: now, under: ages, asking: observer)
  }

  /// The time of the last access, those included that are not in the row yet.
  func accessed(_ row: Row, _ key: Bytes) -> Int64 {
    max(row.record.accessed, accesses.latest(key))
  }

  /// Whether a put of the row's key leaves the row in its slot: the row keeps its id, or is long
  /// and stays so. Not if more than the row would change, as with a file or a tag.
  func staysInPlace(_ row: Row, _ write: QueuedWrite) -> Bool {
    guard write.kind == .put, write.refusal == .none, let entry = write.entry, row.isSound,
      row.generation == meta.generation, row.file == nil, write.file == nil, !row.hasTag,
      entry.tagSize == 0
    else { return false }
    return keepsID(row, write) || (row.isLong && write.isLong)
  }

  /// Whether a put leaves the row its id: the row is the newest one, so no order changes, and has
  /// the sums (Sums). Not if the row gets or loses an expiry of its own, by which the sweep knows
  /// the ids that it need not look at again (Sweeper).
  private func keepsID(_ row: Row, _ write: QueuedWrite) -> Bool {
    row.id == manifest.lastID && row.id > manifest.newestOfMeta
      && (row.record.expires == 0) == (write.entry!.record.expires == 0)
  }

  /// The row of a put in place of the key's old one, if there is one. One that has not been deleted
  /// stays in its place.
  mutating func put(_ write: QueuedWrite, replacing old: OldRow, seal: UInt64) throws(Failure) {
    // A row that is there is counted: nothing may fail from then on.
    if old.isThere && old.row.file != nil { try files.reserve(files.count + 1) }
    var after = meta
    if old.isThere { after.subtract(charge: old.row.charge, generation: old.row.generation) }
    after.count += 1
    after.bytes += write.charge
    let isInPlace = old.isThere && !old.isDeleted
    let keepsID = isInPlace && keepsID(old.row, write)
    try manifest.put(
      write, after, seal: seal, in: isInPlace ? old.row.slot : nil, keepsID: keepsID)
    if old.isThere { try noteFile(of: old.row) }
    meta = after
    if keepsID { oldestOwn = min(oldestOwn, manifest.lastID) }
    hasChanged = true
    isCarried = true
  }

  /// The row becomes the newest one, with these times.
  mutating func touch(_ found: Row, _ record: Record) throws(Failure) {
    try manifest.touch(found, record, accessed: max(record.accessed, record.created), meta)
    hasChanged = true
    isCarried = true
  }

  /// True if the meta row need not be written: it stands as the commit would write it, but for the
  /// sums and the time, which the newest row has.
  var sparesMeta: Bool {
    (isCarried || isOfAccesses) && meta.differsInSumsAlone(from: manifest.meta)
  }

  mutating func clear() {
    meta.clear()
    hasChanged = true
    isCarried = false
  }

  // MARK: removals

  @inline(never)
  mutating func delete(_ row: Row) throws(Failure) {
    try manifest.delete(row)
    try lose(row)
  }

  mutating func delete(_ old: OldRow) throws(Failure) {
    guard old.isThere else { return }
    if !old.isDeleted { try manifest.delete(old.row) }
    try lose(old.row)
  }

  /// A row has gone.
  private mutating func lose(_ row: Row) throws(Failure) {
    try noteFile(of: row)
    meta.subtract(charge: row.charge, generation: row.generation)
    hasChanged = true
    isCarried = false
  }

  private mutating func noteFile(of row: Row) throws(Failure) {
    guard let file = row.file else { return }
    try files.append(DeadFile(name: file, size: Int64(Charge.rounded(row.record.size))))
  }

  /// An entry goes that no call has removed.
  mutating func drop(_ key: Bytes, _ version: UInt64, _ cause: DropCause) throws(Failure) {
    switch cause {
    case .evicted: evictions += 1
    case .expired: expirations += 1
    case .damaged, .barred: break
    }
    // A row may have been damaged into a key that no cache above could have asked for.
    guard key.count > 0 && key.count <= Row.longestKey else { return }
    try dropped.append(key, version, cause)
  }

  /// Deletes the row with this id, and reports its entry as dropped, if `cause` gives a cause.
  /// `cause` gets a row of this generation with the accesses that have gathered. Rows of older
  /// generations go if `takesDead`. False: the row is not there any more, or stays.
  @inline(never)
  mutating func drop(
    id: Int64, takesDead: Bool = false, _ cause: (Record, Bytes) -> DropCause?
  ) throws(Failure) -> Bool {
    var victim: Row?
    try manifest.find(id: id) { (row, key) throws(Failure) in
      if row.generation == meta.generation {
        var record = row.record
        record.accessed = accessed(row, key)
        guard let cause = cause(record, key) else { return }
        try drop(key, record.version, cause)
      } else if !takesDead {
        return
      }
      victim = row
    }
    guard let victim else { return false }
    try delete(victim)
    return true
  }
}

extension QueuedWrite {
  /// True of a put whose row is long (`Row.isLong`).
  var isLong: Bool { file == nil && Charge.isLong(charge) }
}

/// Entries that went without a call that removed them, with their versions and the causes.
struct DroppedEntries: ~Copyable {
  /// The number: the version, and the cause in the last two bits.
  private var list = KeyList()

  init() {}

  var isEmpty: Bool { list.isEmpty }

  mutating func append(_ key: Bytes, _ version: UInt64, _ cause: DropCause) throws(Failure) {
    try list.append(key, Int64(bitPattern: version << 2 | cause.rawValue))
  }

  func forEach(_ body: (Bytes, UInt64, DropCause) -> Void) {
    list.forEach { key, number in
      let number = UInt64(bitPattern: number)
      body(key, number >> 2, DropCause(rawValue: number & 3) ?? .evicted)
    }
  }
}
