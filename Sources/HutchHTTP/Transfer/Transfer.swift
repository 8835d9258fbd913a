// A transfer is a task that has begun: one request of libcurl, and those that follow from it by
// redirects and challenges. All of it belongs to the session's thread.
//
// libcurl calls back with header lines, with pieces of the body, for pieces to send, and with
// numbers. When the headers of a response are complete, the transfer decides what the response is:
//
//     step         meaning                                  its body
//     response     the final one                            goes where the host wants it
//     redirect     another request follows, to `next`       is dropped
//     retry        the same again, with credentials         is dropped
//     negotiation  libcurl itself repeats the request       is dropped
//     validation   the stored response answers              is dropped
//     completion   it is the rest of a stored part          is put to it
//
// Before a request is made, the cache is asked for it: see Transfer+Cache.swift.
//
// A failure within a callback is noted in `failure`, and the callback makes libcurl stop.

import CCurl
import CHutchHTTP
import CSystem

final class Transfer {
  let task: HTTPTask
  var request: Request { _read { yield task.request } }
  var session: Session { task.session }
  var configuration: Configuration { _read { yield task.session.configuration } }

  /// Nil until the first request: a response of the cache needs none.
  private(set) var easy: UnsafeMutableRawPointer?
  /// libcurl's words for a failure; likewise.
  private var words: UnsafeMutablePointer<CChar>?
  /// The header lines to send.
  var lines: UnsafeMutablePointer<curl_slist>?
  private var isAdded = false
  /// The metrics have the request at hand.
  private var isCounted = false
  /// The session refers to the transfer, at this index of its list.
  var isListed = false
  var place = 0

  // MARK: the request at hand

  var url: Text
  var method: Text
  /// Nil after a redirect that makes the request a GET.
  var body: Body?
  /// A redirect has led to another origin: what was meant for the first is not sent.
  var isForeign = false
  var login = Login()

  // MARK: its response

  enum Step {
    case response, redirect, retry, negotiation, validation, completion
  }
  /// Nil: the headers are not complete.
  var step: Step?
  /// Where a redirect leads.
  var next: Text?
  var response: Response
  /// The request for this URL is made once more: what is stored was no answer.
  var isRepeated = false
  /// Only a stored response is wanted, so a challenge in it is not answered.
  var staysOffline = false
  /// What the request at hand has to do with the cache; nil: nothing.
  var exchange: Exchange?
  /// What the transfer does when it is `ready`.
  var pending = Pending.nothing
  /// It is on the session's list of those that are ready.
  var isReady = false
  var nextReady: Transfer?
  /// Another transfer makes its request, or has made it.
  var flight = Flight()
  var headerBytes: UInt64 = 0
  /// What is dropped of a body that the host does not get.
  private var dropped = 0
  var destination: Destination
  var failure: Failure?
  /// Why the request does not accept the response; nil: it does.
  var rejection: Outcome?

  // MARK: numbers

  var metrics = Metrics()
  var traffic = Traffic()
  private var lastReport: Int64 = 0
  private var reported = Traffic()
  /// CLOCK_MONOTONIC.
  private let began: Int64
  private var lastMove: Int64
  /// The request at hand has a connection, or one is being made for it. Before that it waits for
  /// other requests to the host (`connectionsPerHost`), or for the address of the host.
  private var hasConnection = false
  /// That connection has been made, with the tunnel of a proxy and the TLS handshake.
  private(set) var isConnected = false
  var isPaused = false
  /// The request ends, and the rest of its body is not used.
  private(set) var isDropped = false

  init(of task: HTTPTask) {
    self.task = task
    url = task.request.url
    method = task.request.method
    body = task.request.body
    response = Response(from: task.request.url)
    destination = Destination(for: task)
    began = Clock.read(CLOCK_MONOTONIC)
    lastMove = began
  }

  deinit {
    remove()
    curl_easy_cleanup(easy)
    curl_slist_free_all(lines)
    free(words)
  }

  private func remove() {
    guard isAdded else { return }
    if isPaused {
      // libcurl before 8.1 loses what it keeps of a stream that is paused, if the connection has
      // others (curl's issue 10971). It brings that to `body`, which drops it.
      isDropped = true
      curl_easy_pause(easy, CURLPAUSE_CONT)
      isDropped = false
    }
    curl_multi_remove_handle(session.sockets.multi, easy)
    session.mayHaveIdle = true
    isAdded = false
  }

  /// Makes the request at hand.
  func begin() throws(Failure) {
    remove()
    isCounted = false
    hasConnection = false
    isConnected = false
    step = nil
    next = nil
    headerBytes = 0
    dropped = 0
    rejection = nil
    response = Response(from: url)
    response.redirects = metrics.redirects
    if try isAnsweredByCache() { return }
    let (easy, words) = try handle()
    words.pointee = 0
    try setOptions(easy, words)
    guard curl_multi_add_handle(session.sockets.multi, easy) == CURLM_OK else { throw .noMemory }
    isAdded = true
    metrics.requests += 1
    if isPaused { curl_easy_pause(easy, CURLPAUSE_ALL) }
  }

