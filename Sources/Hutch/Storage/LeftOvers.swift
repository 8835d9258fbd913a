import CSystem

/// What may be left of a cache in a directory that was removed while a process had it open: a
/// removal lists a folder before it deletes the folder, and meanwhile the process may have moved a
/// file there. These are the files by which a directory is not known to be a cache's. So a
/// directory that has nothing else counts as empty.
enum LeftOvers {
  static let checkpoint: StaticString = "hutch-checkpoint"
  static let newIndex: StaticString = "hutch-index.new"
  static let newLog: StaticString = "hutch-log.new"
  static let newStub: StaticString = "hutch-stub.new"
  static let shared: StaticString = "hutch.shared"

  @inline(never)
  private static func forEachName(_ body: (Files.Path) -> Void) {
    body(Files.path(checkpoint))
    body(Files.path(newIndex))
    body(Files.path(newLog))
    body(Files.path(newStub))
    body(Files.path(shared))
  }

  /// True if a name in the directory is one of these files, or a folder that has only such files.
  static func contain(_ name: Files.Path, in directory: Int32) -> Bool {
    var isKnown = ContentName(name) != nil
    forEachName { known in if strcmp(name, known) == 0 { isKnown = true } }
    if isKnown { return true }
    if strcmp(name, Files.path("trash")) == 0 {
      return areAll(in: name, directory) { _, _ in false }
    }
    return strcmp(name, Files.path("content")) == 0
      && areAll(in: name, directory) { folder, content in
        strlen(folder) == 2 && areAll(in: folder, content) { _, _ in false }
      }
  }

  /// True if a folder has nothing but files with names of the library, and what `isOwn` accepts.
  private static func areAll(
    in folder: Files.Path, _ parent: Int32, or isOwn: (Files.Path, Int32) -> Bool
  ) -> Bool {
    var areOwn = true
    let isListed = Files.list(folder, at: parent) { name, folder in
      areOwn = ContentName(name) != nil || isOwn(name, folder)
      return areOwn
    }
    return isListed && areOwn
  }

  /// Unlinks them. Files of other programs stay, and the folders that they are in.
  static func remove(from directory: Directory) {
    ContentFiles.removeAll(in: directory)
    ContentFiles.unlinkOwn(Files.path("."), at: directory.descriptor)
    forEachName { name in _ = Files.unlink(name, at: directory.descriptor) }
  }
}
