import CSystem

/// Content files, one value each, as raw bytes. A file is written once under a temporary name and
/// never changed after it gets its own, so a reader needs no lock: a file that it opens is whole.
///
/// No call follows a symbolic link below the cache directory (`Files.openBeneath`): a call names,
/// links or unlinks a file by the descriptor of its folder and a name without a slash.
enum ContentFiles {
  /// The parts of a file that must be on the disk before its row is committed.
  enum Syncing {
    case nothing
    /// Its bytes: a row that survives a loss of power then has its file.
    case bytes
    /// Its bytes and its name.
    case name
  }

  /// Gives a written file its own name. On failure it has none but the temporary one.
  @inline(never)
  static func giveName(
    _ file: Int32, _ name: ContentName, in directory: Directory, _ syncing: Syncing
  ) throws(Failure) {
    let isSynced = syncing == .nothing || Files.sync(file)
    let isNamed =
      isSynced
      && inFolder(of: name, in: directory) { folder in
        name.temporary.withPointer { from in
          name.withPointer { Files.rename(from, at: folder, to: $0, at: folder) }
        }
      }
    guard isNamed else { throw .system("cannot finish a content file") }
    if syncing == .name { try syncFolder(of: name, in: directory) }
  }

  /// The file only gets its own name, beside the one that it has elsewhere. False: it cannot have
  /// one here.
  static func link(
    _ path: Files.Path, _ file: Int32, _ name: ContentName, in directory: Directory,
    _ syncing: Syncing
  ) throws(Failure) -> Bool {
    func link() -> Bool {
      inFolder(of: name, in: directory) { folder in
        name.withPointer { linkat(AT_FDCWD, path, folder, $0, 0) == 0 }
      }
    }
    if !link() {
      guard hutch_errno() == ENOENT, makeFolder(of: name, in: directory), link() else {
        return false
      }
    }
    // The path may name another file since the file was opened.
    let own = Files.status(of: file)
    let linked = try? status(name, in: directory)
    guard let own, let linked, own.identity == linked.identity,
      syncing == .nothing || Files.sync(file)
    else {
      discard(name, in: directory)
      return false
    }
    if syncing == .name { try syncFolder(of: name, in: directory) }
    return true
  }

  /// The names of the folders, which another process may have made a moment ago, reach the disk
  /// too. On failure the file is deleted.
  private static func syncFolder(
    of name: ContentName, in directory: Directory
  ) throws(Failure) {
    func sync(_ path: Files.Path) -> Bool {
      guard
        let number = Files.openBeneath(path, at: directory.descriptor, O_RDONLY | O_DIRECTORY)
      else { return false }
      let folder = Descriptor(owning: number)
      return Files.sync(folder.number)
    }
    guard ContentPath.withFolder(name.folder, sync), sync(ContentPath.folders),
      Files.sync(directory.descriptor)
    else {
      let failure = Failure.system("cannot sync the folders of a content file")
      discard(name, in: directory)
      throw failure
    }
  }

  /// Makes the file under its temporary name.
  static func create(_ name: ContentName, in directory: Directory) throws(Failure) -> Int32 {
    func open() -> Int32? {
      ContentPath.withContent(name.temporary) {
        Files.openBeneath($0, at: directory.descriptor, O_RDWR | O_CREAT | O_EXCL)
      }
    }
    if let number = open() { return number }
    if hutch_errno() == ENOENT, makeFolder(of: name, in: directory), let number = open() {
      return number
    }
    throw .system("cannot make a content file")
  }

  /// True if the directory has, or has had, content files.
  static func hasFolder(in directory: Directory) -> Bool {
    Files.status(ContentPath.folders, at: directory.descriptor) != nil
  }

  /// Makes the folder when it is first needed, or when another program has removed it; and the
  /// folder for removed files, which no removal makes: a directory that is being removed gets no
  /// new folder from maintenance. False: `errno` has the reason why there is no folder.
  @inline(never)
  private static func makeFolder(of name: ContentName, in directory: Directory) -> Bool {
    _ = Files.makeDirectory(ContentPath.trash, at: directory.descriptor)
    guard Files.makeDirectory(ContentPath.folders, at: directory.descriptor),
      let content = Files.openBeneath(
        ContentPath.folders, at: directory.descriptor, O_PATH | O_DIRECTORY)
    else { return false }
    return ContentPath.withFolder(name.folder) {
      let isMade = Files.makeDirectory($0 + ContentPath.foldersLength, at: content)
      let code = hutch_errno()
      CSystem.close(content)
      hutch_set_errno(code)
      return isMade
    }
  }

  /// The name's folder; nil: it cannot be opened, and `errno` has the reason.
  static func folder(of name: ContentName, in directory: Directory) -> Int32? {
    ContentPath.withFolder(name.folder) {
      Files.openBeneath($0, at: directory.descriptor, O_PATH | O_DIRECTORY)
    }
  }

  /// Runs `body` with the descriptor of the name's folder. False: there is no folder, or `body`
  /// returned false; `errno` has the reason.
  @inline(never)
  private static func inFolder(
    of name: ContentName, in directory: Directory, _ body: (Int32) -> Bool
  ) -> Bool {
    guard let number = folder(of: name, in: directory) else { return false }
    let folder = Descriptor(owning: number)
    let isDone = body(folder.number)
    let code = hutch_errno()
    _ = consume folder
    hutch_set_errno(code)
    return isDone
  }

