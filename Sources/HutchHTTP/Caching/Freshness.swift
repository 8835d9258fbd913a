import CSystem

/// Whether a stored response may answer a request (RFC 9111, section 4.2; RFC 5861).
extension StoredResponse {
  /// How old and how long fresh a response is, in seconds.
  struct Freshness {
    var age: Int64
    var lifetime: Int64
    /// The response itself says how long it is fresh.
    var isExplicit: Bool

    var isFresh: Bool { lifetime > age }
    /// How long it has been stale.
    var staleness: Int64 { max(0, age - lifetime) }
  }

  private static var nanoseconds: Int64 { 1_000_000_000 }

  private func date(_ name: StaticString) -> Int64? {
    guard let text = fields.value(of: name) else { return nil }
    return HTTPDate.seconds(bytes(of: text), now: received)
  }

  /// When it came, in Unix seconds.
  var received: Int64 { responseTime / StoredResponse.nanoseconds }

  /// When it was changed, as far as that is known (RFC 9111, section 4.3.2).
  var changed: Int64 { date("Last-Modified") ?? date("Date") ?? received }

  /// `now` in Unix nanoseconds.
  func freshness(at now: Int64, isShared: Bool) -> Freshness {
    let date = self.date("Date") ?? received
    // Section 4.2.3.
    let delay = max(0, responseTime.subtractingReportingOverflow(requestTime).partialValue)
    // A clock that has been set back makes a response as old as it was set back by: it would else
    // stay fresh until the time when it came comes again.
    let passed = now.subtractingReportingOverflow(responseTime).partialValue
    let resident = Int64(clamping: passed.magnitude)
    let initial = max(
      max(0, received - date), ageThatCame + delay / StoredResponse.nanoseconds)
    let age = initial + resident / StoredResponse.nanoseconds
    if let explicit = explicitLifetime(date, isShared) {
      return Freshness(age: age, lifetime: explicit, isExplicit: true)
    }
    return Freshness(age: age, lifetime: heuristicLifetime(date), isExplicit: false)
  }

  /// The first number of Age; 0 if it is malformed.
  private var ageThatCame: Int64 {
    guard let text = fields.value(of: "Age") else { return 0 }
    var members = ListReader(bytes(of: text))
    return members.next().flatMap(CacheControl.number) ?? 0
  }

  /// Section 4.2.1.
  private func explicitLifetime(_ date: Int64, _ isShared: Bool) -> Int64? {
    if isShared, let age = control.sharedMaxAge { return age }
    if let age = control.maxAge { return age }
    // One that is malformed, as "0" is, means the past.
    guard !control.isTargeted, fields.value(of: "Expires") != nil else { return nil }
    guard let expires = self.date("Expires") else { return 0 }
    return max(0, expires - date)
  }

  /// A tenth of the time since the last change, at most a day (section 4.2.2).
  private func heuristicLifetime(_ date: Int64) -> Int64 {
    guard Storing.isCacheableByDefault(code) || control.isPublic,
      let changed = self.date("Last-Modified"), changed < date
    else { return 0 }
    return min((date - changed) / 10, 86_400)
  }

  enum Verdict {
    /// As it is.
    case use
    /// As it is, while a request validates it (RFC 5861, section 3).
    case useAndValidate
    case validate
  }

  func verdict(_ asked: CacheControl, at now: Int64, isShared: Bool) -> Verdict {
    if asked.hasNoCache || control.hasNoCache { return .validate }
    let state = freshness(at: now, isShared: isShared)
    // An age of 0 is what asks for a validation.
    if let most = asked.maxAge, state.age > most || most == 0 { return .validate }
    if let least = asked.minFresh, state.lifetime - state.age < least { return .validate }
    if state.isFresh { return .use }
    if !mayBeStale(isShared) { return .validate }
    if let most = asked.maxStale, state.staleness <= most { return .use }
    if let most = control.staleWhileRevalidate, state.staleness <= most { return .useAndValidate }
    return .validate
  }

  /// Section 4.2.4.
  private func mayBeStale(_ isShared: Bool) -> Bool {
    if control.mustRevalidate || control.hasNoCache { return false }
    return !isShared || !(control.proxyRevalidate || control.sharedMaxAge != nil)
  }

  /// It may answer in place of an error (RFC 5861, section 4).
  func mayReplaceError(_ asked: CacheControl, at now: Int64, isShared: Bool) -> Bool {
    guard mayBeStale(isShared), control.staleIfError != nil || asked.staleIfError != nil else {
      return false
    }
    let most = max(control.staleIfError ?? 0, asked.staleIfError ?? 0)
    return freshness(at: now, isShared: isShared).staleness <= most
  }

  /// The server promises that nothing changes as long as the response is fresh: a validation would
  /// be in vain (RFC 8246, section 2).
  func needsNoValidation(at now: Int64, isShared: Bool) -> Bool {
    control.isImmutable && freshness(at: now, isShared: isShared).isFresh
  }

  /// It may answer requests of before it came: the response does not say when it is stale.
  func isForRequestsThatWaited(since time: Int64, isShared: Bool) -> Bool {
    responseTime >= time && !control.hasNoCache && !control.mustRevalidate
      && !freshness(at: responseTime, isShared: isShared).isExplicit
  }
}
