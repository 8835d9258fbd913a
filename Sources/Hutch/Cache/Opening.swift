import CSystem
import Synchronization

/// How a cache is to be opened.
struct OpenOptions {
  var policy = MemoryPolicy.adaptive
  var pressure = Pressure()
  var writePolicy = WritePolicy.standard
  var memory = TierLimits.defaultMemory
  /// The store's.
  var disk = StorageOptions()
  /// Host objects are released only when the host asks for it.
  var drainsReleases = false
  var tasks = TaskOptions()
}

/// What runs a cache's tasks.
struct TaskOptions {
  var workers = 2
  /// How many tasks may wait; 0: any number.
  var length = 0
  /// How long a close waits for tasks; 0: no limit.
  var closeDeadline: Int64 = 30_000_000_000
  /// Tells the host what came of a task.
  var deliver: TaskQueue.Deliver = { _ in }

  func makeQueue() throws(Failure) -> TaskQueue {
    try TaskQueue(
      width: max(1, workers), hasThreads: workers > 0, length: length, deliver: deliver)
  }
}

/// One hutch_open. Two of one directory within a process share a cache; each is closed by
/// itself, and the last one shuts the cache down.
final class Opening {
  let cache: Cache
  /// What was opened, as given; ends with NUL. Nil: in memory.
  let path: UnsafeMutablePointer<CChar>?
  /// Acquire and release: who sees it closed sees nothing else of it.
  private let closed = Atomic<Bool>(false)
  /// The tasks that were submitted through it.
  let tasks = TaskOwner()

  /// Takes over `path`, from malloc.
  private init(_ cache: Cache, path: UnsafeMutablePointer<CChar>?) {
    self.cache = cache
    self.path = path
  }

  deinit {
    _ = finish()
    free(path)
  }

  @inline(__always)
  func check() throws(Failure) {
    if Process.isParents(cache.forks) || closed.load(ordering: .acquiring) { throw refusal }
  }

  /// Why it cannot be used, or the store's view of it.
  fileprivate var refusal: Failure {
    @inline(never) get {
      if Process.isParents(cache.forks) {
        return Failure(.forked, "the cache belongs to the parent of this process")
      }
      if closed.load(ordering: .acquiring) { return .closed }
      return Failure(.forked, "the disk tier belongs to the parent of this process")
    }
  }

  var isClosed: Bool { closed.load(ordering: .acquiring) }

  /// Whether the cache is a child's copy of one that could not be handed on.
  var isForked: Bool { Process.isParents(cache.forks) }

  /// Ends this opening. The failure if it had ended already, or if the cache's end was not
  /// clean.
  func close() -> Failure? {
    if closed.load(ordering: .acquiring) { return .closed }
    return finish()
  }

  private func finish() -> Failure? {
    if isForked || closed.exchange(true, ordering: .acquiringAndReleasing) { return nil }
    cache.closing.wrappingAdd(1, ordering: .relaxed)
    cache.loads.noteClose(of: self)
    let deadline = Deadline(after: cache.closeDeadline == 0 ? Int64.max : cache.closeDeadline)
    // Before the registry's lock is taken: what runs may open and close.
    let isOver = cache.tasks.end(tasks, by: deadline)
    var failure: Failure?
    if !isOver {
      failure = Failure(.timedOut, "tasks still ran at the deadline of the close")
      cache.log(LogLine(.warning, "a close did not wait any longer for tasks"), .memory)
    }
    var isLast = true
    // Neither can throw: the bodies do not.
    if cache.storage != nil {
      try? Process.withRegistry { _ throws(Failure) in
        cache.openings -= 1
        isLast = cache.openings == 0
        // The last one counts until the cache is shut: see Forking.begin.
        if !isLast { cache.closing.wrappingSubtract(1, ordering: .relaxed) }
      }
    }
    guard isLast else { return failure }
    // Who opens the directory from here on waits until it is off the list.
    cache.quiesce(by: deadline)
    if cache.storage == nil {
      failure = cache.shut(by: deadline) ?? failure
      Forking.leave(cache)
    } else {
      try? Process.withRegistry { (head) throws(Failure) in
        let unclean = cache.shut(by: deadline)
        if let unclean {
          cache.log(LogLine(.error, "the disk tier was not closed cleanly", unclean))
        }
        failure = unclean ?? failure
        Forking.leave(cache)
        remove(from: &head)
      }
    }
    cache.endReleases()
    cache.endListeners()
    return failure
  }

