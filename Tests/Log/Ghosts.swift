internal import CHutch
import CLogTests
import CSystem
import Synchronization

// Which entries the cleaner keeps, and the second chance of a key whose entry it has evicted: the
// slot stays as the entry's ghost, and when the key is put again the entry counts as read. The
// secrets of the stores are the same in each run.

/// A store below its limit, and the number of the next key that no test has used.
private final class Subject {
  let store: LogStore
  let now = LogStore.moment()
  private var other = 1000

  init(_ scratch: borrowing Scratch, _ policy: EvictionPolicy = .adaptive, cost: UInt64 = 400_000) {
    libraryRandom = Random(7)
    store = LogStore.openAt(scratch.path, TierLimits(cost: cost))
    store.livePolicy.store(policy.rawValue, ordering: .relaxed)
    // Once round the log: then the cleaner has a share to keep.
    for _ in 0..<4000 { putOther() }
  }

  /// A key that is put once, and not read.
  func putOther() {
    put(other)
    other += 1
  }

  func put(_ key: Int, _ change: (inout Record) -> Void = { _ in }) {
    let write = store.put(key * 16, 1, at: now, change)
    check(write.outcome == .stored, "a put is refused, of key", key)
  }

  func read(_ key: Int, times: Int) {
    for _ in 0..<times { _ = store.round(key * 16, at: now, isAccess: true) }
  }

  func match(_ key: Int) -> LogMatch? {
    store.withKey(key * 16) { bytes, hash in store.find(bytes, hash) }
  }

  func isThere(_ key: Int) -> Bool { match(key) != nil }
  func isKept(_ key: Int) -> Bool { match(key)?.seat.isKept ?? false }

  /// The reads that the slot of a key's entry counts; -1: it has none.
  func uses(_ key: Int) -> Int {
    match(key).map { Int(SlotWord(SharedWords.load($0.slot)).uses) } ?? -1
  }

  /// Puts other keys until `isDone`.
  func putOthers(until isDone: () -> Bool) {
    var left = 20_000
    while !isDone() {
      putOther()
      left -= 1
      check(left > 0, "the cleaner does not come to an entry")
    }
  }

  /// Puts other keys until the entry of a key has been moved or evicted.
  func pass(_ key: Int) {
    let address = match(key)?.entry.address
    putOthers { match(key)?.entry.address != address }
  }

  var segments: UInt64 { store.words.load(IndexAt.keptSegments) }
}

/// A new entry that was read twice is kept, and one that was read since it was kept stays.
private func checkAdaptive() {
  let scratch = Scratch("adaptive")
  let subject = Subject(scratch)
  for (key, reads) in [(1, 0), (2, 1), (3, 2), (4, 5)] {
    subject.put(key)
    subject.read(key, times: reads)
    subject.pass(key)
    check(subject.isKept(key) == (reads > 1), "whether a new entry is kept, of reads", reads)
  }
  // What replaces an entry has its reads, and what replaces a kept one counts as kept.
  for (key, wanted) in [(5, 2), (3, 2), (6, 1), (7, 0)] {
    subject.put(key)
    if key > 3 { subject.read(key, times: wanted) }
    subject.put(key)
    check(subject.uses(key) == wanted, "the reads of a new value, of key", key, subject.uses(key))
  }
}

/// A key that was evicted counts as read when it is put again: it is kept then, though no call has
/// read it.
private func checkSecondChance() {
  let scratch = Scratch("second")
  let subject = Subject(scratch)
  subject.put(1)
  let match = subject.match(1)!
  subject.pass(1)
  check(!subject.isThere(1), "the entry is there")
  // The entry's bytes are still in the log: only the slot tells that it has gone.
  let hash = subject.store.hash.entry(match.entry.key)
  check(subject.store.isStill(match.seat, match.word.address), "the segment has gone")
  check(!subject.store.isNamed(match), "a ghost counts as an entry's name")
  check(subject.store.slot(of: match.entry, hash) == nil, "a ghost is taken for an entry's slot")
  subject.put(1)
  check(subject.uses(1) == 2, "no second chance; reads", subject.uses(1))
  subject.pass(1)
  check(subject.isKept(1), "a second chance is none")
  // It is used up: the kept entry goes, and leaves no ghost.
  var kept = 2
  subject.putOthers {
    subject.put(kept)
    subject.read(kept, times: 2)
    kept += 1
    return !subject.isThere(1) || kept > 990
  }
  check(!subject.isThere(1), "a kept entry that no call reads stays")
  subject.put(1)
  check(subject.uses(1) == 0, "a second chance after a kept entry; reads", subject.uses(1))
}

