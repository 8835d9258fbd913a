import CSystem

/// A content file that no entry names any more.
struct DeadFile {
  let name: ContentName
  /// The space that it occupies.
  let size: Int64
}

/// Content files that have no entry any more and are not yet unlinked. To free the blocks of a
/// large file takes as long as to write a small one; a rename into `trash/` does not. Callers
/// therefore rename, and maintenance unlinks. Used under the lock of `Content`.
struct Trash: ~Copyable {
  private var files = GrowingArray<DeadFile>()
  /// The bytes of the files that this opening has put there.
  private(set) var bytes: Int64 = 0
  /// While it is not 0, a host uses content files by their paths, and none moves.
  var holds = 0
  /// The files removed during the hold. They are not in `bytes`, since they cannot be freed yet.
  private var held = GrowingArray<DeadFile>()
  private(set) var heldBytes: Int64 = 0
  /// A file could not be recorded, or not removed: only a sweep will find it.
  private(set) var hasLostSight = false
  /// Files of an earlier opening may be there that this one has not recorded.
  private var mayHoldOlder = true

  init() {}

  /// False: the file has its name still.
  @inline(never)
  mutating func add(_ file: DeadFile, in directory: Directory) -> Bool {
    guard holds == 0 else {
      if (try? held.append(file)) == nil { hasLostSight = true } else { heldBytes += file.size }
      return false
    }
    guard Trash.move(file.name, in: directory) else {
      // Without a rename the file is unlinked in place.
      if ContentFiles.discard(file.name, in: directory) || hutch_errno() == ENOENT { return true }
      hasLostSight = true
      return false
    }
    if (try? files.append(file)) != nil {
      bytes += file.size
    } else {
      // A file that cannot be recorded is not kept.
      Trash.unlink(file.name, in: directory)
    }
    return true
  }

  /// From the file's folder into `trash/`.
  private static func move(_ name: ContentName, in directory: Directory) -> Bool {
    guard let from = ContentFiles.folder(of: name, in: directory) else { return false }
    let folder = Descriptor(owning: from)
    guard let trash = open(in: directory) else { return false }
    let target = Descriptor(owning: trash)
    return name.withPointer {
      Files.rename($0, at: folder.number, to: $0, at: target.number)
    }
  }

  private static func open(in directory: Directory) -> Int32? {
    Files.openBeneath(ContentPath.trash, at: directory.descriptor, O_PATH | O_DIRECTORY)
  }

  private static func unlink(_ name: ContentName, in directory: Directory) {
    guard let number = open(in: directory) else { return }
    let trash = Descriptor(owning: number)
    _ = name.withPointer { Files.unlink($0, at: trash.number) }
  }

  /// The last hold has ended: the files kept for it are deleted. Returns how many have gone.
  mutating func moveHeld(in directory: Directory) -> Int {
    var moved = 0
    while let file = held.popLast() { moved += add(file, in: directory) ? 1 : 0 }
    heldBytes = 0
    return moved
  }

  /// The hold ends, and the files are deleted at once: the directory is being closed.
  mutating func endHolds(in directory: Directory) -> Int {
    holds = 0
    return moveHeld(in: directory)
  }

  /// Unlinks files until `most` are deleted, or no more than `target` bytes are left. True if there
  /// are more.
  @inline(never)
  mutating func empty(_ most: Int, to target: Int64 = 0, in directory: Directory) -> Bool {
    guard !files.isEmpty else { return false }
    let opened = Trash.open(in: directory)
    // A later call unlinks the files, unless they have gone with the folder.
    if opened == nil && !Files.isMissing { return false }
    let trash = Descriptor(owning: opened ?? -1)
    var done = 0
    while done < most, bytes > target || target == 0, let file = files.popLast() {
      // Another opening may try again to unlink it.
      if trash.number >= 0 { _ = file.name.withPointer { Files.unlink($0, at: trash.number) } }
      bytes -= file.size
      done += 1
    }
    return !files.isEmpty
  }

  /// Unlinks up to `most` files that an earlier opening has left. True if there may be more. It
  /// leaves files without a name of the library, and does not retry one that it cannot unlink.
  mutating func emptyOlder(_ most: Int, in directory: Directory) -> Bool {
    guard mayHoldOlder else { return false }
    // This opening's files are deleted first, so that their sizes stay known.
    guard files.isEmpty else { return false }
    var done = 0
    let isRead = Files.list(ContentPath.trash, at: directory.descriptor) { name, folder in
      if ContentName(name) != nil, Files.unlink(name, at: folder) { done += 1 }
      return done < most
    }
    mayHoldOlder = done == most || !isRead && !Files.isMissing
    return done == most
  }

  /// Other processes may have left files.
  mutating func lookForOlder() { mayHoldOlder = true }

  /// The tier moves to another directory, or reopens the same one.
  mutating func forget() {
    files.removeAll()
    held.removeAll()
    bytes = 0
    heldBytes = 0
    mayHoldOlder = true
  }
}
