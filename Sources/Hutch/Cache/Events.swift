import Synchronization

/// The host's function for events, and how it lets go of it.
final class Listener {
  let kinds: UInt32
  let call: (Event) -> Void
  private let release: () -> Void
  /// No call begins any more. Release when it is set, acquire before a call.
  let isSilent = Atomic<Bool>(false)

  @inline(never)
  init(kinds: UInt32, call: @escaping (Event) -> Void, release: @escaping () -> Void) {
    self.kinds = kinds
    self.call = call
    self.release = release
  }

  /// A caller holds a reference, so the last call is over.
  deinit { release() }
}

/// Where a listener stands. It may be replaced while it is called.
final class ListenerPlace {
  /// The kinds that the listener wants. Release when it is set, acquire when it is read.
  private let wanted = Atomic<UInt32>(0)
  /// Protects `listener`. No other lock is taken under it.
  private let lock = Lock()
  private var listener: Listener?

  /// Puts a listener in the place of the one that is there, which is given back; nil: none. Its
  /// release comes when its last call is over, with the last reference: to be given up with no
  /// lock held.
  func put(_ new: Listener?) -> Listener? {
    lock.lock()
    let old = listener
    listener = new
    wanted.store(new?.kinds ?? 0, ordering: .releasing)
    lock.unlock()
    return old
  }

  /// The listener stays, and is told nothing any more.
  func silence() {
    wanted.store(0, ordering: .releasing)
    current?.isSilent.store(true, ordering: .releasing)
  }

  @inline(__always) var kinds: UInt32 { wanted.load(ordering: .acquiring) }

  /// Moves the listener of `old` here, in the child of a fork: `old` is left as it is from here on,
  /// and never freed.
  func takeOver(_ old: ListenerPlace) {
    guard let other = old.listener else { return }
    // The reference that `old` has becomes this place's.
    listener = Unmanaged.passUnretained(other).takeRetainedValue()
    wanted.store(other.kinds, ordering: .releasing)
  }

  /// A reference for the call.
  var current: Listener? { lock.withLock { listener } }
}

/// Events in their order, and their delivery to one listener.
///
/// Each stripe of keys has a lane, a queue of events. A call that changes an entry appends the
/// event under the stripe's lock, so a lane has the events of a key in the order of their versions.
/// An event whose write is not yet committed is pending, and the events behind it wait. A call
/// delivers the ready events when it has released its locks. One thread at a time delivers a lane:
/// a call that finds a lane in delivery leaves its event to that thread, and waits until the event
/// is told, unless the call is made within a callback of the cache or within any listener.
///
/// Before the first listener no lane exists, and a write only reads `kinds`.
final class Events {
  private final class Lane {
    /// Protects the lane and the states of its events. Taken after a stripe; nothing is taken
    /// under it, and it is not held during a callback.
    let lock = Lock()
    /// That an event is over.
    let told = Condition()
    var first: Event?
    var last: Event?
    /// How many are pending.
    var pending = 0
    var isInDelivery = false
    var waiters = 0

    /// Before the first event of the same key with a newer version, whose write waits, else at
    /// the end.
    func insert(_ event: Event) {
      insert(event) { event.precedes($0) }
    }

    /// Before all events that wait for their writes.
    func insertFirst(_ event: Event) {
      insert(event) { $0.state == .pending }
    }

    private func insert(_ event: Event, where isNext: (Event) -> Bool) {
      var before = pending == 0 ? last : nil
      var at = pending == 0 ? nil : first
      while let other = at, !isNext(other) {
        before = other
        at = other.next
      }
      event.next = at
      if let before { before.next = event } else { first = event }
      if at == nil { last = event }
    }
  }

  /// The cache, as ThreadState knows it. Set before the first listener.
  var owner: UnsafeMutableRawPointer?
  /// The listener's: lanes are made before it is put there.
  private let place = ListenerPlace()
  private let logger = Log()
  /// Lanes with events that are ready, a bit each; any bit for lines of the log. Release when an
  /// event becomes ready, acquire for the delivery.
  private let owed = Atomic<UInt64>(0)
  /// Protects the making of `lanes`; the place's is taken under it.
  private let lock = Lock()
  /// Once made, never changed.
  private var lanes: [Lane] = []
  /// Release after the lanes were made; acquire by a delivery, which may hold no lock that the
  /// maker held.
  private let hasLanes = Atomic<Bool>(false)

  /// For the child of a fork: events of none so far. `takeOver` is owed.
  func makeForChild() -> Events {
    let events = Events()
    if hasLanes.load(ordering: .relaxed) { events.put(Events.makeLanes()) }
    return events
  }

  /// Moves the listener, the logger and the directory's name here. Events that wait to be delivered
  /// stay the parent's.
  func takeOver(_ old: Events) {
    place.takeOver(old.place)
    logger.takeOver(old.logger)
  }

  private static func makeLanes() -> [Lane] {
    var made: [Lane] = []
    for _ in 0..<Stripes.count { made.append(Lane()) }
    return made
  }

  private func put(_ made: [Lane]) {
    lanes = made
    hasLanes.store(true, ordering: .releasing)
  }

  // MARK: the listener

  /// As ListenerPlace.put. `watch` is told which kinds are listened to, in the order of such calls:
  /// a lock is held, and it takes none.
  func listen(_ new: Listener?, _ watch: (UInt32) -> Void) {
    let made = new == nil ? [] : Events.makeLanes()
    lock.lock()
    if lanes.isEmpty && new != nil { put(made) }
    let old = place.put(new)
    watch(new?.kinds ?? 0)
    lock.unlock()
    withExtendedLifetime(old) {}
  }

