import CSQLite
import CSystem

/// A buffer before the file of the manifest's write-ahead log: the frames of a commit reach the
/// file in one write.
///
/// SQLite writes each frame by two calls, one for the frame's head and one for its page, and a
/// commit of one put has two to six frames. These calls were 10 to 20 % of the CPU time of a put.
/// So the methods of the file (sqlite3_io_methods) are replaced by methods that buffer what a
/// COMMIT writes and then call SQLite's own ones.
///
/// INVARIANTS
/// 1 Bytes are buffered within a COMMIT alone, from `begin` to `end`, under the writer lock. The
///   frames that a transaction writes before, because the page cache is full, are not buffered:
///   after a rollback, a late write of them would overwrite the frames of another process.
/// 2 A commit ends with a frame whose head has the size of the database; in other heads this number
///   is 0 ("WAL-mode File Format", sqlite.org/walformat.html, section 2). The call that writes the
///   page of that frame writes the whole buffer before it returns, and ends the buffering. SQLite
///   shows the frames to readers later, in the log's index.
/// 3 The buffer has consecutive bytes of the file. A write at another place, a read and a sync
///   write the buffer first, and end the buffering. SQLite asks for the size of the file, or
///   changes it, only before the first frame of a commit or after the last one.
/// 4 If the write of the buffer fails, the bytes are dropped. The call that caused the write fails,
///   so SQLite rolls the whole transaction back.
struct ManifestLogBuffer {
  private typealias File = UnsafeMutablePointer<sqlite3_file>
  private typealias State = UnsafeMutablePointer<hutch_log_buffer>

  private static let headSize: Int32 = 24
  /// Eight frames: a longer commit takes a write for each eight.
  private static let room: Int32 = 8 * (headSize + 4096)

  /// Nil: nothing is buffered.
  private let state: State?

  /// Begins to buffer what the connection writes into its log. Without memory, or if the methods
  /// of SQLite's file are of an older version, nothing is buffered.
  static func begin(_ connection: borrowing Connection) -> ManifestLogBuffer {
    var found: File?
    let code = sqlite3_file_control(
      connection.handle, "main", SQLITE_FCNTL_JOURNAL_POINTER, &found)
    guard code == SQLITE_OK, let file = found, let methods = file.pointee.pMethods else {
      return ManifestLogBuffer(state: nil)
    }
    let isOurs = methods.pointee.xClose.map { unsafeBitCast($0, to: UInt.self) } == closeAddress
    guard let state = isOurs ? of(file) : replaceMethods(of: file) else {
      return ManifestLogBuffer(state: nil)
    }
    state.pointee.is_buffering = 1
    state.pointee.ends_commit = 0
    return ManifestLogBuffer(state: state)
  }

  /// The COMMIT is over. If it failed, bytes may be left, which are dropped.
  func end() {
    guard let state else { return }
    state.pointee.is_buffering = 0
    state.pointee.used = 0
  }

  // MARK: the methods

  private static func of(_ file: File) -> State {
    UnsafeMutableRawPointer(mutating: file.pointee.pMethods)
      .assumingMemoryBound(to: hutch_log_buffer.self)
  }

  private static func bytes(of state: State) -> UnsafeMutableRawPointer {
    UnsafeMutableRawPointer(state) + MemoryLayout<hutch_log_buffer>.stride
  }

  private typealias Close = @convention(c) (File?) -> Int32
  private static let close: Close = { file in
    let file = file!
    let state = of(file)
    file.pointee.pMethods = state.pointee.own
    free(state)
    return file.pointee.pMethods.pointee.xClose(file)
  }
  private static var closeAddress: UInt { unsafeBitCast(close, to: UInt.self) }

  private static func replaceMethods(of file: File) -> State? {
    guard let own = file.pointee.pMethods, own.pointee.iVersion >= 3,
      let raw = try? Allocation.bytes(MemoryLayout<hutch_log_buffer>.stride + Int(room))
    else { return nil }
    let state = raw.bindMemory(to: hutch_log_buffer.self, capacity: 1)
    state.initialize(to: hutch_log_buffer())
    state.pointee.own = own
    state.pointee.methods = own.pointee
    // Later versions have methods that are not copied.
    state.pointee.methods.iVersion = 3
    state.pointee.methods.xClose = close
    state.pointee.methods.xWrite = { file, data, size, offset in
      ManifestLogBuffer.write(file!, data!, size, at: offset)
    }
    state.pointee.methods.xRead = { file, data, size, offset in
      let code = ManifestLogBuffer.settle(file!)
      guard code == SQLITE_OK else { return code }
      return ManifestLogBuffer.of(file!).pointee.own.pointee.xRead(file, data, size, offset)
    }
    state.pointee.methods.xSync = { file, flags in
      let code = ManifestLogBuffer.settle(file!)
      guard code == SQLITE_OK else { return code }
      return ManifestLogBuffer.of(file!).pointee.own.pointee.xSync(file, flags)
    }
    file.pointee.pMethods = UnsafeRawPointer(state)
      .assumingMemoryBound(to: sqlite3_io_methods.self)
    return state
  }

  private static func write(
    _ file: File, _ data: UnsafeRawPointer, _ size: Int32, at offset: Int64
  ) -> Int32 {
    let state = of(file)
    let isNext = state.pointee.used == 0
      || offset == state.pointee.start + Int64(state.pointee.used)
    if state.pointee.is_buffering == 0 || !isNext || size > room {
      let code = settle(file)
      return code == SQLITE_OK ? state.pointee.own.pointee.xWrite(file, data, size, offset) : code
    }
    if size > room - state.pointee.used {
      let code = flush(file)
      if code != SQLITE_OK { return code }
    }
    if state.pointee.used == 0 { state.pointee.start = offset }
    memcpy(bytes(of: state) + Int(state.pointee.used), data, Int(size))
    state.pointee.used += size
    if size == headSize {
      state.pointee.ends_commit =
        data.loadUnaligned(fromByteOffset: 4, as: UInt32.self) == 0 ? 0 : 1
      return SQLITE_OK
    }
    return state.pointee.ends_commit == 0 ? SQLITE_OK : settle(file)
  }

  /// Writes the buffer, and ends the buffering.
  private static func settle(_ file: File) -> Int32 {
    let state = of(file)
    state.pointee.is_buffering = 0
    state.pointee.ends_commit = 0
    return state.pointee.used == 0 ? SQLITE_OK : flush(file)
  }

  private static func flush(_ file: File) -> Int32 {
    let state = of(file)
    let used = state.pointee.used
    state.pointee.used = 0
    return state.pointee.own.pointee.xWrite(file, bytes(of: state), used, state.pointee.start)
  }
}
