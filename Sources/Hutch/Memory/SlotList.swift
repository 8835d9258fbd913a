/// A slot's links in a list of a policy that takes entries out from anywhere.
struct Links: BitwiseCopyable {
  /// Towards the last that was pushed, and towards the first.
  var newer = Slot.none
  var older = Slot.none
}

extension Entries {
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
  mutating func push(_ slot: Slot, _ entries: borrowing Entries) {
    entries.links(slot).pointee = Links(older: newest)
    if newest.isNone { oldest = slot } else { entries.links(newest).pointee.newer = slot }
    newest = slot
    length &+= 1
  }

  @inline(__always)
  mutating func remove(_ slot: Slot, _ entries: borrowing Entries) {
    let links = entries.links(slot).pointee
    if links.newer.isNone {
      newest = links.older
    } else {
      entries.links(links.newer).pointee.older = links.older
    }
    if links.older.isNone {
      oldest = links.newer
    } else {
      entries.links(links.older).pointee.newer = links.newer
    }
    length &-= 1
  }

  /// Takes a slot out and pushes it again.
  @inline(__always)
  mutating func renew(_ slot: Slot, _ entries: borrowing Entries) {
    if slot == newest { return }
    remove(slot, entries)
    push(slot, entries)
  }

  /// The oldest but one that is spared.
  @inline(__always)
  func first(sparing spared: Slot, _ entries: borrowing Entries) -> Slot? {
    if oldest.isNone { return nil }
    let slot = oldest == spared ? entries.links(oldest).pointee.newer : oldest
    return slot.isNone ? nil : slot
  }

  /// From the oldest on.
  func forEach(
    _ entries: borrowing Entries, _ body: (Slot) -> Void
  ) {
    var slot = oldest
    while !slot.isNone {
      let next = entries.links(slot).pointee.newer
      body(slot)
      slot = next
    }
  }

  /// The invariant that does not hold, or nil.
  func violation(_ entries: borrowing Entries) -> StaticString? {
    var found = 0
    var before = Slot.none
    var slot = oldest
    while !slot.isNone && found <= count {
      let links = entries.links(slot).pointee
      if links.older != before { return "a list's links disagree" }
      found += 1
      before = slot
      slot = links.newer
    }
    if before != newest { return "a list does not end at its newest" }
    return found == count ? nil : "a list's count is wrong"
  }
}