  /// The listener is told nothing from here on. It is released later, by `listen(nil)`.
  func silence() { place.silence() }

  /// Makes `new` what lines of the log are told to.
  func setLogger(_ new: Listener?) { _ = logger.place.put(new) }

  /// The directory, for the log. Before the cache is shared.
  func name(_ path: UnsafePointer<CChar>) { logger.name(path) }

  /// A line for the log, from under whatever locks. Told by `deliver`.
  @inline(never)
  func log(_ line: LogLine, _ tiers: Tiers) {
    if logger.post(line, tiers) { owed.bitwiseOr(1, ordering: .releasing) }
  }

  /// Whether the listener wants events of this kind.
  @inline(__always)
  func wants(_ kind: Event.Kind) -> Bool {
    place.kinds & kind.rawValue != 0
  }

  /// Whether the listener wants events of entries.
  @inline(__always)
  var wantsEntries: Bool { kindsOfEntries != 0 }

  /// The kinds of events of entries that the listener wants.
  @inline(__always)
  var kindsOfEntries: UInt32 { place.kinds & 15 }

  // MARK: posting

  /// Appends an event; with its stripe's lock held if it is one of an entry's write. What
  /// happens to an entry by itself may come when a newer write of its key waits already: it is
  /// told before that.
  func post(_ event: Event, isReady: Bool = true) {
    let lane = lanes[event.lane]
    event.listener = place.current
    lane.lock.lock()
    event.state = isReady ? .ready : .pending
    lane.insert(event)
    if !isReady { lane.pending += 1 }
    lane.lock.unlock()
    if isReady { owed.bitwiseOr(1 << UInt64(event.lane), ordering: .releasing) }
  }

  /// An event of a change to come is told at once: it waits for no write, or a call that has
  /// several under way would wait for itself.
  func announce(_ event: Event) {
    let lane = lanes[event.lane]
    event.listener = place.current
    lane.lock.lock()
    event.state = .ready
    lane.insertFirst(event)
    lane.lock.unlock()
    owed.bitwiseOr(1 << UInt64(event.lane), ordering: .releasing)
    deliver()
    wait(for: event)
  }

  /// It is known what a pending event tells, if anything.
  func resolve(_ event: Event) {
    let lane = lanes[event.lane]
    lane.lock.lock()
    event.state = .ready
    lane.pending -= 1
    lane.lock.unlock()
    owed.bitwiseOr(1 << UInt64(event.lane), ordering: .releasing)
  }

  // MARK: delivery

  /// Delivers what is ready, in every lane. No lock is held.
  @inline(never)
  func deliver() {
    if owed.load(ordering: .relaxed) != 0 { deliverOwed() }
  }

  @inline(never)
  private func deliverOwed() {
    let outer = ThreadState.telling
    ThreadState.telling = owner
    defer { ThreadState.telling = outer }
    while true {
      var bits = owed.exchange(0, ordering: .acquiring)
      if bits == 0 { return }
      logger.tell(for: owner!)
      guard hasLanes.load(ordering: .acquiring) else { continue }
      while bits != 0 {
        deliver(lanes[bits.trailingZeroBitCount])
        bits &= bits - 1
      }
    }
  }

  private func deliver(_ lane: Lane) {
    lane.lock.lock()
    // The thread that delivers looks once more before it stops, with the lock held.
    guard !lane.isInDelivery else {
      lane.lock.unlock()
      return
    }
    lane.isInDelivery = true
    while let event = lane.first, event.state == .ready {
      lane.first = event.next
      if lane.first == nil { lane.last = nil }
      event.next = nil
      lane.lock.unlock()
      event.forEachStep { tell(event) }
      event.listener = nil
      lane.lock.lock()
      event.state = .over
      if lane.waiters > 0 { lane.told.broadcast() }
    }
    lane.isInDelivery = false
    lane.lock.unlock()
  }

  /// Delivers, and waits until every event that has been posted is told, be it by another thread.
  @inline(never)
  func tellAll() {
    guard hasLanes.load(ordering: .acquiring) else { return deliver() }
    for lane in 0..<Stripes.count {
      // No listener is told of it.
      let last = Event(lane: lane)
      last.kind = .log
      post(last)
      deliver()
      wait(for: last)
    }
  }

  private func tell(_ event: Event) {
    guard let listener = event.listener, listener.kinds & event.kind.rawValue != 0,
      !listener.isSilent.load(ordering: .acquiring)
    else { return }
    ThreadState.within(owner!) { listener.call(event) }
  }

  /// Waits until an event that this thread has posted, and that is resolved, has been told: by
  /// this thread or another. Not from within a callback, which may be what the other waits for, nor
  /// from within a listener of another cache: the other thread may be in a listener that waits for
  /// that cache's events.
  func wait(for event: Event) {
    if ThreadState.telling != nil || ThreadState.isWithinCallback(of: owner!) { return }
    let lane = lanes[event.lane]
    let before = ThreadState.stepAside()
    lane.lock.lock()
    lane.waiters += 1
    while event.state != .over { lane.told.wait(lane.lock) }
    lane.waiters -= 1
    lane.lock.unlock()
    ThreadState.stepBack(to: before)
  }
}
