/// hutch_load as a task.
///
/// The task looks for the value in its key's order, and takes part in a load if there is none.
/// Tasks that were submitted for the key after it do not wait for that load. The leader's task runs
/// the loader on a worker. The other tasks are parked: such a task takes no place of the queue's
/// width until the flight changes or its time is over, and then looks again. A loader may also
/// return at once, with its answer to come from elsewhere; then the leader's task is parked too.
final class LoadWork {
  let loader: Cache.Loader
  let context: UnsafeMutableRawPointer?
  private var release: Release?
  /// The cache that these callbacks are made for (see ThreadState).
  private let owner: UnsafeMutableRawPointer?
  var spec = LoadSpec()
  /// The load that this one is needed for.
  var parent: Loading?
  fileprivate var loading: Loading?
  /// The load that has failed, with the words that the completion tells.
  fileprivate var failed: Flight?

  /// The context is its own from here on.
  init(
    _ loader: @escaping Cache.Loader, _ context: UnsafeMutableRawPointer?,
    _ release: Release?, of owner: UnsafeMutableRawPointer?
  ) {
    self.loader = loader
    self.context = context
    self.release = release
    self.owner = owner
  }

  deinit { end() }

  /// The loader will not be called any more. The host may have a reference of its own to the
  /// loading; its answer would come too late.
  func end() {
    loading?.leaveTask()
    let release = self.release
    self.release = nil
    ThreadState.give(context, back: release, of: owner)
  }
}

extension UnsafeMutablePointer where Pointee == AsyncOperation {
  /// The completion's status, or `parks`.
  func load(
    _ work: LoadWork, _ cache: Cache, _ key: Bytes, _ task: TaskPointer
  ) throws(Failure) -> Status {
    var status = Status.wouldBlock
    if work.loading == nil {
      var begun = try cache.beginLoad(key, work.spec, parent: work.parent, for: pointee.handle)
      status = begun.status
      guard let loading = begun.loading.take() else { return take(begun, work) }
      cache.loads.lock.withLock { loading.belong(to: task) }
      work.loading = loading
      cache.tasks.leaveKey(task)
    }
    let loading = work.loading!
    while true {
      if status == .wouldBlock {
        let answer = try cache.wait(loading, timeout: 0, parksTask: true)
        status = answer.status
        if status == .wouldBlock {
          cache.tasks.willPark(task, until: loading.due)
          return Status.named(TaskQueue.parks)
        }
        if status != .notFound { return take(answer, work) }
      }
      try cache.lead(loading, work.loader, work.context, mayDefer: true)
      status = .wouldBlock
    }
  }

  private func take(
    _ answer: consuming Cache.LoadAnswer, _ work: LoadWork
  ) -> Status {
    let status = answer.status
    pointee.block = answer.value.take()?.leak()
    if let flight = answer.flight.take() {
      work.failed = flight
      pointee.failure = flight.failure
    } else if status == .timedOut {
      pointee.failure = Failure(.timedOut, "the load took too long")
    }
    return status
  }
}
