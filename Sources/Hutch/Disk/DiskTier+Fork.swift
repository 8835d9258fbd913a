import CSystem
import Synchronization

/// A fork (Cache/Forking.swift has the whole of it). SQLite's table of locks is the process's: a
/// child inherits it, and with it locks that it does not hold. So no connection may be open at
/// the fork, in either of the two; they are opened again when they are next needed.
///
/// Before it, in this order, are taken: the writer lock, with the turn among processes; the
/// readers', the queue's, the state's, the files' and the access times'. With the writer lock and
/// the readers' held every connection is closed. If it is not to be, they stay open, for the
/// child does not touch its copies.
///
/// From then on the child is one more member of the directory (DiskTier+Sharing.swift): it has a
/// turn and a presence of its own, and the same shared state. Before its first fork an EXCLUSIVE
/// tier keeps its turn and has no other members; from then on it takes turns like a SHARED one.
///
/// The child is counted as a member before it is there, and its presence is locked, so that what
/// it remembers is never less than coherent, and the parent never takes itself for alone.
extension DiskTier {
  var sharing: StorageSharing? {
    mayHaveOthers
      ? StorageSharing(counters: shared.counters, nextVersion: shared.nextVersion) : nil
  }

  // MARK: before

  /// No write is under way, says the caller. False: the child cannot have the directory, and no
  /// lock is held. Else `endFork`, or in the child `beginInChild`, is owed.
  func prepareFork(until end: Deadline) -> Bool {
    guard writerMutex.lock(until: end) else { return false }
    do throws(Failure) {
      try makeForChild(until: end)
    } catch {
      counters.failures.add()
      writerMutex.unlock()
      return false
    }
    if sleep(until: end) {
      if holdRest(until: end) { return true }
      readers.endHold()
    }
    // There will be no child that would be counted.
    if forChild >= 0 {
      shared.members = max(1, shared.members) - 1
      shared.idleMembers = max(1, shared.idleMembers) - 1
    }
    closeForChild()
    writerMutex.unlock()
    return false
  }

  /// The lock's open file that the child will have, and its membership. Nothing for a tier that
  /// has never been in service: the child will see for itself.
  private func makeForChild(until end: Deadline) throws(Failure) {
    guard let directoryLock else { return }
    directoryLock.shareTurn()
    shared.isHandedOut = true
    mayHaveOthers = true
    var pause: useconds_t = 0
    while !directoryLock.tryTurn() {
      if end.hasPassed { throw Failure(.timedOut, "another process writes") }
      pause = min(pause + 20, 1000)
      usleep(pause)
    }
    defer { directoryLock.endTurn() }
    forChild = try directoryLock.makeForChild(place)
    shared.members += 1
    shared.idleMembers += 1
  }

  /// Closes every connection. True: the readers' locks are held.
  private func sleep(until end: Deadline) -> Bool {
    guard readers.closeAndHold(until: end) else { return false }
    if let manifest {
      manifest.leaveAsIs()
      self.manifest = nil
      isAsleep = isUp
    }
    return true
  }

  /// The locks that are held for a few steps only.
  private func holdRest(until end: Deadline) -> Bool {
    guard queue.hold(until: end) else { return false }
    if stateLock.lock(until: end) {
      if inFlight.hold(until: end) {
        if accesses.hold(until: end) { return true }
        inFlight.letGo()
      }
      stateLock.unlock()
    }
    queue.letGo()
    return false
  }

  private func letGo() {
    accesses.letGo()
    inFlight.letGo()
    stateLock.unlock()
    queue.letGo()
    readers.endHold()
    writerMutex.unlock()
  }

  private func closeForChild() {
    if forChild >= 0 { CSystem.close(forChild) }
    forChild = -1
  }

  // MARK: after

  /// In the parent.
  func endFork() {
    closeForChild()
    letGo()
  }

  /// In the child. What is not prepared is the parent's alone.
  func beginInChild(isPrepared: Bool, observer: any StorageObserver) {
    self.observer = observer
    replaceIdleSearch()
    guard isPrepared else {
      leave()
      return
    }
    if forChild >= 0 { directoryLock?.takeOver(forChild) }
    forChild = -1
    hasParentsState = true
    isAsleep = true
    queue.forgetWrites()
    letGo()
  }

  /// The first turn after a fork.
  func wake() throws(Failure) {
    isAsleep = false
    if hasParentsState { dropParentsState() }
    guard isUp, manifest == nil else { return }
    do throws(Failure) {
      manifest = try Manifest.open(place, durability)
    } catch {
      goDown(error)
      throw error
    }
    // Whatever it has, it is to be asked.
    sequence = shared.begun &- 1
  }

  /// What this tier has under way is the parent's.
  private func dropParentsState() {
    hasParentsState = false
    shared.idleMembers = max(1, shared.idleMembers) - 1
    trash = Trash()
    evictor = Evictor()
    sweeper = Sweeper()
    upkeep = Upkeep()
    orphans = OrphanSweep()
    accesses.forget()
    inFlight.forget()
  }

  /// In the child: it has its turn before it leaves anything behind in the directory.
  func awaken() { writerLock.withLock {} }

  // MARK: a child without a part in the directory

  /// Gives up the copies of the lock's descriptors, which would keep the directory locked for as
  /// long as this process lives.
  func closeLocks() {
    for number in [lockNumber.exchange(-1, ordering: .relaxed),
      doorNumber.exchange(-1, ordering: .relaxed)] where number >= 0
    {
      CSystem.close(number)
    }
  }

  /// Out of service for ever. Nothing of the parent's is closed or freed: it may be in the midst
  /// of a change, and SQLite's connections must not be touched.
  private func leave() {
    closeLocks()
    if let directoryLock { _ = Unmanaged.passRetained(directoryLock) }
    if let manifest { _ = Unmanaged.passRetained(manifest) }
    // Versions are still drawn from there.
    _ = Unmanaged.passRetained(shared)
    directoryLock = nil
    manifest = nil
    mayHaveOthers = false
    readers.leaveBehind()
    queue.leaveBehind()
    accesses.leaveBehind()
    writerMutex.renew()
    stateLock.renew()
    inFlight.leaveBehind()
    up.store(false, ordering: .releasing)
    isAsleep = false
    hasParentsState = false
    isTold = true
    reason = Failure(.forked, "the disk tier belongs to the parent of this process")
    isLeft = true
  }
}
