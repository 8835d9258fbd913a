import CLogTests
import CSystem
import Synchronization

// Four processes put, get and remove in one directory, and one after the other is killed.
//
// Each key has one process that writes it, in rounds: of five rounds four put and one removes.
// `begun` and `done` say how far it is, in memory of their own, so what any process reads can be
// judged: it is of a round that was done before the read began, or of a later one that had begun
// when it ended.

private let keyCount = 400
private let workers = 4

/// What the processes have in common beside the directory.
private struct Oracle {
  let base: UnsafeMutablePointer<Atomic<UInt64>>
  init() {
    let size = (2 * keyCount + 8) * 8
    let memory = mmap(nil, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)!
    base = memory.assumingMemoryBound(to: Atomic<UInt64>.self)
  }
  func begun(_ key: Int) -> UnsafeMutablePointer<Atomic<UInt64>> { base + 2 * key }
  func done(_ key: Int) -> UnsafeMutablePointer<Atomic<UInt64>> { base + (2 * key + 1) }
  var isOver: UnsafeMutablePointer<Atomic<UInt64>> { base + 2 * keyCount }
  var reads: UnsafeMutablePointer<Atomic<UInt64>> { base + (2 * keyCount + 1) }
  var writes: UnsafeMutablePointer<Atomic<UInt64>> { base + (2 * keyCount + 2) }
}

private func isRemoval(_ round: UInt64) -> Bool { round % 5 == 0 }

/// Whether nothing at all may be what a key has.
private func mayBeGone(_ from: UInt64, _ to: UInt64, _ evicts: Bool) -> Bool {
  if evicts { return true }
  var round = from
  while round <= to {
    if isRemoval(round) { return true }
    round += 1
  }
  return false
}

private func judge(_ key: Int, _ found: Int, _ from: UInt64, _ to: UInt64, _ evicts: Bool) {
  if found < 0 {
    check(mayBeGone(from, to, evicts), "an entry is lost, key, rounds", key, Int(from), Int(to))
  } else {
    check(
      found >= Int(from) && found <= Int(to), "the wrong round, key, found, rounds", key, found,
      Int(from), Int(to))
  }
}

private func work(_ path: String, _ oracle: Oracle, _ worker: Int, _ seed: UInt64, _ evicts: Bool) {
  let store = LogStore.openAt(path, nil)
  let now = LogStore.moment()
  var random = Random(seed)
  while oracle.isOver.pointee.load(ordering: .acquiring) == 0 {
    let key = random.next(keyCount)
    if key % workers == worker && random.next(2) == 0 {
      // A round that a process before this one began may be there or not, and is passed over.
      let round = oracle.begun(key).pointee.load(ordering: .acquiring) + 1
      oracle.begun(key).pointee.store(round, ordering: .releasing)
      if isRemoval(round) {
        let write = store.remove(key, at: now)
        check(write.failure == nil, "a removal fails")
      } else {
        check(store.put(key, Int(round), at: now).outcome == .stored, "a put fails")
      }
      oracle.done(key).pointee.store(round, ordering: .releasing)
      oracle.writes.pointee.wrappingAdd(1, ordering: .relaxed)
    } else {
      let from = oracle.done(key).pointee.load(ordering: .acquiring)
      let found = store.round(key, at: now, isAccess: true)
      judge(key, found, from, oracle.begun(key).pointee.load(ordering: .acquiring), evicts)
      oracle.reads.pointee.wrappingAdd(1, ordering: .relaxed)
    }
  }
}

/// One directory, and so many kills.
private func run(_ limits: TierLimits, _ kills: Int, _ random: inout Random) -> (UInt64, UInt64) {
  let scratch = Scratch("kills")
  let oracle = Oracle()
  let evicts = limits != TierLimits()
  _ = LogStore.openAt(scratch.path, limits)
  var children = InlineArray<4, pid_t>(repeating: 0)
  func start(_ worker: Int, _ seed: UInt64) -> pid_t {
    let child = fork()
    check(child >= 0, "fork")
    if child == 0 {
      work(scratch.path, oracle, worker, seed, evicts)
      _exit(0)
    }
    return child
  }
  for worker in 0..<workers { children[worker] = start(worker, UInt64(random.next(1 << 40))) }
  var status: Int32 = 0
  for _ in 0..<kills {
    usleep(UInt32(500 + random.next(6000)))
    let worker = random.next(workers)
    kill(children[worker], SIGKILL)
    check(waitpid(children[worker], &status, 0) == children[worker], "waitpid")
    check(status & 0x7F == SIGKILL, "a process had failed before it was killed", Int(status))
    children[worker] = start(worker, UInt64(random.next(1 << 40)))
  }
  oracle.isOver.pointee.store(1, ordering: .releasing)
  for worker in 0..<workers {
    waitpid(children[worker], &status, 0)
    check(status == 0, "a process has failed", Int(status))
  }
  let store = LogStore.openAt(scratch.path, nil)
  check(trying { () throws(Failure) in try store.verify() }.isSound, "the store is not sound")
  let now = LogStore.moment()
  for key in 0..<keyCount {
    let from = oracle.done(key).pointee.load(ordering: .acquiring)
    let to = oracle.begun(key).pointee.load(ordering: .acquiring)
    judge(key, store.round(key, at: now), from, to, evicts)
  }
  return (
    oracle.reads.pointee.load(ordering: .relaxed), oracle.writes.pointee.load(ordering: .relaxed)
  )
}

/// log_tests kills [how many] [seed]
func kills(_ arguments: Arguments) -> Int32 {
  let most = getenv("HUTCH_LONG") != nil ? 10_000 : 300
  let wanted = arguments[0].map { Int(atoi($0)) } ?? most
  let seed = seed(arguments[1])
  var random = Random(seed)
  var kills = 0
  var reads: UInt64 = 0
  var writes: UInt64 = 0
  var isLimited = false
  while kills < wanted {
    let now = min(20, wanted - kills)
    let made = run(isLimited ? TierLimits(cost: 300_000) : TierLimits(), now, &random)
    reads += made.0
    writes += made.1
    kills += now
    isLimited.toggle()
  }
  print("\(kills) kills, \(reads) reads, \(writes) writes")
  return 0
}
