import CSystem

/// A small cache of keys alone, which tries one mode on a sample of what is asked for.
struct Shadow: ~Copyable {
  /// The largest; beyond, the sample is thinner.
  static let mostEntries = 512

  private let mode: Mode
  private let capacity: Int
  private var queue = SegmentedQueue()
  private var ghosts: Ghosts
  private var store: ShadowStore

  init(_ mode: Mode, capacity: Int) throws(Failure) {
    let ghosts = try Ghosts(capacity: capacity)
    let store = try ShadowStore(capacity: capacity)
    self.mode = mode
    self.capacity = capacity
    self.ghosts = ghosts
    self.store = store
  }

  /// Whether the key was there; if not, it is now.
  mutating func ask(_ key: UInt32, _ sketch: borrowing FrequencySketch) -> Bool {
    if let slot = store.find(key) {
      let uses = store.uses(slot)
      if uses < Word.mostUses { store.set(slot, uses: uses + 1) }
      return true
    }
    let isFull = queue.count >= capacity
    queue.prepare(key, ghost: key, isFull: isFull, mode, sketch, &ghosts, store)
    let slot: Slot
    if isFull {
      // There is an entry, and none is spared.
      slot = queue.victim(mode, sparing: .none, sketch, &ghosts, store).unsafelyUnwrapped
      queue.forget(slot, isMain: store.isMain(slot), store)
      store.remove(slot)
    } else {
      slot = Slot(UInt32(queue.count))
    }
    store.insert(key, slot)
    queue.admit(slot, mode, store)
    return false
  }

  func violation() -> StaticString? {
    queue.count <= capacity ? queue.violation(store) : "a shadow is too large"
  }
}

/// Keys, links and bits of a shadow's entries, and chains of those with like hashes.
private struct ShadowStore: QueueStore, ~Copyable {
  private struct Item {
    var links: Links
    var key: UInt32
    /// The next of the chain, number + 1.
    var next: UInt16
    var uses: UInt8
    var isMain: Bool
  }

  private let items: UnsafeMutablePointer<Item>
  private let chains: UnsafeMutablePointer<UInt16>
  private let chainMask: UInt32

  init(capacity: Int) throws(Failure) {
    var chainCount = 1
    while chainCount < capacity { chainCount *= 2 }
    // Items, then heads of chains.
    let memory = try Allocation.bytes(capacity * MemoryLayout<Item>.stride + 2 * chainCount)
    memset(memory, 0, capacity * MemoryLayout<Item>.stride + 2 * chainCount)
    items = memory.bindMemory(to: Item.self, capacity: capacity)
    chains = (memory + capacity * MemoryLayout<Item>.stride)
      .bindMemory(to: UInt16.self, capacity: chainCount)
    chainMask = UInt32(chainCount - 1)
  }

  deinit { free(items) }

  static var counts: Bool { false }

  private func chain(_ key: UInt32) -> UnsafeMutablePointer<UInt16> {
    chains + Int((key ^ key >> 16) & chainMask)
  }

  func find(_ key: UInt32) -> Slot? {
    var at = chain(key).pointee
    while at != 0 {
      if items[Int(at - 1)].key == key { return Slot(UInt32(at - 1)) }
      at = items[Int(at - 1)].next
    }
    return nil
  }

  func insert(_ key: UInt32, _ slot: Slot) {
    let head = chain(key)
    items[Int(slot.number)] = Item(
      links: Links(), key: key, next: head.pointee, uses: 0, isMain: false)
    head.pointee = UInt16(slot.number) + 1
  }

  func remove(_ slot: Slot) {
    let number = UInt16(slot.number) + 1
    let head = chain(key(slot))
    let next = items[Int(slot.number)].next
    if head.pointee == number {
      head.pointee = next
      return
    }
    var at = Int(head.pointee - 1)
    while items[at].next != number { at = Int(items[at].next - 1) }
    items[at].next = next
  }

  func links(_ slot: Slot) -> UnsafeMutablePointer<Links> {
    UnsafeMutableRawPointer(items + Int(slot.number)).assumingMemoryBound(to: Links.self)
  }
  func key(_ slot: Slot) -> UInt32 { items[Int(slot.number)].key }
  func ghost(_ slot: Slot) -> UInt32 { key(slot) }
  func uses(_ slot: Slot) -> UInt64 { UInt64(items[Int(slot.number)].uses) }
  func isMain(_ slot: Slot) -> Bool { items[Int(slot.number)].isMain }
  func set(_ slot: Slot, uses: UInt64) { items[Int(slot.number)].uses = UInt8(uses) }
  func set(_ slot: Slot, isMain: Bool) { items[Int(slot.number)].isMain = isMain }
}
