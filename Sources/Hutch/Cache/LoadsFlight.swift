import CSystem
import Synchronization

/// How a caller loads.
struct LoadSpec {
  static let defaultTimeout: Int64 = 60_000_000_000

  var timeout = defaultTimeout
  /// 0: never.
  var softTimeToLive: Int64 = 0
  /// 0: failures are not remembered.
  var negativeTimeToLive: Int64 = 0
  var servesStale = false
}

/// The making of one key's value, for all callers: see Loads. Its fields are protected by
/// the lock of the loads, but for those that are fixed.
final class Flight {
  enum State {
    case running
    /// The leader has answered with a value that is being stored.
    case storing
    case loaded
    case failed
  }

  let hash: UInt64
  let scope: Tiers
  /// Its right to write the key, made when the flight is listed. The key's bytes follow it.
  let late: LateWrite
  private let keySize: Int

  var state = State.running
  /// A reference, set once, when it is loaded.
  var value: UnownedBlock?
  /// The failure's code. Set before it has failed.
  var code: Int32 = 0
  private(set) var words: UnsafeMutablePointer<CChar>?
  var failedUntil: Int64 = 0

  /// The loading that leads. Not a counted reference: a loading that ends gives up its lead.
  var leader: Unmanaged<Loading>?
  /// A number for each lead, never used twice.
  var lead: UInt64 = 0
  /// By CLOCK_MONOTONIC.
  var leadEnds: Int64 = 0
  /// Loadings that have not left.
  var participants = 0
  /// Made for the first thread that waits.
  var changed: Condition?
  /// The loadings whose tasks are parked until the flight changes. Not counted references.
  var parked: Unmanaged<Loading>?
  /// Loadings whose parent led this flight. Not counted references.
  var children: Unmanaged<Loading>?

  // Fields of the table of loads.
  var isListed = false
  var isActive = false
  var next: Unmanaged<Flight>?
  var nextActive: Unmanaged<Flight>?
  var previousActive: Unmanaged<Flight>?
  var newer: Flight?
  var search: UInt64 = 0
  var nextInSearch: Unmanaged<Flight>?

  private init(_ late: LateWrite, _ keySize: Int, _ hash: UInt64, _ scope: Tiers) {
    self.late = late
    self.keySize = keySize
    self.hash = hash
    self.scope = scope
  }

  static func make(_ key: Bytes, _ hash: UInt64, _ scope: Tiers) throws(Failure) -> Flight {
    let memory = try Allocation.bytes(
      MemoryLayout<WriteOrder.Reservation>.stride + key.count)
    let late = memory.bindMemory(to: WriteOrder.Reservation.self, capacity: 1)
    late.initialize(to: WriteOrder.Reservation())
    if key.count > 0 { memcpy(late + 1, key.baseAddress!, key.count) }
    return Flight(late, key.count, hash, scope)
  }

  deinit {
    value?.release()
    free(late)
    free(words)
  }

  /// Whether the lead is free to take.
  func mayBeLed(at now: Int64) -> Bool {
    state == .running && (leader == nil || now >= leadEnds)
  }

  var key: Bytes { Bytes(start: late + 1, count: keySize) }

  /// So many bytes of a loader's words are kept.
  static let mostWords = 200

  /// About what a remembered failure takes up.
  var byteCount: Int { 512 + key.count }

  /// Takes over `words`, from malloc.
  func setFailure(_ code: Int32, _ words: UnsafeMutablePointer<CChar>?) {
    self.code = code
    self.words = words
  }

  /// Makes the failure this thread's last one.
  func noteFailure() { ThreadState.note(failure, nil) }

  /// Its words live as long as the flight.
  var failure: Failure {
    .ofLoader(
      code, words.map { UnsafeRawPointer($0).assumingMemoryBound(to: UInt8.self) })
  }
}

/// One caller's part in a flight; a host's `hutch_loading` refers to it. Protected by the lock of
/// the loads, but for the fields that are fixed.
final class Loading {
  enum Stage {
    /// Waits or leads.
    case active
    case answered
    case abandoned
  }

  let handle: Handle
  let cache: Cache
  let flight: Flight
  let spec: LoadSpec
  /// See Process.forks.
  let forks = Process.forks

  func checkOwn() throws(Failure) {
    try Process.check(forks, "the loading belongs to the parent of this process")
  }

  /// The value that is to be refreshed: a reference.
  let stale: UnownedBlock?
  var stage = Stage.active
  private var hasLeft = false
  /// By CLOCK_MONOTONIC, when waiting ends.
  let ends: Int64
  /// The lead that it has, or had last; 0: none so far.
  var lead: UInt64 = 0
  /// The block that it made after its lead had passed on: a reference, set once.
  var late: UnownedBlock?

  // The tasks that load: see AsyncLoad.

