import CSystem
import Synchronization

/// The store goes out of service and comes back; its end; and a fork.
extension LogStorage {
  // MARK: the directory

  /// The time for which writes may miss that the directory has gone, and the time until a directory
  /// that could not be used is tried again; nanoseconds.
  private static let pauseBeforeLook: Int64 = 100_000_000
  private static let pauseBeforeTry: Int64 = 1_000_000_000

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
      if now >= nextTry.load(ordering: .relaxed) { _ = reopen() }
      return
    }
    // If the file cannot be looked at, or there is no memory for the path, the next look does it.
    guard let own = Files.status(of: store.indexFile.number),
      let isThere = try? store.directory.isAtPath(LogStore.indexName, own), !isThere
    else { return }
    goDown(Failure(.tierDown, "the directory was removed or replaced"))
  }

  private func goDown(_ failure: Failure) {
    stateLock.withLock {
      guard isUp else { return }
      reason = failure
      up.store(false, ordering: .releasing)
      noteChange(failure)
      postponeTry()
    }
  }

  /// Notes that the store has gone out of service, with the reason, or is back. Under `stateLock`.
  func noteChange(_ failure: Failure?) {
    untoldChanges = untoldChanges == 2 ? 1 : untoldChanges + 1
    if let failure { lastFailure = failure }
    owesNews.store(true, ordering: .relaxed)
  }

  func postponeTry() {
    nextTry.store(
      Clock.read(CLOCK_MONOTONIC) + LogStorage.pauseBeforeTry, ordering: .relaxed)
  }

  /// Tries to open the directory again, at its path. True if the store is in service.
  func reopen() -> Bool {
    if belongsToParent || !serviceLock.tryLock() { return false }
    defer { serviceLock.unlock() }
    if isUp { return true }
    postponeTry()
    let here = stateLock.withLock { self.place }
    do throws(Failure) {
      // A directory that was removed is made again only if the options say so.
      let directory = try Directory.open(
        path: here.path, creating: options.isOptional,
        allowsNetwork: options.allowsNetworkDirectory)
      try attach(directory)
    } catch {
      stateLock.withLock { reason = error }
      return false
    }
    isListed.store(observer == nil, ordering: .relaxed)
    observer?.storeReturns(firstVersion)
    stateLock.withLock {
      up.store(true, ordering: .releasing)
      noteChange(nil)
    }
    return true
  }

  /// Tells the process's list where the store is now. Maintenance tries again if that fails: until
  /// the list has the directory, another opening of it is answered with `busy`.
  func list() {
    guard let observer, isUp, !isListed.load(ordering: .relaxed) else { return }
    let place = stateLock.withLock { self.place }
    if Process.relist(observer.identity, device: place.device, inode: place.inode) {
      isListed.store(true, ordering: .relaxed)
    }
  }

  /// Tells the observer of the changes that it does not know of, in their order. The caller holds
  /// no lock.
  func tellState() {
    guard let observer, owesNews.load(ordering: .relaxed) else { return }
    let (changes, isUp, failure) = stateLock.withLock { () -> (Int, Bool, Failure?) in
      defer { untoldChanges = 0 }
      owesNews.store(false, ordering: .relaxed)
      return (untoldChanges, self.isUp, lastFailure)
    }
    // The last change led to `isUp`, the one before it to the other state.
    for left in (0..<changes).reversed() {
      if isUp == (left == 0) {
        list()
        observer.storeChanged(nil)
      } else {
        observer.storeChanged(failure)
      }
    }
  }

  var downFailure: Failure {
    let words: StaticString = "the disk tier is out of service"
    guard let reason = stateLock.withLock({ reason }) else { return Failure(.tierDown, words) }
    if belongsToParent { return reason }
    return reason.with(.tierDown, words)
  }

  // MARK: the end

  func close(lastVersion: UInt64) -> Failure? {
    guard let store, !belongsToParent else { return nil }
    defer { forgetStores() }
    // A store that is out of service stays so.
    if isUp { look() }
    endFiles(store)
    let failure = store.close()
    up.store(false, ordering: .releasing)
    // Of a cache that has been removed, meanwhile too, there is nothing that could be ended.
    if store.directory.hasLost(LogStore.indexName) { return nil }
    let words: StaticString = "closed, but the end was not clean"
    if let failure { return failure.with(.io, words) }
    return stateLock.withLock({ reason }) == nil ? nil : downFailure.with(.io, words)
  }

  // MARK: a fork

  func prepareFork(until end: Deadline) -> Bool {
    guard sweepLock.lock(until: end) else { return false }
    if serviceLock.lock(until: end) {
      if contentLock.lock(until: end) {
        if stateLock.lock(until: end) {
          if store?.hold(until: end) ?? true {
            store?.member.noteFork()
            if !mayHaveOthers { shared.resetCounters() }
            hasForked = true
            shared.noteOthers()
            return true
          }
          stateLock.unlock()
        }
        contentLock.unlock()
      }
      serviceLock.unlock()
    }
    sweepLock.unlock()
    return false
  }

  func endFork() {
    store?.letGo()
    stateLock.unlock()
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
    up.store(false, ordering: .releasing)
    untoldChanges = 0
    owesNews.store(false, ordering: .relaxed)
    belongsToParent = true
    reason = Failure(.forked, "the disk tier belongs to the parent of this process")
  }
}
