import CSystem
import Synchronization

/// Loads: a value that is there, or one caller's part in its making.
extension Cache {
  /// The answer to a caller of a load.
  struct LoadAnswer: ~Copyable {
    /// done: there is a value. notFound: the caller leads. wouldBlock: it may wait. cancelled,
    /// timedOut, loadFailed: as they say.
    let status: Status
    var value: Block?
    var loading: Loading?
    /// The load that has failed, if the status is `loadFailed`.
    var flight: Flight?

    init(_ status: Status, _ value: consuming Block? = nil, _ loading: Loading? = nil) {
      self.status = status
      self.value = value
      self.loading = loading
    }

    init(failed flight: Flight) {
      self.init(.loadFailed)
      self.flight = flight
      flight.noteFailure()
    }
  }

  /// The host's function: its context, the key, and the loading to answer. Returns a status.
  typealias Loader = @convention(c) (
    UnsafeMutableRawPointer?, UnsafeRawPointer?, Int, OpaquePointer?
  ) -> Int32

  // MARK: begin

  /// The value; or the caller leads a load of it, or may wait for another's.
  func beginLoad(
    _ key: Bytes, _ spec: LoadSpec, parent: Loading?, for handle: Handle
  ) throws(Failure) -> LoadAnswer {
    try beginLoad(
      key, spec, parent: parent, try get(key, in: handle.scope), for: handle)
  }

  /// `found`: what there is.
  @inline(never)
  private func beginLoad(
    _ key: Bytes, _ spec: LoadSpec, parent: Loading?, _ found: consuming Block?,
    for handle: Handle
  ) throws(Failure) -> LoadAnswer {
    let old = found.unowned
    if let old, !isStale(old, spec) { return LoadAnswer(.done, found) }
    var answer = try joinLoad(key, spec, parent: parent, old, for: handle)
    if answer.status == .done && answer.value == nil { answer.value = found }
    return answer
  }

  func isStale(_ block: UnownedBlock, _ spec: LoadSpec) -> Bool {
    spec.softTimeToLive != 0
      && clock.now >= Record.sum(block.created, spec.softTimeToLive)
  }

  /// `old`: the value that is to be refreshed. An answer of done without a value means it.
  private func joinLoad(
    _ key: Bytes, _ spec: LoadSpec, parent: Loading?, _ old: UnownedBlock?, for handle: Handle
  ) throws(Failure) -> LoadAnswer {
    let hash = memory.hash(key)
    let new = try Flight.make(key, hash, handle.scope)
    let time = clock.now
    let stripe = Stripes.index(of: hash)
    order.stripes.lock(stripe)
    loads.lock.lock()
    let flight = loads.find(key, hash, in: handle.scope, at: time) ?? new
    let joined = loads.join(flight, handle, spec, parent: parent ?? currentLoading, old)
    let isFailed = flight.state == .failed
    let leads = joined?.leads ?? false
    loads.letGo()
    order.stripes.unlock(stripe)

    guard let joined else {
      try handle.check()
      if old != nil { return LoadAnswer(.done) }
      if !isFailed { throw .waitsForItself }
      return LoadAnswer(failed: flight)
    }
    if flight === new, let value = try peek(key, in: handle.scope),
      !isStale(value.unowned, spec)
    {
      // Another load, or a put, ended between the look for `old` and the flight's beginning.
      loads.complete(flight, value.unowned)
      return LoadAnswer(.done, value)
    }
    if old != nil { return LoadAnswer(.done, nil, joined) }
    return LoadAnswer(leads ? .notFound : .wouldBlock, nil, joined)
  }

  /// The innermost load of this cache that leads and whose loader this thread is within. A load
  /// further out waits too: for the loader of one that has answered or lost its lead, or for that
  /// of another cache. The lock of the loads is held.
  private var currentLoading: Loading? {
    var next = ThreadState.loading
    while let pointer = next {
      let loading = Unmanaged<Loading>.fromOpaque(pointer).takeUnretainedValue()
      if loading.cache === self && loading.leads { return loading }
      next = loading.outer
    }
    return nil
  }

  // MARK: wait

  /// Waits for what becomes of the load; `timeout` 0: only looks. `parksTask`: where there is
  /// nothing yet, the loading's task will be resumed when there is.
  func wait(
    _ loading: Loading, timeout: Int64, parksTask: Bool = false
  ) throws(Failure) -> LoadAnswer {
    let flight = loading.flight
    // By CLOCK_MONOTONIC, which is read once there is something to wait for.
    var limit: Int64?
    loads.lock.lock()
    defer { loads.letGo() }
    while true {
      if loading.stage == .abandoned { return LoadAnswer(.cancelled) }
      switch flight.state {
      case .loaded: return LoadAnswer(.done, flight.value!.retained())
      case .failed:
        if loading.spec.servesStale, let old = loading.stale {
          return LoadAnswer(.done, old.retained())
        }
        return LoadAnswer(failed: flight)
      case .running, .storing: break
      }
      if let late = loading.late { return LoadAnswer(.done, late.retained()) }
      try loading.handle.check()
      if loading.leads {
        guard parksTask && loading.isDeferred else { return LoadAnswer(.notFound) }
        loading.park(until: Int64.max)
        return LoadAnswer(.wouldBlock)
      }
      let now = Clock.read(CLOCK_MONOTONIC)
      let end = limit ?? min(Record.sum(now, timeout), loading.ends)
      limit = end
      if now >= loading.ends { return LoadAnswer(.timedOut) }
      if loading.stage == .active && !loading.isDeferred && flight.mayBeLed(at: now) {
        loads.giveLead(of: flight, to: loading, at: now)
        return LoadAnswer(.notFound)
      }
      // A lead ends by time while the value is made, not while it is stored. Only a loading that
      // may lead next has to wake then.
      let isNext = flight.state == .running && flight.leader != nil && loading.stage == .active
        && !loading.isDeferred
      let leadEnds = isNext ? flight.leadEnds : Int64.max
      if parksTask {
        loading.park(until: min(loading.ends, leadEnds))
        return LoadAnswer(.wouldBlock)
      }
      if now >= end { return LoadAnswer(timeout == 0 ? .wouldBlock : .timedOut) }
      // The leader may be this thread, which stores the value and tells of that, or one that
      // waits for this thread to tell an event. A listener of another cache may be called by one
      // of this cache.
      if ThreadState.telling != nil { throw .waitsForItself }
      if flight.changed == nil { flight.changed = Condition() }
      let until = min(end, leadEnds)
      flight.changed!.wait(loads.lock, nanoseconds: until - now)
    }
  }

