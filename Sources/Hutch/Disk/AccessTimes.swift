import CSystem
import Synchronization

/// When entries were last read, gathered in memory until a transaction takes them along: a
/// read is never a write.
///
/// Bounded, and lossy by design: beyond `capacity` keys between two flushes an access of another
/// key is forgotten, unless the life of an entry may hang on it (`keepsAll`). Two tables take
/// turns, so that one can be written out in batches while the other gathers; a question looks into
/// both.
final class AccessTimes {
  private struct Slot {
    /// Nil: free. The slot's own copy.
    var key: UnsafeMutableRawPointer?
    var hash: UInt64
    var time: Int64
    var size: UInt32
    var uses: UInt32
  }

  private struct Table {
    /// Made when it is first needed.
    var slots: UnsafeMutablePointer<Slot>?
    /// A power of two, twice `count` at least.
    var slotCount = 0
    var count = 0

    mutating func grow(to size: Int) -> Bool {
      guard let larger = try? Allocation.array(Slot.self, size) else { return false }
      let old = self
      (slots, slotCount) = (larger, size)
      for i in 0..<old.slotCount {
        let slot = old.slots![i]
        guard let key = slot.key else { continue }
        let place = AccessTimes.index(
          of: Bytes(start: key, count: Int(slot.size)), slot.hash, in: self)!
        larger[place] = slot
      }
      free(old.slots)
      return true
    }

    /// Frees the keys, and the slots beyond those of a table that has not grown.
    @inline(never)
    mutating func empty() {
      guard let slots, count > 0 else { return }
      for i in 0..<slotCount {
        free(slots[i].key)
        slots[i].key = nil
      }
      count = 0
      if slotCount > AccessTimes.mostSlots {
        free(slots)
        self = Table()
      }
    }
  }

  static let capacity = 4096
  private static let leastSlots = 64
  /// Those of a table that has `capacity` keys.
  private static let mostSlots = 2 * capacity

  /// Protects both tables, but for the copies of keys in `leaving`, which only
  /// the writer frees. No other lock is taken under it.
  private let lock = Lock()
  /// The tier's. It changes only while nothing has gathered.
  var hash: KeyedHash
  private var gathering = Table()
  /// Being written out by the holder of the tier's writer lock: up to `position` in the rows, up to
  /// `reached` in the transaction of the last `drain`.
  private var leaving = Table()
  private var position = 0
  private var reached = 0
  /// In both tables. Relaxed: a question may miss an access that comes at the same moment.
  private let total = Atomic<Int>(0)
  /// Counts the rounds that have ended: an access goes from here into its row, and a read that has
  /// seen the row before does not find it here afterwards. Such a read begins anew. Release before
  /// the table is emptied; acquire by a read before it looks at the row, and after its look here.
  private let ended = Atomic<UInt64>(0)

  /// True if an entry may end by being idle: no access is forgotten, or it would end too early. The
  /// table then grows until maintenance writes it out. Relaxed: the thread that has put such an
  /// entry sees it.
  let keepsAll = Atomic<Bool>(false)

  init(_ hash: KeyedHash) { self.hash = hash }

  deinit {
    gathering.empty()
    leaving.empty()
    free(gathering.slots)
    free(leaving.slots)
  }

  private static func index(of key: Bytes, _ hash: UInt64, in table: Table) -> Int? {
    guard let slots = table.slots else { return nil }
    var i = KeyedHash.place(of: hash, mask: table.slotCount - 1)
    while let own = slots[i].key {
      if slots[i].hash == hash, Int(slots[i].size) == key.count,
        memcmp(own, key.baseAddress!, key.count) == 0
      {
        return i
      }
      i = (i + 1) & (table.slotCount - 1)
    }
    return i
  }

  var count: Int { total.load(ordering: .relaxed) }
  var isEmpty: Bool { count == 0 }
  var rounds: UInt64 { ended.load(ordering: .acquiring) }

  /// Whether so much has gathered that it should be written out soon.
  var isHalfFull: Bool { count > AccessTimes.capacity / 2 }

  // MARK: fork

  func hold(until end: Deadline) -> Bool { lock.lock(until: end) }
  func letGo() { lock.unlock() }

