import CSystem

/// A content file that no row names any more.
struct DeadFile {
  let name: ContentName
  /// What it takes up.
  let size: Int64
}

/// Content files that have gone and are not yet unlinked. Freeing the blocks of a large file
/// takes as long as writing a small one; a rename into `trash/` does not, so callers do that
/// and maintenance the rest. Used under the tier's writer lock.
struct Trash: ~Copyable {
  private var files = GrowingArray<DeadFile>()
  /// Of the files that this opening has put there.
  private(set) var bytes: Int64 = 0
  /// While it is not 0, a host uses content files by their paths: none moves.
  var holds = 0
  /// Those that have gone meanwhile. Not in `bytes`, for they cannot be freed.
  private var held = GrowingArray<DeadFile>()
  private(set) var heldBytes: Int64 = 0
  /// A file could not be remembered: only a sweep will find it.
  private(set) var hasLostSight = false
  /// Files of an earlier opening may be there, which nothing here knows of.
  private var mayHoldOlder = true

  init() {}

  mutating func add(_ file: DeadFile, in directory: Directory) {
    guard holds == 0 else {
      if (try? held.append(file)) == nil { hasLostSight = true } else { heldBytes += file.size }
      return
    }
    let from = ContentPath.content(file.name)
    let to = ContentPath.trash(file.name)
    let at = directory.descriptor
    func move() -> Bool {
      from.withPointer { from in to.withPointer { Files.rename(from, to: $0, at: at) } }
    }
    var moved = move()
    if !moved && hutch_errno() == ENOENT {
      // The file has gone, or the folder has.
      _ = Files.makeDirectory(Files.path("trash"), at: at)
      moved = move()
    }
    if moved, (try? files.append(file)) != nil {
      bytes += file.size
    } else {
      // What cannot be remembered is not kept.
      _ = (moved ? to : from).withPointer { Files.unlink($0, at: at) }
    }
  }

  /// The last hold has ended: what was kept for it goes.
  mutating func moveHeld(in directory: Directory) {
    while let file = held.popLast() { add(file, in: directory) }
    heldBytes = 0
  }

  /// The hold ends, and the files go at once: the directory is being closed.
  mutating func endHolds(in directory: Directory) {
    holds = 0
    moveHeld(in: directory)
  }

  /// Unlinks files until `most` are gone, or no more than `target` bytes are left. True if
  /// there are more.
  mutating func empty(_ most: Int, to target: Int64 = 0, in directory: Directory) -> Bool {
    var done = 0
    while done < most, bytes > target || target == 0, let file = files.popLast() {
      _ = ContentPath.trash(file.name).withPointer { Files.unlink($0, at: directory.descriptor) }
      bytes -= file.size
      done += 1
    }
    return !files.isEmpty
  }

  /// Unlinks up to `most` files that an earlier opening has left. True if there may be more.
  mutating func emptyOlder(_ most: Int, in directory: Directory) -> Bool {
    guard mayHoldOlder else { return false }
    // Ours are gone first, so that their sizes are not lost sight of.
    guard files.isEmpty else { return true }
    var done = 0
    Files.list(Files.path("trash"), at: directory.descriptor) { name in
      if let path = ContentPath("trash", name) {
        _ = path.withPointer { Files.unlink($0, at: directory.descriptor) }
        done += 1
      }
      return done < most
    }
    mayHoldOlder = done == most
    return mayHoldOlder
  }

  /// Other processes may have left files.
  mutating func lookForOlder() { mayHoldOlder = true }

  /// The tier moves to another directory, or to the same one anew.
  mutating func forget() {
    files.removeAll()
    held.removeAll()
    bytes = 0
    heldBytes = 0
    mayHoldOlder = true
  }
}
