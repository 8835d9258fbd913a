import CSystem
import Synchronization

/// Values as files: those that come in pieces or as files, and those that are wanted as files.
extension DiskTier: FileStorage {
  func keepsInFile(_ size: Int) -> Bool { goesIntoFile(size) }

  func takes(key: Int, size: Int, extended: Int, tag: Int) -> Bool {
    let inFile = goesIntoFile(size)
    let charge = Charge.of(
      key: key, value: size, extended: extended, tag: tag, inFile: inFile)
    return UInt64(charge) <= limits.largestCharge && (inFile || size <= DiskTier.largestInline)
  }

  // MARK: making

  /// A name for a content file that is on its way to a row, for whose sake no sweep touches it.
  /// It lands when the row is committed or the file is gone.
  ///
  /// A folder is filled with many files before another one is begun, as file systems like it:
  /// a new folder takes more than a new file does, and ext4 puts each somewhere else. Those
  /// who write at once do so in different ones.
  func newName(_ suffix: FileSuffix) throws(Failure) -> (ContentName, Directory) {
    guard let directory = placeIfUp else { throw downFailure }
    let random = try ContentName.random(suffix)
    return try filesLock.withLock { () throws(Failure) in
      if namesMade % DiskTier.namesInFolder == 0 { folder = random.folder }
      namesMade &+= 1
      let name = random.inFolder(folder &+ UInt8(truncatingIfNeeded: namesInFlight.count))
      try namesInFlight.append(name.number)
      return (name, directory)
    }
  }

  private static let namesInFolder: UInt64 = 1024

  /// A content file is no longer on its way to a row.
  func land(_ name: ContentName) {
    filesLock.withLock {
      let numbers = namesInFlight.elements
      for i in 0..<numbers.count where numbers[i] == name.number {
        namesInFlight.removeBySwapping(at: i)
        return
      }
    }
  }

  func begin(_ file: ValueFile) throws(Failure) {
    let (name, directory) = try newName(file.suffix)
    do throws(Failure) {
      let number = try ContentFiles.create(name, in: directory)
      file.storage = ContentFile(name, directory, owning: number)
    } catch {
      land(name)
      throw error
    }
  }

  func append(_ bytes: Bytes, to file: ValueFile) throws(Failure) {
    let words: StaticString = "cannot write a content file"
    guard let content = file.content else { return }
    var done = 0
    while done < bytes.count {
      // What has been summed up is in the processor's cache when it is written.
      let piece = Bytes(rebasing: bytes[done..<min(bytes.count, done + DiskTier.pieceSize)])
      content.sum.add(piece)
      if !Files.write(piece, to: content.descriptor, at: file.size) {
        let failure = Failure.system(words)
        guard failure.status == .noSpace else { throw failure }
        makeRoom(Int64(bytes.count - done))
        guard Files.write(piece, to: content.descriptor, at: file.size) else {
          throw .system(words)
        }
      }
      file.size += piece.count
      done += piece.count
    }
  }

  private static let pieceSize = 256 << 10

  func finish(_ file: ValueFile) throws(Failure) {
    guard let content = file.content else { return }
    try ContentFiles.settle(content.descriptor, content.name, in: content.directory, syncing)
    content.close()
    content.checksum = content.sum.value
    content.isWhole = true
  }

  func read(_ file: ValueFile, into target: UnsafeMutableRawBufferPointer) throws(Failure) {
    guard let content = file.content, Files.read(content.descriptor, into: target) == target.count
    else { throw .system("cannot read what was written") }
  }

  func link(
    _ path: Files.Path, _ source: Int32, size: Int, checksum: UInt64, as file: ValueFile
  ) throws(Failure) -> Bool {
    let (name, directory) = try newName(file.suffix)
    do throws(Failure) {
      guard try ContentFiles.link(path, source, name, in: directory, syncing) else {
        land(name)
        return false
      }
    } catch {
      land(name)
      throw error
    }
    let content = ContentFile(name, directory, owning: -1)
    content.checksum = checksum
    content.isWhole = true
    file.size = size
    file.storage = content
    return true
  }

  func discard(_ file: ValueFile) {
    guard let content = file.content else { return }
    content.close()
    let name = content.name
    ContentFiles.discard(content.isWhole ? name : name.temporary, in: content.directory)
    land(name)
    file.storage = nil
  }

