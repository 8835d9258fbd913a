// What every boundary between C and Swift needs: checks of arguments, and structs with a size. Both
// libraries are compiled with this file.
//
// The arguments arrive unchecked. The header has no nullability marks, so a pointer may be nil. A
// size_t arrives as Int, so a size that no object can have is negative.

internal import CHutch
import CSystem

/// Maps the result of a call: a failure becomes its status, and this thread's last
/// error. `subject`: the path that a failure is about.
@inline(__always)
func answering(
  about subject: UnsafePointer<CChar>? = nil, _ body: () throws(Failure) -> Status
) -> hutch_status {
  do throws(Failure) {
    return try body().code
  } catch {
    return failing(error, about: subject)
  }
}

/// Checks flags, of which a caller may set only those that are `defined`.
@inline(__always)
func checkFlags(_ flags: UInt32, _ defined: UInt32) throws(Failure) {
  if flags & ~defined != 0 { throw .unknown("a flag is not defined", flags & ~defined) }
}

extension Failure {
  static func invalid(_ words: StaticString) -> Failure { Failure(.invalidArgument, words) }
}

@inline(__always)
func checkedBytes(
  _ pointer: UnsafeRawPointer?, _ size: Int, _ words: StaticString
) throws(Failure) -> Bytes {
  guard size >= 0, pointer != nil || size == 0 else { throw .invalid(words) }
  return Bytes(start: pointer, count: size)
}

@inline(never)
func checkedDuration(_ duration: Int64) throws(Failure) -> Int64 {
  guard duration >= 0 else { throw .invalid("a duration is negative") }
  return duration
}

// MARK: structs with a size

/// Larger than any struct of the header will ever be.
private let largestStruct = 4096

/// Whether a struct can have that size, in this header or another one. Each begins with a word, so
/// its size is a number of words. Another size was never set, or would end within a pointer.
@inline(never)
func isStructSize(_ size: Int) -> Bool {
  let word = MemoryLayout<Int>.size
  return size >= word && size <= largestStruct && size % word == 0
}

/// The size that a struct states.
@inline(never)
private func statedSize(
  _ pointer: UnsafeRawPointer, _ isMissing: StaticString
) throws(Failure) -> Int {
  let size = pointer.loadUnaligned(as: Int.self)
  guard isStructSize(size) else { throw .invalid(isMissing) }
  return size
}

/// A struct from the host. Fields that NULL or the struct of an older header leave out are as in
/// `zero`, which has zero in every field: the default.
@inline(__always)
func received<T>(_ pointer: UnsafePointer<T>?, over zero: T) throws(Failure) -> T {
  var value = zero
  try receive(pointer, into: &value)
  return value
}

/// The same in place. Of a struct with a field that this library does not know, `value` gets the
/// others: it may have a context to release.
@inline(__always)
func receive<T>(_ pointer: UnsafePointer<T>?, into value: inout T) throws(Failure) {
  // This is what keeps within the bytes: a stack protector in each caller would cost 2 KB.
  try _withUnprotectedUnsafeMutableBytes(of: &value) { (bytes) throws(Failure) in
    try receive(pointer, into: bytes)
  }
}

/// Checks that the part of a struct that this library does not know is zero.
@inline(never)
private func receive(
  _ pointer: UnsafeRawPointer?, into target: UnsafeMutableRawBufferPointer
) throws(Failure) {
  guard let pointer else { return }
  let size = try statedSize(pointer, "struct_size of an argument is not set")
  memcpy(target.baseAddress!, pointer, min(size, target.count))
  var offset = target.count
  while offset < size {
    guard pointer.load(fromByteOffset: offset, as: UInt8.self) == 0 else {
      throw Failure(.unsupported, "a struct has a field that this library does not know")
    }
    offset += 1
  }
}

/// Checks a struct that the call fills in, before it does anything else.
@inline(__always)
func checkedResult<T>(_ pointer: UnsafeMutablePointer<T>?) throws(Failure) {
  guard let pointer else { return }
  _ = try statedSize(pointer, "struct_size of a result is not set")
}

/// Sets a struct that a call fills in to zero, but for its size: what it has if the call fails.
@inline(never)
func clear(_ result: UnsafeMutableRawPointer?) {
  guard let result else { return }
  let word = MemoryLayout<Int>.size
  let size = result.loadUnaligned(as: Int.self)
  if isStructSize(size) { memset(result + word, 0, size - word) }
}

/// Fills in a struct of the host, as far as its header knows it; its struct_size stays. The part
/// that only a newer header knows is set to zero.
@inline(__always)
func deliver<T>(_ value: T, to pointer: UnsafeMutablePointer<T>?) {
  guard let pointer else { return }
  _withUnprotectedUnsafeBytes(of: value) { fill(UnsafeMutableRawPointer(pointer), $0) }
}

@inline(never)
private func fill(_ target: UnsafeMutableRawPointer, _ source: UnsafeRawBufferPointer) {
  let word = MemoryLayout<Int>.size
  let size = target.loadUnaligned(as: Int.self)
  memcpy(target + word, source.baseAddress! + word, min(size, source.count) - word)
  if size > source.count { memset(target + source.count, 0, size - source.count) }
}

/// The part of an answer for which a struct of the host has room; the rest is as in `zero`.
@inline(__always)
func told<T>(_ answer: T, by pointer: UnsafeMutablePointer<T>, over zero: T) -> T {
  var part = zero
  _withUnprotectedUnsafeMutableBytes(of: &part) { part in
    _withUnprotectedUnsafeBytes(of: answer) { answer in
      let size = UnsafeRawPointer(pointer).loadUnaligned(as: Int.self)
      part.copyMemory(from: Bytes(rebasing: answer[..<min(size, answer.count)]))
    }
  }
  return part
}

/// True if a field, or an array of fields, is zero.
func isZero<T>(_ field: T) -> Bool {
  withUnsafeBytes(of: field) { bytes in
    for byte in bytes where byte != 0 { return false }
    return true
  }
}
