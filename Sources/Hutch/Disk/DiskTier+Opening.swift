import CSystem
import Synchronization

/// Opening, going out of service and coming back, closing.
extension DiskTier {
  /// The tier in a directory that nothing else of this process has open.
  static func open(
    directory: Directory, options: StorageOptions, clock: Clock
  ) throws(Failure) -> DiskTier {
    let tier = try DiskTier.make(directory, options, clock)
    try tier.committer.withTurn { () throws(Failure) in
      do throws(Failure) {
        guard directory.isOpen else {
          throw Failure(.badDirectory, "the directory cannot be opened")
        }
        try tier.attach(directory)
        tier.service.begin()
      } catch {
        // The next opening that is alone makes it anew.
        if tier.members.lock?.isAlone ?? false { tier.shared.remove(from: directory) }
        guard options.isOptional && error.isOfDirectory else { throw error }
        // Another opening may be able to use it.
        tier.members.use(nil)
        tier.service.beginDown(error)
      }
    }
    return tier
  }

  /// Makes a directory's manifest this tier's. The writer lock is held.
  private func attach(_ directory: Directory) throws(Failure) {
    try checkSQLite()
    // Before anything is touched, and again under the lock, when it counts.
    _ = try refuseOthers(directory)
    let isAlone = try members.enter(directory, options.sharing)
    if !shared.isHandedOut { hash = shared.hash }
    attachment.begin()
    do throws(Failure) {
      let manifest = try openManifest(directory)
      if isAlone {
        try openAlone(manifest, directory)
      } else {
        try openAmongOthers(manifest, directory)
      }
      begin(isAlone: isAlone)
      if !isAlone { try changeLimits() }
    } catch {
      committer.manifest = nil
      // The opening's own transaction was the first to meet the damage.
      guard error.isOfDamage, !attachment.isCondemned else { throw error }
      attachment.isCondemned = true
      try attach(directory)
    }
  }

  private func checkSQLite() throws(Failure) {
    guard SQLiteLibrary.isFit else {
      throw Failure(.unsupported, "the system's SQLite is older than 3.37 or not thread-safe")
    }
  }

  private func refuseOthers(_ directory: Directory) throws(Failure) -> ManifestFile.Kind {
    let kind = try ManifestFile.look(directory)
    switch kind {
    case .newer:
      throw Failure(.newerFormat, "the directory was written by a newer version")
    case .foreign:
      throw Failure(.badDirectory, "manifest.sqlite in the directory is not a cache's")
    case .unreadable:
      guard LockFile.isIn(directory) else {
        throw Failure(.badDirectory, "manifest.sqlite in the directory is not a cache's")
      }
    case .absent:
      if !options.allowsNonempty { try LockFile.checkHasNoOthers(directory) }
    case .ours:
      break
    }
    return kind
  }

  /// The folders that values' files lie in: each is made if it is not there, and is no symbolic
  /// link.
  private func makeFolders(_ directory: Directory) throws(Failure) {
    @inline(never)
    func make(_ folder: Files.Path) throws(Failure) {
      guard Files.makeDirectory(folder, at: directory.descriptor),
        let number = Files.openBeneath(
          folder, at: directory.descriptor, O_PATH | O_DIRECTORY)
      else {
        throw .opening("cannot use the folders content and trash in the directory")
      }
      _ = Descriptor(owning: number)
    }
    try make(ContentPath.folders)
    try make(ContentPath.trash)
  }

  /// The directory's manifest, in order: a damaged one is set aside, a missing one is made.
  private func openManifest(_ directory: Directory) throws(Failure) -> Manifest {
    var kind = try refuseOthers(directory)
    let hadFolder = ContentFiles.hasFolder(in: directory)
    try makeFolders(directory)
    for _ in 0..<2 {
      switch kind {
      case .ours:
        do throws(Failure) {
          if attachment.isCondemned { throw Failure(.corrupt, "the manifest is damaged") }
          return try openWhole(directory)
        } catch {
          guard error.isOfDamage else { throw error }
          counters.damaged.add()
        }
        try setAside(directory)
        attachment.isCondemned = false
        attachment.isSuspect = false
      case .unreadable:
        counters.damaged.add()
        try setAside(directory)
      case .absent, .foreign, .newer:
        attachment.isNew = true
        // No entry names the content files of a manifest before this one.
        if hadFolder { content.beginSweep() }
      }
      try ManifestFile.create(
        options.kind == .unspecified ? .mixed : options.kind, committer.durability,
        in: directory)
      kind = .ours
    }
    throw Failure(.badDirectory, "the manifest that was just made cannot be read")
  }

