import CHutchHTTP
import CSystem

/// What a request is written with: pairs in a query or a form, and the parts of a multipart body.
enum Encoding {
  private static func isUnreserved(_ byte: UInt8) -> Bool {
    switch byte {
    case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F, 0x7E: true
    default: false
    }
  }

  private static func append(_ byte: UInt8, escapedTo text: inout GrowingArray<UInt8>)
    throws(Failure)
  {
    let digits: StaticString = "0123456789ABCDEF"
    try text.append(0x25)
    try text.append(digits.utf8Start[Int(byte >> 4)])
    try text.append(digits.utf8Start[Int(byte & 15)])
  }

  /// Percent-encodes (RFC 3986). In a form a space is a plus (WHATWG URL, section 5).
  private static func append(
    _ words: UnsafePointer<CChar>, isForm: Bool, to text: inout GrowingArray<UInt8>
  ) throws(Failure) {
    for byte in bytes(of: words) {
      if isUnreserved(byte) {
        try text.append(byte)
      } else if byte == 0x20, isForm {
        try text.append(0x2B)
      } else {
        try append(byte, escapedTo: &text)
      }
    }
  }

  static func append(
    _ pairs: UnsafePointer<hutch_http_header>?, _ count: Int, isForm: Bool,
    to text: inout GrowingArray<UInt8>
  ) throws(Failure) {
    guard count >= 0, count <= 65_536, pairs != nil || count == 0 else {
      throw .invalid("the pairs of a query or a form are NULL, or more than 65,536")
    }
    for index in 0..<count {
      guard let name = pairs![index].name, let value = pairs![index].value else {
        throw .invalid("a name or a value of a query or a form is NULL")
      }
      if index > 0 { try text.append(0x26) }
      try append(name, isForm: isForm, to: &text)
      try text.append(0x3D)
      try append(value, isForm: isForm, to: &text)
    }
  }

  /// The URL with the pairs behind its query; without its fragment, which no server gets.
  static func address(
    _ url: UnsafePointer<CChar>, _ pairs: UnsafePointer<hutch_http_header>?, _ count: Int
  ) throws(Failure) -> Text {
    guard count != 0 else { return try Address.checked(url) }
    let whole = bytes(of: url)
    let end = whole.firstIndex(of: 0x23) ?? whole.count
    let start = Bytes(rebasing: whole[..<end])
    var text = GrowingArray<UInt8>()
    try text.append(contentsOf: start)
    if let mark = start.firstIndex(of: 0x3F) {
      if mark + 1 < start.count { try text.append(0x26) }
    } else {
      try text.append(0x3F)
    }
    try append(pairs, count, isForm: false, to: &text)
    let made = try Text(Bytes(text.elements))
    defer { withExtendedLifetime(made) {} }
    return try Address.checked(made.start)
  }

  // MARK: multipart (RFC 7578)

  /// Appends the parts to a body, and returns its media type.
  static func append(
    _ parts: UnsafePointer<hutch_http_part>?, _ count: Int, to body: Body
  ) throws(Failure) -> Text {
    guard count > 0, count <= 65_536, let parts else {
      throw .invalid("the parts are NULL, or more than 65,536")
    }
    let boundary = try makeBoundary()
    for index in 0..<count {
      try append(parts[index], isFirst: index == 0, boundary, to: body)
    }
    var end = GrowingArray<UInt8>()
    try end.append("\r\n--")
    try end.append(contentsOf: bytes(of: boundary.start))
    try end.append("--\r\n")
    try body.append(copying: Bytes(end.elements))
    var type = GrowingArray<UInt8>()
    try type.append("multipart/form-data; boundary=")
    try type.append(contentsOf: bytes(of: boundary.start))
    withExtendedLifetime(boundary) {}
    return try Text(Bytes(type.elements))
  }

  /// 24 random digits: no content has them.
  private static func makeBoundary() throws(Failure) -> Text {
    var dice = (UInt64(0), UInt64(0), UInt64(0))
    var text = GrowingArray<UInt8>()
    try text.append("hutch-")
    try withUnsafeMutableBytes(of: &dice) { (dice) throws(Failure) in
      guard getrandom(dice.baseAddress!, dice.count, 0) == dice.count else {
        throw .system("there are no random numbers")
      }
      for byte in dice { try text.append(0x61 + byte % 26) }
    }
    return try Text(Bytes(text.elements))
  }

  private static func append(
    _ part: hutch_http_part, isFirst: Bool, _ boundary: Text, to body: Body
  ) throws(Failure) {
    guard let name = part.name else { throw .invalid("a part has no name") }
    var head = GrowingArray<UInt8>()
    try head.append(isFirst ? "--" : "\r\n--")
    try head.append(contentsOf: bytes(of: boundary.start))
    try head.append("\r\nContent-Disposition: form-data; name=\"")
    try append(quoted: name, to: &head)
    try head.append("\"")
    if let file = part.file_name {
      try head.append("; filename=\"")
      try append(quoted: file, to: &head)
      try head.append("\"")
    }
    if let type = part.media_type {
      guard Syntax.isValue(bytes(of: type)) else {
        throw .invalid("the media type of a part is malformed")
      }
      try head.append("\r\nContent-Type: ")
      try head.append(contentsOf: bytes(of: type))
    }
    try head.append("\r\n\r\n")
    try body.append(copying: Bytes(head.elements))
    try body.append(
      oneOf: part.data, part.size, file: part.path, part.read, part.read_size, mayBeEmpty: true)
  }

  /// As browsers do: a quote and the ends of lines are percent-encoded (WHATWG HTML, "multipart
  /// form data").
  private static func append(
    quoted text: UnsafePointer<CChar>, to head: inout GrowingArray<UInt8>
  ) throws(Failure) {
    for byte in bytes(of: text) {
      if byte == 0x22 || byte < 0x20 || byte == 0x7F {
        try append(byte, escapedTo: &head)
      } else {
        try head.append(byte)
      }
    }
  }
}

extension GrowingArray where Element == UInt8 {
  /// Appends a literal.
  mutating func append(_ text: StaticString) throws(Failure) {
    try append(contentsOf: bytes(of: text))
  }
}
