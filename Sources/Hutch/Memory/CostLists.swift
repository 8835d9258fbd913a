/// A queue of slots that goes by age and cost: a list for each class of cost, powers of two, of
/// which each goes by age alone. The next to go is among the heads the one whose age counts most
/// by its class, so an entry of twice the cost has to prove itself in less than half the time.
/// While there is one class this is one list.
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
///
/// What only looks is mutating all the same: the compiler (6.3) passes an inline array that is
/// borrowed from a variable as a copy, some thousand instructions a put.
struct CostLists: ~Copyable {
  private struct Line {
    var list = SlotList()
    /// The average time from push to push.
    var gap: Float = 0
    /// When the last came.
    var last: UInt32 = 0
  }

  private var lines = InlineArray<32, Line>(repeating: Line())
  /// A bit for each list that is not empty.
  private var used: UInt32 = 0
  private(set) var count = 0

  @inline(__always) var isEmpty: Bool { count == 0 }

  // MARK: classes

  static var mostClass: UInt32 { 31 }
  /// Of entries whose cost does not count; should it count later, they are neither the first
  /// nor the last to go.
  static var unknownClass: UInt32 { 12 }

  /// All from 2^31 on are alike.
  @inline(__always)
  static func costClass(_ cost: UInt64) -> UInt32 {
    min(mostClass, UInt32(truncatingIfNeeded: 63 &- (cost | 1).leadingZeroBitCount))
  }

  /// What one unit of age counts in a class: the cost to the power of 4/3. On traces with sizes
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
  private static func index(_ links: Links) -> Int {
    Int(links.costClass) - min(Int(links.costClass), Int(links.level))
  }

  // MARK: entries

  /// To the list that its tag says. `isMeasured`: ages will be asked for.
  @inline(never)
  mutating func push<Store: LinkStore & ~Copyable>(
    _ slot: Slot, at now: UInt32, isMeasured: Bool, _ store: borrowing Store
  ) {
    let index = CostLists.index(store.links(slot).pointee)
    if isMeasured {
      let gap = lines[index].gap
      let passed = Float(now &- lines[index].last)
      lines[index].gap = gap + (passed - gap) / Float(max(1, min(64, lines[index].list.count)))
      lines[index].last = now
    }
    lines[index].list.push(slot, store)
    used |= 1 &<< UInt32(truncatingIfNeeded: index)
    count += 1
  }

  @inline(never)
  mutating func remove<Store: LinkStore & ~Copyable>(_ slot: Slot, _ store: borrowing Store) {
    let index = CostLists.index(store.links(slot).pointee)
    lines[index].list.remove(slot, store)
    if lines[index].list.isEmpty { used &= ~(1 &<< UInt32(truncatingIfNeeded: index)) }
    count -= 1
  }

  /// The next to go but one that is spared. `weighs`: by age and class, else by age.
  @inline(never)
  mutating func first<Store: LinkStore & ~Copyable>(
    sparing spared: Slot, at now: UInt32, weighs: Bool, _ store: borrowing Store
  ) -> Slot? {
    if used & (used &- 1) == 0 {
      if used == 0 { return nil }
      return lines[used.trailingZeroBitCount].list.first(sparing: spared, store)
    }
    return heaviest(sparing: spared, at: now, weighs: weighs, store)
  }

  @inline(never)
  private mutating func heaviest<Store: LinkStore & ~Copyable>(
    sparing spared: Slot, at now: UInt32, weighs: Bool, _ store: borrowing Store
  ) -> Slot? {
    var found: Slot?
    var most: Float = -1
    var left = used
    while left != 0 {
      let index = left.trailingZeroBitCount
      left &= left &- 1
      let n = lines[index].list.count
      var age = Float(n - 1) * lines[index].gap + Float(now &- lines[index].last) + 1
      if weighs { age *= CostLists.weight(UInt32(index)) }
      if age > most, let slot = lines[index].list.first(sparing: spared, store) {
        most = age
        found = slot
      }
    }
    return found
  }

  /// The most costly first, of like cost from the oldest on.
  func forEach<Store: LinkStore & ~Copyable>(_ store: borrowing Store, _ body: (Slot) -> Void) {
    for i in 0..<32 { lines[31 - i].list.forEach(store, body) }
  }

  /// What is wrong, or nil.
  func violation<Store: LinkStore & ~Copyable>(_ store: borrowing Store) -> StaticString? {
    var sum = 0
    for i in 0..<32 {
      if let found = lines[i].list.violation(store) { return found }
      var isElsewhere = false
      lines[i].list.forEach(store) {
        if CostLists.index(store.links($0).pointee) != i { isElsewhere = true }
      }
      if isElsewhere { return "an entry is in the list of another class" }
      if lines[i].list.isEmpty != (used & 1 << UInt32(i) == 0) {
        return "a list's bit is wrong"
      }
      sum += lines[i].list.count
    }
    return sum == count ? nil : "the count of the lists is wrong"
  }
}
