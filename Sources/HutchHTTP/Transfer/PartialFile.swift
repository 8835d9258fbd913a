import CSystem

/// A file that replaces another one when it is complete. Until then it has that one's name with
/// ".part" behind it. What is there of it when the task fails is removed; or kept, if a later
/// request may continue it: see ResumePoint.
///
/// The lock on the open file is held from the opening to the end, so of several downloads to one
/// file, in any processes, one at a time has the two names.
final class PartialFile {
  private let path: Text
  private let partial: Text
  private let record: Text
  private let number: Int32
  /// Where the next byte goes.
  private(set) var size: UInt64 = 0
  /// What the file is a part of; nil: it cannot be continued.
  private(set) var point: ResumePoint?
  private let isResumable: Bool
  /// The file has its final name.
  private var isComplete = false

  /// `isResumable`: what an earlier request left is continued, and what this one leaves is kept.
  static func open(
    _ path: Text, of url: Text, isResumable: Bool
  ) throws(Failure) -> PartialFile {
    let partial = try Text(path.start, ".part")
    let record = try Text(path.start, ".resume")
    let file = PartialFile(path, partial, record, try open(partial), isResumable: isResumable)
    let length = length(file.number)
    if isResumable, length > 0 {
      file.point = try ResumePoint(in: record, of: url)
      if file.point != nil { file.size = length }
    }
    return file
  }

  private init(
    _ path: Text, _ partial: Text, _ record: Text, _ number: Int32, isResumable: Bool
  ) {
    self.path = path
    self.partial = partial
    self.record = record
    self.number = number
    self.isResumable = isResumable
  }

  deinit {
    if !isComplete, point == nil || size == 0 {
      unlink(partial.start)
      unlink(record.start)
    }
    _ = CSystem.close(number)
  }

  private static func open(_ partial: Text) throws(Failure) -> Int32 {
    while true {
      let flags = O_RDWR | O_CREAT | O_NOFOLLOW
      guard let number = Files.open(partial.start, flags, mode: 0o666) else {
        throw .system("the file of the download cannot be made")
      }
      guard flock(number, LOCK_EX | LOCK_NB) == 0 else {
        let failure = Failure.system("another download writes to the file", otherwise: .busy)
        _ = CSystem.close(number)
        throw failure
      }
      // Its last owner may have renamed or removed it between the two calls.
      var mine = stat()
      var named = stat()
      if fstat(number, &mine) == 0, lstat(partial.start, &named) == 0,
        mine.st_ino == named.st_ino, mine.st_dev == named.st_dev
      {
        return number
      }
      _ = CSystem.close(number)
    }
  }

  private static func length(_ number: Int32) -> UInt64 {
    var information = stat()
    return fstat(number, &information) == 0 ? UInt64(max(0, information.st_size)) : 0
  }

  /// Begins at the first byte, for the whole body of a response.
  func restart(_ response: Response, of url: Text) throws(Failure) {
    point = nil
    size = 0
    unlink(record.start)
    guard ftruncate(number, 0) == 0 else {
      throw .system("the file of the download cannot be emptied")
    }
    if isResumable, let new = try ResumePoint(of: response), try new.write(to: record, of: url) {
      point = new
    }
  }

  /// What is there is of no use: the file is removed unless it begins again.
  func giveUp() { point = nil }

  func append(_ bytes: Bytes) throws(Failure) {
    guard Files.write(bytes, to: number, at: Int(size)) else {
      throw .system("the file of the download cannot be written")
    }
    size += UInt64(bytes.count)
  }

  func complete() throws(Failure) {
    guard rename(partial.start, path.start) == 0 else {
      throw .system("the file of the download cannot get its name")
    }
    isComplete = true
    unlink(record.start)
  }
}
