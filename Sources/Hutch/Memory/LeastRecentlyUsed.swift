/// Exact least recently used: a list through the slots, from the latest to the one to go.
struct LeastRecentlyUsed: EvictionPolicy, ~Copyable {
  struct Node: BitwiseCopyable {
    /// Towards the latest.
    var newer: Slot
    /// Towards the one to go.
    var older: Slot
  }

  private var newest = Slot.none
  private var oldest = Slot.none

  init() {}

  static var seesHits: Bool { true }

  mutating func admit(_ slot: Slot, _ entries: borrowing Entries<Node>) {
    entries.node(slot).pointee = Node(newer: .none, older: newest)
    if newest.isNone { oldest = slot } else { entries.node(newest).pointee.newer = slot }
    newest = slot
  }

  mutating func hit(_ slot: Slot, _ entries: borrowing Entries<Node>) {
    if slot == newest { return }
    forget(slot, entries)
    admit(slot, entries)
  }

  mutating func forget(_ slot: Slot, _ entries: borrowing Entries<Node>) {
    let node = entries.node(slot).pointee
    if node.newer.isNone {
      newest = node.older
    } else {
      entries.node(node.newer).pointee.older = node.older
    }
    if node.older.isNone {
      oldest = node.newer
    } else {
      entries.node(node.older).pointee.newer = node.newer
    }
  }

  mutating func victim(sparing spared: Slot, _ entries: borrowing Entries<Node>) -> Slot? {
    let slot = oldest == spared && !oldest.isNone ? entries.node(oldest).pointee.newer : oldest
    return slot.isNone ? nil : slot
  }

  func forEach(_ entries: borrowing Entries<Node>, _ body: (Slot) -> Void) {
    var slot = oldest
    while !slot.isNone {
      let newer = entries.node(slot).pointee.newer
      body(slot)
      slot = newer
    }
  }

  func violation(_ entries: borrowing Entries<Node>) -> StaticString? {
    var found: StaticString?
    var count = 0
    var before = Slot.none
    var slot = oldest
    while !slot.isNone && count <= entries.count {
      let node = entries.node(slot).pointee
      if node.older != before { found = "the list's links disagree" }
      count += 1
      before = slot
      slot = node.newer
    }
    if before != newest { found = "the list does not end at its newest" }
    return count == entries.count ? found : "the list has not every entry once"
  }
}
