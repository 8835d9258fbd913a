import CSystem

/// An open file. Its owner closes it at its end, and exec never inherits it.
struct Descriptor: ~Copyable {
  private(set) var number: Int32

  init(owning number: Int32) { self.number = number }

  deinit { Descriptor.end(number) }

  @inline(never)
  private static func end(_ number: Int32) { if number >= 0 { _ = close(number) } }

  /// Hands the descriptor over to the caller, which closes it.
  consuming func take() -> Int32 {
    let taken = number
    number = -1
    return taken
  }
}

/// System calls on files behind names: EINTR and short transfers are handled here once. A path is
/// bytes that end with NUL, relative to the descriptor of a directory.
enum Files {
  typealias Path = UnsafePointer<CChar>

  /// The modes of what a store consists of: for the owner alone.
  static let fileMode: mode_t = 0o600
  static let folderMode: mode_t = 0o700

  /// A literal as a C string: it ends with NUL.
  static func path(_ literal: StaticString) -> Path {
    UnsafeRawPointer(literal.utf8Start).assumingMemoryBound(to: CChar.self)
  }

  /// A descriptor whose number is not that of a standard stream. A host that has closed one may
  /// still write to it, and would write into a file of the cache. Nil: `errno` has the reason.
  static func aboveStreams(_ number: Int32) -> Int32? {
    if _fastPath(number > 2) { return number }
    let low = Descriptor(owning: number)
    let high = hutch_duplicate(low.number)
    return high >= 0 ? high : nil
  }

  /// Nil: `errno` has the reason.
  @inline(never)
  static func open(
    _ path: Path, at directory: Int32 = AT_FDCWD, _ flags: Int32, mode: mode_t = fileMode
  ) -> Int32? {
    while true {
      let number = hutch_openat(directory, path, flags | O_CLOEXEC, mode)
      if number >= 0 { return aboveStreams(number) }
      if hutch_errno() != EINTR { return nil }
    }
  }

  /// Like `open`, for a path of names below a directory. It follows no symbolic link, neither on
  /// the way nor at the end.
  @inline(never)
  static func openBeneath(_ path: Path, at directory: Int32, _ flags: Int32) -> Int32? {
    let flags = flags | O_CLOEXEC | O_NOFOLLOW
    while true {
      let number = hutch_open_without_links(directory, path, flags, fileMode)
      if number >= 0 { return aboveStreams(number) }
      let code = hutch_errno()
      // A kernel before 5.6, or a sandbox that does not know the call.
      if code == ENOSYS || code == EPERM { break }
      if code != EINTR { return nil }
    }
    return openStepwise(path, at: directory, flags)
  }

  /// The same, one directory after another.
  static func openStepwise(_ path: Path, at directory: Int32, _ flags: Int32) -> Int32? {
    var name = path
    var parent = Descriptor(owning: -1)
    while let slash = strchr(name, 0x2F) {
      let count = UnsafePointer(slash) - name
      let from = parent.number < 0 ? directory : parent.number
      // The library's names are short: see ContentPath.
      var room = (UInt64(0), UInt64(0), UInt64(0), UInt64(0), UInt64(0), UInt64(0), UInt64(0))
      let next = withUnsafeMutableBytes(of: &room) { step -> Int32? in
        guard count < step.count else {
          hutch_set_errno(ENAMETOOLONG)
          return nil
        }
        step.copyMemory(from: UnsafeRawBufferPointer(start: name, count: count))
        return open(
          step.baseAddress!.assumingMemoryBound(to: CChar.self), at: from,
          O_PATH | O_DIRECTORY | O_NOFOLLOW)
      }
      guard let next else { return nil }
      parent = Descriptor(owning: next)
      name = UnsafePointer(slash) + 1
    }
    let opened = open(name, at: parent.number < 0 ? directory : parent.number, flags | O_NOFOLLOW)
    let code = hutch_errno()
    _ = consume parent
    hutch_set_errno(code)
    return opened
  }

  /// Opens a regular file of a directory to be read and written. `words`: of the failure to do so;
  /// `foreign`: if something else is there.
  @inline(never)
  static func openRegular(
    _ path: Path, at directory: Int32, _ flags: Int32, _ words: StaticString,
    foreign: StaticString
  ) throws(Failure) -> Descriptor {
    guard let number = openBeneath(path, at: directory, O_RDWR | O_NONBLOCK | flags) else {
      throw .opening(words)
    }
    let file = Descriptor(owning: number)
    guard let status = status(of: number), status.isRegular else {
      throw Failure(.badDirectory, foreign)
    }
    return file
  }

  /// Writes all of `bytes` at an offset in the file. False: `errno` has the reason.
  @inline(never)
  static func write(_ bytes: Bytes, to descriptor: Int32, at offset: Int = 0) -> Bool {
    var done = 0
    while done < bytes.count {
      let count = pwrite(
        descriptor, bytes.baseAddress! + done, bytes.count - done, off_t(offset + done))
      if count > 0 {
        done += count
      } else if count == 0 {
        // No file system should do this; without the check the loop would not end.
        hutch_set_errno(ENOSPC)
        return false
      } else if hutch_errno() != EINTR {
        return false
      }
    }
    return true
  }

  /// Writes three runs of bytes at an offset in the file, one behind the other, in one call. False:
  /// not all of them were written.
  static func write(
    _ first: Bytes, _ second: Bytes, _ third: Bytes, to descriptor: Int32, at offset: Int
  ) -> Bool {
    func vector(_ bytes: Bytes) -> iovec {
      iovec(iov_base: UnsafeMutableRawPointer(mutating: bytes.baseAddress), iov_len: bytes.count)
    }
    let vectors: InlineArray<3, iovec> = [vector(first), vector(second), vector(third)]
    return withUnsafeBytes(of: vectors) {
      pwritev(descriptor, $0.assumingMemoryBound(to: iovec.self).baseAddress, 3, off_t(offset))
        == first.count + second.count + third.count
    }
  }

