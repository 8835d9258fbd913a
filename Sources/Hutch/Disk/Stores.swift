/// The stores that there are: the one place that chooses, and all that is known of them above
/// the protocol. See `StorageOpener`.
func openStorage(
  _ directory: Directory, _ options: StorageOptions, _ clock: Clock
) throws(Failure) -> any Storage {
  switch options.kind {
  case .unspecified, .mixed, .sqlite, .file:
    try DiskTier.open(directory: directory, options: options, clock: clock)
  }
}
