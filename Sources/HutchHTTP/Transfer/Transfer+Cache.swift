import CCurl
import CHutchHTTP
import CSystem

/// What a transfer does next without libcurl.
enum Pending {
  case nothing
  /// Makes its request: the transfer that it waited for has ended.
  case request
  /// Takes a stored response; the words are for Cache-Status.
  case answer(StoredResponse, StaticString)
  /// Gives the host this part of a stored body: the task was suspended within it.
  case rest(StoredResponse, Range<Int>)
  /// 504: only a stored response is wanted, and there is none.
  case refusal
}

/// A transfer and the cache (RFC 9111).
extension Transfer {
  private func isMethod(_ name: StaticString) -> Bool { Letters.areSame(method.start, name) }

  // MARK: before a request

  /// True: no request is made now. The stored response answers, or that of another transfer does.
  func isAnsweredByCache() throws(Failure) -> Bool {
    let former = exchange
    pending = .nothing
    exchange = try newExchange()
    guard let exchange else {
      staysOffline = cacheMode == UInt32(HUTCH_HTTP_CACHE_ONLY)
      return staysOffline && refuses()
    }
    staysOffline = exchange.staysOffline
    if exchange.isMode(HUTCH_HTTP_CACHE_RELOAD) {
      exchange.remark = "fwd=request"
      return false
    }
    // A validation that went wrong is not tried again.
    if !isRepeated, !(former?.isRefuted ?? false), try isFound(exchange) { return true }
    if exchange.staysOffline { return refuses() }
    guard isMethod("GET"), !exchange.hasOwnConditions, !exchange.asked.hasNoStore else {
      return false
    }
    return try joinsFlight(exchange)
  }

  /// Code 504 answers.
  private func refuses() -> Bool {
    pending = .refusal
    continueSoon()
    return true
  }

  /// The request's, or the session's; 0: neither has one.
  private var cacheMode: UInt32 {
    request.cacheMode == 0 ? configuration.cache?.mode ?? 0 : request.cacheMode
  }

  /// Nil: the request is made without the cache.
  private func newExchange() throws(Failure) -> Exchange? {
    let mode = cacheMode
    guard let cache = configuration.cache, mode != UInt32(HUTCH_HTTP_CACHE_NONE),
      isMethod("GET") || isMethod("HEAD"),
      body == nil, !request.isResumable, request.fields.value(of: "If-Match") == nil,
      request.fields.value(of: "If-Unmodified-Since") == nil,
      request.fields.value(of: "If-Range") == nil, !asksAnotherHost
    else { return nil }
    return Exchange(cache, try HTTPCache.key(of: url), mode, request.fields)
  }

  /// A header Host names the resource in place of the URL, by which responses are stored (RFC 9110,
  /// section 7.1).
  private var asksAnotherHost: Bool { sends("Host") }

  /// A response in memory that answers as it is, without a request before or behind it, for the
  /// thread that resumes the task; nil: the session's thread has to do it.
  func findFresh() throws(Failure) -> StoredResponse? {
    guard let exchange = try newExchange(), !exchange.isMode(HUTCH_HTTP_CACHE_RELOAD),
      !exchange.isMode(HUTCH_HTTP_CACHE_VALIDATE)
    else { return nil }
    let cache = exchange.cache
    guard let stored = try cache.find(exchange.key, for: self, isInMemory: true) else { return nil }
    switch stored.code {
    // A redirect or a challenge may lead to a request, and a part may.
    case 206, 301, 302, 303, 307, 308, 401, 407: return nil
    default: break
    }
    if exchange.isMode(HUTCH_HTTP_CACHE_ELSE_LOAD) || exchange.isMode(HUTCH_HTTP_CACHE_ONLY) {
      return stored
    }
    let verdict = stored.verdict(
      exchange.asked, at: exchange.requestTime, isShared: cache.isShared)
    if case .use = verdict { return stored }
    return nil
  }

