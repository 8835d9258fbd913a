/// A change of an entry or a tier, made or to come, on its way to the listener.
class Event {
  /// The bits of HUTCH_EVENT_*.
  enum Kind: UInt32 {
    case willAdd = 1
    case didAdd = 2
    case willRemove = 4
    case didRemove = 8
    case willClear = 16
    case didClear = 32
    case tierDown = 64
    case tierUp = 128
    case memoryWarning = 256
    case enteredBackground = 512
    /// A line of the log, which only loggers are told.
    case log = 1024

    /// The bits of what tells that an entry goes.
    static var removals: UInt32 { willRemove.rawValue | didRemove.rawValue }
  }

  /// The numbers of HUTCH_CAUSE_*.
  enum Cause: UInt32 {
    case none = 0
    case replaced = 1
    case removed = 2
    case evicted = 3
    case expired = 4
    case cleared = 5
    case damaged = 6
    case writtenBack = 7
  }

  final var kind: Kind
  final var cause = Cause.none
  final var tiers: Tiers
  final var version: UInt64 = 0
  /// Why a tier is down.
  final var status = Status.done
  /// A line of the log, the cache's directory, and how many lines before it were left out.
  final private(set) var line: LogLine?
  final private(set) var directory: UnsafePointer<CChar>?
  final var leftOut: UInt64 = 0
  /// The entry's key, and its value if `hasValue`; nil for events of the cache. Valid for as long
  /// as the event is.
  final var entry: UnownedBlock?
  final var hasValue = false
  private var block: Block?

  // The lane's, under its lock.

  enum State {
    /// It is not known yet whether it happens; the events after it wait.
    case pending
    case ready
    /// Told, or not to be told.
    case over
  }
  final var state = State.pending
  final var next: Event?
  final let lane: Int
  /// The listener that the cache had when the event was posted: a later one did not see the change.
  /// Set before the event is in its lane, and given up by the delivery with no lock held.
  final var listener: Listener?

  /// An event about an entry: `block` has its key, and its value if `hasValue`.
  @inline(never)
  init(
    _ kind: Kind, _ cause: Cause, _ block: consuming Block, hasValue: Bool, tiers: Tiers,
    lane: Int
  ) {
    self.kind = kind
    self.cause = cause
    self.tiers = tiers
    self.hasValue = hasValue
    self.lane = lane
    version = block.unowned.version
    entry = block.unowned
    self.block = consume block
  }

  /// An event about a write: a subclass says what it is about.
  init(lane: Int) {
    kind = .didAdd
    tiers = Tiers()
    self.lane = lane
  }

  /// An event about the cache, or about a tier.
  @inline(never)
  init(_ kind: Kind, tiers: Tiers) {
    self.kind = kind
    self.tiers = tiers
    lane = 0
  }

  /// A line of the log.
  convenience init(_ line: LogLine, _ tiers: Tiers, _ directory: UnsafePointer<CChar>?) {
    self.init(.log, tiers: tiers)
    self.line = line
    self.directory = directory
  }

  /// Calls `tell` once for each event that the listener is told, which is this one then.
  func forEachStep(_ tell: () -> Void) { tell() }

  /// Whether it is of an older version of the same key.
  final func precedes(_ other: Event) -> Bool {
    guard version < other.version, let entry, let its = other.entry else { return false }
    return entry.key.hasSameBytes(as: its.key)
  }
}
