// Groups events and pressure: the listener, notifications.

public import CHutch

@_cdecl("hutch_set_listener") @implementation
public func hutch_set_listener(
  _ cache: OpaquePointer!, _ kinds: UInt32, _ listener: hutch_listener!,
  _ context: UnsafeMutableRawPointer!,
  _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> hutch_status {
  // From here on the listener owns the context, and releases it also if this call fails.
  let new = Listener(
    kinds: listener == nil ? 0 : kinds,
    call: { event in
      var told = hutch_event(event)
      listener?(context, &told)
    },
    release: { [owner = owner(cache)] in ThreadState.give(context, back: release, of: owner) })
  return withCache(cache) { (cache, _) throws(Failure) in
    try checkFlags(kinds, UInt32(HUTCH_EVENT_ALL))
    cache.listen(listener == nil ? nil : new)
    return .done
  }
}

extension hutch_event {
  fileprivate init(_ event: Event) {
    self.init()
    struct_size = MemoryLayout<hutch_event>.size
    kind = event.kind.rawValue
    cause = event.cause.rawValue
    tiers = event.tiers.rawValue
    status = event.status.code
    version = event.version
    guard let entry = event.entry else { return }
    key = UnsafeRawPointer(entry.key.baseAddress)
    key_size = entry.keySize
    if event.hasValue { value = OpaquePointer(entry.raw) }
  }
}

/// Calls a logger, and owns its context from here on. `owner`: that of the callback.
private func logger(
  _ level: UInt32, _ logger: hutch_logger?, _ context: UnsafeMutableRawPointer?,
  _ release: Release?, of owner: UnsafeMutableRawPointer?
) -> Listener {
  Listener(
    // All levels up to this one, one bit each.
    kinds: logger == nil || level > UInt32(HUTCH_LOG_DEBUG) ? 0 : (1 << level) - 1,
    call: { event in
      var record = hutch_log_record(event)
      withUnsafeMutableBytes(of: &record.words) { event.compose(into: $0) }
      logger?(context, &record)
    },
    release: { ThreadState.give(context, back: release, of: owner) })
}

@_cdecl("hutch_set_logger") @implementation
public func hutch_set_logger(
  _ cache: OpaquePointer!, _ level: UInt32, _ function: hutch_logger!,
  _ context: UnsafeMutableRawPointer!,
  _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> hutch_status {
  let new = logger(level, function, context, release, of: owner(cache))
  return withCache(cache) { (cache, _) throws(Failure) in
    try checkLevel(level, function)
    cache.events.setLogger(function == nil ? nil : new)
    return .done
  }
}

@_cdecl("hutch_set_default_logger") @implementation
public func hutch_set_default_logger(
  _ level: UInt32, _ function: hutch_logger!, _ context: UnsafeMutableRawPointer!,
  _ release: (@convention(c) (UnsafeMutableRawPointer?) -> Void)!
) -> hutch_status {
  let new = logger(level, function, context, release, of: nil)
  return answering { () throws(Failure) in
    try checkLevel(level, function)
    Process.setLogger(function == nil ? nil : new)
    return .done
  }
}

private func checkLevel(_ level: UInt32, _ function: hutch_logger?) throws(Failure) {
  guard function == nil || (level >= UInt32(HUTCH_LOG_ERROR) && level <= UInt32(HUTCH_LOG_DEBUG))
  else { throw .unknown("the level is not defined", level) }
}

extension hutch_log_record {
  fileprivate init(_ event: Event) {
    self.init()
    struct_size = MemoryLayout<hutch_log_record>.size
    level = UInt32(event.line!.level.rawValue.trailingZeroBitCount + 1)
    tiers = event.tiers.rawValue
    directory = event.directory
    left_out = event.leftOut
    guard let failure = event.line!.failure else { return }
    status = failure.status.code
    system_error = failure.system
    sqlite_error = failure.sqlite
  }
}

extension Event {
  /// The words of a line, with those of its failure.
  fileprivate func compose(into buffer: UnsafeMutableRawBufferPointer) {
    var line = Failure(.io, self.line!.words)
    guard let failure = self.line!.failure else {
      ThreadState.compose(line, nil, into: buffer)
      return
    }
    line.system = failure.system
    ThreadState.compose(
      line, UnsafeRawPointer(failure.words).assumingMemoryBound(to: CChar.self), into: buffer)
  }
}

@_cdecl("hutch_notify") @implementation
public func hutch_notify(_ cache: OpaquePointer!, _ notification: UInt32) -> hutch_status {
  withCache(cache) { (cache, handle) throws(Failure) in
    switch notification {
    case UInt32(HUTCH_NOTIFY_MEMORY_WARNING):
      cache.notify(.memoryWarning, in: handle.scope)
    case UInt32(HUTCH_NOTIFY_ENTERED_BACKGROUND):
      cache.notify(.enteredBackground, in: handle.scope)
    default:
      throw .unknown("there is no such notification", notification)
    }
    return .done
  }
}