  private func setAside(_ directory: Directory) throws(Failure) {
    try ManifestFile.setAside(in: directory)
    attachment.setAside = true
    shared.advanceEpoch()
    content.beginSweep()
  }

  private func openWhole(_ directory: Directory) throws(Failure) -> Manifest {
    let manifest = try Manifest.open(directory, committer.durability)
    attachment.unclean = !manifest.meta.isClean || shared.wasLeft
    let boot = Boot.current()
    // Where nothing was synced on the way, SQLite's pages may be of different ages after a loss
    // of power; nor is a manifest synced that has had no opening yet. A killed process loses
    // nothing that it has written.
    let mayBeTorn =
      manifest.limits == nil
      || !manifest.meta.isClean && manifest.meta.durability == .process && manifest.boot.isKnown
        && !boot.isSame(as: manifest.boot)
    // An opening finds damage in few of the pages: the tier would go down again at once.
    if mayBeTorn || attachment.isSuspect {
      do throws(Failure) {
        if try !manifest.isWhole() { throw Failure(.corrupt, "the manifest is damaged") }
      } catch {
        manifest.leaveAsIs()
        throw error
      }
    }
    return manifest
  }

  /// Takes over a manifest that is in order: clock, versions, limits.
  private func openAlone(_ opened: Manifest, _ directory: Directory) throws(Failure) {
    var meta = opened.meta
    var boot = Boot.current()
    var isSetBack = false
    if !clock.isHosts {
      if boot.isSame(as: opened.boot) {
        boot.offset = opened.boot.offset
      } else if meta.lastTime > Clock.read(CLOCK_REALTIME) {
        // The wall clock was set back while no opening could see it.
        isSetBack = true
      }
      clock.setAnchor(boot.offset)
    }
    let owesSweep = attachment.unclean || meta.owesSweep
    if owesSweep { content.beginSweep() }
    // Above the versions that this tier has handed out: the directory may have been brought back
    // from an older copy while the tier was down. And above those that a killed process has drawn,
    // which are not above its lease.
    let first = max(
      meta.nextVersion, committer.highestVersion &+ 1,
      min(shared.versionLeft, meta.nextVersion &+ Committer.versionLease))
    let limits = limitsToUse(opened.limits)
    let isAsLeft = shared.isNew && boot.isSame(as: opened.boot) && limits == opened.limits
    if owesSweep || !isAsLeft {
      meta.markInUse(committer.durability, from: first)
      try opened.commitOpening(meta, boot, limits)
    }
    committer.liveLimits.set(limits)
    use(opened, directory, from: first)
    if isSetBack { committer.sweeper.noteSetBack() }
  }

  /// The limits that are to hold, where the directory has these. The first time, those that the
  /// opening names change the directory's; a tier that comes back brings its own along.
  private func limitsToUse(_ directory: TierLimits?) -> TierLimits {
    if attachment.hasLimits { return limits }
    attachment.hasLimits = true
    guard let directory else { return options.limits }
    let wanted = directory.changed(options.given, to: options.limits)
    attachment.changesLimits = wanted != directory
    return wanted
  }

  /// In a directory that others have open the limits are changed by a transaction like any other.
  private func changeLimits() throws(Failure) {
    let wanted = limitsToUse(limits)
    guard wanted != limits else { return }
    committer.liveLimits.set(wanted)
    // The writes and the maintenance that come remove the entries that are too many.
    try committer.transact { (transaction: inout Transaction) throws(Failure) in
      transaction.hasChanged = true
      try transaction.manifest.write(wanted)
    }
  }

  // MARK: out of service

  /// A write finds the tier down. No lock is held.
  func reopenIfDue() {
    if service.isTryDue { _ = reopen() }
  }

