// Group iterate: each, cursors.

public import CHutch

@_cdecl("hutch_each") @implementation
public func hutch_each(
  _ cache: OpaquePointer!, _ visitor: hutch_visitor!, _ context: UnsafeMutableRawPointer!
) -> hutch_status {
  withCache(cache) { (_, handle) throws(Failure) in
    guard let visitor else { throw .invalid("the visitor is NULL") }
    _ = try visit(handle, visitor, context) { false }
    return .done
  }
}

/// Calls the visitor for every entry, until it wants no more. False: `isOff` ended the walk.
@inline(never)
func visit(
  _ handle: Handle, _ visitor: hutch_visitor, _ context: UnsafeMutableRawPointer?,
  until isOff: () -> Bool
) throws(Failure) -> Bool {
  let engine = handle.cache
  let cursor = WholeWalk(handle, goesFar: true)
  while let found = try cursor.nextEntry() {
    if isOff() { return false }
    var info = hutch_entry_info(
      found.record, at: engine.clock.now, under: engine.ages(of: found.tier),
      in: found.tier)
    info.struct_size = MemoryLayout<hutch_entry_info>.size
    let stops = ThreadState.within(engine.identity) {
      visitor(context, found.key.baseAddress, found.key.count, &info)
    }
    if stops != 0 { break }
    try handle.check()
  }
  return true
}

@_cdecl("hutch_cursor_create") @implementation
public func hutch_cursor_create(
  _ cache: OpaquePointer!, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out, of: cache) { (_, handle) throws(Failure) in handOut(WholeWalk(handle)) }
}

@_cdecl("hutch_cursor_create_ordered") @implementation
public func hutch_cursor_create_ordered(
  _ cache: OpaquePointer!, _ order: UInt32, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out, of: cache) { (_, handle) throws(Failure) in
    let descending = UInt32(HUTCH_ORDER_DESCENDING)
    guard let wanted = OrderedWalk.Order(rawValue: order & ~descending) else {
      throw .unknown("there is no such order", order)
    }
    return handOut(OrderedWalk(handle, wanted, descending: order & descending != 0))
  }
}

extension Cursor: HostHandle {
  static var isMissing: StaticString { "the cursor is NULL" }
  func check() throws(Failure) {
    try Process.check(forks, "the cursor belongs to the parent of this process")
    try handle.check()
  }
}

@_cdecl("hutch_cursor_next") @implementation
public func hutch_cursor_next(
  _ cursor: OpaquePointer!, _ key: UnsafeMutablePointer<UnsafeRawPointer?>!,
  _ key_size: UnsafeMutablePointer<Int>!
) -> hutch_status {
  with(cursor, Cursor.self) { (cursor) throws(Failure) in
    guard let key, let key_size else { throw .invalid("key or key_size is NULL") }
    guard let found = try cursor.next() else { return .notFound }
    key.pointee = found.baseAddress
    key_size.pointee = found.count
    return .done
  }
}

@_cdecl("hutch_cursor_value") @implementation
public func hutch_cursor_value(
  _ cursor: OpaquePointer!, _ out: UnsafeMutablePointer<OpaquePointer?>!
) -> hutch_status {
  giving(out) { () throws(Failure) in
    let cursor = try checked(cursor, Cursor.self)
    guard let key = cursor.current,
      let block = try cursor.cache.peek(key, in: cursor.handle.scope)
    else { return nil }
    return OpaquePointer(block.leak().raw)
  }
}

@_cdecl("hutch_cursor_info") @implementation
public func hutch_cursor_info(
  _ cursor: OpaquePointer!, _ out: UnsafeMutablePointer<hutch_entry_info>!
) -> hutch_status {
  with(cursor, Cursor.self) { (cursor) throws(Failure) in
    try informing(cursor.cache, cursor.handle.scope, cursor.current, out)
  }
}

@_cdecl("hutch_cursor_release") @implementation
public func hutch_cursor_release(_ cursor: OpaquePointer!) {
  release(cursor, Cursor.self)
}
