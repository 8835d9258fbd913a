import CSystem

/// Which file it is, whatever its name.
struct FileIdentity: Equatable {
  let device: UInt64
  let inode: UInt64

  static func == (a: FileIdentity, b: FileIdentity) -> Bool {
    a.device == b.device && a.inode == b.inode
  }
}

/// The state of a file. Four words: an optional one is returned in registers, where a `stat` is 18
/// words that every caller has on its stack.
struct FileStatus {
  let identity: FileIdentity
  let size: Int
  /// The last change of the file or of its name, in seconds since 1970. Until the year 2106.
  private let changed: UInt32
  /// False: a directory, a symbolic link, a device.
  let isRegular: Bool

  fileprivate init(_ status: stat) {
    identity = FileIdentity(
      device: UInt64(truncatingIfNeeded: status.st_dev),
      inode: UInt64(truncatingIfNeeded: status.st_ino))
    size = Int(status.st_size)
    changed = UInt32(clamping: status.st_ctim.tv_sec)
    isRegular = hutch_is_regular(status.st_mode) != 0
  }

  /// The time of the last change, by the system's clock, in nanoseconds.
  var lastChange: Int64 { Int64(changed) * 1_000_000_000 }
}

extension Files {
  /// Whether `errno` says of a path that it leads to no file.
  static var isMissing: Bool {
    let code = hutch_errno()
    return code == ENOENT || code == ENOTDIR || code == ELOOP
  }

  /// The state of the name itself, also if it is a symbolic link. Nil: errno says why.
  @inline(never)
  static func status(_ path: Path, at directory: Int32) -> FileStatus? {
    var status = stat()
    return fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) == 0 ? FileStatus(status) : nil
  }

  @inline(never)
  static func status(of descriptor: Int32) -> FileStatus? {
    var status = stat()
    return fstat(descriptor, &status) == 0 ? FileStatus(status) : nil
  }
}
