import CSystem
import Synchronization

/// Numbers that all threads change, in cache lines of which each thread changes one only. Threads
/// that are numbered one after the other have different lines, so they do not wait for each other's
/// stores. The number itself is what the lines have together.
struct ThreadLines: ~Copyable {
  typealias Word = UnsafeMutablePointer<Atomic<UInt64>>

  static let count = 8

  private let base: UnsafeMutableRawPointer

  /// All words are 0.
  init() throws(Failure) { base = try Allocation.lines(ThreadLines.count) }

  deinit { free(base) }

  /// A word, of eight, of one line.
  @inline(__always)
  subscript(_ line: Int, _ word: Int = 0) -> Word {
    (base + (line * 64 + word * 8)).assumingMemoryBound(to: Atomic<UInt64>.self)
  }

  /// The word of the line that this thread changes.
  @inline(__always)
  func own(_ word: Int = 0) -> Word {
    self[ThreadState.number & (ThreadLines.count - 1), word]
  }

  func sum(_ word: Int) -> UInt64 {
    var sum: UInt64 = 0
    for line in 0..<ThreadLines.count {
      sum &+= self[line, word].pointee.load(ordering: .relaxed)
    }
    return sum
  }
}