  /// Looks for a stored response, and uses it or keeps it for a validation.
  private func isFound(_ exchange: Exchange) throws(Failure) -> Bool {
    let cache = exchange.cache
    guard let stored = try cache.find(exchange.key, for: self) else { return false }
    if stored.code == 206 { return isFoundPart(stored, exchange) }
    func use(_ words: StaticString) -> Bool {
      answerSoon(stored, words)
      return true
    }
    if exchange.isMode(HUTCH_HTTP_CACHE_ELSE_LOAD) || exchange.isMode(HUTCH_HTTP_CACHE_ONLY) {
      return use("hit")
    }
    let isValidating = exchange.isMode(HUTCH_HTTP_CACHE_VALIDATE)
      && !stored.needsNoValidation(at: exchange.requestTime, isShared: cache.isShared)
    if flight.hasWaited {
      let isNews = isValidating
        ? stored.responseTime >= flight.joined
        : stored.isForRequestsThatWaited(since: flight.joined, isShared: cache.isShared)
      if isNews { return use("fwd=miss; collapsed") }
    }
    if !isValidating {
      let asked = exchange.asked
      switch stored.verdict(asked, at: exchange.requestTime, isShared: cache.isShared) {
      case .use: return use(flight.hasWaited ? "fwd=miss; collapsed" : "hit")
      case .useAndValidate:
        if !exchange.staysOffline { validateBehind() }
        return use("hit")
      case .validate: break
      }
    }
    exchange.remark = isValidating || exchange.asked.hasNoCache ? "fwd=request" : "fwd=stale"
    if exchange.hasOwnConditions { exchange.known = stored } else { exchange.stored = stored }
    return false
  }

  /// Asks for the response again with a task of the library's own, while this one answers.
  private func validateBehind() {
    do throws(Failure) {
      guard !isForeign else { return }
      var headers = GrowingArray<hutch_http_header>()
      for index in 0..<request.fields.count {
        let name = request.fields.name(index)
        // It is about the whole, whatever of it the host wants or has.
        if Letters.areSame(name, "Range") || Letters.areSame(name, "If-None-Match")
          || Letters.areSame(name, "If-Modified-Since")
        {
          continue
        }
        try headers.append(hutch_http_header(name: name, value: request.fields.value(index)))
      }
      var given = hutch_http_request()
      given.url = UnsafePointer(url.start)
      given.headers = UnsafePointer(headers.elements.baseAddress)
      given.header_count = headers.count
      given.flags = request.flags & UInt32(HUTCH_HTTP_COMPRESSED) | UInt32(HUTCH_HTTP_NO_REDIRECTS)
      given.cache_mode = UInt32(HUTCH_HTTP_CACHE_VALIDATE)
      request.acceptance.copy(to: &given)
      // The body is the cache's alone: it is not kept in memory beside that.
      given.on_body = { _, _, _, _ in Status.done.code }
      let behind = HTTPTask(
        try Request.checked(given, for: configuration), of: session,
        priority: Int(HUTCH_PRIORITY_LOW))
      behind.isBehind = true
      try session.add(behind)
      behind.resume()
    } catch {
      // The next request finds the response as stale as this one.
    }
  }

  // MARK: when the headers are there

  /// The response says that the stored one answers.
  func isValidation() throws(Failure) -> Bool {
    guard let exchange else { return false }
    if exchange.part != nil, try isCompletion(exchange) { return true }
    if response.code == 304, let known = exchange.known,
      let tag = response.fields.value(of: "ETag"), let mine = known.fields.value(of: "ETag"),
      !Selection.isWeak(bytes(of: tag)), bytes(of: mine).hasSameBytes(as: bytes(of: tag))
    {
      // The server answers the condition of the host, and speaks of the stored version.
      try update(known, exchange)
    }
    guard let stored = exchange.stored else { return false }
    switch response.code {
    case 304:
      guard exchange.hasValidator else { return false }
    case 500, 502, 503, 504:
      guard replacement != nil else { return false }
    default:
      if isMethod("HEAD") { try freshen(stored, exchange) }
      return false
    }
    step = .validation
    return true
  }

