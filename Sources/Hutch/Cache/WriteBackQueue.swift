import Synchronization

/// Dirty entries that memory has given up and the store has yet to be given: announced to it,
/// so reads see them there, and not submitted, which is no work for a shard's lock.
///
/// Who takes some writes them. Few wait at any time: a call that makes entries leave takes a
/// batch when enough wait, so what is neither in memory nor on disk does not grow with the
/// number of evictions.
final class WriteBackQueue {
  /// From here on a call that has made one leave writes some.
  private static let most = 32
  private static let mostBytes = 1 << 20
  /// Are written together.
  private static let batch = 64

  /// Protects what is not atomic, and the writes' `next`. Taken under a shard's lock; nothing is
  /// taken under it.
  private let lock: Lock
  /// That a batch has been written while somebody waits for it.
  private let written: Condition
  private var first: StorageWrite?
  private var last: StorageWrite?
  private var waiting = 0
  private var bytes = 0
  /// How many have ever been added, and taken.
  private var added: UInt64 = 0
  private var taken: UInt64 = 0
  /// Of each batch that is being written: how many were taken before it.
  private var batches: [UInt64] = []
  private var waiters = 0
  private var isEnded = false
  /// Relaxed, like `isDue`: each is right some time after the lock was held.
  private let unwritten = Atomic<Int>(0)
  private let due = Atomic<Bool>(false)

  private init(_ lock: consuming Lock, _ written: consuming Condition) {
    self.lock = lock
    self.written = written
  }

  static func make() throws(Failure) -> WriteBackQueue {
    WriteBackQueue(try Lock(), try Condition())
  }

  /// Whether so many wait that a call should write some.
  @inline(__always)
  var isDue: Bool { due.load(ordering: .relaxed) }

  /// How many are submitted and not yet known to be committed, also of those that memory keeps:
  /// they count neither as memory's alone nor as the store's. For a moment after the commit one is
  /// counted twice rather than not at all.
  private let submitted = Atomic<Int>(0)
  var underWay: UInt64 { UInt64(max(0, submitted.load(ordering: .relaxed))) }

  /// One is submitted, or is committed.
  func note(_ change: Int) { _ = submitted.wrappingAdd(change, ordering: .relaxed) }

  /// How many the store has yet to commit, or need not any more.
  var count: UInt64 { UInt64(max(0, unwritten.load(ordering: .relaxed))) }

  /// Its block is the write's.
  func add(_ write: StorageWrite) {
    lock.lock()
    if let last { last.next = write } else { first = write }
    last = write
    waiting += 1
    added += 1
    bytes &+= write.entry?.byteCount ?? 0
    _ = unwritten.wrappingAdd(1, ordering: .relaxed)
    if waiting >= WriteBackQueue.most || bytes >= WriteBackQueue.mostBytes {
      due.store(true, ordering: .relaxed)
    }
    lock.unlock()
  }

  /// From here on who is given up is gone.
  func end() { lock.withLock { isEnded = true } }

  var hasEnded: Bool { lock.withLock { isEnded } }

  /// So many have been added by now.
  var position: UInt64 { lock.withLock { added } }

  /// Those that have waited longest, of the ones that were added before `position`. Empty: none.
  /// Else `finish` is owed, with what is returned.
  func take(before position: UInt64, into writes: inout [StorageWrite]) -> UInt64 {
    lock.lock()
    defer { lock.unlock() }
    let ticket = taken
    while writes.count < WriteBackQueue.batch, taken < position, let write = first {
      first = write.next
      write.next = nil
      if first == nil { last = nil }
      waiting -= 1
      taken += 1
      bytes &-= write.entry?.byteCount ?? 0
      writes.append(write)
    }
    if !writes.isEmpty { batches.append(ticket) }
    due.store(
      waiting >= WriteBackQueue.most || bytes >= WriteBackQueue.mostBytes, ordering: .relaxed)
    return ticket
  }

  func finish(_ ticket: UInt64, _ count: Int) {
    lock.lock()
    batches.removeAll { $0 == ticket }
    _ = unwritten.wrappingSubtract(count, ordering: .relaxed)
    let isAwaited = waiters > 0
    lock.unlock()
    if isAwaited { written.broadcast() }
  }

  /// Waits for the batches of others with entries that were added before `position`: their threads
  /// may be within a codec of the host's.
  func wait(before position: UInt64, until end: Deadline) {
    let before = ThreadState.stepAside()
    lock.lock()
    waiters += 1
    while batches.contains(where: { $0 < position }), !end.hasPassed {
      written.wait(lock, nanoseconds: min(end.left, 1_000_000_000))
    }
    waiters -= 1
    lock.unlock()
    ThreadState.stepBack(to: before)
  }
}
