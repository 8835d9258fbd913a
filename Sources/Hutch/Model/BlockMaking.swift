import CSystem
import Synchronization

/// The making of blocks.
extension Block {
  /// A block with this record and key; the caller fills in its value and extended data.
  /// `record.size` and `record.extendedSize` are their sizes. `payload` is 0, or the room for an
  /// attached object.
  @_optimize(speed)
  static func allocate(
    key: Bytes, record: Record, payload: Int = 0
  ) throws(Failure) -> Block {
    typealias At = UnownedBlock.At
    let hasTimes =
      record.expires != 0 || record.timeToIdle != 0 || record.cost != 0
      || record.size >= UnownedBlock.longSize
    let isPlain = !hasTimes && record.checksum == 0 && record.extendedSize == 0
    let header = isPlain ? At.header : hasTimes ? At.longHeader : At.extendedHeader
    guard record.size >= 0, record.extendedSize >= 0,
      record.extendedSize <= Int(UnownedBlock.largestExtended),
      record.extendedSize >= Int(record.tagSize), key.count <= Int(UInt16.max) else {
      throw Failure(.invalidArgument, "the size is larger than any entry can be")
    }
    let fixed = UnownedBlock.valueOffset(header: header, keySize: key.count)
    let (withValue, overflow) = fixed.addingReportingOverflow(record.size)
    let (total, overflowToo) = withValue.addingReportingOverflow(record.extendedSize)
    guard !overflow, !overflowToo, total < Int.max - 64 else { throw .noMemory }

    let payload = record.codec == 0 ? payload : 16
    let room = UnownedBlock.room(for: payload == 0 ? total : (total + 15) & ~15)
    let raw = try Block.memory(room &+ payload, of: key)
    Allocation.prepare(raw, room)
    var size = hasTimes ? UnownedBlock.hasTimes : UInt32(record.size)
    if !isPlain { size |= UnownedBlock.extensionBit }
    UnownedBlock(raw).begin(size, key.count, version: record.version, created: record.created)
    if !isPlain {
      raw.storeBytes(of: record.checksum, toByteOffset: At.checksum, as: UInt64.self)
      raw.storeBytes(
        of: UInt32(record.extendedSize) | UInt32(record.tagSize) << 24,
        toByteOffset: At.extendedSize, as: UInt32.self)
      raw.storeBytes(of: 0, toByteOffset: At.mark, as: UInt32.self)
    }
    if hasTimes {
      raw.storeBytes(of: record.expires, toByteOffset: At.expires, as: Int64.self)
      raw.storeBytes(of: record.timeToIdle, toByteOffset: At.timeToIdle, as: Int64.self)
      raw.storeBytes(of: record.cost, toByteOffset: At.cost, as: UInt64.self)
      raw.storeBytes(of: record.size, toByteOffset: At.longSize, as: Int.self)
    }
    if key.count > 0 {
      (raw + header).copyMemory(from: key.baseAddress!, byteCount: key.count)
    }
    if record.codec != 0 { UnownedBlock(raw).setCodec(record) }
    return Block(owning: UnownedBlock(raw))
  }

  /// Memory for the block of a key.
  @inline(__always)
  private static func memory(
    _ size: Int, of key: Bytes
  ) throws(Failure) -> UnsafeMutableRawPointer {
    guard size >= 0, let memory = Heap.take(size, seed: Heap.seed(key)) else { throw .noMemory }
    return memory
  }