  /// In the child: the parent writes the accesses that have gathered. Under the writer lock.
  func forget() {
    lock.withLock {
      gathering.empty()
      leaving.empty()
      position = 0
      total.store(0, ordering: .relaxed)
    }
  }

  /// In a child that has no part in the directory.
  func leaveBehind() {
    lock.renew()
    gathering = Table()
    leaving = Table()
    total.store(0, ordering: .relaxed)
  }

  func note(_ key: Bytes, _ hash: UInt64, at time: Int64) {
    lock.lock()
    defer { lock.unlock() }
    let isFull = 2 * gathering.count >= gathering.slotCount
    if isFull && (gathering.slotCount < AccessTimes.mostSlots || keepsAll.load(ordering: .relaxed))
    {
      _ = gathering.grow(to: max(AccessTimes.leastSlots, 2 * gathering.slotCount))
    }
    guard let i = AccessTimes.index(of: key, hash, in: gathering), let slots = gathering.slots
    else { return }
    if slots[i].key != nil {
      slots[i].time = max(slots[i].time, time)
      slots[i].uses = slots[i].uses &+ 1
    } else if 2 * gathering.count < gathering.slotCount, let copy = malloc(key.count) {
      memcpy(copy, key.baseAddress!, key.count)
      slots[i] = Slot(key: copy, hash: hash, time: time, size: UInt32(key.count), uses: 1)
      gathering.count += 1
      total.wrappingAdd(1, ordering: .relaxed)
    }
  }

  /// The last access that is not yet in the key's row; the least Int64 if there is none.
  func latest(_ key: Bytes, _ hash: UInt64? = nil) -> Int64 { gathered(key, hash).time }

  /// True if an entry's life has ended, also with the accesses that have gathered and are not yet
  /// in its row, and with those that the tiers above have answered.
  @inline(never)
  func isExpired(
    _ record: Record, _ key: Bytes, at now: Int64, under ages: Ages,
    asking observer: (any StorageObserver)?
  ) -> Bool {
    var record = record
    guard record.isExpired(at: now, under: ages, key, asking: observer) else { return false }
    // An entry that has left memory meanwhile has handed its time down before.
    record.accessed = max(record.accessed, latest(key))
    return record.isExpired(at: now, under: ages)
  }

  /// The time of the last gathered access of a key, and the number of gathered accesses. While they
  /// are being written into the row, the row may have them too.
  func gathered(_ key: Bytes, _ hash: UInt64? = nil) -> (time: Int64, uses: Int64) {
    var gathered = (time: Int64.min, uses: Int64(0))
    guard total.load(ordering: .acquiring) != 0, key.count > 0 else { return gathered }
    let hash = hash ?? self.hash.entry(key)
    lock.lock()
    defer { lock.unlock() }
    func look(_ table: borrowing Table) {
      guard let i = AccessTimes.index(of: key, hash, in: table), table.slots![i].key != nil
      else { return }
      gathered.time = max(gathered.time, table.slots![i].time)
      gathered.uses += Int64(table.slots![i].uses)
    }
    look(gathering)
    look(leaving)
    return gathered
  }

  /// Hands up to `limit` accesses to `write`, within a transaction. True if there are more
  /// of those that had gathered when the round began.
  @inline(never)
  func drain(
    _ limit: Int, _ write: (_ key: Bytes, _ time: Int64, _ uses: Int64) throws(Failure) -> Void
  ) throws(Failure) -> Bool {
    if leaving.count == 0 {
      lock.withLock {
        swap(&leaving, &gathering)
        position = 0
      }
    }
    guard let slots = leaving.slots, leaving.count > 0 else { return false }
    reached = position
    var done = 0
    while reached < leaving.slotCount && done < limit {
      let slot = slots[reached]
      reached += 1
      guard let key = slot.key else { continue }
      done += 1
      try write(Bytes(start: key, count: Int(slot.size)), slot.time, Int64(slot.uses))
    }
    return reached < leaving.slotCount
  }

  /// The transaction of the last `drain` is committed: the accesses that it wrote are in the rows
  /// now. A table leaves as a whole, once all of it has been written.
  func endRound() {
    position = reached
    guard leaving.count > 0, position == leaving.slotCount else { return }
    lock.withLock {
      ended.wrappingAdd(1, ordering: .releasing)
      total.wrappingSubtract(leaving.count, ordering: .releasing)
      leaving.empty()
    }
  }
}
