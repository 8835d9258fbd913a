import CSystem

/// The next keys of a walk. They lie in one growing buffer, each behind its size in two bytes.
struct KeyPage: ~Copyable {
  private var buffer: UnsafeMutableRawPointer
  private var capacity: Int
  private var used = 0
  /// The offset of the key that comes next.
  private var position = 0
  /// The offset of the key that the walk is at; nil before the first step.
  private var last: Int?
  /// True if a key could not be appended, since there was no memory.
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

  /// Empties the page: it is then as a new one.
  mutating func reset() {
    used = 0
    position = 0
    last = nil
  }

  /// Fills the page with other keys. `fetch` gets the key that the walk is at (nil before the first
  /// step) and a function that appends a key. This function returns what `fetch` returns. The key
  /// that the walk is at becomes the page's first one, so it stays valid.
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
    // The buffer may move when it grows, so `fetch` gets a copy of the key.
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

/// The buffer of a page while keys are appended to it. It is an object, since the closure that
/// appends cannot have exclusive access to the page.
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
