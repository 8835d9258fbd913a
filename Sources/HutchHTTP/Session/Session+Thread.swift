import CCurl
import CSystem

/// The thread of a session.
extension Session {
  /// Called once. The thread refers to the session until it ends.
  func start() throws(Failure) {
    let thread = try OwnedThread.make("hutch-http", of: self) { context in
      OwnedThread.run(context, Session.self) { $0.run() }
    }
    threadEnd.begin(thread)
  }

  /// Waits until the thread has ended.
  func awaitEnd(_ timeout: Int64) throws(Failure) -> Status {
    let status = try wait(timeout) { isOver }
    if status == .done { threadEnd.join() }
    return status
  }

  /// The host has let the session go. Without a task the thread has only the connections to close,
  /// and makes no callback, so the call waits for its end.
  func release() {
    end(.finish)
    let isIdle = lock.withLock { tasks.isEmpty }
    if isIdle && !ThreadState.isWithinCallback(of: identity) { _ = try? awaitEnd(Int64.max) }
    threadEnd.leave()
  }

  private func run() {
    ThreadState.workerOf = identity
    do {
      let cookies = CookieFile(configuration, share)
      work()
      // Of transfers whose tasks have ended.
      while let transfer = ready { ready = transfer.takeNextReady() }
      _ = consume cookies
    }
    // A host that waits for the session finds its connections closed.
    close()
    lock.withLock { isOver = true }
    changed.broadcast()
  }

  private func work() {
    while attendAll() {
      hasEnded = false
      startWaiting()
      continueReady()
      // At once if another task may begin now, or the session may end; the thread is woken for all
      // that other threads wish.
      sockets.step(until: hasEnded || ready != nil ? 0 : nextCheck)
      readResults()
      checkTimeouts()
    }
  }

  /// Does what the host wishes. False: the session has ended, and no task is left.
  private func attendAll() -> Bool {
    lock.lock()
    if let end {
      for task in tasks.elements {
        let task = task.takeUnretainedValue()
        if end == .cancel || task.state == .suspended { task.cancelForEnd() }
      }
    }
    var next = attended
    attended = nil
    while let task = next {
      next = task.nextAttended
      task.nextAttended = nil
      task.isAttended = false
      // The thread that holds it lets it go with all that was wished.
      if task.isHeld { continue }
      // A callback has suspended it after the host's last release: no call can resume it. Seen
      // with the lock held, since a call that resumes it may answer it, and release it then.
      let state = task.state == .suspended && !task.hasHost ? .cancelling : task.state
      if state == .running, task.transfer == nil {
        // The lock stays: what many tasks wish that only begin costs one.
        enter(task)
      } else {
        lock.unlock()
        attend(to: task, state)
        lock.lock()
      }
    }
    let hasWork = end == nil || !tasks.isEmpty || attended != nil
    lock.unlock()
    return hasWork
  }

  /// The task waits for its turn. The caller holds the lock.
  private func enter(_ task: HTTPTask) {
    let lane = task.priority < 0 ? lanes.0 : task.priority > 0 ? lanes.2 : lanes.1
    if task.lane === lane { return }
    task.lane?.remove(task)
    lane.append(task)
  }

  private func attend(to task: HTTPTask, _ state: HTTPTask.State) {
    switch state {
    case .running:
      guard let transfer = task.transfer else { return }
      let code = transfer.proceed()
      if code != CURLE_OK { return ended(transfer, code) }
      watch(transfer)
    case .suspended:
      task.lane?.remove(task)
      task.transfer?.pause()
    case .cancelling:
      end(task, .cancelled)
    case .ended: break
    }
  }

  /// Begins the tasks whose turn it is.
  private func startWaiting() {
    while transfers.count < configuration.width,
      let task = lanes.2.popFirst() ?? lanes.1.popFirst() ?? lanes.0.popFirst()
    {
      do throws(Failure) {
        let transfer = Transfer(of: task)
        task.transfer = transfer
        transfer.place = transfers.count
        try transfers.append(Unmanaged.passUnretained(transfer))
        _ = Unmanaged.passRetained(transfer)
        transfer.isListed = true
        try transfer.begin()
        watch(transfer)
      } catch {
        end(task, .failed(error))
      }
    }
  }

