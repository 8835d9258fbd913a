import CSystem

/// The headers of a request or a response, in order: one block of texts that end with NUL.
struct Fields: ~Copyable {
  private struct Place: BitwiseCopyable {
    var name: Int
    var value: Int
  }

  private var block = GrowingArray<UInt8>()
  private var places = GrowingArray<Place>()

  var count: Int { places.count }

  /// Memory for so many headers, and so many bytes of names and values.
  mutating func reserve(_ fields: Int, bytes: Int) throws(Failure) {
    try places.reserve(places.count + fields)
    try block.reserve(block.count + bytes + 2 * fields)
  }

  /// Of all names and values, with the NUL behind each.
  var size: Int { block.count }

  mutating func append(name: Bytes, value: Bytes) throws(Failure) {
    let start = block.count
    try block.append(contentsOf: name)
    try block.append(0)
    let middle = block.count
    try block.append(contentsOf: value)
    try block.append(0)
    try places.append(Place(name: start, value: middle))
  }

  /// A line that continues the last header (RFC 9112, section 5.2).
  mutating func extendLast(_ more: Bytes) throws(Failure) {
    guard places.count > 0 else { return }
    block.truncate(to: block.count - 1)
    try block.append(0x20)
    try block.append(contentsOf: more)
    try block.append(0)
  }

  /// Control characters in the last value become spaces (RFC 9110, section 5.5), so that none ends
  /// a line where the value is sent or printed.
  @_optimize(speed)
  mutating func cleanLast() {
    guard places.count > 0 else { return }
    let bytes = block.elements
    for index in places[places.count - 1].value..<(bytes.count - 1) {
      let byte = bytes[index]
      if (byte < 0x20 && byte != 0x09) || byte == 0x7F { bytes[index] = 0x20 }
    }
  }

  mutating func removeAll() {
    block.removeAll()
    places.removeAll()
  }

  /// Valid until the next change, as the value is.
  func name(_ index: Int) -> UnsafePointer<CChar> { text(places[index].name) }
  func value(_ index: Int) -> UnsafePointer<CChar> { text(places[index].value) }

  private func text(_ offset: Int) -> UnsafePointer<CChar> {
    UnsafeRawPointer(block.elements.baseAddress! + offset).assumingMemoryBound(to: CChar.self)
  }

  /// The value of a header by name; `skipping` so many of that name.
  func value(of name: UnsafePointer<CChar>, skipping: UInt64 = 0) -> UnsafePointer<CChar>? {
    var left = skipping
    for index in 0..<count where Letters.areSame(self.name(index), name) {
      if left == 0 { return value(index) }
      left -= 1
    }
    return nil
  }

  func value(of name: StaticString) -> UnsafePointer<CChar>? { value(of: literal(name)) }

  /// A member of the lists that the headers of this name have is one that is looked for.
  func hasMember(_ name: StaticString, where isWanted: (Bytes) -> Bool) -> Bool {
    var index: UInt64 = 0
    while let value = value(of: literal(name), skipping: index) {
      index += 1
      var members = ListReader(bytes(of: value))
      while let member = members.next() {
        if isWanted(member) { return true }
      }
    }
    return false
  }
}
