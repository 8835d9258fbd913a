import CSystem

/// An open cache directory. The cache opens it first, looks up its identity among those that the
/// process has open, and only then opens a store in it. Two stores of one directory in one process
/// would not know of each other, and with POSIX locks, which SQLite uses, one would drop the locks
/// of the other.
///
/// A class, because a read of a file may continue while the store moves to another directory: the
/// descriptor stays open as long as a thread uses it.
final class Directory {
  /// Absolute, ends with NUL. Symbolic links are resolved, so a later chdir changes nothing.
  private let text: UnsafeMutablePointer<CChar>
  private let file: Descriptor
  let identity: FileIdentity

  private init(
    owning text: UnsafeMutablePointer<CChar>, _ file: consuming Descriptor,
    _ identity: FileIdentity
  ) {
    self.text = text
    self.file = file
    self.identity = identity
  }

  deinit { free(text) }

  var device: UInt64 { identity.device }
  var inode: UInt64 { identity.inode }

  /// The base of paths below the directory.
  var descriptor: Int32 { file.number }

  var path: Files.Path { UnsafePointer(text) }

  /// A directory that cannot be opened yet: a path to try, without an identity.
  static func unopened(path text: UnsafePointer<CChar>) throws(Failure) -> Directory {
    let working = text[0] == 0x2F ? nil : getcwd(nil, 0)
    defer { free(working) }
    let whole: UnsafeMutablePointer<CChar>
    if let working {
      let head = strlen(working)
      let bytes = try Allocation.bytes(head + 1 + strlen(text) + 1)
      whole = bytes.assumingMemoryBound(to: CChar.self)
      memcpy(whole, working, head)
      whole[head] = 0x2F
      strcpy(whole + head + 1, text)
    } else {
      guard let copy = strdup(text) else { throw .noMemory }
      whole = copy
    }
    return Directory(
      owning: whole, Descriptor(owning: -1), FileIdentity(device: 0, inode: 0))
  }

  var isOpen: Bool { file.number >= 0 }

  /// Opens the directory at `path`; `creating`: makes it with its parents.
  static func open(
    path text: UnsafePointer<CChar>, creating: Bool = true, allowsNetwork: Bool = false
  ) throws(Failure) -> Directory {
    guard text[0] != 0 else { throw Failure(.invalidArgument, "the directory's path is empty") }
    var number = Files.open(text, O_RDONLY | O_DIRECTORY)
    if number == nil && hutch_errno() == ENOENT && creating {
      guard try Files.makeDirectories(text) else {
        throw .system("cannot make the directory", otherwise: .badDirectory)
      }
      number = Files.open(text, O_RDONLY | O_DIRECTORY)
    }
    guard let number else {
      throw .opening("cannot open the directory")
    }
    let file = Descriptor(owning: number)

    guard let status = Files.status(of: number) else {
      throw .system("cannot look at the directory", otherwise: .badDirectory)
    }
    if !allowsNetwork && isOfNetwork(fileSystem(number)) {
      throw Failure(.unsupported, "the directory is on a network file system")
    }
    guard let absolute = realpath(text, nil) else {
      throw .system("cannot resolve the directory's path", otherwise: .badDirectory)
    }
    // A path of a file below is made of it.
    guard strlen(absolute) + ContentPath.longest < Int(PATH_MAX) else {
      free(absolute)
      throw .system(
        "the directory's path leaves no room for names of files", errno: ENAMETOOLONG,
        otherwise: .badDirectory)
    }
    return Directory(owning: absolute, file, status.identity)
  }

  /// True if the directory is empty, apart from what a file system puts into its own root, and
  /// from what a cache has left there (`LeftOvers`).
  var isEmpty: Bool {
    get throws(Failure) {
      var isEmpty = true
      let isListed = Files.list(Files.path("."), at: descriptor) { name, folder in
        isEmpty =
          strcmp(name, Files.path("lost+found")) == 0 || LeftOvers.contain(name, in: folder)
        return isEmpty
      }
      guard isListed else { throw .opening("cannot list the directory") }
      return isEmpty
    }
  }

  /// Removes the directory of a cache that has been removed, unless other files are in it.
  func removeIfEmpty() throws(Failure) {
    if rmdir(path) != 0, hutch_errno() != ENOTEMPTY, hutch_errno() != EEXIST {
      throw .system("the cache has been removed, and its directory cannot be")
    }
  }

  /// True if a file has been removed from the directory, or the whole directory has been.
  func hasLost(_ name: StaticString) -> Bool {
    isOpen && Files.status(Files.path(name), at: descriptor) == nil && hutch_errno() == ENOENT
  }

  /// What a look at a file of the directory finds, before any store has it open.
  enum FileHead {
    case absent
    /// A symbolic link, or anything else but a regular file: the library has not made it.
    case notOurs
    /// So many bytes were read.
    case read(Int)
  }

