import CSystem
import Synchronization

/// Bars: a write of this process has failed, so the store may have an older value of its key. Until
/// that value is removed, no read of this process finds it. Other processes do.
///
/// A write fails while the store is out of service, and while a process that is stopped has the
/// directory's lock. The next write drops the bars first: it removes each key's entry, unless that is
/// newer than the write that failed. If there are more than `mostBarred`, every key is barred, and
/// the drop clears the store.
extension LogStorage {
  private static let mostBarred = 65_536

  /// `key`: nil, and every key is barred.
  func bar(_ key: Bytes?) {
    let newest = Int64(bitPattern: firstVersion &- 1)
    stateLock.withLock {
      // A key that there is no memory for stands for every key.
      let isNoted = key.map { (try? barred.append($0, newest)) != nil } ?? false
      barredCount += 1
      if !isNoted || barredCount > LogStorage.mostBarred {
        barsOfAll += 1
        barredCount = 0
        barred.removeAll()
      }
      hasBars.store(true, ordering: .releasing)
    }
  }

  @inline(__always)
  func isBarred(_ key: Bytes) -> Bool {
    hasBars.load(ordering: .acquiring) && isAmongBars(key)
  }

  @inline(never)
  private func isAmongBars(_ key: Bytes) -> Bool {
    stateLock.withLock {
      if barsOfAll > 0 { return true }
      var isFound = false
      func look(_ other: Bytes, _ version: Int64) {
        isFound = isFound || other.hasSameBytes(as: key)
      }
      barred.forEach(look)
      leaving.forEach(look)
      return isFound
    }
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

  /// With `serviceLock` held, or before any other thread has the storage. `upToTheirVersions`: false
  /// where the versions of the store may not be those of the bars.
  func dropBars(from store: LogStore, upToTheirVersions: Bool) throws(Failure) {
    let ofAll = stateLock.withLock { () -> Int in
      // Of a drop that has failed some are left.
      leaving.forEach { key, version in
        if (try? barred.append(key, version)) == nil { barsOfAll += 1 }
      }
      leaving.removeAll()
      swap(&leaving, &barred)
      barredCount = 0
      return barsOfAll
    }
    var failure: Failure?
    if ofAll > 0 {
      try store.clear()
    } else {
      let now = Moment.at(Clock.read(CLOCK_REALTIME))
      leaving.forEach { key, version in
        guard failure == nil else { return }
        var write = LogWrite(.remove, key, store.hash.entry(key))
        write.counterHash = hash.entry(key)
        if upToTheirVersions { write.condition = .upTo(UInt64(bitPattern: version)) }
        store.write(&write, at: now)
        failure = write.failure
      }
    }
    if let failure { throw failure }
    stateLock.withLock {
      leaving.removeAll()
      barsOfAll -= ofAll
      hasBars.store(barsOfAll > 0 || !barred.isEmpty, ordering: .releasing)
    }
  }
}
