import CSystem

/// A queue of slots that goes by age and cost: a list for each class of cost, powers of two, of
/// which each goes by age alone. The next to go is among the heads the one whose age counts most
/// by its class, so an entry of twice the cost has to prove itself in less than half the time.
/// While there is one class this is one list.
///
/// Every shard and every shadow has two of these, so only lists that have entries take memory.
///
/// SOURCES. That age x size over the heads of lists of like size is enough, and as good as a
/// heap: C. Aggarwal, J. Wolf and P. Yu, 'Caching on the World Wide Web' (1999, 'pyramidal
/// selection'). Uses divide it: K. Cheng and Y. Kambayashi, 'LRU-SP' (2000). For a steady load
/// that is the order of GreedyDual-Size-Frequency (L. Cherkasova, 1998), where the age is what
/// `L` has grown by. Here a level of frequency (SegmentedQueue.swift) moves an entry to the list
/// of a lower class.
///
/// Entries have no time stamps: a list's head came n - 1 pushes ago, and the average time from
/// push to push is measured (J. Little, 1961).
struct CostLists: ~Copyable {
  private struct Line {
    var list = ForwardList()
    /// The average time from push to push.
    var gap: Float = 0
    /// When the last came.
    var last: UInt32 = 0
    /// When the pace was measured, and how many have come since.
    var measured: UInt32 = 0
    var pushes: UInt32 = 0

    /// One is pushed.
    @inline(__always)
    mutating func keepPace(at now: UInt32) {
      pushes &+= 1
      // A short list's pace changes with each push, and any list's with one long in coming.
      if _slowPath(pushes >= 16 || now &- last >= 16 || list.count < 64) { measure(at: now) }
      last = now
    }

    @inline(__always)
    mutating func push(
      _ slot: Slot, at now: UInt32, _ entries: borrowing Entries
    ) {
      keepPace(at: now)
      list.push(slot, entries)
    }

    /// Once in a while, for it takes divisions: each push counts as one.
    @inline(never)
    mutating func measure(at now: UInt32) {
      let passed = Float(now &- measured) / Float(pushes)
      let weight = max(1, min(64, list.count), list.count / 4)
      gap += (passed - gap) * min(1, Float(pushes) / Float(weight))
      measured = now
      pushes = 0
    }

    func age(at now: UInt32) -> Float { Float(list.count - 1) * gap + Float(now &- last) + 1 }
  }

  /// A bit for each list that has entries.
  private var used: UInt32 = 0
  private(set) var count = 0
  /// The list, if there is one.
  private var only = Line()
  /// The lists in order, if there are several.
  private var lines: UnsafeMutablePointer<Line>?
  private var room: UInt32 = 0
  /// Slots for `takeFreed`, linked.
  private var freed = Slot.none
  private let inPlace = InPlace()

  deinit { free(lines) }

  @inline(__always) var isEmpty: Bool { count == 0 }
  @inline(__always) private var isOne: Bool { used & (used &- 1) == 0 }

  /// The most bytes that an entry takes here beyond its links: a list of its own.
  static var lineSize: Int { MemoryLayout<Line>.stride }

  // MARK: classes

  static var mostClass: UInt32 { 30 }
  /// Of entries whose cost does not count; should it count later, they are neither the first
  /// nor the last to go.
  static var unknownClass: UInt32 { 12 }

  /// All from 2^30 on are alike.
  @inline(__always)
  static func costClass(_ cost: UInt64) -> UInt32 {
    min(mostClass, UInt32(truncatingIfNeeded: 63 &- (cost | 1).leadingZeroBitCount))
  }

  /// The weight of one unit of age in a class: the cost to the power of 4/3. On traces with sizes
  /// 1 gave fewer hits, 3/2 more on some and far fewer where what is popular is large.
  @inline(never)
  static func weight(_ costClass: UInt32) -> Float {
    let thirds = costClass &* 4
    let fraction: Float =
      switch thirds % 3 {
      case 0: 1
      case 1: 1.2599210
      default: 1.5874011
      }
    return fraction * Float(bitPattern: (127 &+ thirds / 3) &<< 23)
  }

