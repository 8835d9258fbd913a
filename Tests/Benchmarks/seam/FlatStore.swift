/// A store in memory that commits at once and costs next to nothing: a table of blocks behind one
/// lock. It has no limits and no ages, and forgets everything when it is closed.
final class FlatStore: Storage {
  let hash: KeyedHash
  private let lock: LockInPlace
  private let table: UnsafeMutablePointer<UnownedBlock?>
  private let mask: Int
  private var count: UInt64 = 0

  /// `room`: for fewer entries than this, a power of two.
  init(room: Int) throws(Failure) {
    hash = try KeyedHash()
    let word = try Allocation.array(UInt64.self, 8)
    lock = LockInPlace(at: UnsafeMutableRawPointer(word))
    let table = try Allocation.array(UInt.self, room)
    self.table = UnsafeMutableRawPointer(table).bindMemory(to: UnownedBlock?.self, capacity: room)
    self.table.initialize(repeating: nil, count: room)
    mask = room - 1
  }

  /// The entry's place, or where it would be.
  @inline(__always)
  private func place(_ key: Bytes, _ hash: UInt64) -> Int {
    var place = KeyedHash.place(of: hash, mask: mask)
    while let block = table[place], !block.key.hasSameBytes(as: key) { place = (place + 1) & mask }
    return place
  }

  func write(_ write: inout StoreWrite) {
    guard let entry = write.entry else { return }
    lock.lock()
    let place = place(entry.key, write.hash)
    let old = table[place]
    if write.kind == .put {
      table[place] = entry.retained().leak()
      if old == nil { count += 1 }
    }
    lock.unlock()
    write.result.existed = old != nil
    write.result.outcome = .stored
    old?.release()
  }

  func get(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isAccess: Bool
  ) throws(Failure) -> Block? {
    lock.lock()
    defer { lock.unlock() }
    return table[place(key, hash)]?.retained()
  }

  func info(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Record? {
    lock.lock()
    defer { lock.unlock() }
    return table[place(key, hash)]?.record
  }

  var isUp: Bool { true }
  var stats: TierStats {
    var stats = TierStats(isUp: true)
    stats.count = count
    return stats
  }

  // Not measured.

  func watch(by observer: any StorageObserver) {}
  func noteAccess(_ key: Bytes, _ hash: UInt64, at time: Int64) {}
  func noteDamage(_ key: Bytes, _ hash: UInt64, _ version: UInt64) {}
  var limits: TierLimits { TierLimits() }
  func setLimits(_ limits: TierLimits, at moment: Moment) throws(Failure) {}
  func setPolicy(_ policy: EvictionPolicy) {}
  func occupancy() throws(Failure) -> Occupancy { Occupancy(count: count, charge: 0) }
  func walk(
    _ place: inout WalkPlace, at moment: Moment?, visit: (Bytes, WalkedEntry) -> Void
  ) throws(Failure) { place.isAtEnd = true }
  func remove(
    _ victims: borrowing GrowingArray<Int64>, _ range: Range<Int>, to goal: TrimGoal?,
    at moment: Moment, if isWanted: (Int, Record) -> Bool
  ) throws(Failure) -> TrimSlice { TrimSlice() }
  func check(isQuick: Bool, at moment: Moment) throws(Failure) -> CheckReport { CheckReport() }
  func flush() throws(Failure) {}
  func maintain(at moment: Moment) -> Bool { false }
  var sharing: StorageSharing { StorageSharing(firstVersion: 1) }
  func apply(_ options: StorageOptions) -> Bool { false }
  func close(lastVersion: UInt64) -> Failure? { nil }
}
