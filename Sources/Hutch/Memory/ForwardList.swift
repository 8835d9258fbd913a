/// A slot's link in a list of the default policy, and in the bits that numbers of slots leave free
/// which list that is: a class of cost and a level of frequency.
struct ForwardLink: BitwiseCopyable {
  ///     31..27 class, 26..25 level, 24..0 the slot towards the last that was pushed
  private var bits: UInt32

  private static var mask: UInt32 { 1 << 25 - 1 }
  /// Numbers of slots end before this.
  static var slotLimit: Int { 1 << 25 - 256 }
  /// No class of cost: the entry has gone, and its slot is still linked.
  private static var gone: UInt32 { 31 }

  @inline(__always) init() { bits = ForwardLink.mask }

  /// Of the newest of a list, at level 0.
  @inline(__always)
  init(costClass: UInt32) { bits = ForwardLink.mask | costClass &<< 27 }

  @inline(__always)
  var newer: Slot {
    get {
      let number = bits & ForwardLink.mask
      return number == ForwardLink.mask ? .none : Slot(number)
    }
    set { bits = bits & ~ForwardLink.mask | newValue.number & ForwardLink.mask }
  }

  @inline(__always) var costClass: UInt32 { bits &>> 27 }
  @inline(__always) var level: UInt32 { bits &>> 25 & 3 }
  @inline(__always) var isGone: Bool { costClass == ForwardLink.gone }

  @inline(__always)
  mutating func tag(costClass: UInt32, level: UInt32) {
    bits = bits & ForwardLink.mask | costClass &<< 27 | level &<< 25
  }
  mutating func markGone() { tag(costClass: ForwardLink.gone, level: 0) }
}

extension Entries {
  @inline(__always)
  func link(_ slot: Slot) -> UnsafeMutablePointer<ForwardLink> { slab.link(slot) }
}

/// A queue of slots that is linked one way, in half the memory of `SlotList`. Nearly all leave it
/// as the oldest. One that goes from between others is marked, and its slot stays linked until a
/// hand that walks the list comes by, four steps with each that goes so: there are fewer of them
/// than a third of the slots, about. The oldest is never one of them.
struct ForwardList {
  private(set) var oldest = Slot.none
  private var newest = Slot.none
  /// Those that have not gone.
  private var length: UInt32 = 0
  /// Slots that are linked although their entries have gone.
  private var gone: UInt32 = 0
  /// The hand looks next at the slot after this one. None: at the one after the oldest.
  private var hand = Slot.none

  private static var steps: Int { 4 }

  @inline(__always) var count: Int { Int(length) }
  @inline(__always) var isEmpty: Bool { length == 0 }

  /// A slot whose tag is set.
  @inline(__always)
  mutating func push(_ slot: Slot, _ entries: borrowing Entries) {
    entries.link(slot).pointee.newer = .none
    append(slot, entries)
  }

  /// A slot that gets this tag, with level 0.
  @inline(__always)
  mutating func push(
    _ slot: Slot, costClass: UInt32, _ entries: borrowing Entries
  ) {
    entries.link(slot).pointee = ForwardLink(costClass: costClass)
    append(slot, entries)
  }

  @inline(__always)
  private mutating func append(
    _ slot: Slot, _ entries: borrowing Entries
  ) {
    if newest.isNone { oldest = slot } else { entries.link(newest).pointee.newer = slot }
    newest = slot
    length &+= 1
  }

  /// Takes the oldest out. Slots behind it whose entries have gone are put before `freed`.
  @inline(__always)
  mutating func pop(
    _ entries: borrowing Entries, freed: inout Slot
  ) {
    let first = oldest
    oldest = entries.link(first).pointee.newer
    if oldest.isNone { newest = .none }
    length &-= 1
    if _slowPath(gone != 0) { pass(first, entries, freed: &freed) }
  }

  /// `first` was the oldest.
  @inline(never)
  private mutating func pass(
    _ first: Slot, _ entries: borrowing Entries, freed: inout Slot
  ) {
    if hand == first { hand = .none }
    while !oldest.isNone, entries.link(oldest).pointee.isGone {
      let slot = oldest
      if hand == slot { hand = .none }
      oldest = entries.link(slot).pointee.newer
      give(slot, entries, &freed)
    }
    if oldest.isNone { newest = .none }
  }

  /// The entry of a slot has gone. Returns whether its slot is free; if not, it will be put before
  /// `freed` one day, as slots are for which that day has come.
  @inline(__always)
  mutating func remove(
    _ slot: Slot, _ entries: borrowing Entries, freed: inout Slot
  ) -> Bool {
    if _fastPath(slot == oldest) {
      pop(entries, freed: &freed)
      return true
    }
    removeInside(slot, entries, freed: &freed)
    return false
  }

  @inline(never)
  private mutating func removeInside(
    _ slot: Slot, _ entries: borrowing Entries, freed: inout Slot
  ) {
    if gone == 0 { hand = .none }
    entries.link(slot).pointee.markGone()
    length &-= 1
    gone &+= 1
    for _ in 0..<ForwardList.steps where gone > 0 {
      let before = hand.isNone ? oldest : hand
      let slot = entries.link(before).pointee.newer
      if slot.isNone {
        hand = .none
      } else if entries.link(slot).pointee.isGone {
        entries.link(before).pointee.newer = entries.link(slot).pointee.newer
        if slot == newest { newest = before }
        give(slot, entries, &freed)
      } else {
        hand = slot
      }
    }
  }

  private mutating func give(
    _ slot: Slot, _ entries: borrowing Entries, _ freed: inout Slot
  ) {
    entries.link(slot).pointee.newer = freed
    freed = slot
    gone &-= 1
  }

  /// The oldest but one that is spared, which goes behind the others if it is the oldest.
  @inline(__always)
  mutating func first(
    sparing spared: Slot, _ entries: borrowing Entries, freed: inout Slot
  ) -> Slot? {
    if oldest.isNone { return nil }
    if _slowPath(oldest == spared) {
      if length == 1 { return nil }
      pop(entries, freed: &freed)
      push(spared, entries)
    }
    return oldest
  }

  /// From the oldest on.
  func forEach(
    _ entries: borrowing Entries, _ body: (Slot) -> Void
  ) {
    var slot = oldest
    while !slot.isNone {
      let link = entries.link(slot).pointee
      if !link.isGone { body(slot) }
      slot = link.newer
    }
  }

  /// The invariant that does not hold, or nil.
  func violation(_ entries: borrowing Entries) -> StaticString? {
    var live = 0
    var dead = 0
    var last = Slot.none
    var isHandThere = hand.isNone || gone == 0
    var slot = oldest
    while !slot.isNone && live + dead <= count + Int(gone) {
      let link = entries.link(slot).pointee
      if link.isGone { dead += 1 } else { live += 1 }
      if link.isGone && slot == oldest { return "the oldest of a list has gone" }
      if slot == hand { isHandThere = true }
      last = slot
      slot = link.newer
    }
    if last != newest { return "a list does not end at its newest" }
    if !isHandThere { return "a list's hand is not in it" }
    return live == count && dead == Int(gone) ? nil : "a list's count is wrong"
  }
}
