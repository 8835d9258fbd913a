import CSystem

/// Memory whose size a caller or a disk decides. Swift's own allocation traps when memory runs out;
/// these functions fail.
enum Allocation {
  /// At least `size` bytes, 16-byte aligned, not initialised. The caller frees them with `free`.
  @inline(__always)
  static func bytes(_ size: Int) throws(Failure) -> UnsafeMutableRawPointer {
    guard size >= 0, let memory = malloc(size) else { throw .noMemory }
    return memory
  }

  /// From this size on memory that is new to the process is asked for as a whole: a fault for each
  /// page costs twice as much.
  private static let manyPages = 64 << 10

  /// Called with memory that is about to be written from end to end. It may have been in use
  /// before: its last whole page tells.
  @inline(__always)
  static func prepare(_ memory: UnsafeMutableRawPointer, _ size: Int) {
    if _slowPath(size >= manyPages) { populate(memory, size) }
  }

  @inline(never)
  private static func populate(_ memory: UnsafeMutableRawPointer, _ size: Int) {
    let page = 4096
    let lead = Int(bitPattern: memory) & (page - 1)
    let (start, count) = (memory - lead, (lead + size) & ~(page - 1))
    var isThere: UInt8 = 1
    guard mincore(start + (count - page), page, &isThere) == 0, isThere & 1 == 0 else { return }
    // MADV_POPULATE_WRITE, since Linux 5.14. Without it the faults come one by one.
    madvise(start, count, 23)
  }

  /// Zeroed room for `count` values, of a type for which zeroes are a valid value. The caller frees
  /// it with `free`.
  static func array<T>(_ type: T.Type, _ count: Int) throws(Failure)
    -> UnsafeMutablePointer<T>
  {
    try zeroes(count, MemoryLayout<T>.stride).bindMemory(to: T.self, capacity: count)
  }

  @inline(never)
  private static func zeroes(
    _ count: Int, _ stride: Int
  ) throws(Failure) -> UnsafeMutableRawPointer {
    guard count >= 0, let memory = calloc(max(count, 1), stride) else { throw .noMemory }
    return memory
  }

  /// Zeroed cache lines of 64 bytes, aligned to 64 bytes. The caller frees them with `free`.
  @inline(never)
  static func lines(_ count: Int) throws(Failure) -> UnsafeMutableRawPointer {
    let (size, overflow) = count.multipliedReportingOverflow(by: 64)
    guard !overflow, size >= 0, let memory = aligned_alloc(64, max(size, 64)) else {
      throw .noMemory
    }
    memset(memory, 0, size)
    return memory
  }

  /// Zeroed room for one value.
  static func one<T>(_ type: T.Type) throws(Failure) -> UnsafeMutablePointer<T> {
    try array(type, 1)
  }
}

/// Bytes that another object owns, valid during the call that gets them.
typealias Bytes = UnsafeRawBufferPointer

extension UnsafeRawBufferPointer {
  @inline(never)
  func hasSameBytes(as other: UnsafeRawBufferPointer) -> Bool {
    count == other.count
      && (count == 0 || memcmp(baseAddress!, other.baseAddress!, count) == 0)
  }

  func begins(with prefix: UnsafeRawBufferPointer) -> Bool {
    prefix.count == 0
      || (count >= prefix.count && memcmp(baseAddress!, prefix.baseAddress!, prefix.count) == 0)
  }

  /// By bytes; a prefix comes before the longer string: SQLite's order of blobs.
  func isOrderedBeforeOrSame(as other: UnsafeRawBufferPointer) -> Bool {
    let common = Swift.min(count, other.count)
    let order = common == 0 ? 0 : memcmp(baseAddress!, other.baseAddress!, common)
    return order < 0 || (order == 0 && count <= other.count)
  }
}