  private func remove(from head: inout UnsafeMutablePointer<OpenDirectory>?) {
    let owner = cache.identity
    var previous: UnsafeMutablePointer<OpenDirectory>?
    var next = head
    while let node = next {
      next = node.pointee.next
      guard node.pointee.owner == owner else {
        previous = node
        continue
      }
      if let previous { previous.pointee.next = next } else { head = next }
      free(node)
      return
    }
  }

  // MARK: opening

  /// A cache in memory.
  static func inMemory(_ options: OpenOptions, clock: Clock) throws(Failure) -> Opening {
    guard options.writePolicy != .disk else {
      throw Failure(.unsupported, "a cache in memory has no disk tier to write to")
    }
    Process.watchForks()
    let versions = Versions(from: 1)
    let memory = try MemoryTier(
      limits: options.memory, policy: options.policy, hash: try KeyedHash(), versions: versions)
    let cache = try Cache(
      memory: memory, storage: nil, clock: clock, versions: versions, options: options)
    if options.memory.ages.any { try cache.startMaintenance() }
    Forking.join(cache)
    return Opening(cache, path: nil)
  }

  /// A cache on a directory; `differs` if this process has it open already, or others share it,
  /// with other options.
  static func onDirectory(
    _ path: UnsafePointer<CChar>, _ options: OpenOptions, clock: Clock,
    by open: StorageOpener = openStorage
  ) throws(Failure) -> (opening: Opening, differs: Bool) {
    while true {
      if let opened = try unlessClosing(path, options, clock, open) { return opened }
      usleep(1000)
    }
  }

  /// Nil: this process is closing the directory.
  private static func unlessClosing(
    _ path: UnsafePointer<CChar>, _ options: OpenOptions, _ clock: Clock, _ open: StorageOpener
  ) throws(Failure) -> (opening: Opening, differs: Bool)? {
    let directory: Directory
    do throws(Failure) {
      directory = try Directory.open(
        path: path, allowsNetwork: options.disk.allowsNetworkDirectory)
    } catch {
      guard options.disk.isOptional && error.isOfDirectory else { throw error }
      directory = try Directory.unopened(path: path)
    }
    let device = directory.device
    let inode = directory.inode
    guard let path = strdup(path) else { throw .noMemory }
    var isKept = false
    defer { if !isKept { free(path) } }
    let opened = try Process.withRegistry {
      (head) throws(Failure) -> (opening: Opening, differs: Bool)? in
      if Process.opensNothing {
        throw Failure(
          .forked, "the parent of this process opened or closed a directory at the fork")
      }
      var next = head
      while let node = next {
        if node.pointee.device == device && node.pointee.inode == inode && directory.isOpen {
          guard let owner = node.pointee.owner else {
            throw Failure(.forked, "the parent of this process had the directory open at the fork")
          }
          let cache = Unmanaged<Cache>.fromOpaque(owner).takeUnretainedValue()
          guard cache.openings > 0 else {
            if ThreadState.isWithinCallback(of: owner) {
              throw Failure(.deadlock, "the directory is being closed, which waits for the caller")
            }
            return nil
          }
          cache.openings += 1
          isKept = true
          return (Opening(cache, path: path), cache.differs(from: options) || clock.isHosts)
        }
        next = node.pointee.next
      }
      let node = try Allocation.one(OpenDirectory.self)
      do throws(Failure) {
        let storage = try open(directory, options.disk, clock)
        let cache: Cache
        do throws(Failure) {
          cache = try compose(storage, options, clock: clock, path)
        } catch {
          _ = storage.close(lastVersion: storage.firstVersion &- 1)
          throw error
        }
        do throws(Failure) {
          try cache.startMaintenance()
        } catch {
          // While there is still a cache that the store may tell.
          _ = cache.shut(by: Deadline(at: 0))
          throw error
        }
        node.initialize(
          to: OpenDirectory(
            device: device, inode: inode, owner: cache.identity, next: head))
        head = node
        Forking.join(cache)
        isKept = true
        return (Opening(cache, path: path), storage.differs(from: options.disk))
      } catch {
        free(node)
        throw error
      }
    }
    // What was met is logged with no lock held.
    opened?.opening.cache.events.deliver()
    return opened
  }
}

