/// A fork copies the tier while no thread is within a shard: it is the one time that a thread has
/// more than one of these locks. A block that a thread of the parent has taken out and not yet
/// released stays in the child's memory, unused.
extension MemoryTier {
  /// False: not in time, and none is held.
  func lockAll(until end: Deadline) -> Bool {
    // With the first one's lock their number stays what it is.
    guard lock(0).lock(until: end) else { return false }
    for index in 1..<max(1, shardCount) {
      guard lock(index).lock(until: end) else {
        for taken in 0..<index { lock(taken).unlock() }
        return false
      }
    }
    return true
  }

  func unlockAll(inChild: Bool = false) {
    if inChild {
      lock(0).renewReaders()
      // It is the parent's.
      setUpkeep(false)
    }
    for index in 0..<shardCount {
      if inChild { lock(index).forgetWaiters() }
      lock(index).unlock()
    }
  }
}
