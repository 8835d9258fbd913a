import CSystem

/// Removing a cache from a directory.
extension DiskTier {
  /// Unlinks every file that a tier makes in the directory, which nothing of this process has
  /// open, then the folders that are empty. Other files stay, and the folders that they are in.
  /// False: there is no cache.
  static func destroy(_ directory: Directory) throws(Failure) -> Bool {
    switch try ManifestFile.look(directory) {
    case .absent: return false
    case .newer: throw Failure(.newerFormat, "the directory was written by a newer version")
    case .foreign, .unreadable:
      throw Failure(.badDirectory, "manifest.sqlite in the directory is not a cache's")
    case .ours: break
    }
    let lock = try WriterLock(directory)
    try lock.acquire(.exclusive)
    let at = directory.descriptor
    func unlink(_ name: StaticString) { _ = Files.unlink(Files.path(name), at: at) }
    // The manifest goes after the files that it names: after a kill the call can be made again.
    LeftOvers.remove(from: directory)
    unlink(ManifestFile.log)
    unlink(ManifestFile.shared)
    unlink("manifest.sqlite-journal")
    unlink(ManifestFile.name)
    // No other file that has the name meanwhile.
    if lock.belongs(to: directory) { _ = Files.unlink(Files.path(LockFile.name), at: at) }
    try directory.removeIfEmpty()
    return true
  }
}
