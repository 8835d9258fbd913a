/// A scan of the rows of `entries` in the order of their ids, or back from the last.
///
/// An id is the row's rowid, drawn when the row is written or touched and not used again. So the
/// table itself is in the order of writes.
struct RowScan {
  private let statement: Statement
  private let isDescending: Bool

  /// How far a scan has come.
  struct Reached {
    /// All ids up to this one, or down to it, have been looked at.
    var last: Int64
    var isEnd: Bool
  }

  /// `statement`: `upwards`, or where `isDescending`, `downwards`.
  init(_ statement: Statement, isDescending: Bool = false) {
    self.statement = statement
    self.isDescending = isDescending
  }

  static var upwards: LateStatement {
    LateStatement("SELECT {row}, key FROM entries WHERE id > ?1 ORDER BY id")
  }
  static var downwards: LateStatement {
    LateStatement("SELECT {row}, key FROM entries WHERE id < ?1 ORDER BY id DESC")
  }

  /// Shows up to `limit` rows behind `start`, until `visit` answers false. It must change no row.
  /// `visit` gets a row and its key, which is valid during the call.
  @inline(never)
  func callAsFunction(
    from start: Int64, limit: Int64, _ visit: (Row, Bytes) throws(Failure) -> Bool
  ) throws(Failure) -> Reached {
    statement.bind(1, start)
    defer { statement.reset() }
    var last = start
    var left = limit
    while try statement.step() {
      if left == 0 { return Reached(last: last, isEnd: false) }
      let row = try Row(statement)
      // Without this a damaged table could make a scan that does not end.
      guard isDescending ? row.id < last : row.id > last else {
        throw Failure(.corrupt, "the manifest's rows are out of order")
      }
      last = row.id
      left -= 1
      guard try visit(row, try statement.bytes(Row.more)) else {
        return Reached(last: last, isEnd: false)
      }
    }
    return Reached(last: last, isEnd: true)
  }
}
