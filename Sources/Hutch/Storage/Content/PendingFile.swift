import CSystem

/// A content file before there is an entry with it. It owns the file's descriptor, the file's place
/// among those in flight, and, until it has landed, the file itself: the end of the last reference
/// deletes what has not landed. One thread at a time changes it; a whole one may be read by many.
///
///     state    name on disk     descriptor   end of the last reference
///     open     the temporary    yes          deletes the file
///     whole    its own          no           deletes the file
///     landed   an entry's       no           nothing
///
/// `giveName` leads from open to whole, a link begins as whole, `land` leads to landed. In the
/// child of a fork the file is the parent's, and no child deletes it.
final class PendingFile {
  let name: ContentName
  let directory: Directory
  private let inFlight: FilesInFlight
  private let forks = Process.forks
  /// -1: closed, or none.
  private var descriptor: Int32 = -1
  private var sum = Checksum.Sum()
  /// The bytes that were appended, or linked.
  private(set) var size = 0
  /// The checksum of the value, once the file is whole.
  private(set) var checksum: UInt64 = 0
  private(set) var isWhole = false
  private var hasLanded = false

  private init(_ name: ContentName, _ place: FilePlace) {
    self.name = name
    directory = place.directory
    inFlight = place.inFlight
  }

  /// A file that has a name, and is not there yet.
  @inline(never)
  private static func named(
    _ suffix: FileSuffix, in store: any FileStorage
  ) throws(Failure) -> PendingFile {
    let place = try store.filePlace()
    return PendingFile(try place.inFlight.newName(suffix), place)
  }

  deinit {
    if descriptor >= 0 { _ = Descriptor(owning: descriptor) }
    if hasLanded || Process.isParents(forks) { return }
    ContentFiles.discard(isWhole ? name : name.temporary, in: directory)
    inFlight.end(name)
  }

  /// Makes an empty file, which `append` fills and `giveName` ends. The caller passes it on with a
  /// write; a file whose last reference goes before a write has committed it is deleted.
  @inline(never)
  static func begin(
    _ suffix: FileSuffix, in store: any FileStorage
  ) throws(Failure) -> PendingFile {
    let file = try named(suffix, in: store)
    try findRoom(in: store) { () throws(Failure) in
      file.descriptor = try ContentFiles.create(file.name, in: file.directory)
    }
    return file
  }

  /// Makes a name. The file system may have no room for the file's folder, and then none for the
  /// name: the store makes room each time.
  private static func findRoom(
    in store: any FileStorage, _ make: () throws(Failure) -> Void
  ) throws(Failure) {
    var tries = 0
    while true {
      do throws(Failure) {
        return try make()
      } catch {
        tries += 1
        guard error.status == .noSpace, tries < 3 else { throw error }
      }
      store.makeRoom(1)
    }
  }

  /// Gives the open regular file at a path one more name, in the store. Nil: a hard link is
  /// impossible here, and nothing has happened.
  @inline(never)
  static func link(
    _ path: Files.Path, _ source: Int32, size: Int, checksum: UInt64, _ suffix: FileSuffix,
    in store: any FileStorage
  ) throws(Failure) -> PendingFile? {
    let file = try named(suffix, in: store)
    guard try ContentFiles.link(path, source, file.name, in: file.directory, store.syncing) else {
      return nil
    }
    file.size = size
    file.checksum = checksum
    file.isWhole = true
    return file
  }

  private static let pieceSize = 256 << 10

  /// If the file system is full, the store makes room, once a piece. `checksum`: that of the whole
  /// value, which the bytes are; 0: it is not known.
  @inline(never)
  func append(
    _ bytes: Bytes, checksum: UInt64 = 0, in store: any FileStorage
  ) throws(Failure) {
    self.checksum = checksum
    let words: StaticString = "cannot write a content file"
    var done = 0
    while done < bytes.count {
      // Bytes that have been summed are in the processor's cache when they are written.
      let piece = Bytes(rebasing: bytes[done..<min(bytes.count, done + PendingFile.pieceSize)])
      if checksum == 0 { sum.add(piece) }
      if !Files.write(piece, to: descriptor, at: size) {
        let failure = Failure.system(words)
        guard failure.status == .noSpace else { throw failure }
        store.makeRoom(bytes.count - done)
        guard Files.write(piece, to: descriptor, at: size) else { throw .system(words) }
      }
      size += piece.count
      done += piece.count
    }
  }

