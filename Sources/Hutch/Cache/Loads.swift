import CSystem
import Synchronization

/// The loads of a cache: values that are being made, each by one caller for all callers.
///
/// A flight is the making of one key's value through one view of the cache. A loading is one
/// caller's part in a flight. One loading of a flight leads and makes the value; the others wait.
/// A flight has no thread and no timer. The loadings that wait, and the next caller, find that a
/// leader has given up or that its time is over, and the first of them takes the lead. A loading
/// waits in a thread, or as a task that is parked until the flight changes (see AsyncLoad).
///
/// WRITES DURING A LOAD. A flight has a reservation (WriteOrder) as long as it is in the table. It
/// begins, and its value is stored, with the stripe of its key held. A flight whose reservation has
/// been overtaken stores nothing, and no call joins it: its value may be older than the write.
///
/// CYCLES. A loading may be needed by another loading, its parent. Then the parent's flight depends
/// on this loading's flight, as long as the parent leads. A caller that joins a flight follows
/// these edges first. If the flight depends on the flight of the caller's parent, the caller would
/// wait for itself, and the join fails.
///
/// FAILURES that are remembered stay in the table as flights that have failed, and in a list by
/// age. A failure is forgotten when the list holds more than `mostRemembered` bytes, or when its
/// key is written.
final class Loads {
  private let order: WriteOrder

  /// Chains by hash; a reference of the table's to each flight.
  private let buckets: UnsafeMutablePointer<Unmanaged<Flight>?>
  private static let bucketCount = 1024
  /// Without loads they take no memory.
  private static let lineCount = bucketCount * MemoryLayout<Unmanaged<Flight>?>.stride / 64

  /// Flights with loadings and without an outcome, in the table or not.
  private var active: Unmanaged<Flight>?

  /// Loadings whose parked tasks are to be resumed. Not counted references.
  var woken: Unmanaged<Loading>?

  /// The most that the failures may hold, in bytes.
  private static let mostRemembered = 1 << 20
  /// Failures in the order of their coming, those included that have left the table since.
  private var oldestFailure: Flight?
  private var newestFailure: Flight?
  private var remembered = 0

  private var leads: UInt64 = 0
  private var searches: UInt64 = 0

  // The last: the instructions that reach the fields before it are shorter.
  /// Protects the table, the row of failures, and every field of a flight or a loading that
  /// does not say otherwise. Taken after stripes; only the write order's is taken under it. A call
  /// that has woken a flight, or given its lead away, gives the lock up by `letGo`. No reference to
  /// a loading is counted under it but those of callers: the last one takes the lock.
  let lock = Lock()

  private init(_ order: WriteOrder, _ buckets: UnsafeMutablePointer<Unmanaged<Flight>?>) {
    self.order = order
    self.buckets = buckets
  }

  static func make(_ order: WriteOrder) throws(Failure) -> Loads {
    let buckets = try Heap.mapLines(lineCount)
    return Loads(order, buckets.bindMemory(to: Unmanaged<Flight>?.self, capacity: bucketCount))
  }

  deinit {
    for index in 0..<Loads.bucketCount {
      while let flight = buckets[index] {
        buckets[index] = flight._withUnsafeGuaranteedRef {
          $0.isListed = false
          order.withdraw($0.late)
          return $0.next
        }
        flight.release()
      }
    }
    Heap.unmap(buckets, lines: Loads.lineCount)
    // One by one: a row that frees itself needs stack for each.
    while oldestFailure != nil { forgetOldestFailure() }
  }

  // MARK: the table, with the lock held

  private func bucket(_ hash: UInt64) -> UnsafeMutablePointer<Unmanaged<Flight>?> {
    buckets + KeyedHash.place(of: hash, mask: Loads.bucketCount - 1)
  }

  /// How many flights are in the longest chain: for tests.
  var longestChain: Int {
    lock.lock()
    defer { lock.unlock() }
    var longest = 0
    for index in 0..<Loads.bucketCount {
      var length = 0
      var next = buckets[index]
      while let flight = next {
        length += 1
        next = flight.takeUnretainedValue().next
      }
      longest = max(longest, length)
    }
    return longest
  }

  /// The flight of a key, or what is remembered of one.
  func find(_ key: Bytes, _ hash: UInt64, in scope: Tiers, at time: Int64) -> Flight? {
    var next = bucket(hash).pointee
    while let reference = next {
      let flight = reference.takeUnretainedValue()
      next = flight.next
      if flight.hash == hash && flight.scope == scope && flight.key.hasSameBytes(as: key) {
        if !order.isOvertaken(flight.late)
          && (flight.state != .failed || time < flight.failedUntil)
        {
          return flight
        }
        unlist(flight)
      }
    }
    return nil
  }

