import CLogTests
import CSystem

// Walks for expired entries: none where nothing can have ended, and one at a time.

/// log_tests walks
func walks() -> Int32 {
  let scratch = Scratch("walks")
  let now = LogStore.moment()
  let (tomorrow, later) = (now.time + 86_400_000_000_000, now.time + 172_800_000_000_000)
  var store = LogStore.openAt(scratch.path, TierLimits())
  check(!store.mayHaveExpired(at: later), "a walk in a new store")
  store.put(0, 0, at: now)
  check(!store.mayHaveExpired(at: later), "a walk for an entry that does not end")
  check(store.close() == nil, "close")
  store = LogStore.openAt(scratch.path, TierLimits())
  check(!store.mayHaveExpired(at: later), "a walk because of an opening")
  store.put(1, 0, at: now) { $0.expires = tomorrow }
  check(!store.mayHaveExpired(at: now.time), "a walk before the first entry ends")
  check(store.mayHaveExpired(at: later), "no walk for an entry that has ended")
  check(store.close() == nil, "close")
  store = LogStore.openAt(scratch.path, TierLimits())
  check(store.mayHaveExpired(at: later), "an opening has lost the end of an entry")

  trying { () throws(Failure) in
    let second: Int64 = 1_000_000_000
    let first = try store.beginWalk(at: 10 * second, isUrgent: false)
    check(first != nil, "no walk begins")
    check(try store.beginWalk(at: 11 * second, isUrgent: false) == nil, "two walks at a time")
    store.continueWalk(at: 11 * second)
    check(try store.beginWalk(at: 12 * second, isUrgent: false) == nil, "two walks at a time")
    // The walker has died.
    let next = try store.beginWalk(at: 14 * second, isUrgent: false)
    check(next != nil, "no walk after one that has died")
    // It has not died after all.
    try store.endWalk(first!, earliest: Int64.max)
    check(store.mayHaveExpired(at: later), "the end of an older walk counts")
    check(try store.beginWalk(at: second, isUrgent: false) != nil, "no walk after a new boot")
    let urgent = try store.beginWalk(at: second, isUrgent: true)
    check(urgent != nil, "an urgent walk waits")
    try store.endWalk(urgent!, earliest: Int64.max)
    check(!store.mayHaveExpired(at: later), "a walk has ended, and another one is to begin")
    check(try store.beginWalk(at: second, isUrgent: false) != nil, "no walk after the last one")
  }
  killBeginnings(scratch.path, at: now, tomorrow)
  return 0
}

/// A process is killed as it begins a walk. A walk that began earlier, and has passed the place of
/// the newest entry before that was put, ends afterwards.
private func killBeginnings(_ path: String, at now: Moment, _ tomorrow: Int64) {
  var point = 0
  var wasKilled = true
  while wasKilled {
    point += 1
    Scratch.empty(path)
    let store = LogStore.openAt(path, TierLimits())
    trying { () throws(Failure) in
      let first = try store.beginWalk(at: 1, isUrgent: false)
      store.put(1, 0, at: now) { $0.expires = tomorrow }
      wasKilled = isKilled {
        let other = LogStore.openAt(path, nil)
        CrashPoint.arm(point)
        _ = try? other.beginWalk(at: 1, isUrgent: true)
      }
      try store.endWalk(first!, earliest: Int64.max)
    }
    check(store.mayHaveExpired(at: tomorrow), "an entry's end is forgotten, at", point)
    check(store.close() == nil, "close")
  }
  check(point > 4, "a walk begins with too few stores", point)
}
