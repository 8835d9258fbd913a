import Synchronization

/// A write between `prepare` and the end of its commit.
final class QueuedWrite {
  /// Nil: none of the cache's, but a bar, or a barrier that only waits for its turn.
  let write: StorageWrite?
  let kind: StorageWrite.Kind?
  /// What the write is about: the write keeps it, or for a bar `barredKey`. Nil for a clear
  /// and a barrier.
  let entry: UnownedBlock?
  private let barredKey: Block?
  fileprivate(set) var version: UInt64 = 0
  let hash: UInt64

  // What `prepare` found out.

  /// Of a put: the value's size and checksum, and whether the entry's block has it; else it is in
  /// the content file alone.
  var size = 0
  var checksum: UInt64 = 0
  var hasValue = true
  /// Of a put through a codec: what is stored of the value, whose checksum it is then.
  var encoded: OutputBuffer?
  var codec: UInt32 = 0
  var charge: Int64 = 0
  var file: ContentName?
  /// Where the content file is.
  var directory: Directory?
  /// Whether the file of that name is the row's, or gone. Of who completes the write, or abandons it.
  var hasLanded = false
  /// Not `none`: the value is not stored, the entry that is there goes. Set by `prepare`, or by
  /// the leader under the queue's lock (`WriteQueue.refuse`), where reads look at it.
  var refusal = TierOutcome.none
  var refusalFailure: Failure?

  // What the commit found out. The leader's, until `isDone`.

  var failure: Failure?
  var existed = false

  // The queue's, under its lock.

  fileprivate var sequence: UInt64 = 0
  fileprivate var next: QueuedWrite?
  fileprivate var chain: QueuedWrite?
  /// Of a touch: the write before it of the same key, while that is not committed.
  fileprivate var base: QueuedWrite?
  fileprivate var isDone = false
  /// What is on disk under this key is not to be given out: a bar, or a failed write.
  fileprivate(set) var isBarred = false
  /// In the table and not in the queue: reads see it, and another write with its value will be
  /// submitted, if no newer one is.
  fileprivate var isAnnounced = false
  /// The record of the announced put whose place it took.
  fileprivate(set) var replaced: Record?
  /// A bar because the entry was found damaged, not because a write of it failed.
  fileprivate(set) var isOfDamage = false

  init(_ write: StorageWrite, hash: UInt64) {
    self.write = write
    self.hash = hash
    kind = write.kind
    entry = write.entry
    barredKey = nil
  }

  /// A barrier.
  init() {
    write = nil
    hash = 0
    kind = nil
    entry = nil
    barredKey = nil
  }

  /// A bar.
  fileprivate init(_ key: consuming Block, hash: UInt64, version: UInt64, _ sequence: UInt64) {
    entry = key.unowned
    barredKey = consume key
    write = nil
    kind = .remove
    self.hash = hash
    self.version = version
    self.sequence = sequence
    isBarred = true
  }

  /// Whether it may turn out that nothing is to be done.
  var isUndecided: Bool {
    guard let write else { return false }
    return !write.condition.isAlways && !write.isShown
  }

  /// What is on disk under its key is older, whatever its version.
  func barsAll() { version = UInt64(Int64.max) }

  /// Not for a clear or a barrier.
  var key: Bytes { entry!.key }

  /// Of a put: what is stored of its value.
  var stored: Bytes { encoded?.bytes ?? Bytes(entry!.value) }

  /// Of a touch: rows up to this version must not come back, nor be touched.
  /// Nil: none.
  var barredBase: UInt64? { base?.isBarred ?? false ? base!.version : nil }
}

/// Writes that are submitted and not yet committed, in their order; what reads see of them;
/// and the keys that are barred because a commit failed.
final class WriteQueue {
  /// Protects everything here. Taken under a stripe, the writer lock or none; no other
  /// lock is taken under it. Held for O(1), never for I/O.
  private let lock: Lock
  /// That `isLed` or an `isDone` has changed.
  private let changed: Condition
  private let hash: KeyedHash

  private var first: QueuedWrite?
  private var last: QueuedWrite?
  private var lastSequence: UInt64 = 0
  private var isLed = false
  private var waiters = 0

