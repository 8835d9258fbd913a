import CSystem
import Synchronization

/// The part of the index by which the processes that have a directory open keep each other's memory
/// tiers coherent. It is mapped a second time here, and stays at one place in a process's memory
/// while the process's store moves to another directory.
///
///      0  the four secrets of the hash that leads to the counters
///     64  the next version
///    128  members      UInt32: 1, or more if others have or had the directory open
///   4096  the counters of CoherenceCounters
///
/// Before the process has a directory this is memory of the process's own.
final class LogShared {
  static let versions = 64
  static let members = 128
  static let counters = 4096
  static let byteCount = counters + CoherenceCounters.byteCount

  private let base: UnsafeMutableRawPointer
  /// What is mapped before it: a mapping begins with a whole page of the file.
  private let lead = IndexAt.shared & (Mapping.page - 1)
  let counters: CoherenceCounters
  /// True if the memory tier goes by the hash and the counters. Set while the store is opened.
  var isHandedOut = false

  init() throws(Failure) {
    let mapped = mmap(
      nil, lead &+ LogShared.byteCount, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)
    guard let mapped, mapped != UnsafeMutableRawPointer(bitPattern: -1) else { throw .noMemory }
    base = mapped + lead
    counters = CoherenceCounters(base + LogShared.counters, members: base + LogShared.members)
    for i in 0..<4 { word(i * 8).pointee.store(try Entropy.number(), ordering: .releasing) }
    nextVersion.pointee.store(1, ordering: .releasing)
    members.pointee.store(1, ordering: .releasing)
  }

  deinit { munmap(base - lead, lead &+ LogShared.byteCount) }

  private func word(_ offset: Int) -> UnsafeMutablePointer<Atomic<UInt64>> {
    (base + offset).assumingMemoryBound(to: Atomic<UInt64>.self)
  }

  private var members: UnsafeMutablePointer<Atomic<UInt32>> {
    (base + LogShared.members).assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  var nextVersion: UnsafeMutablePointer<Atomic<UInt64>> { word(LogShared.versions) }

  var hash: KeyedHash {
    func load(_ i: Int) -> UInt64 { word(i * 8).pointee.load(ordering: .acquiring) }
    return KeyedHash(load(0), load(1), load(2), load(3))
  }

  /// Memory tiers go by the counters from here on, and did not before: their entries have the
  /// number 0. No other process has the directory open, and no write is under way.
  func resetCounters() {
    for index in 0..<CoherenceCounters.count {
      counters[index].pointee.store(0, ordering: .relaxed)
    }
  }

  /// Notes that a forked child will have the directory open too.
  func noteOthers() { members.pointee.store(2, ordering: .releasing) }

  /// Notes that this process is alone. No other process has the directory open, or opens it at this
  /// moment.
  func noteAlone() { members.pointee.store(1, ordering: .releasing) }

  /// Maps this part of an index. The directory is being opened. `words`: the index, as its store
  /// has mapped it. `isSole`: nothing else has it open, and the counters and the secrets of the
  /// memory tier are copied there; else they must be there. `isAlone`: no other process has it
  /// open, but an earlier store of this one may.
  ///
  /// Other threads draw versions meanwhile, and look at the counters. So all that goes on is in the
  /// index before it is mapped here.
  func attach(
    _ index: Int32, _ words: SharedWords, isSole: Bool, isAlone: Bool
  ) throws(Failure) {
    if isHandedOut {
      if isSole {
        let there = words.base + IndexAt.shared
        memcpy(there, base, 32)
        memcpy(there + LogShared.counters, base + LogShared.counters, CoherenceCounters.byteCount)
        words[IndexAt.versions].pointee.max(
          nextVersion.pointee.load(ordering: .relaxed) &+ Versions.mostDuringChange,
          ordering: .relaxed)
      } else if memcmp(words.base + IndexAt.shared, base, 32) != 0 {
        throw Failure(.busy, "other processes have opened the directory meanwhile")
      }
    }
    let mapped = mmap(
      base - lead, lead &+ LogShared.byteCount, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
      index, off_t(IndexAt.shared &- lead))
    guard mapped == base - lead else { throw .system("cannot map the index") }
    // Else the first look at a counter reads as much of the index as the kernel reads ahead.
    madvise(base - lead, lead &+ LogShared.byteCount, MADV_RANDOM)
    members.pointee.store(isAlone ? 1 : 2, ordering: .releasing)
  }
}

/// The counters by which other memory tiers know that their copies are stale, for the holder of the
/// lock. A write makes its key's counter odd before it changes anything, and even again, with a new
/// number, when it is done. A process that takes the lock over from a dead holder completes the
/// step, so a kill leaves no stale copy that seems to be valid.
struct LogMarks {
  static let all = UInt64.max

  private let words: SharedWords

  @inline(__always)
  init(_ words: SharedWords) { self.words = words }

  @inline(__always)
  private func counter(_ index: Int) -> UnsafeMutablePointer<Atomic<UInt32>> {
    (words.base + (IndexAt.shared + LogShared.counters)).assumingMemoryBound(
      to: Atomic<UInt32>.self) + index
  }

  /// True if another process may have copies. A process that opens the directory makes this true,
  /// and then takes the lock once, before it reads anything: the writes that did not know of it
  /// have ended by then.
  @inline(__always)
  var hasOthers: Bool {
    (words.base + (IndexAt.shared + LogShared.members)).assumingMemoryBound(
      to: Atomic<UInt32>.self).pointee.load(ordering: .acquiring) > 1
  }

  @inline(__always)
  func prefetch(_ index: Int) { hutch_prefetch(counter(index)) }

  @inline(__always)
  func now(_ index: Int) -> UInt32 { counter(index).pointee.load(ordering: .relaxed) & ~1 }

  @inline(__always)
  func begin(_ index: Int) {
    words.store(IndexAt.marking, UInt64(index) + 1)
    if counter(index).pointee.load(ordering: .relaxed) & 1 == 0 { step(index) }
  }

  /// The number that a counter will have when the write under way has ended.
  @inline(__always)
  func after(_ index: Int) -> UInt32 { (counter(index).pointee.load(ordering: .relaxed) &+ 1) & ~1 }

  @inline(__always)
  func end(_ index: Int) {
    if counter(index).pointee.load(ordering: .relaxed) & 1 != 0 { step(index) }
    words.store(IndexAt.marking, 0)
  }

  func beginAll() {
    words.store(IndexAt.marking, LogMarks.all)
    stepAll(from: 0)
  }

  func endAll() {
    stepAll(from: 1)
    words.store(IndexAt.marking, 0)
  }

  /// Steps each counter that is even, or each that is odd. The steps are independent of each other,
  /// so there is a crash point for many of them.
  private func stepAll(from parity: UInt32) {
    for i in 0..<CoherenceCounters.count
    where counter(i).pointee.load(ordering: .relaxed) & 1 == parity {
      counter(i).pointee.wrappingAdd(1, ordering: .releasing)
      if i % 8192 == 0 { CrashPoint.pass() }
    }
  }

  /// Adds one. Other processes may add to the counter at the same time
  /// (CoherenceCounters.dropCopies).
  @inline(__always)
  private func step(_ index: Int) {
    counter(index).pointee.wrappingAdd(1, ordering: .releasing)
    CrashPoint.pass()
  }

  /// Completes the step of a process that died.
  func complete() {
    let marking = words.load(IndexAt.marking)
    if marking == 0 { return }
    if marking > UInt64(CoherenceCounters.count) { endAll() } else { end(Int(marking) - 1) }
  }
}