  /// A part in a flight, which may be a new one; the stripe of its key is held. Nil: it has failed,
  /// or the opening is closed, or to wait for it would be to wait for oneself, or there is no need
  /// to, for an old value.
  func join(
    _ flight: Flight, _ handle: Handle, _ spec: LoadSpec, parent: Loading?, _ old: UnownedBlock?
  ) -> Loading? {
    // A close wakes the loadings that joined before it; no loading joins after it.
    if flight.state == .failed || handle.opening.isClosed { return nil }
    let now = Clock.read(CLOCK_MONOTONIC)
    let mayLead = flight.mayBeLed(at: now)
    if old != nil && !mayLead { return nil }
    // One of another cache is under the lock of that cache's loads.
    let parent = parent.flatMap { $0.cache === handle.cache && $0.leads ? $0 : nil }
    if let parent, depends(flight, on: parent.flight) { return nil }
    let loading = Loading(handle, flight, spec, stale: old, at: now)
    if let parent { loading.link(to: parent) }
    if !flight.isActive {
      list(flight)
      activate(flight)
    }
    if mayLead { giveLead(of: flight, to: loading, at: now) }
    return loading
  }

  private func list(_ flight: Flight) {
    let head = bucket(flight.hash)
    flight.next = head.pointee
    head.pointee = Unmanaged.passRetained(flight)
    flight.isListed = true
    order.reserve(flight.late, flight.hash, forLoad: true)
  }

  /// Takes a flight out of the table: no call joins it any more.
  func unlist(_ flight: Flight) {
    guard flight.isListed else { return }
    flight.isListed = false
    order.withdraw(flight.late)
    let wanted = Unmanaged.passUnretained(flight).toOpaque()
    let head = bucket(flight.hash)
    if head.pointee?.toOpaque() == wanted {
      head.pointee = flight.next
    } else {
      var previous = head.pointee
      while let reference = previous {
        let before = reference.takeUnretainedValue()
        if before.next?.toOpaque() == wanted {
          before.next = flight.next
          break
        }
        previous = before.next
      }
    }
    flight.next = nil
    Unmanaged.passUnretained(flight).release()
  }

  private func activate(_ flight: Flight) {
    flight.nextActive = active
    active?.takeUnretainedValue().previousActive = Unmanaged.passUnretained(flight)
    active = Unmanaged.passUnretained(flight)
    flight.isActive = true
  }

  private func deactivate(_ flight: Flight) {
    guard flight.isActive else { return }
    flight.isActive = false
    if let previous = flight.previousActive {
      previous.takeUnretainedValue().nextActive = flight.nextActive
    } else {
      active = flight.nextActive
    }
    flight.nextActive?.takeUnretainedValue().previousActive = flight.previousActive
    flight.nextActive = nil
    flight.previousActive = nil
  }

  // MARK: the end of a flight, with the lock held

  /// The loading leads from here on.
  func giveLead(of flight: Flight, to loading: Loading, at now: Int64) {
    leads += 1
    // An answer of the former leader comes too late from here on.
    if let leader = flight.leader, leader._withUnsafeGuaranteedRef({ $0.isParked }) { wake(leader) }
    loading.lead = leads
    flight.lead = leads
    flight.leader = Unmanaged.passUnretained(loading)
    flight.leadEnds = Record.sum(now, loading.spec.timeout)
  }

  /// Wakes every loading of the flight. No function of the host is called.
  func wake(_ flight: Flight) {
    flight.changed?.broadcast()
    while let loading = flight.parked { wake(loading) }
  }

  private func wake(_ loading: Unmanaged<Loading>) {
    loading._withUnsafeGuaranteedRef {
      $0.unpark()
      $0.park(in: &woken)
    }
  }

  /// Gives up the lock, and has the tasks resumed that are to be.
  func letGo() {
    while let loading = woken {
      // The task of a listed loading has not ended. It may end as soon as the lock is free.
      let (queue, task) = loading._withUnsafeGuaranteedRef { loading in
        loading.unpark()
        loading.task!.retain()
        return (loading.cache.tasks, loading.task!)
      }
      lock.unlock()
      queue.resume(task)
      task.drop()
      lock.lock()
    }
    lock.unlock()
  }

  /// Whether a caller waits for what the loading makes. The leader's own task counts as one that
  /// waits, unless it has been asked to end.
  func isWanted(_ loading: Loading) -> Bool {
    lock.lock()
    let isActive = loading.stage == .active
    let isAlone = loading.flight.participants == 1
    let task = loading.task
    task?.retain()
    lock.unlock()
    guard let task else { return isActive }
    let isAsked = loading.cache.tasks.status(of: task).isAsked
    task.drop()
    return isActive && !(isAlone && isAsked)
  }

