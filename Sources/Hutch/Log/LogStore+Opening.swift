import CSystem
import Synchronization

// Opening a directory, making a new store, and the end. The opening byte of the lock file is held.

extension LogStore {
  static let indexName: StaticString = "hutch-index"
  static let logName: StaticString = "hutch-log"
  static let newIndex = LeftOvers.newIndex
  static let newLog = LeftOvers.newLog

  /// Opens the store in a directory, and makes it if there is none. `limits` nil: those of the
  /// directory, or the default ones in a new directory; else the fields `given` of `limits` count.
  /// `keepsOthersOut`: only this process and its forked children may have the directory open.
  /// `earlier`: the member that this process was before, see LogMember.
  /// `makesStub`: the directory's stub is damaged, and is made anew if nothing else has it open.
  /// `prepare` is called with the store while no other process opens or closes the directory;
  /// `isSole`: nothing else has the directory open, not even an earlier store of this process.
  static func open(
    _ directory: Directory, limits: TierLimits?, given: LimitFields = .all,
    keepsOthersOut: Bool = false, after earlier: LogMember? = nil, makesStub: Bool = false,
    counters: StorageCounters? = nil,
    prepare: (LogStore, _ isSole: Bool) throws(Failure) -> Void = { _, _ throws(Failure) in }
  ) throws(Failure) -> LogStore {
    let member = try LogMember.opening(directory)
    defer { member.endOpening() }
    member.earlier = earlier
    let isSole = member.isSole()
    var checkpoint: LogCheckpoint?
    // Another member has checked the directory.
    let isNew = isSole ? try !isUsable(directory) : false
    let hasLog = isNew ? try logStatus(directory) != nil : false
    if isNew || isSole && makesStub {
      try member.beginMaking()
      defer { member.endMaking() }
      try LogStub.make(in: directory)
      if isNew {
        checkpoint = try lastCheckpoint(directory)
        try create(in: directory, limits ?? .defaultDisk, from: checkpoint)
      }
    }
    let counting = if let counters { counters } else { try StorageCounters() }
    let store = try attach(directory, member, keepsOthersOut: keepsOthersOut, counting)
    store.hasNewIndex = hasLog
    if isSole { store.reachAlone() } else { try store.reachWithOthers() }
    LogCheckpoint.makeFile(in: directory)
    if let checkpoint { try store.recover(from: checkpoint) }
    // If the disk refuses it again, the directory serves without its promise.
    if isSole && store.hasFailedToSync { try? store.writeAgain() }
    try prepare(store, isSole)
    if let limits {
      let wanted = store.limits.changed(given, to: limits)
      store.hasNewLimits = !isNew && wanted != store.limits
      if wanted != store.limits { try store.setLimits(wanted, at: store.latestTime) }
    }
    return store
  }

  /// The time of work that no call has asked for with its own.
  var latestTime: Int64 { clock?.latestTime ?? Clock.read(CLOCK_REALTIME) }

  private static func attach(
    _ directory: Directory, _ member: LogMember, keepsOthersOut: Bool, _ counters: StorageCounters
  ) throws(Failure) -> LogStore {
    let indexFile = try openFile(indexName, directory)
    let logFile = try openFile(logName, directory)
    let index = try Mapping(
      indexFile.number, reach: IndexAt.slots + 2 * IndexAt.mostPages * LogPages.pageSize,
      least: IndexAt.slots + 1 << 24)
    index.adviseRandom()
    // As far as the table of segments goes: a process that opens many directories has addresses
    // for all of them.
    let shift = Int(SharedWords(index.base).load(IndexAt.format) >> 32) + 4
    let log = try Mapping(
      logFile.number, reach: min(1 << 40, IndexAt.seatCount << shift), least: 1 << 28)
    log.adviseRandom()
    try member.join(keepsOthersOut: keepsOthersOut)
    return LogStore(directory, member, indexFile, logFile, index, log, counters)
  }

  /// The checkpoint from which a new index can be made.
  private static func lastCheckpoint(_ directory: Directory) throws(Failure) -> LogCheckpoint? {
    guard let log = try logStatus(directory), log.isRegular else { return nil }
    let newest = try LogCheckpoint.read(in: directory, log: log)
    guard let newest,
      LogFormat.hasAddresses(newest[LogCheckpoint.At.next], newest[LogCheckpoint.At.format] >> 32)
    else { return nil }
    return newest
  }

  /// The state of the log. Nil: there is none.
  private static func logStatus(_ directory: Directory) throws(Failure) -> FileStatus? {
    let status = Files.status(Files.path(logName), at: directory.descriptor)
    if status == nil && hutch_errno() != ENOENT { throw .system("cannot look at the log") }
    return status
  }

