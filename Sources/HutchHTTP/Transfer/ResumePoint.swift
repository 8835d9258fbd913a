import CCurl
import CSystem

/// The version of a body of which a part is in a file: a strong validator (RFC 9110, section 8.8).
/// With it a request asks for the rest of that version (If-Range, section 13.1.5); if there is
/// another one by now, the server sends it whole.
///
/// It is kept in a file beside the part: three lines of text with what follows.
///
///     hutch-resume 1 and the boot of the machine: after a loss of power the part may have holes
///     the URL of the request
///     the validator
final class ResumePoint {
  let validator: Text

  private init(_ validator: Text) { self.validator = validator }

  /// Of a response with a whole body; nil: it has no strong validator.
  convenience init?(of response: Response) throws(Failure) {
    guard let found = ResumePoint.validator(in: response.fields) else { return nil }
    try self.init(Text(found))
  }

  /// The strong validator of a response; nil: it has none.
  static func validator(in fields: borrowing Fields) -> UnsafePointer<CChar>? {
    if let tag = fields.value(of: "ETag") { return tag.pointee == 0x22 ? tag : nil }
    // A date is strong if the response is a minute younger (section 8.8.2.2).
    guard let modified = fields.value(of: "Last-Modified"), let date = fields.value(of: "Date")
    else { return nil }
    let change = curl_getdate(modified, nil)
    let now = curl_getdate(date, nil)
    return change >= 0 && now >= 0 && now - change >= 60 ? modified : nil
  }

  /// True if a part of a response (206) is of this version, as far as it says.
  func isOf(_ response: Response) -> Bool {
    let name: StaticString = validator.start.pointee == 0x22 ? "ETag" : "Last-Modified"
    guard let given = response.fields.value(of: name) else { return true }
    return bytes(of: given).hasSameBytes(as: bytes(of: validator.start))
  }

  /// The first byte, the byte behind the last one, and the whole size (nil: not told) that the
  /// Content-Range of a part says.
  static func range(in fields: borrowing Fields) -> (start: UInt64, end: UInt64, size: UInt64?)? {
    guard let text = fields.value(of: "Content-Range") else { return nil }
    let unit: StaticString = "bytes "
    let whole = bytes(of: text)
    guard whole.begins(with: bytes(of: unit)) else {
      return nil
    }
    var rest = Bytes(rebasing: whole[unit.utf8CodeUnitCount...])
    guard let start = number(&rest), take(0x2D, &rest), let last = number(&rest), last >= start,
      take(0x2F, &rest)
    else { return nil }
    if rest.count == 1, rest[0] == 0x2A { return (start, last + 1, nil) }
    guard let size = number(&rest), rest.count == 0, last < size else { return nil }
    return (start, last + 1, size)
  }

  private static func number(_ text: inout Bytes) -> UInt64? {
    var value: UInt64 = 0
    var count = 0
    while count < min(text.count, 18), text[count] >= 0x30, text[count] <= 0x39 {
      value = value * 10 + UInt64(text[count] - 0x30)
      count += 1
    }
    guard count > 0 else { return nil }
    text = Bytes(rebasing: text[count...])
    return value
  }

  private static func take(_ byte: UInt8, _ text: inout Bytes) -> Bool {
    guard let first = text.first, first == byte else { return false }
    text = Bytes(rebasing: text.dropFirst())
    return true
  }

  // MARK: the file

  /// Longer than the lines of any request and response that there are.
  private static var mostBytes: Int { 1 << 18 }

  /// The first two lines; nil: the boot is not known.
  private static func head(of url: Text) throws(Failure) -> Text? {
    let boot = Boot.current()
    guard boot.isKnown else { return nil }
    let mark: StaticString = "hutch-resume 1 "
    var lines = GrowingArray<UInt8>()
    try lines.append(mark)
    try withUnsafeBytes(of: boot.id) { (id) throws(Failure) in
      try PEM.encode(id, to: &lines)
    }
    try lines.append(0x0A)
    try lines.append(contentsOf: bytes(of: url.start))
    try lines.append(0x0A)
    return try Text(Bytes(lines.elements))
  }

  /// What an earlier request for `url` left; nil: nothing that can be used.
  convenience init?(in record: Text, of url: Text) throws(Failure) {
    guard let head = try ResumePoint.head(of: url),
      let number = Files.open(record.start, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    else { return nil }
    defer { withExtendedLifetime(head) {} }
    let file = Descriptor(owning: number)
    let room = ResumePoint.mostBytes
    let memory = try Allocation.bytes(room)
    defer { free(memory) }
    let target = UnsafeMutableRawBufferPointer(start: memory, count: room)
    guard let count = Files.read(file.number, into: target), count > head.count, count < room
    else { return nil }
    let whole = Bytes(rebasing: Bytes(target)[..<count])
    let line = Bytes(rebasing: whole[head.count...])
    // A line without its end was not written whole.
    guard whole.begins(with: bytes(of: head.start)), line.count > 1, line.last == 0x0A else {
      return nil
    }
    let text = Bytes(rebasing: line.dropLast())
    guard Syntax.isValue(text) else { return nil }
    try self.init(Text(text))
  }

  /// Fails without harm: then the part cannot be continued.
  func write(to record: Text, of url: Text) throws(Failure) -> Bool {
    guard let head = try ResumePoint.head(of: url),
      head.count + validator.count + 1 < ResumePoint.mostBytes,
      let number = Files.open(record.start, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW)
    else { return false }
    defer { withExtendedLifetime(head) {} }
    let file = Descriptor(owning: number)
    let end: StaticString = "\n"
    return Files.write(bytes(of: head.start), to: file.number)
      && Files.write(bytes(of: validator.start), to: file.number, at: head.count)
      && Files.write(
        Bytes(start: end.utf8Start, count: 1), to: file.number,
        at: head.count + validator.count)
  }
}
