import CSystem
import Synchronization

/// Whether a store is in service, where its directory is, and why the store is out of service.
///
/// Out of service there is a reason, but for a store that has been closed. The observer is told of
/// each change, in their order, by a call that holds no lock.
final class Service {
  /// Protects `place`, the reasons, `untoldChanges` and the changes of `up`. No other lock is taken
  /// under it. `place` is changed only while the directory is being opened, or by the store's end,
  /// so those who keep that from happening may read it.
  private let lock = Lock()
  /// Release when it changes, acquire by readers.
  private let up = Atomic<Bool>(false)
  /// Where the store is, or was last.
  private(set) var place: Directory
  /// Why the store is out of service.
  private var reason: Failure?
  /// The last reason. Unlike `reason` it stays when the store is back.
  private var lastFailure: Failure?
  /// How many changes of `up` the observer does not know of: 0, 1 or 2. A third one cancels two.
  private var untoldChanges = 0
  /// True if there are any. Relaxed: the next call tells of a change that this one misses.
  private let isOwing = Atomic<Bool>(false)
  /// True if the process knows that the store has the directory open. Relaxed: a reminder.
  private let isListed = Atomic<Bool>(true)
  /// When a call may try to open the directory again; CLOCK_MONOTONIC. Relaxed: of two that try at
  /// once the second one finds that the first one has.
  let nextTry = Atomic<Int64>(0)
  private static let pauseBeforeTry: Int64 = 1_000_000_000

  init(_ place: Directory) { self.place = place }

  @inline(__always) var isUp: Bool { up.load(ordering: .acquiring) }

  /// The directory, while the store is up.
  var placeIfUp: Directory? { lock.withLock { isUp ? place : nil } }

  /// The directory, also while it may be changing.
  var lastPlace: Directory { lock.withLock { place } }

  /// The failure of a call that needs the store while it is out of service. A reason that has no
  /// code of the system or of SQLite has nothing but its words.
  var failure: Failure {
    let words: StaticString = "the disk tier is out of service"
    guard let reason = lock.withLock({ reason }) else { return Failure(.tierDown, words) }
    if reason.status == .forked { return reason }
    let hasCode = reason.system != 0 || reason.sqlite != 0
    return hasCode ? reason.with(.tierDown, words) : reason.with(.tierDown)
  }

  // MARK: changes

  func move(to directory: Directory) {
    lock.withLock {
      place = directory
      reason = nil
    }
  }

  /// The first opening has succeeded.
  func begin() { up.store(true, ordering: .releasing) }

  /// An opening has failed; the observer, which is not known yet, is told later.
  func beginDown(_ failure: Failure) { lock.withLock { end(failure) } }

  /// From here on the store has no entries and takes none. Does nothing if it is out of service.
  /// Any lock but `lock` may be held.
  func goDown(_ failure: Failure) { lock.withLock { if isUp { end(failure) } } }

  private func end(_ failure: Failure) {
    reason = failure
    lastFailure = failure
    postponeTry()
    change(to: false)
  }

  /// `isListed`: the process knows that the store has the directory open.
  func comeBack(isListed: Bool) {
    self.isListed.store(isListed, ordering: .relaxed)
    lock.withLock { change(to: true) }
  }

  private func change(to isUp: Bool) {
    up.store(isUp, ordering: .releasing)
    untoldChanges = untoldChanges == 2 ? 1 : untoldChanges + 1
    isOwing.store(true, ordering: .relaxed)
  }

  /// The store is closed. The directory's descriptor goes with the last that has it: a writer of a
  /// value in pieces may still.
  func close() {
    let path = try? Directory.unopened(path: place.path)
    lock.withLock {
      up.store(false, ordering: .releasing)
      if let path { place = path }
    }
  }

  @inline(__always) var owesNews: Bool { isOwing.load(ordering: .relaxed) }

  /// Tells the observer of the changes that it does not know of. No lock is held.
  func tell(_ observer: (any StorageObserver)?) {
    guard owesNews, let observer else { return }
    let (changes, isUp, failure) = lock.withLock { () -> (Int, Bool, Failure?) in
      defer { untoldChanges = 0 }
      isOwing.store(false, ordering: .relaxed)
      return (untoldChanges, self.isUp, lastFailure)
    }
    // The last change led to `isUp`, the one before it to the other state.
    for left in (0..<changes).reversed() {
      if isUp == (left == 0) {
        list(observer)
        observer.storeChanged(nil)
      } else {
        observer.storeChanged(failure)
      }
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

  /// True if the manifest has been found damaged, by the store or by SQLite.
  var foundDamage: Bool { lock.withLock { reason?.status == .corrupt } }

  /// Another attempt to come back has failed.
  func noteFailedTry(_ failure: Failure) { lock.withLock { reason = failure } }

  /// Sees to it that the process knows where the store is. Tried again by maintenance: until it
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
    untoldChanges = 0
    isOwing.store(false, ordering: .relaxed)
    reason = Failure(.forked, "the disk tier belongs to the parent of this process")
  }
}
