import CSystem
import Synchronization

/// How often keys were asked for of late, about: a count-min sketch of 4-bit counters that are
/// halved from time to time (Cormode and Muthukrishnan, 2005; TinyLFU: Einziger, Friedman,
/// Manes, 2017).
///
/// A key's four counters are in one cache line, each in a pair of words of its own: rows that are
/// apart would be four lines, for estimates that are hardly better (Putze, Sanders and Singler,
/// 'Cache-, hash- and space-efficient Bloom filters', 2007).
///
/// Shards share it without a lock: a count that two threads make at once may be lost.
struct FrequencySketch: ~Copyable {
  /// 64-byte aligned.
  private let words: UnsafeMutablePointer<Atomic<UInt64>>?
  private let memory: UnsafeMutableRawPointer?
  let wordCount: Int
  /// Of a word's index the bits that say in which line it is.
  private let lineMask: Int
  /// After so many increments everything is halved.
  private let period: Int
  private let state: UnsafeMutablePointer<State>?
  private let inPlace = InPlace()

  private struct State: ~Copyable {
    let increments = Atomic<Int>(0)
    /// The next word to be halved; past the end: none.
    let hand = Atomic<Int>(Int.max)
  }

  /// A word, 16 counters, serves 4 entries: on the reference traces more words gained less than
  /// another hash does. Small caches need more, and have this many.
  static let fewestWords = 4096
  static var fewestBytes: Int { 8 * fewestWords + 128 }
  var bytes: Int { wordCount == 0 ? 0 : 8 * wordCount + 128 }

  /// For so many entries; for none it counts nothing. `thinning`: smaller by this power of two, for
  /// so much thinner a sample of the keys: it errs and forgets as the one for all of them.
  @inline(never)
  init(capacity: Int, thinning: Int = 1) throws(Failure) {
    wordCount = capacity == 0 ? 0 : max(64, FrequencySketch.wordCount(capacity) / thinning)
    lineMask = (wordCount &- 1) & ~7
    let made = try FrequencySketch.make(wordCount)
    words = made.words
    memory = made.memory
    state = made.state
    period = max(8 * capacity, 8192) / thinning
  }

  private static func wordCount(_ capacity: Int) -> Int {
    var count = fewestWords
    while count < capacity / 4 && count < 1 << 30 { count *= 2 }
    return count
  }

  private struct Parts {
    var memory: UnsafeMutableRawPointer?
    var words: UnsafeMutablePointer<Atomic<UInt64>>?
    var state: UnsafeMutablePointer<State>?
  }

  private static func make(_ count: Int) throws(Failure) -> Parts {
    if count == 0 { return Parts() }
    let memory =
      isOfHeap(count)
      ? try Heap.takeLines(count / 8, seed: count)
      : UnsafeMutableRawPointer(try Allocation.array(UInt64.self, count + 8))
    let line: UnsafeMutableRawPointer
    do throws(Failure) {
      line = try Allocation.lines(1)
    } catch {
      give(memory, count)
      throw error
    }
    let state = line.bindMemory(to: State.self, capacity: 1)
    state.initialize(to: State())
    let words = memory.alignedUp(toMultipleOf: 64)
      .bindMemory(to: Atomic<UInt64>.self, capacity: count)
    return Parts(memory: memory, words: words, state: state)
  }

  /// A large sketch is malloc's, since pages of it that no thread has touched take no memory.
  private static func isOfHeap(_ count: Int) -> Bool { count <= 8192 }

  private static func give(_ memory: UnsafeMutableRawPointer, _ count: Int) {
    if isOfHeap(count) { Heap.give(memory) } else { free(memory) }
  }

  deinit {
    if let memory { FrequencySketch.give(memory, wordCount) }
    free(state)
  }

  /// Where a key's counters are.
  private struct Counters {
    /// The index of the first word of its line.
    let line: Int
    /// 5 bits for each row: which word of its pair, which counter of the word.
    let rows: UInt64

    @inline(__always)
    func word(_ row: Int) -> Int {
      line &+ 2 &* row &+ Int(truncatingIfNeeded: rows &>> UInt64(5 &* row) & 1)
    }
    @inline(__always)
    func shift(_ row: Int) -> UInt64 { (rows &>> UInt64(5 &* row &+ 1) & 15) &* 4 }
  }

  @inline(__always)
  private func counters(_ key: UInt32) -> Counters {
    var x = (UInt64(key) &+ 1) &* 0x9E37_79B9_7F4A_7C15
    x ^= x >> 29
    x = x &* 0xBF58_476D_1CE4_E5B9
    x ^= x >> 32
    return Counters(line: Int(truncatingIfNeeded: x >> 20) & lineMask, rows: x)
  }

  /// Prefetches the memory that a look at this key will read.
  @inline(__always)
  func prefetch(_ key: UInt32) {
    if let words { hutch_prefetch(words + counters(key).line) }
  }

  @_optimize(speed)
  func estimate(_ key: UInt32) -> UInt64 {
    guard let words else { return 0 }
    let counters = counters(key)
    @inline(__always)
    func count(_ row: Int) -> UInt64 {
      words[counters.word(row)].load(ordering: .relaxed) &>> counters.shift(row) & 15
    }
    return min(min(count(0), count(1)), min(count(2), count(3)))
  }

  /// Goes on from another's counts, if it is as large.
  func take(from other: borrowing FrequencySketch) {
    guard let words, let others = other.words, wordCount == other.wordCount else { return }
    for i in 0..<wordCount {
      words[i].store(others[i].load(ordering: .relaxed), ordering: .relaxed)
    }
  }

  @_optimize(speed)
  func increment(_ key: UInt32) {
    guard let words else { return }
    let state = state.unsafelyUnwrapped
    let counters = counters(key)
    @inline(__always)
    func grow(_ row: Int) -> Bool {
      let word = words + counters.word(row)
      let shift = counters.shift(row)
      // Rotated, so that the counter is at the right end, and one more: 0 if it was at its most.
      let old = word.pointee.load(ordering: .relaxed)
      let new = hutch_rotated(old, 0 &- shift) &+ 1
      if new & 15 == 0 { return false }
      word.pointee.store(hutch_rotated(new, shift), ordering: .relaxed)
      return true
    }
    let grew = (grow(0), grow(1), grow(2), grow(3))
    if grew.0 || grew.1 || grew.2 || grew.3 { age(words, state) }
  }

  /// Halving is spread over the increments that follow the end of a period.
  @inline(__always)
  private func age(
    _ words: UnsafeMutablePointer<Atomic<UInt64>>, _ state: UnsafeMutablePointer<State>
  ) {
    let count = state.pointee.increments.load(ordering: .relaxed) &+ 1
    if count >= period {
      state.pointee.increments.store(0, ordering: .relaxed)
      state.pointee.hand.store(0, ordering: .relaxed)
    } else {
      state.pointee.increments.store(count, ordering: .relaxed)
    }
    let hand = state.pointee.hand.load(ordering: .relaxed)
    if _slowPath(hand < wordCount) { halve(words, state, from: hand) }
  }

  @inline(never)
  private func halve(
    _ words: UnsafeMutablePointer<Atomic<UInt64>>, _ state: UnsafeMutablePointer<State>,
    from hand: Int
  ) {
    let end = min(wordCount, hand &+ 4096)
    state.pointee.hand.store(end, ordering: .relaxed)
    for i in hand..<end {
      let old = words[i].load(ordering: .relaxed)
      words[i].store(old >> 1 & 0x7777_7777_7777_7777, ordering: .relaxed)
    }
  }
}