  /// What libcurl needs: it is made once. The handle has no options.
  private func handle() throws(Failure) -> (
    UnsafeMutableRawPointer, UnsafeMutablePointer<CChar>
  ) {
    if let easy, let words {
      // libcurl 7.88 does not free this list when it resets a handle.
      _ = hutch_curl_pointer(easy, CURLOPT_COOKIEFILE, nil)
      curl_easy_reset(easy)
      return (easy, words)
    }
    let words = try Allocation.array(CChar.self, Int(CURL_ERROR_SIZE))
    guard let easy = curl_easy_init() else {
      free(words)
      throw .noMemory
    }
    self.words = words
    self.easy = easy
    return (easy, words)
  }

  // MARK: pauses

  func pause() {
    leaveFlight(.abandoned)
    if !isPaused, isAdded { curl_easy_pause(easy, CURLPAUSE_ALL) }
    isPaused = true
  }

  /// libcurl brings the piece again at which the transfer was paused. If a callback wants it to
  /// stop, it says so here, and does not stop by itself.
  func proceed() -> CURLcode {
    guard isPaused else { return CURLE_OK }
    isPaused = false
    lastMove = Clock.read(CLOCK_MONOTONIC)
    if isAdded {
      let code = curl_easy_pause(easy, CURLPAUSE_CONT)
      // The other one says that there is no connection yet, or no more.
      if code != CURLE_OK, code != CURLE_BAD_FUNCTION_ARGUMENT {
        // libcurl would bring more of the body, though the cache may answer.
        remove()
        return code
      }
    }
    continueSoon()
    return CURLE_OK
  }

  // MARK: timeouts

  /// When the transfer is to be looked at.
  var deadline: Int64 { min(limit, isPaused ? Int64.max : flight.lease.nextLook) }

  /// When a timeout may pass. libcurl has the one for a connection, with the look-up of its name.
  private var limit: Int64 { min(totalLimit, idleLimit) }

  private var totalLimit: Int64 {
    request.totalTimeout == 0 ? Int64.max : Deadline.sum(began, request.totalTimeout)
  }

  private var idleLimit: Int64 {
    let mayBeIdle = isPaused || flight.isWaiting || !hasConnection
    return mayBeIdle ? Int64.max : Deadline.sum(lastMove, request.idleTimeout)
  }

  /// The timeout that has passed; nil: none has, or a stored response answers in its place.
  /// `asked`: when the sockets were asked for news. What has come since then, while a callback of
  /// the host ran, is read before the request counts as idle.
  func timeout(at now: Int64, asked: Int64) -> Failure? {
    if now >= totalLimit { return Failure(.timedOut, "the request took too long") }
    guard asked >= idleLimit else { return nil }
    if isAnsweredInPlaceOfError() { return nil }
    return Failure(
      .timedOut, isConnected ? "no byte moved for too long" : "the connection took too long")
  }

  /// The server does not answer, and a stored response may stand in for that.
  private func isAnsweredInPlaceOfError() -> Bool {
    guard step == nil || step == .validation, let stored = replacement else { return false }
    count()
    remove()
    hasConnection = false
    answerSoon(stored, "fwd=stale")
    return true
  }

  /// libcurl makes a connection for the request at hand, or has one for it (`isMade`).
  func getsConnection(isMade: Bool) {
    hasConnection = true
    isConnected = isMade
    hasMoved()
    session.watch(self)
  }

  // MARK: the end of a request

  /// What a result of libcurl means for the task; nil: another request has begun.
  func ended(_ code: CURLcode) throws(Failure) -> Outcome? {
    count()
    if step == nil, failure?.status.code == Int32(HUTCH_HTTP_BAD_RESPONSE), replacement != nil {
      // Headers that are malformed are an error as a lost connection is.
      failure = nil
    }
    if failure == nil, try isAnsweredByCache(after: code) { return nil }
    leaveFlight(code == CURLE_OK && failure == nil && step != nil ? .answered : .failed)
    return try concluded(code)
  }

  /// `ended`, for a response of the cache too.
  func concluded(_ code: CURLcode) throws(Failure) -> Outcome? {
    // libcurl's words say only that a callback has failed.
    if let failure { return .failed(failure) }
    switch step {
    case .redirect?:
      guard let next else { return .failed(.noMemory) }
      try follow(next)
      return nil
    case .retry?:
      try rewind()
      isRepeated = true
      try begin()
      return nil
    default: break
    }
    if let status = destination.hostsStatus {
      return .failed(Failure(.named(status), "a function of the host has ended the task"))
    }
    guard code == CURLE_OK else { return .failed(failing(code), detail ?? text(of: code)) }
    // libcurl takes headers without their end for a response.
    guard step != nil else {
      return .failed(.http(HUTCH_HTTP_LOST, "the connection ended within the headers"))
    }
    // libcurl did not repeat a request that it was to repeat.
    if step == .negotiation { try respond() }
    if let rejection {
      // The headers did not tell that the body is empty: it needs no type.
      guard rejection.status == Int32(HUTCH_HTTP_MEDIA_TYPE), response.body.isEmpty,
        try destination.begin(response)
      else { return rejection }
    }
    if task.isCancelled { return .cancelled }
    try destination.complete()
    if request.decoders.isEmpty { return .done }
    return try request.decoders.decode(response, for: task) ?? .done
  }

