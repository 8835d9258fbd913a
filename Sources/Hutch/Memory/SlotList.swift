/// A slot's links in a list.
struct Links: BitwiseCopyable {
  /// Towards the last that was pushed.
  var newer = Slot.none
  /// Towards the first.
  var older = Slot.none
}

/// Where slots have links.
protocol LinkStore: ~Copyable {
  func links(_ slot: Slot) -> UnsafeMutablePointer<Links>
}

/// A policy's node that begins with links.
protocol LinkedNode: BitwiseCopyable {}
extension Links: LinkedNode {}

extension Entries: LinkStore where Node: LinkedNode {
  @inline(__always)
  func links(_ slot: Slot) -> UnsafeMutablePointer<Links> {
    UnsafeMutableRawPointer(node(slot)).assumingMemoryBound(to: Links.self)
  }
}

/// A queue of slots from which any can be taken out.
struct SlotList {
  private(set) var newest = Slot.none
  private(set) var oldest = Slot.none
  private(set) var count = 0

  @inline(__always) var isEmpty: Bool { count == 0 }

  @inline(__always)
  mutating func push<Store: LinkStore & ~Copyable>(_ slot: Slot, _ store: borrowing Store) {
    store.links(slot).pointee = Links(newer: .none, older: newest)
    if newest.isNone { oldest = slot } else { store.links(newest).pointee.newer = slot }
    newest = slot
    count += 1
  }

  @inline(__always)
  mutating func remove<Store: LinkStore & ~Copyable>(_ slot: Slot, _ store: borrowing Store) {
    let links = store.links(slot).pointee
    if links.newer.isNone {
      newest = links.older
    } else {
      store.links(links.newer).pointee.older = links.older
    }
    if links.older.isNone {
      oldest = links.newer
    } else {
      store.links(links.older).pointee.newer = links.newer
    }
    count -= 1
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

  /// What is wrong, or nil.
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
