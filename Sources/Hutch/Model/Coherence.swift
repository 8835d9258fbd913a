import CSystem
import Synchronization

/// Counters in memory shared by all processes that have a directory open: a write of one process
/// makes the copies in the others stale.
///
/// A key's hash, the same in all processes, selects one of 65,536 counters. A process that writes
/// the key makes its counter odd before the COMMIT and even again after it, under the directory's
/// writer lock. A copy remembers the counter as it was, even, before the entry was read (or, for a
/// writer's own entry, after its commit). The copy counts only while that number has not changed:
///   - an entry that was read before the COMMIT was visible has an older number, since
///     the writer adds to it once more afterwards;
///   - an entry that is read during the COMMIT is not kept at all, since the number is odd;
///   - a writer that dies in between leaves an odd number: the key's entries are then read from
///     disk, until the next holder of the writer lock makes it even.
/// A clear does this with every counter. Keys that share a counter lose their copies together,
/// never their entries. An eviction leaves the counters alone: a copy of an entry that another
/// process evicted is still its newest version.
///
/// The numbers have 32 bits: a stale copy would count again if exactly 2^32 steps were made between
/// two looks at it.
struct CoherenceCounters {
  typealias Counter = Atomic<UInt32>

  static let count = 65_536
  static let byteCount = count * 4

  private let base: UnsafeMutablePointer<Counter>
  /// The number of openings. Changes under the writer lock.
  private let members: UnsafeMutablePointer<Counter>

  init(_ base: UnsafeMutableRawPointer, members: UnsafeMutableRawPointer) {
    self.base = base.assumingMemoryBound(to: Counter.self)
    self.members = members.assumingMemoryBound(to: Counter.self)
  }

  @inline(__always)
  static func index(of hash: UInt64) -> Int { KeyedHash.place(of: hash, mask: count - 1) }

  @inline(__always)
  subscript(_ index: Int) -> UnsafeMutablePointer<Counter> { base + index }

  /// The number to remember. Odd: a write is in progress, and the copy must not be kept. Acquire:
  /// what is read from disk afterwards is at least as new as the number.
  @inline(__always)
  func mark(_ hash: UInt64) -> UInt32 {
    base[CoherenceCounters.index(of: hash)].load(ordering: .acquiring)
  }

  /// Prefetches the cache line of a counter that is read soon.
  @inline(__always)
  func prefetch(_ hash: UInt64) {
    hutch_prefetch(base + CoherenceCounters.index(of: hash))
  }

  /// True if a block in the memory tier still counts. A host's object always does, since it exists
  /// in its process only.
  @inline(__always)
  func isCurrent(_ block: UnownedBlock, _ hash: UInt64) -> Bool {
    mark(hash) == block.mark || hash & KeyedHash.kindBits != 0
  }

  /// True if a block counted when a commit began that has not ended, or will count when it has:
  /// what the store showed before is not newer.
  func isBeingChanged(_ block: UnownedBlock, _ hash: UInt64) -> Bool {
    let now = mark(hash)
    return now & 1 != 0 && (now == block.mark &+ 1 || now == block.mark &- 1)
  }

  var hasOthers: Bool { members.pointee.load(ordering: .acquiring) > 1 }

  /// Makes copies stale without a commit: for a key that has no row to remove, but may have been
  /// evicted from disk and be in the memory of other processes. It adds two, so the counter stays
  /// odd or even, whichever process has the writer lock.
  func dropCopies(_ hash: UInt64) {
    guard hasOthers else { return }
    base[CoherenceCounters.index(of: hash)].wrappingAdd(2, ordering: .releasing)
  }
}
