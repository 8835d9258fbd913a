import CSystem

/// The bytes that travel with a value: the host's extended data, and the tag by which entries are
/// removed together. Blocks and stores keep both in one piece, the tag last.
struct Extended {
  private var dataStart: UnsafeRawPointer?
  private var tagStart: UnsafeRawPointer?
  /// The size of both in the lower half, that of the tag in the upper one: one comparison detects
  /// an entry with neither.
  private var sizes: UInt64 = 0

  static let longestTag = 255

  @inline(__always) init() {}

  /// `data`: less than 4 GiB; `tag`: at most `longestTag` bytes; an empty one means no tag.
  @inline(__always)
  init(_ data: Bytes, tag: Bytes = Bytes(start: nil, count: 0)) {
    dataStart = data.baseAddress
    tagStart = tag.baseAddress
    sizes = UInt64(data.count &+ tag.count) | UInt64(tag.count) << 32
  }

  /// The parts of a piece that ends with a tag of this size.
  @inline(__always)
  init(_ piece: Bytes, tagSize: UInt8) {
    let end = piece.count - Int(tagSize)
    dataStart = piece.baseAddress
    tagStart = piece.baseAddress.map { $0 + end }
    sizes = UInt64(piece.count) | UInt64(tagSize) << 32
  }

  /// The size of both.
  @inline(__always) var count: Int { Int(sizes & 0xFFFF_FFFF) }
  @inline(__always) var tagSize: UInt8 { UInt8(truncatingIfNeeded: sizes >> 32) }
  @inline(__always)
  var data: Bytes { Bytes(start: dataStart, count: count &- Int(tagSize)) }
  @inline(__always) var tag: Bytes { Bytes(start: tagStart, count: Int(tagSize)) }

  /// Copies both in one piece to a place with room for them.
  @inline(never)
  func copy(to place: UnsafeMutableRawBufferPointer) {
    guard count > 0, let start = place.baseAddress else { return }
    if let dataStart { memcpy(start, dataStart, data.count) }
    if let tagStart { memcpy(start + data.count, tagStart, tag.count) }
  }
}

extension Record {
  /// Sets the sizes to those of extended data and tag.
  @inline(__always)
  mutating func setSizes(of extended: Extended) {
    extendedSize = extended.count
    tagSize = extended.tagSize
  }
}

extension UnownedBlock {
  /// The host's bytes and the tag.
  var extended: Extended {
    @inline(never) get {
      isPlain ? Extended() : Extended(Bytes(extendedData), tagSize: tagSize)
    }
  }

  @inline(never)
  func hasTag(_ tag: Bytes) -> Bool {
    Int(tagSize) == tag.count && extended.tag.hasSameBytes(as: tag)
  }
}