  /// The newest write, or the bar, of each key: chains by hash.
  private var table: [QueuedWrite?]
  private static let tableSize = 1024
  /// Of the newest clear that is not committed; 0: none. What was submitted before it is gone.
  private var clearSequence: UInt64 = 0
  /// Everything submitted before is barred: a clear has failed, or there were too many bars
  /// to remember each. 0: no. Ends when a commit has advanced the generation.
  private var barSequence: UInt64 = 0
  private var bars = 0
  private static let mostBars = 4096
  private var announced = 0
  /// Puts and removals that are decided with their commit: a chain, beside the table.
  private var undecided: QueuedWrite?
  /// Of the newest clear of all tiers.
  private var clearedVersion: UInt64 = 0

  /// How much of the above concerns reads. Release on change, acquire by reads: who has
  /// submitted sees its own write.
  private let overlaid = Atomic<Int>(0)

  init() throws(Failure) {
    let lock = try Lock()
    let changed = try Condition()
    let hash = try KeyedHash()
    self.lock = lock
    self.changed = changed
    self.hash = hash
    table = Array(repeating: nil, count: WriteQueue.tableSize)
  }

  func hash(_ key: Bytes) -> UInt64 { hash.callAsFunction(key) }

  // MARK: the table

  private func bucket(_ hash: UInt64) -> Int {
    Int(truncatingIfNeeded: hash) & (WriteQueue.tableSize - 1)
  }

  private func newest(_ key: Bytes, _ hash: UInt64) -> QueuedWrite? {
    var next = table[bucket(hash)]
    while let write = next {
      if write.hash == hash && write.key.hasSameBytes(as: key) { return write }
      next = write.chain
    }
    return nil
  }

  private func insert(_ write: QueuedWrite) {
    let i = bucket(write.hash)
    write.chain = table[i]
    table[i] = write
    if write.isBarred { bars += 1 }
    overlaid.wrappingAdd(1, ordering: .releasing)
  }

  private func remove(_ write: QueuedWrite) {
    let i = bucket(write.hash)
    if table[i] === write {
      table[i] = write.chain
    } else {
      var previous = table[i]
      while let at = previous, at.chain !== write { previous = at.chain }
      guard let previous else { return }
      previous.chain = write.chain
    }
    write.chain = nil
    if write.isBarred { bars -= 1 }
    if write.isAnnounced {
      write.isAnnounced = false
      announced -= 1
    }
    overlaid.wrappingSubtract(1, ordering: .releasing)
  }

  private func setBoundary(clear: UInt64, bar: UInt64) {
    let before = (clearSequence != 0 ? 1 : 0) + (barSequence != 0 ? 1 : 0)
    clearSequence = clear
    barSequence = bar
    let after = (clear != 0 ? 1 : 0) + (bar != 0 ? 1 : 0)
    overlaid.wrappingAdd(after - before, ordering: .releasing)
  }

  // MARK: reads

  /// Whether a read must look here at all.
  @inline(__always)
  var isOverlaid: Bool { overlaid.load(ordering: .acquiring) != 0 }

  /// What reads see of a key before they look into the manifest.
  struct View: ~Copyable {
    /// Not there, whatever the manifest has.
    var isGone = false
    /// The put that has the value; nil: the manifest has it.
    var write: QueuedWrite?
    /// Of that put, with those times; filled in by who looks.
    var record = Record()
    /// The times that the entry is to have, of a touch.
    var times: Record?
    /// What the manifest has of versions up to this one is barred. Nil: nothing.
    var barred: UInt64?
  }

  func look(up key: Bytes) -> View {
    var view = View()
    let hash = self.hash(key)
    lock.lock()
    defer { lock.unlock() }
    let boundary = max(clearSequence, barSequence)
    var next = newest(key, hash)
    while let write = next {
      if write.sequence < boundary {
        view.isGone = true
        return view
      }
      if write.isBarred {
        view.barred = write.version
        return view
      }
      // Committed: it is the manifest's, though a touch that is not yet committed refers to it.
      if write.isDone { return view }
      switch write.kind {
      case .touch:
        if view.times == nil { view.times = write.write!.record }
        next = write.base
      case .put where write.refusal == .none:
        view.write = write
        return view
      default:
        view.isGone = true
        return view
      }
    }
    view.isGone = boundary != 0
    return view
  }