  // MARK: answer

  func fulfil(_ loading: Loading, _ value: Bytes, _ spec: PutSpec) throws(Failure) -> PutResult {
    let flight = loading.flight
    let moment = clock.current
    let target = try target(of: spec.writePolicy, in: flight.scope)
    let block = try spec.block(
      flight.key, value, at: moment, version: flight.late.pointee.version,
      wantsChecksum: storage != nil)
    var result = PutResult()
    guard try loads.claim(loading, late: block.unowned) else {
      result.status = .superseded
      return result
    }
    do throws(Failure) {
      result = try put(
        block.unowned.retained(), flight.hash, at: moment,
        if: storage == nil ? .unlessNewer : .always, in: flight.scope, storing: target,
        suffix: spec.suffix, by: flight.late)
    } catch {
      // Closed, or without memory to store it: it may try again, or another one.
      loads.withdraw(loading)
      throw error
    }
    // Where what has its tag was removed, what is there is older.
    let isRemoved = spec.extended.tag.count > 0
      && order.isRemoved(spec.extended.tag, after: flight.late) && !order.isOvertaken(flight.late)
    if result.status == .superseded && !isRemoved && completeWithNewer(flight) { return result }
    loads.complete(flight, block.unowned)
    return result
  }

  /// Ends a flight with what was put during the load, if it is there.
  private func completeWithNewer(_ flight: Flight) -> Bool {
    do throws(Failure) {
      guard let newer = try peek(flight.key, in: flight.scope) else { return false }
      loads.complete(flight, newer.unowned)
      return true
    } catch {
      return false
    }
  }

  /// superseded: no loading gets the failure.
  func fail(
    _ loading: Loading, _ code: Int32, _ words: UnsafePointer<CChar>?
  ) throws(Failure) -> Status {
    let flight = loading.flight
    let now = clock.now
    guard try loads.claim(loading, late: nil) else { return .superseded }
    if order.isOvertaken(flight.late), completeWithNewer(flight) { return .superseded }
    let lasts = loading.spec.negativeTimeToLive
    loads.fail(
      flight, code, words, until: lasts == 0 ? Int64.min : Record.sum(now, lasts))
    log(LogLine(.info, "a loader has failed"), tiers(of: flight.scope))
    events.deliver()
    return .done
  }

  // MARK: the closed form

  /// The value, made by `loader` if it must be. `found`: what there is.
  @inline(never)
  func load(
    _ key: Bytes, _ spec: LoadSpec, parent: Loading?, _ found: consuming Block?,
    for handle: Handle, _ loader: Loader, _ context: UnsafeMutableRawPointer?
  ) throws(Failure) -> LoadAnswer {
    var begun = try beginLoad(key, spec, parent: parent, found, for: handle)
    guard let loading = begun.loading.take() else { return begun }
    if begun.status == .wouldBlock {
      let answer = try wait(loading, timeout: .max)
      if answer.status != .notFound { return answer }
    }
    try lead(loading, loader, context, mayDefer: false)
    let answer = try wait(loading, timeout: 0)
    // The loading's time is over, and no loading gets what it has made.
    return answer.status == .wouldBlock ? LoadAnswer(.timedOut) : answer
  }

  /// Runs the loader of a loading that leads. `mayDefer`: the loader may answer later.
  func lead(
    _ loading: Loading, _ loader: Loader, _ context: UnsafeMutableRawPointer?, mayDefer: Bool
  ) throws(Failure) {
    let key = loading.flight.key
    let this = Unmanaged.passUnretained(loading).toOpaque()
    loading.outer = ThreadState.loading
    ThreadState.loading = this
    let code = ThreadState.within(identity) {
      loader(context, key.baseAddress, key.count, OpaquePointer(this))
    }
    ThreadState.loading = loading.outer
    guard loads.isOpen(loading) else { return }
    try loading.handle.check()
    if code == 0 {
      loading.leave()
    } else if mayDefer && code == Status.wouldBlock.code {
      loading.deferAnswer()
    } else {
      // Given up by another thread since: then that is the answer.
      do throws(Failure) { _ = try fail(loading, code, nil) } catch {}
    }
  }
}

extension Failure {
  fileprivate static let waitsForItself = Failure(
    .deadlock, "the load would wait for a load that waits for it")
}
