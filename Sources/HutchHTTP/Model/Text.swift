import CSystem

/// A copy of a text: bytes that end with NUL. A pointer to them does not keep the object, so a
/// function that uses one of a local object extends the object's life (`withExtendedLifetime`).
final class Text {
  let start: UnsafeMutablePointer<CChar>
  /// Without the NUL.
  let count: Int

  private init(owning start: UnsafeMutablePointer<CChar>, _ count: Int) {
    self.start = start
    self.count = count
  }

  // In Embedded Swift an initializer that throws leaks the object, unless it has not been allocated
  // yet: a convenience initializer has not. So it is in all classes of this library.

  convenience init(_ bytes: Bytes) throws(Failure) {
    let memory = try Allocation.bytes(bytes.count + 1)
    if let base = bytes.baseAddress { memory.copyMemory(from: base, byteCount: bytes.count) }
    let start = memory.assumingMemoryBound(to: CChar.self)
    start[bytes.count] = 0
    self.init(owning: start, bytes.count)
  }

  convenience init(_ text: UnsafePointer<CChar>) throws(Failure) {
    try self.init(bytes(of: text))
  }

  /// The two, one behind the other.
  convenience init(_ text: UnsafePointer<CChar>, _ suffix: StaticString) throws(Failure) {
    var both = GrowingArray<UInt8>()
    try both.append(contentsOf: bytes(of: text))
    try both.append(suffix)
    try self.init(Bytes(both.elements))
  }

  deinit { free(start) }

  /// A copy of a text of the host; nil for NULL.
  static func optional(_ text: UnsafePointer<CChar>?) throws(Failure) -> Text? {
    guard let text else { return nil }
    return try Text(text)
  }
}

func bytes(of text: UnsafePointer<CChar>) -> Bytes {
  Bytes(start: text, count: strlen(text))
}

func bytes(of text: StaticString) -> Bytes {
  Bytes(start: text.utf8Start, count: text.utf8CodeUnitCount)
}

/// A literal as a C string: it ends with NUL.
func literal(_ text: StaticString) -> UnsafePointer<CChar> { Files.path(text) }

/// The comparisons of HTTP: without regard to the case of ASCII letters, whatever the locale.
enum Letters {
  @inline(__always)
  static func lower(_ byte: UInt8) -> UInt8 { byte >= 0x41 && byte <= 0x5A ? byte | 0x20 : byte }

  static func isHexadecimal(_ byte: UInt8) -> Bool {
    (byte >= 0x30 && byte <= 0x39) || (lower(byte) >= 0x61 && lower(byte) <= 0x66)
  }

  static func areSame(_ a: Bytes, _ b: Bytes) -> Bool {
    guard a.count == b.count else { return false }
    for index in 0..<a.count where lower(a[index]) != lower(b[index]) { return false }
    return true
  }

  static func areSame(_ a: Bytes, _ b: StaticString) -> Bool { areSame(a, bytes(of: b)) }

  static func areSame(_ a: UnsafePointer<CChar>, _ b: StaticString) -> Bool {
    areSame(bytes(of: a), b)
  }

  static func areSame(_ a: UnsafePointer<CChar>, _ b: UnsafePointer<CChar>) -> Bool {
    areSame(bytes(of: a), bytes(of: b))
  }
}