  /// The stored response, if it may answer in place of an error. A host that wants a validation
  /// gets none without.
  var replacement: StoredResponse? {
    guard let exchange, let stored = exchange.stored,
      task.isBehind || !exchange.isMode(HUTCH_HTTP_CACHE_VALIDATE)
    else { return nil }
    let cache = exchange.cache
    let may = stored.mayReplaceError(exchange.asked, at: cache.now, isShared: cache.isShared)
    return may ? stored : nil
  }

  /// By the response to a HEAD (RFC 9111, section 4.3.5).
  private func freshen(_ stored: StoredResponse, _ exchange: Exchange) throws(Failure) {
    if response.code == 200, stored.code == 200, isSameVersion(stored) {
      try update(stored, exchange)
    } else if response.code == 200 || response.code == 404 || response.code == 410 {
      exchange.cache.remove(exchange.key)
    }
  }

  /// Stores a response with the headers of one that is about the same version.
  private func update(_ stored: StoredResponse, _ exchange: Exchange) throws(Failure) {
    let cache = exchange.cache
    guard response.fields.count <= Storing.mostFields else { return cache.remove(exchange.key) }
    stored.fields = try Storing.updated(
      stored.fields, with: response.fields, isShared: cache.isShared)
    stored.requestTime = exchange.requestTime
    stored.responseTime = cache.now
    if response.fields.value(of: "Date") == nil { try stored.setDate() }
    stored.readControl()
    stored.variance.removeAll()
    guard try noteVariance(stored), Storing.mayStay(stored, isShared: cache.isShared) else {
      return cache.remove(exchange.key)
    }
    if mayKeep(stored, exchange), !exchange.isOutdated {
      try cache.store(stored, at: exchange.key, for: self)
    }
  }

  /// The request lets what its response has changed be stored.
  func mayKeep(_ changed: StoredResponse, _ exchange: Exchange) -> Bool {
    guard !exchange.asked.hasNoStore else { return false }
    return !exchange.cache.isShared || !hasAuthorization || Storing.isForOthers(changed.control)
  }

  private var hasAuthorization: Bool { hasUser || sends("Authorization") }

  /// As far as the validators of both say.
  private func isSameVersion(_ stored: StoredResponse) -> Bool {
    func agrees(_ name: StaticString) -> Bool {
      guard let mine = stored.fields.value(of: name), let news = response.fields.value(of: name)
      else { return true }
      return bytes(of: mine).hasSameBytes(as: bytes(of: news))
    }
    return agrees("ETag") && agrees("Last-Modified") && agrees("Content-Length")
  }

  /// Decides whether the response is stored, and invalidates what it makes outdated.
  func prepareToStore() throws(Failure) {
    try invalidate()
    if exchange == nil { exchange = try exchangeOfPost() }
    guard let exchange else { return }
    let cache = exchange.cache
    exchange.draft = nil
    let control = cache.control(of: response.fields)
    guard !isMethod("HEAD"), !exchange.isOutdated, response.code != 206 || isPartToStore,
      Storing.isAllowed(
        response, control, exchange.asked, isShared: cache.isShared,
        hasAuthorization: hasAuthorization)
    else {
      leaveFlight(.answered)
      // What is stored is older than a response that must not be.
      if isMethod("GET"), response.code <= 299, control.hasNoStore {
        cache.remove(exchange.key)
      }
      return
    }
    let draft = try newDraft(exchange)
    guard try noteVariance(draft) else {
      leaveFlight(.answered)
      return
    }
    exchange.draft = draft
    exchange.writer = nil
    exchange.recording.removeAll()
  }

