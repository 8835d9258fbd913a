import CHutchHTTP
import CSystem

/// Where the body of the final response goes: memory, the host, or a file.
final class Destination {
  private let task: HTTPTask
  private var request: Request { _read { yield task.request } }
  /// The bytes of the body that were there before this request.
  private(set) var offset: UInt64 = 0
  /// The size that the whole body must have; nil: not told.
  private var wanted: UInt64?
  /// What the host's on_body answered to end the task.
  private(set) var hostsStatus: Int32?
  /// Nil: the body does not go to a file. `isInUse`: this response's does.
  private var file: PartialFile?
  private var isInUse = false

  init(for task: HTTPTask) { self.task = task }

  /// The part of an earlier request that this one is to continue; nil: none. Opens the file of a
  /// download that may be continued.
  func resumption() throws(Failure) -> (offset: UInt64, validator: Text)? {
    guard let path = request.download, request.isResumable else { return nil }
    if file == nil { file = try PartialFile.open(path, of: request.url, isResumable: true) }
    guard let file, let point = file.point else { return nil }
    return (file.size, point.validator)
  }

  /// The headers of a response are there that may be the final one. False: it does not fit the part
  /// that is there, which is given up; the request is to be made again without it.
  func begin(_ response: Response) throws(Failure) -> Bool {
    guard let path = request.download else { return true }
    if let file, let point = file.point, response.code == 206 || response.code == 416 {
      guard response.code == 206, let range = ResumePoint.range(in: response.fields),
        range.start == file.size, point.isOf(response)
      else {
        file.giveUp()
        return false
      }
      offset = range.start
      wanted = range.size
      isInUse = true
      return true
    }
    // A part that was not asked for is not the whole.
    if response.code == 206, request.fields.value(of: "Range") == nil {
      throw .http(HUTCH_HTTP_BAD_RESPONSE, "the response is a part that was not asked for")
    }
    guard response.code >= 200, response.code <= 299 else { return true }
    if file == nil { file = try PartialFile.open(path, of: request.url, isResumable: false) }
    try file?.restart(response, of: request.url)
    isInUse = true
    return true
  }

  /// False: the host wants no more.
  func receive(_ bytes: Bytes, _ transfer: Transfer) throws(Failure) -> Bool {
    if isInUse, let file {
      try file.append(bytes)
      return true
    }
    if let call = request.onBody, transfer.rejection == nil {
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
  func complete() throws(Failure) {
    guard isInUse, let file else { return }
    if let wanted, wanted != file.size {
      file.giveUp()
      throw .http(HUTCH_HTTP_BAD_RESPONSE, "the parts are not as long as the whole")
    }
    try file.complete()
  }

  /// The task has ended.
  func close() { file = nil }
}
