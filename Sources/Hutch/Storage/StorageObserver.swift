/// What a store tells the cache above it of its own accord, and asks of it (see `Storage.watch`).
///
/// With no lock of the store's held, but for `storeDrops` and `storeCommits`. A store does not keep its observer
/// alive: it lives longer than the store is used.
protocol StorageObserver: AnyObject {
  /// What names the cache among the openings of the process (Process.relist).
  var identity: UnsafeMutableRawPointer { get }

  /// An entry goes that nobody asked to remove. At once and in the order of commits, whatever
  /// lock that takes.
  func storeDrops(_ key: Bytes, _ version: UInt64, _ cause: DropCause)
  /// The same afterwards. The key's stripe is taken.
  func storeDropped(_ key: Bytes, _ version: UInt64)

  /// Where processes share the store: a write of this version, or a touch of it, is committed, and
  /// memory's copy counts under this number. Before the key's counter has it, and before who
  /// writes it next.
  func storeCommits(_ key: Bytes, _ version: UInt64, _ mark: UInt32)

  /// When a tier above last read an entry; nil if it does not have it.
  func lastAccess(of key: Bytes) -> Int64?

  /// The store is about to be in service again, and no version below `firstVersion` may be drawn
  /// from then on. Called with the store's own locks held: it takes none.
  func storeReturns(_ firstVersion: UInt64)

  /// The store is out of service, and why; nil: it is in service again, when it may have other
  /// entries than before, or none.
  func storeChanged(_ failure: Failure?)

  /// For the host's logger.
  func log(_ line: LogLine)
}

/// Why a store has dropped an entry that nobody asked it to.
enum DropCause: UInt64 {
  case evicted = 0
  case expired = 1
  case damaged = 2
  /// Left by a write that failed, and not given out since.
  case barred = 3
}
