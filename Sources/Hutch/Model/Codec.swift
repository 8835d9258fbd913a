import CSystem

/// A host's two functions between a value and the bytes that a store keeps of it, for compression
/// or encryption. The library calls them with no lock held, on any thread.
final class Codec: @unchecked Sendable {
  /// Returns a status, and writes its output into the buffer.
  typealias Function = @convention(c) (
    _ context: UnsafeMutableRawPointer?, _ input: UnsafeRawPointer?, _ size: Int,
    _ output: OpaquePointer?
  ) -> Int32

  /// Stored with each entry. Not 0.
  let id: UInt32
  let encoding: Function?
  let decoding: Function?
  let context: UnsafeMutableRawPointer?
  private let release: Release?
  /// The owner of these callbacks (see ThreadState); set before the first call.
  var owner: UnsafeMutableRawPointer?

  /// Takes over the context: `release` is called exactly once, also if a call fails.
  init(
    id: UInt32, encode: Function?, decode: Function?, context: UnsafeMutableRawPointer?,
    release: Release?
  ) {
    self.id = id
    encoding = encode
    decoding = decode
    self.context = context
    self.release = release
  }

  deinit { release?(context) }

  private func call(_ function: Function?, _ input: Bytes, _ output: OutputBuffer) -> Int32 {
    let reference = Unmanaged.passUnretained(output).toOpaque()
    return ThreadState.within(owner ?? Unmanaged.passUnretained(self).toOpaque()) {
      function!(context, input.baseAddress, input.count, OpaquePointer(reference))
    }
  }

  func encode(_ value: Bytes) throws(Failure) -> OutputBuffer {
    let output = OutputBuffer()
    guard call(encoding, value, output) == 0, !output.isShort else {
      throw Codec.failure(output, "the codec could not encode the value")
    }
    return output
  }

  /// Fills `target` with the value. False: the codec says that the stored bytes are damaged, or
  /// they are not those of a value of this size.
  func decode(
    _ stored: Bytes, into target: UnsafeMutableRawBufferPointer
  ) throws(Failure) -> Bool {
    let output = OutputBuffer(filling: target)
    let code = call(decoding, stored, output)
    if code == Status.corrupt.code || output.isShort { return false }
    guard code == 0 else { throw Codec.failure(output, "the codec could not decode the value") }
    return output.count == target.count
  }

  private static func failure(_ output: OutputBuffer, _ words: StaticString) -> Failure {
    output.isShort ? .noMemory : Failure(.io, words)
  }
}

/// The output of a codec: memory of its own that grows, or a place of fixed size.
final class OutputBuffer {
  private var memory: UnsafeMutableRawPointer?
  private(set) var count = 0
  private var capacity = 0
  private let isFixed: Bool
  /// The codec wanted more room than there is.
  private(set) var isShort = false

  @inline(never) init() { isFixed = false }

  init(filling target: UnsafeMutableRawBufferPointer) {
    isFixed = true
    memory = target.baseAddress
    capacity = target.count
  }

  deinit { if !isFixed { free(memory) } }

  /// Valid until the buffer is freed or its size changes.
  var bytes: Bytes { Bytes(start: memory, count: count) }

  /// Room for `size` bytes, with the bytes written before; nil: there is no room.
  func resize(_ size: Int) -> UnsafeMutableRawPointer? {
    // Below 0: more than SSIZE_MAX.
    if size < 0 || size > capacity || memory == nil {
      guard size >= 0, !isFixed, let grown = realloc(memory, max(size, 16)) else {
        isShort = true
        return nil
      }
      memory = grown
      capacity = max(size, 16)
    }
    count = size
    return memory
  }
}
