import CSQLite

// All that is known above of the stores that there are.

/// Opens the store of a directory: the one place that chooses. See `StorageOpener`.
func openStorage(
  _ directory: Directory, _ options: StorageOptions, _ clock: Clock
) throws(Failure) -> any Storage {
  switch options.kind {
  case .unspecified, .mixed, .sqlite, .file:
    return try DiskTier.open(directory: directory, options: options, clock: clock)
  case .log:
    // The log store is no part of the library yet (folder Log).
    throw Failure(.unsupported, "options.storage is not defined")
  }
}

/// Whether a directory that nothing of this process has open holds a store.
func holdsStorage(_ directory: Directory) throws(Failure) -> Bool {
  if case .absent = try ManifestFile.look(directory) { return false }
  return true
}

/// Removes the store of such a directory, and the directory if it is empty then. False: it has
/// none.
func destroyStorage(_ directory: Directory) throws(Failure) -> Bool {
  try DiskTier.destroy(directory)
}

extension Failure {
  /// SQLite's own words for its code: static, ends with NUL. Nil: it was not SQLite.
  var detail: UnsafePointer<CChar>? { sqlite == 0 ? nil : sqlite3_errstr(sqlite) }
}
