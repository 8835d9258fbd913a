import Synchronization

/// What is to be done with no lock held: the observer is to be told of the entries that the store
/// has removed by itself, and damaged entries are to be removed that a read could not remove, since
/// it does not wait for the directory's lock. Its lock comes after that one.
final class LogOwed {
  struct Damaged: BitwiseCopyable {
    let address: LogAddress
    /// Of its key.
    let hash: UInt64
  }

  private let lock = Lock()
  /// The number of these entries. Relaxed: the thread that adds an entry sees it.
  private let count = Atomic<Int>(0)
  /// The keys, with the versions of the entries.
  private var keys = KeyList()
  private var damaged = GrowingArray<Damaged>()
  /// Whether there are damaged entries. Relaxed, as `count`.
  private let isDamaged = Atomic<Bool>(false)
  private static let mostDamaged = 1024

  @inline(__always) var isEmpty: Bool { count.load(ordering: .relaxed) == 0 }

  func add(_ key: Bytes, _ version: UInt64) {
    lock.withLock {
      // Without memory for the key the observer is not told: the tier above goes on as if the store
      // had the entry.
      if (try? keys.append(key, Int64(bitPattern: version))) != nil {
        count.wrappingAdd(1, ordering: .relaxed)
      }
    }
  }

  /// Notes a damaged entry. False: it was noted before, or cannot be; a later read meets it again.
  func add(_ entry: Damaged) -> Bool {
    lock.withLock {
      guard !notes(entry.address), damaged.count < LogOwed.mostDamaged,
        (try? damaged.append(entry)) != nil
      else { return false }
      count.wrappingAdd(1, ordering: .relaxed)
      isDamaged.store(true, ordering: .relaxed)
      return true
    }
  }

  /// Whether a damaged entry is noted.
  func isNoted(_ address: LogAddress) -> Bool {
    lock.withLock { notes(address) }
  }

  private func notes(_ address: LogAddress) -> Bool {
    for other in damaged.elements where other.address == address { return true }
    return false
  }

  /// One of the damaged entries, which is not noted any more; nil: there is none.
  func takeDamaged() -> Damaged? {
    lock.withLock {
      guard damaged.count > 0 else {
        isDamaged.store(false, ordering: .relaxed)
        return nil
      }
      let last = damaged[damaged.count - 1]
      damaged.truncate(to: damaged.count - 1)
      count.wrappingSubtract(1, ordering: .relaxed)
      return last
    }
  }

  @inline(__always) var hasDamaged: Bool { isDamaged.load(ordering: .relaxed) }

  /// Tells the observer of all of them. No lock is held.
  func tell(_ observer: any StorageObserver) {
    var told = KeyList()
    lock.withLock {
      swap(&told, &keys)
      count.store(damaged.count, ordering: .relaxed)
    }
    told.forEach { observer.storeDropped($0, UInt64(bitPattern: $1)) }
  }

  // A fork holds the lock, so that the child has a whole list.

  func hold(until end: Deadline) -> Bool { lock.lock(until: end) }
  func letGo() { lock.unlock() }
  /// In the child of a fork that was not prepared: no thread of the child holds the lock.
  func renew() { lock.renew() }
}
