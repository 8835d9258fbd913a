import CSystem
import Synchronization

/// Opening, going out of service and coming back, closing.
extension DiskTier {
  /// The tier in a directory that nothing else of this process has open.
  static func open(
    directory: Directory, options: DiskOptions, clock: Clock
  ) throws(Failure) -> DiskTier {
    let tier = try DiskTier(directory, options, clock)
    try tier.writerLock.withLock { () throws(Failure) in
      try tier.attach(directory)
      tier.up.store(true, ordering: .releasing)
    }
    return tier
  }

  /// Makes a directory's manifest this tier's. The writer lock is held.
  private func attach(_ directory: Directory) throws(Failure) {
    try checkSQLite()
    // Before anything is touched, and again under the lock, when it counts.
    try refuseOthers(directory)
    let isNew = try lock(directory)
    do throws(Failure) {
      let isAlone = try enter(directory, isNew: isNew)
      let manifest = try openManifest(directory)
      if isAlone { try adopt(manifest, directory) } else { try join(manifest, directory) }
      settleIn(isAlone: isAlone)
    } catch {
      manifest = nil
      throw error
    }
  }

  private func checkSQLite() throws(Failure) {
    guard SQLiteLibrary.isFit else {
      throw Failure(.unsupported, "the system's SQLite is older than 3.37 or not thread-safe")
    }
  }

  private func refuseOthers(_ directory: Directory) throws(Failure) {
    switch try ManifestFile.look(directory) {
    case .newer:
      throw Failure(.newerFormat, "the directory was written by a newer version")
    case .foreign:
      throw Failure(.badDirectory, "manifest.sqlite in the directory is not a cache's")
    case .absent, .ours, .unreadable:
      break
    }
  }

  /// False: it is ours already.
  private func lock(_ directory: Directory) throws(Failure) -> Bool {
    if directoryLock?.belongs(to: directory) ?? false { return false }
    let new = try WriterLock(directory)
    try new.acquire(options.sharing)
    if let directoryLock {
      try directoryLock.become(new)
    } else {
      directoryLock = new
      lockNumber.store(new.descriptor, ordering: .relaxed)
    }
    return true
  }

  /// The directory's manifest, in order: what is damaged is set aside, what is not there is
  /// made.
  private func openManifest(_ directory: Directory) throws(Failure) -> Manifest {
    try refuseOthers(directory)
    var kind = try ManifestFile.look(directory)
    for _ in 0..<2 {
      switch kind {
      case .ours:
        do throws(Failure) {
          return try openWhole(directory)
        } catch {
          // SQLITE_ERROR is what statements give whose tables are not there.
          let isMalformed = error.status == .corrupt || error.sqlite & 0xFF == 1
          guard isMalformed else { throw error }
          counters.damaged.add()
        }
        try setAside(directory)
      case .unreadable:
        counters.damaged.add()
        try setAside(directory)
      case .absent, .foreign, .newer:
        break
      }
      for folder in [Files.path("content"), Files.path("trash")] {
        guard Files.makeDirectory(folder, at: directory.descriptor) else {
          throw .system("cannot make a folder in the directory", otherwise: .badDirectory)
        }
      }
      try ManifestFile.create(
        options.storage == .unspecified ? .mixed : options.storage, in: directory)
      kind = .ours
    }
    throw Failure(.badDirectory, "the manifest that was just made cannot be read")
  }

  private func setAside(_ directory: Directory) throws(Failure) {
    try ManifestFile.setAside(in: directory)
    shared?.advanceEpoch()
    orphans.begin()
  }

  private func openWhole(_ directory: Directory) throws(Failure) -> Manifest {
    let manifest = try Manifest.open(directory)
    let boot = Boot.current()
    // Nothing is synced on the way, so after a loss of power SQLite's pages may be of
    // different ages. A killed process loses nothing that it has written.
    if !manifest.meta.isClean && manifest.boot.isKnown && !boot.isSame(as: manifest.boot) {
      guard manifest.isWhole() else {
        manifest.leaveAsIs()
        throw Failure(.corrupt, "the manifest is damaged")
      }
    }
    return manifest
  }

  /// Takes over a manifest that is in order: clock, versions, limits.
  private func adopt(_ opened: Manifest, _ directory: Directory) throws(Failure) {
    var meta = opened.meta
    guard options.storage == .unspecified || options.storage == meta.storage else {
      throw Failure(.invalidArgument, "the directory has another storage kind")
    }
    var boot = Boot.current()
    var isSetBack = false
    if !clock.isHosts {
      if boot.isSame(as: opened.boot) {
        boot.offset = opened.boot.offset
      } else if meta.lastTime > Clock.read(CLOCK_REALTIME) {
        // The wall clock was set back while nothing of ours could see it.
        isSetBack = true
      }
      clock.setAnchor(boot.offset)
    }
    if !meta.isClean || meta.owesSweep { orphans.begin() }
    meta.isClean = false
    // Beyond what this tier has handed out, should the directory have been brought back from
    // an older copy while it was down.
    let first = max(meta.nextVersion, highestVersion &+ 1)
    meta.nextVersion = first &+ DiskTier.versionLease
    guard meta.isSound else { throw Failure(.corrupt, "the manifest has no versions left") }
    try opened.adopt(meta, boot, limits)
    leaseStart.store(first, ordering: .relaxed)
    generation.store(meta.generation, ordering: .releasing)
    take(opened, meta, directory)
    if isSetBack { sweep.redateFrom = Int64.max }
    publish(meta)
  }

