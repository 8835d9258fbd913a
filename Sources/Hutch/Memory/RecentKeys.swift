import CSystem
import Synchronization

/// The keys of recent batches: a guess at which entries the processor's caches have, so that a
/// batch does not prefetch them. A table of 16-bit tags, each at the one place that its hash leads
/// to; a later key takes the place of an earlier one. An entry is some 256 bytes of lines, so the
/// table has as many places as entries fill a cache of one megabyte.
///
/// A wrong guess costs time only, so threads read and write the tags without a lock (relaxed).
struct RecentKeys {
  private static let count = 4096

  /// Nil: there was no memory for it, and every key is new.
  private let tags: UnsafeMutablePointer<Atomic<UInt16>>?

  /// Without a table.
  init() { tags = nil }

  init(_ memory: UnsafeMutableRawPointer) {
    tags = memory.bindMemory(to: Atomic<UInt16>.self, capacity: RecentKeys.count)
  }

  static func make() -> RecentKeys {
    guard let memory = calloc(count, MemoryLayout<Atomic<UInt16>>.stride) else {
      return RecentKeys()
    }
    return RecentKeys(memory)
  }

  func deallocate() { free(tags) }

  /// Whether the key of this hash is not in the table; it is afterwards.
  @inline(__always)
  func isNew(_ hash: UInt64) -> Bool {
    guard let tags else { return true }
    let tag = UInt16(truncatingIfNeeded: hash &>> 24) | 1
    let place = tags + KeyedHash.place(of: hash, mask: RecentKeys.count - 1)
    if place.pointee.load(ordering: .relaxed) == tag { return false }
    place.pointee.store(tag, ordering: .relaxed)
    return true
  }
}
