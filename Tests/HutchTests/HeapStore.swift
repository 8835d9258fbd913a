import Synchronization
import Testing

@testable import Hutch

/// A store in memory that commits at once: what a class has to have to be one, and no more. The
/// composed cache must work on it without knowing. Everything is behind one lock, under which only
/// `storeDrops` is called.
final class HeapStore: Storage, @unchecked Sendable {
  /// What is left of a store that was closed, or killed: what it has committed.
  final class Medium: @unchecked Sendable {
    var rows: [[UInt8]: Row] = [:]
    var cost: UInt64 = 0
    var lastID: Int64 = 0
    var nextVersion: UInt64 = 1
    /// Not nil: other processes may have the store.
    var counters: CoherenceCounters?
  }

  struct Row {
    var record: Record
    var value: [UInt8]
    let extended: [UInt8]
    let charge: UInt64
    /// Grows with writes and touches.
    var id: Int64 = 0
    /// Of the key.
    var place: Int64 = 0
    var uses = 0
    /// A read has found it damaged.
    var isBarred = false

    init(_ entry: UnownedBlock) {
      record = entry.record
      value = Array(entry.value)
      extended = Array(entry.extendedData)
      charge = HeapStore.charge(of: entry)
    }

    var isSound: Bool {
      record.checksum == 0 || value.withUnsafeBytes { Checksum.xxh3($0) } == record.checksum
    }
    var tag: [UInt8] { Array(extended.suffix(Int(record.tagSize))) }
    var lastUse: Int64 { max(record.accessed, record.created) }

    mutating func touch(_ times: Record) {
      record.created = times.created
      record.accessed = times.accessed
      record.expires = times.expires
      record.timeToIdle = times.timeToIdle
    }
  }

  private let medium: Medium
  private let options: StorageOptions
  var optionsInForce: StorageOptions { options }
  let hash = try! KeyedHash()
  let firstVersion: UInt64
  var sharing: StorageSharing {
    StorageSharing(firstVersion: firstVersion, counters: medium.counters)
  }
  /// Protects what follows, and the medium.
  private var lock = Lock()
  private var current: TierLimits
  private var counters = TierStats()
  private var serves = true
  private var barred = 0
  /// What the observer is to be told when no lock is held.
  private var dropped: [(key: [UInt8], version: UInt64)] = []
  private unowned(unsafe) var observer: (any StorageObserver)?
  /// Whether the condition of a caller's write holds, by the key.
  var holds: (Bytes) -> Bool = { _ in true }
  /// False: a walk goes by the places of keys.
  var isOrdered = true
  /// How many entries the walks of a store that is not ordered have shown.
  private(set) var shown = 0
  /// Called with no lock held after each look that has found nothing.
  var onMiss: (Bytes) -> Void = { _ in }

  init(_ options: StorageOptions, on medium: Medium) {
    self.medium = medium
    self.options = options
    current = options.limits
    firstVersion = medium.nextVersion
    // A lease, so that one that is killed has drawn none of those that come after it.
    medium.nextVersion &+= 1 << 40
  }

  static func opener(on medium: Medium) -> StorageOpener {
    { (_, options, _) throws(Failure) in HeapStore(options, on: medium) }
  }

  func watch(by observer: any StorageObserver) { self.observer = observer }

  static func charge(of entry: UnownedBlock) -> UInt64 {
    UInt64(64 + entry.keySize + entry.size + entry.extendedSize)
  }

  // MARK: writes

  var isUp: Bool { lock.withLock { serves } }

  func secureRemovals() throws(Failure) {}

  func write(_ write: inout StoreWrite) {
    // No write is ever pending here.
    if write.need == .ifPending { return }
    if write.condition.isOfCaller, let entry = write.entry, !holds(entry.key) {
      write.result.isUnmet = true
      return
    }
    lock.withLock {
      write.result = carryOut(write)
      makeRoom()
    }
  }

