import CHutchHTTP
import CSystem

/// A value of the disk tier that is too large to be read whole: a descriptor that reads it,
/// whatever becomes of the entry.
final class StoredFile {
  private let number: Int32
  let size: Int

  private init(_ number: Int32, _ size: Int) {
    self.number = number
    self.size = size
  }

  deinit { _ = close(number) }

  static func open(_ disk: OpaquePointer, _ key: Text) -> StoredFile? {
    var number: Int32 = -1
    guard hutch_open_fd(disk, key.start, key.count, &number) == HUTCH_OK else { return nil }
    var information = stat()
    guard fstat(number, &information) == 0, let size = Int(exactly: information.st_size) else {
      _ = close(number)
      return nil
    }
    return StoredFile(number, size)
  }

  /// A descriptor of its own for the host.
  func duplicate() throws(Failure) -> Int32 {
    let copy = hutch_duplicate(number)
    guard copy >= 0 else { throw .system("no descriptor is left") }
    return copy
  }

  /// The bytes from `start`, as many as there are of `count`; nil: they cannot be read.
  func read(_ start: Int, _ count: Int) throws(Failure) -> FileBytes? {
    let room = max(0, min(count, size - start))
    let bytes = try FileBytes(room)
    guard Files.read(number, into: bytes.room, at: start) == room else { return nil }
    return bytes
  }

  /// Large enough that the calls cost little, and small beside any memory.
  static var pieceSize: Int { 256 << 10 }

  /// Calls `body` with the bytes of a range in pieces; false: it wants no more, or they cannot be
  /// read.
  func forEachPiece(
    _ range: Range<Int>, _ body: (Bytes) throws(Failure) -> Bool
  ) throws(Failure) -> Bool {
    let piece = try FileBytes(min(range.count, StoredFile.pieceSize))
    var start = range.lowerBound
    while start < range.upperBound {
      let count = min(range.upperBound - start, StoredFile.pieceSize)
      let room = UnsafeMutableRawBufferPointer(rebasing: piece.room[..<count])
      guard Files.read(number, into: room, at: start) == count else { return false }
      guard try body(Bytes(room)) else { return false }
      start += count
    }
    return true
  }
}

/// Where a file of the cache has a body.
struct PlaceInFile {
  let file: StoredFile
  let bytes: Range<Int>
}

/// Memory for bytes of a file.
final class FileBytes {
  let room: UnsafeMutableRawBufferPointer
  var bytes: Bytes { Bytes(room) }

  private init(_ room: UnsafeMutableRawBufferPointer) { self.room = room }

  convenience init(_ count: Int) throws(Failure) {
    let memory = try Allocation.bytes(max(1, count))
    self.init(UnsafeMutableRawBufferPointer(start: memory, count: count))
  }

  deinit { free(room.baseAddress) }
}
