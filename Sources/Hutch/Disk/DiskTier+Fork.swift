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
/// The child is counted as a member before it is there, and its presence is locked. So its copies
/// of entries are coherent from the first, and the parent never takes itself for alone.
extension DiskTier {
  var sharing: StorageSharing {
    var sharing = StorageSharing(firstVersion: firstVersion)
    if members.mayHaveOthers {
      sharing.nextVersion = shared.nextVersion
      sharing.counters = shared.counters
    }
    return sharing
  }

  var forking: (any ForkingStorage)? { self }

  // MARK: before

  /// No write is under way, says the caller. False: the child cannot have the directory, and no
  /// lock is held. Else `endFork`, or in the child `beginInChild`, is owed.
  func prepareFork(until end: Deadline) -> Bool {
    guard committer.mutex.lock(until: end) else { return false }
    do throws(Failure) {
      try members.makeForChild(place, until: end)
    } catch {
      counters.failures.add()
      committer.mutex.unlock()
      return false
    }
    if sleep(until: end) {
      if holdRest(until: end) { return true }
      readers.endHold()
    }
    members.closeForChild()
    committer.mutex.unlock()
    return false
  }

  /// Closes every connection. True: the readers' locks are held.
  private func sleep(until end: Deadline) -> Bool {
    guard readers.closeAndHold(until: end) else { return false }
    if let manifest = committer.manifest {
      manifest.leaveAsIs()
      committer.manifest = nil
      members.isAsleep = isUp
    }
    return true
  }

  /// The locks that are held for a few steps only.
  private func holdRest(until end: Deadline) -> Bool {
    guard queue.hold(until: end) else { return false }
    if service.hold(until: end) {
      if content.inFlight.hold(until: end) {
        if accesses.hold(until: end) { return true }
        content.inFlight.letGo()
      }
      service.letGo()
    }
    queue.letGo()
    return false
  }

  private func letGo() {
    accesses.letGo()
    content.inFlight.letGo()
    service.letGo()
    queue.letGo()
    readers.endHold()
    committer.mutex.unlock()
  }

  // MARK: after

  /// In the parent.
  func endFork() {
    members.closeForChild()
    letGo()
  }

  /// In the child. A store that is not prepared is the parent's alone.
  func beginInChild(isPrepared: Bool, observer: any StorageObserver) {
    committer.observer = observer
    committer.replaceIdleSearch()
    guard isPrepared else {
      leave()
      return
    }
    members.beginInChild()
    queue.forgetWrites()
    letGo()
  }

  /// In the child: it has its turn before it leaves anything behind in the directory.
  func awaken() { committer.withTurn {} }

  // MARK: a child without a part in the directory

  func closeLocks() { members.closeLocks() }

  /// Out of service for ever. Nothing of the parent's is closed or freed: it may be in the midst
  /// of a change, and SQLite's connections must not be touched.
  private func leave() {
    committer.leave()
    members.leave()
    service.leave()
    readers.leaveBehind()
    queue.leaveBehind()
    accesses.leaveBehind()
    content.inFlight.leaveBehind()
    committer.mutex.renew()
  }
}
