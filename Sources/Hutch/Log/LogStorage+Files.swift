internal import CHutch
import CSystem
import Synchronization

/// Values in content files: large ones, and those that come in pieces or as files. The files are
/// Content's, as in the SQLite store; an entry of the log names one in place of a value.
///
/// A file's steps, and what a kill after each of them leaves
///
///     its number is drawn, `loose` goes up  nothing
///     it is written, and gets its own name  a file without an entry, which `loose` counts
///     the entry that names it is published  the entry with its file
///     `loose` goes down                     likewise
///     ...
///     `loose` goes up, then the entry goes  a file without an entry, which `loose` counts
///     the file is renamed into trash/       a removed file, which any process deletes
///     `loose` goes down                     likewise
///
/// So an entry is never without its file, and a file without an entry that is not in trash/ is
/// counted. A process that opens the directory alone and finds `loose` above 0 sweeps for what
/// others have left; so does maintenance once an hour. A sweep spares the files of this process
/// that are on their way, and where it is not alone all that have changed within the hour
/// (Content.isOnItsWay). A touch and the cleaner give the file to the next entry of its key.
///
/// A reader that has opened a file goes on with it when the entry has gone. One that finds none at
/// the name asks whether the entry is still there: it goes first.
extension LogStorage: FileStorage {
  var files: (any FileStorage)? { self }

  /// The largest value in the log, unless a caller has chosen.
  private static let defaultThreshold = 1 << 20

  /// A value that has no room as a file, whatever is evicted, goes into the log if it fits there.
  func keepsInFile(_ size: Int) -> Bool {
    guard let store = uncountedStore else { return false }
    return store._withUnsafeGuaranteedRef {
      size > min(threshold, $0.segmentSize / 4) && $0.hasRoom(forFile: size)
    }
  }

  var threshold: Int {
    options.chosen.contains(.inlineThreshold)
      ? options.inlineThreshold : LogStorage.defaultThreshold
  }

  func takes(key: Int, size: Int, extended: Int, tag: Int) -> Bool {
    // Out of service, a put is refused for that.
    guard let store else { return true }
    guard size <= Record.largestSize else { return false }
    var record = Record()
    record.size = size
    record.extendedSize = extended
    let file =
      keepsInFile(size) ? LogFile(name: ContentName(number: 0), size: size, checksum: 0) : nil
    return store.isWithinLimits(key, record, file)
  }

  // MARK: making

  func prepare(_ entry: UnownedBlock, _ form: inout ValueForm?) {
    _ = makeFile(of: entry, &form, in: self)
    if let form, form.file != nil, !keepsFree() {
      form.refuse(
        for: Failure(.noSpace, "the file system has less free than is to stay free"))
      form.file = nil
    }
  }

  /// Whether the file system has as much free as is to stay free, if need be by evictions. The file
  /// that is to be stored has been written.
  private func keepsFree() -> Bool {
    guard let store = live else { return true }
    let missing = store.missingFree()
    if missing == 0 { return true }
    makeRoom(Int(clamping: missing))
    return store.missingFree() == 0
  }

  func filePlace() throws(Failure) -> FilePlace {
    let store = try serving()
    // Else a loss of power might leave the file, and an index that counts but not the file.
    if store.words.load(IndexAt.clean) != 0 { try store.locked { () throws(Failure) in } }
    return FilePlace(directory: store.directory, inFlight: store.inFlight)
  }

  var syncing: ContentFiles.Syncing { durability == .process ? .nothing : .name }

  func makeRoom(_ bytes: Int) {
    guard let store = live else { return }
    let wanted = UInt64(bytes)
    let trash = withContent { () -> UInt64 in
      moveDead(of: store, most: Int.max)
      let trash = UInt64(max(0, content.removedBytes))
      content.emptyAll(in: store.directory)
      return trash
    }
    if trash >= wanted { return }
    let target = store.taken(without: wanted - trash)
    let now = clock.latestTime
    var hasMore = true
    while hasMore {
      hasMore =
        (try? store.locked { () throws(Failure) in
          store.makeRoom(at: now) { store.taken > target }
        }) ?? false
      doOwedWork(waits: true)
    }
    withContent { content.emptyAll(in: store.directory) }
    // What waits for readers is not free yet. Most reads end within microseconds.
    for _ in 0..<50 where store.hasWaitingPlaces {
      try? giveBackWaiting(of: store)
      usleep(100)
    }
  }

  // MARK: finding

  func path(
    of key: Bytes, _ hash: UInt64, at moment: Moment, _ body: (Bytes?) throws(Failure) -> Void
  ) throws(Failure) -> Bool {
    guard let store = live, !isBarred(key, hash),
      let name = store.look(key, own(hash, key, in: store), at: moment, { $0.fileOfValue?.name })
    else { return false }
    if let name {
      try ContentFiles.withPath(of: name, in: store.directory, body)
    } else {
      try body(nil)
    }
    return true
  }