  /// Reads the first bytes of a file, as many as there is room for.
  func head(
    of name: StaticString, into bytes: UnsafeMutableRawBufferPointer, failing words: StaticString
  ) throws(Failure) -> FileHead {
    guard
      let number = Files.openBeneath(Files.path(name), at: descriptor, O_RDONLY | O_NONBLOCK)
    else {
      switch hutch_errno() {
      case ENOENT: return .absent
      case ELOOP: return .notOurs
      default: throw .opening(words)
      }
    }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: number),
      let count = status.isRegular ? Files.read(file.number, into: bytes) : 0
    else { throw .system(words) }
    return status.isRegular ? .read(count) : .notOurs
  }

  /// Runs `body` with the absolute path of a file in the directory, for code that takes no
  /// descriptor.
  func withPath<R: ~Copyable>(
    of name: StaticString, _ body: (UnsafePointer<CChar>) throws(Failure) -> R
  ) throws(Failure) -> R {
    let whole = try self.path(of: Bytes(start: name.utf8Start, count: name.utf8CodeUnitCount))
    defer { free(whole) }
    return try body(UnsafePointer(whole))
  }

  /// From malloc.
  func path(of name: Bytes) throws(Failure) -> UnsafeMutablePointer<CChar> {
    let length = strlen(text)
    let whole = try Allocation.bytes(length + 1 + name.count + 1)
    memcpy(whole, text, length)
    whole.storeBytes(of: 0x2F, toByteOffset: length, as: UInt8.self)
    memcpy(whole + (length + 1), name.baseAddress!, name.count)
    whole.storeBytes(of: 0, toByteOffset: length + 1 + name.count, as: UInt8.self)
    return whole.assumingMemoryBound(to: CChar.self)
  }

  /// The state of one of the directory's files. Nil: it is not there.
  func status(of name: StaticString) throws(Failure) -> FileStatus? {
    try Directory.known(Files.status(Files.path(name), at: descriptor))
  }

  /// True if the directory's path leads to this file by its name. False: another directory may be
  /// at the path by now.
  func isAtPath(_ name: StaticString, _ file: FileStatus?) throws(Failure) -> Bool {
    let there = try withPath(of: name) { (path) throws(Failure) in
      try Directory.known(Files.status(path, at: AT_FDCWD))
    }
    guard let file, let there else { return false }
    return file.identity == there.identity
  }

  /// After a lock of the directory was not taken: fails for another reason than that another open
  /// file has it.
  @inline(never)
  static func checkIsLocked() throws(Failure) {
    let code = hutch_errno()
    guard code == EAGAIN || code == EACCES || code == EINTR else {
      throw .system("cannot lock the directory", errno: code)
    }
  }

  /// Fails if there is no status for another reason than that the file is not there.
  private static func known(_ status: FileStatus?) throws(Failure) -> FileStatus? {
    if status == nil && !Files.isMissing { throw .system("cannot look at a file") }
    return status
  }

  /// A store needs memory shared by all processes that have a file open (SQLite for its write-ahead
  /// log), and locks that hold. A file system with users on other machines has neither. FUSE is
  /// accepted: it is mostly local.
  private static func isOfNetwork(_ fileSystem: UInt32) -> Bool {
    switch fileSystem {
    case 0x6969,  // NFS
      0x517B, 0xFF53_4D42, 0xFE53_4D42,  // SMB, CIFS, SMB2
      0x0102_1997,  // 9p
      0x5346_414F, 0x6B41_4653,  // AFS
      0x7375_7245,  // Coda
      0x00C3_6400,  // Ceph
      0x0BD0_0BD0,  // Lustre
      0x0116_1970,  // GFS2
      0x7461_636F:  // OCFS2
      return true
    default:
      return false
    }
  }

  /// True on tmpfs.
  var isInMemory: Bool { isOpen && Directory.fileSystem(descriptor) == 0x0102_1994 }

  /// The number of the kind of file system; 0: unknown.
  private static func fileSystem(_ descriptor: Int32) -> UInt32 {
    var status = statfs()
    guard fstatfs(descriptor, &status) == 0 else { return 0 }
    return UInt32(truncatingIfNeeded: status.f_type)
  }

  /// False if a store to mapped memory may end the process (SIGBUS) on this file system although
  /// the space was allocated before. One that copies on write allocates again for bytes that are
  /// replaced, and may be full then; the server of a network or FUSE file system may be gone.
  /// A directory that is not open is taken to be on a common file system.
  var suitsMappedFiles: Bool {
    guard isOpen else { return true }
    let fileSystem = Directory.fileSystem(descriptor)
    switch fileSystem {
    case 0x9123_683E, 0x2FC1_2FC1, 0xCA45_1A4E,  // btrfs, ZFS, bcachefs
      0x6573_5546:  // FUSE, virtiofs
      return false
    default:
      return !Directory.isOfNetwork(fileSystem)
    }
  }
}

extension Failure {
  /// True if the failure is the directory's, and not that of an option.
  var isOfDirectory: Bool {
    status != .invalidArgument && status != .noMemory && status != .forked
  }
}