extension Opening {
  /// A cache over a store that has just been opened.
  private static func compose(
    _ storage: any Storage, _ options: OpenOptions, clock: Clock, _ path: UnsafePointer<CChar>
  ) throws(Failure) -> Cache {
    let sharing = storage.sharing
    let versions = Versions(from: storage.firstVersion, shared: sharing?.nextVersion)
    let hash: KeyedHash
    if let sharing { hash = sharing.hash } else { hash = try KeyedHash() }
    let memory = try MemoryTier(
      limits: options.memory, policy: options.policy, hash: hash, versions: versions,
      coherence: sharing?.counters)
    let cache = try Cache(
      memory: memory, storage: storage, clock: clock, versions: versions, options: options,
      coherence: sharing?.counters)
    cache.events.name(path)
    options.disk.codec?.owner = cache.identity
    cache.tieTogether(storage)
    return cache
  }
}

/// What a host's reference to a cache is: an opening, and the part of the cache that calls
/// are about.
final class Handle {
  let opening: Opening
  let scope: Scope
  /// For calls that are too short to count references: it lives as long as the handle.
  let unretained: Unmanaged<Cache>
  /// How often files are held through it. Relaxed: each is counted once by whoever changes it.
  private let holds = Atomic<Int>(0)
  /// See Process.forks: whose holds those are.
  private let holdsForks = Atomic<UInt32>(Process.forks)

  init(_ opening: Opening, _ scope: Scope) {
    self.opening = opening
    self.scope = scope
    unretained = .passUnretained(opening.cache)
  }

  /// The holds that the host has not given back go with its reference.
  deinit { while releaseFiles() {} }

  @inline(__always) var cache: Cache { opening.cache }

  /// Whether calls through it can be answered.
  @inline(__always)
  func check() throws(Failure) {
    try opening.check()
    if scope == .disk && opening.cache.isStorageLeft { throw opening.refusal }
  }

  /// What the parent of this process holds is the parent's to let go.
  private var holdsOfParent: Bool {
    Process.isParents(holdsForks.load(ordering: .relaxed)) && holds.load(ordering: .relaxed) > 0
  }

  func checkHolds() throws(Failure) {
    if holdsOfParent {
      throw Failure(.forked, "the files are held by the parent of this process")
    }
  }

  func holdFiles() throws(Failure) {
    try cache.holdFiles()
    if Process.isParents(holdsForks.exchange(Process.forks, ordering: .relaxed)) {
      holds.store(0, ordering: .relaxed)
    }
    holds.wrappingAdd(1, ordering: .relaxed)
  }

  /// False: none is held through this reference.
  func releaseFiles() -> Bool {
    if holdsOfParent { return false }
    var held = holds.load(ordering: .relaxed)
    while held > 0 {
      let (isDone, now) = holds.compareExchange(
        expected: held, desired: held - 1, ordering: .relaxed)
      if isDone {
        cache.releaseFiles()
        return true
      }
      held = now
    }
    return false
  }
}