  /// The state of the name itself, also if it is a symbolic link. Nil: not there.
  static func status(_ name: ContentName, in directory: Directory) throws(Failure) -> FileStatus? {
    var found: FileStatus?
    let isThere = inFolder(of: name, in: directory) { folder in
      found = name.withPointer { Files.status($0, at: folder) }
      return found != nil
    }
    if !isThere { try checkMissing() }
    return found
  }

  /// Fails if `errno` is no sign that a file is not there: it may be there.
  private static func checkMissing() throws(Failure) {
    if Files.isMissing || hutch_errno() == ENXIO { return }
    throw .system("cannot open a content file")
  }

  /// The size of a regular file. Nil: not there.
  @inline(never)
  static func size(_ name: ContentName, in directory: Directory) throws(Failure) -> Int? {
    guard let status = try status(name, in: directory), status.isRegular else {
      return nil
    }
    return status.size
  }

  /// Nil: not there.
  @inline(never)
  static func open(_ name: ContentName, in directory: Directory) throws(Failure) -> Int32? {
    // The reader must not wait for a writer if the name is a FIFO.
    let number = ContentPath.withContent(name) {
      Files.openBeneath($0, at: directory.descriptor, O_RDONLY | O_NONBLOCK)
    }
    if number == nil { try checkMissing() }
    return number
  }

  /// A descriptor to read a file of this size by. Nil: not there, or not of this size.
  @inline(never)
  static func open(
    _ name: ContentName, ofSize size: Int, in directory: Directory
  ) throws(Failure) -> Int32? {
    guard let number = try open(name, in: directory) else { return nil }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: number) else {
      throw .system("cannot look at a content file")
    }
    return status.isRegular && status.size == size ? file.take() : nil
  }

  /// Reads a value into its place. False: the file is not there, or not of this size. If the disk
  /// cannot read it, the call fails: the bytes are unknown, and not wrong.
  static func read(
    _ name: ContentName, into target: UnsafeMutableRawBufferPointer, in directory: Directory
  ) throws(Failure) -> Bool {
    try read(name, in: directory) { (size) throws(Failure) in size == target.count ? target : nil }
  }

  /// Like `read`, with the checksum of the bytes.
  static func read(
    _ name: ContentName, into target: UnsafeMutableRawBufferPointer,
    _ sum: inout Checksum.Sum, in directory: Directory
  ) throws(Failure) -> Bool {
    guard let number = try open(name, ofSize: target.count, in: directory) else { return false }
    let file = Descriptor(owning: number)
    // In pieces that are still in the processor's cache when they are summed.
    var done = 0
    while done < target.count {
      let piece = UnsafeMutableRawBufferPointer(
        rebasing: target[done..<min(target.count, done + (128 << 10))])
      guard try isFilled(piece, from: file.number, at: done) else { return false }
      sum.add(Bytes(piece))
      done += piece.count
    }
    return true
  }

  /// False: the file has fewer bytes.
  private static func isFilled(
    _ target: UnsafeMutableRawBufferPointer, from file: Int32, at offset: Int
  ) throws(Failure) -> Bool {
    try Files.fill(target, from: file, at: offset, "cannot read a content file")
  }

  /// Reads a file of any size.
  static func read(
    _ name: ContentName, into buffer: OutputBuffer, in directory: Directory
  ) throws(Failure) -> Bool {
    try read(name, in: directory) { (size) throws(Failure) in
      guard let start = buffer.resize(size) else { throw .noMemory }
      return UnsafeMutableRawBufferPointer(start: start, count: size)
    }
  }

  /// `room` returns the place for a file of that size; nil: the size is wrong.
  @inline(never)
  private static func read(
    _ name: ContentName, in directory: Directory,
    into room: (Int) throws(Failure) -> UnsafeMutableRawBufferPointer?
  ) throws(Failure) -> Bool {
    guard let number = try open(name, in: directory) else { return false }
    let file = Descriptor(owning: number)
    guard let status = Files.status(of: file.number) else {
      throw .system("cannot look at a content file")
    }
    guard status.isRegular, let target = try room(status.size) else { return false }
    return try isFilled(target, from: file.number, at: 0)
  }

  /// Unlinks a file that no row has ever named. False: it is not there.
  @discardableResult @inline(never)
  static func discard(_ name: ContentName, in directory: Directory) -> Bool {
    inFolder(of: name, in: directory) { folder in
      name.withPointer { Files.unlink($0, at: folder) }
    }
  }

  /// Calls `body` with the absolute path of a file, without NUL.
  static func withPath(
    of name: ContentName, in directory: Directory, _ body: (Bytes) throws(Failure) -> Void
  ) throws(Failure) {
    var made: UnsafeMutablePointer<CChar>?
    ContentPath.withContent(name) {
      made = try? directory.path(of: Bytes(start: $0, count: strlen($0)))
    }
    guard let made else { throw .noMemory }
    defer { free(made) }
    try body(Bytes(start: made, count: strlen(made)))
  }

  // MARK: destroying a cache

  /// Unlinks all content files, the removed ones too, and then the folders that are empty.
  static func removeAll(in directory: Directory) {
    let at = directory.descriptor
    func remove(_ folder: Files.Path) {
      unlinkOwn(folder, at: at)
      _ = unlinkat(at, folder, AT_REMOVEDIR)
    }
    for folder in 0...255 { ContentPath.withFolder(UInt8(folder), remove) }
    remove(ContentPath.folders)
    remove(ContentPath.trash)
  }

  /// Unlinks the files of a folder that the library has named. No link is followed to the folder.
  @inline(never)
  static func unlinkOwn(_ folder: Files.Path, at directory: Int32) {
    Files.unlinkAll(in: folder, at: directory) { ContentName($0) != nil }
  }
}
