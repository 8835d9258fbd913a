/// The condition under which a write is carried out: a put or a removal, in memory or in a store.
/// An expired entry counts as absent.
struct WriteCondition {
  /// A byte of its own: most tests are about the kind alone.
  enum Kind {
    case always
    case absent
    case present
    case version
    case versionOrNone
    case upTo
    case unlessNewer
  }

  let kind: Kind
  private let wanted: UInt64

  @inline(__always)
  private init(_ kind: Kind, _ wanted: UInt64 = 0) {
    self.kind = kind
    self.wanted = wanted
  }

  @inline(__always) static var always: WriteCondition { WriteCondition(.always) }
  /// No entry.
  @inline(__always) static var absent: WriteCondition { WriteCondition(.absent) }
  @inline(__always) static var present: WriteCondition { WriteCondition(.present) }
  @inline(__always)
  static func version(_ wanted: UInt64) -> WriteCondition { WriteCondition(.version, wanted) }
  /// This version, or no entry; 0: no entry.
  @inline(__always)
  static func versionOrNone(_ wanted: UInt64) -> WriteCondition {
    WriteCondition(.versionOrNone, wanted)
  }
  /// This version or an older one.
  @inline(__always)
  static func upTo(_ newest: UInt64) -> WriteCondition { WriteCondition(.upTo, newest) }
  /// For a put with a version: no entry, or an older one.
  @inline(__always) static var unlessNewer: WriteCondition { WriteCondition(.unlessNewer) }

  /// True if there is no condition.
  @inline(__always) var isAlways: Bool { kind == .always }

  /// True if a caller asks for what is there.
  @inline(__always)
  var isOfCaller: Bool { kind == .absent || kind == .present || kind == .version }

  /// `existing`: the version of the existing entry; 0: none. `new`: that of the put; 0: not drawn
  /// yet.
  @inline(__always)
  func holds(for existing: UInt64, new: UInt64 = 0) -> Bool {
    isAlways || isMet(for: existing, new: new)
  }

  /// Once, not at every place that asks.
  @inline(never)
  private func isMet(for existing: UInt64, new: UInt64) -> Bool {
    switch kind {
    case .always: true
    case .absent: existing == 0
    case .present: existing != 0
    case .version: existing != 0 && existing == wanted
    case .versionOrNone: existing == 0 || existing == wanted
    case .upTo: existing != 0 && existing <= wanted
    case .unlessNewer: existing == 0 || existing < new
    }
  }

  /// The status of a put whose condition does not hold.
  func refusal(of existing: UInt64) -> Status {
    switch kind {
    case .absent: .exists
    case .unlessNewer: .superseded
    default: existing == 0 ? .notFound : .conflict
    }
  }
}
