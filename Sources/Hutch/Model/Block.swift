import CSystem
import Synchronization

/// One counted reference to an entry as its write fixed it: record, value, extended data
/// and key, in one allocation. Every tier reads from it, and a host's `hutch_value` is it.
///
/// A thread that holds a reference may read the block. Only its maker writes it, before any other
/// thread has it, except `slot`, `stamp` and `mark`, which belong to the memory tier.
///
///      0  references  UInt32, atomic; the top bit: the value is a host's object
///                     (HostObject.swift), the next: counted as departed (Held.swift); the next:
///                     dirty; the next: encoded; the next: an object is attached
///      4  slot        UInt32, of the memory tier that holds the block, under its lock
///      8  size        UInt32, of the value: 30 bits, below two bits for the header's length
///     12  key size    UInt16
///     14  stamp       UInt16, like slot
///     16  version     UInt64
///     24  created     Int64
///     32  extension   absent in plain entries: a checksum, the sizes of extended data
///                     and tag (24 bits and 8), mark (16 bytes)
///     48  times       absent in most entries: expiry, time to idle, cost, a large size (32)
///         key         beside the header: a lookup compares it, and needs no further line
///
/// | top bits of size | header | the entry has                                        |
/// |------------------|-------:|------------------------------------------------------|
/// | 00               |     32 | nothing but version, created, size: a plain entry    |
/// | 10               |     48 | a checksum, extended data or a tag too               |
/// | 11               |     80 | any of the rest; the size is at 72, the 30 bits are 0 |
///         value       16-byte aligned, then extended data, then the tag; of an encoded value
///                     the codec and the value's size behind them, 16-byte aligned; with an
///                     attached object there its block, a counted reference
struct Block: ~Copyable {
  let unowned: UnownedBlock

  /// Takes over a reference of the caller.
  @inline(__always) init(owning unowned: UnownedBlock) { self.unowned = unowned }

  @inline(__always) deinit { unowned.release() }

  /// Hands the reference over to the caller, which keeps the pointer. (Embedded Swift allows
  /// `discard` only in a function that no other module may inline.)
  @export(interface)
  consuming func leak() -> UnownedBlock {
    let unowned = self.unowned
    discard self
    return unowned
  }
}

extension Optional where Wrapped == Block {
  /// The block, if there is one; valid as long as the owner.
  @inline(__always)
  var unowned: UnownedBlock? {
    switch self {
    case .some(let block): block.unowned
    case .none: nil
    }
  }
}

/// A block that another object keeps alive.
struct UnownedBlock {
  let raw: UnsafeMutableRawPointer

  @inline(__always) init(_ raw: UnsafeMutableRawPointer) { self.raw = raw }

  enum At {
    static let references = 0
    static let slot = 4
    static let size = 8
    static let keySize = 12
    static let stamp = 14
    static let version = 16
    static let created = 24
    static let header = 32
    // The extension.
    static let checksum = 32
    static let extendedSize = 40
    static let mark = 44
    static let extendedHeader = 48
    // The times.
    static let expires = 48
    static let timeToIdle = 56
    static let cost = 64
    static let longSize = 72
    static let longHeader = 80
  }

  static let extensionBit: UInt32 = 1 << 31
  /// The largest size of extended data and tag; the 8 bits above are the tag's size.
  static let largestExtended: UInt32 = 1 << 24 - 1
  static let hasTimes: UInt32 = 1 << 30
  /// A value of this size or more has its size in the times.
  static let longSize = 1 << 30

  @inline(__always)
  private func load<T: BitwiseCopyable>(_ offset: Int, _ type: T.Type) -> T {
    raw.load(fromByteOffset: offset, as: type)
  }

  @inline(__always)
  private var hasExtension: Bool { load(At.size, Int32.self) < 0 }

  @inline(__always)
  private var timed: Bool { load(At.size, UInt32.self) & UnownedBlock.hasTimes != 0 }

