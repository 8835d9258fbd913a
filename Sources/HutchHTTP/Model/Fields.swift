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

  /// Those of others that have a wanted name.
  mutating func append(
    contentsOf others: borrowing Fields, where isWanted: (UnsafePointer<CChar>) -> Bool
  ) throws(Failure) {
    for index in 0..<others.count where isWanted(others.name(index)) {
      try append(name: bytes(of: others.name(index)), value: bytes(of: others.value(index)))
    }
  }

  /// A line that continues the last header (RFC 9112, section 5.2).
  mutating func extendLast(_ more: Bytes) throws(Failure) {
    guard places.count > 0 else { return }
    block.truncate(to: block.count - 1)
    try block.append(0x20)
    try block.append(contentsOf: more)
    try block.append(0)
  }

  /// Control characters in the last bytes of the last value become spaces (RFC 9110, section 5.5),
  /// so that none ends a line where the value is sent or printed.
  @_optimize(speed)
  mutating func cleanLast(_ count: Int) {
    guard places.count > 0 else { return }
    let bytes = block.elements
    for index in (bytes.count - 1 - count)..<(bytes.count - 1) {
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

  /// The value of the first header of a name from the index `place` on, which becomes the index
  /// behind it: a loop over all headers of a name looks at each header once.
  func next(_ name: UnsafePointer<CChar>, _ place: inout Int) -> UnsafePointer<CChar>? {
    let wanted = bytes(of: name)
    while place < count {
      place += 1
      if Letters.areSame(bytes(of: self.name(place - 1)), wanted) { return value(place - 1) }
    }
    return nil
  }

  /// The value of a header by name: of the first one.
  func value(of name: StaticString) -> UnsafePointer<CChar>? {
    var place = 0
    return next(literal(name), &place)
  }

  func has(_ name: UnsafePointer<CChar>) -> Bool {
    var place = 0
    return next(name, &place) != nil
  }

  /// Calls `use` with the members of the lists that the headers of this name have.
  func forEachMember(
    _ name: StaticString, _ use: (Bytes) throws(Failure) -> Void
  ) throws(Failure) {
    _ = try hasMember(name) { (member) throws(Failure) in
      try use(member)
      return false
    }
  }

  /// A member of the lists that the headers of this name have is one that is looked for.
  func hasMember<E: Error>(
    _ name: StaticString, where isWanted: (Bytes) throws(E) -> Bool
  ) throws(E) -> Bool {
    var place = 0
    while let value = next(literal(name), &place) {
      var members = ListReader(bytes(of: value))
      while let member = members.next() {
        if try isWanted(member) { return true }
      }
    }
    return false
  }
}
