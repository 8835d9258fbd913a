import CSystem

/// An array of plain values that reports when memory runs out, where Swift's own traps.
struct GrowingArray<Element: BitwiseCopyable>: ~Copyable {
  private var room = GrowingRoom()

  init() {}

  deinit { free(room.memory) }

  /// There is none before the first element.
  @inline(__always)
  private var memory: UnsafeMutablePointer<Element>? {
    room.memory?.assumingMemoryBound(to: Element.self)
  }

  private(set) var count: Int {
    get { room.count }
    set { room.count = newValue }
  }

  var isEmpty: Bool { count == 0 }

  @inline(never)
  mutating func append(_ element: Element) throws(Failure) {
    try room.add(MemoryLayout<Element>.stride).assumingMemoryBound(to: Element.self)
      .pointee = element
  }

  /// Appends the element so many times.
  mutating func append(_ element: Element, _ times: Int) throws(Failure) {
    try reserve(count + times)
    for _ in 0..<times {
      memory![count] = element
      count += 1
    }
  }

  /// Appends all of `bytes`; for arrays of bytes.
  @inline(never) @_optimize(speed)
  mutating func append(contentsOf bytes: Bytes) throws(Failure) where Element == UInt8 {
    guard bytes.count > 0 else { return }
    let end = count + bytes.count
    if end > room.capacity { try reserve(max(end, room.capacity * 2)) }
    memcpy(memory.unsafelyUnwrapped + count, bytes.baseAddress.unsafelyUnwrapped, bytes.count)
    count = end
  }

  /// Makes the array's bytes these; for arrays of bytes.
  @inline(__always)
  mutating func replace(with bytes: Bytes) throws(Failure) where Element == UInt8 {
    if bytes.count > room.capacity { try reserve(max(16, bytes.count)) }
    count = bytes.count
    if count > 0 { memcpy(memory.unsafelyUnwrapped, bytes.baseAddress.unsafelyUnwrapped, count) }
  }

  mutating func reserve(_ wanted: Int) throws(Failure) {
    if wanted > room.capacity { try room.grow(to: wanted, MemoryLayout<Element>.stride) }
  }

  /// Valid until the array changes.
  var elements: UnsafeMutableBufferPointer<Element> {
    UnsafeMutableBufferPointer(start: memory, count: count)
  }

  subscript(_ index: Int) -> Element {
    get { memory![index] }
    nonmutating _modify { yield &memory![index] }
  }

  /// Sorts the elements by a number of theirs, where Swift's own sort traps without memory for its
  /// buffer. Elements with the same number come in any order.
  func sort(by comparison: @convention(c) (UnsafeRawPointer?, UnsafeRawPointer?) -> Int32) {
    guard count > 1, let memory else { return }
    qsort(memory, count, MemoryLayout<Element>.stride, comparison)
  }

  /// The answer of a comparison for `sort`.
  @inline(__always)
  static func order<Number: Comparable>(
    _ a: UnsafeRawPointer?, _ b: UnsafeRawPointer?, _ number: (Element) -> Number
  ) -> Int32 {
    let a = number(a.unsafelyUnwrapped.assumingMemoryBound(to: Element.self).pointee)
    let b = number(b.unsafelyUnwrapped.assumingMemoryBound(to: Element.self).pointee)
    return a < b ? -1 : a == b ? 0 : 1
  }

  /// Removes and returns the last element.
  mutating func popLast() -> Element? {
    guard count > 0 else { return nil }
    count -= 1
    return memory![count]
  }

  /// Moves the last element into the place of this one.
  mutating func removeBySwapping(at index: Int) {
    count -= 1
    memory![index] = memory![count]
  }

  /// Keeps the memory, like `truncate`.
  mutating func removeAll() { count = 0 }

  /// Drops the elements behind the first `length`.
  mutating func truncate(to length: Int) { count = min(count, length) }
}

/// The memory of a GrowingArray, whatever its elements are.
private struct GrowingRoom {
  var memory: UnsafeMutableRawPointer?
  /// In elements, each of which has `stride` bytes.
  var count = 0
  var capacity = 0

  @inline(never)
  mutating func grow(to wanted: Int, _ stride: Int) throws(Failure) {
    let (size, overflow) = wanted.multipliedReportingOverflow(by: stride)
    guard !overflow, let grown = realloc(memory, size) else { throw .noMemory }
    memory = grown
    capacity = wanted
  }

  /// The place of one element more.
  @inline(never)
  mutating func add(_ stride: Int) throws(Failure) -> UnsafeMutableRawPointer {
    if count == capacity { try grow(to: max(16, capacity * 2), stride) }
    defer { count &+= 1 }
    return memory.unsafelyUnwrapped + count &* stride
  }
}
