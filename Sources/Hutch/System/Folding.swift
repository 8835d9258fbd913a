/// The parts that both hashes share: words of the input, and the folded product of two.
enum Folding {
  /// Both halves of the product.
  @inline(__always)
  static func fold(_ a: UInt64, _ b: UInt64) -> UInt64 {
    let product = a.multipliedFullWidth(by: b)
    return product.high ^ product.low
  }

  /// 8 bytes.
  @inline(__always)
  static func word(_ p: UnsafeRawPointer, _ offset: Int) -> UInt64 {
    p.loadUnaligned(fromByteOffset: offset, as: UInt64.self)
  }

  /// 4 bytes.
  @inline(__always)
  static func half(_ p: UnsafeRawPointer, _ offset: Int) -> UInt64 {
    UInt64(p.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
  }

  /// 1 byte.
  @inline(__always)
  static func byte(_ p: UnsafeRawPointer, _ offset: Int) -> UInt64 {
    UInt64(p.load(fromByteOffset: offset, as: UInt8.self))
  }
}
