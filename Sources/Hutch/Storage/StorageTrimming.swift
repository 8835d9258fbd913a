/// The primitives of a store for removals that a call asks for (see StorageTrim). Of each entry
/// that a store removes in them the observer is told as of a dropped one. A store that is out of
/// service fails.
protocol StorageTrimming: AnyObject {
  /// The entries that are committed, and the bytes charged for them.
  func occupancy() throws(Failure) -> Occupancy

  /// Visits the next committed entries behind `place`, whatever their age, in an order of the
  /// store's own. Entries written or touched after the first call may be missed. No lock is held
  /// while `visit` runs.
  func walk(
    _ place: inout WalkPlace, visit: (Bytes, WalkedEntry) -> Void
  ) throws(Failure)

  /// Removes the victims with these indices, until `goal` is reached (nil: all of them): the
  /// entries that a walk has met with these ids, that have not been written, touched or moved
  /// since, and that `isWanted` wants as they are now. `isWanted` is called with locks of the store
  /// held. One slice: it waits for the writers that came before it.
  func remove(
    _ victims: borrowing GrowingArray<Int64>, _ range: Range<Int>, to goal: TrimGoal?,
    at moment: Moment, if isWanted: (Int, Record) -> Bool
  ) throws(Failure) -> TrimSlice

  /// One slice of the removal of expired entries, by an index of their ends, until `goal` is
  /// reached. A store answers `mustWalk` if a walk may find more, and is worth its price for this
  /// goal.
  func removeExpired(to goal: TrimGoal?, at moment: Moment) throws(Failure) -> TrimSlice

  /// One slice of evictions in the order in which the store makes room for its limits, until `goal`
  /// is reached. Nil: so much has to go that a walk by the rank of the last access costs less.
  func makeRoom(to goal: TrimGoal, at moment: Moment) throws(Failure) -> TrimSlice?

  /// One slice of giving back space that is charged and is no entry's, for a goal in bytes.
  func reclaim(to goal: TrimGoal, at moment: Moment) throws(Failure) -> Reclaimed
}

extension StorageTrimming {
  // For a store without an index of ends.
  func removeExpired(to goal: TrimGoal?, at moment: Moment) throws(Failure) -> TrimSlice {
    TrimSlice(mustWalk: true)
  }
  // For a store that evicts by the last access.
  func makeRoom(to goal: TrimGoal, at moment: Moment) throws(Failure) -> TrimSlice? { nil }
  // For a store that charges for entries alone.
  func reclaim(to goal: TrimGoal, at moment: Moment) throws(Failure) -> Reclaimed { .nothing }
}

/// How far a walk for removals has come. The numbers are the store's own.
struct WalkPlace {
  var last: Int64 = 0
  /// Entries behind this one are newer than the walk. Nil: not known yet, or the store has no such
  /// order.
  var newest: Int64?
  var isAtEnd = false
}

/// An entry as a walk for removals has found it.
struct WalkedEntry {
  /// Names the entry until it is written, touched or moved. Not used again.
  var id: Int64
  var record: Record
  /// The bytes charged for it.
  var charge: Int64
  /// The number of its accesses, as far as the store counts them.
  var uses: Int64
}

/// The entries of a store, and the bytes charged for them.
struct Occupancy {
  var count: UInt64
  var charge: UInt64
}

/// The outcome of one slice of a removal.
struct TrimSlice {
  var removed: UInt64 = 0
  /// False: the goal is reached, or nothing is left to remove.
  var hasMore = false
  /// See `removeExpired`.
  var mustWalk = false
}

/// The outcome of one slice of `reclaim`.
enum Reclaimed {
  /// The goal is reached.
  case enough
  /// Some space was given back, and there may be more.
  case some
  /// A reader is in the way for the moment.
  case blocked
  /// There is nothing to give back.
  case nothing
}