  private func carryOut(_ write: StoreWrite) -> StoreWrite.Result {
    var result = StoreWrite.Result()
    guard let entry = write.entry else {
      medium.rows = [:]
      medium.cost = 0
      return result
    }
    guard serves else {
      result.failure = Failure(.tierDown, "the store is out of service")
      result.outcome = .failed
      return result
    }
    let key = Array(entry.key)
    let old = remove(key)
    result.existed = old.map { !isExpired($0, at: write.time) && !$0.isBarred } ?? false
    switch write.kind {
    case .put:
      if let form = write.form, form.refusal != .none {
        result.outcome = form.refusal
        result.failure = form.failure
        break
      }
      let fits = HeapStore.charge(of: entry) <= current.largestCharge
      result.outcome = fits ? .stored : .tooLarge
      if fits { insert(key, Row(entry)) }
      counters.puts += fits ? 1 : 0
      counters.refusals += fits ? 0 : 1
    case .touch:
      guard var row = old, result.existed else { break }
      row.touch(entry.record)
      insert(key, row)
    case .remove, .clear:
      counters.removals += result.existed ? 1 : 0
    }
    return result
  }

  /// Runs `body` with the lock held, and tells afterwards what it has dropped.
  private func locked<R>(_ body: () -> R) -> R {
    lock.lock()
    let result = body()
    let told = dropped
    dropped = []
    lock.unlock()
    for (key, version) in told { key.withUnsafeBytes { observer?.storeDropped($0, version) } }
    return result
  }

  private func insert(_ key: [UInt8], _ row: Row) {
    medium.lastID += 1
    medium.cost += row.charge
    medium.rows[key] = row
    medium.rows[key]!.id = medium.lastID
    medium.rows[key]!.place = key.withUnsafeBytes { place(of: hash.entry($0)) }
  }

  private func remove(_ key: [UInt8]) -> Row? {
    guard let row = medium.rows.removeValue(forKey: key) else { return nil }
    medium.cost -= row.charge
    if row.isBarred { barred -= 1 }
    return row
  }

  private func drop(_ key: [UInt8], _ cause: DropCause) {
    guard let row = remove(key) else { return }
    key.withUnsafeBytes { observer?.storeDrops($0, row.record.version, cause) }
    dropped.append((key, row.record.version))
    switch cause {
    case .evicted: counters.evictions += 1
    case .expired: counters.expirations += 1
    case .damaged, .barred: counters.damaged += 1
    }
  }

  private func dropOldest() {
    let (key, _) = medium.rows.min { ($0.value.lastUse, $0.value.id) < ($1.value.lastUse, $1.value.id) }!
    drop(key, .evicted)
  }

  private func makeRoom() {
    while (current.cost != 0 && medium.cost > current.cost)
      || (current.count != 0 && UInt64(medium.rows.count) > current.count)
    {
      dropOldest()
    }
  }

  // MARK: reads

  private func isExpired(_ row: Row, at now: Int64) -> Bool {
    row.record.isExpired(at: now, under: current.ages)
  }

  private func find(_ key: Bytes, at now: Int64) -> Row? {
    guard serves, let row = medium.rows[Array(key)], !row.isBarred,
      [0, options.codecID].contains(row.record.codec)
    else { return nil }
    return isExpired(row, at: now) ? nil : row
  }

  func get(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool
  ) throws(Failure) -> Block? {
    let row = lock.withLock { () -> Row? in
      var row = find(key, at: moment.time)
      if let found = row, !found.isSound {
        if medium.rows[Array(key)] != nil {
          medium.rows[Array(key)]!.isBarred = true
          barred += 1
        }
        row = nil
      }
      guard isAccess else { return row }
      if row == nil {
        counters.misses += 1
      } else {
        counters.hits += 1
        row!.record.accessed = max(row!.record.accessed, moment.time)
        access(key, at: moment.time, uses: 1)
      }
      return row
    }
    guard let row else {
      onMiss(key)
      return nil
    }
    return try row.value.span.withUnsafeBytes { (value) throws(Failure) in
      try row.extended.span.withUnsafeBytes { (extended) throws(Failure) in
        try Block.copying(
          key: key, value: value, extended: Extended(extended, tagSize: row.record.tagSize),
          record: row.record)
      }
    }
  }

