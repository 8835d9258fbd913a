import CSystem
import Synchronization

/// One hutch_open. Two of one directory within a process share a cache; each is closed by
/// itself, and the last one shuts the cache down.
final class Opening {
  let place: CachePlace
  /// The path that was opened, as given; ends with NUL. Nil: in memory.
  let path: UnsafeMutablePointer<CChar>?
  /// Acquire and release: a thread that sees it closed uses nothing else of it.
  private let closed = Atomic<Bool>(false)
  /// The tasks that were submitted through it.
  let tasks: TaskOwner
  /// The host's references to its handles. Tasks refer to it too, and are carried out before it
  /// ends. Acquire and release: the thread that gives up the last one sees what the others did.
  private let references = Atomic<Int>(0)

  /// Takes over `path`, from malloc.
  @inline(never)
  private init(_ place: CachePlace, path: UnsafeMutablePointer<CChar>?) {
    self.place = place
    self.path = path
    tasks = TaskOwner(place.cache.settings.guest)
  }

  @inline(__always) var cache: Cache { place.cache }

  deinit {
    _ = finish()
    free(path)
  }

  @inline(__always)
  func check() throws(Failure) {
    if isForked || closed.load(ordering: .acquiring) { throw refusal }
  }

  /// Why it cannot be used, or the store's view of it.
  fileprivate var refusal: Failure {
    @inline(never) get {
      if isForked {
        return Failure(.forked, "the cache belongs to the parent of this process")
      }
      if closed.load(ordering: .acquiring) { return .closed }
      return Failure(.forked, "the disk tier belongs to the parent of this process")
    }
  }

  @inline(__always) var isClosed: Bool { closed.load(ordering: .acquiring) }

  func retain() { _ = references.wrappingAdd(1, ordering: .relaxed) }

  /// After the last one nothing keeps it open but tasks, cursors and their kin. The tasks end,
  /// whatever they waited for.
  func release() {
    let left = references.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue
    guard left == 0, !isForked, !isClosed else { return }
    cache.tasks.giveUp(tasks)
  }

  /// Whether the cache is a child's copy of one that could not be handed on.
  @inline(__always) var isForked: Bool {
    place.unretained._withUnsafeGuaranteedRef { Process.isParents($0.forks) }
  }

  /// Ends this opening. The failure if it had ended already, or if the cache's end was not
  /// clean.
  func close() -> Failure? {
    if closed.load(ordering: .acquiring) { return .closed }
    return finish()
  }

  private func finish() -> Failure? {
    if isForked || closed.exchange(true, ordering: .acquiringAndReleasing) { return nil }
    return place.unretained._withUnsafeGuaranteedRef { end($0) }
  }

  private func end(_ cache: Cache) -> Failure? {
    cache.life.closing.wrappingAdd(1, ordering: .relaxed)
    cache.loads.noteClose(of: self)
    let deadline = Deadline(after: cache.settings.closeDeadline)
    // Before the registry's lock is taken: the functions of the host that run may open and close.
    let isOver = cache.tasks.end(tasks, by: deadline)
    var failure: Failure?
    if !isOver {
      failure = Failure(.timedOut, "tasks had not ended at the deadline of the close")
      cache.log(LogLine(.warning, "a close did not wait any longer for tasks"), .memory)
    }
    var isLast = true
    // Neither can throw: the bodies do not.
    if cache.storage != nil {
      try? Process.withRegistry { _ throws(Failure) in
        cache.openings -= 1
        isLast = cache.openings == 0
        // The last one counts until the cache is shut: see Forking.begin.
        if !isLast { cache.life.closing.wrappingSubtract(1, ordering: .relaxed) }
      }
    }
    guard isLast else { return failure }
    // A thread that opens the directory from here on waits until it is off the list.
    cache.quiesce(by: deadline)
    if cache.storage == nil {
      failure = cache.shut(by: deadline) ?? failure
      Forking.leave(cache)
    } else {
      // A fork comes before this or after it.
      try? Process.withRegistry { (head) throws(Failure) in
        Process.node(of: cache.identity)?.pointee.isBusy = true
      }
      let unclean = cache.shut(by: deadline)
      if let unclean {
        cache.log(LogLine(.error, "the disk tier was not closed cleanly", unclean))
      }
      failure = unclean ?? failure
      try? Process.withRegistry(givesWay: false) { (head) throws(Failure) in
        Forking.leave(cache)
        if let node = Process.node(of: cache.identity) { Opening.remove(node, from: &head) }
      }
    }
    cache.endReleases()
    cache.endListeners()
    return failure
  }

