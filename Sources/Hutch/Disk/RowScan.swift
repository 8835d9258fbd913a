/// A statement that reads rows in the order of their ids, or back from the last.
///
/// An id is the row's rowid, drawn when the row is written or touched and not used again. So the
/// table itself is in the order of writes.
struct RowScan: ~Copyable {
  private let statement: Statement
  private let isDescending: Bool

  /// How far a scan has come.
  struct Reached {
    /// All ids up to this one, or down to it, have been looked at.
    var last: Int64
    var isEnd: Bool
  }

  /// `words`: a SELECT whose first column is the id, with `id > ?1 ORDER BY id`, or descending.
  init(
    _ connection: borrowing Connection, _ words: StaticString, isDescending: Bool = false
  ) throws(Failure) {
    statement = try connection.prepare(words)
    self.isDescending = isDescending
  }

  /// Shows up to `limit` rows behind `start`, until `visit` answers false. It must change no row.
  func callAsFunction(
    from start: Int64, limit: Int64, _ visit: (borrowing Statement) throws(Failure) -> Bool
  ) throws(Failure) -> Reached {
    statement.bind(1, start)
    defer { statement.reset() }
    var last = start
    var left = limit
    while try statement.step() {
      if left == 0 { return Reached(last: last, isEnd: false) }
      let id = statement.integer(0)
      // Without this a damaged table could make a scan that does not end.
      guard isDescending ? id < last : id > last else {
        throw Failure(.corrupt, "the manifest's rows are out of order")
      }
      last = id
      left -= 1
      guard try visit(statement) else { return Reached(last: last, isEnd: false) }
    }
    return Reached(last: last, isEnd: true)
  }
}
