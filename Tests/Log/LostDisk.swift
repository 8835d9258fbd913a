import CLogTests
import CSystem

// A disk that has what was synced, and of all else any part: of each sector of the log and of the
// checkpoint any version since the last sync, and of each file any length; of the names those that
// were synced and some of the others.

/// One file as the disk may have it.
final class DiskFile {
  private let path: String
  private let sector: Int
  /// Of each sector the version that is on the disk, and those that may be.
  private var versions: [[[UInt8]]] = []
  private var sizes: [Int] = [0]
  /// What the file had at the last look.
  private var last: [UInt8] = []

  init(_ path: String, sector: Int) {
    self.path = path
    self.sector = sector
  }

  /// The disk's file as it is now.
  func copy() -> DiskFile {
    let copy = DiskFile(path, sector: sector)
    copy.versions = versions
    copy.sizes = sizes
    return copy
  }

  /// Notes what the file has now.
  func look() {
    guard let number = path.withCString({ Files.open($0, O_RDONLY) }),
      let status = Files.status(of: number)
    else { return }
    let file = Descriptor(owning: number)
    let size = status.size
    if sizes.last != size { sizes.append(size) }
    let bytes = [UInt8](unsafeUninitializedCapacity: size) { buffer, count in
      count = Files.read(file.number, into: UnsafeMutableRawBufferPointer(buffer)) ?? 0
    }
    let count = (size + sector - 1) / sector
    let zeroes = [UInt8](repeating: 0, count: sector)
    while versions.count < count { versions.append([zeroes]) }
    // Most of a large file is as it was.
    var block = 0
    while block < size {
      let end = min(block + DiskFile.block, size)
      if !isAtLast(bytes, block, end) { note(bytes, block, end) }
      block = end
    }
    last = bytes
  }

  private static let block = 4096

  private func isAtLast(_ bytes: [UInt8], _ start: Int, _ end: Int) -> Bool {
    guard end <= last.count else { return false }
    return bytes.withUnsafeBytes { now in
      last.withUnsafeBytes {
        memcmp($0.baseAddress! + start, now.baseAddress! + start, end - start) == 0
      }
    }
  }

  private func note(_ bytes: [UInt8], _ from: Int, _ to: Int) {
    for i in from / sector..<(to + sector - 1) / sector {
      let start = i * sector
      let length = min(sector, bytes.count - start)
      let isSame = bytes.withUnsafeBytes { now in
        versions[i][versions[i].count - 1].withUnsafeBytes {
          // The last sector of the file as it was may have been a part of one.
          $0.count >= length && memcmp($0.baseAddress!, now.baseAddress! + start, length) == 0
        }
      }
      if isSame { continue }
      versions[i].append([UInt8](bytes[start..<start + length]))
    }
  }

  /// Everything is on the disk.
  func sync() {
    look()
    sizes = [sizes[sizes.count - 1]]
    for i in 0..<versions.count where versions[i].count > 1 {
      versions[i] = [versions[i][versions[i].count - 1]]
    }
  }

  /// Leaves what the disk may have.
  func lose(_ random: inout Random) {
    guard let number = path.withCString({ Files.open($0, O_RDWR) }) else { return }
    let file = Descriptor(owning: number)
    // Mostly the newest ones or mostly the oldest ones, or any.
    let taste = random.next(4)
    for i in 0..<versions.count {
      let count = versions[i].count
      let kept: Int
      switch taste {
      case 0: kept = random.next(count)
      case 1: kept = random.next(8) == 0 ? random.next(count) : count - 1
      case 2: kept = random.next(8) == 0 ? random.next(count) : 0
      default: kept = random.next(30) == 0 ? random.next(count) : count - 1
      }
      let version = versions[i][kept]
      versions[i] = [version]
      // The file has the newest version already, if nothing was written after the last look.
      if kept == count - 1, i * sector + version.count <= last.count { continue }
      version.withUnsafeBytes { _ = Files.write($0, to: file.number, at: i * sector) }
    }
    let size = random.next(3) == 0 ? sizes[random.next(sizes.count)] : sizes[sizes.count - 1]
    ftruncate(file.number, off_t(size))
    // Beyond the end there are zeroes, and so there are where a version was short. All other
    // sectors are what was kept of them, and need no copy at the look that follows.
    let zeroes = [UInt8](repeating: 0, count: sector)
    versions.removeLast(max(0, versions.count - size / sector))
    for i in 0..<versions.count where versions[i][0].count < sector { versions[i] = [zeroes] }
    sizes = [0]
    last = []
    sync()
  }

