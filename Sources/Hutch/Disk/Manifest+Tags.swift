import CSQLite

/// The table of tags: a row for each row of `entries` that has a tag, changed in the same
/// transaction. An entry without a tag asks nothing of it.
extension Manifest {
  /// A put of an entry with a tag.
  func tag(_ write: QueuedWrite) throws(Failure) {
    if tagging == nil {
      tagging = OwnedStatement(try connection.prepare("INSERT OR IGNORE INTO tags VALUES (?1, ?2)"))
    }
    let owned = tagging!
    try owned.statement.bind(1, write.entry!.extended.tag)
    try owned.statement.bind(2, write.key)
    try owned.statement.run()
  }

  /// To be called before the row changes.
  func untag(_ found: Row) throws(Failure) {
    if untagging == nil {
      untagging = OwnedStatement(
        try connection.prepare(
          """
          DELETE FROM tags
          WHERE tag = (SELECT substr(extended, -(codec >> 32)) FROM entries WHERE id = ?1)
            AND key = (SELECT key FROM entries WHERE id = ?1)
          """))
    }
    let owned = untagging!
    owned.statement.bind(1, found.id)
    try owned.statement.run()
  }
}
