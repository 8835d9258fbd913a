import CSystem

/// A small cache of keys alone, which tries one mode on a sample of what is asked for.
struct Shadow: ~Copyable {
  /// As large as the sample is in a tier that is not large; beyond, it is thinner. Where costs
  /// count it is made for half as many, and may have so many if they are cheap.
  static let mostEntries = 512

  private let mode: Mode
  private let capacity: Int
  /// In the unit of the items' costs; 0: costs do not count.
  private let costLimit: UInt64
  private var cost: UInt64 = 0
  private var queue = SegmentedQueue()
  /// None before something has to go.
  private var ghosts = Ghosts()
  private let remembered: Int
  private var store: ShadowStore

  /// `costLimit`: 0: costs do not count. Else `capacity` is what the limit holds by experience, and
  /// there may be twice as many entries. `counts`: it will be asked with a sketch of its own.
  init(_ mode: Mode, capacity: Int, costLimit: UInt64, counts: Bool) throws(Failure) {
    let most = costLimit == 0 ? capacity : 2 * capacity
    let store = try ShadowStore(capacity: most, unit: costLimit >> 24, counts: counts)
    self.mode = mode
    self.capacity = most
    self.costLimit = costLimit == 0 ? 0 : max(1, costLimit >> store.costShift)
    remembered = capacity
    self.store = store
    queue.weighs = costLimit != 0
  }

  /// Whether the key was there; if not, it is now.
  mutating func ask(_ key: UInt32, cost: UInt64, _ sketch: borrowing FrequencySketch) -> Bool {
    if let slot = store.find(key) {
      let uses = store.uses(slot)
      if uses < Word.mostUses { store.set(slot, uses: uses + 1) }
      return true
    }
    let itsCost = costLimit == 0 ? 0 : max(1, cost >> store.costShift)
    // A sample of the keys has too little room for an entry that has its place in the tier; all
    // shadows miss it alike.
    if itsCost > costLimit / 4 && costLimit != 0 { return false }
    let costClass = costLimit == 0 ? 0 : CostLists.costClass(cost)
    let isFull = isFull(itsCost)
    if isFull && ghosts.isNone { remember() }
    queue.prepare(
      key, ghost: key, costClass: costClass, isFull: isFull, mode, sketch, &ghosts, store)
    while self.isFull(itsCost),
      let slot = queue.victim(mode, sparing: .none, sketch, &ghosts, store)?.slot
    {
      // The first of its list, whose slot is free.
      _ = queue.forget(slot, isMain: store.isMain(slot), store)
      self.cost -= store.cost(slot)
      store.remove(slot)
    }
    let slot = store.insert(key, cost: itsCost)
    self.cost += itsCost
    queue.admit(slot, costClass: costClass, mode, sketch, store)
    return false
  }

  /// Without memory there are no ghosts until the next time.
  @inline(never)
  private mutating func remember() {
    do throws(Failure) { ghosts = try Ghosts(capacity: remembered) } catch {}
  }

  /// The bytes for an entry: an item, up to two heads of chains, and two ghosts.
  static var bytesPerEntry: Int { ShadowStore.bytesPerEntry + 4 }
  /// Without lists that differ by cost, each of which takes its entries' place.
  var bytes: Int { MemoryLayout<Shadow>.stride + store.bytes + ghosts.bytes }

  private func isFull(_ more: UInt64) -> Bool {
    queue.count >= capacity || cost + more > costLimit
  }

  func violation() -> StaticString? {
    if queue.count > capacity || cost > costLimit { return "a shadow is too large" }
    return queue.violation(store)
  }
}

/// Keys, links and bits of a shadow's entries, and chains of those with like hashes.
private struct ShadowStore: QueueStore, ~Copyable {
  private struct Item {
    var link: ForwardLink
    var key: UInt32
    /// In units of 2^costShift.
    var cost: UInt32
    /// The next of the chain, number + 1.
    var next: UInt16
    var uses: UInt8
    var isMain: Bool
  }

  private let items: UnsafeMutablePointer<Item>
  private let chains: UnsafeMutablePointer<UInt16>
  private let chainMask: UInt32
  private let capacity: Int
  let costShift: UInt64
  /// The first that was given back, and the first that has never been used; number + 1.
  private var free: UInt16 = 0
  private var used: UInt16 = 0
  private let inPlace = InPlace()

  /// `unit`: costs are kept in units of the power of two that is just above.
  init(capacity: Int, unit: UInt64, counts: Bool) throws(Failure) {
    self.counts = counts
    costShift = UInt64(64 - unit.leadingZeroBitCount)
    self.capacity = capacity
    var chainCount = 1
    while chainCount < capacity { chainCount *= 2 }
    // Items, then heads of chains.
    let size = capacity * MemoryLayout<Item>.stride + 2 * chainCount
    // Zeroed pages that no thread has touched take no memory.
    let memory = UnsafeMutableRawPointer(try Allocation.array(UInt8.self, size))
    items = memory.bindMemory(to: Item.self, capacity: capacity)
    chains = (memory + capacity * MemoryLayout<Item>.stride)
      .bindMemory(to: UInt16.self, capacity: chainCount)
    chainMask = UInt32(chainCount - 1)
  }

  deinit { CSystem.free(items) }

  let counts: Bool

  static var bytesPerEntry: Int { MemoryLayout<Item>.stride + 4 }
  var bytes: Int { capacity * MemoryLayout<Item>.stride + 2 * (Int(chainMask) + 1) }

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

  /// There is room.
  mutating func insert(_ key: UInt32, cost: UInt64) -> Slot {
    let number: UInt16
    if free == 0 {
      used += 1
      number = used
    } else {
      number = free
      free = items[Int(number - 1)].next
    }
    let head = chain(key)
    items[Int(number - 1)] = Item(
      link: ForwardLink(), key: key, cost: UInt32(truncatingIfNeeded: cost), next: head.pointee,
      uses: 0, isMain: false)
    head.pointee = number
    return Slot(UInt32(number - 1))
  }

  mutating func remove(_ slot: Slot) {
    let number = UInt16(slot.number) + 1
    let head = chain(key(slot))
    let next = items[Int(slot.number)].next
    if head.pointee == number {
      head.pointee = next
    } else {
      var at = Int(head.pointee - 1)
      while items[at].next != number { at = Int(items[at].next - 1) }
      items[at].next = next
    }
    items[Int(slot.number)].next = free
    free = number
  }

  func cost(_ slot: Slot) -> UInt64 { UInt64(items[Int(slot.number)].cost) }

  func link(_ slot: Slot) -> UnsafeMutablePointer<ForwardLink> {
    UnsafeMutableRawPointer(items + Int(slot.number)).assumingMemoryBound(to: ForwardLink.self)
  }
  func key(_ slot: Slot) -> UInt32 { items[Int(slot.number)].key }
  func ghost(_ slot: Slot) -> UInt32 { key(slot) }
  func place(of slot: Slot) -> Slot { slot }
  func uses(_ slot: Slot) -> UInt64 { UInt64(items[Int(slot.number)].uses) }
  func isMain(_ slot: Slot) -> Bool { items[Int(slot.number)].isMain }
  func set(_ slot: Slot, uses: UInt64) { items[Int(slot.number)].uses = UInt8(uses) }
  func set(_ slot: Slot, isMain: Bool) { items[Int(slot.number)].isMain = isMain }
}
