import CSystem

/// Several transfers for one URL make one request (RFC 9111, section 4: collapsed requests). The
/// first one leads. The others wait until it has ended, and then ask the cache again; one that
/// cannot use what the leader has stored makes its own request. If the leader is cancelled or
/// suspended, the next one leads. If its request fails, the next one leads too, so that a failing
/// server does not get the requests of all at once. No transfer waits for a third request. Among
/// sessions that share a directory, a lease does the same for the leaders: see Lease.swift.
struct Flight: ~Copyable {
  var leads = false
  var isWaiting = false
  /// It has waited for a response, so it waits no more for this URL.
  var hasWaited = false
  /// A request that it waited for has failed.
  var hasSeenFailure = false
  /// When it began to wait, by the cache's clock.
  var joined: Int64 = 0
  /// Of a leader.
  var lease = Lease()
  /// Those that wait for this transfer: a counted reference to each.
  var followers = GrowingArray<Unmanaged<Transfer>>()
}

/// What a leader leaves to those that wait.
enum FlightEnd {
  /// Its response, or nothing that may be shared.
  case answered
  /// No response has come.
  case failed
  /// It was cancelled or suspended, or begins anew.
  case abandoned
}

extension Transfer {
  /// True: another transfer's response is waited for.
  func joinsFlight(_ exchange: Exchange) throws(Failure) -> Bool {
    if flight.leads { return try awaitsLease(exchange) }
    for leader in session.leaders.elements {
      let leader = leader.takeUnretainedValue()
      guard let key = leader.exchange?.key,
        bytes(of: key.start).hasSameBytes(as: bytes(of: exchange.key.start))
      else { continue }
      if flight.hasWaited { return false }
      if task.isBehind {
        // One validation is enough, also if it fails: this one ends.
        pending = .refusal
        continueSoon()
        return true
      }
      try leader.flight.followers.append(Unmanaged.passUnretained(self))
      _ = Unmanaged.passRetained(self)
      flight.isWaiting = true
      flight.joined = exchange.requestTime
      return true
    }
    try session.leaders.append(Unmanaged.passUnretained(self))
    flight.leads = true
    return try awaitsLease(exchange)
  }

  /// True: another session makes the request; or the cache is looked into again, since that session
  /// may have stored its response after this one looked.
  private func awaitsLease(_ exchange: Exchange) throws(Failure) -> Bool {
    let now = Clock.read(CLOCK_MONOTONIC)
    let wasWaiting = flight.isWaiting
    flight.isWaiting = false
    switch try flight.lease.take(exchange.cache, of: exchange.key, now: now) {
    case .lead: return false
    case .look:
      pending = .request
      continueSoon()
    case .wait:
      if !wasWaiting { flight.joined = exchange.requestTime }
      flight.isWaiting = true
      flight.hasWaited = true
    }
    return true
  }

  /// Looks at a lease whose time it is.
  func lookAtLease(_ now: Int64) {
    guard now >= flight.lease.nextLook, flight.leads, let cache = configuration.cache else {
      return
    }
    if flight.isWaiting {
      hasMoved()
      pending = .request
      continueSoon()
    } else {
      flight.lease.renew(cache, now: now)
    }
  }

  /// Nothing more comes of this transfer for those that wait.
  func leaveFlight(_ end: FlightEnd) {
    guard flight.leads else { return }
    flight.leads = false
    if let cache = configuration.cache { flight.lease.release(cache) }
    if flight.isWaiting {
      // It is suspended, and asks for itself when it is resumed.
      flight.isWaiting = false
      pending = .request
    }
    for index in 0..<session.leaders.count
    where session.leaders[index].takeUnretainedValue() === self {
      session.leaders.removeBySwapping(at: index)
      break
    }
    while let reference = flight.followers.popLast() {
      let follower = reference.takeUnretainedValue()
      if follower.isListed, follower.flight.isWaiting {
        follower.flight.isWaiting = false
        switch end {
        case .answered: follower.flight.hasWaited = true
        case .failed:
          follower.flight.hasWaited = follower.flight.hasSeenFailure
          follower.flight.hasSeenFailure = true
        case .abandoned: break
        }
        follower.pending = .request
        follower.hasMoved()
        follower.continueSoon()
      }
      reference.release()
    }
  }

  /// Puts the transfer on the list of those that are ready, unless it is paused.
  func continueSoon() {
    if case .nothing = pending { return }
    if isListed, !isReady, !isPaused { session.letContinue(self) }
  }

  /// Takes the transfer from the list, of which it is the first, and returns the next one.
  func takeNextReady() -> Transfer? {
    isReady = false
    defer { nextReady = nil }
    return nextReady
  }
}
