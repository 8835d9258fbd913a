import CHutchHTTP
import CSystem

/// What one request of a transfer has to do with the cache. The session's thread has it.
final class Exchange {
  let cache: HTTPCache
  let key: Text
  let mode: UInt32
  /// The request's Cache-Control.
  let asked: CacheControl
  /// The host has set conditions or a range: those of the cache are not added.
  let hasOwnConditions: Bool
  let requestTime: Int64
  /// What answers if a validation succeeds, or in place of an error.
  var stored: StoredResponse?
  /// A part of which the request asks for the rest, with the range.
  var part: StoredResponse?
  var range = 0..<0
  /// The same as `stored`, if the request has conditions of the host.
  var known: StoredResponse?
  /// The server has confirmed another version than the stored one.
  var isRefuted = false
  /// Another request has changed the resource since this one began: its response may be of before
  /// the change, so the host gets it, and nothing is stored.
  private(set) var isOutdated = false
  /// What Cache-Status says of a response of the network.
  var remark: StaticString = "fwd=miss"
  /// What becomes the stored response when the body is complete; nil: nothing is stored.
  var draft: StoredResponse?
  /// The body, if it is not in memory anyway.
  var recording = GrowingArray<UInt8>()
  /// Where it goes if it is large.
  var writer: StoringWriter?
  var written = 0

  init(_ cache: HTTPCache, _ key: Text, _ mode: UInt32, _ fields: borrowing Fields) {
    self.cache = cache
    self.key = key
    self.mode = mode
    var asked = CacheControl(fields)
    if fields.value(of: "Cache-Control") == nil, let pragma = fields.value(of: "Pragma") {
      var old = CacheControl()
      old.add(pragma)
      asked.hasNoCache = old.hasNoCache
    }
    self.asked = asked
    hasOwnConditions =
      fields.value(of: "If-None-Match") != nil || fields.value(of: "If-Modified-Since") != nil
      || fields.value(of: "Range") != nil
    requestTime = cache.now
  }

  func becomeOutdated() {
    isOutdated = true
    draft = nil
  }

  func isMode(_ other: Int) -> Bool { mode == UInt32(other) }

  /// The request may only be answered by what is stored.
  var staysOffline: Bool { asked.onlyIfCached || isMode(HUTCH_HTTP_CACHE_ONLY) }

  /// The headers that the cache adds to the request: validators (RFC 9111, section 4.3.1), and what
  /// makes caches on the way ask the server too. `hasControl`: there is a Cache-Control.
  func forEachCondition(
    hasControl: Bool, _ add: (StaticString, UnsafePointer<CChar>) throws(Failure) -> Void
  ) throws(Failure) {
    if isMode(HUTCH_HTTP_CACHE_RELOAD), !asked.hasNoCache {
      try add("Cache-Control", literal("no-cache"))
    }
    if isMode(HUTCH_HTTP_CACHE_VALIDATE), !hasControl {
      try add("Cache-Control", literal("max-age=0"))
    }
    if let part, let validator = ResumePoint.validator(in: part.fields) {
      var text = GrowingArray<UInt8>()
      try text.append("bytes=")
      try text.append(number: Int64(range.lowerBound))
      try text.append("-")
      // To the end, if the end is missing: the form that servers meet most.
      if range.lowerBound == 0 { try text.append(number: Int64(range.upperBound - 1)) }
      let range = try Text(Bytes(text.elements))
      try add("Range", range.start)
      try add("If-Range", validator)
      withExtendedLifetime(range) {}
    }
    guard let stored else { return }
    if let tag = stored.fields.value(of: "ETag") { try add("If-None-Match", tag) }
    if let date = stored.fields.value(of: "Last-Modified") { try add("If-Modified-Since", date) }
  }

  var hasValidator: Bool {
    guard let stored else { return false }
    return stored.fields.value(of: "ETag") != nil
      || stored.fields.value(of: "Last-Modified") != nil
  }

  /// A piece of the body. A large one goes to a file of the cache, piece by piece; without a disk
  /// tier, one that is larger than the limit, or than memory, is not stored.
  func record(_ bytes: Bytes, most: UInt64, _ transfer: Transfer) {
    guard let draft else { return }
    if let writer {
      written += bytes.count
      return writer.append(bytes)
    }
    do throws(Failure) {
      let room = min(UInt64(HTTPCache.mostInRecord), most)
      if draft.code != 206, part == nil, UInt64(recording.count) + UInt64(bytes.count) > room,
        let writer = try StoringWriter.begin(
          draft, size: transfer.expectedSize, in: cache, at: key, for: transfer)
      {
        writer.append(Bytes(recording.elements))
        writer.append(bytes)
        self.writer = writer
        written = recording.count + bytes.count
        recording = GrowingArray()
        return
      }
      guard UInt64(recording.count) + UInt64(bytes.count) <= most else { throw .noMemory }
      try recording.append(contentsOf: bytes)
    } catch {
      // The host has a newer response than what is stored.
      if draft.code != 206, part == nil { cache.remove(key) }
      self.draft = nil
      recording = GrowingArray()
    }
  }
}