  /// True if the record has version, created and size alone: no expiry, time to idle, cost,
  /// checksum, extended data or tag.
  @inline(__always) var isPlain: Bool { !hasExtension }

  /// True if the entry has these extended data, and an end of its own if `expires`, and in all else
  /// is plain. `data`: less than 4 GiB.
  @inline(__always)
  func isPlain(with data: Bytes, expires: Bool) -> Bool {
    data.count == 0 && !expires ? isPlain : hasOnly(data, expires)
  }

  @inline(never)
  private func hasOnly(_ data: Bytes, _ expires: Bool) -> Bool {
    // The tag's size is in the upper bits.
    guard hasExtension, timed == expires, checksum == 0, timeToIdle == 0, cost == 0,
      load(At.extendedSize, UInt32.self) == UInt32(truncatingIfNeeded: data.count)
    else { return false }
    return Bytes(extendedData).hasSameBytes(as: data)
  }

  @inline(__always)
  var headerSize: Int {
    let bits = Int(load(At.size, UInt32.self) >> 30)
    return At.header &+ (bits >> 1) &<< 4 &+ (bits & 1) &<< 5
  }

  /// The layout of a block, read at once. For a plain block, as most are, it is two numbers.
  struct Shape {
    let keySize: Int
    let header: Int
    let size: Int

    @inline(__always)
    var valueOffset: Int { UnownedBlock.valueOffset(header: header, keySize: keySize) }
  }

  @inline(__always)
  var shape: Shape {
    let keySize = self.keySize
    let bits = load(At.size, UInt32.self)
    if _fastPath(bits < UnownedBlock.hasTimes) {
      return Shape(keySize: keySize, header: At.header, size: Int(truncatingIfNeeded: bits))
    }
    return Shape(keySize: keySize, header: headerSize, size: size)
  }

  /// The value's size, of a plain block with at most so many bytes. Other blocks have larger bits.
  @inline(__always)
  func plainSize(upTo most: UInt32 = UnownedBlock.hasTimes &- 1) -> Int? {
    let bits = load(At.size, UInt32.self)
    return _fastPath(bits <= most) ? Int(truncatingIfNeeded: bits) : nil
  }

  /// The value's size, of a block with the extension and without times; else nil.
  @inline(__always)
  var extendedEntrySize: Int? {
    let bits = load(At.size, UInt32.self)
    return bits &>> 30 == 2 ? Int(truncatingIfNeeded: bits & ~UnownedBlock.extensionBit) : nil
  }

  @inline(__always) var keySize: Int { Int(load(At.keySize, UInt16.self)) }

  @inline(__always)
  var size: Int {
    let short = load(At.size, UInt32.self)
    if short & UnownedBlock.hasTimes != 0 { return load(At.longSize, Int.self) }
    return Int(short & ~UnownedBlock.extensionBit)
  }

  /// The size of extended data and tag.
  @inline(__always)
  var extendedSize: Int {
    hasExtension ? Int(load(At.extendedSize, UInt32.self) & UnownedBlock.largestExtended) : 0
  }

  /// The tag's part of it.
  @inline(__always)
  var tagSize: UInt8 {
    hasExtension ? UInt8(load(At.extendedSize, UInt32.self) >> 24) : 0
  }

  /// Belongs to the memory tier, under its lock, where processes share a directory: see
  /// CoherenceCounters. It is 0 in a block that was stored before they shared it, or that has not
  /// been stamped: the copy then counts until its key is written. A plain block has no room for a
  /// number, and never counts.
  var mark: UInt32 {
    @inline(__always) get { hasExtension ? load(At.mark, UInt32.self) : 1 }
    nonmutating set {
      if hasExtension { raw.storeBytes(of: newValue, toByteOffset: At.mark, as: UInt32.self) }
    }
  }

  /// The size of the extended data alone.
  @inline(__always) var dataSize: Int { extendedSize &- Int(tagSize) }

  @inline(__always)
  static func valueOffset(header: Int, keySize: Int) -> Int {
    (header &+ keySize &+ 15) & ~15
  }