  /// Whether a read of this key has to look here.
  func concerns(_ key: Bytes) -> Bool {
    let hash = self.hash(key)
    return lock.withLock {
      clearSequence != 0 || barSequence != 0 || newest(key, hash) != nil
    }
  }

  // MARK: writes

  func submit(_ write: QueuedWrite) {
    lock.lock()
    defer { lock.unlock() }
    lastSequence += 1
    write.sequence = lastSequence
    write.version = write.write?.version ?? 0
    if let last { last.next = write } else { first = write }
    last = write
    switch write.kind {
    case .put where write.isUndecided, .remove where write.isUndecided:
      write.chain = undecided
      undecided = write
    case .put, .remove, .touch:
      if let older = newest(write.key, write.hash) {
        if older.isAnnounced {
          // What makes way for an announced write, which comes later.
          if write.kind == .remove && older.version == write.version { break }
          write.replaced = older.entry?.record
        }
        if write.kind == .touch { write.base = older }
        remove(older)
      }
      insert(write)
    case .clear:
      if write.write?.isOfAllTiers ?? false { clearedVersion = write.version }
      dropAnnounced()
      setBoundary(clear: write.sequence, bar: barSequence)
    case nil:
      break
    }
  }

  /// Shows a put to reads as if it was submitted. False: all tiers have been cleared since.
  func announce(_ write: QueuedWrite) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    write.version = write.write?.version ?? 0
    if write.version <= clearedVersion { return false }
    lastSequence += 1
    write.sequence = lastSequence
    if let older = newest(write.key, write.hash) { remove(older) }
    insert(write)
    write.isAnnounced = true
    announced += 1
    return true
  }

  /// Whether no newer write has come.
  func isAnnounced(_ write: QueuedWrite) -> Bool { lock.withLock { write.isAnnounced } }

  /// Whether the newest write of the key is only announced.
  func isAnnounced(_ key: Bytes) -> Bool {
    let hash = self.hash(key)
    return lock.withLock { newest(key, hash)?.isAnnounced ?? false }
  }

  var announcedCount: UInt64 { lock.withLock { UInt64(announced) } }

  /// A put or a removal of this key that may turn out to be none.
  func undecided(_ key: Bytes) -> QueuedWrite? {
    lock.lock()
    defer { lock.unlock() }
    var next = undecided
    while let write = next {
      if write.key.hasSameBytes(as: key) { return write }
      next = write.chain
    }
    return nil
  }

  private func forget(_ decided: QueuedWrite) {
    if undecided === decided {
      undecided = decided.chain
      decided.chain = nil
      return
    }
    var previous = undecided
    while let at = previous, at.chain !== decided { previous = at.chain }
    guard let previous else { return }
    previous.chain = decided.chain
    decided.chain = nil
  }

  private func dropAnnounced() {
    guard announced > 0 else { return }
    for i in 0..<WriteQueue.tableSize {
      var next = table[i]
      while let write = next {
        next = write.chain
        if write.isAnnounced { remove(write) }
      }
    }
  }

  /// The leader will not store a put that is queued.
  func refuse(_ write: QueuedWrite, _ refusal: TierOutcome, _ failure: Failure?) {
    lock.withLock {
      write.refusal = refusal
      write.refusalFailure = failure
    }
  }

  /// Waits until the write is done, or until the caller is the leader, who commits what `take`
  /// gives him and then calls `finish`. True: the caller leads.
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

  /// Ends the leader's batch and his lead: each write has its results by now. A write with a
  /// failure bars its key.
  func finish(_ batch: [QueuedWrite]) {
    lock.lock()
    for write in batch { finish(write) }
    isLed = false
    let isAwaited = waiters > 0
    lock.unlock()
    if isAwaited { changed.broadcast() }
  }

  private func finish(_ write: QueuedWrite) {
    write.isDone = true
    if undecided != nil && write.isUndecided { forget(write) }
    switch write.kind {
    case .put, .remove:
      let isNewest = newest(write.key, write.hash) === write
      if isNewest { remove(write) }
      guard write.failure != nil else { break }
      if isNewest {
        if !bar(write.key, write.hash, write.version, write.sequence) { barAll() }
      } else {
        // A touch that came after it must not find the older entry either.
        write.isBarred = true
      }
    case .touch:
      let base = write.base
      write.base = nil
      guard newest(write.key, write.hash) === write else {
        if base?.isBarred ?? false { write.isBarred = true }
        break
      }
      remove(write)
      if let base, base.isBarred, write.failure != nil,
        !bar(write.key, write.hash, base.version, write.sequence)
      {
        barAll()
      }
    case .clear:
      if write.failure == nil {
        dropBars(before: write.sequence)
        setBoundary(
          clear: clearSequence == write.sequence ? 0 : clearSequence,
          bar: barSequence < write.sequence ? 0 : barSequence)
      } else {
        setBoundary(
          clear: clearSequence == write.sequence ? 0 : clearSequence,
          bar: max(barSequence, write.sequence))
      }
    case nil:
      break
    }
  }

  // MARK: bars

  private func bar(
    _ key: Bytes, _ hash: UInt64, _ version: UInt64, _ sequence: UInt64, isOfDamage: Bool = false
  ) -> Bool {
    guard bars < WriteQueue.mostBars,
      let copy = try? Block.allocate(key: key, record: Record())
    else { return false }
    let bar = QueuedWrite(copy, hash: hash, version: version, sequence)
    bar.isOfDamage = isOfDamage
    insert(bar)
    return true
  }

  private func barAll() {
    lastSequence += 1
    setBoundary(clear: clearSequence, bar: lastSequence)
  }

  private func dropBars(before sequence: UInt64) {
    guard bars > 0 else { return }
    for i in 0..<WriteQueue.tableSize {
      var next = table[i]
      while let write = next {
        next = write.chain
        if write.isBarred && write.sequence < sequence { remove(write) }
      }
    }
  }

  /// Bars the key of an entry that a read has found damaged, unless a write of it is under
  /// way, which will do away with the entry anyhow.
  func barDamaged(_ key: Bytes, version: UInt64) {
    let hash = self.hash(key)
    lock.lock()
    defer { lock.unlock() }
    guard newest(key, hash) == nil else { return }
    lastSequence += 1
    _ = bar(key, hash, version, lastSequence, isOfDamage: true)
  }

  var hasBars: Bool {
    lock.withLock { bars > 0 || barSequence != 0 }
  }

  /// Up to `limit` bars, whose rows the next transaction removes; and the sequence of the bar
  /// on everything, or 0, for which it advances the generation.
  func collectBars(_ limit: Int, into list: inout [QueuedWrite]) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    if bars > 0 {
      for i in 0..<WriteQueue.tableSize {
        var next = table[i]
        while let write = next, list.count < limit {
          if write.isBarred { list.append(write) }
          next = write.chain
        }
      }
    }
    return barSequence
  }

  /// The rows of these bars are gone.
  func settle(_ settled: [QueuedWrite], barAll sequence: UInt64) {
    lock.lock()
    defer { lock.unlock() }
    for bar in settled where newest(bar.key, bar.hash) === bar { remove(bar) }
    if sequence != 0 {
      dropBars(before: sequence + 1)
      if barSequence <= sequence { setBoundary(clear: clearSequence, bar: 0) }
    }
  }

  // MARK: fork

  func hold(until end: Deadline) -> Bool { lock.lock(until: end) }
  func letGo() { lock.unlock() }

  /// In the child: what waits is the parent's to commit; what is barred stays so. The lock
  /// is held.
  func forgetWrites() {
    changed.renew()
    var bars: [QueuedWrite] = []
    for i in 0..<WriteQueue.tableSize {
      var next = table[i]
      while let write = next {
        next = write.chain
        if write.isBarred { bars.append(write) }
      }
      table[i] = nil
    }
    first = nil
    last = nil
    isLed = false
    waiters = 0
    self.bars = 0
    announced = 0
    overlaid.store(0, ordering: .relaxed)
    let bar = barSequence
    barSequence = 0
    clearSequence = 0
    setBoundary(clear: 0, bar: bar)
    for bar in bars {
      bar.chain = nil
      insert(bar)
    }
  }

  /// In a child that has no part in the directory: nothing is looked up here.
  func leaveBehind() {
    lock.renew()
    changed.renew()
    overlaid.store(0, ordering: .relaxed)
  }

  /// Whether nothing waits.
  var isEmpty: Bool { lock.withLock { first == nil && !isLed } }
}
