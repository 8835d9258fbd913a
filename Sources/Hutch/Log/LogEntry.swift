import CSystem
import Synchronization

/// An entry's bytes in the log. They never change once a slot names them, but for the second
/// half of `accessed`.
///
///      0  address   of the entry itself: what lies here from an earlier use of the place can
///                   never pass for it
///      8  check     over all that follows but `accessed` (LogCheck)
///     16  version
///     24  created
///     32  accessed  milliseconds since 1970, 44 bits, below 20 bits that follow from the
///                   address: a late reader that notes its access in a place which has been used
///                   again fails
///     40  sizes     of the value, 32 bits; of the key, 16; which fields follow, 16
///     48  checksum  XXH3 of the value
///     56  fields    8 bytes each, of those that are not 0: expires, time to idle, cost; of a value
///                   in a content file: the number in the file's name, the value's size, and two
///                   words of the name's suffix; codec: its id, 32 bits, and the size of the
///                   decoded value, 32; sizes: of extended data with tag, 32 bits; of the tag, 8
///         key, value, extended data, tag
///
/// 16-byte aligned, as is its size. An entry with a content file has no value here.
///
/// Three kinds of entries are records of the store's own, for a reader of the log without the index
/// (LogStore+Streams, +Checkpoint). No slot names them, but for the first kind while an index is
/// being made.
///
///     removal    its key was removed: older entries of it are none. It has no value. Where there
///                was no room for such a record, or a walk has removed an expired entry, the entry
///                becomes one: its fields say so, and its check stays as it was
///     beginning  the first entry of a segment. Its key is the address at which the entries of the
///                segment before end, its value the floor at that time; 8 bytes each. In the stream
///                of kept entries the key is 0
///     passed     how far the cleaner had come: to the address that is its key among the new
///                entries, and to its value among the kept ones. What lies below was evicted,
///                moved or dead
///
/// In the stream of kept entries a unit follows each copy, for a reader of the log without the
/// index:
///
///      0  origin    the address that the entry had among the new ones. 0 and no other bits: the
///                   copy was removed, and there is no record of that
///      8  end       0, or the address of what replaced or removed it: the copy is none if the log
///                   that is there goes beyond that
///
/// Both have 18 bits above the 46 that follow from the address and the directory's secrets. No
/// record of a removal is needed among the kept entries, and none outlives its segment.
struct LogEntry {
  enum At {
    static let address = 0
    static let check = 8
    static let version = 16
    static let created = 24
    static let accessed = 32
    static let sizes = 40
    static let checksum = 48
    static let fields = 56
  }

  struct Fields: OptionSet {
    let rawValue: UInt64
    static let expires = Fields(rawValue: 1)
    static let timeToIdle = Fields(rawValue: 2)
    static let cost = Fields(rawValue: 4)
    static let fileNumber = Fields(rawValue: 8)
    static let fileSize = Fields(rawValue: 16)
    static let suffixLow = Fields(rawValue: 32)
    static let suffixHigh = Fields(rawValue: 64)
    static let codec = Fields(rawValue: 128)
    /// The highest, so its word is the last.
    static let extended = Fields(rawValue: 256)
    // The kinds of records, which are no fields.
    static let removal = Fields(rawValue: 512)
    static let beginning = Fields(rawValue: 1024)
    static let passed = Fields(rawValue: 2048)
    static let records: Fields = [.removal, .beginning, .passed]
    static let all: UInt64 = 4095
    @inline(__always) var count: Int { (rawValue & 511).nonzeroBitCount }
    @inline(__always) var size: Int { count &* 8 }

    /// The word of a field in the entry at `start`; 0: the entry has no such field.
    @inline(never)
    func word(_ field: Fields, of start: UnsafeMutableRawPointer) -> UInt64 {
      guard contains(field) else { return 0 }
      let before = Fields(rawValue: rawValue & (field.rawValue - 1))
      return SharedWords.load(start + (At.fields + before.size))
    }
  }

  /// The head of an entry, as it was when it was read. The entry may have gone since, and other
  /// bytes may be in its place. A reader takes every size from here, so it stays within the
  /// segment.
  struct Head {
    let start: UnsafeMutableRawPointer
    let address: LogAddress
    let version: UInt64
    let created: Int64
    let accessed: UInt64
    let sizes: UInt64
    /// The field with the sizes of extended data and tag; 0: there are none.
    private let extendedCount: UInt32
    let tagSize: UInt8
    /// Where the fields end. To count them takes more instructions than to keep this.
    private let keyStart: UInt8

