import CLogTests
import CSystem
import Synchronization

// Every request for room on the file system is refused once.

/// How many requests there were, and which one is refused; 0: none.
nonisolated(unsafe) private var requests = 0
nonisolated(unsafe) private var refused = 0
/// How many puts were refused for it, and how many openings.
nonisolated(unsafe) private var refusedPuts = 0
nonisolated(unsafe) private var refusedOpenings = 0

/// Stands before libc's.
@_cdecl("posix_fallocate")
func reserveOrRefuse(_ file: Int32, _ offset: off_t, _ length: off_t) -> Int32 {
  requests += 1
  if requests == refused { return ENOSPC }
  return fallocate(file, 0, offset, length) == 0 ? 0 : hutch_errno()
}

/// A put that has no room is refused, and its key has nothing then; all else is as it was.
private func fill(_ store: LogStore, _ request: Int) {
  let now = LogStore.moment()
  for step in 0..<4000 {
    let key = step * 7 % 2000
    let write = store.put(key, step, at: now)
    let round = store.round(key, at: now)
    if write.outcome == .stored {
      check(round == step, "a put is not there, at request", request)
    } else {
      check(write.outcome == .noSpace, "a put fails, at request", request)
      check(round < 0, "an older value is there, at request", request)
      refusedPuts += 1
    }
  }
  let report = trying { () throws(Failure) in try store.verify() }
  check(report.isSound, "the store is not sound, at request", request)
}

/// log_tests full_disk
func fullDisk() -> Int32 {
  let scratch = Scratch("full")
  var request = 0
  repeat {
    request += 1
    Scratch.empty(scratch.path)
    requests = 0
    refused = request
    do throws(Failure) {
      let text = strdup(scratch.path)!
      defer { free(text) }
      let directory = try Directory.open(path: text)
      fill(try LogStore.open(directory, limits: TierLimits(cost: 3_000_000)), request)
    } catch {
      check(error.status == .noSpace, "opening fails, at request", request)
      refusedOpenings += 1
      // What was begun is in nobody's way.
      refused = 0
      fill(LogStore.openAt(scratch.path, TierLimits(cost: 3_000_000)), request)
    }
  } while requests >= request
  print("\(request - 1) requests, \(refusedOpenings) openings and \(refusedPuts) puts refused")
  return refusedOpenings > 0 && refusedPuts > 0 ? 0 : 1
}
