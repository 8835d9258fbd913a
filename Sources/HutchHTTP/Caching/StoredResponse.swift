import CSystem

/// A response in the cache, without its body's bytes: where they are is the owner's affair.
///
/// The value of a URL has one or more responses, for requests that differ in what Vary names
/// (RFC 9111, section 4.1), the newest first. All numbers are little-endian:
///
///     4 bytes   "HHC1"
///     then for each response:
///     u64       the size of what follows, without this number; all bits: as far as the value goes
///     i64       when the request was made, Unix nanoseconds
///     i64       when the response came
///     u32       the code
///     u32       the version: 11, 20
///     u32       flags; 1: the body has been decompressed
///     u32       how many headers
///     u32       how many of the request's headers Vary names
///     u32       0
///     each of these headers: u32 and u32, the sizes of name and value; the name; the value. A
///               value of the request has "=" before it; an empty one: the request had no such
///               header
///     the rest  the body
final class StoredResponse {
  var code: Int32 = 0
  var version: UInt32 = 0
  /// Content-Encoding is what the server sent, and not what the body has.
  var isDecoded = false
  var requestTime: Int64 = 0
  var responseTime: Int64 = 0
  var fields = Fields()
  /// What Vary names of the request.
  var variance = Fields()
  private(set) var control = CacheControl()
  /// It is in a cache that works for the origin server (RFC 9213).
  let isTargeted: Bool

  init(isTargeted: Bool) { self.isTargeted = isTargeted }

  /// What keeps the bytes of `body`: a value of libhutch, or the response itself.
  private var value: StoredValue?
  private var copy = GrowingArray<UInt8>()
  /// Or the file that has them, for a body that is not in memory.
  private var file: StoredFile?
  private var range = 0..<0

  /// Empty if it is not in memory.
  var body: Bytes {
    guard let value else { return Bytes(copy.elements) }
    return Bytes(rebasing: value.bytes[range])
  }

  var isInMemory: Bool { file == nil }
  /// The file that has the body, and where; nil: it is in memory.
  var place: PlaceInFile? { file.map { PlaceInFile(file: $0, bytes: range) } }
  var bodySize: Int { file == nil ? body.count : range.count }

  /// Calls `use` with the bytes of a part of the body, in one piece if they are in memory; false:
  /// it wants no more, or they cannot be read.
  func forEachPiece(
    _ part: Range<Int>, _ use: (Bytes) throws(Failure) -> Bool
  ) throws(Failure) -> Bool {
    guard let file else { return try use(Bytes(rebasing: body[part])) }
    let start = range.lowerBound + part.lowerBound
    return try file.forEachPiece(start..<(start + part.count), use)
  }

  /// Reads the headers that decide about its use.
  func readControl() { control = CacheControl(of: fields, isTargeted: isTargeted) }

  /// The server has sent no Date: it is when the response came (RFC 9110, section 6.6.1).
  func setDate() throws(Failure) {
    var result = Fields()
    try result.append(contentsOf: fields) { !Letters.areSame($0, "Date") }
    var text = GrowingArray<UInt8>()
    try HTTPDate.append(received, to: &text)
    let name: StaticString = "Date"
    try result.append(name: bytes(of: name), value: Bytes(text.elements))
    fields = result
  }

  func setBody(_ bytes: Bytes) throws(Failure) {
    value = nil
    file = nil
    try copy.replace(with: bytes)
  }

  // MARK: encoding

  static var mark: StaticString { "HHC1" }
  static var mostVariants: Int { 16 }
  private static var headSize: Int { 40 }

  static func beginEncoding(_ target: inout GrowingArray<UInt8>) throws(Failure) {
    try target.append(contentsOf: bytes(of: mark))
  }

  /// For a body in memory.
  func encode(to target: inout GrowingArray<UInt8>) throws(Failure) {
    try encodeHead(to: &target, bodySize: body.count)
    try target.append(contentsOf: body)
  }

  /// The record without its body. `bodySize` nil: the body goes as far as the value.
  func encodeHead(to target: inout GrowingArray<UInt8>, bodySize: Int?) throws(Failure) {
    let start = target.count
    try StoredResponse.append(UInt64.max, to: &target)
    try StoredResponse.append(requestTime, to: &target)
    try StoredResponse.append(responseTime, to: &target)
    try StoredResponse.append(code, to: &target)
    try StoredResponse.append(version, to: &target)
    try StoredResponse.append(UInt32(isDecoded ? 1 : 0), to: &target)
    try StoredResponse.append(UInt32(truncatingIfNeeded: fields.count), to: &target)
    try StoredResponse.append(UInt32(truncatingIfNeeded: variance.count), to: &target)
    try StoredResponse.append(UInt32(0), to: &target)
    try StoredResponse.append(fields, to: &target)
    try StoredResponse.append(variance, to: &target)
    guard let bodySize else { return }
    let size = UInt64(target.count - start - 8 + bodySize).littleEndian
    UnsafeMutableRawPointer(target.elements.baseAddress! + start)
      .storeBytes(of: size, as: UInt64.self)
  }

  static func append<T: FixedWidthInteger & BitwiseCopyable>(
    _ number: T, to target: inout GrowingArray<UInt8>
  ) throws(Failure) {
    var word = number.littleEndian
    try withUnsafeBytes(of: &word) { (bytes) throws(Failure) in
      try target.append(contentsOf: bytes)
    }
  }

