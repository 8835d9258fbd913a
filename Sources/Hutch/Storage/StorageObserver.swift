/// The calls of a store to the cache above it (see `Storage.watch`).
///
/// A store makes them with none of its locks held, except where a call says otherwise. A store does
/// not keep its observer alive: the observer lives longer than the store is used.
protocol StorageObserver: AnyObject {
  /// Names the cache among the openings of the process (Process.relist).
  var identity: UnsafeMutableRawPointer { get }

  /// The store drops an entry that no call has removed. Called at once and in the order of commits,
  /// with locks of the store held.
  func storeDrops(_ key: Bytes, _ version: UInt64, _ cause: DropCause)
  /// The same afterwards. The call takes the key's stripe.
  func storeDropped(_ key: Bytes, _ version: UInt64)

  /// Where processes share the store: a write of this version, or a touch of it, is committed, and
  /// memory's copy counts under this number. Called with locks of the store held, before the key's
  /// counter has the number, and before the next writer of the key.
  func storeCommits(_ key: Bytes, _ hash: UInt64, _ version: UInt64, _ mark: UInt32)

  /// The time at which a tier above last read the entry of this version; nil if it does not have
  /// the entry. Called also with locks of the store held. The store gets the time
  /// (`Storage.noteAccess`) before the entry leaves the tier above.
  func lastAccess(of key: Bytes, _ version: UInt64) -> Int64?

  /// True if a tier above has the entry of this version and was asked for it of late; `isOften`:
  /// twice. The store asks before it evicts the entry: no read that memory answers comes to the
  /// store. Called with locks of the store held.
  func hasUsed(_ key: Bytes, _ version: UInt64, isOften: Bool) -> Bool

  /// The lines of threads, a bit each, on which no thread reads in the store at this moment but the
  /// calling one (Gate).
  var quietLines: UInt64 { get }

  /// The store is about to be in service again, and from then on no version below `firstVersion`
  /// may be drawn. Called with the store's own locks held, so it must take none.
  func storeReturns(_ firstVersion: UInt64)

  /// The store is out of service, for this reason. Nil: it is in service again, and may have other
  /// entries than before, or none.
  func storeChanged(_ failure: Failure?)

  /// For the host's logger.
  func log(_ line: LogLine)
}

extension Record {
  /// True if the entry has expired, also by the reads that the tiers above have answered: their
  /// last one becomes `accessed`.
  @inline(never)
  mutating func isExpired(
    at now: Int64, under ages: Ages, _ key: Bytes, asking observer: (any StorageObserver)?
  ) -> Bool {
    guard isExpired(at: now, under: ages) else { return false }
    guard ages.mayIdle(own: timeToIdle), let time = observer?.lastAccess(of: key, version),
      time > accessed
    else { return true }
    accessed = time
    return isExpired(at: now, under: ages)
  }
}

extension LogLine {
  static var ofNewLimits: LogLine {
    LogLine(.info, "the opening has changed the limits of the directory")
  }
}

/// Why a store has dropped an entry that no call has removed.
enum DropCause: UInt64 {
  case evicted = 0
  case expired = 1
  case damaged = 2
  /// Left by a write that failed, and barred from reads since.
  case barred = 3
}