  // MARK: finding

  func path(
    of key: Bytes, _ hash: UInt64, at moment: Moment, _ body: (Bytes?) throws(Failure) -> Void
  ) throws(Failure) -> Bool {
    guard let place = try locate(key, hash, at: moment) else { return false }
    guard let name = place.name, let directory = place.directory else {
      try body(nil)
      return true
    }
    var made: UnsafeMutablePointer<CChar>?
    ContentPath.content(name).withPointer {
      made = try? directory.path(of: Bytes(start: $0, count: strlen($0)))
    }
    guard let made else { throw .noMemory }
    defer { free(made) }
    try body(Bytes(start: made, count: strlen(made)))
    return true
  }

  private func locate(
    _ key: Bytes, _ hash: UInt64, at moment: Moment
  ) throws(Failure) -> ValuePlace? {
    var isDamaged = false
    return try locate(key, hash, at: moment, isDamaged: &isDamaged)
  }

  /// Where the newest entry's value is; nil if there is none or it has expired. Tells whether it
  /// found the entry damaged.
  func locate(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, isDamaged: inout Bool
  ) throws(Failure) -> ValuePlace? {
    let view = overlay(key, hash, at: moment)
    if view.isGone { return nil }
    if let write = view.write {
      return ValuePlace(record: view.record, directory: write.directory, file: write.file)
    }
    var found = FoundEntry()
    guard
      let row = try read(key, view.times, view.barred, at: moment, wantsBlock: false, into: &found)
    else { return nil }
    guard row.isSound else {
      noteDamage(key, hash, row.record.version)
      isDamaged = true
      return nil
    }
    return ValuePlace(record: row.record, directory: found.directory, file: row.file)
  }

  func open(_ key: Bytes, _ hash: UInt64, at moment: Moment) throws(Failure) -> Int32? {
    var last: UInt64 = 0
    for _ in 0..<DiskTier.mostRounds {
      guard let found = try locate(key, hash, at: moment), let name = found.name,
        let directory = found.directory
      else { return nil }
      let version = found.record.version
      if let number = try ContentFiles.open(name, in: directory) {
        let file = Descriptor(owning: number)
        if let status = Files.status(of: number), hutch_is_regular(status.st_mode) != 0,
          Int(status.st_size) == found.record.size
        {
          counters.hits.add()
          accesses.note(key, hash, at: moment.time)
          return file.take()
        }
      }
      // As in `find`: only if the same entry is there still, it is damaged.
      if version == last {
        noteDamage(key, hash, version)
        return nil
      }
      last = version
    }
    return nil
  }

  // MARK: holding

  func hold() { writerLock.withLock { trash.holds += 1 } }

  func release() {
    if isLeft { return }
    writerLock.withLock {
      trash.holds -= 1
      if trash.holds == 0 { trash.moveHeld(in: place) }
    }
  }
}

/// Where a value is.
struct ValuePlace {
  let record: Record
  /// Where the file is; nil: it has none.
  let directory: Directory?
  let file: ContentName?
  /// The file has a codec's output, whose size no field of the row says.
  private var isEncoded: Bool { record.codec != 0 }

  /// Of the file that has the value as it is; nil: there is none.
  var name: ContentName? { isEncoded ? nil : file }

  /// Whether the file, if there is one, can have the value: it is there, and of the right size.
  var isComplete: Bool {
    guard let file, let directory else { return true }
    guard let size = ContentFiles.size(file, in: directory) else { return false }
    return isEncoded || size == record.size
  }
}

/// The content file of a `ValueFile`.
final class ContentFile {
  let name: ContentName
  let directory: Directory
  /// -1: closed, or none.
  private(set) var descriptor: Int32
  var sum = Checksum.Sum()
  var checksum: UInt64 = 0
  /// It has its own name and may have a row.
  var isWhole = false

  init(_ name: ContentName, _ directory: Directory, owning descriptor: Int32) {
    self.name = name
    self.directory = directory
    self.descriptor = descriptor
  }

  deinit { close() }

  func close() {
    if descriptor >= 0 { _ = Descriptor(owning: descriptor) }
    descriptor = -1
  }
}

extension ValueFile {
  var content: ContentFile? { storage.map { unsafeDowncast($0, to: ContentFile.self) } }
}
