import CSystem

/// What befalls a key of the sample. Reads alone can be hits: a write that finds an entry to
/// replace has gained nothing by it, and says little of reads to come (S. Khan et al., 'Improving
/// cache performance using read-write partitioning', 2014).
enum Access {
  /// A read that the tier answers.
  case hit
  /// A read of what the tier has not. Whether a put follows is not known.
  case miss
  case put
}

/// A small cache of keys alone, which tries one mode on a sample of what is asked for. Its queue is
/// the code of a shard's, on entries of the same form: a slab, whose slots keep the keys, and a
/// word for each slot. The words have the uses where those of a table have them:
///
///     63..32  the cost, in units of 2^costShift
///     31..16  the next of the chain of entries with like keys: its slot + 1; 0: none
///     1..0    uses
struct Shadow: ~Copyable {
  /// As large as the sample is in a tier that is not large; beyond, it is thinner. Where costs
  /// count it is made for half as many, and may have so many if they are cheap.
  static let mostEntries = 512

  private let mode: Mode
  private let capacity: Int
  /// In the unit of the entries' costs; 0: costs do not count.
  private let costLimit: UInt64
  private let costShift: UInt64
  private var cost: UInt64 = 0
  private var queue = SegmentedQueue()
  /// None before something has to go.
  private var ghosts = Ghosts()
  private let remembered: Int
  private var entries: Entries
  private let words: UnsafeMutablePointer<Word>
  /// The first of each chain, as in the words. Behind them.
  private let chains: UnsafeMutablePointer<UInt16>
  private let chainMask: UInt32

  /// `costLimit`: 0: costs do not count. Else `capacity` is what the limit holds by experience, and
  /// there may be twice as many entries. `counts`: it will be asked with a sketch of its own.
  init(_ mode: Mode, capacity: Int, costLimit: UInt64, counts: Bool) throws(Failure) {
    let most = costLimit == 0 ? capacity : 2 * capacity
    var chainCount = 1
    while chainCount < most { chainCount *= 2 }
    let wordCount = most + (chainCount + 3) / 4
    words = try Heap.takeLines((wordCount + 7) / 8, seed: wordCount)
      .bindMemory(to: Word.self, capacity: wordCount)
    chains = UnsafeMutableRawPointer(words + most).assumingMemoryBound(to: UInt16.self)
    chainMask = UInt32(chainCount - 1)
    entries = Entries(words, countsAccesses: counts)
    self.mode = mode
    self.capacity = most
    // Costs are kept in units of the power of two that is just above.
    costShift = UInt64(64 - (costLimit >> 24).leadingZeroBitCount)
    self.costLimit = costLimit == 0 ? 0 : max(1, costLimit >> costShift)
    remembered = capacity
    queue.weighs = costLimit != 0
  }

  deinit { Heap.give(words) }

  /// Whether a read has found the key. If it was not there, it is now, unless memory has run out or
  /// the tier has missed it too. The lowest bit of a key is 0.
  mutating func ask(
    _ key: UInt32, cost: UInt64, _ sketch: borrowing FrequencySketch, as access: Access = .hit
  ) -> Bool {
    if let slot = find(key) {
      if access == .put { return false }
      let place = entries.place(of: slot)
      if place.pointee.uses < Word.mostUses { place.pointee.uses += 1 }
      return true
    }
    if access == .miss { return false }
    let itsCost = costLimit == 0 ? 0 : max(1, cost >> costShift)
    // A sample of the keys has too little room for an entry that has its place in the tier; all
    // shadows miss it alike.
    if itsCost > costLimit / 4 && costLimit != 0 { return false }
    let costClass = costLimit == 0 ? 0 : CostLists.costClass(cost)
    let isFull = isFull(itsCost)
    if isFull && ghosts.isNone { remember() }
    if entries.countsAccesses { sketch.increment(key) }
    queue.prepare(
      key, ghost: key, costClass: costClass, isFull: isFull, mode, sketch, &ghosts, entries)
    while self.isFull(itsCost),
      let slot = queue.victim(mode, sparing: .none, sketch, &ghosts, entries, nil)?.slot
    {
      // The first of its list, whose slot is free.
      _ = queue.forget(slot, isMain: entries.isMain(slot), entries)
      remove(slot)
    }
    do throws(Failure) { _ = try entries.slab.reserve() } catch { return false }
    queue.admit(insert(key, cost: itsCost), costClass: costClass, mode, sketch, entries)
    return false
  }

  /// Without memory there are no ghosts until the next time.
  @inline(never)
  private mutating func remember() {
    do throws(Failure) { ghosts = try Ghosts(capacity: remembered) } catch {}
  }

  /// The bytes for an entry: a slot, a word, up to two heads of chains, and two ghosts.
  static var bytesPerEntry: Int { 8 + 8 + 4 + 4 }
  /// Without lists that differ by cost, each of which takes its entries' place.
  var bytes: Int {
    MemoryLayout<Shadow>.stride + 8 * capacity + 2 * (Int(chainMask) + 1)
      + entries.slab.bytes + ghosts.bytes
  }

  private func isFull(_ more: UInt64) -> Bool {
    queue.count >= capacity || cost + more > costLimit
  }

  // MARK: keys

  /// As in a word.
  private func next(_ number: UInt16) -> UInt16 {
    UInt16(truncatingIfNeeded: words[Int(number) - 1].bits >> 16)
  }

  private func chain(_ key: UInt32) -> UnsafeMutablePointer<UInt16> {
    chains + Int((key ^ key >> 16) & chainMask)
  }

  private func find(_ key: UInt32) -> Slot? {
    var number = chain(key).pointee
    while number != 0 {
      let slot = Slot(UInt32(number) - 1)
      if entries.key(slot) == key { return slot }
      number = next(number)
    }
    return nil
  }

  /// The slab has room.
  private mutating func insert(_ key: UInt32, cost: UInt64) -> Slot {
    let slot = entries.slab.take(key)
    let first = chain(key)
    words[Int(slot.number)] = Word(
      bits: UInt64(UInt32(truncatingIfNeeded: cost)) << 32 | UInt64(first.pointee) << 16)
    first.pointee = UInt16(truncatingIfNeeded: slot.number + 1)
    self.cost += cost
    return slot
  }

  private mutating func remove(_ slot: Slot) {
    let number = UInt16(truncatingIfNeeded: slot.number + 1)
    let next = next(number)
    let first = chain(entries.key(slot))
    if first.pointee == number {
      first.pointee = next
    } else {
      var before = first.pointee
      while self.next(before) != number { before = self.next(before) }
      let word = words + (Int(before) - 1)
      word.pointee.bits = word.pointee.bits & ~0xFFFF_0000 | UInt64(next) << 16
    }
    cost -= words[Int(slot.number)].bits >> 32
    entries.slab.give(back: slot)
  }

  func violation() -> StaticString? {
    if queue.count > capacity || cost > costLimit { return "a shadow is too large" }
    return queue.violation(entries)
  }
}
