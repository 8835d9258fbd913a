import CSystem

/// A host's functions between its objects and values: with them an object is the value of its key.
/// The library calls them with no lock held.
final class ObjectCodec: @unchecked Sendable {
  /// Returns a status, and writes the value into the buffer.
  typealias Encode = @convention(c) (
    _ context: UnsafeMutableRawPointer?, _ object: UnsafeMutableRawPointer?,
    _ output: OpaquePointer?
  ) -> Int32
  /// Returns a status, and makes an object of the value, which is a block.
  typealias Decode = @convention(c) (
    _ context: UnsafeMutableRawPointer?, _ value: OpaquePointer?,
    _ object: UnsafeMutablePointer<UnsafeMutableRawPointer?>?
  ) -> Int32

  private let encoding: Encode
  private let decoding: Decode
  /// Releases an object that `decode` has made.
  let releasing: Release?
  private let context: UnsafeMutableRawPointer?
  private let release: Release?
  /// The owner of these callbacks (see ThreadState); set before the first call.
  var owner: UnsafeMutableRawPointer?
  /// A struct of the C boundary that describes it, from malloc.
  let told: UnsafeMutableRawPointer

  /// Takes over `told`, and the context: `release` is called exactly once.
  init(
    _ told: UnsafeMutableRawPointer, encode: @escaping Encode, decode: @escaping Decode,
    releaseObject: Release?, context: UnsafeMutableRawPointer?, release: Release?
  ) {
    self.told = told
    encoding = encode
    decoding = decode
    releasing = releaseObject
    self.context = context
    self.release = release
  }

  deinit {
    release?(context)
    free(told)
  }

  /// True if both make the same objects of the same values.
  func isLike(_ other: ObjectCodec?) -> Bool {
    guard let other else { return false }
    return context == other.context
      && unsafeBitCast(encoding, to: UInt.self) == unsafeBitCast(other.encoding, to: UInt.self)
      && unsafeBitCast(decoding, to: UInt.self) == unsafeBitCast(other.decoding, to: UInt.self)
  }

  private func within(_ call: () -> Int32) -> Int32 {
    ThreadState.within(owner ?? Unmanaged.passUnretained(self).toOpaque(), call)
  }

  func encode(_ object: UnsafeMutableRawPointer?) throws(Failure) -> OutputBuffer {
    let output = OutputBuffer()
    let reference = OpaquePointer(Unmanaged.passUnretained(output).toOpaque())
    let code = within { encoding(context, object, reference) }
    if output.isShort { throw .noMemory }
    guard code == 0 else {
      throw ObjectCodec.failure(code, "the object codec could not encode the object")
    }
    return output
  }

  /// The object is the caller's, which gives it back by `releasing`.
  func decode(_ value: UnownedBlock) throws(Failure) -> UnsafeMutableRawPointer? {
    var object: UnsafeMutableRawPointer?
    let code = within { decoding(context, OpaquePointer(value.raw), &object) }
    guard code == 0 else {
      throw ObjectCodec.failure(code, "the object codec could not decode the value")
    }
    return object
  }

  /// A failure that the host names is kept.
  private static func failure(_ code: Int32, _ words: StaticString) -> Failure {
    switch code {
    case Status.noMemory.code: Failure(.noMemory, words)
    case Status.corrupt.code: Failure(.corrupt, words)
    case Status.unsupported.code: Failure(.unsupported, words)
    case Status.wrongType.code: Failure(.wrongType, words)
    default: Failure(.io, words)
    }
  }
}