  private static func openFile(
    _ name: StaticString, _ directory: Directory
  ) throws(Failure) -> Descriptor {
    try Files.openRegular(
      Files.path(name), at: directory.descriptor, 0, "cannot open a file of the log store",
      foreign: "a file of the directory is not a cache's")
  }

  /// True if the directory's index counts. False: there is none, or it may be wrong, and a new one
  /// takes its place. Fails if the file is not one that this library may replace.
  private static func isUsable(_ directory: Directory) throws(Failure) -> Bool {
    guard let found = Files.status(Files.path(indexName), at: directory.descriptor) else {
      guard hutch_errno() == ENOENT else {
        throw .system("cannot look at the index", otherwise: .badDirectory)
      }
      // A kill in `create` leaves an empty file at most, and a loss of power a log without index.
      let isEmpty = try logStatus(directory)?.size ?? 0 == 0
      guard try isEmpty ? true : LogStub.isIn(directory) else {
        throw Failure(.badDirectory, "hutch-log in the directory is not a cache's")
      }
      return false
    }
    guard found.isRegular else {
      throw Failure(.badDirectory, "hutch-index in the directory is not a cache's")
    }
    let file = try openFile(indexName, directory)
    var head = InlineArray<128, UInt64>(repeating: 0)
    guard let size = withUnsafeMutableBytes(of: &head, { Files.read(file.number, into: $0) }) else {
      throw .system("cannot read the index")
    }
    if size == 0 || isZero(head), try LogStub.isIn(directory) {
      // A loss of power has taken what was written to the file.
      return false
    }
    guard size == IndexAt.incarnations, head[0] == LogFormat.magic else {
      throw Failure(.badDirectory, "hutch-index in the directory is not a cache's")
    }
    // In the midst of an operation the words need not fit each other.
    RedoRecord.complete(&head)
    let format = head[IndexAt.format / 8]
    guard format & 0xFFFF_FFFF <= LogFormat.version else {
      throw Failure(.newerFormat, "the directory was written by a newer version")
    }
    guard format & 0xFFFF_FFFF == LogFormat.version else {
      throw Failure(
        .badDirectory, "the directory's log store is of an earlier version, which is not read")
    }
    let shift = Int(truncatingIfNeeded: format >> 32) + 4
    guard shift >= LogFormat.smallestSegment, shift <= LogFormat.largestSegment,
      isPlausible(head), let log = try logStatus(directory)
    else { return false }
    // Both files only grow. One that another program has truncated takes no entry where it ends.
    let pages = LogPages.reserved(head[IndexAt.pages / 8])
    guard found.size >= IndexAt.slots + Int(pages) * LogPages.pageSize,
      log.size >= Int(head[IndexAt.places / 8]) << shift
    else { return false }
    if head[IndexAt.recovering / 8] != 0 { return false }
    if head[IndexAt.clean / 8] == 1 { return true }
    // The directory was not closed. The index counts in the boot and in the files in which it was
    // written last: the kernel has its pages.
    let boot = try Boot.known()
    return boot.isKnown && boot.id.0 == head[IndexAt.boot / 8]
      && boot.id.1 == head[IndexAt.boot / 8 + 1]
      && head[IndexAt.device / 8] == found.identity.device
      && head[IndexAt.indexInode / 8] == found.identity.inode
      && head[IndexAt.logInode / 8] == log.identity.inode
  }

  private static func isZero(_ head: InlineArray<128, UInt64>) -> Bool {
    for i in 0..<128 where head[i] != 0 { return false }
    return true
  }

  /// True if the state is possible. No later step checks what is checked here.
  private static func isPlausible(_ head: InlineArray<128, UInt64>) -> Bool {
    let shift = head[IndexAt.format / 8] >> 32
    let next = head[IndexAt.next / 8]
    guard next >= 1, LogFormat.hasAddresses(next, shift) else { return false }
    func isPlausible(_ stream: LogStream) -> Bool {
      let (position, active) = (head[stream.head / 8], head[stream.active / 8])
      let isActive = active < next && position >= active << shift
        && position <= (active + 1) << shift
      return head[stream.oldest / 8] < next && head[stream.cleaning / 8] <= next << shift
        && (position == 0 || active > 0 && isActive)
    }
    let segments = head[IndexAt.segments / 8]
    let kept = head[IndexAt.keptSegments / 8]
    let spare = head[IndexAt.spare / 8]
    let last = head[IndexAt.last / 8]
    return last >= 1 << shift && last <= next << shift && isPlausible(.new) && isPlausible(.kept)
      && head[IndexAt.floor / 8] <= next << shift
      && head[IndexAt.rebuildNew / 8] < next && head[IndexAt.rebuildKept / 8] < next
      && head[IndexAt.rebuildEnd / 8] <= next << shift
      && head[IndexAt.moved / 8] <= LogFormat.addressMask
      && segments <= UInt64(IndexAt.seatCount)
      && kept <= segments && (spare == 0 || kept < segments && spare <= head[IndexAt.places / 8])
      && head[IndexAt.places / 8] <= UInt64(IndexAt.seatCount)
      && head[IndexAt.pages / 8] <= UInt64(2 * IndexAt.mostPages)
      && head[IndexAt.sparePage / 8] <= head[IndexAt.pages / 8]
      && head[IndexAt.top / 8] <= UInt64(IndexAt.highestTop)
  }

