import CSystem

/// A stored part of a body (RFC 9111, sections 3.3 and 3.4): a response with code 206, whose
/// Content-Range says which bytes of how many. It comes from a 206, or from a 200 that was cut. Its
/// bytes answer requests for them; the missing ones are asked for with Range and If-Range, and put
/// to those of the same version only: both have the same strong validator.
extension StoredResponse {
  /// Which bytes of the whole the body has, and the size of the whole; nil: it is no part.
  var part: (bounds: Range<Int>, size: Int)? {
    guard code == 206, let range = ResumePoint.range(in: fields), let size = range.size,
      let start = Int(exactly: range.start), let end = Int(exactly: range.end),
      let whole = Int(exactly: size), end - start == bodySize
    else { return nil }
    return (start..<end, whole)
  }

  /// What has to be asked for to have the whole; nil: more than one range, or the version is not
  /// known.
  var missing: Range<Int>? {
    guard let (bounds, size) = part, isInMemory,
      ResumePoint.validator(in: fields) != nil, fields.value(of: "Content-Encoding") == nil
    else { return nil }
    if bounds.lowerBound == 0, bounds.upperBound < size { return bounds.upperBound..<size }
    return bounds.upperBound == size && bounds.lowerBound > 0 ? 0..<bounds.lowerBound : nil
  }

  /// Both are of one version, as their strong validators say.
  func isOfOneVersion(_ other: borrowing Fields) -> Bool {
    guard let mine = ResumePoint.validator(in: fields),
      let its = ResumePoint.validator(in: other)
    else { return false }
    return bytes(of: mine).hasSameBytes(as: bytes(of: its))
  }

  /// A response with code 200 that was cut becomes a part. False: it has no strong validator or no
  /// size, or nothing came of it.
  func becomePart(of fields: borrowing Fields) throws(Failure) -> Bool {
    let length = fields.value(of: "Content-Length").flatMap { CacheControl.size(bytes(of: $0)) }
    guard code == 200, !isDecoded, let size = length, body.count > 0, body.count < size,
      ResumePoint.validator(in: fields) != nil, fields.value(of: "Content-Encoding") == nil,
      fields.value(of: "Transfer-Encoding") == nil
    else { return false }
    try setBounds(0..<body.count, of: size)
    return true
  }

  /// A part that has every byte is the whole (section 3.4).
  func becomeWhole() throws(Failure) {
    if let (bounds, size) = part, bounds == 0..<size { try setBounds(bounds, of: size) }
  }

  /// Its bytes are those from `start`, and fewer than it says. False: it has none.
  func cut(from start: Int, of whole: StoredResponse) throws(Failure) -> Bool {
    guard body.count > 0, let size = whole.part?.size else { return false }
    try setBounds(start..<(start + body.count), of: size)
    return true
  }

  /// The bytes of this part with those of a newer one of the same version, and its headers, without
  /// what Vary names. Nil: there would be a gap between them.
  func joined(with news: StoredResponse, isShared: Bool) throws(Failure) -> StoredResponse? {
    guard let mine = part, let its = news.part, mine.size == its.size,
      isOfOneVersion(news.fields), isInMemory, news.isInMemory,
      mine.bounds.lowerBound <= its.bounds.upperBound,
      its.bounds.lowerBound <= mine.bounds.upperBound
    else { return nil }
    var bytes = GrowingArray<UInt8>()
    let start = min(mine.bounds.lowerBound, its.bounds.lowerBound)
    let end = max(mine.bounds.upperBound, its.bounds.upperBound)
    try bytes.reserve(end - start)
    // What is before the newer part, the newer part, and what is behind it.
    let before = max(0, its.bounds.lowerBound - mine.bounds.lowerBound)
    try bytes.append(contentsOf: Bytes(rebasing: body[..<before]))
    try bytes.append(contentsOf: news.body)
    let behind = max(0, mine.bounds.upperBound - its.bounds.upperBound)
    try bytes.append(contentsOf: Bytes(rebasing: body[(body.count - behind)...]))
    let result = StoredResponse(isTargeted: isTargeted)
    result.code = code
    result.version = news.version
    result.requestTime = news.requestTime
    result.responseTime = news.responseTime
    result.fields = try Storing.updated(fields, with: news.fields, isShared: isShared)
    try result.setBody(Bytes(bytes.elements))
    try result.setBounds(start..<end, of: mine.size)
    return result
  }

  /// Sets the code, and the headers that say which bytes the body has.
  private func setBounds(_ bounds: Range<Int>, of size: Int) throws(Failure) {
    var news = Fields()
    try news.append(contentsOf: fields) {
      !Letters.areSame($0, "Content-Length") && !Letters.areSame($0, "Content-Range")
    }
    var text = GrowingArray<UInt8>()
    let isWhole = bounds == 0..<size
    if isWhole {
      try text.append(number: Int64(size))
    } else {
      try text.append("bytes ")
      try text.append(number: Int64(bounds.lowerBound))
      try text.append("-")
      try text.append(number: Int64(bounds.upperBound - 1))
      try text.append("/")
      try text.append(number: Int64(size))
    }
    let name: StaticString = isWhole ? "Content-Length" : "Content-Range"
    try news.append(name: bytes(of: name), value: Bytes(text.elements))
    code = isWhole ? 200 : 206
    fields = news
    readControl()
  }
}