  func isOpen(as descriptor: Int32) -> Bool {
    guard let there = path.withCString({ Files.status($0, at: AT_FDCWD) }),
      let own = Files.status(of: descriptor)
    else { return false }
    return there.identity == own.identity
  }
}

/// The names of a cache directory, and the bytes of its content files. A content file is written
/// once, so of each file it matters only whether its bytes and its name were synced.
final class DiskNames {
  private let path: String
  /// The names that are on the disk: the inodes of a folder and of what it names.
  private var named: [(folder: UInt64, file: UInt64)] = []
  /// The files whose bytes are on the disk.
  private var written: [UInt64] = []

  init(_ path: String) { self.path = path }

  private func inode(_ status: FileStatus) -> UInt64 { status.identity.inode }

  /// The file or the folder of a descriptor has been synced.
  func sync(_ descriptor: Int32) {
    guard let status = Files.status(of: descriptor) else { return }
    if status.isRegular {
      if !written.contains(inode(status)) { written.append(inode(status)) }
      return
    }
    let folder = inode(status)
    var names: [(folder: UInt64, file: UInt64)] = []
    Files.list(Files.path("."), at: descriptor) { name, number in
      if let found = Files.status(name, at: number) { names.append((folder, inode(found))) }
      return true
    }
    named = named.filter { $0.folder != folder } + names
  }

  /// The directory's file system has been synced.
  func syncAll() {
    named = []
    written = []
    eachFolder { number, level, _ in
      sync(number)
      guard level == .folder else { return }
      Files.list(Files.path("."), at: number) { name, folder in
        if let file = Files.status(name, at: folder) { written.append(inode(file)) }
        return true
      }
    }
  }

  private enum Level { case parent, own, content, folder }

  /// The directory's parent, the directory, and the folders of content files.
  private func eachFolder(_ visit: (_ folder: Int32, Level, _ path: String) -> Void) {
    func visitIfThere(_ path: String, _ level: Level) -> Bool {
      guard let number = path.withCString({ Files.open($0, O_RDONLY | O_DIRECTORY) }) else {
        return false
      }
      let folder = Descriptor(owning: number)
      visit(folder.number, level, path)
      return true
    }
    guard visitIfThere(path + "/..", .parent), visitIfThere(path, .own),
      visitIfThere(path + "/content", .content)
    else { return }
    for i in 0..<256 {
      let name = (i < 16 ? "0" : "") + String(i, radix: 16)
      _ = visitIfThere(path + "/content/" + name, .folder)
    }
  }

  /// Leaves what the disk may have.
  func lose(_ random: inout Random) {
    let taste = 1 + random.next(4)
    guard let own = path.withCString({ Files.status($0, at: AT_FDCWD) }) else { return }
    eachFolder { number, level, path in
      guard let status = Files.status(of: number) else { return }
      let folder = inode(status)
      Files.list(Files.path("."), at: number) { name, number in
        guard let found = Files.status(name, at: number),
          level != .parent || inode(found) == inode(own)
        else { return true }
        let isNamed = named.contains { $0.folder == folder && $0.file == inode(found) }
        if !isNamed && random.next(taste) == 0 {
          remove(path + "/" + String(cString: name), level)
        } else if level == .folder, !written.contains(inode(found)), random.next(taste) == 0,
          let opened = Files.openBeneath(name, at: number, O_RDWR)
        {
          let file = Descriptor(owning: opened)
          ftruncate(file.number, off_t(random.next(100)))
        }
        return true
      }
    }
    syncAll()
  }

  /// A name goes, with all that it leads to.
  private func remove(_ path: String, _ level: Level) {
    if level == .parent { return Scratch.empty(self.path) }
    // File systems bring the names of a folder to the disk in the order in which they were made:
    // without the first ones the store has not begun.
    if level == .own, access(path + "/.", F_OK) != 0 { return Scratch.empty(self.path) }
    if unlink(path) == 0 { return }
    if strcmp(path, self.path + "/content") == 0,
      let directory = try? Directory.open(path: self.path, creating: false)
    {
      return ContentFiles.removeAll(in: directory)
    }
    _ = path.withCString { path in
      Files.list(path, at: AT_FDCWD) { name, folder in
        _ = Files.unlink(name, at: folder)
        return true
      }
    }
    rmdir(path)
  }
}