  /// Makes an empty store. The log comes first: an index that is there already does not fit a new
  /// one, and does not count. `checkpoint`: the log stays, and `recover` follows.
  private static func create(
    in directory: Directory, _ limits: TierLimits, from checkpoint: LogCheckpoint?
  ) throws(Failure) {
    let logFile =
      checkpoint == nil ? try makeFile(newLog, directory) : try openFile(logName, directory)
    let indexFile = try makeFile(newIndex, directory)
    guard let log = Files.status(of: logFile.number),
      let index = Files.status(of: indexFile.number)
    else { throw .system("cannot look at a new file") }
    let number = indexFile.number
    try Mapping.reserve(number, 0, IndexAt.seats + LogPages.pageSize)
    try Mapping.reserve(number, IndexAt.pageTable, LogPages.pageSize)
    try Mapping.reserve(number, IndexAt.shared, LogShared.byteCount)
    try Mapping.reserve(number, IndexAt.slots, LogPages.step * LogPages.pageSize)
    let shift = LogFormat.segmentShift(
      for: limits.cost, of: Files.space(of: logFile.number)?.all ?? 0)
    var head = try newHead(limits, shift, index, log, from: checkpoint)
    // No entry names the content files of an index before this one.
    head[IndexAt.loose / 8] = ContentFiles.hasFolder(in: directory) ? 1 : 0
    if checkpoint == nil {
      // What it knows is of the log that goes.
      _ = Files.unlink(Files.path(LogCheckpoint.name), at: directory.descriptor)
    }
    // An earlier index, which may be lost, has drawn versions. The time is above them all.
    var versions = UInt64(clamping: Clock.read(CLOCK_REALTIME))
    var first = PageWord(page: 0, level: 0).bits
    guard withUnsafeBytes(of: head, { Files.write($0, to: indexFile.number) }),
      withUnsafeBytes(
        of: &first, { Files.write($0, to: indexFile.number, at: IndexAt.pageTable) }),
      withUnsafeBytes(
        of: head,
        {
          let secrets = Bytes(rebasing: $0[IndexAt.secrets..<IndexAt.secrets + 32])
          return Files.write(secrets, to: indexFile.number, at: IndexAt.shared)
        }),
      withUnsafeBytes(
        of: &versions, { Files.write($0, to: indexFile.number, at: IndexAt.versions) }),
      checkpoint != nil
        || Files.rename(Files.path(newLog), to: Files.path(logName), at: directory.descriptor),
      Files.rename(Files.path(newIndex), to: Files.path(indexName), at: directory.descriptor)
    else { throw .system("cannot make a file of the log store") }
  }

  /// The head of a new index. `shift`: a segment has 2^shift bytes, unless the checkpoint says it.
  private static func newHead(
    _ limits: TierLimits, _ shift: Int, _ index: FileStatus, _ log: FileStatus,
    from checkpoint: LogCheckpoint?
  ) throws(Failure) -> InlineArray<128, UInt64> {
    typealias At = LogCheckpoint.At
    var head = InlineArray<128, UInt64>(repeating: 0)
    func set(_ offset: Int, _ value: UInt64) { head[offset / 8] = value }
    set(IndexAt.magic, LogFormat.magic)
    set(IndexAt.format, checkpoint?[At.format] ?? LogFormat.version | UInt64(shift - 4) << 32)
    set(IndexAt.recovering, checkpoint == nil ? 0 : 1)
    for i in 0..<4 {
      let secret = if let checkpoint { checkpoint[At.secrets + i] } else { try Entropy.number() }
      set(IndexAt.secrets + i * 8, secret)
    }
    set(IndexAt.device, index.identity.device)
    set(IndexAt.indexInode, index.identity.inode)
    set(IndexAt.logInode, log.identity.inode)
    let boot = try Boot.known()
    set(IndexAt.boot, boot.id.0)
    set(IndexAt.boot + 8, boot.id.1)
    set(IndexAt.bootOffset, UInt64(bitPattern: boot.offset))
    set(IndexAt.next, 1)
    // So the key of each beginning of a segment of new entries is above 0.
    set(IndexAt.last, 1 << (head[IndexAt.format / 8] >> 32))
    set(IndexAt.pages, 1)
    set(IndexAt.expiry, UInt64(Int64.max))
    set(IndexAt.expiryBefore, UInt64(Int64.max))
    let words = limits.words
    for i in words.indices {
      set(IndexAt.limits + i * 8, checkpoint?[At.limits + i] ?? words[i])
    }
    return head
  }