  /// Begins to use a manifest.
  func take(_ opened: Manifest, _ meta: Meta, _ directory: Directory) {
    manifest = opened
    trash.forget()
    candidates.forget()
    sweep = SweepState()
    idleFrom.store(
      meta.mayIdle || ages.timeToIdle != 0 ? Int64.min : Int64.max, ordering: .relaxed)
    latestTime = max(latestTime, meta.lastTime)
    counters.storage.store(meta.storage.rawValue, ordering: .relaxed)
    stateLock.withLock {
      place = directory
      reason = nil
    }
  }

  // MARK: out of service

  /// From here on the tier has no entries and takes none. Called with any lock but the
  /// state's; the connections are closed by who next has the writer lock.
  func goDown(_ failure: Failure) {
    stateLock.withLock {
      guard isUp else { return }
      reason = failure
      isTold = false
      up.store(false, ordering: .releasing)
    }
  }

  /// Closes what a tier that is down still has open. The writer lock is held.
  func detach() {
    guard let manifest, !isUp else { return }
    manifest.leaveAsIs()
    readers.close()
    self.manifest = nil
    trash.forget()
  }

  /// Tries to open the directory again, at its path. True if the tier is up; the writer lock
  /// is not held.
  func reopen() -> Bool {
    let isBack = writerLock.withLock { () -> Bool in
      detach()
      guard !isUp else { return false }
      do throws(Failure) {
        // A directory that somebody has removed is not ours to make again.
        let directory = try Directory.open(
          path: place.path, creating: false, allowsNetwork: options.allowsNetworkDirectory)
        try attach(directory)
      } catch {
        stateLock.withLock { reason = error }
        return false
      }
      stateLock.withLock { up.store(true, ordering: .releasing) }
      return true
    }
    if isBack { onStateChange?(nil) }
    return isBack
  }

  var downFailure: Failure {
    let words: StaticString = "the disk tier is out of service"
    guard let reason = stateLock.withLock({ reason }) else { return Failure(.tierDown, words) }
    return reason.with(.tierDown, words)
  }

  // MARK: the end

  func close(lastVersion: UInt64) -> Failure? {
    writerLock.withLock {
      defer {
        manifest = nil
        directoryLock = nil
        lockNumber.store(-1, ordering: .relaxed)
      }
      guard isUp, let manifest else {
        detach()
        return DiskTier.unclean(downFailure)
      }
      // Reads have ended, says the caller.
      readers.close()
      defer { stateLock.withLock { up.store(false, ordering: .releasing) } }
      do throws(Failure) {
        guard !manifest.hasMoved else {
          manifest.leaveAsIs()
          throw Failure(.tierDown, "the directory was removed or replaced")
        }
        if try leaveOthers(manifest) { return nil }
        do throws(Failure) {
          try end(manifest, lastVersion)
        } catch {
          guard error.status == .noSpace else { throw error }
          _ = makeRoomLocked(1 << 20)
          try end(manifest, lastVersion)
        }
        return nil
      } catch {
        counters.failures.add()
        return DiskTier.unclean(error)
      }
    }
  }

  /// The next opening has to look through the manifest, for whatever reason.
  private static func unclean(_ cause: Failure) -> Failure {
    cause.with(.io, "closed, but the end was not clean")
  }

  private func end(_ manifest: Manifest, _ lastVersion: UInt64) throws(Failure) {
    // What is barred only in memory would be back.
    for _ in 0..<64 where queue.hasBars { _ = try attempt([]) }
    for _ in 0..<2 {
      while try flushAccesses(1024) {}
    }
    var meta = manifest.meta
    meta.isClean = true
    meta.owesSweep = !orphans.isDone || (shared?.owesSweep ?? false)
    meta.lastTime = latestTime
    meta.nextVersion = max(firstVersion, min(lastVersion &+ 1, meta.nextVersion))
    try manifest.begin()
    do throws(Failure) {
      try manifest.commit(meta)
    } catch {
      manifest.rollback()
      throw error
    }
    _ = trash.empty(4096, in: place)
    guard try manifest.checkpoint(.truncating, synced: true) else {
      throw Failure(.io, "the manifest's log could not be moved into it")
    }
    if shared != nil { SharedState.remove(from: place) }
  }
}

extension Failure {
  /// The same cause under another status.
  func with(_ status: Status, _ words: StaticString) -> Failure {
    var failure = Failure(status, words)
    failure.system = system
    failure.sqlite = sqlite
    failure.detail = detail
    return failure
  }
}
