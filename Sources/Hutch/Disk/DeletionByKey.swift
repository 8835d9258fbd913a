import CSQLite
import CSystem

/// The row that a key has when it is written. (It is filled in where it is, and not returned: a row
/// is large, and every function on the way would copy it.)
struct OldRow {
  var row = Row()
  /// False: the key has no row.
  var isThere = false
  /// True if the row is deleted already.
  var isDeleted = false
}

/// A statement that deletes the row of a key and shows the row as it was.
///
/// To find a row by its key and then to delete it by its id is to look for it twice, in the table
/// and in the index of keys. RETURNING does both in one statement, but costs more than two: SQLite
/// makes a table for the rows that it returns. So the condition of this DELETE calls a function
/// with the columns of the row. The function notes the row and its tag, and answers whether the row
/// goes: a row that the caller wants to keep stays. The tag of a row that has gone is removed by a
/// second statement, which needs not look for it.
///
/// Keys are unique, so SQLite shows the function one row at most, even if the index of keys is
/// damaged and has two rows for a key. Then the second row stays, and SQLite refuses the new row of
/// the key: the put fails, and its commit deletes the first row alone. The next put deletes the
/// second one. So the sums are right at any time.
struct DeletionByKey: ~Copyable {
  /// What the function needs, and its failure.
  private struct Call {
    let old: UnsafeMutablePointer<OldRow>
    let tag: UnsafeMutablePointer<GrowingArray<UInt8>>
    let mayGo: (UnsafePointer<OldRow>) -> Bool
    var failure: Failure?

    /// True if the row goes.
    mutating func note(_ columns: Arguments) -> Bool {
      do throws(Failure) {
        old.pointee.row = try Row(columns)
        old.pointee.isThere = true
        guard mayGo(old) else { return false }
        if old.pointee.row.hasTag { try tag.pointee.replace(with: columns.bytes(Row.more)) }
        old.pointee.isDeleted = true
        return true
      } catch {
        failure = error
        return false
      }
    }
  }

  /// The arguments of a call of the function.
  private struct Arguments: RowColumns {
    let values: UnsafeMutablePointer<OpaquePointer?>

    func integer(_ column: Int32) -> Int64 { sqlite3_value_int64(values[Int(column)]) }

    func isNull(_ column: Int32) -> Bool {
      sqlite3_value_type(values[Int(column)]) == SQLITE_NULL
    }

    func bytes(_ column: Int32) throws(Failure) -> Bytes {
      let base = sqlite3_value_blob(values[Int(column)])
      let count = Int(sqlite3_value_bytes(values[Int(column)]))
      guard count > 0 else { return Bytes(start: nil, count: 0) }
      guard let base else { throw .noMemory }
      return Bytes(start: base, count: count)
    }
  }

  private var statement = LateStatement(
    """
    DELETE FROM entries WHERE key = ?1
      AND noted({row}, CASE WHEN codec >> 32 THEN substr(extended, -(codec >> 32)) END)
    """)
  private var untagging = LateStatement("DELETE FROM tags WHERE tag = ?1 AND key = ?2")
  private var tag = GrowingArray<UInt8>()
  /// Where the function finds the call: nil while none is under way. The connection calls the
  /// function for this statement alone.
  private let call: UnsafeMutablePointer<UnsafeMutablePointer<Call>?>

  init(_ connection: borrowing Connection) throws(Failure) {
    let call = try Allocation.one(UnsafeMutablePointer<Call>?.self)
    call.initialize(to: nil)
    let code = sqlite3_create_function_v2(
      connection.handle, "noted", Row.more + 1, SQLITE_UTF8 | SQLITE_DIRECTONLY, call,
      { context, _, values in
        let call = sqlite3_user_data(context)!
          .assumingMemoryBound(to: UnsafeMutablePointer<Call>?.self)
        let goes = call.pointee?.pointee.note(Arguments(values: values!)) ?? false
        sqlite3_result_int(context, goes ? 1 : 0)
      }, nil, nil, nil)
    do throws(Failure) {
      try connection.check(code, "cannot make a function")
    } catch {
      free(call)
      throw error
    }
    self.call = call
  }

  deinit { free(call) }

  /// Deletes the row, and its row of the table of tags. `mayGo` is asked of the row, once, and must
  /// not use the connection.
  mutating func callAsFunction(
    _ key: Bytes, into old: inout OldRow, on connection: borrowing Connection,
    if mayGo: (UnsafePointer<OldRow>) -> Bool
  ) throws(Failure) {
    let statement = try self.statement.of(connection)
    try statement.bind(1, key)
    try withoutActuallyEscaping(mayGo) { (mayGo) throws(Failure) in
      try withUnsafeMutablePointer(to: &old) { (old) throws(Failure) in
        try withUnsafeMutablePointer(to: &tag) { (tag) throws(Failure) in
          var this = Call(old: old, tag: tag, mayGo: mayGo)
          try withUnsafeMutablePointer(to: &this) { (this) throws(Failure) in
            call.pointee = this
            defer { call.pointee = nil }
            try statement.run()
          }
          if let failure = this.failure { throw failure }
        }
      }
    }
    if old.isDeleted && old.row.hasTag { try untag(key, on: connection) }
  }

  private mutating func untag(
    _ key: Bytes, on connection: borrowing Connection
  ) throws(Failure) {
    let untagging = try self.untagging.of(connection)
    try untagging.bind(1, Bytes(tag.elements))
    try untagging.bind(2, key)
    try untagging.run()
  }
}
