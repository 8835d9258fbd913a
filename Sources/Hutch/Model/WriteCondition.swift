/// What has to be there for a write to be carried out: a put or a removal, in memory or in a store.
/// An entry that has expired is none.
enum WriteCondition {
  case always
  /// No entry.
  case absent
  case present
  case version(UInt64)
  /// This version, or no entry; 0: no entry.
  case versionOrNone(UInt64)
  /// This version or an older one.
  case upTo(UInt64)
  /// Of a put whose version is drawn: no entry, or an older one.
  case unlessNewer

  /// Whether nothing is asked for.
  @inline(__always)
  var isAlways: Bool {
    if case .always = self { return true }
    return false
  }

  /// Whether a caller asks for what is there.
  var isOfCaller: Bool {
    switch self {
    case .absent, .present, .version: true
    default: false
    }
  }

  /// `existing`: the version of the entry that is there; 0: there is none. `new`: the put's; 0: it
  /// is not drawn.
  @inline(__always)
  func holds(for existing: UInt64, new: UInt64 = 0) -> Bool {
    switch self {
    case .always: true
    case .absent: existing == 0
    case .present: existing != 0
    case .version(let wanted): existing != 0 && existing == wanted
    case .versionOrNone(let wanted): existing == 0 || existing == wanted
    case .upTo(let newest): existing != 0 && existing <= newest
    case .unlessNewer: existing == 0 || existing < new
    }
  }

  /// What a put answers whose condition does not hold.
  func refusal(of existing: UInt64) -> Status {
    switch self {
    case .absent: .exists
    case .unlessNewer: .superseded
    default: existing == 0 ? .notFound : .conflict
    }
  }
}