  @inline(__always)
  private var valueOffset: Int {
    UnownedBlock.valueOffset(header: headerSize, keySize: keySize)
  }

  var value: UnsafeMutableRawBufferPointer {
    @inline(never) get {
      UnsafeMutableRawBufferPointer(start: raw + valueOffset, count: size)
    }
  }

  /// The extended data, followed by the tag.
  var extendedData: UnsafeMutableRawBufferPointer {
    UnsafeMutableRawBufferPointer(start: raw + (valueOffset + size), count: extendedSize)
  }

  /// Not inlined, like `value`: a lookup compares keys in place (Table.swift).
  var key: Bytes {
    @inline(never) get { Bytes(start: raw + headerSize, count: keySize) }
  }

  var version: UInt64 {
    @inline(__always) get { load(At.version, UInt64.self) }
    // Set by the maker: the cache draws a version when the block is ready to be submitted.
    nonmutating set { raw.storeBytes(of: newValue, toByteOffset: At.version, as: UInt64.self) }
  }

  @inline(__always) var created: Int64 { load(At.created, Int64.self) }
  @inline(__always) var expires: Int64 { timed ? load(At.expires, Int64.self) : 0 }
  @inline(__always) var timeToIdle: Int64 { timed ? load(At.timeToIdle, Int64.self) : 0 }
  @inline(__always) var cost: UInt64 { timed ? load(At.cost, UInt64.self) : 0 }
  @inline(__always) var checksum: UInt64 { hasExtension ? load(At.checksum, UInt64.self) : 0 }

  /// For the maker: computes the checksum of a value that has been filled in. There is room for it
  /// if `allocate` got a checksum that is not 0.
  func setChecksum() {
    assert(hasExtension)
    raw.storeBytes(
      of: Checksum.xxh3(Bytes(value)), toByteOffset: At.checksum, as: UInt64.self)
  }

  /// Likewise, and fills the value in.
  func copyWithChecksum(_ value: Bytes) {
    assert(hasExtension && value.count == size)
    raw.storeBytes(
      of: Checksum.copying(value, to: self.value.baseAddress!), toByteOffset: At.checksum,
      as: UInt64.self)
  }

  var slot: UInt32 {
    @inline(__always) get { load(At.slot, UInt32.self) }
    @inline(__always)
    nonmutating set { raw.storeBytes(of: newValue, toByteOffset: At.slot, as: UInt32.self) }
  }

  /// The record as the write made it: accessed is created.
  var record: Record {
    var record = lifetime
    record.version = version
    record.size = size
    if isPlain && !isEncoded { return record }
    record.cost = cost
    record.extendedSize = extendedSize
    record.tagSize = tagSize
    record.checksum = checksum
    if isEncoded {
      record.codec = codec
      record.decodedSize = decodedSize
    }
    return record
  }

  /// The part of the record that decides when the entry expires; the rest is not set.
  @inline(__always)
  var lifetime: Record {
    Record(created: created, accessed: created, expires: expires, timeToIdle: timeToIdle)
  }

  private var codec: UInt32 { payload.load(as: UInt32.self) }
  private var decodedSize: Int { payload.load(fromByteOffset: 8, as: Int.self) }

  func setCodec(_ record: Record) {
    payload.storeBytes(of: record.codec, as: UInt32.self)
    payload.storeBytes(of: record.decodedSize, toByteOffset: 8, as: Int.self)
    references.pointee.bitwiseOr(UnownedBlock.encodedBit, ordering: .relaxed)
  }

  /// All bytes of the block, header included.
  @inline(__always) var byteCount: Int { valueOffset &+ size &+ extendedSize }