  private static func makeFile(
    _ name: StaticString, _ directory: Directory
  ) throws(Failure) -> Descriptor {
    guard
      let number = Files.openBeneath(
        Files.path(name), at: directory.descriptor, O_RDWR | O_CREAT | O_TRUNC | O_NONBLOCK)
    else { throw .opening("cannot make a file of the log store") }
    return Descriptor(owning: number)
  }

  /// Removes the flag of a clean end: entries that are written from here on count in this boot
  /// only. If this process dies before the flag's removal is on the disk, or the disk refuses it,
  /// the next write tries again.
  @inline(never)
  func takeMarkBack() throws(Failure) {
    if words.load(IndexAt.clean) != 0 {
      guard let index = Files.status(of: indexFile.number),
        let log = Files.status(of: logFile.number)
      else { throw .system("cannot look at the index") }
      let boot = try Boot.known()
      words.store(IndexAt.boot, boot.id.0)
      words.store(IndexAt.boot + 8, boot.id.1)
      words.store(IndexAt.device, index.identity.device)
      words.store(IndexAt.indexInode, index.identity.inode)
      words.store(IndexAt.logInode, log.identity.inode)
      words.store(IndexAt.clean, 2)
      try syncHead()
      words.store(IndexAt.clean, 0)
    }
    hasBegun = true
  }

  /// The boot in which the directory is open, with the clock's offset that its processes have in
  /// common. The directory is being opened.
  func adoptBoot(isSole: Bool) -> Boot {
    var boot = Boot.current()
    let known = Boot(id: (words.load(IndexAt.boot), words.load(IndexAt.boot + 8)),
      offset: Int64(bitPattern: words.load(IndexAt.bootOffset)))
    if boot.isSame(as: known) || !isSole {
      // The index has the boot's number from the first change on, the offset before.
      boot.offset = known.offset
    } else {
      words.store(IndexAt.bootOffset, UInt64(bitPattern: boot.offset))
    }
    return boot
  }

  /// Closes the directory. No call is under way or comes later. The last process to close it writes
  /// everything to the disk, and marks the index as clean. Returns the failure if that is not
  /// possible; the directory then counts in this boot only.
  func close() -> Failure? {
    do throws(Failure) {
      try member.beginOpening()
      defer {
        member.leave()
        member.endOpening()
      }
      guard member.isAlone(), words.load(IndexAt.clean) != 1 else { return nil }
      // Taking the lock completes the operation of a process that died. The child of a fork becomes
      // a member without the opening byte: perhaps since that look, perhaps later.
      let isAlone = try locked { () throws(Failure) in
        let isAlone = member.isAlone()
        if isAlone { words.store(IndexAt.clean, 2) }
        return isAlone
      }
      guard isAlone else { return nil }
      let isWritten = isAheadOfCheckpoint ? try writeCheckpointIfThere() : false
      if !isWritten { try syncData() }
      try syncIndex()
      // Else such a child has begun to change the index meanwhile.
      try locked { () throws(Failure) in
        if words.load(IndexAt.clean) == 2 { words.store(IndexAt.clean, 1) }
      }
      try syncHead()
      return nil
    } catch {
      return error
    }
  }

  // MARK: limits

  /// Sets the limits of the directory, for all processes, and evicts until they hold, in slices,
  /// between which `pause` is called with no lock held. Under `sync` it then waits for a
  /// checkpoint, which has the limits, and how far the cleaner has come.
  func setLimits(
    _ limits: TierLimits, at now: Int64, pause: () -> Void = {}
  ) throws(Failure) {
    try locked { () throws(Failure) in
      var redo = RedoRecord(words)
      let new = limits.words
      for i in new.indices { redo.set(IndexAt.limits + i * 8, new[i]) }
      // Other ages end entries at other times.
      if limits.ages != ages { redo.set(IndexAt.expiry, 0) }
      // The next checkpoint has something new to say.
      redo.set(IndexAt.durableEnd, 0)
      redo.commit()
    }
    var hasMore = true
    while hasMore {
      hasMore = try locked { () throws(Failure) in
        makeRoom(at: now) { isOverLimits }
      }
      pause()
    }
    if durability == .sync { try writeNewCheckpoint() }
  }

  private var isOverLimits: Bool {
    let limit = words.load(IndexAt.limits + 8)
    return limit != 0 && count > limit || segmentCount > max(2, allowedSegments) || isOverCost
  }
}
