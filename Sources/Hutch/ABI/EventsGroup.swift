// Groups events and pressure: the listener, notifications.

public import CHutch

@_cdecl("hutch_set_listener") @implementation
public func hutch_set_listener(
  _ cache: OpaquePointer!, _ kinds: UInt32, _ listener: hutch_listener!,
  _ context: UnsafeMutableRawPointer!, _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> hutch_status {
  // From here on the context is the listener's: it goes when this call fails, too.
  let new = Listener(
    kinds: listener == nil ? 0 : kinds,
    call: { event in
      var told = hutch_event(event)
      listener?(context, &told)
    },
    release: { release?(context) })
  return withCache(cache) { (handle) throws(Failure) in
    guard kinds & ~UInt32(HUTCH_EVENT_ALL) == 0 else {
      throw .invalid("a kind of event that is not defined")
    }
    try handle.cache.listen(listener == nil ? nil : new)
    return .done
  }
}

extension hutch_event {
  fileprivate init(_ event: Event) {
    self.init()
    struct_size = MemoryLayout<hutch_event>.size
    kind = event.kind.rawValue
    cause = event.cause.rawValue
    tiers = event.tiers.bits
    status = event.status.code
    version = event.version
    guard let entry = event.entry else { return }
    key = UnsafeRawPointer(entry.key.baseAddress)
    key_size = entry.keySize
    if event.hasValue { value = OpaquePointer(entry.raw) }
  }
}

@_cdecl("hutch_notify") @implementation
public func hutch_notify(_ cache: OpaquePointer!, _ notification: UInt32) -> hutch_status {
  withCache(cache) { (handle) throws(Failure) in
    switch notification {
    case UInt32(HUTCH_NOTIFY_MEMORY_WARNING):
      handle.cache.notify(.memoryWarning, in: handle.scope)
    case UInt32(HUTCH_NOTIFY_ENTERED_BACKGROUND):
      handle.cache.notify(.enteredBackground, in: handle.scope)
    default:
      throw Failure(.unsupported, "a notification that this library does not know")
    }
    return .done
  }
}