  /// Of a transfer that begins, for what libcurl receives. A large one saves calls; those of all
  /// transfers together take about 4 MB, and from 256 transfers on 16 KB each.
  var bufferSize: Int { min(max((4 << 20) / max(transfers.count, 1), 16 << 10), 64 << 10) }

  /// Continues the transfers that the cache answers, or no longer keeps waiting; and those that
  /// become ready by that, before a look at a lease may change what they do next.
  private func continueReady() {
    while let transfer = ready {
      ready = transfer.takeNextReady()
      guard transfer.isListed, !transfer.isPaused else { continue }
      do throws(Failure) {
        if let outcome = try transfer.continueWithCache() { end(transfer.task, outcome) }
      } catch {
        end(transfer.task, .failed(error))
      }
      if transfer.isListed { watch(transfer) }
    }
  }

  /// Takes the results of libcurl. The waiters of tasks in a row that are silent are woken at once:
  /// a thread that waits for one after the other would otherwise sleep and wake for each of them.
  /// No code of the host runs before they are, since it might wait for such a thread.
  private func readResults() {
    var left: Int32 = 0
    defer { signal() }
    while let message = curl_multi_info_read(sockets.multi, &left) {
      guard message.pointee.msg == CURLMSG_DONE, let easy = message.pointee.easy_handle,
        let context = hutch_curl_info_pointer(easy, CURLINFO_PRIVATE)
      else { continue }
      let code = hutch_curl_result(message)
      let transfer = Unmanaged<Transfer>.fromOpaque(context).takeUnretainedValue()
      let task = transfer.task
      if !task.isSilent { signal() }
      ended(transfer, code, signals: !task.isSilent)
    }
  }

  /// A request of libcurl has ended.
  private func ended(_ transfer: Transfer, _ code: CURLcode, signals: Bool = true) {
    do throws(Failure) {
      // Nil: another request follows from this one.
      if let outcome = try transfer.ended(code) { end(transfer.task, outcome, signals: signals) }
    } catch {
      end(transfer.task, .failed(error), signals: signals)
    }
  }

  /// Wakes the waiters of the tasks that have ended.
  private func signal() {
    guard owesSignal else { return }
    owesSignal = false
    changed.broadcast()
  }

  // MARK: timeouts

  /// Looks at a transfer's timeouts when the first of them may pass.
  func watch(_ transfer: Transfer) {
    nextCheck = min(nextCheck, transfer.deadline)
  }

  private func checkTimeouts() {
    let now = Clock.read(CLOCK_MONOTONIC)
    guard now >= nextCheck else { return }
    nextCheck = Int64.max
    var index = 0
    while index < transfers.count {
      let transfer = transfers[index].takeUnretainedValue()
      transfer.lookAtLease(now)
      if let failure = transfer.timeout(at: now, asked: sockets.asked) {
        // Another one moves to its place.
        end(transfer.task, .failed(failure))
      } else {
        // A connection that moves bytes shifts its deadline: one look at all in a while is enough.
        nextCheck = min(nextCheck, max(transfer.deadline, now + 5_000_000))
        index += 1
      }
    }
  }

  // MARK: the end of a task

  /// Ends a task that has not ended, and makes its completion. `signals`: false if the caller
  /// wakes its waiters.
  func end(_ task: HTTPTask, _ outcome: Outcome, signals: Bool = true) {
    hasEnded = true
    task.lane?.remove(task)
    var metrics = Metrics()
    if let transfer = task.transfer {
      transfer.close(outcome)
      metrics = transfer.metrics
      if transfer.isListed {
        let place = transfer.place
        transfers.removeBySwapping(at: place)
        if place < transfers.count { transfers[place].takeUnretainedValue().place = place }
        transfer.isListed = false
        Unmanaged.passUnretained(transfer).release()
      }
      task.transfer = nil
    }
    task.finish(outcome, metrics)
    conclude(task, signals)
  }

  /// Makes the completion of a task that has ended, and forgets the task.
  func conclude(_ task: HTTPTask, _ signals: Bool = true) {
    deliver(task)
    let reference = lock.withLock {
      task.setDelivered()
      let place = task.place
      let reference = tasks[place]
      tasks.removeBySwapping(at: place)
      if place < tasks.count { tasks[place].takeUnretainedValue().place = place }
      return reference
    }
    if signals { changed.broadcast() } else { owesSignal = true }
    reference.release()
  }
}