final class Disk {
  private(set) var log: DiskFile
  private(set) var checkpoint: DiskFile
  /// Nil: names are on the disk at once.
  let names: DiskNames?
  /// The power goes before so many more syncs; 0: it does not go. What the process does from then
  /// on, until the machine notices, never comes to the disk.
  var syncsUntilLoss = 0
  private var photo: (log: DiskFile, checkpoint: DiskFile)?

  init(_ path: String, losesNames: Bool = false) {
    log = DiskFile(path + "/hutch-log", sector: 512)
    // A checkpoint may be torn anywhere.
    checkpoint = DiskFile(path + "/hutch-checkpoint", sector: 64)
    names = losesNames ? DiskNames(path) : nil
  }

  /// True if the power has gone within an operation.
  var isDown: Bool { photo != nil }

  private func countDown() {
    guard syncsUntilLoss > 0 else { return }
    syncsUntilLoss -= 1
    guard syncsUntilLoss == 0 else { return }
    log.look()
    checkpoint.look()
    photo = (log.copy(), checkpoint.copy())
  }

  fileprivate func sync(_ descriptor: Int32) {
    countDown()
    for file in [log, checkpoint] where file.isOpen(as: descriptor) { file.sync() }
    names?.sync(descriptor)
  }

  func lose(_ random: inout Random) {
    syncsUntilLoss = 0
    if let photo {
      (log, checkpoint) = photo
      self.photo = nil
    } else {
      log.look()
      checkpoint.look()
    }
    log.lose(&random)
    checkpoint.lose(&random)
    names?.lose(&random)
  }
}

/// The disk of the machine that runs.
nonisolated(unsafe) var disk: Disk?

/// How many syncs there were, and how many more until the disk refuses one; 0: it refuses none.
nonisolated(unsafe) var syncs = 0
nonisolated(unsafe) var syncsUntilRefusal = 0
/// What another thread or process does once while the next sync of a file's data is under way.
nonisolated(unsafe) var duringSync: (() -> Void)?

private func refuses() -> Bool {
  syncs += 1
  if syncsUntilRefusal == 0 { return false }
  syncsUntilRefusal -= 1
  if syncsUntilRefusal > 0 { return false }
  hutch_set_errno(EIO)
  return true
}

/// How many more syncs of the mapped index until the disk refuses one; 0: it refuses none.
nonisolated(unsafe) var mapsUntilRefusal = 0
/// What comes of a sync of the index's head: the flag of a clean end that is on the disk then.
nonisolated(unsafe) var atHeadSync: ((UInt64) -> Void)?
/// What another thread or process does while a file gets another name.
nonisolated(unsafe) var duringRename: (() -> Void)?

// They stand before libc's.

@_cdecl("msync")
func syncedMapping(_ base: UnsafeMutableRawPointer, _ count: Int, _ flags: Int32) -> Int32 {
  if mapsUntilRefusal > 0 {
    mapsUntilRefusal -= 1
    if mapsUntilRefusal == 0 {
      hutch_set_errno(EIO)
      return -1
    }
  }
  if count == IndexAt.seats { atHeadSync?(SharedWords(base).load(IndexAt.clean)) }
  return 0
}

@_cdecl("renameat")
func renamed(
  _ folder: Int32, _ from: UnsafePointer<CChar>, _ other: Int32, _ to: UnsafePointer<CChar>
) -> Int32 {
  duringRename?()
  return Int32(log_rename(folder, from, other, to))
}

@_cdecl("fdatasync")
func syncedOnDisk(_ descriptor: Int32) -> Int32 {
  if refuses() { return -1 }
  disk?.sync(descriptor)
  if let body = duringSync {
    duringSync = nil
    body()
  }
  return 0
}

@_cdecl("fsync")
func syncedWithNames(_ descriptor: Int32) -> Int32 {
  if refuses() { return -1 }
  disk?.sync(descriptor)
  return 0
}

@_cdecl("syncfs")
func syncedAll(_ descriptor: Int32) -> Int32 {
  if refuses() { return -1 }
  guard let disk else { return 0 }
  disk.log.sync()
  disk.checkpoint.sync()
  disk.names?.syncAll()
  return 0
}
