/// A store that the child of a fork can have too: see Forking.
protocol ForkingStorage: AnyObject {
  /// Prepares for a fork: gives up everything that a process can have only once, and takes locks so
  /// that a copy of the store's memory is consistent. No write is in progress. False: not in time,
  /// or not at all, and no lock is held.
  func prepareFork(until end: Deadline) -> Bool
  /// In the parent, for a store that is prepared.
  func endFork()
  /// In the child: the store becomes another opening of the same directory, with this observer. A
  /// store that is not prepared is out of service for ever, with HUTCH_FORKED as the reason.
  func beginInChild(isPrepared: Bool, observer: any StorageObserver)
  /// In the child, before its first use of the store; perhaps by several threads.
  func awaken()
  /// In a child that does not use the cache at all: gives up what would keep other processes out.
  func closeLocks()
}
