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
  return 0
}