  /// For the only holder, under the lock that keeps it the only one: replaces the value of a block
  /// that is plain with these extended data by another one that fits. `expires`: not 0 if the block
  /// has an end of its own.
  @inline(__always)
  func overwrite(
    _ value: Bytes, extended: Bytes, expires: Int64 = 0, version: UInt64, created: Int64
  ) {
    let bits = extended.count == 0 ? 0 : UnownedBlock.extensionBit
    let offset = valueOffset
    if expires == 0 {
      raw.storeBytes(
        of: UInt32(truncatingIfNeeded: value.count) | bits, toByteOffset: At.size, as: UInt32.self)
    } else {
      raw.storeBytes(of: expires, toByteOffset: At.expires, as: Int64.self)
      raw.storeBytes(of: value.count, toByteOffset: At.longSize, as: Int.self)
    }
    raw.storeBytes(of: version, toByteOffset: At.version, as: UInt64.self)
    raw.storeBytes(of: created, toByteOffset: At.created, as: Int64.self)
    if value.count > 0 {
      memcpy(raw + offset, value.baseAddress.unsafelyUnwrapped, value.count)
    }
    if bits != 0 {
      memcpy(
        raw + (offset &+ value.count), extended.baseAddress.unsafelyUnwrapped, extended.count)
    }
  }

  /// The size to request for a block of that size: all that the heap takes for it, so that a
  /// slightly longer value later fits into the block.
  @inline(__always)
  static func room(for size: Int) -> Int { (size &+ 23) & ~15 &- 8 }

  /// True if a block with so much extended data, and no times, has room for a value of this size,
  /// and not more than it needs.
  @inline(__always)
  func hasRoom(for size: Int, extendedSize: Int = 0) -> Bool {
    let fixed = valueOffset &+ extendedSize
    return UnownedBlock.room(for: fixed &+ self.size) == UnownedBlock.room(for: fixed &+ size)
  }

  // MARK: references

  @inline(__always)
  private var references: UnsafeMutablePointer<Atomic<UInt32>> {
    (raw + At.references).assumingMemoryBound(to: Atomic<UInt32>.self)
  }

  /// Adds a reference. Relaxed: the caller has one already.
  @inline(__always)
  func retained() -> Block {
    retain()
    return Block(owning: self)
  }

  /// Likewise, for a caller that keeps the pointer.
  @inline(__always)
  func retain() { _ = references.pointee.wrappingAdd(1, ordering: .relaxed) }

  static let objectBit: UInt32 = 1 << 31
  private static let departedBit: UInt32 = 1 << 30
  private static let dirtyBit: UInt32 = 1 << 29
  static let encodedBit: UInt32 = 1 << 28
  private static let attachedBit: UInt32 = 1 << 27
  private static let countMask: UInt32 = 1 << 27 - 1

  /// Release, so that this holder's reads come before the block is freed; acquire for the last
  /// holder, which frees it.
  @inline(never)
  func release() {
    let left = references.pointee.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue
    if left & UnownedBlock.countMask == 0 { end(left, atOnce: true) }
  }

  /// Like `release`, where a lock may be held: does not call an object's release function.
  @inline(__always)
  func releaseInside() {
    let left = references.pointee.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue
    if left & UnownedBlock.countMask == 0 { end(left, atOnce: false) }
  }

  /// Like `release`, for a caller that holds no stripe and no other lock.
  @inline(__always)
  func releaseOutside() {
    let left = references.pointee.wrappingSubtract(1, ordering: .acquiringAndReleasing).newValue
    if left & UnownedBlock.countMask == 0 { dispose(left, atOnce: true) }
  }

  /// Called for the last reference.
  @inline(never)
  private func end(_ bits: UInt32, atOnce: Bool) {
    if !EndedBlocks.keep(self) { dispose(bits, atOnce: atOnce) }
  }

  /// Frees a block that had to wait for it.
  @inline(never)
  func endLate() {
    dispose(references.pointee.load(ordering: .relaxed), atOnce: false)
  }

  /// In a block without a reference: the next one of a list. The place is the version's.
  var nextEnded: UnsafeMutableRawPointer? {
    get { load(At.version, UnsafeMutableRawPointer?.self) }
    nonmutating set {
      raw.storeBytes(
        of: newValue, toByteOffset: At.version, as: UnsafeMutableRawPointer?.self)
    }
  }

