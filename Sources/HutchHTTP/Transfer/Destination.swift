import CHutchHTTP
import CSystem

/// Where the body of the final response goes: memory, the host, or a file.
final class Destination {
  private let request: Request
  /// The bytes of the body that were there before this request.
  private(set) var offset: UInt64 = 0
  /// What the host's on_body answered to end the task.
  private(set) var hostsStatus: Int32?
  private var file: PartialFile?

  init(for request: Request) { self.request = request }

  /// The headers of the final response are there.
  func begin(_ response: Response) throws(Failure) {
    guard let path = request.download, response.code >= 200, response.code <= 299 else { return }
    file = try PartialFile(path)
  }

  /// False: the host wants no more.
  func receive(_ bytes: Bytes, _ transfer: Transfer) throws(Failure) -> Bool {
    if let file {
      try file.append(bytes)
      return true
    }
    if let call = request.onBody {
      let task = transfer.task
      let status = task.calling {
        call(request.context, task.pointer, bytes.baseAddress, bytes.count)
      }
      if status != HUTCH_OK { hostsStatus = status }
      return status == HUTCH_OK
    }
    let response = transfer.response
    let (size, overflow) = UInt64(response.body.count).addingReportingOverflow(
      UInt64(bytes.count))
    guard !overflow, size <= transfer.configuration.maxBody else {
      throw Failure(.tooLarge, "the body is larger than max_body")
    }
    try response.body.append(contentsOf: bytes)
    return true
  }

  /// The body is complete.
  func complete() throws(Failure) { try file?.complete() }

  /// The task has ended.
  func close() { file = nil }
}

/// A file that replaces another one when it is complete. Until then it has that one's name with
/// ".part" behind it, and it is removed if it is not completed.
final class PartialFile {
  private let path: Text
  private let partial: Text
  private let number: Int32
  private var size = 0
  private var isComplete = false

  init(_ path: Text) throws(Failure) {
    self.path = path
    partial = try Text(path.start, ".part")
    guard let number = Files.open(partial.start, O_RDWR | O_CREAT | O_NOFOLLOW, mode: 0o666) else {
      throw .system("the file of the download cannot be made")
    }
    // Two downloads to one file would mix their bytes.
    guard flock(number, LOCK_EX | LOCK_NB) == 0 else {
      let failure = Failure.system("another download writes to the file", otherwise: .busy)
      _ = CSystem.close(number)
      throw failure
    }
    self.number = number
    guard ftruncate(number, 0) == 0 else {
      throw .system("the file of the download cannot be emptied")
    }
  }

  deinit {
    if !isComplete { unlink(partial.start) }
    _ = CSystem.close(number)
  }

  func append(_ bytes: Bytes) throws(Failure) {
    guard Files.write(bytes, to: number, at: size) else {
      throw .system("the file of the download cannot be written")
    }
    size += bytes.count
  }

  func complete() throws(Failure) {
    guard rename(partial.start, path.start) == 0 else {
      throw .system("the file of the download cannot get its name")
    }
    isComplete = true
  }
}
