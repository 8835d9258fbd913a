/// The walk over a store's entries, and the primitives for removals that a call asks for (see
/// StorageTrim). The observer is told of each entry that a store removes in them as of a dropped
/// one. A store that is out of service fails.
protocol StorageTrimming: AnyObject {
  /// The entries that are committed, and the bytes charged for them.
  func occupancy() throws(Failure) -> Occupancy

  /// One step of a walk: visits the next committed entries behind `place`, perhaps none. No lock is
  /// held while `visit` runs.
  ///   no moment  every entry that is charged for, whatever its age
  ///   a moment   those that a read of this moment may see; a store that is out of service has none
  /// An ordered store (`Storage.isOrdered`) goes by the order in which entries were written or
  /// touched: an entry that is written or touched after the first step is not visited. Any other
  /// store goes by the places of keys (`Storage.place`), and visits an entry that stays exactly
  /// once, whether it is written meanwhile or not.
  func walk(
    _ place: inout WalkPlace, at moment: Moment?, visit: (Bytes, WalkedEntry) -> Void
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

/// How far a walk has come. The numbers are the store's own.
struct WalkPlace {
  /// True: from the newest entry back, if the store is ordered.
  let isDescending: Bool
  /// The most entries that one step of an ordered store looks at.
  var limit: Int
  /// The last entry that the walk has looked at. Nil: the walk has not begun. Of a store that is
  /// not ordered: all entries before this place have been visited; a walk may begin at any place.
  var last: Int64?
  /// Entries behind this one are newer than the walk. Nil: not known yet, or the store is not
  /// ordered.
  var newest: Int64?
  /// In place of `last`, if the store's places are not those of the cache's keys.
  var ownLast: UInt64?
  var isAtEnd = false

  init(descending: Bool = false, limit: Int = 512) {
    isDescending = descending
    self.limit = max(1, limit)
  }
}

/// An entry as a walk has found it.
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
