// The stores that there are. This folder alone knows all of them; above it a store is what
// `Storage` says.

/// Opens the store of a directory (see `StorageOpener`). A directory belongs to one store for its
/// life: the files in it decide, and the option decides for a directory that has no store yet. An
/// option that names the other store is refused, since a caller depends on what a store promises.
func openStorage(
  _ directory: Directory, _ options: StorageOptions, _ clock: Clock
) throws(Failure) -> any Storage {
  // A directory that cannot be read goes by the option. The opening itself fails with the reason,
  // or waits for the directory if it is optional.
  let hasLog = (try? LogStub.isIn(directory)) ?? (options.kind == .log)
  do throws(Failure) {
    return try openStorage(directory, hasLog: hasLog, options, clock)
  } catch {
    // Another process has made a log store in the new directory since the look at the files.
    guard !hasLog, (try? LogStub.isIn(directory)) ?? false else { throw error }
    return try openStorage(directory, hasLog: true, options, clock)
  }
}

private func openStorage(
  _ directory: Directory, hasLog: Bool, _ options: StorageOptions, _ clock: Clock
) throws(Failure) -> any Storage {
  switch options.kind {
  case .mixed, .sqlite, .file:
    if hasLog { throw Failure(.invalidArgument, "the directory has another storage kind") }
  // `LogStorage` refuses a manifest.
  case .log: return try LogStorage.open(directory: directory, options: options, clock: clock)
  case .unspecified:
    if hasLog {
      return try LogStorage.open(directory: directory, options: options, clock: clock)
    }
  }
  return try DiskTier.open(directory: directory, options: options, clock: clock)
}

/// True if a directory that nothing of this process has open holds a store.
func holdsStorage(_ directory: Directory) throws(Failure) -> Bool {
  // The log's stub has the manifest's name.
  if case .absent = try ManifestFile.look(directory) { return false }
  return true
}

/// Removes the store of such a directory, and the directory if it is empty then. False: it has
/// none.
func destroyStorage(_ directory: Directory) throws(Failure) -> Bool {
  if try LogStub.isIn(directory) { return try LogStorage.destroy(directory) }
  return try DiskTier.destroy(directory)
}
