import CSystem
import Synchronization

/// Counters in memory that all processes share which have a directory open: what one of them
/// writes makes the copies of others stale.
///
/// A key's hash, the same in all processes, leads to one of 65,536 counters. Who writes the
/// key makes its counter odd before the COMMIT and even again after it, under the directory's
/// writer lock. A copy remembers the counter as it was, even, before the entry was read (or,
/// for a writer's own entry, after its commit), and counts only while that has not changed:
///   - an entry that was read before the COMMIT was visible has an older number, for the
///     writer adds to it once more afterwards;
///   - an entry that is read during the COMMIT is not kept at all, the number being odd;
///   - a writer that dies in between leaves an odd number: the key's entries are read from
///     disk, until whoever next has the writer lock makes it even.
/// A clear does so with every counter. Keys that share a counter lose their copies with each
/// other, never their entries. An eviction leaves the counters alone: a copy of an entry that
/// was evicted elsewhere is still its newest version.
///
/// The numbers have 32 bits: a copy would come back to life if, between two looks at it,
/// exactly 2^32 steps were made.
struct CoherenceCounters {
  typealias Counter = Atomic<UInt32>

  static let count = 65_536
  static let byteCount = count * 4

  private let base: UnsafeMutablePointer<Counter>
  /// How many openings there are. Changes under the writer lock.
  private let members: UnsafeMutablePointer<Counter>

  init(_ base: UnsafeMutableRawPointer, members: UnsafeMutableRawPointer) {
    self.base = base.assumingMemoryBound(to: Counter.self)
    self.members = members.assumingMemoryBound(to: Counter.self)
  }

  @inline(__always)
  static func index(of hash: UInt64) -> Int { Int(truncatingIfNeeded: hash &>> 12 & 0xFFFF) }

  @inline(__always)
  subscript(_ index: Int) -> UnsafeMutablePointer<Counter> { base + index }

  /// The number to remember; odd: a write is under way, and nothing is to be remembered.
  /// Acquire: what is read from disk after it is no older than the number says.
  @inline(__always)
  func mark(_ hash: UInt64) -> UInt32 {
    base[CoherenceCounters.index(of: hash)].load(ordering: .acquiring)
  }

  /// Asks for the cache line of a counter that is looked at in a moment.
  @inline(__always)
  func prefetch(_ hash: UInt64) {
    hutch_prefetch(base + CoherenceCounters.index(of: hash))
  }

  /// Whether a block in the memory tier still counts. A host's object does: no other process has
  /// any part in it.
  @inline(__always)
  func isCurrent(_ block: UnownedBlock, _ hash: UInt64) -> Bool {
    mark(hash) == block.mark || hash & KeyedHash.kindBits != 0
  }

  /// Whether a block counted when a commit began that has not ended, or will when it has: what the
  /// store showed before is no newer.
  func isBeingChanged(_ block: UnownedBlock, _ hash: UInt64) -> Bool {
    let now = mark(hash)
    return now & 1 != 0 && (now == block.mark &+ 1 || now == block.mark &- 1)
  }

  var hasOthers: Bool { members.pointee.load(ordering: .acquiring) > 1 }

  /// Makes copies stale without a commit: of a key that has no row to remove, but may have been
  /// evicted from disk and be in the memory of others. By two, so that it is odd or even as it
  /// was, whoever has the writer lock.
  func dropCopies(_ hash: UInt64) {
    guard hasOthers else { return }
    base[CoherenceCounters.index(of: hash)].wrappingAdd(2, ordering: .releasing)
  }
}