  private static func remove(
    _ node: UnsafeMutablePointer<OpenDirectory>,
    from head: inout UnsafeMutablePointer<OpenDirectory>?
  ) {
    if head == node {
      head = node.pointee.next
    } else {
      var previous = head
      while let other = previous, other.pointee.next != node { previous = other.pointee.next }
      previous?.pointee.next = node.pointee.next
    }
    free(node)
  }

  // MARK: opening

  /// A cache in memory. Not inlined, like the other one: hutch_open would release what it owns in
  /// every step that fails.
  @inline(never)
  static func inMemory(_ options: OpenOptions, clock: Clock) throws(Failure) -> Opening {
    guard options.writePolicy != .disk else {
      throw Failure(.unsupported, "a cache in memory has no disk tier to write to")
    }
    Process.watchForks()
    let versions = Versions(from: 1)
    let memory = try MemoryTier(
      limits: options.memory, policy: options.change.policy ?? .adaptive,
      hash: try KeyedHash(),
      versions: versions)
    let cache = try Cache.make(
      memory: memory, storage: nil, clock: clock, versions: versions, options: options)
    let place = CachePlace(cache)
    if options.memory.ages.any { try cache.startMaintenance() }
    Forking.join(cache)
    return Opening(place, path: nil)
  }

  /// A cache on a directory; `differs` if this process has it open already, or others share it,
  /// with other options.
  @inline(never)
  static func onDirectory(
    _ path: UnsafePointer<CChar>, _ options: OpenOptions, clock: Clock,
    by open: StorageOpener = openStorage
  ) throws(Failure) -> (opening: Opening, differs: Bool) {
    while true {
      if let opened = try unlessClosing(path, options, clock, open) { return opened }
      usleep(1000)
    }
  }

  /// Nil: another thread opens or closes the directory.
  private static func unlessClosing(
    _ path: UnsafePointer<CChar>, _ options: OpenOptions, _ clock: Clock, _ open: StorageOpener
  ) throws(Failure) -> (opening: Opening, differs: Bool)? {
    let directory: Directory
    do throws(Failure) {
      directory = try Directory.open(
        path: path, creating: !options.disk.mustExist,
        allowsNetwork: options.disk.allowsNetworkDirectory)
    } catch {
      guard options.disk.isOptional && error.isOfDirectory else { throw error }
      directory = try Directory.unopened(path: path)
    }
    guard let path = strdup(path) else { throw .noMemory }
    var isKept = false
    defer { if !isKept { free(path) } }
    let node: UnsafeMutablePointer<OpenDirectory>
    switch try claim(directory, options) {
    case .isBusy: return nil
    case .isOpen(let place):
      isKept = true
      return (Opening(place, path: path), place.cache.apply(options) || clock.isHosts)
    case .isOurs(let claimed): node = claimed
    }
    let opened: (cache: Cache, differs: Bool)
    do throws(Failure) {
      opened = try make(directory, options, clock, path, open)
    } catch {
      try Process.withRegistry(givesWay: false) { (head) throws(Failure) in
        remove(node, from: &head)
      }
      throw error
    }
    let place = CachePlace(opened.cache)
    try Process.withRegistry(givesWay: false) { _ throws(Failure) in
      node.pointee.owner = opened.cache.identity
      node.pointee.isBusy = false
      Forking.join(opened.cache)
    }
    // The events of the opening are logged with no lock held.
    opened.cache.events.deliver()
    isKept = true
    return (Opening(place, path: path), opened.differs)
  }

  private enum Claim {
    /// Another thread opens or closes it.
    case isBusy
    /// It is open, one opening more. The reference was counted with the opening, under the
    /// registry's lock: each of `cache.openings` keeps the place, or an opening that ends meanwhile
    /// could free it.
    case isOpen(CachePlace)
    /// The caller is to open it.
    case isOurs(UnsafeMutablePointer<OpenDirectory>)
  }

