import Synchronization

/// The review of memory after a store has come back: its directory may hold other entries than
/// before, so memory asks the store about each of its entries whether it has that version too.
/// For a large memory tier that takes seconds, so maintenance does it in slices.
///
/// Until the review has ended, an entry may be marked as backed that the store does not have, or
/// the other way round, and the store may have an older version beneath a dirty entry. A call that
/// depends on it ends the review first (a count, a clear of the disk tier), or asks `isUnderWay`
/// and assumes nothing (a removal or a put over a dirty entry). Reads and walks do not depend on
/// it.
final class BackedReview {
  // The two belong to the cache: see Parts.letGo.
  private let memory: MemoryTier
  private let clock: Clock
  private let order: WriteOrder
  /// Held for one slice. Taken before stripes. It protects `position` and `reviewed`.
  private let lock = Lock()
  private var position: UInt64 = 0
  /// The return that `position` belongs to.
  private var reviewed: UInt64 = 0
  /// How often the store has come back. Raised with no lock, since a slice may find the store back.
  /// Release, and acquire: a call that sees the number sees the store that is back.
  private let returns = Atomic<UInt64>(0)
  /// The last return for which the review has ended. The orderings are the same.
  private let ended = Atomic<UInt64>(0)

  private static let entriesInSlice = 64

  init(_ memory: MemoryTier, _ order: WriteOrder, _ clock: Clock) {
    self.memory = memory
    self.order = order
    self.clock = clock
  }

  var isUnderWay: Bool {
    ended.load(ordering: .acquiring) != returns.load(ordering: .acquiring)
  }

  /// The store is in service again.
  func begin() { _ = returns.wrappingAdd(1, ordering: .acquiringAndReleasing) }

  /// The rest of the review, by a call that uses the store.
  func end(_ storage: any Storage) { while step(storage) {} }

  /// One slice, by a call that uses the store. True: there is more.
  func step(_ storage: any Storage) -> Bool {
    guard isUnderWay else { return false }
    lock.lock()
    defer { lock.unlock() }
    let current = returns.load(ordering: .acquiring)
    if current == ended.load(ordering: .relaxed) { return false }
    if current != reviewed {
      reviewed = current
      position = 0
    }
    let moment = clock.momentForMaintenance()
    let count = memory.blocks(
      after: &position, limit: BackedReview.entriesInSlice, at: moment,
      visit: { review($0.key, at: moment, storage) })
    if count == 0 { ended.store(current, ordering: .releasing) }
    return isUnderWay
  }

  private func review(_ key: Bytes, at moment: Moment, _ storage: any Storage) {
    let hash = memory.hash(key)
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    let version = memory.version(key, hash, at: moment)
    guard version != 0 else {
      order.stripes.unlock(stripe)
      return
    }
    // Where the store cannot tell, it does not have it.
    let stored = (try? storage.info(key, hash, at: moment)) ?? nil
    memory.setBacked(key, hash, version: version, stored?.version == version)
    // Beneath a dirty entry the store has nothing.
    if let stored, stored.version != version,
      memory.peek(key, hash, at: moment).unowned?.isDirty ?? false,
      let block = try? Block.allocate(key: key, record: Record())
    {
      // Memory may stage its entry at this moment, since that takes no stripe. A removal with the
      // version of the entry leaves a staged one its place (WriteBackQueue.makeWay).
      var write = StoreWrite(.remove, block.unowned, hash)
      write.version = stored.version < version ? version : order.versions.draw()
      order.commit(&write, to: storage, at: moment)
      _ = consume block
      return
    }
    order.stripes.unlock(stripe)
  }
}
