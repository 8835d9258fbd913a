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
    for folder in 0...255 {
      let path = ContentPath.folder(UInt8(folder))
      path.withPointer { path in
        unlinkOwn(path, at: at)
        _ = unlinkat(at, path, AT_REMOVEDIR)
      }
    }
    for folder in [Files.path("content"), Files.path("trash")] {
      unlinkOwn(folder, at: at)
      _ = unlinkat(at, folder, AT_REMOVEDIR)
    }
    unlinkOwn(Files.path("."), at: at)
    // The manifest goes after the files that it names: after a kill the call can be made again.
    SharedState.removeFile(from: directory)
    for name in databaseNames { _ = Files.unlink(Files.path(name), at: at) }
    lock.unlink(in: directory)
    if rmdir(directory.path) != 0, hutch_errno() != ENOTEMPTY, hutch_errno() != EEXIST {
      throw .system("the cache has been removed, and its directory cannot be")
    }
    return true
  }

  private static var databaseNames: [StaticString] {
    ["manifest.sqlite-wal", "manifest.sqlite-shm", "manifest.sqlite-journal", "manifest.sqlite"]
  }

  /// Unlinks the files of a folder whose names are ours. No link is followed to the folder.
  private static func unlinkOwn(_ folder: Files.Path, at directory: Int32) {
    guard
      let number = Files.open(folder, at: directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW),
      let stream = fdopendir(number)
    else { return }
    defer { closedir(stream) }
    while true {
      var hasUnlinked = false
      // An unlink may hide other names from this reading: it begins again until nothing is left.
      rewinddir(stream)
      while let entry = readdir(stream) {
        let isGone = withUnsafePointer(to: &entry.pointee.d_name) { name in
          name.withMemoryRebound(to: CChar.self, capacity: 256) { text in
            ContentName(Bytes(start: text, count: strlen(text))) != nil
              && Files.unlink(text, at: number)
          }
        }
        if isGone { hasUnlinked = true }
      }
      if !hasUnlinked { return }
    }
  }
}

extension WriterLock {
  /// Unlinks the file that this lock has open, and no other that has its name meanwhile.
  fileprivate func unlink(in directory: Directory) {
    let own = Files.status(of: descriptors.file)
    for name in [Files.path("hutch.lock"), Files.path("lock")] {
      let named = Files.status(name, at: directory.descriptor)
      if let own, let named, own.st_ino == named.st_ino, own.st_dev == named.st_dev {
        _ = Files.unlink(name, at: directory.descriptor)
      }
    }
  }
}
