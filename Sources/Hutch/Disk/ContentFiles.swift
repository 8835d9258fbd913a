import CSystem

/// The name of a content file: 64 random bits, never made from a key. The file is
/// `content/xx/<16 hexadecimal digits>`, where xx are the first two.
struct ContentName: Equatable {
  let number: UInt64

  static let length = 16

  static func random() throws(Failure) -> ContentName {
    ContentName(number: try Entropy.number())
  }

  init(number: UInt64) { self.number = number }

  /// From its digits; nil if they are not exactly that.
  init?(_ digits: Bytes) {
    guard digits.count == ContentName.length else { return nil }
    var number: UInt64 = 0
    for digit in digits {
      switch digit {
      case 0x30...0x39: number = number << 4 | UInt64(digit - 0x30)
      case 0x61...0x66: number = number << 4 | UInt64(digit - 0x61 + 10)
      default: return nil
      }
    }
    self.number = number
  }

  static func == (a: ContentName, b: ContentName) -> Bool { a.number == b.number }

  func write(to target: UnsafeMutablePointer<CChar>) {
    for i in 0..<ContentName.length {
      let digit = CChar(truncatingIfNeeded: number >> UInt64(60 - 4 * i) & 15)
      target[i] = digit < 10 ? 0x30 + digit : 0x61 + digit - 10
    }
  }

  func withDigits<R>(_ body: (Bytes) throws(Failure) -> R) throws(Failure) -> R {
    var room: (UInt64, UInt64) = (0, 0)
    return try withUnsafeMutableBytes(of: &room) { (bytes) throws(Failure) -> R in
      write(to: bytes.baseAddress!.assumingMemoryBound(to: CChar.self))
      return try body(Bytes(bytes))
    }
  }
}

/// A path below the cache directory, in place: at most 47 bytes and NUL.
struct ContentPath {
  private var room: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0)
  private var length = 0

  /// `content/xx/<name>`, or with `.tmp` behind it while it is being written.
  static func content(_ name: ContentName, isTemporary: Bool = false) -> ContentPath {
    var path = ContentPath.folder(UInt8(truncatingIfNeeded: name.number >> 56))
    path.append("/")
    path.append(name)
    if isTemporary { path.append(".tmp") }
    return path
  }

  /// `content/xx`
  static func folder(_ prefix: UInt8) -> ContentPath {
    var path = ContentPath()
    path.append("content/")
    path.appendByte(hexadecimal: prefix >> 4)
    path.appendByte(hexadecimal: prefix & 15)
    return path
  }

  /// `trash/<name>`
  static func trash(_ name: ContentName) -> ContentPath {
    var path = ContentPath()
    path.append("trash/")
    path.append(name)
    return path
  }

  /// `<folder>/<name>`; nil if it is longer than any name of ours.
  init?(_ folder: StaticString, _ name: Files.Path) {
    let count = strlen(name)
    guard folder.utf8CodeUnitCount + 1 + count < ContentPath.capacity else { return nil }
    self.init()
    append(folder)
    append("/")
    append(Bytes(start: name, count: count))
  }

  /// `<prefix><digits><suffix>`
  init(prefix: StaticString, _ name: ContentName, _ suffix: StaticString) {
    self.init()
    append(prefix)
    append(name)
    if suffix.utf8CodeUnitCount > 0 { append(suffix) }
  }

  private init() {}

  private static let capacity = 48

  private mutating func append(_ text: StaticString) {
    append(Bytes(start: text.utf8Start, count: text.utf8CodeUnitCount))
  }

  private mutating func append(_ bytes: Bytes) {
    let at = length
    withUnsafeMutableBytes(of: &room) { target in
      (target.baseAddress! + at).copyMemory(from: bytes.baseAddress!, byteCount: bytes.count)
    }
    length += bytes.count
  }

  private mutating func append(_ name: ContentName) {
    let at = length
    withUnsafeMutableBytes(of: &room) { target in
      name.write(to: (target.baseAddress! + at).assumingMemoryBound(to: CChar.self))
    }
    length += ContentName.length
  }

  private mutating func appendByte(hexadecimal digit: UInt8) {
    let at = length
    withUnsafeMutableBytes(of: &room) { target in
      target[at] = digit < 10 ? 0x30 + digit : 0x61 + digit - 10
    }
    length += 1
  }

  func withPointer<R>(_ body: (Files.Path) -> R) -> R {
    withUnsafeBytes(of: room) { bytes in
      body(bytes.baseAddress!.assumingMemoryBound(to: CChar.self))
    }
  }
}