  /// Fills `target` from an offset in the file, and returns how many bytes there were. Nil:
  /// `errno`.
  @inline(never)
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

  /// Fills `target` from an offset in the file. False: the file ends before that. `words`: of the
  /// failure of a read.
  @inline(never)
  static func fill(
    _ target: UnsafeMutableRawBufferPointer, from descriptor: Int32, at offset: Int,
    _ words: StaticString
  ) throws(Failure) -> Bool {
    guard let count = read(descriptor, into: target, at: offset) else { throw .system(words) }
    return count == target.count
  }

  /// A file in memory with these bytes, sealed against every change. The caller owns its
  /// descriptor.
  static func sealed(_ bytes: Bytes) throws(Failure) -> Int32 {
    let number = memfd_create(path("hutch"), UInt32(MFD_CLOEXEC | MFD_ALLOW_SEALING))
    guard number >= 0 else { throw .system("cannot make a file in memory") }
    let file = Descriptor(owning: number)
    guard write(bytes, to: number), hutch_seal(number) == 0 else {
      throw .system("cannot fill a file in memory")
    }
    return file.take()
  }

  /// Waits until the file's bytes are on the disk. False: `errno` has the reason.
  @inline(never)
  static func sync(_ descriptor: Int32) -> Bool {
    while fsync(descriptor) != 0 { if hutch_errno() != EINTR { return false } }
    return true
  }

  /// The same, without what only tells of the file.
  @inline(never)
  static func syncData(_ descriptor: Int32) -> Bool {
    while fdatasync(descriptor) != 0 { if hutch_errno() != EINTR { return false } }
    return true
  }

  /// Waits until everything that was written to a directory's file system is on the disk.
  @inline(never)
  static func syncAll(at directory: Int32) throws(Failure) {
    while syncfs(directory) != 0 {
      if hutch_errno() != EINTR { throw .system("cannot sync the directory's file system") }
    }
  }

  /// The space that is free for this process on the file's file system, and the size of that file
  /// system. Nil: `errno`.
  static func space(of descriptor: Int32) -> (free: Int64, all: Int64)? {
    var status = statvfs()
    guard fstatvfs(descriptor, &status) == 0 else { return nil }
    let block = Int64(clamping: status.f_frsize)
    let (free, overflow) = Int64(clamping: status.f_bavail).multipliedReportingOverflow(by: block)
    let (all, overflowToo) = Int64(clamping: status.f_blocks).multipliedReportingOverflow(by: block)
    return (overflow ? Int64.max : free, overflowToo ? Int64.max : all)
  }

  static func rename(_ from: Path, at folder: Int32, to path: Path, at other: Int32) -> Bool {
    renameat(folder, from, other, path) == 0
  }

  static func rename(_ from: Path, to path: Path, at directory: Int32) -> Bool {
    rename(from, at: directory, to: path, at: directory)
  }

  static func unlink(_ path: Path, at directory: Int32) -> Bool {
    unlinkat(directory, path, 0) == 0
  }

  /// True if the directory exists afterwards.
  static func makeDirectory(_ path: Path, at directory: Int32 = AT_FDCWD) -> Bool {
    mkdirat(directory, path, folderMode) == 0 || hutch_errno() == EEXIST
  }

  /// Makes `path` and its parents. Only the last step's error counts: a parent that cannot be made
  /// may exist already, where this process has no right to see it.
  static func makeDirectories(_ path: Path) throws(Failure) -> Bool {
    guard let text = strdup(path) else { throw .noMemory }
    defer { free(text) }
    let slash: CChar = 0x2F
    for i in 0..<strlen(text) where i > 0 && text[i] == slash && text[i - 1] != slash {
      text[i] = 0
      _ = mkdirat(AT_FDCWD, text, folderMode)
      text[i] = slash
    }
    return makeDirectory(text)
  }

  /// Reads the names in a directory, and passes each to `visit` with the directory's own
  /// descriptor, until `visit` asks to stop. False if the directory cannot be read; `errno` has the
  /// reason.
  @discardableResult @inline(never)
  static func list(
    _ path: Path, at directory: Int32, visit: (_ name: Path, _ folder: Int32) -> Bool
  ) -> Bool {
    guard let number = openBeneath(path, at: directory, O_RDONLY | O_DIRECTORY) else {
      return false
    }
    guard let stream = fdopendir(number) else {
      let code = hutch_errno()
      _ = close(number)
      hutch_set_errno(code)
      return false
    }
    defer { closedir(stream) }
    while true {
      // Only errno tells the end of the directory from an error.
      hutch_set_errno(0)
      guard let entry = readdir(stream) else { break }
      let goesOn = withUnsafePointer(to: &entry.pointee.d_name) { name in
        name.withMemoryRebound(to: CChar.self, capacity: 256) { text in
          let isDot = text[0] == 0x2E && (text[1] == 0 || (text[1] == 0x2E && text[2] == 0))
          return isDot || visit(text, number)
        }
      }
      if !goesOn { return true }
    }
    return hutch_errno() == 0
  }

  /// Unlinks the files of a folder that `isWanted` chooses by their names. An unlink may hide other
  /// names from a reading: the folder is read again until nothing is left to unlink.
  @inline(never)
  static func unlinkAll(
    in folder: Path, at directory: Int32, where isWanted: (_ name: Path) -> Bool
  ) {
    var goesOn = true
    while goesOn {
      goesOn = false
      list(folder, at: directory) { name, number in
        if isWanted(name) && unlink(name, at: number) { goesOn = true }
        return true
      }
    }
  }
}
