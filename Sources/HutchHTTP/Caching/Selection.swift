import CSystem

/// What of a stored response answers a request with conditions or a range of the host's (RFC 9110,
/// sections 13 and 14).
enum Selection {
  case whole
  /// The host has it already: 304.
  case unchanged
  case part(Range<Int>)
  /// 416.
  case noPart

  /// `mayBePart`: the method is GET, the one for which a range is defined (RFC 9110, section 14.2).
  init(_ asked: borrowing Fields, of stored: StoredResponse, mayBePart: Bool = true) {
    self = .whole
    if let part = stored.part {
      if let range = asked.value(of: "Range") {
        self = Selection.range(bytes(of: range), part.size)
      }
      return
    }
    guard stored.code == 200 else { return }
    if asked.value(of: "If-None-Match") != nil {
      if Selection.hasTag(asked, stored.fields) { self = .unchanged }
    } else if let since = asked.value(of: "If-Modified-Since"),
      let known = HTTPDate.seconds(bytes(of: since), now: stored.received), stored.changed <= known
    {
      self = .unchanged
    }
    guard case .whole = self, mayBePart, !stored.isDecoded,
      let range = asked.value(of: "Range")
    else { return }
    self = Selection.range(bytes(of: range), stored.bodySize)
  }

  /// By the weak comparison.
  private static func hasTag(_ asked: borrowing Fields, _ stored: borrowing Fields) -> Bool {
    let tag = stored.value(of: "ETag").map { strong(bytes(of: $0)) }
    var place = 0
    while let value = asked.next(literal("If-None-Match"), &place) {
      var members = ListReader(bytes(of: value))
      while let member = members.next() {
        if member.count == 1, member[0] == 0x2A { return true }
        if let tag, strong(member).hasSameBytes(as: tag) { return true }
      }
    }
    return false
  }

  static func isWeak(_ tag: Bytes) -> Bool { tag.count >= 2 && tag[0] == 0x57 && tag[1] == 0x2F }

  /// Without the mark of a weak tag.
  static func strong(_ tag: Bytes) -> Bytes {
    isWeak(tag) ? Bytes(rebasing: tag.dropFirst(2)) : tag
  }

  /// "bytes=0-99", "bytes=100-", "bytes=-5". Anything else, and more than one range, is the whole.
  private static func range(_ text: Bytes, _ size: Int) -> Selection {
    let unit: StaticString = "bytes="
    guard text.begins(with: bytes(of: unit)) else { return .whole }
    let given = Bytes(rebasing: text[6...])
    guard let dash = given.firstIndex(of: 0x2D) else { return .whole }
    let first = Bytes(rebasing: given[..<dash])
    let last = Bytes(rebasing: given[(dash + 1)...])
    if first.count == 0 {
      guard let count = CacheControl.size(last) else { return .whole }
      return count == 0 || size == 0 ? .noPart : .part(max(0, size - count)..<size)
    }
    guard let start = CacheControl.size(first) else { return .whole }
    guard last.count > 0 else { return start < size ? .part(start..<size) : .noPart }
    guard let end = CacheControl.size(last), end >= start else { return .whole }
    return start < size ? .part(start..<min(end + 1, size)) : .noPart
  }
}
