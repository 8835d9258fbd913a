/// What makes every operation one step, whatever store a kill comes behind.
///
/// An operation first writes where no process looks: an entry above the head, a page of slots that
/// is not in force. Then it says which words of the index it changes, and to what, here; then how
/// many they are, in ONE store: that is the operation's commit. Then it changes them, in the order
/// in which they were named, and the count becomes 0 again.
///
///     a kill before the count   nothing has happened: the next operation overwrites the bytes
///     a kill after it           the process that takes the lock over changes all of the words
///     a kill behind the last    the same once more: values, not differences, so it does no harm
///
/// Readers take no lock and see the words change one after the other, so their order matters
/// where it is used; no reader needs two of them to fit each other.
struct RedoRecord: ~Copyable {
  /// The longest operation: a segment takes the oldest one's place.
  static let most = 10

  private let words: SharedWords
  private var count = 0

  @inline(__always)
  init(_ words: SharedWords) { self.words = words }

  @inline(__always)
  mutating func set(_ offset: Int, _ value: UInt64) {
    assert(count < RedoRecord.most)
    let pair = IndexAt.redo + 8 + count * 16
    words.store(pair, UInt64(offset))
    words.store(pair + 8, value)
    count += 1
  }

  @inline(__always)
  consuming func commit() {
    words.store(IndexAt.redo, UInt64(count))
    RedoRecord.carryOut(words, count, limit: Int.max)
  }

  /// Of a process that died. `limit`: how long the index is. One that was tampered with has
  /// offsets behind its end, or more words than there are; they are left alone.
  static func complete(_ words: SharedWords, limit: Int) {
    let count = words.load(IndexAt.redo)
    if count != 0 { carryOut(words, Int(min(count, UInt64(most))), limit: limit) }
  }

  @inline(__always)
  private static func carryOut(_ words: SharedWords, _ count: Int, limit: Int) {
    for i in 0..<count {
      let pair = IndexAt.redo + 8 + i * 16
      let offset = words.load(pair)
      if offset & 7 == 0, offset >= IndexAt.clean, offset &+ 8 <= UInt64(limit) {
        words.store(Int(offset), words.load(pair + 8))
      }
    }
    words.store(IndexAt.redo, 0)
  }
}