  func open(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Int32? {
    guard let store = live, !isBarred(key, hash) else { return nil }
    return try store.openFile(key, own(hash, key, in: store), at: moment)
  }

  // MARK: holding

  func hold() { withContent { content.hold() } }

  func release() {
    if belongsToParent { return }
    let directory = service.lastPlace
    withContent {
      let gone = content.release(in: directory)
      store?.noteLoose(-gone)
    }
  }

  // MARK: removed files

  /// Runs `body` with `contentLock` held, and publishes what the removed files occupy.
  func withContent<R>(_ body: () -> R) -> R {
    contentLock.lock()
    defer { contentLock.unlock() }
    let result = body()
    removedBytes.store(content.removedBytes + content.heldBytes, ordering: .relaxed)
    return result
  }

  /// How many files that have lost their entries one call moves to the trash: a clear leaves as
  /// many as there are, and maintenance goes on with them.
  private static let mostInCall = 256

  /// Moves files that have lost their entries to the trash, and brings the trash down to what the
  /// limit leaves it. The caller holds no lock.
  func moveDead(of store: LogStore) {
    withContent {
      moveDead(of: store, most: LogStorage.mostInCall)
      let room = store.roomForTrash
      if content.removedBytes > room { content.emptyAll(to: room, in: store.directory) }
    }
  }

  /// With `contentLock` held. True: all that had lost their entries by then have been moved.
  @discardableResult
  private func moveDead(of store: LogStore, most: Int) -> Bool {
    // After a loss of power no entry that was replaced may want its file again. A failure is
    // told to the writes.
    if store.isDurable && !store.dead.isEmpty { try? store.makeDurable() }
    var left = most
    while left > 0, let file = store.dead.next() {
      left -= 1
      defer { store.dead.forgetMoved() }
      if content.remove(file, in: store.directory) { store.noteLoose(-1) }
    }
    return left > 0
  }

  private static let filesInSlice = 64

  /// A slice of the work on files. True if there is more.
  func maintainFiles(_ store: LogStore) -> Bool {
    var hasMore = withContent { () -> Bool in
      moveDead(of: store, most: LogStorage.mostInCall)
      let hasMore = content.empty(LogStorage.filesInSlice, in: store.directory)
      return content.emptyOlder(LogStorage.filesInSlice, in: store.directory) || hasMore
        || !store.dead.isEmpty
    }
    hasMore = sweepFiles(store) || hasMore
    return hasMore
  }

  /// Removed files, for a goal in bytes.
  func reclaim(to goal: TrimGoal, at moment: Moment) throws(Failure) -> Reclaimed {
    let store = try serving()
    return withContent {
      if content.removedBytes == 0 { return .nothing }
      if stats.cost <= goal.amount { return .enough }
      _ = content.empty(LogStorage.filesInSlice, in: store.directory)
      return .some
    }
  }

  /// Looks for what processes may have left that have gone. With `contentLock` held.
  func lookForLost(_ store: LogStore, at now: Int64) {
    if store.marks.hasOthers || store.loose > 0 { _ = content.lookAfterOthers(false, at: now) }
  }

  /// The directory has been opened.
  func beginFiles(_ store: LogStore, isSole: Bool) {
    withContent {
      content.move(to: store.inFlight)
      // Of no process that lives.
      looseOfOthers = isSole ? store.loose : 0
      if looseOfOthers != 0 { content.beginSweep() }
    }
  }

  /// No call is under way or comes later. What is counted as loose then is left to a sweep.
  func endFiles(_ store: LogStore) {
    withContent {
      store.noteLoose(-content.endHolds(in: store.directory))
      moveDead(of: store, most: Int.max)
      _ = content.end(in: store.directory)
      _ = content.empty(4096, in: store.directory)
    }
  }

  // MARK: orphans

  /// A whole sweep, from its beginning. Returns how many files it has removed.
  func sweepAllFiles(_ store: LogStore) -> UInt64 {
    var isWhole = false
    while true {
      if sweepFiles(store) { continue }
      if isWhole { return withContent { content.orphans.removed } }
      // The sweep that was under way has come to its end.
      withContent { content.beginSweep() }
      isWhole = true
    }
  }

  /// A slice of the sweep, if one is under way. True if there is more.
  private func sweepFiles(_ store: LogStore) -> Bool {
    withContent {
      // The files of entries that have no slots yet are no orphans.
      guard content.maySweep, !store.isRebuilding else { return false }
      do throws(Failure) {
        if let after = content.orphans.wantsRowsAfter {
          try strikeFiles(store, after: LogPlace(next: UInt64(clamping: after)))
        } else {
          // Others neither open the directory nor close it during the look.
          let isSettled = !store.member.isCommon && store.member.tryOpening()
          defer { if isSettled { store.member.endOpening() } }
          let isAlone = isSettled && store.member.isSole()
          try content.orphans.step(in: store.directory) { name in
            content.isOnItsWay(name, in: store.directory, isAlone: isAlone)
          }
        }
      } catch {
        counters.failures.count()
        return false
      }
      guard content.orphans.isDone else { return true }
      if looseOfOthers != 0 && !content.hasSpared {
        // All that the dead have left has been found.
        store.noteLoose(0 &- looseOfOthers)
        looseOfOthers = 0
      }
      return false
    }
  }

  private static let pagesInSlice = 16

  /// Tells the sweep of the files that entries name. With `contentLock` held.
  private func strikeFiles(_ store: LogStore, after: LogPlace) throws(Failure) {
    var place = after
    // What a process that died has published shows once its operation has been completed.
    if place.next == 0 { try store.locked { () throws(Failure) in } }
    var found = WalkPage()
    for _ in 0..<LogStorage.pagesInSlice {
      guard try store.step(&place, into: &found) else {
        // A file that was listed, and whose entry has gone before the walk came to it, is no
        // orphan: it goes to the trash first. The lock settles what has lost its entry so far.
        try store.locked { () throws(Failure) in }
        if moveDead(of: store, most: LogStorage.mostInCall) {
          content.orphans.noteRows(upTo: nil)
        }
        return
      }
      // The walk has found the index damaged. It goes on from here later.
      if store.isRebuilding { return }
      for entry in found.entries.elements where entry.file != 0 {
        content.orphans.strike(ContentName(number: entry.file))
      }
    }
    content.orphans.noteRows(upTo: Int64(clamping: place.next))
  }

  // MARK: a fork

  /// In the child: what is on its way, and what is to be deleted, is the parent's.
  func leaveFilesToParent() {
    content.forget()
    store?.dead.forget()
    looseOfOthers = 0
  }
}
