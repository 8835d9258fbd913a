import CSQLite

extension Failure {
  /// SQLite's own words for its code: static, ends with NUL. Nil: it was not SQLite.
  var detail: UnsafePointer<CChar>? { sqlite == 0 ? nil : sqlite3_errstr(sqlite) }
}