  /// A block with a copy of a value; its record has only the time of the write.
  @_optimize(speed)
  static func plain(key: Bytes, value: Bytes, created: Int64) throws(Failure) -> Block {
    typealias At = UnownedBlock.At
    if value.count >= UnownedBlock.longSize {
      var record = Record()
      record.created = created
      return try copying(key: key, value: value, extended: Extended(), record: record)
    }
    let offset = UnownedBlock.valueOffset(header: At.header, keySize: key.count)
    let raw = try Block.memory(UnownedBlock.room(for: offset &+ value.count), of: key)
    Allocation.prepare(raw, value.count)
    UnownedBlock(raw).begin(
      UInt32(truncatingIfNeeded: value.count), key.count, version: 0, created: created)
    memcpy(raw + At.header, key.baseAddress.unsafelyUnwrapped, key.count)
    if value.count > 0 {
      memcpy(raw + offset, value.baseAddress.unsafelyUnwrapped, value.count)
    }
    return Block(owning: UnownedBlock(raw))
  }

  /// A block with copies of a value, its extended data and its tag. It takes the sizes in `record`
  /// from them.
  @inline(never) @_optimize(speed)
  static func copying(
    key: Bytes, value: Bytes, extended: Extended, record: Record, wantsChecksum: Bool = false,
    attaching object: UnownedBlock? = nil
  ) throws(Failure) -> Block {
    var record = record
    record.size = value.count
    record.setSizes(of: extended)
    if wantsChecksum { record.checksum = 1 }
    let block = try allocate(
      key: key, record: record, payload: object == nil ? 0 : UnownedBlock.attachmentSize)
    if wantsChecksum {
      block.unowned.copyWithChecksum(value)
    } else if value.count > 0 {
      block.unowned.value.baseAddress!
        .copyMemory(from: value.baseAddress!, byteCount: value.count)
    }
    if extended.count > 0 { extended.copy(to: block.unowned.extendedData) }
    if let object { block.unowned.attach(object) }
    return block
  }
}

/// What a short put stores (Memory/ShortPuts.swift). The key is not empty.
struct ShortEntry {
  let key: UnsafeRawPointer
  let keySize: Int
  let value: UnsafeRawPointer
  let valueSize: Int
  let extended: Bytes
  /// As a record's; 0: the entry does not expire by itself.
  let expires: Int64
}

extension UnownedBlock {
  /// Sets the part of the header that every block has, of a new block in no tier. `size`: the
  /// field, with the bits that say what else there is.
  @inline(__always)
  fileprivate func begin(_ size: UInt32, _ keySize: Int, version: UInt64, created: Int64) {
    (raw + At.references).bindMemory(to: Atomic<UInt32>.self, capacity: 1)
      .initialize(to: Atomic(1))
    raw.storeBytes(of: UInt32.max, toByteOffset: At.slot, as: UInt32.self)
    raw.storeBytes(of: size, toByteOffset: At.size, as: UInt32.self)
    // The stamp becomes 0 too.
    raw.storeBytes(
      of: UInt32(truncatingIfNeeded: keySize), toByteOffset: At.keySize, as: UInt32.self)
    raw.storeBytes(of: version, toByteOffset: At.version, as: UInt64.self)
    raw.storeBytes(of: created, toByteOffset: At.created, as: Int64.self)
  }

  /// The size to request for this block. There may be more, as of one with an attached object.
  @inline(__always) var room: Int { UnownedBlock.room(for: byteCount) }

  /// Of a block with these sizes, and with no extension but extended data. The sizes are small.
  @inline(__always)
  static func room(_ keySize: Int, _ valueSize: Int, _ extendedSize: Int) -> Int {
    let header = extendedSize == 0 ? At.header : At.extendedHeader
    return room(for: valueOffset(header: header, keySize: keySize) &+ valueSize &+ extendedSize)
  }

  @inline(__always)
  private static func header(of entry: ShortEntry) -> Int {
    if _slowPath(entry.expires != 0) { return At.longHeader }
    return entry.extended.count == 0 ? At.header : At.extendedHeader
  }

  /// Of the block of an entry.
  @inline(__always)
  static func room(of entry: ShortEntry) -> Int {
    let offset = valueOffset(header: header(of: entry), keySize: entry.keySize)
    return room(for: offset &+ entry.valueSize &+ entry.extended.count)
  }

