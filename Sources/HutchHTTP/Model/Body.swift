import CHutchHTTP
import CSystem

/// The body of a request: pieces in a row, which are read when they are sent. It is used by one
/// thread at a time.
final class Body {
  enum Kind {
    case bytes, file, host
  }

  struct Piece: BitwiseCopyable {
    let kind: Kind
    /// Of bytes: a copy, which the body frees.
    var memory: UnsafeMutableRawPointer?
    /// Of a file: the body closes it.
    var file: Int32 = -1
    /// Of the host: called with the request's context.
    var read: hutch_http_read?
    /// Nil: not known, which only the host's may be.
    var size: UInt64?
  }

  private var pieces = GrowingArray<Piece>()
  /// The piece and the offset within it that are read next.
  private var index = 0
  private var offset: UInt64 = 0
  /// Nil: not known.
  private(set) var size: UInt64? = 0

  deinit {
    for piece in pieces.elements {
      free(piece.memory)
      if piece.file >= 0 { _ = close(piece.file) }
    }
  }

  private func append(_ piece: Piece) throws(Failure) {
    try pieces.append(piece)
    guard let whole = size, let more = piece.size else {
      size = nil
      return
    }
    let (sum, overflow) = whole.addingReportingOverflow(more)
    guard !overflow, sum <= UInt64(Int64.max) else {
      throw .invalid("the body is larger than any can be")
    }
    size = sum
  }

  func append(copying bytes: Bytes) throws(Failure) {
    let memory = try Allocation.bytes(bytes.count)
    if let base = bytes.baseAddress { memory.copyMemory(from: base, byteCount: bytes.count) }
    do throws(Failure) {
      try append(Piece(kind: .bytes, memory: memory, size: UInt64(bytes.count)))
    } catch {
      free(memory)
      throw error
    }
  }

  func append(file path: UnsafePointer<CChar>) throws(Failure) {
    // A pipe or a device would keep the session's thread waiting.
    guard let number = Files.open(path, O_RDONLY | O_NONBLOCK) else {
      throw .system(
        "the file to send cannot be opened", otherwise: .http(HUTCH_HTTP_UPLOAD))
    }
    var information = stat()
    guard fstat(number, &information) == 0, information.st_mode & mode_t(S_IFMT) == mode_t(S_IFREG)
    else {
      _ = close(number)
      throw .http(HUTCH_HTTP_UPLOAD, "the file to send is not a regular file")
    }
    do throws(Failure) {
      try append(Piece(kind: .file, file: number, size: UInt64(information.st_size)))
    } catch {
      _ = close(number)
      throw error
    }
  }

  func append(read: @escaping hutch_http_read, size: UInt64?) throws(Failure) {
    try append(Piece(kind: .host, read: read, size: size))
  }

  /// Appends the one of three contents that the host gives.
  func append(
    oneOf data: UnsafeRawPointer?, _ count: Int, file path: UnsafePointer<CChar>?,
    _ read: hutch_http_read?, _ size: UInt64, mayBeEmpty: Bool = false
  ) throws(Failure) {
    let kinds =
      (data != nil || count != 0 ? 1 : 0) + (path != nil ? 1 : 0) + (read != nil ? 1 : 0)
    guard kinds == 1 || (kinds == 0 && mayBeEmpty) else {
      throw .invalid("a body or a part has one content")
    }
    if let path {
      try append(file: path)
    } else if let read {
      try append(read: read, size: size == UInt64.max ? nil : size)
    } else {
      try append(copying: checkedBytes(data, count, "the bytes of a body are NULL"))
    }
  }

  // MARK: reading

  /// Fills `target` as far as there is more, and returns how many bytes it got; 0: the end.
  func read(
    into target: UnsafeMutableRawBufferPointer, context: UnsafeMutableRawPointer?
  ) throws(Failure) -> Int {
    while index < pieces.count {
      let piece = pieces[index]
      let left = piece.size.map { $0 - offset } ?? UInt64.max
      let room = Int(min(UInt64(target.count), left))
      let count = room == 0 ? 0 : try read(piece, into: target.baseAddress!, room, context)
      if count > 0 {
        offset += UInt64(count)
        return count
      }
      guard left == 0 || piece.size == nil else {
        throw .http(HUTCH_HTTP_UPLOAD, "the body to send is shorter than its size")
      }
      index += 1
      offset = 0
    }
    return 0
  }

  private func read(
    _ piece: Piece, into target: UnsafeMutableRawPointer, _ room: Int,
    _ context: UnsafeMutableRawPointer?
  ) throws(Failure) -> Int {
    switch piece.kind {
    case .bytes:
      target.copyMemory(from: piece.memory! + Int(offset), byteCount: room)
      return room
    case .file:
      let part = UnsafeMutableRawBufferPointer(start: target, count: room)
      guard let count = Files.read(piece.file, into: part, at: Int(offset)) else {
        throw .system("the file to send cannot be read", otherwise: .http(HUTCH_HTTP_UPLOAD))
      }
      return count
    case .host:
      let count = piece.read!(context, target, room)
      guard count >= 0, count <= Int64(room) else {
        throw .http(HUTCH_HTTP_UPLOAD, "the function that reads the body has failed")
      }
      return Int(count)
    }
  }

  /// Begins again at the first byte.
  func rewind(context: UnsafeMutableRawPointer?) throws(Failure) {
    guard index > 0 || offset > 0 else { return }
    for piece in pieces.elements {
      guard let read = piece.read else { continue }
      guard read(context, nil, 0) == 0 else {
        throw .http(HUTCH_HTTP_UPLOAD, "the body cannot be sent a second time")
      }
    }
    index = 0
    offset = 0
  }
}