  private func dispose(_ bits: UInt32, atOnce: Bool) {
    if bits & UnownedBlock.departedBit != 0 { endDeparture() }
    if bits & UnownedBlock.objectBit != 0 { return endObject(atOnce: atOnce) }
    let attached = bits & UnownedBlock.attachedBit != 0 ? payload.load(as: Self.self) : nil
    Heap.give(raw)
    if let attached { if atOnce { attached.releaseOutside() } else { attached.releaseInside() } }
  }

  /// True if another holder than the caller has the block. Only a hint, unless no other thread can
  /// take a reference from the caller's.
  @inline(__always)
  var isShared: Bool {
    references.pointee.load(ordering: .relaxed) & UnownedBlock.countMask > 1
  }

  /// True if the caller's is the only reference, and the caller prevents that another one is taken;
  /// false for a block with an attached object. Acquire: reads of former holders come before.
  @inline(__always)
  var isSole: Bool {
    let mask = UnownedBlock.countMask | UnownedBlock.attachedBit
    return references.pointee.load(ordering: .acquiring) & mask == 1
  }

  /// The same, of a block that is neither dirty nor a host's object, nor encoded or departed.
  @inline(__always)
  var isSoleAndBare: Bool { references.pointee.load(ordering: .acquiring) == 1 }

  @inline(__always)
  var isDeparted: Bool {
    references.pointee.load(ordering: .relaxed) & UnownedBlock.departedBit != 0
  }

  @inline(__always)
  var isObject: Bool {
    references.pointee.load(ordering: .relaxed) & UnownedBlock.objectBit != 0
  }

  /// True if the value is a codec's output. Such a block is on its way to a store, or from it;
  /// memory never has it.
  @inline(__always)
  var isEncoded: Bool {
    references.pointee.load(ordering: .relaxed) & UnownedBlock.encodedBit != 0
  }

  /// See Held.swift.
  func setDeparted(_ isDeparted: Bool) {
    set(UnownedBlock.departedBit, isDeparted)
  }

  /// True if the entry is dirty: the memory tier must write it to the store when it leaves. Set by
  /// the maker, then by the tier under its lock. In a block that has left, it keeps the state that
  /// it had then.
  @inline(__always)
  var isDirty: Bool {
    references.pointee.load(ordering: .relaxed) & UnownedBlock.dirtyBit != 0
  }

  func setDirty(_ isDirty: Bool) {
    set(UnownedBlock.dirtyBit, isDirty)
  }

  /// Release: a thread that sees the bit sees what was written before; for a departed block that is
  /// what `endDeparture` reads.
  private func set(_ bit: UInt32, _ isSet: Bool) {
    if isSet {
      references.pointee.bitwiseOr(bit, ordering: .releasing)
    } else {
      references.pointee.bitwiseAnd(~bit, ordering: .relaxed)
    }
  }

  /// For the maker: from here on the place of the value has a host's object, or not any more.
  func setObject(_ isObject: Bool) {
    set(UnownedBlock.objectBit, isObject)
  }

  /// The block of the host's object that the value stands for (ObjectCodec), if it has been made.
  /// Valid as long as this block.
  var attached: UnownedBlock? {
    let bits = references.pointee.load(ordering: .relaxed)
    return bits & UnownedBlock.attachedBit == 0 ? nil : payload.load(as: Self.self)
  }

  /// For the maker, of a block with room for it (`attachmentSize`).
  func attach(_ object: UnownedBlock) {
    payload.storeBytes(of: object.retained().leak(), as: Self.self)
    references.pointee.bitwiseOr(UnownedBlock.attachedBit, ordering: .relaxed)
  }

  static let attachmentSize = 16

  /// The place of the codec of an encoded value, and of an attached object: behind the tag.
  var payload: UnsafeMutableRawPointer {
    raw + (valueOffset + size + extendedSize + 15) & ~15
  }
}