    /// Nil: no entry is there, or none that ends within `room` bytes.
    @inline(__always)
    init?(_ start: UnsafeMutableRawPointer, _ address: LogAddress, room: Int) {
      guard room >= At.fields, SharedWords.load(start) == address else { return nil }
      self.start = start
      self.address = address
      version = SharedWords.load(start + At.version)
      created = Int64(bitPattern: SharedWords.load(start + At.created))
      accessed = SharedWords.load(start + At.accessed)
      sizes = SharedWords.load(start + At.sizes)
      let fields = Fields(rawValue: sizes >> 48)
      guard fields.rawValue <= Fields.all else { return nil }
      let end = At.fields + fields.size
      guard end <= room else { return nil }
      keyStart = UInt8(truncatingIfNeeded: end)
      if fields.contains(.extended) {
        let sizes = SharedWords.load(start + (end - 8))
        extendedCount = UInt32(truncatingIfNeeded: sizes & 0x7FFF_FFFF)
        // Other bytes may be here by now: a tag is not longer than the extended data with it.
        tagSize = UInt8(truncatingIfNeeded: min(sizes >> 32 & 0xFF, UInt64(extendedCount)))
      } else {
        extendedCount = 0
        tagSize = 0
      }
      guard byteCount <= room else { return nil }
    }

    @inline(__always) var valueSize: Int { Int(sizes & 0xFFFF_FFFF) }
    @inline(__always) var keySize: Int { Int(sizes >> 32 & 0xFFFF) }
    @inline(__always) var fields: Fields { Fields(rawValue: sizes >> 48) }
    @inline(__always) var extendedSize: Int { Int(extendedCount) }
    @inline(__always) private var keyOffset: Int { Int(keyStart) }
    @inline(__always)
    var byteCount: Int { keyOffset &+ keySize &+ valueSize &+ extendedSize }
    @inline(__always) var units: UInt64 { LogFormat.units(byteCount) }

    @inline(__always)
    var key: Bytes { Bytes(start: start + keyOffset, count: keySize) }
    @inline(__always)
    var value: Bytes { Bytes(start: start + (keyOffset &+ keySize), count: valueSize) }
    @inline(__always)
    var extended: Bytes {
      Bytes(start: start + (keyOffset &+ keySize &+ valueSize), count: extendedSize)
    }

    @inline(__always)
    var check: UInt64 { SharedWords.load(start + At.check) }
    @inline(__always)
    var checksum: UInt64 { SharedWords.load(start + At.checksum) }

    /// Whether it is a record of the store's own.
    @inline(__always) var isRecord: Bool { !fields.isDisjoint(with: .records) }

    /// The key and the value of a record of two words; nil: it is another one.
    var pair: (UInt64, UInt64)? {
      guard keySize == 8, valueSize == 8 else { return nil }
      return (key.loadUnaligned(as: UInt64.self), value.loadUnaligned(as: UInt64.self))
    }

    /// Makes an entry the record of its own removal, in one store. No slot names it.
    func becomeRemoval() {
      SharedWords.store(start + At.sizes, sizes | Fields.removal.rawValue << 48)
    }

    @inline(__always) var hasFile: Bool { fields.contains(.fileNumber) }

    /// The content file that has the value; nil: none has, or the name is not one of the library's.
    @inline(__always) var file: LogFile? { hasFile ? LogFile(fields, of: start) : nil }

    /// The number in the content file's name; 0: there is none.
    var fileNumber: UInt64 { field(.fileNumber) }

    /// The content file that has the value as it was put.
    var fileOfValue: LogFile? { codecID == 0 ? file : nil }

    private var fileSize: Int { LogFile.size(fields, of: start) }
    /// The bytes of the disk that the entry occupies, the content file's blocks included.
    var charge: UInt64 {
      units &* UInt64(LogFormat.unit) &+ fileCharge
    }
    /// The bytes of its content file's blocks; 0: it has none.
    @inline(__always)
    var fileCharge: UInt64 { hasFile ? LogFile.charge(fileSize) : 0 }

    @inline(__always)
    private func field(_ wanted: Fields) -> UInt64 { fields.word(wanted, of: start) }

    /// The codec that has made the value; 0: the value is as it was put.
    @inline(__always)
    var codecID: UInt32 {
      fields.contains(.codec) ? UInt32(truncatingIfNeeded: field(.codec)) : 0
    }

