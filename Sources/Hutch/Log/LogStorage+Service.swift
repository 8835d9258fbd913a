import CSystem
import Synchronization

/// The store goes out of service and comes back; its end; and a fork.
extension LogStorage {
  // MARK: the directory

  /// The time for which writes may miss that the directory has gone; nanoseconds.
  private static let pauseBeforeLook: Int64 = 100_000_000

  /// Called by each write: looks at the directory if the pause since the last look is over.
  @inline(__always)
  func lookIfDue() {
    let now = Clock.read(CLOCK_MONOTONIC_COARSE)
    if now >= nextLook.load(ordering: .relaxed) { look() }
  }

  /// Takes the store out of service if its directory is not at its path any more, or has another
  /// store in it.
  @inline(never)
  func look() {
    let now = Clock.read(CLOCK_MONOTONIC_COARSE)
    nextLook.store(now + LogStorage.pauseBeforeLook, ordering: .relaxed)
    guard let store = live else {
      if service.isTryDue { _ = reopen() }
      return
    }
    // If the file cannot be looked at, or there is no memory for the path, the next look does it.
    guard let own = Files.status(of: store.indexFile.number),
      let isThere = try? store.directory.isAtPath(LogStore.indexName, own), !isThere
    else { return }
    service.goDown(Failure(.tierDown, "the directory was removed or replaced"))
  }

  /// Tries to open the directory again, at its path. True if the store is in service.
  func reopen() -> Bool {
    if belongsToParent || !serviceLock.tryLock() { return false }
    defer { serviceLock.unlock() }
    if isUp { return true }
    service.postponeTry()
    do throws(Failure) {
      // A directory that was removed is made again only if the options say so.
      let directory = try Directory.open(
        path: service.place.path, creating: options.isOptional,
        allowsNetwork: options.allowsNetworkDirectory)
      try attach(directory)
    } catch {
      service.noteFailedTry(error)
      return false
    }
    observer?.storeReturns(firstVersion)
    service.comeBack(isListed: observer == nil)
    return true
  }

  // MARK: the end

  func close(lastVersion: UInt64) -> Failure? {
    guard let store, !belongsToParent else { return nil }
    defer { forgetStores() }
    var failure: Failure?
    do throws(Failure) {
      // A store that is out of service stays so.
      if isUp { look() }
      _ = try serving()
      // Else the next opening would find what a write that failed was to replace.
      try dropBars()
    } catch {
      failure = error
    }
    endFiles(store)
    failure = store.close() ?? failure
    // Of a cache that has been removed, meanwhile too, there is nothing that could be ended.
    if store.directory.hasLost(LogStore.indexName) { return nil }
    return failure?.with(.io, "closed, but the end was not clean")
  }

  // MARK: a fork

  func prepareFork(until end: Deadline) -> Bool {
    guard sweepLock.lock(until: end) else { return false }
    if serviceLock.lock(until: end) {
      if contentLock.lock(until: end) {
        if holdState(until: end) {
          if store?.hold(until: end) ?? true {
            store?.member.noteFork()
            if !mayHaveOthers { shared.resetCounters() }
            hasForked = true
            shared.noteOthers()
            return true
          }
          letStateGo()
        }
        contentLock.unlock()
      }
      serviceLock.unlock()
    }
    sweepLock.unlock()
    return false
  }

  private func holdState(until end: Deadline) -> Bool {
    guard stateLock.lock(until: end) else { return false }
    if service.hold(until: end) { return true }
    stateLock.unlock()
    return false
  }

  private func letStateGo() {
    service.letGo()
    stateLock.unlock()
  }

  func endFork() {
    store?.letGo()
    letStateGo()
    contentLock.unlock()
    serviceLock.unlock()
    sweepLock.unlock()
  }

  /// The child takes a number of its own at once: while it has its parent's, no process can tell
  /// that the parent has died.
  func beginInChild(isPrepared: Bool, observer: any StorageObserver) {
    self.observer = observer
    store?.observer = observer
    guard isPrepared else { return leave() }
    if let store {
      do throws(Failure) {
        store.sweep = LogSweep()
        try store.beginInChild()
        // The parent may have ended, and another process may have noted that it is alone.
        shared.noteOthers()
      } catch {
        endFork()
        return leave()
      }
    }
    endFork()
    leaveFilesToParent()
  }

  func awaken() { store?.beginReading() }

  func closeLocks() { store?.member.leaveToParent() }

  /// Takes the store out of service for good.
  private func leave() {
    closeLocks()
    store?.owed.renew()
    store?.dead.renew()
    store?.inFlight.leaveBehind()
    contentLock.renew()
    stateLock.renew()
    serviceLock.renew()
    sweepLock.renew()
    service.leave()
    belongsToParent = true
  }
}
