/// The walk over the rows in the order of their ids, which is that of their last write.
///
/// A put or a touch of an entry that is there leaves its row where it is: to move it to the
/// end of the table, as a new one, would change twice as many pages. Only the id is a new one. So
/// of the rows those with their first id, which is `row`, lie in the order of ids in the table,
/// and the others in that of a partial index; new rows have nothing in it. A walk goes through
/// both side by side.
final class RowOrder {
  /// Of rows with their first id; the others are passed over.
  private let table: Statement
  private let index: Statement
  private let isDescending: Bool

  /// Rows that a walk passes over at most.
  private static let mostPassed = 512

  /// How far a walk has come.
  struct Reached {
    /// All ids up to this one, or down to it, have been looked at.
    var last: Int64
    var isEnd: Bool
  }

  static let newest: StaticString = """
    SELECT max(ifnull((SELECT max(row) FROM entries), 0), ifnull(
      (SELECT id FROM entries WHERE id IS NOT NULL ORDER BY id DESC LIMIT 1), 0))
    """

  static func ascending(_ connection: borrowing Connection) throws(Failure) -> RowOrder {
    RowOrder(
      try connection.prepare(
        """
        SELECT row, id, generation, version, created, accessed, expires, idle, size, charge, file,
          codec, key, uses
        FROM entries WHERE row > ?1 ORDER BY row
        """),
      try connection.prepare(
        """
        SELECT row, id, generation, version, created, accessed, expires, idle, size, charge, file,
          codec, key, uses
        FROM entries WHERE id > ?1 ORDER BY id
        """), isDescending: false)
  }

  static func descending(_ connection: borrowing Connection) throws(Failure) -> RowOrder {
    RowOrder(
      try connection.prepare(
        """
        SELECT row, id, generation, version, created, accessed, expires, idle, size, charge, file,
          codec, key, uses
        FROM entries WHERE row < ?1 ORDER BY row DESC
        """),
      try connection.prepare(
        """
        SELECT row, id, generation, version, created, accessed, expires, idle, size, charge, file,
          codec, key, uses
        FROM entries WHERE id < ?1 ORDER BY id DESC
        """), isDescending: true)
  }

  private init(
    _ table: consuming Statement, _ index: consuming Statement, isDescending: Bool
  ) {
    self.table = table
    self.index = index
    self.isDescending = isDescending
  }

  /// Shows up to `limit` rows, until `visit` answers false. It must change no row.
  func walk(
    from start: Int64, limit: Int64, _ visit: (borrowing Statement) throws(Failure) -> Bool
  ) throws(Failure) -> Reached {
    table.bind(1, start)
    index.bind(1, start)
    defer {
      table.reset()
      index.reset()
    }
    var last = start
    var left = limit
    var passed = 0
    var hasRow = try table.step()
    var hasMoved = try index.step()
    while hasRow || hasMoved {
      if left == 0 || passed == RowOrder.mostPassed { return Reached(last: last, isEnd: false) }
      let row = hasRow ? table.integer(0) : 0
      let id = hasMoved ? index.integer(1) : 0
      let isTable = hasRow && (!hasMoved || (isDescending ? row > id : row < id))
      let next = isTable ? row : id
      // An index that is none: the walk would not end.
      guard isDescending ? next < last : next > last else {
        throw Failure(.corrupt, "the manifest's rows are out of order")
      }
      last = next
      if isTable && !table.isNull(1) {
        passed += 1
      } else {
        left -= 1
        guard try isTable ? visit(table) : visit(index) else {
          return Reached(last: last, isEnd: false)
        }
      }
      if isTable { hasRow = try table.step() } else { hasMoved = try index.step() }
    }
    return Reached(last: last, isEnd: true)
  }
}
