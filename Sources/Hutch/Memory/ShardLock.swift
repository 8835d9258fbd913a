import CSystem
import Synchronization

/// The lock of a shard. A call that takes it has the shard for itself; but reads of the short path
/// (HitPath.swift) may share a shard that several threads read.
///
/// Threads that take one lock take its cache line from each other, which costs more than a read. So
/// a shard gets a bias when reads have often had to wait for its lock. While it has the bias, a
/// read takes the lock of a line that only its thread uses, or few threads do. A thread that has to
/// wait for its line takes another one.
///
///     bias   a short read holds                any other call holds
///     no     the shard's lock                  the shard's lock
///     yes    the lock of its thread's line;    the shard's lock, and has ended the bias; then it
///            or the shard's, if it has found   has taken and released the lock of each line,
///            no bias before                    after which no read is under one
///
/// A read looks at the bias again when it has the lock of its line. If that is before the other
/// call takes the same lock, the call waits for the read. If it is after that, the read finds that
/// the bias has ended.
///
/// This is BRAVO (Dice and Kogan, BRAVO - Biased Locking for Reader-Writer Locks, USENIX ATC 2019)
/// with locks in place of its table of readers. To end a bias costs about as much as a few waits,
/// more with more lines. So a bias takes more waits than a quarter of the lines, with no other call
/// in between: where writes are frequent there is none. Where one thread reads, a bias only costs.
/// So the biases end when each of sixteen successive turns, about 256 hits from each other, was of
/// one line. They end for reads to come: the call is itself under a lock, and must not wait for
/// another. The next call that is no short read takes the lines' locks.
///
/// WHAT READS SHARE. All that reads change is atomic: the uses in a word, a block's stamp and
/// references, the shard's clock. Of two changes at once one may be lost. The table, the rest of
/// its words, and the blocks stay as they are. Hits and misses are counted in the line of the lock
/// that is held. The default policy's samples are taken under the shard's lock, if it is free.
/// Another policy is told of each hit, so its shards have no bias.
///
/// ORDER OF LOCKS. The shard's, then that of one line. A read that has the lock of a line waits for
/// no other lock but the selector's.
struct ShardLock {
  /// On the cache line of a lock, behind it: what reads under the lock write. A line of readers has
  /// use for the ticks and the counts only.
  struct Line: ~Copyable {
    private var callsToTick: UInt8 = 1
    /// Whether reads may be under the locks of lines: from the time the shard gets a bias until a
    /// call has taken those locks.
    fileprivate var mayHaveReaders = false
    /// How many short reads have had to wait for the lock since the last other call. Not 0 while
    /// there may be reads under the locks of lines.
    fileprivate var waits: Int32 = 0
    let hits = Counter()
    let misses = Counter()
    /// The tier's, whose calls count the biases.
    let path: HitPath
    fileprivate let readers: UnsafeMutableRawPointer
    private let lastReader: Int32

    fileprivate init(_ path: HitPath, _ readers: UnsafeMutableRawPointer, _ count: Int) {
      self.path = path
      self.readers = readers
      lastReader = Int32(count - 1)
    }

    @inline(__always) fileprivate var readerCount: Int { Int(lastReader) &+ 1 }
    /// The index of this thread's.
    @inline(__always) fileprivate var ownReader: Int { ThreadState.reader & Int(lastReader) }

    /// Keeps the clock of a shard about right: every 16th read reads the time.
    @inline(__always)
    var isTimeToTick: Bool {
      mutating get {
        callsToTick &-= 1
        return callsToTick == 0
      }
    }

    mutating func startTicks() { callsToTick = 16 }

    /// Whether `isTimeToTick` was true the last time.
    var isTimeNow: Bool { callsToTick == 0 }

