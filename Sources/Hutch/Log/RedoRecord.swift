/// The record by which an operation is one step, whichever of its stores a kill follows.
///
/// An operation first writes where no process reads: an entry above the head, a page of slots that
/// is not in force. Then it writes here which words of the index it changes, and their new values.
/// Then it stores the number of these words, in ONE store, which is the operation's commit. Then it
/// changes the words, in the order in which the record names them, and sets the number to 0.
///
///     a kill before the number    nothing has happened: the next operation overwrites the bytes
///     a kill after the number     the process that takes the lock over changes all of the words
///     a kill after the last word  that process changes them once more, which does no harm: the
///                                 record has values, not differences
///
/// Readers take no lock and see the words change one after the other. No reader needs two of them
/// to fit each other. An opening does. Before it judges the state that a kill has left, it
/// completes the record in a copy of its own (`LogStore.isUsable`).
struct RedoRecord: ~Copyable {
  /// The number of words that the longest operation changes: the first segment of new entries
  /// begins (`LogStore.begin`).
  static let most = 10

  private let words: SharedWords
  private var count = 0

  @inline(__always)
  init(_ words: SharedWords) { self.words = words }

  @inline(never)
  mutating func set(_ offset: Int, _ value: UInt64) { setInPlace(offset, value) }

  /// The same, where each put, removal and move needs it.
  @inline(__always)
  mutating func setInPlace(_ offset: Int, _ value: UInt64) {
    assert(count < RedoRecord.most)
    let pair = IndexAt.redo + 8 + count * 16
    words.store(pair, UInt64(offset))
    words.store(pair + 8, value)
    count += 1
  }

  @inline(never)
  consuming func commit() {
    words.store(IndexAt.redo, UInt64(count))
    RedoRecord.carryOut(words, count, limit: Int.max)
  }

  /// Completes the operation of a process that died. `limit`: the length of the index. An index
  /// that was tampered with may have offsets behind its end, or a number of words that is too
  /// large: these are left alone.
  static func complete(_ words: SharedWords, limit: Int) {
    let count = words.load(IndexAt.redo)
    if count != 0 { carryOut(words, Int(min(count, UInt64(most))), limit: limit) }
  }

  /// Completes the operation of a process that died in a copy of the index's first words.
  static func complete(_ head: inout InlineArray<128, UInt64>) {
    for i in 0..<Int(min(head[IndexAt.redo / 8], UInt64(most))) {
      let pair = IndexAt.redo / 8 + 1 + i * 2
      let (offset, value) = (head[pair], head[pair + 1])
      if offset & 7 == 0, offset >= IndexAt.clean, offset < 128 * 8 {
        head[Int(offset) / 8] = value
      }
    }
  }

  @inline(__always)
  private static func carryOut(_ words: SharedWords, _ count: Int, limit: Int) {
    for i in 0..<count {
      let pair = IndexAt.redo + 8 + i * 16
      let offset = words.load(pair)
      if offset & 7 == 0, offset >= IndexAt.clean, offset <= UInt64(limit) &- 8 {
        words.store(Int(offset), words.load(pair + 8))
      }
    }
    words.store(IndexAt.redo, 0)
  }
}
