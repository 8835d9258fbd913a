import CSystem
import Synchronization

/// How often keys were asked for of late, about: a count-min sketch of 4-bit counters that are
/// halved from time to time (Cormode and Muthukrishnan, 2005; TinyLFU: Einziger, Friedman,
/// Manes, 2017).
///
/// Shards share it and nobody locks it: a count that two threads make at once may be lost.
struct FrequencySketch: ~Copyable {
  private let words: UnsafeMutablePointer<Atomic<UInt64>>?
  let wordCount: Int
  /// After so many increments everything is halved.
  private let period: Int
  private let state: UnsafeMutablePointer<State>?

  private struct State: ~Copyable {
    let increments = Atomic<Int>(0)
    /// The next word to be halved; past the end: none.
    let hand = Atomic<Int>(Int.max)
  }

  /// A word, 16 counters, serves 4 entries: on the reference traces more words gained less than
  /// another hash does. Small caches need more, and have this many.
  static let fewestWords = 4096
  static var fewestBytes: Int { 8 * fewestWords + 64 }
  var bytes: Int { wordCount == 0 ? 0 : 8 * wordCount + 64 }

  /// For so many entries; for none it counts nothing.
  init(capacity: Int) throws(Failure) {
    try self.init(capacity: capacity, thinning: 1)
  }

  /// Smaller by a power of two, for so much thinner a sample of the keys: it errs and forgets
  /// as the one for all of them.
  init(capacity: Int, thinning: Int) throws(Failure) {
    wordCount = capacity == 0 ? 0 : max(64, FrequencySketch.wordCount(capacity) / thinning)
    let made = try FrequencySketch.make(wordCount)
    words = made.words
    state = made.state
    period = max(8 * capacity, 8192) / thinning
  }

  private static func wordCount(_ capacity: Int) -> Int {
    var count = fewestWords
    while count < capacity / 4 && count < 1 << 30 { count *= 2 }
    return count
  }

  private struct Parts {
    var words: UnsafeMutablePointer<Atomic<UInt64>>?
    var state: UnsafeMutablePointer<State>?
  }

  private static func make(_ count: Int) throws(Failure) -> Parts {
    if count == 0 { return Parts() }
    let memory = try Allocation.array(UInt64.self, count)
    let line: UnsafeMutableRawPointer
    do throws(Failure) {
      line = try Allocation.lines(1)
    } catch {
      free(memory)
      throw error
    }
    let state = line.bindMemory(to: State.self, capacity: 1)
    state.initialize(to: State())
    let words = UnsafeMutableRawPointer(memory)
      .bindMemory(to: Atomic<UInt64>.self, capacity: count)
    return Parts(words: words, state: state)
  }

  deinit {
    free(words)
    free(state)
  }

  /// The word and shift of each row's counter.
  @inline(__always)
  private func counter(_ key: UInt32, _ row: UInt64) -> (Int, UInt64) {
    var x = (UInt64(key) &+ 1) &* (0x9E37_79B9_7F4A_7C15 &+ row &* 0xD1B5_4A32_D192_ED04)
    x ^= x >> 29
    x = x &* 0xBF58_476D_1CE4_E5B9
    x ^= x >> 32
    return (Int(truncatingIfNeeded: x >> 4) & (wordCount &- 1), (x & 15) &* 4)
  }

  func estimate(_ key: UInt32) -> UInt64 {
    guard let words else { return 0 }
    var least: UInt64 = 15
    for row in 0..<4 as Range<UInt64> {
      let (word, shift) = counter(key, row)
      least = min(least, words[word].load(ordering: .relaxed) >> shift & 15)
    }
    return least
  }

  /// Goes on from another's counts, if it is as large.
  func take(from other: borrowing FrequencySketch) {
    guard let words, let others = other.words, wordCount == other.wordCount else { return }
    for i in 0..<wordCount {
      words[i].store(others[i].load(ordering: .relaxed), ordering: .relaxed)
    }
  }

  func increment(_ key: UInt32) {
    guard let words, let state else { return }
    var grew = false
    for row in 0..<4 as Range<UInt64> {
      let (word, shift) = counter(key, row)
      let old = words[word].load(ordering: .relaxed)
      if old >> shift & 15 < 15 {
        words[word].store(old &+ 1 &<< shift, ordering: .relaxed)
        grew = true
      }
    }
    if grew { age(words, state) }
  }

  /// Halving is spread over the increments that follow the end of a period.
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
    if hand < wordCount {
      let end = min(wordCount, hand &+ 4096)
      state.pointee.hand.store(end, ordering: .relaxed)
      for i in hand..<end {
        let old = words[i].load(ordering: .relaxed)
        words[i].store(old >> 1 & 0x7777_7777_7777_7777, ordering: .relaxed)
      }
    }
  }
}