/// An entry that a call removes or that expires leaves no ghost, nor does any under another policy.
private func checkNoGhosts() {
  for policy in [EvictionPolicy.lru, .lfu, .fifo] {
    let scratch = Scratch("none")
    let subject = Subject(scratch, policy)
    subject.put(1)
    subject.pass(1)
    check(!subject.isThere(1), "the entry is there; policy", Int(policy.rawValue))
    subject.put(1)
    check(subject.uses(1) == 0, "a second chance under policy", Int(policy.rawValue))
  }
  let scratch = Scratch("removed")
  let subject = Subject(scratch)
  subject.put(1)
  subject.store.remove(16, at: subject.now)
  subject.put(1)
  check(subject.uses(1) == 0, "a second chance after a removal")
  // The cleaner removes it, since the time is over, and does not keep it for its reads.
  subject.put(2) { $0.expires = subject.now.time - 1 }
  subject.read(2, times: 2)
  let before = subject.store.counters.expirations.load(ordering: .relaxed)
  subject.pass(2)
  check(!subject.isThere(2), "the cleaner keeps what has expired")
  let after = subject.store.counters.expirations.load(ordering: .relaxed)
  check(after == before + 1, "expirations by the cleaner", Int(after - before))
  subject.put(2)
  check(subject.uses(2) == 0, "a second chance after an expiration; reads", subject.uses(2))
}

/// Keys that were not there get no second chance, but for the few that share a tag with one that
/// was, and those that were evicted long ago get none.
private func checkWhoseGhosts() {
  let scratch = Scratch("whose")
  let subject = Subject(scratch)
  var chances = 0
  for key in 100..<400 {
    subject.put(key)
    if subject.uses(key) > 0 { chances += 1 }
  }
  check(chances <= 30, "second chances of new keys, of 300", chances)
  subject.putOthers { !subject.isThere(399) }
  // Half of them at once, and half when the log has been round four times.
  chances = 0
  for key in 250..<400 {
    subject.put(key)
    if subject.uses(key) > 0 { chances += 1 }
  }
  check(chances > 120, "second chances of evicted keys, of 150", chances)
  let end = subject.store.end + UInt64(subject.store.segmentCount) << (subject.store.unitShift + 2)
  // Replaced values leave the ghosts alone.
  while subject.store.end < end { subject.put(1) }
  chances = 0
  for key in 100..<250 where !subject.isThere(key) {
    subject.put(key)
    if subject.uses(key) > 0 { chances += 1 }
  }
  check(chances <= 15, "second chances long after, of 150", chances)
}

/// Ghosts make way for new keys: a slot is mostly in its key's first bucket, and pages are not
/// divided for ghosts without end.
private func checkPages() {
  let scratch = Scratch("pages")
  let subject = Subject(scratch)
  for _ in 0..<20_000 { subject.putOther() }
  let (pages, count) = (subject.store.words.load(IndexAt.pages), subject.store.count)
  check(pages * 512 < count * 10, "pages are divided for ghosts", Int(pages), Int(count))
  var (near, all) = (0, 0)
  for key in 24_000..<25_000 {
    guard let match = subject.match(key) else { continue }
    all += 1
    let bucket = (match.slot - match.page.base) / LogPages.lineSize
    if bucket == match.word.home { near += 1 }
  }
  check(all > 200, "entries", all)
  check(near * 10 > all * 9, "slots in their first buckets", near, all)
}

/// LRU keeps what was read, once; LFU as often as it was read; FIFO nothing. None has a stream of
/// kept entries.
private func checkPolicies() {
  for (policy, rounds) in [(EvictionPolicy.lru, 1), (.lfu, 2), (.fifo, 0)] {
    let scratch = Scratch("policies")
    let subject = Subject(scratch, policy)
    subject.put(1)
    subject.read(1, times: 5)
    var met = 0
    while subject.isThere(1) && met < 5 {
      subject.pass(1)
      met += 1
    }
    check(met == rounds + 1, "rounds of the log, under policy", met, Int(policy.rawValue))
    check(subject.segments == 0, "a stream of kept entries under policy", Int(policy.rawValue))
    let above = TierAbove()
    above.read = 2 * 16
    subject.store.observer = above
    subject.put(2)
    subject.pass(2)
    check(
      subject.isThere(2) == (policy != .fifo), "what is read above, under policy",
      Int(policy.rawValue))
  }
}

/// log_tests ghosts
func ghosts() -> Int32 {
  checkAdaptive()
  checkSecondChance()
  checkNoGhosts()
  checkWhoseGhosts()
  checkPages()
  checkPolicies()
  print("every ghost")
  return 0
}
