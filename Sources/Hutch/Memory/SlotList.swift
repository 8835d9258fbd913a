/// A slot's links in a list, and in the bits that numbers of slots leave free which list that is,
/// for policies that have several: a class of cost and a level of frequency.
struct Links: BitwiseCopyable {
  /// Towards the last that was pushed; above, two bits of level.
  private var newerBits: UInt32
  /// Towards the first; above, five bits of class.
  private var olderBits: UInt32

  /// Numbers of slots end before this: the bit below the class is the sign of `Slot.none`.
  static var slotLimit: Int { 1 << 26 }
  private static var mask: UInt32 { 1 << 27 - 1 }

  @inline(__always)
  init() {
    newerBits = Links.mask
    olderBits = Links.mask
  }

  /// Of the newest of a list, at level 0.
  @inline(__always)
  init(older: Slot, costClass: UInt32) {
    newerBits = Links.mask
    olderBits = older.number & Links.mask | costClass &<< 27
  }

  @inline(__always)
  private static func slot(_ bits: UInt32) -> Slot {
    Slot(UInt32(bitPattern: Int32(bitPattern: bits &<< 5) &>> 5))
  }

  @inline(__always) var newer: Slot { Links.slot(newerBits) }
  @inline(__always) var older: Slot { Links.slot(olderBits) }
  @inline(__always) var costClass: UInt32 { olderBits &>> 27 }
  @inline(__always) var level: UInt32 { newerBits &>> 27 }

  @inline(__always)
  mutating func link(newer: Slot) {
    newerBits = newerBits & ~Links.mask | newer.number & Links.mask
  }
  @inline(__always)
  mutating func link(older: Slot) {
    olderBits = olderBits & ~Links.mask | older.number & Links.mask
  }
  @inline(__always)
  mutating func tag(costClass: UInt32, level: UInt32) {
    olderBits = olderBits & Links.mask | costClass &<< 27
    newerBits = newerBits & Links.mask | level &<< 27
  }
}

/// Where slots have links.
protocol LinkStore: ~Copyable {
  func links(_ slot: Slot) -> UnsafeMutablePointer<Links>
}

extension Entries: LinkStore {
  @inline(__always)
  func links(_ slot: Slot) -> UnsafeMutablePointer<Links> { slab.links(slot) }
}

/// A queue of slots from which any can be taken out.
struct SlotList {
  private(set) var newest = Slot.none
  private(set) var oldest = Slot.none
  private var length: UInt32 = 0

  @inline(__always) var count: Int { Int(length) }
  @inline(__always) var isEmpty: Bool { length == 0 }

  @inline(__always)
  mutating func push<Store: LinkStore & ~Copyable>(_ slot: Slot, _ store: borrowing Store) {
    let links = store.links(slot)
    links.pointee.link(newer: .none)
    links.pointee.link(older: newest)
    if newest.isNone { oldest = slot } else { store.links(newest).pointee.link(newer: slot) }
    newest = slot
    length &+= 1
  }

  /// A slot whose links it sets altogether.
  @inline(__always)
  mutating func push<Store: LinkStore & ~Copyable>(
    _ slot: Slot, costClass: UInt32, _ store: borrowing Store
  ) {
    store.links(slot).pointee = Links(older: newest, costClass: costClass)
    if newest.isNone { oldest = slot } else { store.links(newest).pointee.link(newer: slot) }
    newest = slot
    length &+= 1
  }

  @inline(__always)
  mutating func remove<Store: LinkStore & ~Copyable>(_ slot: Slot, _ store: borrowing Store) {
    let links = store.links(slot).pointee
    if links.newer.isNone {
      newest = links.older
    } else {
      store.links(links.newer).pointee.link(older: links.older)
    }
    if links.older.isNone {
      oldest = links.newer
    } else {
      store.links(links.older).pointee.link(newer: links.newer)
    }
    length &-= 1
  }

  /// Takes a slot out and pushes it again.
  @inline(__always)
  mutating func renew<Store: LinkStore & ~Copyable>(_ slot: Slot, _ store: borrowing Store) {
    if slot == newest { return }
    remove(slot, store)
    push(slot, store)
  }

  /// The oldest but one that is spared.
  @inline(__always)
  func first<Store: LinkStore & ~Copyable>(sparing spared: Slot, _ store: borrowing Store) -> Slot?
  {
    if oldest.isNone { return nil }
    let slot = oldest == spared ? store.links(oldest).pointee.newer : oldest
    return slot.isNone ? nil : slot
  }

  /// From the oldest on.
  func forEach<Store: LinkStore & ~Copyable>(
    _ store: borrowing Store, _ body: (Slot) -> Void
  ) {
    var slot = oldest
    while !slot.isNone {
      let next = store.links(slot).pointee.newer
      body(slot)
      slot = next
    }
  }

  /// The invariant that does not hold, or nil.
  func violation<Store: LinkStore & ~Copyable>(_ store: borrowing Store) -> StaticString? {
    var found = 0
    var before = Slot.none
    var slot = oldest
    while !slot.isNone && found <= count {
      let links = store.links(slot).pointee
      if links.older != before { return "a list's links disagree" }
      found += 1
      before = slot
      slot = links.newer
    }
    if before != newest { return "a list does not end at its newest" }
    return found == count ? nil : "a list's count is wrong"
  }
}
