import CSystem
import Synchronization

/// For a store whose commits are slow: the writes that are submitted and not yet committed, in
/// their order, as reads see them; and the keys that are barred because a commit failed. One of the
/// threads that wait leads: it commits the writes of all of them.
final class WriteQueue {
  private var first: QueuedWrite?
  private var last: QueuedWrite?
  private var lastSequence: UInt64 = 0
  private var isLed = false
  private var waiters = 0

  /// The newest write of each key: chains by hash; and how many. A key that has a touch here has no
  /// bar. That of another write stays: the transaction removes the barred row first, so that the
  /// write does not find it.
  private let table: ChainedTable<QueuedWrite>
  private var inTable = 0
  /// The sequence of the newest clear that is not committed; 0: none. The writes submitted before
  /// it are gone.
  private var clearSequence: UInt64 = 0
  /// Everything submitted before is barred: a clear has failed, or there were too many bars
  /// to remember each. 0: no. Ends when a commit has advanced the generation.
  private var barSequence: UInt64 = 0
  private var bars = Bars()

  /// Whether anything of the above concerns reads. It is stored once for each hold of the lock, by
  /// `endChange`, since reads look without the lock: a write takes the place of an older one of its
  /// key, or of a bar, and a bar that of a write, and a read that saw nothing in between would find
  /// the older entry on disk. Release on change, acquire by reads: a caller that has submitted
  /// a write sees it.
  private let overlaid = Atomic<Bool>(false)

  // The last: the instructions that reach the fields before them are shorter.
  /// Protects everything here. Taken under a stripe, the store's own lock for writing, or none; no
  /// other lock is taken under it. Held for O(1), or for a batch of writes or of bars; never for
  /// I/O.
  private let lock = Lock()
  /// That `isLed` or an `isDone` has changed.
  private let changed = Condition()

  private init(_ table: consuming ChainedTable<QueuedWrite>) { self.table = table }

  static func make() throws(Failure) -> WriteQueue {
    WriteQueue(try ChainedTable(size: 1024))
  }

  // MARK: the table

  private func insert(_ write: QueuedWrite) {
    table.insert(write)
    inTable += 1
  }

  private func remove(_ write: QueuedWrite) {
    if table.remove(write) { inTable -= 1 }
  }

  /// Shows reads what has changed under the lock, and unlocks.
  private func endChange() {
    showChange()
    lock.unlock()
  }

  private func showChange() {
    overlaid.store(
      inTable > 0 || !bars.isEmpty || clearSequence != 0 || barSequence != 0, ordering: .releasing)
  }

  // MARK: reads

  /// Whether a read must look here at all.
  @inline(__always)
  var isOverlaid: Bool { overlaid.load(ordering: .acquiring) }

  /// The state of a key as reads see it before they look into the manifest.
  struct View: ~Copyable {
    /// Not there, whatever the manifest has.
    var isGone = false
    /// The put that has the value; nil: the manifest has it.
    var write: QueuedWrite?
    /// Of that put, with those times; filled in by the caller.
    var record = Record()
    /// The touch whose times the entry is to have.
    var touch: QueuedWrite?
    /// The manifest's entry is barred if its version is not above this one. Nil: it is not.
    var barred: UInt64?
  }

  func look(up key: Bytes, _ hash: UInt64) -> View {
    var view = View()
    lock.lock()
    defer { lock.unlock() }
    let boundary = max(clearSequence, barSequence)
    var next = table.find(key, hash)
    while let write = next {
      if write.sequence < boundary {
        view.isGone = true
        return view
      }
      if let barred = write.barred {
        if write.kind == .touch, !write.isDone, view.touch == nil { view.touch = write }
        view.barred = barred
        return view
      }
      // Committed: it is the manifest's, though a touch that is not yet committed refers to it.
      if write.isDone { return view }
      switch write.kind {
      case .touch:
        if view.touch == nil { view.touch = write }
        next = write.base
      case .put where write.refusal == .none:
        view.write = write
        return view
      default:
        view.isGone = true
        return view
      }
    }
    if let bar = bars.find(key, hash), bar.sequence >= boundary {
      view.barred = bar.version
    } else {
      view.isGone = boundary != 0
    }
    return view
  }

  /// Whether a read of this key has to look here.
  func concerns(_ key: Bytes, _ hash: UInt64) -> Bool {
    lock.withLock {
      clearSequence != 0 || barSequence != 0 || table.find(key, hash) != nil
        || bars.find(key, hash) != nil
    }
  }

  /// The version of the newest write of a key that is not committed, of those that reads see; 0:
  /// there is none.
  func newestVersion(_ key: Bytes, _ hash: UInt64) -> UInt64 {
    lock.withLock { table.find(key, hash)?.version ?? 0 }
  }

  // MARK: writes

  func submit(_ write: QueuedWrite) {
    lock.lock()
    defer { endChange() }
    lastSequence += 1
    write.sequence = lastSequence
    if let last { last.next = write } else { first = write }
    last = write
    switch write.kind {
    case .put where write.isUndecided, .remove where write.isUndecided:
      break
    case .put, .remove, .touch:
      if let older = table.find(write.key, write.hash) {
        if write.kind == .touch { write.base = older }
        remove(older)
      } else if write.kind == .touch, let bar = bars.find(write.key, write.hash) {
        write.barred = bar.version
        bars.remove(write.key, write.hash)
      }
      insert(write)
    case .clear:
      clearSequence = write.sequence
    case nil:
      break
    }
  }

