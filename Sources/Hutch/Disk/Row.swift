/// What may be read of a row before it is believed. Whatever comes from the disk may be
/// anything: each field is checked here, and what cannot be is damage, not a trap.
struct Row {
  var id: Int64 = 0
  var generation: Int64 = 0
  var record = Record()
  var codec: Int64 = 0
  /// See `Seal`.
  var seal: UInt64 = 0
  var file: ContentName?
  /// False: a field is impossible, the entry is damaged.
  var isSound = true

  /// The columns of every statement that reads rows, in this order. The value is last:
  /// without it SQLite reads no more than the head of a long row.
  static let id: Int32 = 0
  static let generation: Int32 = 1
  static let version: Int32 = 2
  static let created: Int32 = 3
  static let accessed: Int32 = 4
  static let expires: Int32 = 5
  static let idle: Int32 = 6
  static let cost: Int32 = 7
  static let size: Int32 = 8
  static let codec: Int32 = 9
  static let checksum: Int32 = 10
  static let file: Int32 = 11
  static let extended: Int32 = 12
  static let value: Int32 = 13

  /// A key and an extended part have at most this many bytes.
  static let longestExtended = 65_535

  /// No value is larger: beyond this sums of sizes could overflow.
  static let largestValue = Int64(1) << 46

  init() {}

  /// The current row of a statement with the columns above.
  init(_ statement: borrowing Statement) throws(Failure) {
    id = statement.integer(Row.id)
    generation = statement.integer(Row.generation)
    record.version = statement.bits(Row.version)
    record.created = statement.integer(Row.created)
    record.accessed = statement.integer(Row.accessed)
    record.expires = statement.integer(Row.expires)
    record.timeToIdle = statement.integer(Row.idle)
    record.cost = statement.bits(Row.cost)
    codec = statement.integer(Row.codec)
    seal = statement.bits(Row.checksum)

    let size = statement.integer(Row.size)
    let extended = try statement.bytes(Row.extended)
    isSound =
      size >= 0 && size <= Row.largestValue && extended.count <= Row.longestExtended
      && record.version != 0 && record.timeToIdle >= 0
    record.size = isSound ? Int(size) : 0
    record.extendedSize = isSound ? extended.count : 0
    if !statement.isNull(Row.file) {
      file = ContentName(try statement.bytes(Row.file))
      if file == nil { isSound = false }
    }
  }
}

/// A row's checksum: over its value, and over key, version and extended data, so that a
/// value under another's key is damage too.
///
///     seal = XXH64(value) ^ salt,  salt = XXH64(key, seeded with version and extended data)
///
/// Whoever has the row's other fields gets the value's own checksum from it without
/// reading the value.
enum Seal {
  static func salt(key: Bytes, version: UInt64, extended: Bytes) -> UInt64 {
    let seed = extended.count == 0 ? version : version ^ Checksum.xxh64(extended)
    return Checksum.xxh64(key, seed: seed)
  }
}

/// What an entry takes up on disk, as it counts against the limit: its row, the key once
/// more in the index, and the blocks of its content file or overflow pages.
enum Charge {
  /// Of the columns beside key, value and extended data, both b-trees' cells included.
  static let row = 96
  /// SQLite's page and, on every usual file system, the block.
  static let page = 4096

  static func of(key: Int, value: Int, extended: Int, inFile: Bool) -> Int64 {
    var inRow = row + 2 * key + extended
    if inFile {
      return Int64(inRow) + Int64(rounded(value))
    }
    inRow += value
    return Int64(inRow > page ? rounded(inRow) : inRow)
  }

  static func rounded(_ size: Int) -> Int { (size + page - 1) / page * page }
}