  private func end(_ flight: Flight, staysListed: Bool = false) {
    flight.leader = nil
    if !staysListed { unlist(flight) }
    deactivate(flight)
    wake(flight)
  }

  private func forgetOldestFailure() {
    guard let flight = oldestFailure else { return }
    oldestFailure = flight.newer
    if oldestFailure == nil { newestFailure = nil }
    flight.newer = nil
    remembered -= flight.byteCount
    unlist(flight)
  }

  /// The last loading has left a flight that has no outcome.
  func desert(_ flight: Flight) {
    guard flight.isActive else { return }
    unlist(flight)
    deactivate(flight)
  }

  /// Whether a flight waits for another one, by however many steps.
  func depends(_ flight: Flight, on target: Flight) -> Bool {
    searches += 1
    var stack: Unmanaged<Flight>? = Unmanaged.passUnretained(flight)
    flight.search = searches
    flight.nextInSearch = nil
    while let reference = stack {
      let flight = reference.takeUnretainedValue()
      stack = flight.nextInSearch
      if flight === target { return true }
      guard flight.isActive, flight.leader != nil else { continue }
      var child = flight.children
      while let reference = child {
        reference._withUnsafeGuaranteedRef { loading in
          child = loading.nextChild
          let needed = loading.flight
          if loading.stage == .active && loading.parentLead == flight.lead
            && needed.search != searches
          {
            needed.search = searches
            needed.nextInSearch = stack
            stack = Unmanaged.passUnretained(needed)
          }
        }
      }
    }
    return false
  }

  // MARK: answers, without the lock

  /// Whether the answer of this loading counts; then the flight is not to be led by others while
  /// it is stored. False: its lead has passed on; `late` is its alone. Either way it has answered.
  func claim(_ loading: Loading, late: UnownedBlock?) throws(Failure) -> Bool {
    lock.lock()
    defer { letGo() }
    guard loading.stage == .active, loading.lead != 0 else {
      throw Failure(.invalidArgument, "the load does not wait for an answer of this caller")
    }
    let leads = loading.leads
    loading.stage = .answered
    if leads {
      loading.flight.state = .storing
    } else {
      loading.late = late?.retained().leak()
      wake(loading.flight)
    }
    return leads
  }

  /// The answer could not be stored, and has not been given.
  func withdraw(_ loading: Loading) {
    lock.lock()
    defer { letGo() }
    loading.stage = .active
    loading.flight.state = .running
    wake(loading.flight)
  }

  /// Every loading of the flight gets this value.
  func complete(_ flight: Flight, _ value: UnownedBlock) {
    lock.lock()
    defer { letGo() }
    // A lead that was short may have passed on meanwhile, and the flight have ended.
    guard flight.state == .running || flight.state == .storing else { return }
    flight.value = value.retained().leak()
    flight.state = .loaded
    end(flight)
  }

  /// Every loading of the flight gets a failure. `until`: how long it is remembered, by the cache's
  /// clock.
  func fail(
    _ flight: Flight, _ code: Int32, _ words: UnsafePointer<CChar>?, until: Int64
  ) {
    // Without memory for them there are no words.
    let words = words.flatMap { strndup($0, ThreadState.length(of: $0, most: Flight.mostWords)) }
    lock.lock()
    defer { letGo() }
    guard flight.state == .running || flight.state == .storing else {
      free(words)
      return
    }
    flight.setFailure(code, words)
    flight.state = .failed
    let isRemembered = until != Int64.min && flight.isListed
    end(flight, staysListed: isRemembered)
    guard isRemembered else { return }
    flight.failedUntil = until
    if let newestFailure { newestFailure.newer = flight } else { oldestFailure = flight }
    newestFailure = flight
    remembered += flight.byteCount
    while remembered > Loads.mostRemembered { forgetOldestFailure() }
  }

  /// True if the loading has neither answered nor given up.
  func isOpen(_ loading: Loading) -> Bool {
    lock.lock()
    defer { lock.unlock() }
    return loading.stage == .active
  }

  // MARK: the end of the cache

  /// An opening has been closed: its loadings that wait return, and its loadings that lead lose the
  /// lead.
  func noteClose(of opening: Opening) {
    lock.lock()
    defer { letGo() }
    var next = active
    while let reference = next {
      let flight = reference.takeUnretainedValue()
      next = flight.nextActive
      if let leader = flight.leader,
        leader._withUnsafeGuaranteedRef({ $0.handle.opening === opening })
      {
        flight.leader = nil
      }
      wake(flight)
    }
  }
}
