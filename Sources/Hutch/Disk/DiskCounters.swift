import Synchronization

/// The numbers of the tier that threads read without its lock. Relaxed, except for `trash`: each
/// number is right by itself.
final class DiskCounters: StorageCounters {
  let storage = Atomic<UInt32>(0)
  let count = Atomic<UInt64>(0)
  let cost = Atomic<UInt64>(0)
  /// The part of `cost` for content files that have been removed and are not unlinked yet.
  let trash = Atomic<UInt64>(0)
}