    /// 0: it has none of its own.
    @inline(__always)
    var timeToIdle: Int64 {
      fields.contains(.timeToIdle) ? Int64(bitPattern: field(.timeToIdle)) : 0
    }

    var record: Record {
      var record = Record(
        version: version, created: created, size: hasFile ? fileSize : valueSize,
        extendedSize: extendedSize)
      record.tagSize = tagSize
      record.checksum = checksum
      record.accessed = max(created, Int64(accessed & Access.mask) &* 1_000_000)
      if !fields.isEmpty {
        record.expires = Int64(bitPattern: field(.expires))
        record.timeToIdle = timeToIdle
        record.cost = field(.cost)
        let codec = field(.codec)
        record.codec = UInt32(truncatingIfNeeded: codec)
        record.decodedSize = Int(codec >> 32)
      }
      return record
    }

    /// Notes the time of an access. For an entry without a time to idle, once a second is enough.
    @inline(__always)
    func noteAccess(at time: Int64, isIdling: Bool) {
      let now = Access.word(address, time, roundsUp: isIdling)
      let before = max(Int64(accessed & Access.mask), created / 1_000_000)
      let passed = Int64(now & Access.mask) - before
      if passed < (isIdling ? 1 : 1_000) { return }
      SharedWords.replace(start + At.accessed, accessed, by: now)
    }
  }

  /// The word `accessed`.
  enum Access {
    static let mask: UInt64 = 1 << 44 - 1

    /// A time is rounded up if the entry's idle time counts: the entry must not end sooner than
    /// that says. Else it is rounded down, so that no walk takes the access for one of the future.
    @inline(__always)
    static func word(_ address: LogAddress, _ time: Int64, roundsUp: Bool) -> UInt64 {
      let tag = address &* 0x9E37_79B9_7F4A_7C15 & ~mask
      let rounded = (roundsUp ? Record.sum(time, 999_999) : time) / 1_000_000
      return tag | min(UInt64(clamping: rounded), mask)
    }
  }

  /// Of a beginning, and of a record of what the cleaner has passed.
  static let pairSize = At.fields + 16
  static func removalSize(key: Int) -> Int { At.fields + key }

  // MARK: writing

  /// The bytes of the log that an entry with this record takes.
  static func byteCount(key: Int, _ record: Record, _ file: LogFile?) -> Int {
    let value = file == nil ? record.size : 0
    return At.fields + fields(of: record, file).size &+ key &+ value &+ record.extendedSize
  }

  /// In addition to `kind`. (If the bits began as a constant, the compiler would make a branch for
  /// each set of them.)
  private static func fields(of record: Record, _ file: LogFile?, _ kind: Fields = []) -> Fields {
    var bits = kind.rawValue
    func add(_ field: Fields, _ isThere: Bool) { if isThere { bits |= field.rawValue } }
    if let file {
      let suffix = file.name.suffix.words
      bits |= Fields.fileNumber.rawValue | Fields.fileSize.rawValue
      add(.suffixLow, suffix.0 != 0)
      add(.suffixHigh, suffix.1 != 0)
    }
    add(.expires, record.expires != 0)
    add(.timeToIdle, record.timeToIdle != 0)
    add(.cost, record.cost != 0)
    add(.extended, record.extendedSize != 0)
    add(.codec, record.codec != 0)
    return Fields(rawValue: bits)
  }

  /// What of an entry is to be written: the rest is written by other means.
  enum Part { case all, allButValue, head }

