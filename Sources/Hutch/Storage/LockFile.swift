import CSystem

/// The file `hutch.lock`, which has no bytes: its locks say which openings a directory has. It is
/// the first thing that the library makes in a directory. So a directory that has it is a cache's,
/// whatever has become of the other files.
enum LockFile {
  static let name: StaticString = "hutch.lock"

  static func open(_ directory: Directory, _ flags: Int32 = O_CREAT) throws(Failure) -> Descriptor {
    try Files.openRegular(
      Files.path(name), at: directory.descriptor, flags, "cannot open the lock file",
      foreign: "hutch.lock in the directory is not a cache's")
  }

  /// The state of the file that is in the directory now.
  static func status(in directory: Directory) -> FileStatus? {
    Files.status(Files.path(name), at: directory.descriptor)
  }

  static func isIn(_ directory: Directory) -> Bool { status(in: directory)?.isRegular ?? false }

  /// Fails if the directory has other files, and is not a cache's. Another process that opens the
  /// directory meanwhile makes the lock file first. So that is looked for after them once more.
  static func checkHasNoOthers(_ directory: Directory) throws(Failure) {
    if isIn(directory) { return }
    guard try directory.isEmpty || isIn(directory) else {
      throw Failure(.badDirectory, "the directory is not empty, and is not a cache's")
    }
  }
}