  /// Finds the directory on the list, or puts it there.
  private static func claim(
    _ directory: Directory, _ options: OpenOptions?
  ) throws(Failure) -> Claim {
    try Process.withRegistry { (head) throws(Failure) -> Claim in
      if Process.opensNothing {
        throw Failure(
          .forked, "the parent of this process opened or closed a directory at the fork")
      }
      var next = head
      while let node = next {
        next = node.pointee.next
        guard node.pointee.device == directory.device, node.pointee.inode == directory.inode,
          directory.isOpen
        else { continue }
        guard let owner = node.pointee.owner else {
          if node.pointee.isBusy && pthread_equal(node.pointee.opener, pthread_self()) != 0 {
            throw Failure(.deadlock, "the directory is being opened, which waits for the caller")
          }
          if node.pointee.isBusy { return .isBusy }
          throw Failure(.forked, "the parent of this process had the directory open at the fork")
        }
        let cache = Unmanaged<Cache>.fromOpaque(owner).takeUnretainedValue()
        if cache.openings > 0 {
          guard let options else {
            throw Failure(.busy, "this process has the directory open")
          }
          if let codec = options.codec, codec.id != cache.settings.values.codecID {
            throw Failure(.invalidArgument, "the directory is open with another codec, or none")
          }
          if let codec = options.objectCodec, !codec.isLike(cache.settings.objectCodec) {
            throw Failure(
              .invalidArgument, "the directory is open with another object codec, or none")
          }
          cache.openings += 1
          return .isOpen(cache.place!.takeUnretainedValue())
        }
        if cache.isWithinCallback {
          throw Failure(.deadlock, "the directory is being closed, which waits for the caller")
        }
        return .isBusy
      }
      let node = try Allocation.one(OpenDirectory.self)
      node.initialize(
        to: OpenDirectory(
          device: directory.device, inode: directory.inode, owner: nil, isBusy: true,
          opener: pthread_self(), next: head))
      head = node
      return .isOurs(node)
    }
  }

  /// Opens the store, and makes the cache over it. The directory's node is busy.
  private static func make(
    _ directory: Directory, _ options: OpenOptions, _ clock: Clock,
    _ path: UnsafePointer<CChar>, _ open: StorageOpener
  ) throws(Failure) -> (cache: Cache, differs: Bool) {
    if options.disk.mustExist {
      guard directory.isOpen, try holdsStorage(directory) else {
        throw Failure(.badDirectory, "there is no cache in the directory")
      }
    }
    let storage = try open(directory, options.disk, clock)
    let cache: Cache
    do throws(Failure) {
      cache = try compose(storage, options, clock: clock, path)
    } catch {
      _ = storage.close(lastVersion: storage.sharing.firstVersion &- 1)
      throw error
    }
    do throws(Failure) {
      try cache.startMaintenance()
    } catch {
      // While there is still a cache that the store may tell.
      _ = cache.shut(by: Deadline(at: 0))
      throw error
    }
    return (cache, storage.apply(options.disk))
  }
}

extension Opening {
  /// Removes the cache that is in a directory. False: there is none.
  static func destroy(_ path: UnsafePointer<CChar>) throws(Failure) -> Bool {
    let directory: Directory
    do throws(Failure) {
      directory = try Directory.open(path: path, creating: false, allowsNetwork: true)
    } catch {
      if error.system == ENOENT { return false }
      throw error
    }
    while true {
      switch try claim(directory, nil) {
      case .isBusy, .isOpen: usleep(1000)
      case .isOurs(let node):
        let isDone: Bool
        var failure: Failure?
        do throws(Failure) {
          isDone = try destroyStorage(directory)
        } catch {
          isDone = false
          failure = error
        }
        try Process.withRegistry(givesWay: false) { (head) throws(Failure) in
          remove(node, from: &head)
        }
        if let failure { throw failure }
        return isDone
      }
    }
  }