  func info(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Record? {
    let record = lock.withLock { find(key, at: moment.time)?.record }
    if record == nil { onMiss(key) }
    return record
  }

  func tag(
    of key: Bytes, _ hash: UInt64, at moment: Moment,
    visit: (_ version: UInt64, _ tag: Bytes) -> Void
  ) throws(Failure) {
    guard let record = try info(key, hash, at: moment) else { return }
    if record.tagSize == 0 { return visit(record.version, Bytes(start: nil, count: 0)) }
    guard let block = try get(key, hash, at: moment, isAccess: false) else { return }
    visit(block.unowned.version, block.unowned.extended.tag)
  }

  func noteDamage(_ key: Bytes, _ hash: UInt64, _ version: UInt64) {
    lock.withLock {
      guard let row = medium.rows[Array(key)], row.record.version <= version, !row.isBarred else {
        return
      }
      medium.rows[Array(key)]!.isBarred = true
      barred += 1
    }
  }

  func noteAccess(_ key: Bytes, _ hash: UInt64, at time: Int64) {
    lock.withLock { access(key, at: time, uses: 0) }
  }

  private func access(_ key: Bytes, at time: Int64, uses: Int) {
    let key = Array(key)
    guard let row = medium.rows[key] else { return }
    medium.rows[key]!.record.accessed = max(row.record.accessed, time)
    medium.rows[key]!.uses += uses
  }

  func keys(
    tagged tag: Bytes?, after key: Bytes?, limit: Int, at moment: Moment?, visit: (Bytes) -> Void
  ) throws(Failure) -> Int {
    let from = key.map { Array($0) }
    let wanted = tag.map { Array($0) }
    let found = (moment.map { seen(at: $0.time) } ?? all).filter { wanted == nil || $0.row.tag == wanted! }
      .map(\.key).filter { from?.lexicographicallyPrecedes($0) ?? true }
      .sorted { $0.lexicographicallyPrecedes($1) }.prefix(limit)
    for key in found { key.withUnsafeBytes(visit) }
    return found.count
  }

  func walk(
    _ place: inout WalkPlace, at moment: Moment?, visit: (Bytes, WalkedEntry) -> Void
  ) throws(Failure) {
    if !isOrdered { return walkByPlace(&place, at: moment, visit: visit) }
    let newest = place.newest ?? lock.withLock { medium.lastID }
    let isDescending = place.isDescending
    let last = place.last ?? (isDescending ? Int64.max : 0)
    let found = (moment.map { seen(at: $0.time) } ?? all)
      .filter { $0.row.id <= newest && (isDescending ? $0.row.id < last : $0.row.id > last) }
      .sorted { isDescending ? $0.row.id > $1.row.id : $0.row.id < $1.row.id }
      .prefix(min(4, place.limit))
    place.newest = newest
    place.last = found.last?.row.id ?? last
    place.isAtEnd = found.isEmpty
    show(found, visit)
  }

  private func show(
    _ found: ArraySlice<(key: [UInt8], row: Row)>, _ visit: (Bytes, WalkedEntry) -> Void
  ) {
    for (key, row) in found {
      let entry = WalkedEntry(
        id: row.id, record: row.record, charge: Int64(row.charge), uses: Int64(row.uses))
      key.withUnsafeBytes { visit($0, entry) }
    }
  }

  func place(of hash: UInt64) -> Int64 { Int64(hash >> 12) }

  private func isSeen(_ row: Row, at moment: Moment?) -> Bool {
    guard let moment else { return true }
    return lock.withLock { serves && !row.isBarred && !isExpired(row, at: moment.time) }
  }

  private func walkByPlace(
    _ place: inout WalkPlace, at moment: Moment?, visit: (Bytes, WalkedEntry) -> Void
  ) {
    let start = place.last ?? 0
    let found = all.filter { $0.row.place >= start && isSeen($0.row, at: moment) }
      .sorted { $0.row.place < $1.row.place }.prefix(16)
    place.isAtEnd = found.isEmpty
    if let last = found.last { place.last = last.row.place + 1 }
    shown += found.count
    show(found, visit)
  }

  private var all: [(key: [UInt8], row: Row)] {
    lock.withLock { medium.rows.map { ($0.key, $0.value) } }
  }

  private func seen(at now: Int64) -> [(key: [UInt8], row: Row)] {
    lock.withLock {
      guard serves else { return [] }
      return medium.rows.filter { !$0.value.isBarred && !isExpired($0.value, at: now) }
        .map { ($0.key, $0.value) }
    }
  }

  // MARK: limits, trims

  var limits: TierLimits { lock.withLock { current } }

  func setLimits(_ limits: TierLimits, at moment: Moment) throws(Failure) {
    locked {
      current = limits
      makeRoom()
    }
  }

  func setPolicy(_ policy: EvictionPolicy) {}

  func occupancy() throws(Failure) -> Occupancy {
    locked {
      Occupancy(count: UInt64(medium.rows.count), charge: medium.cost)
    }
  }

  /// An entry is a slice.
  func makeRoom(to goal: TrimGoal, at moment: Moment) throws(Failure) -> TrimSlice? {
    locked {
      let occupancy = Occupancy(count: UInt64(medium.rows.count), charge: medium.cost)
      guard goal.excess(of: occupancy) > 0 else { return TrimSlice() }
      dropOldest()
      return TrimSlice(removed: 1, hasMore: true)
    }
  }

  func remove(
    _ victims: borrowing GrowingArray<Int64>, _ range: Range<Int>, to goal: TrimGoal?,
    at moment: Moment, if isWanted: (Int, Record) -> Bool
  ) throws(Failure) -> TrimSlice {
    let ids = range.map { ($0, victims[$0]) }
    return locked {
      var slice = TrimSlice(hasMore: true)
      for (index, id) in ids where slice.hasMore {
        let occupancy = Occupancy(count: UInt64(medium.rows.count), charge: medium.cost)
        slice.hasMore = goal.map { $0.excess(of: occupancy) > 0 } ?? true
        guard slice.hasMore, let (key, row) = medium.rows.first(where: { $0.value.id == id }),
          isWanted(index, row.record)
        else { continue }
        drop(key, isExpired(row, at: moment.time) ? .expired : .evicted)
        slice.removed += 1
      }
      return slice
    }
  }

  /// Learns when memory has last read an entry. No lock is held.
  private func askAbove(_ key: [UInt8], _ version: UInt64) {
    key.withUnsafeBytes {
      if let time = observer?.lastAccess(of: $0, version) { noteAccess($0, hash.entry($0), at: time) }
    }
  }

  // MARK: maintenance

  var stats: TierStats {
    expect(ThreadState.isInside, "a store's sums are read inside the gate")
    return lock.withLock {
      var stats = counters
      stats.isUp = serves
      stats.count = serves ? UInt64(medium.rows.count) : 0
      stats.cost = serves ? medium.cost : 0
      return stats
    }
  }

  var owesWork: Bool { lock.withLock { barred > 0 || !dropped.isEmpty } }

  func doOwedWork() {
    locked {
      for (key, row) in medium.rows where row.isBarred { drop(key, .damaged) }
    }
  }

  func check(isQuick: Bool, at moment: Moment) throws(Failure) -> CheckReport {
    locked {
      var report = CheckReport()
      for (key, row) in medium.rows {
        guard isQuick || row.isSound else {
          drop(key, .damaged)
          report.damaged += 1
          continue
        }
        report.entries += 1
        report.bytes += isQuick ? 0 : UInt64(row.value.count)
      }
      let sum = medium.rows.values.reduce(0) { $0 + $1.charge }
      report.counters = sum == medium.cost ? 0 : 1
      medium.cost = sum
      return report
    }
  }

  func flush() throws(Failure) {}

  func maintain(at moment: Moment) -> Bool {
    doOwedWork()
    let now = moment.time
    let slice = lock.withLock { medium.rows.filter { isExpired($0.value, at: now) }.prefix(16) }
    for (key, row) in slice {
      askAbove(key, row.record.version)
      locked {
        if let row = medium.rows[key], isExpired(row, at: now) { drop(key, .expired) }
      }
    }
    return slice.count == 16
  }

  func apply(_ other: StorageOptions) -> Bool {
    other.kind != options.kind || !(other.limits == limits)
  }

  func close(lastVersion: UInt64) -> Failure? {
    lock.withLock {
      medium.nextVersion = max(firstVersion, lastVersion &+ 1)
      serves = false
    }
    return nil
  }
}
