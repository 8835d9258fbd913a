import CSystem

/// The name of a content file: a folder and 56 random bits, never made from a key, and the suffix that its
/// put asked for. The file is `content/xx/<16 hexadecimal digits><suffix>`, where xx are the
/// first two digits.
struct ContentName {
  let number: UInt64
  var suffix = FileSuffix()

  static let digits = 16

  static func random(_ suffix: FileSuffix = FileSuffix()) throws(Failure) -> ContentName {
    ContentName(number: try Entropy.number(), suffix: suffix)
  }

  init(number: UInt64, suffix: FileSuffix = FileSuffix()) {
    self.number = number
    self.suffix = suffix
  }

  /// From its text; nil if it is not exactly that.
  init?(_ text: Bytes) {
    guard text.count >= ContentName.digits,
      let suffix = FileSuffix(Bytes(rebasing: text[ContentName.digits...]))
    else { return nil }
    var number: UInt64 = 0
    for digit in text[0..<ContentName.digits] {
      switch digit {
      case 0x30...0x39: number = number << 4 | UInt64(digit - 0x30)
      case 0x61...0x66: number = number << 4 | UInt64(digit - 0x61 + 10)
      default: return nil
      }
    }
    self.number = number
    self.suffix = suffix
  }

  /// Of the file while it is being written: the same number, with `.tmp` for its suffix.
  var temporary: ContentName { ContentName(number: number, suffix: .temporary) }

  var folder: UInt8 { UInt8(truncatingIfNeeded: number >> 56) }

  func inFolder(_ folder: UInt8) -> ContentName {
    ContentName(number: number & (1 << 56 - 1) | UInt64(folder) << 56, suffix: suffix)
  }

  fileprivate func writeDigits(to target: UnsafeMutablePointer<UInt8>) {
    for i in 0..<ContentName.digits {
      let digit = UInt8(truncatingIfNeeded: number >> UInt64(60 - 4 * i) & 15)
      target[i] = digit < 10 ? 0x30 + digit : 0x61 + digit - 10
    }
  }

  /// Runs `body` with the name's text.
  func withText<R>(_ body: (Bytes) throws(Failure) -> R) throws(Failure) -> R {
    var room: (UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0)
    return try withUnsafeMutableBytes(of: &room) { (bytes) throws(Failure) -> R in
      let start = bytes.baseAddress!
      writeDigits(to: start.assumingMemoryBound(to: UInt8.self))
      suffix.withBytes { end in
        if end.count > 0 {
          (start + ContentName.digits).copyMemory(from: end.baseAddress!, byteCount: end.count)
        }
      }
      return try body(Bytes(start: start, count: ContentName.digits + suffix.count))
    }
  }
}

/// A path below the cache directory, in place: at most 47 bytes and NUL. The longest is that of
/// a content file, 11 + 16 + 15.
struct ContentPath {
  private var room: (UInt64, UInt64, UInt64, UInt64, UInt64, UInt64) = (0, 0, 0, 0, 0, 0)
  private var length = 0

  /// `content/xx/<name>`
  static func content(_ name: ContentName) -> ContentPath {
    var path = ContentPath.folder(name.folder)
    path.append("/")
    path.append(name)
    return path
  }

  /// `content`
  static var folders: ContentPath {
    var path = ContentPath()
    path.append("content")
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
      name.writeDigits(to: (target.baseAddress! + at).assumingMemoryBound(to: UInt8.self))
    }
    length += ContentName.digits
    name.suffix.withBytes { if $0.count > 0 { append($0) } }
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
  /// What of a file must be on the disk before its row is committed.
  enum Syncing {
    case nothing
    /// Its bytes: a row that survives a loss of power has its file.
    case bytes
    /// Its bytes and its name.
    case name
  }

  /// Writes a value. On failure nothing is left behind.
  static func write(
    _ value: Bytes, _ name: ContentName, in directory: Directory, _ syncing: Syncing
  ) throws(Failure) {
    let file = Descriptor(owning: try create(name, in: directory))
    guard Files.write(value, to: file.number) else {
      let failure = Failure.system("cannot write a content file")
      discard(name.temporary, in: directory)
      throw failure
    }
    try settle(file.number, name, in: directory, syncing)
  }

  /// Gives a file that has been written its own name. On failure nothing is left behind.
  static func settle(
    _ file: Int32, _ name: ContentName, in directory: Directory, _ syncing: Syncing
  ) throws(Failure) {
    let isSynced = syncing == .nothing || Files.sync(file)
    let isNamed =
      isSynced
      && ContentPath.content(name.temporary).withPointer { from in
        ContentPath.content(name).withPointer { to in
          Files.rename(from, to: to, at: directory.descriptor)
        }
      }
    guard isNamed else {
      let failure = Failure.system("cannot finish a content file")
      discard(name.temporary, in: directory)
      throw failure
    }
    if syncing == .name { try syncFolder(of: name, in: directory) }
  }

