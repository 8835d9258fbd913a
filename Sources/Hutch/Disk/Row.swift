/// What may be read of a row before it is believed. Whatever comes from the disk may be
/// anything: each field is checked here, and what cannot be is damage, not a trap.
struct Row {
  var id: Int64 = 0
  var generation: Int64 = 0
  var record = Record()
  /// See `Seal`.
  var seal: UInt64 = 0
  var file: ContentName?
  /// Read by walks only.
  var charge: Int64 = 0
  var uses: Int64 = 0
  /// False: a field is impossible, the entry is damaged.
  var isSound = true

  /// The columns of the statements that read a row by its key, in this order. The value is last and
  /// may be left out: then SQLite reads no more than the head of a long row.
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

  /// The column of the codec has the size of the tag above the codec's id.
  static let codecBits: Int64 = 32
  static let largestCodec: Int64 = 1 << codecBits - 1

  static let longestKey = 65_535
  static let longestExtended = 65_535
  static let largestValue = Int64(Record.largestSize)

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
    let codec = statement.integer(Row.codec)
    let tagSize = codec >> Row.codecBits
    seal = statement.bits(Row.checksum)

    let size = statement.integer(Row.size)
    let extended = try statement.bytes(Row.extended)
    isSound =
      size >= 0 && size <= Row.largestValue && extended.count <= Row.longestExtended + Extended.longestTag
      && record.version != 0 && record.timeToIdle >= 0
      && tagSize >= 0 && tagSize <= min(extended.count, Extended.longestTag)
    record.setSize(isSound ? Int(size) : 0, codec & Row.largestCodec)
    record.extendedSize = isSound ? extended.count : 0
    record.tagSize = isSound ? UInt8(tagSize) : 0
    if !statement.isNull(Row.file) {
      file = ContentName(try statement.bytes(Row.file))
      if file == nil { isSound = false }
    }
  }
}

extension Record {
  /// The columns of a row have the size of the value. That of what a codec has made of it is known
  /// when it is read.
  mutating func setSize(_ valueSize: Int, _ codec: Int64) {
    self.codec = UInt32(truncatingIfNeeded: codec)
    size = codec == 0 ? valueSize : 0
    decodedSize = codec == 0 ? 0 : valueSize
  }
}

/// A row's checksum: over its value, and over key, version, generation and extended data, so
/// that a value under another's key, or one that a clear has done away with, is damage too.
///
///     seal = XXH3(value) ^ salt
///     salt = XXH3(key) with version, generation and XXH3(extended data and tag) mixed in, and
///            the size of a tag with the version
///
/// With the row's other fields the value's own checksum follows from it, without the value.
enum Seal {
  static func salt(
    key: Bytes, version: UInt64, generation: Int64, extended: Bytes, tagSize: UInt8
  ) -> UInt64 {
    // By an odd number, so that the two cannot make up for each other.
    let seed =
      (version ^ UInt64(tagSize) << 56)
      &+ UInt64(bitPattern: generation) &* 0x9E37_79B9_7F4A_7C15
    let name = Checksum.xxh3(key) ^ Checksum.mix(seed)
    return Checksum.mix(extended.count == 0 ? name : name &+ Checksum.xxh3(extended))
  }
}

/// What an entry takes up on disk, as it counts against the limit: its share of the pages of
/// the table and of the keys' index, and the blocks of its content file.
///
/// Pages, not bytes: of rows with 3,000 bytes a page of 4,096 holds one. How SQLite divides a
/// payload between a leaf and overflow pages stands in "Database File Format", section 1.6.
enum Charge {
  /// SQLite's page and, on every usual file system, the block.
  static let page = 4096
  /// Of the columns beside key, value and extended data, with their types and the cell.
  private static let columns = 100
  /// Of the rowid beside the key in the index, likewise.
  private static let rowid = 14
  private static let overflowRoom = page - 4
  private static let leastLocal = 489

  /// `extended`: with the tag, of whose index an entry with a tag takes its share.
  @inline(never)
  static func of(key: Int, value: Int, extended: Int, tag: Int, inFile: Bool) -> Int64 {
    let payload = columns + key + extended + (inFile ? 24 : value)
    // New rows fill the table's pages one after the other; keys come in any order, which
    // leaves the pages of their index about two thirds full.
    return Int64(share(payload, mostLocal: 4061))
      + Int64(share(rowid + key, mostLocal: 1002) * 3 / 2)
      + (tag == 0 ? 0 : Int64(share(rowid + tag + key, mostLocal: 1002) * 3 / 2))
      + (inFile ? Int64(rounded(value)) : 0)
  }

  /// The part of a b-tree's pages that a payload takes up.
  private static func share(_ payload: Int, mostLocal: Int) -> Int {
    if payload <= mostLocal { return page / max(1, (page - 8) / payload) }
    let rest = leastLocal + (payload - leastLocal) % overflowRoom
    let local = rest <= mostLocal ? rest : leastLocal
    let overflow = (payload - local + overflowRoom - 1) / overflowRoom
    return overflow * page + page / max(1, (page - 8) / local)
  }

  static func rounded(_ size: Int) -> Int { (size + page - 1) / page * page }
}