  /// Gives the file its own name.
  @inline(never)
  func giveName(in store: any FileStorage) throws(Failure) {
    try PendingFile.findRoom(in: store) { () throws(Failure) in
      try ContentFiles.giveName(descriptor, name, in: directory, store.syncing)
    }
    _ = Descriptor(owning: descriptor)
    descriptor = -1
    if checksum == 0 { checksum = sum.value }
    isWhole = true
  }

  /// The bytes appended so far, `size` of them.
  func read(into target: UnsafeMutableRawBufferPointer) throws(Failure) {
    guard Files.read(descriptor, into: target) == target.count
    else { throw .system("cannot read what was written") }
  }

  /// An entry that is committed has the file.
  func land() {
    hasLanded = true
    inFlight.end(name)
  }
}

/// The names of content files that are on their way to an entry. No sweep for orphans touches such
/// a file. A name ends when the entry is committed or the file is deleted.
///
/// A folder is filled with many files before another one is begun, as file systems like it: a new
/// folder takes more than a new file does, and ext4 puts each somewhere else. Threads that write at
/// once do so in different folders.
final class FilesInFlight {
  /// Protects what follows. Nothing is taken under it.
  private let lock = Lock()
  private var numbers = GrowingArray<UInt64>()
  /// Called with 1 before a name begins, and with -1 when it has ended, for a store that counts
  /// such files where other processes see it. Nil: the store does not count them.
  private var count: ((Int) -> Void)?
  /// How many names have been made, and the folder of the newest.
  private var made: UInt64 = 0
  private var folder: UInt8 = 0
  private static let namesInFolder: UInt64 = 1024

  init(count: ((Int) -> Void)? = nil) { self.count = count }

  /// The store that counts has gone.
  func stopCounting() { lock.withLock { count = nil } }

  /// A new name, which is in flight; `end` is owed.
  func newName(_ suffix: FileSuffix) throws(Failure) -> ContentName {
    let random = try ContentName.random(suffix)
    return try lock.withLock { () throws(Failure) in
      if made % FilesInFlight.namesInFolder == 0 { folder = random.folder }
      made &+= 1
      let name = random.inFolder(folder &+ UInt8(truncatingIfNeeded: numbers.count))
      try numbers.append(name.number)
      count?(1)
      return name
    }
  }

  func end(_ name: ContentName) {
    lock.withLock {
      let elements = numbers.elements
      for i in 0..<elements.count where elements[i] == name.number {
        numbers.removeBySwapping(at: i)
        count?(-1)
        return
      }
    }
  }

  func contains(_ name: ContentName) -> Bool {
    lock.withLock {
      for one in numbers.elements where one == name.number { return true }
      return false
    }
  }

  /// Deletes the files of values that are still being written: their writers outlive the store,
  /// and have nothing left to write to. True if there were any, and what a writer does at this
  /// moment may leave one behind; so they stay counted.
  func discardAll(in directory: Directory) -> Bool {
    lock.withLock {
      count = nil
      for number in numbers.elements {
        ContentFiles.discard(ContentName(number: number).temporary, in: directory)
      }
      return !numbers.isEmpty
    }
  }

  // MARK: fork

  func hold(until end: Deadline) -> Bool { lock.lock(until: end) }
  func letGo() { lock.unlock() }

  /// In the child: what is in flight is the parent's.
  func forget() { lock.withLock { numbers.removeAll() } }

  /// In a child that has no part in the directory.
  func leaveBehind() { lock.renew() }
}