  /// The file gets its own name only, beside the one that it has elsewhere; false if it cannot
  /// have one here.
  static func link(
    _ path: Files.Path, _ file: Int32, _ name: ContentName, in directory: Directory,
    _ syncing: Syncing
  ) throws(Failure) -> Bool {
    func link() -> Bool {
      ContentPath.content(name).withPointer {
        linkat(AT_FDCWD, path, directory.descriptor, $0, 0) == 0
      }
    }
    if !link() {
      guard hutch_errno() == ENOENT else { return false }
      makeFolder(of: name, in: directory)
      guard link() else { return false }
    }
    // What the path names may have been changed since the file was opened.
    let own = Files.status(of: file)
    let linked = ContentPath.content(name).withPointer {
      Files.status($0, at: directory.descriptor)
    }
    guard let own, let linked, own.st_ino == linked.st_ino, own.st_dev == linked.st_dev,
      syncing == .nothing || Files.sync(file)
    else {
      discard(name, in: directory)
      return false
    }
    if syncing == .name { try syncFolder(of: name, in: directory) }
    return true
  }

  /// On failure the file is gone.
  private static func syncFolder(
    of name: ContentName, in directory: Directory
  ) throws(Failure) {
    for path in [ContentPath.folder(name.folder), ContentPath.folders] {
      let folder = path.withPointer {
        Files.open($0, at: directory.descriptor, O_RDONLY | O_DIRECTORY)
      }
      guard let folder else {
        discard(name, in: directory)
        throw .system("cannot open a folder of content files")
      }
      let opened = Descriptor(owning: folder)
      guard Files.sync(opened.number) else {
        let failure = Failure.system("cannot sync a folder of content files")
        discard(name, in: directory)
        throw failure
      }
    }
  }

  /// Makes the file under its temporary name.
  static func create(_ name: ContentName, in directory: Directory) throws(Failure) -> Int32 {
    func open() -> Int32? {
      ContentPath.content(name.temporary).withPointer {
        Files.open($0, at: directory.descriptor, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW)
      }
    }
    if let number = open() { return number }
    if hutch_errno() == ENOENT {
      makeFolder(of: name, in: directory)
      if let number = open() { return number }
    }
    throw .system("cannot make a content file")
  }

  /// The folder is made when it is first needed, or when somebody has removed it.
  private static func makeFolder(of name: ContentName, in directory: Directory) {
    func make() -> Bool {
      ContentPath.folder(name.folder).withPointer {
        Files.makeDirectory($0, at: directory.descriptor)
      }
    }
    if make() || hutch_errno() != ENOENT { return }
    _ = ContentPath.folders.withPointer { Files.makeDirectory($0, at: directory.descriptor) }
    _ = make()
  }

  /// Nil: not there.
  static func size(_ name: ContentName, in directory: Directory) -> Int? {
    ContentPath.content(name).withPointer {
      Files.status($0, at: directory.descriptor).map { Int($0.st_size) }
    }
  }

  /// Nil: not there.
  static func open(_ name: ContentName, in directory: Directory) throws(Failure) -> Int32? {
    let number = ContentPath.content(name).withPointer {
      Files.open($0, at: directory.descriptor, O_RDONLY | O_NOFOLLOW)
    }
    if let number { return number }
    let code = hutch_errno()
    if code == ENOENT || code == ELOOP || code == ENOTDIR { return nil }
    throw .system("cannot open a content file", errno: code)
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
    try read(name, in: directory) { $0 == target.count ? target : nil }
  }

  /// As above, with the checksum of what was read.
  static func read(
    _ name: ContentName, into target: UnsafeMutableRawBufferPointer,
    _ sum: inout Checksum.Sum, in directory: Directory
  ) throws(Failure) -> ReadResult {
    guard let number = try open(name, in: directory) else { return .damaged }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: file.number) else {
      throw .system("cannot look at a content file")
    }
    guard hutch_is_regular(status.st_mode) != 0, Int(status.st_size) == target.count else {
      return .damaged
    }
    // In pieces that are in the processor's cache when they are summed up.
    var done = 0
    while done < target.count {
      let piece = UnsafeMutableRawBufferPointer(
        rebasing: target[done..<min(target.count, done + (128 << 10))])
      guard let count = Files.read(file.number, into: piece, at: done) else {
        return try unread()
      }
      guard count == piece.count else { return .damaged }
      sum.add(Bytes(piece))
      done += count
    }
    return .whole
  }

  /// A block that the disk cannot give back: the value is gone, the rest is not.
  private static func unread() throws(Failure) -> ReadResult {
    let code = hutch_errno()
    if code == EIO { return .damaged }
    throw .system("cannot read a content file", errno: code)
  }

  /// Reads a file of whatever size.
  static func read(
    _ name: ContentName, into buffer: OutputBuffer, in directory: Directory
  ) throws(Failure) -> ReadResult {
    try read(name, in: directory) { size in
      buffer.resize(size).map { UnsafeMutableRawBufferPointer(start: $0, count: size) }
    }
  }

  /// `room` gives the place for a file of that size; nil: it is not the right one.
  private static func read(
    _ name: ContentName, in directory: Directory,
    into room: (Int) -> UnsafeMutableRawBufferPointer?
  ) throws(Failure) -> ReadResult {
    guard let number = try open(name, in: directory) else { return .damaged }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: file.number) else {
      throw .system("cannot look at a content file")
    }
    guard hutch_is_regular(status.st_mode) != 0, let target = room(Int(status.st_size)) else {
      return .damaged
    }
    guard let count = Files.read(file.number, into: target) else { return try unread() }
    return count == target.count ? .whole : .damaged
  }

  /// Unlinks a file that no row has ever named. False: it is not there.
  @discardableResult
  static func discard(_ name: ContentName, in directory: Directory) -> Bool {
    ContentPath.content(name).withPointer { Files.unlink($0, at: directory.descriptor) }
  }
}
