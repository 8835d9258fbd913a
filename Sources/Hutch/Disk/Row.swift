/// A row of `entries` as a read, a write or a walk finds it, before it is believed. Whatever comes
/// from the disk may be anything: each field is checked or clamped here, and an impossible
/// field is damage, not a trap.
struct Row {
  /// The rowid, and the place in the order of writes: see RowScan.
  var slot: Int64 = 0
  var id: Int64 = 0
  var generation: Int64 = 0
  /// `extendedSize` and `tagSize` are set by `setExtended`.
  var record = Record()
  var uses: Int64 = 0
  /// Clamped, as the sizes are: sums of them do not overflow.
  var charge: Int64 = 0
  /// See `Seal`.
  var seal: UInt64 = 0
  var file: ContentName?
  private var tagSize: Int64 = 0
  /// False: a field is impossible, the entry is damaged.
  var isSound = true

  /// The columns that each statement reads rows by, where its text has "{row}". In a
  /// SELECT further columns follow from `more` on: the value last, without which SQLite reads no
  /// more than the head of a long row.
  static let columns: StaticString = """
    slot, id, generation, version, created, accessed, uses, expires, idle, cost, size, charge,
    codec, checksum, file
    """
  static let more: Int32 = 15

  /// The column of the codec has the size of the tag above the codec's id.
  static let codecBits: Int64 = 32
  static let largestCodec: Int64 = 1 << codecBits - 1

  static let longestKey = 65_535
  static let longestExtended = 65_535
  static let largestValue = Int64(Record.largestSize)

  init() {}

  /// Reads the columns above.
  init(_ columns: borrowing some RowColumns & ~Copyable) throws(Failure) {
    self.init(InlineArray<14, Int64> { columns.integer(Int32($0)) })
    if !columns.isNull(14) {
      file = ContentName(try columns.bytes(14))
      if file == nil { isSound = false }
    }
  }

  private init(_ columns: InlineArray<14, Int64>) {
    func bits(_ column: Int) -> UInt64 { UInt64(bitPattern: columns[column]) }
    slot = columns[0]
    id = max(slot, columns[1])
    generation = columns[2]
    record.version = bits(3)
    record.created = columns[4]
    record.accessed = columns[5]
    uses = max(0, columns[6])
    record.expires = columns[7]
    let idle = columns[8]
    record.timeToIdle = max(0, idle)
    record.cost = bits(9)
    let size = columns[10]
    charge = min(max(0, columns[11]), Meta.largest)
    let codec = columns[12]
    record.setSize(Int(min(max(0, size), Row.largestValue)), codec & Row.largestCodec)
    tagSize = codec >> Row.codecBits
    seal = bits(13)
    isSound =
      record.version != 0 && idle >= 0 && size >= 0 && size <= Row.largestValue
      && tagSize >= 0 && tagSize <= Int64(Extended.longestTag)
  }

  /// True if the row is replaced and touched in its slot.
  var isLong: Bool { file == nil && Charge.isLong(charge) }

  /// True if the row has a tag, and so another row in the table of tags.
  var hasTag: Bool { tagSize > 0 }

  /// The column `extended`, which has the extended data and the tag behind it.
  mutating func setExtended(_ extended: Bytes) {
    isSound =
      isSound && extended.count <= Row.longestExtended + Extended.longestTag
      && tagSize <= Int64(extended.count)
    guard isSound else { return }
    record.extendedSize = extended.count
    record.tagSize = UInt8(tagSize)
  }
}

/// The columns of a row as SQLite gives them: to the caller of a SELECT, or to a function.
protocol RowColumns: ~Copyable {
  func integer(_ column: Int32) -> Int64
  func isNull(_ column: Int32) -> Bool
  /// Valid until the next row.
  func bytes(_ column: Int32) throws(Failure) -> Bytes
}

extension RowColumns where Self: ~Copyable {
  /// A version, a cost, a checksum: SQLite's integers have a sign, the bits are the same.
  func bits(_ column: Int32) -> UInt64 { UInt64(bitPattern: integer(column)) }
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
  @inline(never)
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

/// The space that an entry takes up on disk, as it counts against the limit: its share of the pages
/// of the table and of the keys' index, and the blocks of its content file.
///
/// Pages, not bytes: of rows with 3,000 bytes a page of 4,096 holds one. How SQLite divides a
/// payload between a leaf and overflow pages stands in "Database File Format", section 1.6.
enum Charge {
  /// SQLite's page and, on every usual file system, the block.
  static let page = 4096
  /// The bytes of the columns beside key, value and extended data, with their types and the cell.
  private static let columns = 100
  /// The bytes of the rowid beside the key in the index, likewise.
  private static let rowid = 14
  private static let overflowRoom = page - 4
  private static let leastLocal = 489

  /// `extended`: with the tag, of whose index an entry with a tag takes its share.
  @inline(never)
  static func of(key: Int, value: Int, extended: Int, tag: Int, inFile: Bool) -> Int64 {
    let payload = columns + key + extended + (inFile ? 24 : value)
    // A new row goes behind the last one, and a row that goes leaves its place empty: where pages
    // have several rows, they are about three quarters full once entries have been replaced in any
    // order. Keys come in any order, which leaves the pages of their index about two thirds full.
    let row = share(payload, mostLocal: 4061)
    return Int64(row <= page / 2 ? row * 4 / 3 : row)
      + Int64(share(rowid + key, mostLocal: 1002) * 3 / 2)
      + (tag == 0 ? 0 : Int64(share(rowid + tag + key, mostLocal: 1002) * 3 / 2))
      + (inFile ? Int64(rounded(value)) : 0)
  }

  /// Whether a page has three rows of this charge at most, if their values are in them. To delete
  /// such a row and to insert another one changes more pages than to replace its value.
  static func isLong(_ charge: Int64) -> Bool { charge >= Int64(page) * 3 / 8 }

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