    /// The line of readers that had the last turn (`isAlone`) and, in the lowest 8 bits, how many
    /// it had before that in a row. Behind the lines.
    @inline(__always)
    fileprivate var turns: UnsafeMutablePointer<Atomic<UInt64>> {
      (readers + readerCount * ShardLock.readerSize)
        .assumingMemoryBound(to: Atomic<UInt64>.self)
    }
  }

  /// The shard of a read, and the lock that the read holds.
  struct Reading {
    /// The shard's.
    let lock: ShardLock
    fileprivate let held: ShardLock

    @inline(__always) var line: UnsafeMutablePointer<Line> { held.line }
    @inline(__always) func unlock() { held.inner.unlock() }

    /// Runs `body`, which tells the policy of a read, with the shard's lock held; not at all, if
    /// another call has that lock and the read has not.
    @inline(__always)
    func tell(_ body: () -> Void) {
      let isOther = lock.raw != held.raw
      if isOther && !lock.inner.tryLock() { return }
      body()
      if isOther { lock.inner.unlock() }
    }

    /// Whether one thread reads: all of the last sixteen turns were of its line. Asked every 16th
    /// hit of a line, while there is a bias; one in 16 of those is a turn. True begins anew.
    var isAlone: Bool {
      if line.pointee.hits.value >> 4 & 15 != 0 { return false }
      let own = UInt64(lock.line.pointee.ownReader) << 8
      let turns = lock.line.pointee.turns
      let last = turns.pointee.load(ordering: .relaxed)
      let isFull = last == own | 15
      // Of two at once one may be lost.
      turns.pointee.store(
        last & ~255 == own && !isFull ? last + 1 : own, ordering: .relaxed)
      return isFull
    }
  }

  /// The line of the lock; on the next one the bias and the shard's state.
  let raw: UnsafeMutableRawPointer

  @inline(__always) init(at raw: UnsafeMutableRawPointer) { self.raw = raw }

  /// The bytes before a shard's state.
  static var size: Int { 72 }
  /// Of a line of readers, and the next, for processors that fetch two.
  private static var readerSize: Int { 128 }
  /// One more for `turns`.
  static func lines(ofReaders count: Int) -> Int { (count + 1) * readerSize / 64 }

  @inline(__always) private var inner: LockInPlace { LockInPlace(at: raw) }
  @inline(__always)
  var line: UnsafeMutablePointer<Line> {
    (raw + LockInPlace.byteCount).assumingMemoryBound(to: Line.self)
  }

  /// The state that the lock protects.
  @inline(__always)
  var shard: UnsafeMutablePointer<Shard> {
    (raw + ShardLock.size).assumingMemoryBound(to: Shard.self)
  }

  /// Whether there is a bias. Changes under the lock. It is not on the lock's line, which a read
  /// that looks first would have to fetch twice.
  @inline(__always)
  private var bias: UnsafeMutablePointer<Atomic<Bool>> {
    (raw + 64).assumingMemoryBound(to: Atomic<Bool>.self)
  }

  /// In zeroed memory. `readers`: the lines of readers that all shards have together, zeroed too;
  /// their number is a power of two.
  func initialize(_ path: HitPath, _ readers: UnsafeMutableRawPointer, _ count: Int) {
    line.initialize(to: Line(path, readers, count))
  }

  /// The line of a reader, for this or any shard of the tier.
  func reader(_ index: Int) -> ShardLock {
    ShardLock(at: line.pointee.readers + index &* ShardLock.readerSize)
  }

  /// Calls `body` with each line of readers.
  func forEachReader(_ body: (ShardLock) -> Void) {
    for i in 0..<line.pointee.readerCount { body(reader(i)) }
  }

  /// For all but short reads.
  @inline(__always)
  func lock() {
    inner.lock()
    if _slowPath(line.pointee.waits != 0) { endBias() }
  }

  @inline(never) func lockByCall() { lock() }

  /// As that of `Lock`.
  func lock(until end: Deadline) -> Bool {
    guard inner.lock(until: end) else { return false }
    endBias()
    return true
  }