  @inline(__always)
  private static func index(_ link: ForwardLink) -> Int {
    Int(link.costClass) - min(Int(link.costClass), Int(link.level))
  }

  // MARK: lists

  private func place(_ index: Int) -> Int {
    CostLists.count(used & (1 &<< UInt32(truncatingIfNeeded: index) &- 1))
  }

  private var lineCount: Int { CostLists.count(used) }

  /// A function of its own: without an instruction of the processor it takes a dozen.
  @inline(never)
  private static func count(_ bits: UInt32) -> Int { bits.nonzeroBitCount }

  /// Makes another list. False: no memory.
  @inline(never)
  private mutating func open(_ index: Int) -> Bool {
    let lineCount = lineCount
    if lineCount >= room {
      let more = max(4, room * 2)
      guard
        let grown = realloc(lines, Int(more) * CostLists.lineSize)?
          .bindMemory(to: Line.self, capacity: Int(more))
      else { return false }
      lines = grown
      room = more
    }
    let lines = lines.unsafelyUnwrapped
    if lineCount == 1 { lines[0] = only }
    let place = place(index)
    memmove(lines + place + 1, lines + place, (lineCount - place) * CostLists.lineSize)
    lines[place] = Line()
    used |= 1 &<< UInt32(truncatingIfNeeded: index)
    return true
  }

  /// An empty one of several goes.
  @inline(never)
  private mutating func close(_ index: Int, _ place: Int) {
    used &= ~(1 &<< UInt32(truncatingIfNeeded: index))
    let lines = lines.unsafelyUnwrapped
    let after = lineCount - place
    memmove(lines + place, lines + place + 1, after * CostLists.lineSize)
    if isOne { only = lines[0] }
  }

  // MARK: entries

  /// To the list that its tag says. Without memory for another list the tag is changed to say one
  /// that is there.
  @inline(never)
  @_optimize(speed)
  mutating func push(_ slot: Slot, at now: UInt32, _ entries: borrowing Entries) {
    count &+= 1
    let index = CostLists.index(entries.link(slot).pointee)
    let bit: UInt32 = 1 &<< UInt32(truncatingIfNeeded: index)
    if _slowPath(used & ~bit != 0) { return pushToSeveral(slot, index, at: now, entries) }
    used = bit
    only.push(slot, at: now, entries)
  }

  /// The same, inlined where there is one list, of a slot that gets this tag, with level 0.
  @inline(__always)
  mutating func pushAtOnce(
    _ slot: Slot, costClass: UInt32, at now: UInt32, _ entries: borrowing Entries
  ) {
    let bit: UInt32 = 1 &<< costClass
    if _slowPath(used & ~bit != 0) {
      entries.link(slot).pointee.tag(costClass: costClass, level: 0)
      return push(slot, at: now, entries)
    }
    count &+= 1
    used = bit
    only.keepPace(at: now)
    only.list.push(slot, costClass: costClass, entries)
  }

  @inline(never)
  private mutating func pushToSeveral(
    _ slot: Slot, _ index: Int, at now: UInt32, _ entries: borrowing Entries
  ) {
    var index = index
    var bit: UInt32 = 1 &<< UInt32(truncatingIfNeeded: index)
    if used & bit == 0 && !open(index) {
      index = used.trailingZeroBitCount
      entries.link(slot).pointee.tag(costClass: UInt32(index), level: 0)
      bit = 1 &<< UInt32(truncatingIfNeeded: index)
      if isOne { return only.push(slot, at: now, entries) }
    }
    lines.unsafelyUnwrapped[place(index)].push(slot, at: now, entries)
  }

  /// The entry of a slot has gone. Whether its slot is free; if not, `takeFreed` will give it.
  @inline(never)
  @_optimize(speed)
  mutating func remove(
    _ slot: Slot, _ entries: borrowing Entries
  ) -> Bool {
    removeAtOnce(slot, entries)
  }

