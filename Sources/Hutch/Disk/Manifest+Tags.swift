import CSQLite

/// The table of tags: a row for each row of `entries` that has a tag, changed in the same
/// transaction. An entry without a tag asks nothing of it.
extension Manifest {
  /// A put of an entry with a tag.
  func tag(_ write: QueuedWrite) throws(Failure) {
    let statement = try tagging.of(connection)
    try statement.bind(1, write.entry!.extended.tag)
    try statement.bind(2, write.key)
    try statement.run()
  }

  /// To be called before the row changes.
  func untag(_ found: Row) throws(Failure) {
    let statement = try untagging.of(connection)
    statement.bind(1, found.slot)
    try statement.run()
  }
}
