import Synchronization

/// The state that the threads of one process need to work on a cache: locks, and calls under way.
///
/// The child of a fork has a copy of the parent's parts as the parent's threads left them, in the
/// middle of a change or with a lock held, and has none of these threads. It leaves the copy alone
/// for ever, does not free it, and makes new parts. So no part is ever reset: a field that
/// `makeForChild` does not name is new in the child. The references of parts to the memory tier,
/// the clock and the codec, which the copy would keep alive for ever, are given up (`letGo`).
struct Parts: ~Copyable {
  /// The order of writes.
  let order: WriteOrder
  let loads: Loads
  /// The events for the host's listener.
  let events: Events
  /// The dirty entries, which memory owes to the store.
  let writeBack: WriteBack
  /// Memory's knowledge of the store, after the store has come back.
  let review: BackedReview
  /// Host objects that wait to be released.
  let releases: ReleaseQueue
  /// Objects that are being made of values.
  let making: ObjectMaking
  /// Runs asynchronous calls: `upkeep`, or a queue of the host's that may serve other caches too.
  let tasks: TaskQueue
  /// That queue of the host's.
  let hosts: QueueHandle?
  /// Runs the work in the background. It is the cache's own.
  let upkeep: TaskQueue
  /// Makes changes of limits and of options one after the other. It is held for the evictions that
  /// a change of limits asks for, and for their commit.
  let limitsChange = Lock()
  /// Protects the cache's `memoryLimits`, `memoryPolicy` and `pressure`: reads, and the moment of a
  /// change. O(1).
  let limitsLock = Lock()

  /// A function, not an initialiser: that would own its arguments, and give each back in every step
  /// that fails.
  @inline(never)
  private static func make(
    _ memory: MemoryTier, _ clock: Clock, _ values: StoredValues, _ versions: Versions,
    _ events: Events, _ upkeep: TaskQueue, _ hosts: QueueHandle?
  ) throws(Failure) -> Parts {
    let order = try WriteOrder.make(versions)
    let loads = try Loads.make(order)
    let review = BackedReview(memory, order, clock)
    let releases = ReleaseQueue()
    let making = ObjectMaking()
    return Parts(
      order: order, loads: loads, events: events,
      writeBack: WriteBack(memory, order, events, clock, values), review: review,
      releases: releases, making: making, tasks: hosts?.queue ?? upkeep, hosts: hosts,
      upkeep: upkeep)
  }

  static func make(
    _ memory: MemoryTier, _ clock: Clock, _ values: StoredValues, _ versions: Versions,
    _ options: TaskOptions
  ) throws(Failure) -> Parts {
    try make(
      memory, clock, values, versions, Events(), try options.makeQueue(), options.hosts)
  }

  /// For the child of a fork. The host's listener and logger, the settings of the queue, and
  /// whether memory may owe entries to the store, or is under review, are the parent's.
  func makeForChild(
    _ memory: MemoryTier, _ clock: Clock, _ values: StoredValues
  ) throws(Failure) -> Parts {
    let parts = try Parts.make(
      memory, clock, values, order.versions, events.makeForChild(),
      try upkeep.makeForChild(), try hosts?.makeForChild())
    if writeBack.mayHaveDirty { parts.writeBack.begin() }
    if review.isUnderWay { parts.review.begin() }
    parts.events.takeOver(events)
    return parts
  }

  /// For the child of a fork, in the parts that it leaves behind: gives up the references of
  /// `writeBack` and of `review`.
  func letGo(_ memory: MemoryTier, _ clock: Clock, _ codec: Codec?) {
    for _ in 0..<2 {
      Unmanaged.passUnretained(memory).release()
      Unmanaged.passUnretained(clock).release()
    }
    if let codec { Unmanaged.passUnretained(codec).release() }
  }

  /// Names the cache among callbacks (see ThreadState). `drainsReleases`: the host asks for the
  /// releases of its objects.
  func belong(to owner: UnsafeMutableRawPointer, drainsReleases: Bool) {
    upkeep.belong(to: owner)
    events.owner = owner
    releases.owner = owner
    if !drainsReleases { releases.onWaiting = { [upkeep] in upkeep.wakeBackground() } }
  }
}

extension Cache {
  @inline(__always) var values: StoredValues { settings.values }
  @inline(__always) var order: WriteOrder { parts.order }
  @inline(__always) var loads: Loads { parts.loads }
  @inline(__always) var events: Events { parts.events }
  @inline(__always) var writeBack: WriteBack { parts.writeBack }
  @inline(__always) var review: BackedReview { parts.review }
  @inline(__always) var releases: ReleaseQueue { parts.releases }
  @inline(__always) var tasks: TaskQueue { parts.tasks }

  /// True if this thread is within a callback of the cache, or of a queue of the host's that runs
  /// its tasks.
  var isWithinCallback: Bool {
    ThreadState.isWithinCallback(of: identity) || ThreadState.isWithinCallback(of: tasks.identity)
  }
}
