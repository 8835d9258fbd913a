import CSystem
import Synchronization

/// Whether the tier is in service, where its directory is, and why the tier is out of service.
///
/// The tier's states are in the head of DiskTier. Here are `up` and what goes with it: out of
/// service there is a reason, but for a tier that has been closed, and the observer is told of it
/// once.
final class Service {
  /// Protects `place`, `reason`, `isTold` and the changes of `up`. No other lock is taken under it.
  /// `place` is changed with the writer lock held too, so a holder of either lock may read it.
  private let lock = Lock()
  /// Release when it changes, acquire by readers.
  private let up = Atomic<Bool>(false)
  /// Where the tier is, or was last.
  private(set) var place: Directory
  /// Why the tier is out of service.
  private var reason: Failure?
  /// True if the observer has been told.
  private var isTold = true
  /// True if the process knows that the tier has the directory open. Relaxed: a reminder.
  private let isListed = Atomic<Bool>(true)
  /// When a put may try to open the directory again; CLOCK_MONOTONIC. Relaxed: of two puts that try
  /// at once the second one finds under the writer lock that the first one has.
  private let nextTry = Atomic<Int64>(0)
  private static let pauseBeforeTry: Int64 = 1_000_000_000

  init(_ place: Directory) { self.place = place }

  var isUp: Bool { up.load(ordering: .acquiring) }

  /// The directory, while the tier is up.
  var placeIfUp: Directory? { lock.withLock { isUp ? place : nil } }

  /// The failure of a call that needs the tier while it is out of service.
  var failure: Failure {
    let words: StaticString = "the disk tier is out of service"
    guard let reason = lock.withLock({ reason }) else { return Failure(.tierDown, words) }
    return reason.status == .forked ? reason : reason.with(.tierDown, words)
  }

  // MARK: changes

  func move(to directory: Directory) {
    lock.withLock {
      place = directory
      reason = nil
    }
  }

  /// `isListed`: the process knows that the tier has the directory open.
  func goUp(isListed: Bool) {
    lock.withLock { up.store(true, ordering: .releasing) }
    self.isListed.store(isListed, ordering: .relaxed)
  }

  /// From here on the tier has no entries and takes none. The next holder of the writer lock closes
  /// the connections. Does nothing if the tier is out of service. Any lock but `lock` may be held.
  func goDown(_ failure: Failure) { lock.withLock { if isUp { end(failure) } } }

  /// An opening has failed; the observer, which is not known yet, is told later.
  func beginDown(_ failure: Failure) { lock.withLock { end(failure) } }

  private func end(_ failure: Failure) {
    reason = failure
    isTold = false
    postponeTry()
    up.store(false, ordering: .releasing)
  }

  /// The tier is closed. The directory's descriptor goes with the last that has it: a writer of a
  /// value in pieces may still.
  func close() {
    let path = try? Directory.unopened(path: place.path)
    lock.withLock {
      up.store(false, ordering: .releasing)
      if let path { place = path }
    }
  }

  /// Tells the observer that the tier went out of service, once. No lock is held.
  func tell(_ observer: (any StorageObserver)?) {
    guard let observer, let reason = takeUntold() else { return }
    observer.storeChanged(reason)
  }

  private func takeUntold() -> Failure? {
    lock.withLock {
      guard !isUp, !isTold else { return nil }
      isTold = true
      return reason
    }
  }

  // MARK: coming back

  var isTryDue: Bool { Clock.read(CLOCK_MONOTONIC) >= nextTry.load(ordering: .relaxed) }

  func postponeTry() {
    nextTry.store(Clock.read(CLOCK_MONOTONIC) + Service.pauseBeforeTry, ordering: .relaxed)
  }

  /// True if a read, a write or a check has found the manifest damaged, and SQLite has not: then
  /// SQLite will not find it at the opening either.
  var foundDamageItself: Bool {
    lock.withLock { reason?.status == .corrupt && reason?.sqlite == 0 }
  }

  /// True if the manifest has been found damaged, by this tier or by SQLite.
  var foundDamage: Bool { lock.withLock { reason?.status == .corrupt } }

  /// Another attempt to come back has failed.
  func noteFailedTry(_ failure: Failure) { lock.withLock { reason = failure } }

  /// Sees to it that the process knows where the tier is. Tried again by maintenance: until it
  /// does, another opening of the directory is told that it is busy.
  func list(_ observer: (any StorageObserver)?) {
    guard let observer, !isListed.load(ordering: .relaxed), let place = placeIfUp else { return }
    if Process.relist(observer.identity, device: place.device, inode: place.inode) {
      isListed.store(true, ordering: .relaxed)
    }
  }

  // MARK: fork

  func hold(until end: Deadline) -> Bool { lock.lock(until: end) }
  func letGo() { lock.unlock() }

  /// In a child that has no part in the directory: out of service for ever.
  func leave() {
    lock.renew()
    up.store(false, ordering: .releasing)
    isTold = true
    reason = Failure(.forked, "the disk tier belongs to the parent of this process")
  }
}
