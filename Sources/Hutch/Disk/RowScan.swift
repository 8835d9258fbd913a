/// A scan of the rows of `entries` in the order of their ids, or back from the last.
///
/// An id is drawn when a row is written or touched, and is not used again: ids are in the order of
/// writes. The slot of a row is its rowid. A row is inserted with its id for its slot. A long row
/// that is replaced or touched stays in its slot, so that SQLite changes the row's own pages and
/// the index of ids: the row gets its new id in the column `id` (`Transaction.staysInPlace`).
///
///     column id        the row's id    found by
///     NULL, or slot    slot            the table
///     above slot       id              the index entries_id
///
/// So a scan merges two: of the table, where it passes over rows that have an id above their slot,
/// and of the index. It passes over a row only where the index has come to no lower id, so each
/// such row once in a walk through all.
///
/// A scan in the order of slots is one of the table alone, which meets each row once, too.
struct RowScan: ~Copyable {
  private var slots: LateStatement
  private var ids: LateStatement
  private let isDescending: Bool
  /// No row has an id up to this one, nor will any have one: ids only grow. Without it each scan
  /// from the first row on would pass over all slots of rows that have been replaced since.
  private var bottom: Int64 = 0

  /// How far a scan has come.
  struct Reached {
    /// All ids up to this one, or down to it, have been looked at.
    var last: Int64
    var isEnd: Bool
  }

  init(isDescending: Bool = false) {
    self.isDescending = isDescending
    slots = LateStatement(
      isDescending
        ? "SELECT {row}, key FROM entries WHERE slot < ?1 ORDER BY slot DESC"
        : "SELECT {row}, key FROM entries WHERE slot > ?1 ORDER BY slot")
    ids = LateStatement(
      isDescending
        ? "SELECT {row}, key FROM entries WHERE id < ?1 AND id > slot ORDER BY id DESC"
        : "SELECT {row}, key FROM entries WHERE id > ?1 AND id > slot ORDER BY id")
  }

  /// A transaction was not committed: rows that it has replaced have their lower ids again.
  mutating func noteRollback() { bottom = 0 }

  /// Shows up to `limit` rows behind `start`, until `visit` answers false. It must change no row.
  /// `visit` gets a row and its key, which is valid during the call. `bySlot`: `start` and what is
  /// reached are slots.
  @inline(never)
  mutating func callAsFunction(
    _ connection: borrowing Connection, from start: Int64, bySlot: Bool = false, limit: Int64,
    _ visit: (Row, Bytes) throws(Failure) -> Bool
  ) throws(Failure) -> Reached {
    let slots = try self.slots.of(connection)
    let ids = try self.ids.of(connection)
    let isFromBottom = !isDescending && !bySlot && start <= bottom
    var last = isFromBottom ? bottom : start
    slots.bind(1, last)
    ids.bind(1, last)
    defer {
      slots.reset()
      ids.reset()
    }
    /// The next slot, and the next id above its row's slot.
    var slot = try next(slots, 0)
    var id = bySlot ? end : try next(ids, 1)
    var left = limit
    while true {
      if !bySlot {
        while isBefore(slot, id) && slots.integer(1) > slot { slot = try next(slots, 0) }
      }
      let isSlot = isBefore(slot, id)
      if !isSlot && id == end { return Reached(last: last, isEnd: true) }
      if left == 0 { return Reached(last: last, isEnd: false) }
      let statement = isSlot ? slots : ids
      let row = try Row(statement)
      let place = bySlot ? row.slot : row.id
      // Without this a damaged table could make a scan that does not end.
      guard isBefore(last, place) else {
        throw Failure(.corrupt, "the manifest's rows are out of order")
      }
      if isFromBottom && left == limit { bottom = place - 1 }
      last = place
      left -= 1
      guard try visit(row, try statement.bytes(Row.more)) else {
        return Reached(last: last, isEnd: false)
      }
      if isSlot { slot = try next(slots, 0) } else { id = try next(ids, 1) }
    }
  }

  private var end: Int64 { isDescending ? Int64.min : Int64.max }

  private func isBefore(_ one: Int64, _ other: Int64) -> Bool {
    isDescending ? one > other : one < other
  }

  /// The number in a column of the next row; `end` if there is none, or none that an id can have.
  private func next(_ statement: Statement, _ column: Int32) throws(Failure) -> Int64 {
    guard try statement.step() else { return end }
    let number = statement.integer(column)
    return number > 0 ? number : end
  }
}
