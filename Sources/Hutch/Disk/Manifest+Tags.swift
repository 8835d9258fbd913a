import CSQLite

/// The table of tags: a row for each row of `entries` that has a tag, changed in the same
/// transaction. An entry without a tag asks nothing of it.
extension Manifest {
  /// A put of an entry with a tag.
  func tag(_ write: QueuedWrite) throws(Failure) {
    let owned = try tagging.of(connection)
    try owned.statement.bind(1, write.entry!.extended.tag)
    try owned.statement.bind(2, write.key)
    try owned.statement.run()
  }

  /// To be called before the row changes.
  func untag(_ found: Row) throws(Failure) {
    let owned = try untagging.of(connection)
    owned.statement.bind(1, found.id)
    try owned.statement.run()
  }
}
