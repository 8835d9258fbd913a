import CSystem

/// A file's bytes as memory that all processes share which map it.
///
/// A mapping reaches further than its file does. The part behind the file's end becomes usable
/// when the file grows, whichever process makes it grow, and no process maps it again. Whoever
/// touches memory behind the end, or a hole of the file on a full file system, dies by SIGBUS:
/// the owner of a mapping keeps to what `Files.reserve` has given.
struct Mapping: ~Copyable {
  let base: UnsafeMutableRawPointer
  let byteCount: Int

  /// Maps `reach` bytes, or as many as there are addresses for, down to `least`.
  init(_ descriptor: Int32, reach: Int, least: Int) throws(Failure) {
    var size = reach
    while true {
      let mapped = mmap(
        nil, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0)
      if let mapped, mapped != UnsafeMutableRawPointer(bitPattern: -1) {
        base = mapped
        byteCount = size
        return
      }
      guard hutch_errno() == ENOMEM, size / 2 >= least else {
        throw .system("cannot map a file")
      }
      size /= 2
    }
  }

  deinit { munmap(base, byteCount) }

  /// The file is read and written at random: the kernel is not to read ahead.
  func adviseRandom() { madvise(base, byteCount, MADV_RANDOM) }

  /// Waits until these bytes are on the disk. `offset` is a multiple of the page size.
  func sync(_ offset: Int, _ count: Int) throws(Failure) {
    guard msync(base + offset, count, MS_SYNC) == 0 else {
      throw .system("cannot write a mapped file to the disk")
    }
  }
}

extension Files {
  /// Sees to it that these bytes of a file have a place on the file system; the file grows to
  /// their end. What is there stays.
  static func reserve(_ descriptor: Int32, _ offset: Int, _ count: Int) throws(Failure) {
    while true {
      let code = posix_fallocate(descriptor, off_t(offset), off_t(count))
      if code == 0 { return }
      if code != EINTR { throw .system("cannot make a file larger", errno: code) }
    }
  }

  /// Gives the file system back what these bytes took; they read as zeroes. Where that is not
  /// possible nothing happens.
  static func punch(_ descriptor: Int32, _ offset: Int, _ count: Int) {
    // FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    _ = fallocate(descriptor, 3, off_t(offset), off_t(count))
  }
}
