import CSystem

/// Keys in one growing buffer, each behind its size.
struct KeyPage: ~Copyable {
  private var buffer: UnsafeMutableRawPointer
  private var capacity: Int
  private var used = 0
  /// Of the key to step to.
  private var position = 0
  /// Of the key that was stepped to last.
  private var last: Int?
  private var isShort = false

  init() throws(Failure) {
    capacity = 4096
    buffer = try Allocation.bytes(capacity)
  }

  deinit { free(buffer) }

  private func key(at offset: Int) -> Bytes {
    Bytes(
      start: buffer + (offset + 2),
      count: Int(buffer.loadUnaligned(fromByteOffset: offset, as: UInt16.self)))
  }

  var current: Bytes? { last.map { key(at: $0) } }

  mutating func step() -> Bytes? {
    guard position < used else { return nil }
    let found = key(at: position)
    last = position
    position += 2 + found.count
    return found
  }

  /// Back to the state of a new page.
  mutating func reset() {
    used = 0
    position = 0
    last = nil
  }

  /// Fills the page anew. `fetch` is handed the key that was stepped to last (nil before
  /// the first), and a function that appends one; what it returns is returned. The last key
  /// stays at the front, already stepped to.
  mutating func refill(
    _ fetch: (Bytes?, (Bytes) -> Void) throws(Failure) -> Int
  ) throws(Failure) -> Int {
    if let last {
      let size = 2 + key(at: last).count
      memmove(buffer, buffer + last, size)
      used = size
      position = size
      self.last = 0
    } else {
      used = 0
      position = 0
    }
    isShort = false
    // The last key may move when the buffer grows: the fetch reads a copy.
    let copy = try Allocation.bytes(max(used, 1))
    defer { free(copy) }
    copy.copyMemory(from: buffer, byteCount: used)
    let from = last == nil ? nil : Bytes(start: copy + 2, count: used - 2)
    let passed = try withAppender(fetch, from)
    if isShort { throw .noMemory }
    return passed
  }

  private mutating func withAppender(
    _ fetch: (Bytes?, (Bytes) -> Void) throws(Failure) -> Int, _ from: Bytes?
  ) throws(Failure) -> Int {
    let page = KeyAppender(buffer, capacity, used)
    defer {
      buffer = page.buffer
      capacity = page.capacity
      used = page.used
      isShort = page.isShort
    }
    return try fetch(from) { page.append($0) }
  }
}

/// The page that the fetching closure appends to: a reference, since it escapes nowhere but cannot
/// borrow the page exclusively.
private final class KeyAppender {
  var buffer: UnsafeMutableRawPointer
  var capacity: Int
  var used: Int
  var isShort = false

  init(_ buffer: UnsafeMutableRawPointer, _ capacity: Int, _ used: Int) {
    self.buffer = buffer
    self.capacity = capacity
    self.used = used
  }

  func append(_ key: Bytes) {
    guard !isShort else { return }
    let needed = used + 2 + key.count
    if needed > capacity {
      let larger = max(needed, capacity * 2)
      guard let grown = realloc(buffer, larger) else {
        isShort = true
        return
      }
      buffer = grown
      capacity = larger
    }
    buffer.storeBytes(of: UInt16(key.count), toByteOffset: used, as: UInt16.self)
    (buffer + (used + 2)).copyMemory(from: key.baseAddress!, byteCount: key.count)
    used = needed
  }
}
