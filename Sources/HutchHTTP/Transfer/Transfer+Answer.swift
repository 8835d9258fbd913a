import CCurl
import CHutchHTTP
import CSystem
import Synchronization

/// A stored response in place of one of the network.
extension Transfer {
  func answer(_ stored: StoredResponse, _ words: StaticString) throws(Failure) -> Outcome? {
    guard let cache = configuration.cache else { return nil }
    exchange = nil
    step = nil
    response = Response(from: url)
    response.redirects = metrics.redirects
    response.isFromCache = true
    response.version = stored.version
    let isHead = Letters.areSame(method.start, "HEAD")
    let selection = Selection(request.fields, of: stored, mayBePart: !isHead)
    var part = 0..<stored.bodySize
    var range = GrowingArray<UInt8>()
    switch selection {
    case .whole:
      response.code = stored.code
      if !isHead { response.place = stored.place }
    case .unchanged: (response.code, part) = (304, 0..<0)
    case .part(let bounds):
      response.code = 206
      let start = bounds.lowerBound - (stored.part?.bounds.lowerBound ?? 0)
      part = start..<(start + bounds.count)
      try range.append("bytes ")
      try range.append(number: Int64(bounds.lowerBound))
      try range.append("-")
      try range.append(number: Int64(bounds.upperBound - 1))
      try range.append("/")
      try range.append(number: Int64(stored.part?.size ?? stored.bodySize))
    case .noPart:
      (response.code, part) = (416, 0..<0)
      try range.append("bytes */")
      try range.append(number: Int64(stored.bodySize))
    }
    try copyFields(stored, range)
    let state = stored.freshness(at: cache.now, isShared: cache.isShared)
    var text = GrowingArray<UInt8>()
    try text.append(number: state.age)
    try append("Age", text)
    text.removeAll()
    try text.append("hutch; ")
    try text.append(words)
    try text.append("; ttl=")
    try text.append(number: state.lifetime - state.age)
    try append("Cache-Status", text)
    try decide()
    if step != .retry { metrics.fromCache = 1 }
    if step == .response, part.count > 0, !isHead {
      moved(Int64(part.count), Int64(part.count), 0, 0)
      return try pass(stored, part)
    }
    return try concluded(CURLE_OK)
  }

  /// Gives the host a part of a stored body. Nil: it has suspended the task, and gets the rest when
  /// it resumes the task. A task that is answered where it was resumed is not suspended meanwhile.
  func pass(_ stored: StoredResponse, _ part: Range<Int>) throws(Failure) -> Outcome? {
    var rest = part
    let isWhole = try stored.forEachPiece(part) { (piece) throws(Failure) in
      if isListed, task.isPausing.load(ordering: .relaxed) {
        isPaused = true
        return false
      }
      if task.isCancelled { return false }
      rest = (rest.lowerBound + piece.count)..<rest.upperBound
      return receive(piece)
    }
    if isPaused {
      pending = .rest(stored, rest)
      return nil
    }
    if !isWhole, failure == nil, destination.hostsStatus == nil, !task.isCancelled {
      throw Failure(.io, "a stored body cannot be read")
    }
    return try concluded(CURLE_OK)
  }

  /// The headers of a stored response, but for Age; with a range, for that.
  private func copyFields(
    _ stored: StoredResponse, _ range: borrowing GrowingArray<UInt8>
  ) throws(Failure) {
    // And for Age, Cache-Status and Content-Range.
    try response.fields.reserve(stored.fields.count + 3, bytes: stored.fields.size + 160)
    let isPart = !range.isEmpty
    let hasNoLength = isPart || response.code == 304
    try response.fields.append(contentsOf: stored.fields) {
      !Letters.areSame($0, "Age") && !(hasNoLength && Letters.areSame($0, "Content-Length"))
        && !(isPart && Letters.areSame($0, "Content-Range"))
    }
    if !range.isEmpty { try append("Content-Range", range) }
  }
}

extension GrowingArray where Element == UInt8 {
  /// In decimal.
  mutating func append(number: Int64) throws(Failure) {
    if number < 0 { try append(0x2D) }
    var place = UInt64(1)
    let size = number.magnitude
    while size / place >= 10 { place *= 10 }
    while place > 0 {
      try append(UInt8(0x30 + size / place % 10))
      place /= 10
    }
  }
}
