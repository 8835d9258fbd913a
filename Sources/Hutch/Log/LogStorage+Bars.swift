import CSystem
import Synchronization

/// Bars: a write of this process has failed, so the store may have an older value of its key. Until
/// that value is removed, no read of this process finds it. Reads of other processes do.
///
/// A write fails while the store is out of service, and while a process that is stopped has the
/// directory's lock. The next write drops the bars first, as do maintenance, a flush and the end:
/// it removes each key's entry, unless that entry is newer than the write that failed. If there
/// are more than `Bars.most`, every key is barred, and the drop clears the store.
///
/// A drop removes the entries with no lock but `serviceLock`. The bars stay until it has ended, so
/// a drop that fails leaves them as they were. A bar that begins during a drop has a higher number
/// than the dropped one of its key, and stays.
extension LogStorage {
  /// Bars a key; nil: every key. `hash`: the key's, by the hash of the tiers above.
  func bar(_ key: Bytes?, _ hash: UInt64) {
    let newest = firstVersion &- 1
    stateLock.withLock {
      lastBar += 1
      if let key { bars.remove(key, hash) }
      // If there is no memory for the bar, every key is barred.
      let isNoted =
        key.map { bars.insert($0, hash, version: newest, lastBar, isOfDamage: false) } ?? false
      if !isNoted {
        barOfAll = lastBar
        bars.removeAll(before: lastBar)
      }
      hasBars.store(true, ordering: .releasing)
    }
  }

  @inline(__always)
  func isBarred(_ key: Bytes, _ hash: UInt64) -> Bool {
    hasBars.load(ordering: .acquiring) && isAmongBars(key, hash)
  }

  @inline(never)
  private func isAmongBars(_ key: Bytes, _ hash: UInt64) -> Bool {
    stateLock.withLock { barOfAll != 0 || bars.find(key, hash) != nil }
  }

  /// Drops the bars, if there are any: before a write, which holds no lock of the storage.
  @inline(__always)
  func dropBars() throws(Failure) {
    if hasBars.load(ordering: .acquiring) { try dropBarsSlowly() }
  }

  @inline(never)
  private func dropBarsSlowly() throws(Failure) {
    serviceLock.lock()
    defer { serviceLock.unlock() }
    guard let store = live else { return }
    try dropBars(from: store, upToTheirVersions: true)
    store.member.stopped.store(0, ordering: .relaxed)
  }

  /// Removes the entries of barred keys. The caller holds `serviceLock`, or no other thread has the
  /// storage yet. `upToTheirVersions`: false if the store may have drawn its versions from another
  /// counter than the bars have.
  func dropBars(from store: LogStore, upToTheirVersions: Bool) throws(Failure) {
    let lifted = liftBars()
    if lifted.isEmpty { return }
    if lifted.all != 0 {
      try store.clear()
    } else {
      let now = Moment.at(clock.latestTime)
      for i in 0..<lifted.count {
        let bar = lifted[i]
        var write = LogWrite(.remove, bar.key, own(bar.hash, bar.key, in: store))
        write.counterHash = bar.hash
        if upToTheirVersions { write.condition = .upTo(bar.version) }
        // Memory's own copy, if it has one, is what the write that failed has put, or newer. It
        // counts after the removal if it did before.
        store.write(&write, at: now) { done in
          observer?.storeCommits(bar.key, bar.hash, 0, done.mark)
        }
        if let failure = write.failure { throw failure }
      }
    }
    forget(lifted)
  }

  private func liftBars() -> LiftedBars {
    stateLock.lock()
    defer { stateLock.unlock() }
    var lifted = bars.lift(Bars.most)
    lifted.all = barOfAll
    return lifted
  }

  /// Ends the bars whose entries have been removed.
  private func forget(_ lifted: borrowing LiftedBars) {
    stateLock.lock()
    defer { stateLock.unlock() }
    bars.remove(lifted)
    if barOfAll == lifted.all { barOfAll = 0 }
    hasBars.store(barOfAll != 0 || !bars.isEmpty, ordering: .releasing)
  }
}
