// Group trim.

public import CHutch

@_cdecl("hutch_trim") @implementation
public func hutch_trim(
  _ cache: OpaquePointer!, _ spec: UnsafePointer<hutch_trim_spec>!,
  _ removed: UnsafeMutablePointer<UInt64>!
) -> hutch_status {
  counting(removed, from: cache) { (cache, handle, count) throws(Failure) in
    guard spec != nil else { throw .invalid("spec is NULL") }
    let given = try received(spec, over: hutch_trim_spec())
    let wanted = try TrimSpec(given)
    try cache.trim(wanted, in: handle.scope, removed: &count) { done, total in
      guard (try? handle.check()) != nil else { return false }
      guard let progress = given.progress else { return true }
      return ThreadState.within(cache.identity) {
        progress(given.context, done, total)
      } == 0
    }
  }
}

extension TrimSpec {
  init(_ spec: hutch_trim_spec) throws(Failure) {
    guard let kind = Kind(rawValue: spec.kind) else {
      throw .unknown("the kind of trim is not defined", spec.kind)
    }
    try checkReserved(spec.reserved == 0)
    self.init(kind: kind, amount: spec.amount, time: spec.time)
    if kind == .olderThan || kind == .idleFor { time = try checkedDuration(spec.time) }
  }
}
