// The objects that a host holds by a pointer. The pointer is a counted reference; only these
// functions convert between the two.

internal import CHutch

/// An object that a host may hold.
protocol HostHandle: AnyObject {
  /// The words of a call whose pointer is NULL.
  static var isMissing: StaticString { get }
  /// See Process.forks: a child does not touch the copies of its parent's objects.
  var forks: UInt32 { get }
  /// Fails if the object cannot be used: it is the parent's, or its cache is closed.
  func check() throws(Failure)
}

/// The object behind a pointer of the host.
@inline(__always)
func reference<T: AnyObject>(_ pointer: OpaquePointer, _ type: T.Type) -> Unmanaged<T> {
  Unmanaged<T>.fromOpaque(UnsafeRawPointer(pointer))
}

/// The object behind a pointer, if it can be used.
@inline(never)
func checked<T: HostHandle>(_ pointer: OpaquePointer?, _ type: T.Type) throws(Failure) -> T {
  guard let pointer else { throw .invalid(T.isMissing) }
  let object = reference(pointer, type).takeUnretainedValue()
  try object.check()
  return object
}

/// Calls `body` with the object behind a pointer, if it can be used.
func with<T: HostHandle>(
  _ pointer: OpaquePointer?, _ type: T.Type, _ body: (T) throws(Failure) -> Status
) -> hutch_status {
  answering { () throws(Failure) in try body(try checked(pointer, type)) }
}

/// A new counted reference for the host.
func handOut(_ object: AnyObject) -> OpaquePointer {
  OpaquePointer(Unmanaged.passRetained(object).toOpaque())
}

func retained<T: HostHandle>(_ pointer: OpaquePointer?, _ type: T.Type) -> OpaquePointer? {
  guard let pointer else { return nil }
  _ = reference(pointer, type).retain()
  return pointer
}

func release<T: HostHandle>(_ pointer: OpaquePointer?, _ type: T.Type) {
  guard let pointer else { return }
  let object = reference(pointer, type)
  if object._withUnsafeGuaranteedRef({ Process.isParents($0.forks) }) { return }
  object.release()
}

// MARK: results

/// Calls `body` for the object that `out` is to point to, and gives the host a reference to it.
/// Nil: there is no such object, and the call returns HUTCH_NOT_FOUND. `out` is NULL unless the
/// call succeeds.
@inline(never)
func giving(
  _ out: UnsafeMutablePointer<OpaquePointer?>?,
  _ body: () throws(Failure) -> OpaquePointer?
) -> hutch_status {
  out?.pointee = nil
  return answering { () throws(Failure) in
    guard let out else { throw .invalid("out is NULL") }
    guard let object = try body() else { return .notFound }
    out.pointee = object
    return .done
  }
}

/// Fills in a struct of the host with what `body` makes; nil: HUTCH_NOT_FOUND. Checks the struct
/// before it does anything else.
func filling<T>(
  _ out: UnsafeMutablePointer<T>?, _ body: () throws(Failure) -> T?
) throws(Failure) -> Status {
  guard let out else { throw .invalid("out is NULL") }
  try checkedResult(out)
  guard let value = try body() else { return .notFound }
  deliver(value, to: out)
  return .done
}