  private var detail: Text? {
    guard let words, words.pointee != 0 else { return nil }
    return try? Text(words)
  }

  /// What libcurl calls a result, if it said nothing more of it.
  private func text(of code: CURLcode) -> Text? {
    guard let words = curl_easy_strerror(code) else { return nil }
    return try? Text(words)
  }

  func failing(_ code: CURLcode) -> Failure {
    var failure = Failure.curl(code)
    // A proxy that makes no tunnel is a lost connection to libcurl.
    if !isConnected, failure.status.code == Int32(HUTCH_HTTP_LOST) {
      failure = .curl(CURLE_COULDNT_CONNECT)
    }
    failure.system = Int32(truncatingIfNeeded: hutch_curl_info_number(easy, CURLINFO_OS_ERRNO))
    return failure
  }

  /// The task ends: nothing calls back any more, but for a last report of progress.
  func close(_ outcome: Outcome) {
    // What a request cost that did not come to its end.
    if isAdded, outcome.status != 0, !isCounted { count() }
    leaveFlight(outcome.status == Status.cancelled.code ? .abandoned : .failed)
    remove()
    metrics.total = Clock.read(CLOCK_MONOTONIC) - began
    destination.close()
    if traffic != reported { report(Clock.read(CLOCK_MONOTONIC)) }
  }

  /// Adds what the request at hand cost.
  private func count() {
    isCounted = true
    func time(_ info: CURLINFO) -> Int64 { hutch_curl_info_size(easy, info) &* 1000 }
    func size(_ info: CURLINFO) -> UInt64 { UInt64(max(0, hutch_curl_info_size(easy, info))) }
    func number(_ info: CURLINFO) -> UInt64 { UInt64(max(0, hutch_curl_info_number(easy, info))) }
    metrics.nameLookup = time(CURLINFO_NAMELOOKUP_TIME_T)
    metrics.connect = time(CURLINFO_CONNECT_TIME_T)
    metrics.tls = time(CURLINFO_APPCONNECT_TIME_T)
    metrics.firstByte = time(CURLINFO_STARTTRANSFER_TIME_T)
    metrics.connections += number(CURLINFO_NUM_CONNECTS)
    if number(CURLINFO_NUM_CONNECTS) == 0 {
      metrics.nameLookup = 0
      metrics.connect = 0
      metrics.tls = 0
    }
    metrics.bytesSent += number(CURLINFO_REQUEST_SIZE) + size(CURLINFO_SIZE_UPLOAD_T)
    metrics.bytesReceived += number(CURLINFO_HEADER_SIZE) + size(CURLINFO_SIZE_DOWNLOAD_T)
  }

  /// The next request goes to another URL.
  func go(to next: Text) {
    url = next
    metrics.redirects += 1
    isRepeated = false
    flight.hasWaited = false
    flight.hasSeenFailure = false
    flight.lease = Lease()
  }

  // MARK: progress

  /// libcurl's numbers of the request at hand.
  func moved(_ receives: Int64, _ received: Int64, _ sends: Int64, _ sent: Int64) {
    var now = traffic
    now.sent = UInt64(max(0, sent))
    now.expectedToSend = UInt64(max(0, sends))
    if step == .response {
      now.received = destination.offset + UInt64(max(0, received))
      now.expected = receives <= 0 ? 0 : destination.offset + UInt64(receives)
    }
    guard now != traffic else { return }
    traffic = now
    let time = Clock.read(CLOCK_MONOTONIC)
    lastMove = time
    if time - lastReport >= configuration.progressInterval { report(time) }
  }

  /// Bytes of headers, or within the TLS handshake, move no number of a body.
  func hasMoved() {
    // Once for each line: this clock costs a fifth, and is a few milliseconds late.
    lastMove = max(lastMove, Clock.read(CLOCK_MONOTONIC_COARSE))
  }

  private func report(_ time: Int64) {
    lastReport = time
    reported = traffic
    task.publish(traffic)
    guard let call = request.onProgress else { return }
    var progress = hutch_http_progress(traffic)
    task.calling { call(request.context, task.pointer, &progress) }
  }

  // MARK: bodies

  /// A piece of the response's body; false: libcurl is to stop.
  func receive(_ bytes: Bytes) -> Bool {
    // A body in memory is not copied while it comes.
    if step != .response || request.download != nil || request.onBody != nil {
      exchange?.record(bytes, most: configuration.maxBody, self)
    }
    guard step == .response else {
      if step == .completion, exchange?.draft != nil { return true }
      // A redirect's body is read to use the connection again, but not for ever.
      dropped += bytes.count
      return dropped <= 65_536
    }
    do throws(Failure) {
      return try destination.receive(bytes, self)
    } catch {
      failure = error
      return false
    }
  }
}
