// The stores that there are. This folder alone knows all of them; above it a store is what
// `Storage` says.

/// Opens the store of a directory (see `StorageOpener`). A directory belongs to one store for its
/// life: the files in it decide, and the option decides for a directory that has no store yet. By
/// default a new directory gets a log, or a SQLite database where the file system is not one for a
/// log.
func openStorage(
  _ directory: Directory, _ options: StorageOptions, _ clock: Clock
) throws(Failure) -> any Storage {
  let isLog = belongsToLog(directory, options)
  do throws(Failure) {
    return try openStorage(directory, isLog, options, clock)
  } catch {
    // Another process has made the other store in the new directory since the look at the files.
    guard belongsToLog(directory, options) != isLog else { throw error }
    return try openStorage(directory, !isLog, options, clock)
  }
}

/// A directory that cannot be read goes by the option. The opening itself fails with the reason, or
/// waits for the directory if it is optional.
private func belongsToLog(_ directory: Directory, _ options: StorageOptions) -> Bool {
  switch try? LogStub.look(directory) {
  case .stub, .damaged: true
  case .other: false
  case .absent, nil:
    options.kind == .log || options.kind == .unspecified && directory.suitsMappedFiles
  }
}

private func openStorage(
  _ directory: Directory, _ isLog: Bool, _ options: StorageOptions, _ clock: Clock
) throws(Failure) -> any Storage {
  if isLog { return try LogStorage.open(directory: directory, options: options, clock: clock) }
  var own = options
  if own.kind == .log { own.kind = .unspecified }
  own.standsInForLog = options.kind == .unspecified && !directory.suitsMappedFiles
  return try DiskTier.open(directory: directory, options: own, clock: clock)
}

/// True if a directory that nothing of this process has open holds a store.
func holdsStorage(_ directory: Directory) throws(Failure) -> Bool {
  // The log's stub has the manifest's name.
  if case .absent = try ManifestFile.look(directory) { return try LogStub.isIn(directory) }
  return true
}

/// Removes the store of such a directory, and the directory if it is empty then. False: it has
/// none.
func destroyStorage(_ directory: Directory) throws(Failure) -> Bool {
  if try LogStub.isIn(directory) { return try LogStorage.destroy(directory) }
  return try DiskTier.destroy(directory)
}
