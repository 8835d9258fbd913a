import CSystem

/// Finds content files without a row: files that a killed process wrote and did not commit, or had
/// no time to remove. After a clean end there is no scan. A row is an entry of the store, at its
/// place in an order in which the store can be read, and in which no row moves.
///
/// A file whose row is not committed yet looks the same, so the order matters. First the sweep
/// lists the files, then it drops those in flight from the list, then it reads all rows. A file
/// that was in flight at the listing is still in flight, and dropped, or its row is committed by
/// then and is among those read, since no row moves. A file that remains has no row and cannot get
/// one.
///
/// Visits the folders in groups with a bounded number of files, each in slices.
struct OrphanSweep: ~Copyable {
  private enum Phase {
    case done
    case listing
    case reading
    case removing
  }

  private struct Candidate {
    let name: ContentName
    var hasRow = false
  }

  static let mostCandidates = 65_536
  private static let foldersInSlice = 16
  static let rowsInSlice = 1024
  private static let filesInSlice = 64

  private var phase = Phase.done
  /// The next folder, 0...256.
  private var folder = 0
  private var candidates = GrowingArray<Candidate>()
  private var lastRow: Int64 = 0
  /// The number of files that it has removed since it began.
  private(set) var removed: UInt64 = 0

  init() {}

  var isDone: Bool { phase == .done }

  mutating func begin() {
    phase = .listing
    folder = 0
    lastRow = 0
    removed = 0
    candidates.removeAll()
  }

  /// The next slice reads the rows behind this one, 0 before the first; nil: it reads no rows.
  var wantsRowsAfter: Int64? { phase == .reading ? lastRow : nil }

  /// A slice that reads no rows. It calls `isInFlight` after the listing.
  @inline(never)
  mutating func step(
    in directory: Directory, isInFlight: (ContentName) -> Bool
  ) throws(Failure) {
    switch phase {
    case .listing: try list(directory, isInFlight)
    case .removing: remove(directory)
    case .reading, .done: break
    }
  }

  private mutating func list(
    _ directory: Directory, _ isInFlight: (ContentName) -> Bool
  ) throws(Failure) {
    let end = min(256, folder + OrphanSweep.foldersInSlice)
    var found = GrowingArray<Candidate>()
    while folder < end && candidates.count + found.count < OrphanSweep.mostCandidates {
      var isShort = false
      let isListed = ContentPath.withFolder(UInt8(folder)) { path in
        Files.list(path, at: directory.descriptor) { name, _ in
          guard let own = ContentName(name), Int(own.folder) == folder else { return true }
          isShort = (try? found.append(Candidate(name: own))) == nil
          return !isShort
        }
      }
      if isShort { throw .noMemory }
      // A missing folder, or a name that is no folder, is skipped. Any other error may be passing.
      let code = hutch_errno()
      if !isListed && code != ENOENT && code != ENOTDIR && code != ELOOP {
        throw .system("cannot list a folder of content files", errno: code)
      }
      folder += 1
    }
    for i in 0..<found.count where !isInFlight(found[i].name) {
      try candidates.append(found[i])
    }
    if folder < 256 && candidates.count < OrphanSweep.mostCandidates { return }
    candidates.sort { GrowingArray<Candidate>.order($0, $1) { $0.name.number } }
    lastRow = 0
    phase = candidates.isEmpty ? (folder < 256 ? .listing : .done) : .reading
  }

  /// A row names this file. Only its number counts: a number is never used twice, and a file with
  /// its own name has none under its temporary one.
  @inline(never)
  mutating func strike(_ name: ContentName) {
    let all = candidates.elements
    var low = 0
    var high = all.count
    while low < high {
      let middle = (low + high) / 2
      if all[middle].name.number < name.number { low = middle + 1 } else { high = middle }
    }
    while low < all.count && all[low].name.number == name.number {
      all[low].hasRow = true
      low += 1
    }
  }

  /// The rows up to this one have been read; nil: all rows.
  mutating func noteRows(upTo row: Int64?) {
    if let row { lastRow = row } else { phase = .removing }
  }

  private mutating func remove(_ directory: Directory) {
    var done = 0
    while done < OrphanSweep.filesInSlice {
      guard let candidate = candidates.popLast() else {
        phase = folder < 256 ? .listing : .done
        return
      }
      guard !candidate.hasRow else { continue }
      done += 1
      // Another call may have unlinked the file meanwhile, together with its row, since the
      // listing.
      if ContentFiles.discard(candidate.name, in: directory) { removed += 1 }
    }
  }
}
