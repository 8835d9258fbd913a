import CSystem

/// Removing a log store from a directory that nothing of this process has open.
extension LogStorage {
  /// Unlinks the files that a log store makes, then the directory if nothing else is in it. False:
  /// there is no log store.
  static func destroy(_ directory: Directory) throws(Failure) -> Bool {
    guard try LogStub.isIn(directory) else { return false }
    let member = try LogMember.opening(directory)
    guard member.isSole() else {
      throw Failure(.busy, "another process has the directory open")
    }
    // The stub goes last, since it says that there is a log store: after a kill the call can be
    // made again.
    LeftOvers.remove(from: directory)
    func unlink(_ name: StaticString) {
      _ = Files.unlink(Files.path(name), at: directory.descriptor)
    }
    unlink(LogStore.indexName)
    unlink(LogStore.logName)
    unlink(LogStub.name)
    unlink(LockFile.name)
    try directory.removeIfEmpty()
    return true
  }
}
