import CSystem

/// The result of a look at an entry: its sizes, and a counted reference to its block unless its
/// bytes were copied. The receiver of a `Look` owns the reference.
struct Look {
  /// The parts that a look asks for.
  enum Part { case value, valueAndExtended }

  /// done, notFound, wouldBlock, or bufferTooSmall: the sizes alone.
  var status: Status
  /// Of 24 bits, and 0 in a look for the value. Beside the status, so that four registers hold a
  /// Look.
  private var dataSize: UInt32 = 0
  var size = 0
  var reference: UnownedBlock?
  var version: UInt64 = 0

  @inline(__always) init(_ status: Status) { self.status = status }

  /// Of what a store has copied, or could copy.
  @inline(__always) init(_ size: Int, _ extendedSize: Int, version: UInt64) {
    status = .done
    self.size = size
    dataSize = UInt32(truncatingIfNeeded: extendedSize)
    self.version = version
  }

  @inline(__always) init(_ block: UnownedBlock, _ part: Part) {
    status = .done
    size = block.size
    version = block.version
    if part == .valueAndExtended {
      dataSize = UInt32(truncatingIfNeeded: block.dataSize)
    }
  }

  @inline(__always) var extendedSize: Int { Int(dataSize) }

  /// The size of all that is copied. A block is never so large that the sum overflows.
  var byteCount: Int { size &+ extendedSize }

  /// Copies if all fits, else keeps the reference.
  @inline(never)
  init(_ block: consuming Block, _ part: Part, into buffer: UnsafeMutableRawBufferPointer) {
    self.init(block.unowned, part)
    if byteCount <= buffer.count {
      copy(block.unowned, into: buffer)
    } else {
      reference = block.leak()
    }
  }

  /// The extended data of a block follow its value; the tag is behind them.
  @inline(__always)
  func copy(_ block: UnownedBlock, into buffer: UnsafeMutableRawBufferPointer) {
    if byteCount == 0 { return }
    memcpy(
      buffer.baseAddress.unsafelyUnwrapped, block.value.baseAddress.unsafelyUnwrapped, byteCount)
  }
}
