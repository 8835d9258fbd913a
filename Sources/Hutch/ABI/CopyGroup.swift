// Group copy.

public import CHutch

@_cdecl("hutch_copy") @implementation
public func hutch_copy(
  _ source: OpaquePointer!, _ target: OpaquePointer!,
  _ report: UnsafeMutablePointer<hutch_copy_report>!
) -> hutch_status {
  clear(report)
  return withCache(source) { (_, source) throws(Failure) in
    try checkedResult(report)
    guard let target else { throw .invalid("the target is NULL") }
    let other = reference(target, Handle.self).takeUnretainedValue()
    try other.check()
    let copying = try Copying(from: source, to: other)
    defer { deliver(copying.report, to: report) }
    try copying.run()
    return .done
  }
}