  private static func append(
    _ fields: borrowing Fields, to target: inout GrowingArray<UInt8>
  ) throws(Failure) {
    for index in 0..<fields.count {
      let name = bytes(of: fields.name(index))
      let value = bytes(of: fields.value(index))
      try append(UInt32(truncatingIfNeeded: name.count), to: &target)
      try append(UInt32(truncatingIfNeeded: value.count), to: &target)
      try target.append(contentsOf: name)
      try target.append(contentsOf: value)
    }
  }

  // MARK: decoding

  /// The records of a value, one after the other. Any bytes may be in it.
  struct Reader {
    private let value: StoredValue
    private var index: Int

    /// Nil: the value is not one of responses.
    init?(_ value: StoredValue) {
      guard value.bytes.begins(with: bytes(of: mark)) else { return nil }
      self.value = value
      index = 4
    }

    /// The next record with its size; nil: there is none that is whole.
    mutating func next() -> Range<Int>? {
      guard let size = StoredResponse.number(value.bytes, at: index, as: UInt64.self),
        let record = StoredResponse.record(at: index, size, value.bytes.count)
      else { return nil }
      index = record.upperBound
      return record
    }
  }

  /// The bytes of a record with its size; nil: it is not whole.
  static func record(at index: Int, _ size: UInt64, _ end: Int) -> Range<Int>? {
    let most = end - index - 8
    guard let count = size == UInt64.max ? most : Int(exactly: size), count >= headSize,
      count <= most
    else { return nil }
    return index..<(index + 8 + count)
  }

  /// When the response of a record came; nil: it is damaged.
  static func responseTime(_ source: Bytes, at index: Int) -> Int64? {
    number(source, at: index + 16, as: Int64.self)
  }

  /// Nil: the record is damaged.
  static func decode(
    _ value: StoredValue, _ record: Range<Int>, isTargeted: Bool
  ) throws(Failure) -> StoredResponse? {
    guard let (result, index) = try decodeHead(Bytes(rebasing: value.bytes[record]), isTargeted)
    else { return nil }
    result.value = value
    result.range = (record.lowerBound + index)..<record.upperBound
    return result
  }

  /// The same for a record of a file.
  static func decode(
    _ file: StoredFile, _ record: Range<Int>, isTargeted: Bool
  ) throws(Failure) -> StoredResponse? {
    // Most headers need less.
    for room in [64 << 10, 1 << 20, 16 << 20] {
      let count = min(room, record.count)
      guard let head = try file.read(record.lowerBound, count) else { return nil }
      if let (result, index) = try decodeHead(head.bytes, isTargeted) {
        result.file = file
        result.range = (record.lowerBound + index)..<record.upperBound
        return result
      }
      if count == record.count { return nil }
    }
    return nil
  }

  /// A record without its body, and where that begins; nil: it is damaged, or cut.
  private static func decodeHead(
    _ source: Bytes, _ isTargeted: Bool
  ) throws(Failure) -> (response: StoredResponse, body: Int)? {
    guard let requestTime = number(source, at: 8, as: Int64.self),
      let responseTime = number(source, at: 16, as: Int64.self),
      let code = number(source, at: 24, as: Int32.self), code >= 200, code <= 999,
      let version = number(source, at: 28, as: UInt32.self),
      let flags = number(source, at: 32, as: UInt32.self),
      let fieldCount = number(source, at: 36, as: UInt32.self),
      let varianceCount = number(source, at: 40, as: UInt32.self)
    else { return nil }
    let result = StoredResponse(isTargeted: isTargeted)
    result.requestTime = requestTime
    result.responseTime = responseTime
    result.code = code
    result.version = version
    result.isDecoded = flags & 1 != 0
    var index = 8 + headSize
    guard try read(fieldCount, source, &index, into: &result.fields),
      try read(varianceCount, source, &index, into: &result.variance)
    else { return nil }
    result.readControl()
    return (result, index)
  }

  private static func read(
    _ count: UInt32, _ source: Bytes, _ index: inout Int, into fields: inout Fields
  ) throws(Failure) -> Bool {
    guard Int(count) <= (source.count - index) / 8 else { return false }
    try fields.reserve(Int(count), bytes: min(source.count - index, 1024))
    for _ in 0..<count {
      guard let name = number(source, at: index, as: UInt32.self),
        let value = number(source, at: index + 4, as: UInt32.self),
        source.count - index - 8 >= Int(name) + Int(value)
      else { return false }
      let middle = index + 8 + Int(name)
      let nameBytes = Bytes(rebasing: source[(index + 8)..<middle])
      let valueBytes = Bytes(rebasing: source[middle..<(middle + Int(value))])
      // What is sent again must not end a line.
      guard Syntax.isToken(nameBytes), Syntax.isValue(valueBytes) else { return false }
      try fields.append(name: nameBytes, value: valueBytes)
      index = middle + Int(value)
    }
    return true
  }

  static func number<T: FixedWidthInteger & BitwiseCopyable>(
    _ source: Bytes, at index: Int, as type: T.Type
  ) -> T? {
    guard index >= 0, source.count - index >= MemoryLayout<T>.size else { return nil }
    return T(littleEndian: source.loadUnaligned(fromByteOffset: index, as: type))
  }
}
