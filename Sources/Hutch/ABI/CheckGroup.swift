// Group check.

public import CHutch

@_cdecl("hutch_check") @implementation
public func hutch_check(
  _ cache: OpaquePointer!, _ flags: UInt32, _ report: UnsafeMutablePointer<hutch_check_report>!
) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    let quick = UInt32(HUTCH_CHECK_QUICK)
    try checkFlags(flags, quick)
    try checkedResult(report)
    let found = try cache.check(isQuick: flags & quick != 0, in: handle.scope)
    deliver(found, to: report)
    return .done
  }
}
