/// The condition under which a write is carried out: a put or a removal, in memory or in a store.
/// An expired entry counts as absent.
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
  /// For a put with a version: no entry, or an older one.
  case unlessNewer

  /// True if there is no condition.
  @inline(__always)
  var isAlways: Bool {
    if case .always = self { return true }
    return false
  }

  /// True if a caller asks for what is there.
  var isOfCaller: Bool {
    switch self {
    case .absent, .present, .version: true
    default: false
    }
  }

  /// `existing`: the version of the existing entry; 0: none. `new`: that of the put; 0: not drawn
  /// yet.
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

  /// The status of a put whose condition does not hold.
  func refusal(of existing: UInt64) -> Status {
    switch self {
    case .absent: .exists
    case .unlessNewer: .superseded
    default: existing == 0 ? .notFound : .conflict
    }
  }
}
