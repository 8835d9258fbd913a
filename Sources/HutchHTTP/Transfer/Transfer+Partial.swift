import CCurl
import CHutchHTTP
import CSystem

/// Stored parts of bodies (RFC 9111, sections 3.3 and 3.4); see PartialResponse.swift.
extension Transfer {
  /// The host has set conditions beside a range.
  private var hasCondition: Bool {
    request.fields.value(of: "If-None-Match") != nil
      || request.fields.value(of: "If-Modified-Since") != nil
  }

  /// Uses a stored part if it has the range that the host asks for, or notes what is missing of the
  /// whole. True: it answers.
  func isFoundPart(_ stored: StoredResponse, _ exchange: Exchange) -> Bool {
    guard let part = stored.part, Letters.areSame(method.start, "GET"), !hasCondition else {
      return false
    }
    if request.fields.value(of: "Range") != nil {
      guard case .part(let bounds) = Selection(request.fields, of: stored),
        part.bounds.lowerBound <= bounds.lowerBound, bounds.upperBound <= part.bounds.upperBound,
        mayAnswer(stored, exchange)
      else { return false }
      answerSoon(stored, "hit")
      return true
    }
    guard let missing = stored.missing, !exchange.staysOffline else { return false }
    exchange.part = stored
    exchange.range = missing
    exchange.remark = "fwd=partial"
    return false
  }

  private func mayAnswer(_ stored: StoredResponse, _ exchange: Exchange) -> Bool {
    if exchange.isMode(HUTCH_HTTP_CACHE_ELSE_LOAD) || exchange.isMode(HUTCH_HTTP_CACHE_ONLY) {
      return true
    }
    guard !exchange.isMode(HUTCH_HTTP_CACHE_VALIDATE) else { return false }
    let verdict = stored.verdict(
      exchange.asked, at: exchange.requestTime, isShared: exchange.cache.isShared)
    if case .use = verdict { return true }
    return false
  }

  // MARK: the rest of a part

  /// The headers of the response to a request for the rest are there. True: the host does not get
  /// this response. It is the rest, or the request is to be made again for the whole.
  func isCompletion(_ exchange: Exchange) throws(Failure) -> Bool {
    guard let part = exchange.part else { return false }
    switch response.code {
    case 206: break
    // The server does not have the range, or answers a question that it was not asked.
    case 304, 416:
      exchange.draft = nil
      step = .completion
      return true
    default:
      exchange.part = nil
      return false
    }
    exchange.draft = nil
    step = .completion
    guard !exchange.isOutdated, let range = ResumePoint.range(in: response.fields),
      let size = part.part?.size,
      range.start == UInt64(exchange.range.lowerBound),
      range.end == UInt64(exchange.range.upperBound), range.size == UInt64(size),
      part.isOfOneVersion(response.fields),
      response.fields.value(of: "Content-Encoding") == nil
    else { return true }
    exchange.draft = try newDraft(exchange)
    exchange.recording.removeAll()
    return true
  }

  /// True: the transfer continues with the whole, or with a request for it.
  func isCompleted(after code: CURLcode, _ exchange: Exchange) throws(Failure) -> Bool {
    guard let part = exchange.part, let rest = exchange.draft else {
      return try startOver(exchange)
    }
    try rest.setBody(Bytes(exchange.recording.elements))
    let isShared = exchange.cache.isShared
    guard code == CURLE_OK, rest.body.count == exchange.range.count,
      let whole = try part.joined(with: rest, isShared: isShared), whole.code == 200
    else {
      if code == CURLE_OK { return try startOver(exchange) }
      // What came is one part more, if it begins where the first one ends.
      if try rest.cut(from: exchange.range.lowerBound, of: part),
        let longer = try part.joined(with: rest, isShared: isShared), try noteVariance(longer),
        Storing.mayStay(longer, isShared: isShared), mayKeep(longer, exchange)
      {
        try exchange.cache.store(longer, at: exchange.key, for: self)
      }
      return false
    }
    if try noteVariance(whole), Storing.mayStay(whole, isShared: isShared) {
      if mayKeep(whole, exchange) {
        try exchange.cache.store(whole, at: exchange.key, for: self)
      }
    } else {
      exchange.cache.remove(exchange.key)
    }
    answerSoon(whole, "fwd=partial; fwd-status=206")
    return true
  }

  private func startOver(_ exchange: Exchange) throws(Failure) -> Bool {
    leaveFlight(.abandoned)
    exchange.isRefuted = true
    try begin()
    return true
  }

  // MARK: storing parts

  /// A part that the host asked for may be stored.
  var isPartToStore: Bool {
    guard request.fields.value(of: "Range") != nil,
      response.fields.value(of: "Content-Encoding") == nil,
      let range = ResumePoint.range(in: response.fields)
    else { return false }
    return range.size != nil
  }

  /// Stores a part with what there is of the same version.
  func storePart(_ part: StoredResponse, _ exchange: Exchange) throws(Failure) {
    let cache = exchange.cache
    guard part.part != nil else { return }
    try part.becomeWhole()
    guard let stored = try cache.find(exchange.key, for: self) else {
      return try cache.store(part, at: exchange.key, for: self)
    }
    if stored.code == 200, stored.isOfOneVersion(part.fields) {
      // The whole is there, and gets the newer headers.
      stored.fields = try Storing.updated(
        stored.fields, with: part.fields, isShared: cache.isShared)
      stored.requestTime = part.requestTime
      stored.responseTime = part.responseTime
      stored.readControl()
      stored.variance.removeAll()
      guard try noteVariance(stored) else { return cache.remove(exchange.key) }
      return try cache.store(stored, at: exchange.key, for: self)
    }
    if let joined = try stored.joined(with: part, isShared: cache.isShared),
      try noteVariance(joined)
    {
      try cache.store(joined, at: exchange.key, for: self)
    } else {
      try cache.store(part, at: exchange.key, for: self)
    }
  }

  /// Stores what came of a response whose connection was lost.
  func storeCut(_ draft: StoredResponse, _ body: Bytes, _ exchange: Exchange) {
    guard failure == nil, destination.hostsStatus == nil else { return }
    do throws(Failure) {
      try draft.setBody(body)
      guard try draft.becomePart(of: response.fields) else { return }
      if let stored = try exchange.cache.find(exchange.key, for: self), stored.code == 200,
        stored.isOfOneVersion(draft.fields)
      {
        return
      }
      try exchange.cache.store(draft, at: exchange.key, for: self)
    } catch {
      // The next request asks for the whole.
    }
  }
}