  /// Valid until it ends, which it does with `leaveTask`.
  private(set) var task: TaskPointer?
  /// By when a parked task looks again, by CLOCK_MONOTONIC.
  private(set) var due: Int64 = 0
  /// Its loader has returned, and its answer comes from elsewhere.
  private(set) var isDeferred = false
  /// The references of hutch_loading_retain that have not been released. Sequentially consistent:
  /// the release of the last one changes it and then looks at `isDeferred`, `deferAnswer` does it
  /// the other way round, so one of them sees what both have done.
  private let hostReferences = Atomic<Int>(0)
  /// In the list of the flight's parked ones, or of all that are woken.
  private(set) var isParked = false
  private var nextParked: Unmanaged<Loading>?
  private var previousParked: Unmanaged<Loading>?

  /// The loading within whose loader this one's loader runs: valid until that returns, for its
  /// thread alone.
  var outer: UnsafeMutableRawPointer?

  /// The flight that needs this loading, and the lead within which it asked for it.
  private(set) var parent: Flight?
  private(set) var parentLead: UInt64 = 0
  fileprivate(set) var nextChild: Unmanaged<Loading>?
  private var previousChild: Unmanaged<Loading>?

  /// With the lock held.
  init(_ handle: Handle, _ flight: Flight, _ spec: LoadSpec, stale: UnownedBlock?, at now: Int64) {
    self.handle = handle
    cache = handle.cache
    self.flight = flight
    self.spec = spec
    self.stale = stale?.retained().leak()
    ends = Record.sum(now, spec.timeout)
    flight.participants += 1
  }

  deinit {
    leave()
    late?.release()
    stale?.release()
  }

  private var loads: Loads { cache.loads }

  private var isLeader: Bool {
    flight.leader?.toOpaque() == Unmanaged.passUnretained(self).toOpaque()
  }

  /// Whether an answer of its would count.
  var leads: Bool { stage == .active && flight.state == .running && isLeader }

  /// Makes the parent's flight depend on this one's.
  func link(to parent: Loading) {
    self.parent = parent.flight
    parentLead = parent.lead
    let this = Unmanaged.passUnretained(self)
    nextChild = parent.flight.children
    nextChild?._withUnsafeGuaranteedRef { $0.previousChild = this }
    parent.flight.children = this
  }

  // MARK: parked tasks, with the lock held

  /// The task that loads, which may be asked to end.
  func belong(to task: TaskPointer) { self.task = task }

  /// Its task is to be resumed when something changes, or at this time.
  func park(until due: Int64) {
    self.due = due
    if !isParked { park(in: &flight.parked) }
  }

  func park(in list: inout Unmanaged<Loading>?) {
    let this = Unmanaged.passUnretained(self)
    isParked = true
    nextParked = list
    previousParked = nil
    list?._withUnsafeGuaranteedRef { $0.previousParked = this }
    list = this
  }

  func unpark() {
    guard isParked else { return }
    isParked = false
    let this = Unmanaged.passUnretained(self).toOpaque()
    if let previousParked {
      previousParked._withUnsafeGuaranteedRef { $0.nextParked = nextParked }
    } else if flight.parked?.toOpaque() == this {
      flight.parked = nextParked
    } else if loads.woken?.toOpaque() == this {
      loads.woken = nextParked
    }
    nextParked?._withUnsafeGuaranteedRef { $0.previousParked = previousParked }
    nextParked = nil
    previousParked = nil
  }

  private func unlink() {
    guard let parent else { return }
    if let previousChild {
      previousChild._withUnsafeGuaranteedRef { $0.nextChild = nextChild }
    } else {
      parent.children = nextChild
    }
    nextChild?._withUnsafeGuaranteedRef { $0.previousChild = previousChild }
    self.parent = nil
    parentLead = 0
    nextChild = nil
    previousChild = nil
  }

  // MARK: an answer from elsewhere

  func noteRetain() {
    _ = hostReferences.wrappingAdd(1, ordering: .sequentiallyConsistent)
  }

  /// The task's own reference keeps a deferred loading. If the host gives up the last of its own,
  /// no answer can come any more.
  func noteRelease() {
    let references = hostReferences.wrappingSubtract(1, ordering: .sequentiallyConsistent)
    if references.newValue == 0 { leaveWithoutAnswer() }
  }

  /// The answer of this leader comes later, from elsewhere, if the host has kept a reference.
  func deferAnswer() {
    loads.lock.withLock { isDeferred = true }
    if hostReferences.load(ordering: .sequentiallyConsistent) == 0 { leaveWithoutAnswer() }
  }

  /// If the lead has passed on, the task still waits for the value of the new leader.
  private func leaveWithoutAnswer() {
    if loads.lock.withLock({ isDeferred && leads }) { leave() }
  }

  /// Takes no further part; without an answer it has given up. Later calls do nothing.
  func leave() {
    loads.lock.lock()
    defer { loads.letGo() }
    guard !hasLeft else { return }
    hasLeft = true
    if stage == .active { stage = .abandoned }
    unlink()
    flight.participants -= 1
    if isLeader { flight.leader = nil }
    if flight.participants == 0 { loads.desert(flight) }
    // Its own task, too: it is told that it has been given up.
    loads.wake(flight)
  }

  /// Its task ends, and is resumed no more.
  func leaveTask() {
    leave()
    loads.lock.lock()
    unpark()
    task = nil
    loads.lock.unlock()
  }
}