  @inline(__always) func unlock() { inner.unlock() }
  @inline(never) func unlockByCall() { inner.unlock() }
  /// For a call that soon takes the lock again: threads that wait for it come first.
  func unlockFairly() { inner.unlockFairly() }

  /// If there is one. The lock is held.
  @inline(never)
  private func endBias() {
    line.pointee.waits = 0
    if !line.pointee.mayHaveReaders { return }
    line.pointee.mayHaveReaders = false
    takeBias()
    forEachReader { reader in
      reader.inner.lock()
      reader.inner.unlock()
    }
  }

  /// If there is one. The lock is held.
  @inline(never)
  private func takeBias() {
    if !isBiased { return }
    // The releases of the lines' locks publish it.
    bias.pointee.store(false, ordering: .relaxed)
    line.pointee.path.countBias(-1)
  }

  /// For reads to come, if there is one and the lock is free. Waits for no lock.
  @inline(never)
  fileprivate func endBiasForReads() {
    guard isBiased, inner.tryLock() else { return }
    takeBias()
    inner.unlock()
  }

  /// For a short read, which changes nothing but what reads share.
  @inline(__always)
  func lockToRead() -> Reading {
    if _slowPath(!inner.take()) { wait() }
    ThreadState.countLocks(1)
    return Reading(lock: self, held: self)
  }

  /// If it is free. Where the shard has no bias.
  @inline(__always)
  func takeAtOnce() -> Bool { inner.tryLock() }

  /// The first step of `unlock`. True: threads sleep for it, and the next step is `wake`.
  @inline(__always)
  func releaseAtOnce() -> Bool { inner.release() }
  func wake() { inner.wake() }

  /// This lock, which is held.
  @inline(__always) var reading: Reading { Reading(lock: self, held: self) }

  /// The same, where the shard may have a bias.
  @inline(never)
  func lockToReadShared() -> Reading {
    guard _fastPath(isBiased) else { return lockToRead() }
    let own = reader(line.pointee.ownReader)
    if _slowPath(!own.inner.take()) { own.waitAsReader() }
    ThreadState.countLocks(1)
    // Acquire: what was done under the lock before the bias was given.
    if _fastPath(bias.pointee.load(ordering: .acquiring)) { return Reading(lock: self, held: own) }
    own.inner.unlock()
    return lockToRead()
  }

  /// Of a line of readers: for its lock. Another thread may read by the same line, and two threads
  /// that take one line from each other are slower than one alone. This thread has the next line
  /// from here on. If there are more lines than threads that read, each soon has one to itself.
  @inline(never)
  private func waitAsReader() {
    ThreadState.moveToNextReader()
    inner.lockSlowly()
  }

  /// For the lock, which another thread has.
  @inline(never)
  private func wait() {
    inner.lockSlowly()
    if isBiased || !shard.pointee.policy.isAdaptive { return }
    line.pointee.waits += 1
    if Int(line.pointee.waits) * 4 > line.pointee.readerCount { giveBias() }
  }

  /// The lock is held, and there is no bias.
  func giveBias() {
    line.pointee.waits = 1
    line.pointee.mayHaveReaders = true
    line.pointee.path.countBias(1)
    // Release: see `lockToReadShared`.
    bias.pointee.store(true, ordering: .releasing)
  }

  var isBiased: Bool { bias.pointee.load(ordering: .relaxed) }

  // MARK: fork

  func forgetWaiters() { inner.forgetWaiters() }

  /// In the child of a fork: a thread of the parent may have had the lock of a line, and been about
  /// to find that the bias had ended.
  func renewReaders() { forEachReader { $0.inner.initialize() } }
}

extension HitPath {
  /// For reads to come, of all shards whose lock is free.
  func endBiases() {
    tier._withUnsafeGuaranteedRef { tier in
      for i in 0..<tier.shardCount { tier.lock(i).endBiasForReads() }
    }
  }
}
