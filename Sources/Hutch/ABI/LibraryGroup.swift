// Group library: versions, names, the last error.

public import CHutch

@_cdecl("hutch_version") @implementation
public func hutch_version() -> UnsafePointer<CChar>! {
  constant("0.1.0")
}

@_cdecl("hutch_abi_version") @implementation
public func hutch_abi_version() -> UInt32 {
  UInt32(HUTCH_ABI_VERSION)
}

@_cdecl("hutch_status_name") @implementation
public func hutch_status_name(_ status: hutch_status) -> UnsafePointer<CChar>! {
  constant(Status.named(status).name)
}

@_cdecl("hutch_status_text") @implementation
public func hutch_status_text(_ status: hutch_status) -> UnsafePointer<CChar>! {
  constant(Status.named(status).text)
}

@_cdecl("hutch_error_words") @implementation
public func hutch_error_words() -> UnsafePointer<CChar>! {
  ThreadState.words
}

@_cdecl("hutch_last_error") @implementation
public func hutch_last_error(_ out: UnsafeMutablePointer<hutch_error>!) -> hutch_status {
  do throws(Failure) {
    guard let out else { throw Failure.invalid("out is NULL") }
    try checkedResult(out)
    let last = ThreadState.lastFailure
    var error = hutch_error()
    error.status = last.status
    error.system_error = last.system
    error.sqlite_error = last.sqlite
    withUnsafeMutableBytes(of: &error.words) { ThreadState.copyWords(to: $0) }
    deliver(error, to: out)
    return Status.done.code
  } catch {
    // A failure to read the last failure is not recorded.
    return error.status.code
  }
}

/// Static text as a C string: string literals end with NUL.
private func constant(_ text: StaticString) -> UnsafePointer<CChar> {
  UnsafeRawPointer(text.utf8Start).assumingMemoryBound(to: CChar.self)
}