  /// The leader will not store a put that is queued.
  func refuse(_ write: QueuedWrite, _ refusal: TierOutcome, _ failure: Failure?) {
    lock.withLock {
      write.refusal = refusal
      write.refusalFailure = failure
    }
  }

  /// A committed write that a later one of its transaction has replaced: reads look for that one in
  /// the manifest before memory's entry of this one ceases to count.
  func giveWay(_ write: QueuedWrite) { lock.withLock { write.isDone = true } }

  /// Waits until the write is done, or until the caller is the leader, which commits what `take`
  /// gives it and then calls `finish`. True: the caller leads.
  func waitOrLead(for write: QueuedWrite) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    while !write.isDone {
      if !isLed {
        isLed = true
        return true
      }
      waiters += 1
      changed.wait(lock)
      waiters -= 1
    }
    return false
  }

  /// The leader's batch, the oldest first: up to `most` writes with `bytes` of charges, and at
  /// least one.
  func take(_ batch: inout [QueuedWrite], most: Int, bytes: Int64) {
    lock.lock()
    defer { lock.unlock() }
    var sum: Int64 = 0
    while let write = first {
      sum += write.charge
      guard batch.isEmpty || (batch.count < most && sum <= bytes) else { break }
      first = write.next
      if first == nil { last = nil }
      write.next = nil
      batch.append(write)
    }
  }

  /// Ends the leader's batch and its lead: each write has its results by now. A write with a
  /// failure bars its key.
  func finish(_ batch: [QueuedWrite]) {
    lock.lock()
    for write in batch { finish(write) }
    isLed = false
    let isAwaited = waiters > 0
    endChange()
    if isAwaited { changed.broadcast() }
  }

  private func finish(_ write: QueuedWrite) {
    write.isDone = true
    switch write.kind {
    case .put, .remove:
      let isNewest = table.find(write.key, write.hash) === write
      if isNewest { remove(write) }
      guard write.result.failure != nil else { break }
      if isNewest {
        if !bar(write.key, write.hash, write.version, write.sequence) { barAll() }
      } else {
        // A touch that came after it must not find the older entry either.
        write.barred = write.version
      }
    case .touch:
      let barred = write.barredBase
      write.base = nil
      guard table.find(write.key, write.hash) === write else {
        if barred != nil { write.barred = write.version }
        break
      }
      remove(write)
      if let barred, write.result.failure != nil,
        !bar(write.key, write.hash, barred, write.sequence)
      {
        barAll()
      }
    case .clear:
      if clearSequence == write.sequence { clearSequence = 0 }
      if write.result.failure == nil {
        bars.removeAll(before: write.sequence)
        if barSequence < write.sequence { barSequence = 0 }
      } else {
        barSequence = max(barSequence, write.sequence)
      }
    case nil:
      break
    }
  }

  // MARK: bars

  private func bar(
    _ key: Bytes, _ hash: UInt64, _ version: UInt64, _ sequence: UInt64, isOfDamage: Bool = false
  ) -> Bool {
    bars.remove(key, hash)
    return bars.insert(key, hash, version: version, sequence, isOfDamage: isOfDamage)
  }

  private func barAll() {
    lastSequence += 1
    barSequence = lastSequence
  }

  /// Bars the key of an entry that a read has found damaged, unless a write of it is under
  /// way, which will do away with the entry anyhow.
  func barDamaged(_ key: Bytes, _ hash: UInt64, version: UInt64) {
    lock.lock()
    defer { endChange() }
    guard table.find(key, hash) == nil, bars.find(key, hash) == nil else { return }
    lastSequence += 1
    _ = bar(key, hash, version, lastSequence, isOfDamage: true)
  }

  var hasBars: Bool {
    lock.withLock { !bars.isEmpty || barSequence != 0 }
  }

  /// Up to `limit` bars, whose rows the next transaction removes; and the bar on everything, for
  /// which it advances the generation.
  func liftBars(_ limit: Int) -> LiftedBars {
    lock.lock()
    defer { lock.unlock() }
    var lifted = bars.lift(limit)
    lifted.all = barSequence
    return lifted
  }

  /// The rows of these bars are gone.
  func forget(_ lifted: borrowing LiftedBars) {
    lock.lock()
    defer { endChange() }
    bars.remove(lifted)
    if lifted.all != 0 {
      bars.removeAll(before: lifted.all + 1)
      if barSequence <= lifted.all { barSequence = 0 }
    }
  }

  // MARK: fork

  func hold(until end: Deadline) -> Bool { lock.lock(until: end) }
  func letGo() { lock.unlock() }

  /// In the child: the parent commits the writes that wait; bars stay. The lock
  /// is held.
  func forgetWrites() {
    changed.renew()
    table.removeAll()
    inTable = 0
    first = nil
    last = nil
    isLed = false
    waiters = 0
    clearSequence = 0
    showChange()
  }

  /// In a child that has no part in the directory: nothing is looked up here.
  func leaveBehind() {
    lock.renew()
    changed.renew()
    overlaid.store(false, ordering: .relaxed)
  }

  /// Whether nothing waits.
  var isEmpty: Bool { lock.withLock { first == nil && !isLed } }
}