/// Content files, one value each, as raw bytes. A file is written once under a temporary
/// name and never changed after it has its own, so a reader needs no lock: what it opens is
/// whole, or not there.
enum ContentFiles {
  /// Writes a value. On failure nothing is left behind.
  static func write(
    _ value: Bytes, _ name: ContentName, in directory: Directory
  ) throws(Failure) {
    let temporary = ContentPath.content(name, isTemporary: true)
    let number = try create(temporary, name, in: directory)
    let isWritten: Bool
    var code: Int32 = 0
    do {
      let file = Descriptor(owning: number)
      isWritten = Files.write(value, to: file.number)
      if !isWritten { code = hutch_errno() }
    }
    guard isWritten else {
      _ = temporary.withPointer { Files.unlink($0, at: directory.descriptor) }
      throw .system("cannot write a content file", errno: code)
    }
    let renamed = temporary.withPointer { from in
      ContentPath.content(name).withPointer { to in
        Files.rename(from, to: to, at: directory.descriptor)
      }
    }
    guard renamed else {
      let failure = Failure.system("cannot name a content file")
      _ = temporary.withPointer { Files.unlink($0, at: directory.descriptor) }
      throw failure
    }
  }

  private static func create(
    _ path: ContentPath, _ name: ContentName, in directory: Directory
  ) throws(Failure) -> Int32 {
    func open() -> Int32? {
      path.withPointer {
        Files.open($0, at: directory.descriptor, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW)
      }
    }
    if let number = open() { return number }
    // The folder is made when it is first needed, or when somebody has removed it.
    if hutch_errno() == ENOENT {
      _ = Files.makeDirectory(Files.path("content"), at: directory.descriptor)
      let folder = ContentPath.folder(UInt8(truncatingIfNeeded: name.number >> 56))
      _ = folder.withPointer { Files.makeDirectory($0, at: directory.descriptor) }
      if let number = open() { return number }
    }
    throw .system("cannot make a content file")
  }

  enum ReadResult {
    case whole
    /// Not there, or not of this size.
    case damaged
  }

  /// Reads a value into its place.
  static func read(
    _ name: ContentName, into target: UnsafeMutableRawBufferPointer, in directory: Directory
  ) throws(Failure) -> ReadResult {
    let number = ContentPath.content(name).withPointer {
      Files.open($0, at: directory.descriptor, O_RDONLY | O_NOFOLLOW)
    }
    guard let number else {
      let code = hutch_errno()
      if code == ENOENT || code == ELOOP || code == ENOTDIR { return .damaged }
      throw .system("cannot open a content file", errno: code)
    }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: file.number) else {
      throw .system("cannot look at a content file")
    }
    guard hutch_is_regular(status.st_mode) != 0, Int(status.st_size) == target.count else {
      return .damaged
    }
    guard let count = Files.read(file.number, into: target) else {
      let code = hutch_errno()
      // A block that the disk cannot give back: the value is gone, the rest is not.
      if code == EIO { return .damaged }
      throw .system("cannot read a content file", errno: code)
    }
    return count == target.count ? .whole : .damaged
  }

  /// Unlinks a file that no row has ever named.
  static func discard(_ name: ContentName, in directory: Directory) {
    _ = ContentPath.content(name).withPointer { Files.unlink($0, at: directory.descriptor) }
  }
}
