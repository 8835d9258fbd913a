// The last failure of a thread. Each library has its own.

internal import CHutch

/// Copies this thread's last failure out. A failure to read it is not recorded.
func giveLastError(to out: UnsafeMutablePointer<hutch_error>?) -> hutch_status {
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
    return error.status.code
  }
}
