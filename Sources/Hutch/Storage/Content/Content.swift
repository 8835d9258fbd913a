import CSystem

/// The content files of a store that no entry names: those whose entries are not committed yet,
/// those that have lost their entries, and orphans. Used under one lock of the store, but for
/// `inFlight`.
///
/// A file without an entry is in `inFlight`, in the trash, or kept there by a hold; or else it is
/// an orphan, which the sweep finds. While files are held, no file moves and no sweep runs.
final class Content {
  /// Files whose entries are not committed yet. It has a lock of its own.
  private(set) var inFlight = FilesInFlight()
  private var trash = Trash()
  var orphans = OrphanSweep()
  /// When the last sweep for the files of other processes began; CLOCK_MONOTONIC.
  private var swept = Clock.read(CLOCK_MONOTONIC)

  // MARK: removed files

  /// The bytes of removed files that can be unlinked, and of those that a hold keeps.
  var removedBytes: Int64 { trash.bytes }
  var heldBytes: Int64 { trash.heldBytes }

  func remove(_ files: borrowing GrowingArray<DeadFile>, in directory: Directory) {
    for file in files.elements { _ = trash.add(file, in: directory) }
  }

  /// False: the file has its name still. A hold keeps it, or only a sweep will find it.
  func remove(_ file: DeadFile, in directory: Directory) -> Bool { trash.add(file, in: directory) }

  /// Unlinks up to `most` removed files. True if there are more.
  func empty(_ most: Int, in directory: Directory) -> Bool { trash.empty(most, in: directory) }

  /// Unlinks removed files until no more than `target` bytes are left.
  func emptyAll(to target: Int64 = 0, in directory: Directory) {
    while trash.bytes > target || target == 0, trash.empty(64, to: target, in: directory) {}
  }

  /// Unlinks trash of earlier openings and of processes that were killed. True if there may be
  /// more.
  func emptyOlder(_ most: Int, in directory: Directory) -> Bool {
    trash.emptyOlder(most, in: directory)
  }

  func hold() { trash.holds += 1 }

  /// Returns how many files that the hold has kept have gone.
  func release(in directory: Directory) -> Int {
    trash.holds -= 1
    return trash.holds == 0 ? trash.moveHeld(in: directory) : 0
  }

  /// Ends all holds. Returns how many files that they have kept have gone.
  func endHolds(in directory: Directory) -> Int { trash.endHolds(in: directory) }

  // MARK: orphans

  /// True if a sweep is under way. A file that is held looks like an orphan.
  var maySweep: Bool { !orphans.isDone && trash.holds == 0 }

  /// An hour in nanoseconds: so old is a content file that no living process has on its way.
  private static let hour: Int64 = 3_600_000_000_000

  /// Looks for what other members may have left. True if a sweep begins.
  func lookAfterOthers(_ haveLost: Bool, at now: Int64) -> Bool {
    trash.lookForOlder()
    guard orphans.isDone && (haveLost || now - swept >= Content.hour) else { return false }
    beginSweep()
    return true
  }

  /// Whether the sweep has spared a file that may be another process's. Such a file may be an
  /// orphan still.
  private(set) var hasSpared = false

  /// Begins a sweep.
  func beginSweep() {
    swept = Clock.read(CLOCK_MONOTONIC)
    hasSpared = false
    orphans.begin()
  }

  /// True if a file without an entry is on its way to one: in this process, or perhaps in another
  /// one.
  func isOnItsWay(_ name: ContentName, in directory: Directory, isAlone: Bool) -> Bool {
    if inFlight.contains(name) { return true }
    if isAlone { return false }
    // A file that is not there has been taken away by its owner since it was listed.
    guard let status = try? ContentFiles.status(name, in: directory) else { return true }
    // The time of the change, and not that of the writing, which a file keeps that was linked or
    // moved here.
    let age = Record.difference(Clock.read(CLOCK_REALTIME), status.lastChange)
    guard age < Content.hour else { return false }
    hasSpared = true
    return true
  }

  // MARK: the end

  /// Ends the holds, and discards the files of writers in pieces that have not ended. True: files
  /// may be left that only a sweep will find.
  func end(in directory: Directory) -> Bool {
    _ = endHolds(in: directory)
    let hasDiscarded = inFlight.discardAll(in: directory)
    return hasDiscarded || trash.hasLostSight
  }

  /// The store begins to use another manifest.
  func forgetTrash() { trash.forget() }

  /// The store begins to use another directory.
  func move(to inFlight: FilesInFlight) {
    self.inFlight.stopCounting()
    self.inFlight = inFlight
    trash.forget()
    orphans = OrphanSweep()
  }

  /// In the child of a fork: the files are the parent's.
  func forget() {
    trash = Trash()
    orphans = OrphanSweep()
    inFlight.forget()
  }
}
