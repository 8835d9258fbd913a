import CSystem

/// A name that the library gives to a file in a cache directory: `hutch-`, 16 hexadecimal digits
/// and a suffix, never made from a key. The library moves and unlinks only files with such a name;
/// any other file in the directory belongs to another program.
///
/// In the name of a content file, the digits are a folder and 56 random bits, and the suffix is the
/// one of its put. The file is `content/xx/<name>`, where xx are the first two digits.
struct ContentName {
  let number: UInt64
  var suffix = FileSuffix()

  private static let marker: StaticString = "hutch-"
  private static let markerSize = 6
  private static let digits = 16
  /// The longest text of a name.
  fileprivate static let longest = markerSize + digits + FileSuffix.longest

  static func random(_ suffix: FileSuffix = FileSuffix()) throws(Failure) -> ContentName {
    ContentName(number: try Entropy.number(), suffix: suffix)
  }

  init(number: UInt64, suffix: FileSuffix = FileSuffix()) {
    self.number = number
    self.suffix = suffix
  }

  /// Parses its text; nil if the text is not exactly such a name.
  @inline(never)
  init?(_ text: Bytes) {
    let start = ContentName.markerSize
    let end = start + ContentName.digits
    guard text.count >= end,
      memcmp(text.baseAddress!, ContentName.marker.utf8Start, start) == 0,
      let suffix = FileSuffix(Bytes(rebasing: text[end...]))
    else { return nil }
    var number: UInt64 = 0
    for digit in text[start..<end] {
      switch digit {
      case 0x30...0x39: number = number << 4 | UInt64(digit - 0x30)
      case 0x61...0x66: number = number << 4 | UInt64(digit - 0x61 + 10)
      default: return nil
      }
    }
    self.number = number
    self.suffix = suffix
  }

  /// Parses a name in the listing of a folder.
  init?(_ text: Files.Path) { self.init(Bytes(start: text, count: strlen(text))) }

  /// The name while the file is being written: the same number, with `.tmp` as its suffix.
  var temporary: ContentName { ContentName(number: number, suffix: .temporary) }

  var folder: UInt8 { UInt8(truncatingIfNeeded: number >> 56) }

  func inFolder(_ folder: UInt8) -> ContentName {
    ContentName(number: number & (1 << 56 - 1) | UInt64(folder) << 56, suffix: suffix)
  }

  /// The text, without NUL.
  func withText<R>(_ body: (Bytes) throws(Failure) -> R) throws(Failure) -> R {
    var path = ContentPath(self)
    return try path.withBytes(body)
  }

  /// The text as a C string.
  func withPointer<R>(_ body: (Files.Path) -> R) -> R {
    var path = ContentPath(self)
    return path.withPointer(body)
  }

  fileprivate func append(to path: inout ContentPath) {
    path.append(ContentName.marker)
    for i in 0..<ContentName.digits {
      path.append(hexadecimal: UInt8(truncatingIfNeeded: number >> UInt64(60 - 4 * i) & 15))
    }
    suffix.withBytes { path.append($0) }
  }
}

/// A path below the cache directory, in place, with NUL. The longest is that of a content file:
/// 11 bytes before its name.
struct ContentPath {
  /// The bytes of the longest one, with the slash before it.
  static let longest = 12 + ContentName.longest

  private var room: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) =
    (0, 0, 0, 0, 0, 0, 0)
  private var length = 0

  /// The file's name in its folder.
  @inline(never)
  init(_ name: ContentName) {
    self.init()
    name.append(to: &self)
  }

  /// Runs `body` with `content/xx/<name>`.
  static func withContent<R>(_ name: ContentName, _ body: (Files.Path) -> R) -> R {
    var path = content(name)
    return path.withPointer(body)
  }

  @inline(never)
  private static func content(_ name: ContentName) -> ContentPath {
    var path = ContentPath.folder(name.folder)
    path.append("/")
    name.append(to: &path)
    return path
  }

  static var folders: Files.Path { Files.path("content") }
  /// The bytes of `content/`.
  static let foldersLength = 8
  static var trash: Files.Path { Files.path("trash") }

  /// Runs `body` with `content/xx`.
  static func withFolder<R>(_ prefix: UInt8, _ body: (Files.Path) -> R) -> R {
    var path = folder(prefix)
    return path.withPointer(body)
  }

  @inline(never)
  private static func folder(_ prefix: UInt8) -> ContentPath {
    var path = ContentPath()
    path.append("content/")
    path.append(hexadecimal: prefix >> 4)
    path.append(hexadecimal: prefix & 15)
    return path
  }

  private init() {}

  fileprivate mutating func append(_ text: StaticString) {
    append(Bytes(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }

  fileprivate mutating func append(_ bytes: Bytes) {
    guard let source = bytes.baseAddress, bytes.count > 0 else { return }
    let at = length
    withUnsafeMutableBytes(of: &room) { target in
      (target.baseAddress! + at).copyMemory(from: source, byteCount: bytes.count)
    }
    length += bytes.count
  }

  @inline(never)
  fileprivate mutating func append(hexadecimal digit: UInt8) {
    let at = length
    withUnsafeMutableBytes(of: &room) { target in
      target[at] = digit < 10 ? 0x30 + digit : 0x61 + digit - 10
    }
    length += 1
  }

  // In place: a copy of the room would be made for each call else.

  fileprivate mutating func withBytes<R>(
    _ body: (Bytes) throws(Failure) -> R
  ) throws(Failure) -> R {
    let length = length
    return try withUnsafeBytes(of: &room) { (bytes) throws(Failure) -> R in
      try body(Bytes(rebasing: bytes[0..<length]))
    }
  }

  fileprivate mutating func withPointer<R>(_ body: (Files.Path) -> R) -> R {
    withUnsafeBytes(of: &room) { bytes in
      body(bytes.baseAddress!.assumingMemoryBound(to: CChar.self))
    }
  }
}