  /// The same, inlined where there is one list.
  @inline(__always)
  private mutating func removeAtOnce(
    _ slot: Slot, _ entries: borrowing Entries
  ) -> Bool {
    count &-= 1
    if _slowPath(!isOne) { return removeFromSeveral(slot, entries) }
    let isFree = only.list.remove(slot, entries, freed: &freed)
    if only.list.isEmpty { used = 0 }
    return isFree
  }

  @inline(never)
  private mutating func removeFromSeveral(
    _ slot: Slot, _ entries: borrowing Entries
  ) -> Bool {
    let index = CostLists.index(entries.link(slot).pointee)
    let place = place(index)
    let line = lines.unsafelyUnwrapped + place
    let isFree = line.pointee.list.remove(slot, entries, freed: &freed)
    if line.pointee.list.isEmpty { close(index, place) }
    return isFree
  }

  /// Takes out a slot that `first` has given.
  @inline(__always)
  mutating func pop(_ slot: Slot, _ entries: borrowing Entries) {
    let isFree = remove(slot, entries)
    assert(isFree)
  }

  /// The same, inlined where there is one list.
  @inline(__always)
  mutating func popAtOnce(_ slot: Slot, _ entries: borrowing Entries) {
    let isFree = removeAtOnce(slot, entries)
    assert(isFree)
  }

  /// A slot that was linked although its entry had gone, and is not any more.
  @inline(__always)
  mutating func takeFreed(_ entries: borrowing Entries) -> Slot? {
    if _fastPath(freed.isNone) { return nil }
    let slot = freed
    freed = entries.link(slot).pointee.newer
    return slot
  }

  /// The next to go but one that is spared. `weighs`: by age and class, else by age.
  @inline(__always)
  mutating func first(
    sparing spared: Slot, at now: UInt32, weighs: Bool, _ entries: borrowing Entries
  ) -> Slot? {
    if isOne {
      return used == 0 ? nil : only.list.first(sparing: spared, entries, freed: &freed)
    }
    return heaviest(sparing: spared, at: now, weighs: weighs, entries)
  }

  @inline(never)
  private mutating func heaviest(
    sparing spared: Slot, at now: UInt32, weighs: Bool, _ entries: borrowing Entries
  ) -> Slot? {
    var found: Slot?
    var most: Float = -1
    var left = used
    var line = lines.unsafelyUnwrapped
    while left != 0 {
      let index = left.trailingZeroBitCount
      left &= left &- 1
      var age = line.pointee.age(at: now)
      if weighs { age *= CostLists.weight(UInt32(index)) }
      if age > most, let slot = line.pointee.list.first(sparing: spared, entries, freed: &freed) {
        most = age
        found = slot
      }
      line += 1
    }
    return found
  }

  /// How long ago the oldest came, about.
  func age(at now: UInt32) -> Float {
    if isOne { return only.age(at: now) }
    var most: Float = 0
    for place in 0..<lineCount { most = max(most, line(place).age(at: now)) }
    return most
  }

  /// The list at a place, from the cheapest on.
  private func line(_ place: Int) -> Line { isOne ? only : lines.unsafelyUnwrapped[place] }

  /// The most costly first, of like cost from the oldest on.
  @inline(never)
  func forEach(
    _ entries: borrowing Entries, _ body: (Slot) -> Void
  ) {
    for place in (0..<lineCount).reversed() { line(place).list.forEach(entries, body) }
  }

  /// The invariant that does not hold, or nil.
  func violation(_ entries: borrowing Entries) -> StaticString? {
    var sum = 0
    for index in 0..<32 where used & 1 << UInt32(index) != 0 {
      let list = line(place(index)).list
      if let found = list.violation(entries) { return found }
      var isElsewhere = false
      list.forEach(entries) {
        if CostLists.index(entries.link($0).pointee) != index { isElsewhere = true }
      }
      if isElsewhere { return "an entry is in the list of another class" }
      if list.isEmpty { return "a list is empty and there" }
      sum += list.count
    }
    return sum == count ? nil : "the count of the lists is wrong"
  }
}
