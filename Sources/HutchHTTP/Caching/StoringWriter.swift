import CHutchHTTP
import CSystem

/// Stores a response whose body comes in pieces, in a file of the disk tier: the whole is never in
/// memory. The value begins with the responses for other requests, and this one is the last record,
/// so its size need not be known.
final class StoringWriter {
  private let pointer: OpaquePointer
  private var hasFailed = false
  private var version: UInt64 = 0

  private init(_ pointer: OpaquePointer) { self.pointer = pointer }

  deinit { hutch_writer_release(pointer) }

  /// Nil: the cache has no disk tier, or takes no value of this size. `size`: of the body; 0: not
  /// known.
  static func begin(
    _ response: StoredResponse, size: UInt64, in cache: HTTPCache, at key: Text,
    for transfer: Transfer
  ) throws(Failure) -> StoringWriter? {
    guard cache.disk != nil else { return nil }
    var pointer: OpaquePointer?
    guard
      hutch_writer_begin(cache.pointer, key.start, key.count, size, nil, &pointer) == HUTCH_OK,
      let pointer
    else { return nil }
    let writer = StoringWriter(pointer)
    var head = GrowingArray<UInt8>()
    try StoredResponse.beginEncoding(&head)
    writer.append(Bytes(head.elements))
    try cache.forEachOther(key, for: transfer) { (bytes) throws(Failure) in
      writer.append(bytes)
    }
    head.removeAll()
    try response.encodeHead(to: &head, bodySize: nil)
    writer.append(Bytes(head.elements))
    return writer.hasFailed ? nil : writer
  }

  func append(_ bytes: Bytes) {
    guard !hasFailed, bytes.count > 0 else { return }
    hasFailed = hutch_writer_append(pointer, bytes.baseAddress, bytes.count) != HUTCH_OK
  }

  /// False: nothing is stored.
  func commit() -> Bool {
    guard !hasFailed else { return false }
    hasFailed = true
    var result = hutch_put_result()
    result.struct_size = MemoryLayout<hutch_put_result>.size
    guard hutch_writer_commit(pointer, &result) == HUTCH_OK else { return false }
    version = result.version
    return true
  }

  /// After the commit: the file with the body, unless the entry has been replaced since. The body
  /// is its last bytes.
  func place(of size: Int, in cache: HTTPCache, at key: Text) -> PlaceInFile? {
    guard let disk = cache.disk, let file = StoredFile.open(disk, key) else { return nil }
    var info = hutch_entry_info()
    info.struct_size = MemoryLayout<hutch_entry_info>.size
    guard hutch_info(disk, key.start, key.count, &info) == HUTCH_OK, info.version == version,
      file.size >= size
    else { return nil }
    return PlaceInFile(file: file, bytes: (file.size - size)..<file.size)
  }
}