  /// Writes an entry above the log's head, where no other process looks. The entry's own head is
  /// all before the value.
  @inline(never)
  static func write(
    to start: UnsafeMutableRawPointer, _ address: LogAddress, _ record: Record, key: Bytes,
    value: Bytes, _ file: LogFile?, extended: Bytes, check: LogCheck, _ hash: UInt64,
    kind: Fields = [], _ part: Part = .all
  ) {
    let fields = fields(of: record, file, kind)
    SharedWords.store(start + At.address, address)
    SharedWords.store(start + At.version, record.version)
    SharedWords.store(start + At.created, UInt64(bitPattern: record.created))
    // 0: the entry has not been read since it was written.
    let accessed = record.accessed > record.created ? record.accessed : 0
    SharedWords.store(start + At.accessed, Access.word(address, accessed, roundsUp: true))
    SharedWords.store(
      start + At.sizes,
      UInt64(truncatingIfNeeded: value.count) | UInt64(truncatingIfNeeded: key.count) << 32
        | fields.rawValue << 48)
    SharedWords.store(start + At.checksum, record.checksum)
    var place = start + At.fields
    if !fields.isEmpty {
      func add(_ field: Fields, _ value: UInt64) {
        guard fields.contains(field) else { return }
        SharedWords.store(place, value)
        place += 8
      }
      add(.expires, UInt64(bitPattern: record.expires))
      add(.timeToIdle, UInt64(bitPattern: record.timeToIdle))
      add(.cost, record.cost)
      if let file {
        let suffix = file.name.suffix.words
        add(.fileNumber, file.name.number)
        add(.fileSize, UInt64(truncatingIfNeeded: file.size))
        add(.suffixLow, suffix.0)
        add(.suffixHigh, suffix.1)
      }
      add(
        .codec,
        UInt64(record.codec) | UInt64(truncatingIfNeeded: record.decodedSize) << 32)
      add(
        .extended,
        UInt64(truncatingIfNeeded: extended.count) | UInt64(record.tagSize) << 32)
    }
    SharedWords.copy(key, to: place)
    place += key.count
    if part == .all { SharedWords.copy(value, to: place) }
    if part != .head { SharedWords.copy(extended, to: place + value.count) }
    SharedWords.store(
      start + At.check,
      check.sum(hash, start, fields, value: record.checksum, extended))
  }

  static let trailerUnits: UInt64 = 1

  /// Writes another copy of an entry above the head, or the part before `sizes`. Its check stays as
  /// it was, so damage is not made good.
  static func copy(
    _ head: Head, to start: UnsafeMutableRawPointer, _ address: LogAddress, isWhole: Bool = true
  ) {
    SharedWords.store(start + At.address, address)
    SharedWords.copy(
      Bytes(start: head.start + At.check, count: At.accessed - At.check), to: start + At.check)
    SharedWords.store(
      start + At.accessed,
      Access.word(address, 0, roundsUp: false) & ~Access.mask | head.accessed & Access.mask)
    if isWhole { SharedWords.copy(rest(of: head), to: start + At.sizes) }
  }

  /// All of an entry from `sizes` on.
  static func rest(of head: Head) -> Bytes {
    Bytes(start: head.start + At.sizes, count: head.byteCount - At.sizes)
  }
}

/// The check of an entry's bytes: a sum of the key's keyed hash, the record, and XXH3 of value and
/// extended data. A program without the directory's secrets cannot make it. The entry's address is
/// no part of it, so an entry may be moved without being read.
struct LogCheck {
  let secrets: (UInt64, UInt64, UInt64, UInt64)

  @inline(__always)
  func sum(
    _ hash: UInt64, _ start: UnsafeRawPointer, _ fields: LogEntry.Fields, value: UInt64,
    _ extended: Bytes, without kind: LogEntry.Fields = []
  ) -> UInt64 {
    typealias At = LogEntry.At
    func word(_ offset: Int) -> UInt64 {
      SharedWords.load(start + offset)
    }
    var sum = Folding.fold(hash ^ secrets.1, word(At.version) ^ secrets.2)
    sum = Folding.fold(
      sum ^ word(At.created), (word(At.sizes) & ~(kind.rawValue << 48)) ^ secrets.3)
    sum = Folding.fold(sum ^ secrets.0, value ^ secrets.2)
    if !fields.isEmpty {
      for i in 0..<fields.count {
        sum = Folding.fold(sum ^ secrets.3, word(At.fields + i * 8) ^ secrets.1)
      }
      if extended.count > 0 {
        sum = Folding.fold(sum ^ secrets.2, Checksum.xxh3(extended) ^ secrets.0)
      }
    }
    return Checksum.mix(sum)
  }
}

extension LogStore {
  /// True if the entry is what was written. The value and the extended data have been copied, or
  /// are read in place. `kind`: what the entry was not when it was written.
  @inline(never) @_optimize(speed)
  func isSound(
    _ entry: LogEntry.Head, _ hash: UInt64, value checksum: UInt64, _ extended: Bytes,
    without kind: LogEntry.Fields = []
  ) -> Bool {
    checksum == entry.checksum
      && check.sum(hash, entry.start, entry.fields, value: checksum, extended, without: kind)
        == entry.check
  }

  /// True if it is the whole record of a removal: one that was written as such, or an entry that
  /// has become one.
  func isSoundRemoval(_ entry: LogEntry.Head, _ hash: UInt64) -> Bool {
    isSound(entry, hash, value: entry.checksum, entry.extended)
      || isSound(entry, hash, value: entry.checksum, entry.extended, without: .removal)
  }
}