  /// Tries to open the directory again, at its path. True if the tier is up; the writer lock
  /// is not held.
  func reopen() -> Bool {
    if members.belongToParent { return false }
    // That it is down, which a read may have found.
    service.tell(observer)
    let isBack = committer.withTurn { () -> Bool in
      committer.detach()
      guard !isUp else { return false }
      if service.foundDamage {
        // A second time: the check of the whole manifest has not found it.
        attachment.isCondemned =
          attachment.isCondemned || attachment.isSuspect || service.foundDamageItself
        attachment.isSuspect = true
      }
      service.postponeTry()
      do throws(Failure) {
        // A directory that has been removed is not made again.
        let directory = try Directory.open(
          path: place.path, creating: options.isOptional,
          allowsNetwork: options.allowsNetworkDirectory)
        try attach(directory)
      } catch {
        service.noteFailedTry(error)
        return false
      }
      // Before a put can meet the directory, which may be a copy from elsewhere.
      observer?.storeReturns(firstVersion)
      service.comeBack(isListed: observer == nil)
      return true
    }
    if isBack {
      service.tell(observer)
      tellMet()
    }
    // Another thread may have opened it.
    return isBack || isUp
  }

  // MARK: the end

  func close(lastVersion: UInt64) -> Failure? {
    committer.withTurn {
      defer {
        committer.manifest = nil
        members.use(nil)
        service.close()
      }
      // Never in service: there is nothing to end.
      if members.lock == nil { return nil }
      // The cache above has ended.
      defer { committer.untold = DroppedEntries() }
      // Reads have ended, says the caller.
      readers.close()
      guard isUp, let manifest = committer.manifest else {
        committer.detach()
        return isRemoved ? nil : DiskTier.unclean(downFailure)
      }
      do throws(Failure) {
        guard !manifest.hasMoved else {
          manifest.leaveAsIs()
          if isRemoved { return nil }
          throw Failure(.tierDown, "the directory was removed or replaced")
        }
        guard members.mayWrite else {
          manifest.leaveAsIs()
          throw committer.noTurn
        }
        if try leaveOthers(manifest) { return nil }
        do throws(Failure) {
          try end(manifest, lastVersion)
        } catch {
          guard error.status == .noSpace else { throw error }
          committer.makeRoomLocked(1 << 20)
          try end(manifest, lastVersion)
        }
        return nil
      } catch {
        counters.failures.add()
        return DiskTier.unclean(error)
      }
    }
  }

  /// Whether the directory has been removed, or the manifest from it: there is nothing left that
  /// could be ended.
  private var isRemoved: Bool { place.hasLost(ManifestFile.name) }

  /// The next opening has to look through the manifest, for whatever reason.
  private static func unclean(_ cause: Failure) -> Failure {
    cause.with(.io, "closed, but the end was not clean")
  }

  /// Writes what is in memory alone: the bars, without which the barred rows would be back, and the
  /// times of accesses.
  func writeGathered() throws(Failure) {
    for _ in 0..<64 where queue.hasBars { try committer.attempt([]) }
    for _ in 0..<2 {
      while try committer.flushAccesses(1024) {}
    }
  }

  /// A shorter log than this may stay at the end, in bytes.
  private static let mostLogLeft = 256 << 10

  private func end(_ manifest: Manifest, _ lastVersion: UInt64) throws(Failure) {
    try writeGathered()
    var meta = manifest.meta
    let owesSweep = content.end(in: place) || !content.orphans.isDone || shared.owesSweep
    if meta.isClean && !owesSweep && lastVersion < meta.nextVersion
      && manifest.log < DiskTier.mostLogLeft
    {
      // Nothing has changed but access times. They stay in the log, whose frames have checksums:
      // a loss of power takes the last of them, and no page of the database.
      if manifest.log > 0 { manifest.leaveAsIs() }
      return shared.remove(from: place)
    }
    // Versions may have been drawn for memory alone.
    if meta.isClean { meta.nextVersion &+= Committer.versionLease }
    meta.isClean = true
    meta.owesSweep = owesSweep
    meta.lastTime = committer.latestTime
    meta.nextVersion = max(firstVersion, min(lastVersion &+ 1, meta.nextVersion))
    try manifest.syncPages()
    try manifest.begin()
    do throws(Failure) {
      try manifest.commit(meta)
    } catch {
      manifest.rollback()
      throw error
    }
    _ = content.empty(4096, in: place)
    guard try manifest.checkpoint(.truncating, past: readers) else {
      throw Failure(.io, "the manifest's log could not be moved into it")
    }
    shared.remove(from: place)
  }
}