  /// A cache over a store that has just been opened.
  private static func compose(
    _ storage: any Storage, _ options: OpenOptions, clock: Clock, _ path: UnsafePointer<CChar>
  ) throws(Failure) -> Cache {
    let sharing = storage.sharing
    let versions = Versions(from: sharing.firstVersion, shared: sharing.nextVersion)
    let memory = try MemoryTier(
      limits: options.memory, policy: options.change.policy ?? .adaptive,
      hash: storage.hash, versions: versions, coherence: sharing.counters)
    let cache = try Cache.make(
      memory: memory, storage: storage, clock: clock, versions: versions, options: options,
      coherence: sharing.counters)
    cache.events.name(path)
    storage.watch(by: cache)
    return cache
  }
}

/// A host's reference to a cache: an opening, and the part of the cache that calls
/// are about.
final class Handle {
  let opening: Opening
  let scope: Tiers
  /// For calls that are too short to count references: it lives as long as the handle.
  @inline(__always) var unretained: Unmanaged<Cache> { opening.place.unretained }
  /// The short path of hits, one that is closed if the calls are not about memory. Lives as long as
  /// the cache.
  private let hits: HitPath
  /// How often files are held through it, and by which process. Relaxed: what is held is counted
  /// again by the store, under its lock.
  private let holds = Atomic<UInt64>(0)

  @inline(never)
  init(_ opening: Opening, _ scope: Tiers) {
    self.opening = opening
    self.scope = scope
    hits = opening.cache.memory.hits(isMemory: scope != .disk)
    opening.retain()
  }

  /// One more reference of the host's; the first one comes with the handle.
  static func retain(_ handle: Unmanaged<Handle>) {
    handle._withUnsafeGuaranteedRef { $0.opening.retain() }
    _ = handle.retain()
  }

  static func release(_ handle: Unmanaged<Handle>) {
    // The tasks that are carried out now may be all that keeps it.
    let opening = handle.takeUnretainedValue().opening
    handle.release()
    opening.release()
  }

  /// The holds that the host has not given back go with its reference.
  deinit { while releaseFiles() {} }

  @inline(__always) var cache: Cache { opening.cache }

  /// Nil: a call has to ask everything.
  @inline(__always) var shortPath: HitPath? { path(if: hits.isOpen) }
  /// Nil: a call has to ask more.
  @inline(__always) var straightPath: HitPath? { path(if: hits.isStraight) }

  @inline(__always)
  private func path(if mayServe: Bool) -> HitPath? {
    if _fastPath(mayServe) {
      if _fastPath(!opening.isClosed) { return hits }
    }
    return nil
  }

  /// Whether calls through it can be answered. Not inlined: hits have paths that do without.
  @inline(never)
  func check() throws(Failure) {
    try opening.check()
    if scope == .disk && opening.cache.life.storageBelongsToParent { throw opening.refusal }
  }

  /// A word of `holds`: the count below Process.forks. The holds of the parent of this process are
  /// the parent's to let go of.
  private static func count(_ holds: UInt64) -> UInt32? {
    let count = UInt32(truncatingIfNeeded: holds)
    return count > 0 && Process.isParents(UInt32(holds >> 32)) ? nil : count
  }

  private static func holds(_ count: UInt32) -> UInt64 {
    UInt64(Process.forks) << 32 | UInt64(count)
  }

  func checkHolds() throws(Failure) {
    if Handle.count(holds.load(ordering: .relaxed)) == nil {
      throw Failure(.forked, "the files are held by the parent of this process")
    }
  }

  func holdFiles() throws(Failure) {
    try cache.holdFiles()
    var held = holds.load(ordering: .relaxed)
    var isDone = false
    while !isDone {
      (isDone, held) = holds.compareExchange(
        expected: held, desired: Handle.holds((Handle.count(held) ?? 0) &+ 1), ordering: .relaxed)
    }
  }

  /// False: none is held through this reference.
  func releaseFiles() -> Bool {
    var held = holds.load(ordering: .relaxed)
    while let count = Handle.count(held), count > 0 {
      let (isDone, now) = holds.compareExchange(
        expected: held, desired: Handle.holds(count - 1), ordering: .relaxed)
      if isDone {
        cache.releaseFiles()
        return true
      }
      held = now
    }
    return false
  }
}
