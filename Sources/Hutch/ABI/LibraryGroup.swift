// Group library: versions, names, the last error.

public import CHutch

@_cdecl("hutch_version") @implementation
public func hutch_version() -> UnsafePointer<CChar>! {
  Files.path("0.1.0")
}

@_cdecl("hutch_abi_version") @implementation
public func hutch_abi_version() -> UInt32 {
  UInt32(HUTCH_ABI_VERSION)
}

@_cdecl("hutch_status_name") @implementation
public func hutch_status_name(_ status: hutch_status) -> UnsafePointer<CChar>! {
  Status.named(status).name
}

@_cdecl("hutch_status_text") @implementation
public func hutch_status_text(_ status: hutch_status) -> UnsafePointer<CChar>! {
  Status.named(status).text
}

@_cdecl("hutch_error_words") @implementation
public func hutch_error_words() -> UnsafePointer<CChar>! {
  ThreadState.words
}

@_cdecl("hutch_last_error") @implementation
public func hutch_last_error(_ out: UnsafeMutablePointer<hutch_error>!) -> hutch_status {
  giveLastError(to: out)
}