  /// Of the response's body, if the headers tell; else 0.
  var expectedSize: UInt64 {
    guard let text = response.fields.value(of: "Content-Length"),
      response.fields.value(of: "Content-Encoding") == nil,
      let size = CacheControl.size(bytes(of: text))
    else { return 0 }
    return UInt64(size)
  }

  /// What is stored of the response's headers.
  func newDraft(_ exchange: Exchange) throws(Failure) -> StoredResponse {
    let draft = StoredResponse(isTargeted: exchange.cache.isTargeted)
    draft.code = response.code
    draft.version = response.version
    draft.isDecoded =
      request.decodes(response.fields) && response.fields.value(of: "Content-Encoding") != nil
    draft.requestTime = exchange.requestTime
    draft.responseTime = exchange.cache.now
    try Storing.copy(response.fields, to: &draft.fields, isShared: exchange.cache.isShared)
    if response.fields.value(of: "Date") == nil { try draft.setDate() }
    draft.readControl()
    return draft
  }

  /// For a response to POST that may answer a later GET; nil: it may not.
  private func exchangeOfPost() throws(Failure) -> Exchange? {
    guard let cache = configuration.cache, isMethod("POST"), !asksAnotherHost,
      cacheMode != UInt32(HUTCH_HTTP_CACHE_NONE),
      Storing.isAllowedForPost(
        response, cache.control(of: response.fields), isShared: cache.isShared),
      let place = response.fields.value(of: "Content-Location"),
      let other = try Address.resolve(place, against: url)
    else { return nil }
    let key = try HTTPCache.key(of: url)
    let its = try HTTPCache.key(of: other)
    guard Bytes(start: key.start, count: key.count).hasSameBytes(
      as: Bytes(start: its.start, count: its.count))
    else { return nil }
    withExtendedLifetime(its) {}
    let result = Exchange(cache, key, UInt32(HUTCH_HTTP_CACHE_BY_PROTOCOL), request.fields)
    result.remark = "fwd=method"
    return result
  }

  /// After a request that may change the resource (RFC 9111, section 4.4).
  private func invalidate() throws(Failure) {
    guard let cache = configuration.cache, response.code >= 200, response.code < 400,
      !isMethod("GET"), !isMethod("HEAD"), !isMethod("OPTIONS"), !isMethod("TRACE")
    else { return }
    try invalidate(url, cache)
    try invalidate(placeIn: "Location", cache)
    try invalidate(placeIn: "Content-Location", cache)
  }

  private func invalidate(placeIn name: StaticString, _ cache: HTTPCache) throws(Failure) {
    guard let place = response.fields.value(of: name),
      let other = try Address.resolve(place, against: url), Address.haveSameOrigin(url, other)
    else { return }
    try invalidate(other, cache)
  }

  private func invalidate(_ url: Text, _ cache: HTTPCache) throws(Failure) {
    let key = try HTTPCache.key(of: url)
    cache.remove(key)
    // A response that is on its way may be older than the change.
    for transfer in session.transfers.elements {
      let exchange = transfer.takeUnretainedValue().exchange
      if let exchange, bytes(of: exchange.key.start).hasSameBytes(as: bytes(of: key.start)) {
        exchange.becomeOutdated()
      }
    }
    withExtendedLifetime(key) {}
  }

  /// Adds Cache-Status (RFC 9211) to a response of the network.
  func tellCacheStatus() throws(Failure) {
    guard let exchange else { return }
    var text = GrowingArray<UInt8>()
    try text.append("hutch; ")
    try text.append(exchange.remark)
    try append("Cache-Status", text)
  }

  func append(_ name: StaticString, _ value: borrowing GrowingArray<UInt8>) throws(Failure) {
    try response.fields.append(
      name: bytes(of: name),
      value: Bytes(value.elements))
  }

  // MARK: when a request has ended

