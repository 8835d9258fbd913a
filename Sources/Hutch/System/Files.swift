import CSystem

/// An open file, closed with its owner and never inherited by exec.
struct Descriptor: ~Copyable {
  private(set) var number: Int32

  init(owning number: Int32) { self.number = number }

  deinit { if number >= 0 { _ = close(number) } }

  /// Hands the descriptor over: who has it closes it.
  consuming func take() -> Int32 {
    let taken = number
    number = -1
    return taken
  }
}

/// System calls on files behind names: EINTR and short transfers are handled here once.
/// A path is bytes that end with NUL, relative to a directory's descriptor.
enum Files {
  typealias Path = UnsafePointer<CChar>

  /// A literal as C has it: it ends with NUL.
  static func path(_ literal: StaticString) -> Path {
    UnsafeRawPointer(literal.utf8Start).assumingMemoryBound(to: CChar.self)
  }

  /// Nil: `errno` says why.
  static func open(
    _ path: Path, at directory: Int32 = AT_FDCWD, _ flags: Int32, mode: mode_t = 0o600
  ) -> Int32? {
    while true {
      let number = hutch_openat(directory, path, flags | O_CLOEXEC, mode)
      if number >= 0 { return number }
      if hutch_errno() != EINTR { return nil }
    }
  }

  /// Writes all of `bytes` to a place in the file. False: `errno` says why.
  static func write(_ bytes: Bytes, to descriptor: Int32, at offset: Int = 0) -> Bool {
    var done = 0
    while done < bytes.count {
      let count = pwrite(
        descriptor, bytes.baseAddress! + done, bytes.count - done, off_t(offset + done))
      if count > 0 {
        done += count
      } else if count == 0 {
        // No file system should; without this the loop would not end.
        hutch_set_errno(ENOSPC)
        return false
      } else if hutch_errno() != EINTR {
        return false
      }
    }
    return true
  }

  /// Fills `target` from a place in the file; how many bytes there were. Nil: `errno`.
  static func read(
    _ descriptor: Int32, into target: UnsafeMutableRawBufferPointer, at offset: Int = 0
  ) -> Int? {
    var done = 0
    while done < target.count {
      let count = pread(
        descriptor, target.baseAddress! + done, target.count - done, off_t(offset + done))
      if count > 0 {
        done += count
      } else if count == 0 {
        break
      } else if hutch_errno() != EINTR {
        return nil
      }
    }
    return done
  }

  /// A file in memory with these bytes, which nobody can change any more. Its descriptor is
  /// the caller's.
  static func sealed(_ bytes: Bytes) throws(Failure) -> Int32 {
    let number = memfd_create(path("hutch"), UInt32(MFD_CLOEXEC | MFD_ALLOW_SEALING))
    guard number >= 0 else { throw .system("cannot make a file in memory") }
    let file = Descriptor(owning: number)
    guard write(bytes, to: number), hutch_seal(number) == 0 else {
      throw .system("cannot fill a file in memory")
    }
    return file.take()
  }

  /// Waits until the file's bytes are on the disk. False: `errno` says why.
  static func sync(_ descriptor: Int32) -> Bool { fsync(descriptor) == 0 }

  /// What a path names, a symbolic link itself included. Nil: `errno`.
  static func status(_ path: Path, at directory: Int32) -> stat? {
    var status = stat()
    return fstatat(directory, path, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status : nil
  }

  static func status(of descriptor: Int32) -> stat? {
    var status = stat()
    return fstat(descriptor, &status) == 0 ? status : nil
  }

  /// What is free, for us, on the file system that a file is on, and its size. Nil: `errno`.
  static func space(of descriptor: Int32) -> (free: Int64, all: Int64)? {
    var status = statvfs()
    guard fstatvfs(descriptor, &status) == 0 else { return nil }
    let block = Int64(clamping: status.f_frsize)
    let (free, overflow) = Int64(clamping: status.f_bavail).multipliedReportingOverflow(by: block)
    let (all, overflowToo) = Int64(clamping: status.f_blocks).multipliedReportingOverflow(by: block)
    return (overflow ? Int64.max : free, overflowToo ? Int64.max : all)
  }

  static func rename(_ from: Path, to path: Path, at directory: Int32) -> Bool {
    renameat(directory, from, directory, path) == 0
  }

  static func unlink(_ path: Path, at directory: Int32) -> Bool {
    unlinkat(directory, path, 0) == 0
  }

  /// True if the directory is there afterwards.
  static func makeDirectory(_ path: Path, at directory: Int32 = AT_FDCWD) -> Bool {
    mkdirat(directory, path, 0o700) == 0 || hutch_errno() == EEXIST
  }

  /// Makes `path` and its parents. Only the last step's error counts: a parent that cannot
  /// be made may be there already, beyond what we may see.
  static func makeDirectories(_ path: Path) throws(Failure) -> Bool {
    guard let text = strdup(path) else { throw .noMemory }
    defer { free(text) }
    let slash: CChar = 0x2F
    for i in 0..<strlen(text) where i > 0 && text[i] == slash && text[i - 1] != slash {
      text[i] = 0
      _ = mkdirat(AT_FDCWD, text, 0o700)
      text[i] = slash
    }
    return makeDirectory(text)
  }

  /// Reads the names in a directory until `visit` says stop. False if it cannot be read.
  @discardableResult
  static func list(
    _ path: Path, at directory: Int32, visit: (_ name: Path) -> Bool
  ) -> Bool {
    guard let number = open(path, at: directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW) else {
      return false
    }
    guard let stream = fdopendir(number) else {
      _ = close(number)
      return false
    }
    defer { closedir(stream) }
    while let entry = readdir(stream) {
      let goesOn = withUnsafePointer(to: &entry.pointee.d_name) { name in
        name.withMemoryRebound(to: CChar.self, capacity: 256) { text in
          let isDot = text[0] == 0x2E && (text[1] == 0 || (text[1] == 0x2E && text[2] == 0))
          return isDot || visit(text)
        }
      }
      if !goesOn { break }
    }
    return true
  }
}
