import CSQLite

/// The table of tags: a row for each row of `entries` that has a tag, changed in the same
/// transaction. An entry without a tag asks nothing of it.
extension Manifest {
  /// The statement that inserts the tag of a put. Where SQLite itself fails to run it, the whole
  /// transaction is rolled back.
  func tag(_ write: QueuedWrite) throws(Failure) -> Statement {
    let statement = try tagging.of(connection)
    try statement.bind(1, write.entry!.extended.tag)
    try statement.bind(2, write.key)
    return statement
  }

  /// To be called before the row changes.
  func untag(_ found: Row) throws(Failure) {
    let statement = try untagging.of(connection)
    statement.bind(1, found.slot)
    try statement.run()
  }
}