  /// Stores the response, or takes the stored one in its place. True: the transfer continues with
  /// that one.
  func isAnsweredByCache(after code: CURLcode) throws(Failure) -> Bool {
    guard let exchange else { return false }
    if step == .validation, let stored = exchange.stored {
      return try isValidated(stored, exchange)
    }
    if step == .completion { return try isCompleted(after: code, exchange) }
    if step == nil, isOfServer(code), let stored = replacement {
      answerSoon(stored, "fwd=stale")
      return true
    }
    if rejection == nil, step == .response || step == .redirect, let draft = exchange.draft {
      let isInMemory = step == .response && request.download == nil && request.onBody == nil
      let body = Bytes(isInMemory ? response.body.elements : exchange.recording.elements)
      if code != CURLE_OK {
        storeCut(draft, body, exchange)
      } else if let writer = exchange.writer {
        // It is of the very response that has ended.
        if writer.commit() {
          response.place = writer.place(of: exchange.written, in: exchange.cache, at: exchange.key)
        } else {
          exchange.cache.remove(exchange.key)
        }
      } else {
        store(draft, body, exchange)
      }
    }
    return false
  }

  /// The server or the way to it failed. Nothing stands in for a server that is not trusted.
  private func isOfServer(_ code: CURLcode) -> Bool {
    let status = failing(code).status.code
    return code == CURLE_OK || status == HUTCH_TIMED_OUT
      || (Int32(HUTCH_HTTP_BAD_RESPONSE)...Int32(HUTCH_HTTP_NO_HOST)).contains(status)
  }

  /// A response that cannot be stored is a response all the same.
  private func store(_ draft: StoredResponse, _ body: Bytes, _ exchange: Exchange) {
    do throws(Failure) {
      try draft.setBody(body)
      if draft.code == 206 { return try storePart(draft, exchange) }
      try exchange.cache.store(draft, at: exchange.key, for: self)
    } catch {
      exchange.cache.remove(exchange.key)
    }
  }

  private func isValidated(
    _ stored: StoredResponse, _ exchange: Exchange
  ) throws(Failure) -> Bool {
    if response.code == 304 {
      // A 304 about another version says nothing of this one.
      if let mine = stored.fields.value(of: "ETag"), let news = response.fields.value(of: "ETag"),
        !isConfirmed(bytes(of: mine), by: bytes(of: news))
      {
        leaveFlight(.abandoned)
        exchange.isRefuted = true
        try begin()
        return true
      }
      try update(stored, exchange)
      answerSoon(stored, "fwd=stale; fwd-status=304")
    } else {
      answerSoon(stored, "fwd=stale")
    }
    return true
  }

  /// A strong tag confirms the version that has it; a weak one that with the same text (section
  /// 4.3.4).
  private func isConfirmed(_ mine: Bytes, by news: Bytes) -> Bool {
    Selection.isWeak(news)
      ? Selection.strong(mine).hasSameBytes(as: Selection.strong(news))
      : mine.hasSameBytes(as: news)
  }

  // MARK: the stored response

  /// A stored response answers: it does so for those too that wait for this transfer. They ask the
  /// cache now, and not when the host has the whole body, or what a redirect leads to.
  func answerSoon(_ stored: StoredResponse, _ words: StaticString) {
    // It no longer waits for a lease.
    flight.isWaiting = false
    leaveFlight(.answered)
    pending = .answer(stored, words)
    continueSoon()
  }

  /// Does what is pending. An outcome: the task ends.
  func continueWithCache() throws(Failure) -> Outcome? {
    let now = pending
    pending = .nothing
    switch now {
    case .nothing: return nil
    case .request:
      try begin()
      return nil
    case .answer(let stored, let words): return try answer(stored, words)
    case .rest(let stored, let part): return try pass(stored, part)
    case .refusal:
      response.code = 504
      response.version = 11
      exchange?.remark = "detail=only-if-cached"
      try respond()
      return try concluded(CURLE_OK)
    }
  }
}
