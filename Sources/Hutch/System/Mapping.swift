import CSystem

/// A file's bytes as memory that all processes share which map the file.
///
/// A mapping extends beyond the end of its file. The part behind the end becomes usable when any
/// process makes the file grow, without a new mapping. A thread that touches memory behind the end,
/// or a hole of the file on a full file system, dies by SIGBUS. The owner of a mapping therefore
/// touches only what `reserve` has allocated.
struct Mapping: ~Copyable {
  /// The bytes of a page of memory: 4 KiB on x86_64; 4, 16 or 64 KiB on aarch64, as the kernel is.
  static var page: Int { sysconf(Int32(_SC_PAGESIZE)) }

  let base: UnsafeMutableRawPointer
  let byteCount: Int

  /// Maps `reach` bytes, or as many as there are addresses for, down to `least` and to a quarter
  /// more than the file has. Where the process may have so many addresses only (RLIMIT_AS), a
  /// mapping takes no more than a sixteenth of them, or that.
  init(_ descriptor: Int32, reach: Int, least: Int) throws(Failure) {
    let there = Files.status(of: descriptor)?.size ?? 0
    let least = max(least, there + there / 4)
    let share = Int(hutch_most_addresses() / 16) & ~0xFFFF
    var size = min(reach, max(least, share))
    while true {
      let mapped = mmap(
        nil, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, descriptor, 0)
      if let mapped, mapped != UnsafeMutableRawPointer(bitPattern: -1) {
        base = mapped
        byteCount = size
        return
      }
      // valgrind answers EINVAL.
      guard hutch_errno() == ENOMEM || hutch_errno() == EINVAL, size > least else {
        throw .system("cannot map a file")
      }
      size = max(size / 2, least)
    }
  }

  deinit { munmap(base, byteCount) }

  /// Accesses to the file are random: the kernel should not read ahead.
  func adviseRandom() { madvise(base, byteCount, MADV_RANDOM) }

  /// `Files.reserve` for the pages of memory that have these bytes: a store to a page needs all of
  /// its blocks.
  @inline(never)
  static func reserve(_ descriptor: Int32, _ offset: Int, _ count: Int) throws(Failure) {
    let mask = page &- 1
    try Files.reserve(descriptor, offset & ~mask, (offset & mask &+ count &+ mask) & ~mask)
  }

  /// Waits until these bytes are on the disk. `offset` is a multiple of the page size.
  func sync(_ offset: Int, _ count: Int) throws(Failure) {
    guard msync(base + offset, count, MS_SYNC) == 0 else {
      throw .system("cannot write a mapped file to the disk")
    }
  }
}

extension Files {
  /// Allocates space on the file system for these bytes of a file; the file grows to their end.
  /// Existing bytes stay.
  @inline(never)
  static func reserve(_ descriptor: Int32, _ offset: Int, _ count: Int) throws(Failure) {
    while true {
      let code = posix_fallocate(descriptor, off_t(offset), off_t(count))
      if code == 0 { return }
      if code != EINTR { throw .system("cannot make a file larger", errno: code) }
    }
  }

  /// False: the byte of the file is in a hole, or behind the end.
  static func hasData(_ descriptor: Int32, at offset: Int) -> Bool {
    // SEEK_DATA. Where the file system does not know of holes, all is data.
    lseek(descriptor, off_t(offset), 3) == off_t(offset) || hutch_errno() == EINVAL
  }

  /// Returns the space of these bytes to the file system; they then read as zeroes. Does nothing
  /// where that is not possible.
  static func punch(_ descriptor: Int32, _ offset: Int, _ count: Int) {
    // FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
    _ = fallocate(descriptor, 3, off_t(offset), off_t(count))
  }
}
