/// The tier's work, whatever its policy.
protocol MemoryShards: AnyObject {
  var hash: KeyedHash { get }
  var onDeparture: ((UnownedBlock, DepartureCause, Int64) -> Void)? { get set }
  var coherence: CoherenceCounters? { get set }
  var front: HitPath { get }
  var watch: DepartureWatch { get }
  func get(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block?
  func look(
    _ key: Bytes, _ hash: UInt64, at: Moment, into: UnsafeMutableRawBufferPointer,
    _ part: Look.Part, countsMiss: Bool
  ) -> Look
  func fetch(_ found: UnsafeMutableBufferPointer<FoundBlock>)
  func version(_ key: Bytes, _ hash: UInt64, at: Moment) -> UInt64
  func peek(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block?
  func peekDuringCommit(_ key: Bytes, _ hash: UInt64, at: Moment) -> Block?
  func copyDuringCommit(
    _ key: Bytes, _ hash: UInt64, at: Moment
  ) -> (version: UInt64, mark: UInt32)?
  func info(_ key: Bytes, _ hash: UInt64, at: Moment) -> Record?
  func lastAccess(_ key: Bytes, _ hash: UInt64, at: Moment) -> Int64?
  func put(
    _ block: consuming Block, _ hash: UInt64, at: Moment, _ condition: WriteCondition,
    isBacked: Bool
  ) throws(Failure) -> MemoryPutResult
  func put(
    _ key: Bytes, _ value: Bytes, _ hash: UInt64, at: Moment
  ) throws(Failure) -> MemoryPutResult
  func remove(_ key: Bytes, _ hash: UInt64, at: Moment, _ condition: WriteCondition) -> Block?
  func setBacked(
    _ key: Bytes, _ hash: UInt64, version: UInt64, _ isBacked: Bool, isDirty: Bool
  ) -> Bool
  func setMark(_ key: Bytes, _ hash: UInt64, committed version: UInt64, _ mark: UInt32)
  func clear(upTo version: UInt64, keepingUnbacked: Bool, at: Moment)
  func clear(
    _ key: Bytes, _ hash: UInt64, upTo version: UInt64, backedUpTo backed: UInt64, at: Moment)
  func setLimits(_ limits: TierLimits, at: Moment)
  func maintain(at: Moment) -> Bool
  func blocks(
    after position: inout UInt64, limit: Int, at: Moment, _ kind: WalkKind,
    visit: (UnownedBlock) -> Void
  ) -> Int
  /// Adds the entries of a slice of the walk to a survey.
  func survey(_ walk: inout TrimWalk, _ kind: TrimSpec.Kind, at: Moment, _ survey: TrimSurvey)
  /// Removes the entries of a slice of the walk with this rank and above, while more than `cost` is
  /// held; returns how many.
  func trim(
    _ walk: inout TrimWalk, _ kind: TrimSpec.Kind, from rank: UInt64, downTo cost: UInt64,
    at: Moment
  ) -> UInt64
  /// Evicts a few entries of the next shard in the policy's order while more is held.
  func trim(_ walk: inout TrimWalk, cost: UInt64, count: UInt64, at: Moment) -> UInt64
  var stats: TierStats { get }
  var count: UInt64 { get }
  var cost: UInt64 { get }
  var unbackedCount: UInt64 { get }
  var hasExpiring: Bool { get }
  /// The tier refuses a block with a larger charge.
  var largestCharge: UInt64 { get }
  var shardCount: Int { get }
  func lockAll(until end: Deadline) -> Bool
  func unlockAll(inChild: Bool)
  func violation() -> StaticString?
}