  /// Returns the field for the size.
  @inline(never)
  private func beginExtension(_ entry: ShortEntry) -> UInt32 {
    raw.storeBytes(of: 0, toByteOffset: At.checksum, as: UInt64.self)
    // The mark becomes 0 too.
    raw.storeBytes(
      of: UInt64(UInt32(truncatingIfNeeded: entry.extended.count)), toByteOffset: At.extendedSize,
      as: UInt64.self)
    if entry.expires == 0 {
      return UInt32(truncatingIfNeeded: entry.valueSize) | UnownedBlock.extensionBit
    }
    raw.storeBytes(of: entry.expires, toByteOffset: At.expires, as: Int64.self)
    raw.storeBytes(of: 0, toByteOffset: At.timeToIdle, as: Int64.self)
    raw.storeBytes(of: 0, toByteOffset: At.cost, as: UInt64.self)
    raw.storeBytes(of: entry.valueSize, toByteOffset: At.longSize, as: Int.self)
    return UnownedBlock.extensionBit | UnownedBlock.hasTimes
  }

  /// Makes a block in memory that has room for it (`room`), with copies of a key, of a value and of
  /// extended data, all small; its record has only the time of the write and its own end. The
  /// caller owns the reference.
  @inline(__always)
  init(_ memory: UnsafeMutableRawPointer, _ entry: ShortEntry, created: Int64) {
    self.init(memory)
    let (key, keySize) = (entry.key, entry.keySize)
    let (value, valueSize, extended) = (entry.value, entry.valueSize, entry.extended)
    var size = UInt32(truncatingIfNeeded: valueSize)
    let header = UnownedBlock.header(of: entry)
    if _slowPath(header != At.header) { size = beginExtension(entry) }
    begin(size, keySize, version: 0, created: created)
    let offset = UnownedBlock.valueOffset(header: header, keySize: keySize)
    if _fastPath(keySize >= 8 && keySize <= 16) {
      let (first, last) = (Folding.word(key, 0), Folding.word(key, keySize &- 8))
      raw.storeBytes(of: first, toByteOffset: header, as: UInt64.self)
      raw.storeBytes(of: last, toByteOffset: header &+ keySize &- 8, as: UInt64.self)
    } else {
      memcpy(raw + header, key, keySize)
    }
    if _fastPath(valueSize <= Int(HUTCH_COPY_AT_ONCE)) {
      hutch_copy_at_once(raw + offset, value, valueSize)
    } else {
      memcpy(raw + offset, value, valueSize)
    }
    if _slowPath(extended.count > 0) {
      memcpy(
        raw + (offset &+ valueSize), extended.baseAddress.unsafelyUnwrapped, extended.count)
    }
  }

  /// A block with the same key, value, extended data and attached object, unless another one is
  /// given, and another record, but for the checksum, which is the value's. It has no mark: a
  /// commit may be changing this block's, under the lock of the memory tier, which gives the block
  /// its own when it takes it (`Shard.put`).
  @_optimize(speed)
  func copied(
    with record: Record, attaching object: UnownedBlock? = nil
  ) throws(Failure) -> Block {
    var record = record
    record.checksum = checksum
    let block = try Block.copying(
      key: key, value: Bytes(value), extended: extended, record: record,
      attaching: object ?? attached)
    block.unowned.setDirty(isDirty)
    return block
  }
}

extension UnownedBlock {
  /// The last access that the memory tier saw, in its own coarse units. Atomic: reads that share
  /// a shard change it at once.
  var stamp: UInt16 {
    @inline(__always) get { atomicStamp.pointee.load(ordering: .relaxed) }
    @inline(__always)
    nonmutating set { atomicStamp.pointee.store(newValue, ordering: .relaxed) }
  }

  @inline(__always)
  private var atomicStamp: UnsafeMutablePointer<Atomic<UInt16>> {
    (raw + At.stamp).assumingMemoryBound(to: Atomic<UInt16>.self)
  }
}
