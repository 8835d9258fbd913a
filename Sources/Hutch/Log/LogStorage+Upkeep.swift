internal import CHutch
import CSystem
import Synchronization

/// A walk for expired entries.
struct LogSweep {
  /// How far the walk has come; nil: none is under way.
  var place: LogPlace?
  /// The number of the walk in its directory (`LogStore.beginWalk`).
  private(set) var number: UInt64 = 0
  /// The earliest end of the entries that the walk has met and left.
  var earliest = Int64.max
  /// The times, by CLOCK_MONOTONIC, at which the walk began and before which no other one begins.
  private var began: Int64 = 0
  private(set) var pauseEnd: Int64 = 0

  /// A walk that took this long is followed by a pause, so that no more than a sixteenth of the
  /// time goes into walks.
  private static let long: Int64 = 2_000_000
  /// The pause after a walk that leaves entries whose time has ended by the tier's ages. The next
  /// walk meets them again.
  private static let pauseWithEnded: Int64 = 60_000_000_000

  mutating func begin(_ number: UInt64, at monotonic: Int64) {
    self.number = number
    place = LogPlace()
    earliest = Int64.max
    began = monotonic
  }

  mutating func end(at monotonic: Int64, leavesEnded: Bool) {
    let length = monotonic - began
    pauseEnd =
      began + (leavesEnded ? LogSweep.pauseWithEnded : length < LogSweep.long ? 0 : 16 * length)
    place = nil
  }
}

/// Work that can wait, and calls that are rare: limits, statistics, expired entries, the check.
extension LogStorage {
  var limits: TierLimits { store?.limits ?? options.limits }
  var ages: Ages { store?.ages ?? options.limits.ages }

  func setLimits(_ limits: TierLimits, at moment: Moment) throws(Failure) {
    let store = try serving()
    try store.setLimits(limits, at: moment.time) { doOwedWork(waits: true) }
  }

  var stats: TierStats {
    let store = live
    let removed = UInt64(max(0, removedBytes.load(ordering: .relaxed)))
    return counters.stats(
      isUp: store != nil, count: store?.count ?? 0, cost: (store?.live ?? 0) &+ removed)
  }

  var optionsInForce: StorageOptions {
    var options = self.options
    options.kind = .log
    options.durability = durability
    options.checksChecksums = true
    options.inlineThreshold = threshold
    options.policy = policy
    options.limits = limits
    return options
  }

  func apply(_ other: StorageOptions) -> Bool {
    if other.chosen.contains(.durability) { raiseDurability(to: other.durability) }
    return other.differ(from: optionsInForce)
  }

  /// Each write has committed, and access times are where they belong.
  func flush() throws(Failure) {
    look()
    try dropBars()
    doOwedWork(waits: true)
    let store = try serving()
    if store.isDurable { try store.makeDurable() }
  }

  // MARK: maintenance

  func maintain(at moment: Moment) -> Bool {
    guard isUp || reopen() else {
      service.tell(observer)
      return false
    }
    look()
    service.list(observer)
    guard let store = live else {
      service.tell(observer)
      return false
    }
    var hasMore = false
    do throws(Failure) {
      try dropBars()
      try giveBackWaiting(of: store)
      hasMore = try rebuild(store, at: moment)
      hasMore = try sweepExpired(store, at: moment) || hasMore
      hasMore = try keepFree(store, at: moment) || hasMore
      hasMore = try giveBackDead(of: store, at: moment) || hasMore
      hasMore = maintainFiles(store) || hasMore
      try writeCheckpoint(store)
    } catch {
      counters.failures.count()
      hasMore = false
    }
    lookForOthers(store)
    doOwedWork()
    return hasMore
  }

  /// Gives back what has gone and no call uses any more: stores before the last two, and the places
  /// of segments, if no read is left that may be in them.
  func giveBackWaiting(of store: LogStore) throws(Failure) {
    guard sweepLock.tryLock() else { return }
    defer { sweepLock.unlock() }
    endEarlier(than: store)
    try store.giveBackWaiting(&store.readers)
  }

  /// Ends the stores that no call can use any more. The one before `store` is kept: what looks at
  /// the limits of the newest store, say, is outside the gate, and done long before the directory
  /// has gone and come back twice. `sweepLock` is held.
  private func endEarlier(than store: LogStore) {
    guard let last = store.earlier, last.earlier != nil, store.isPastEarlier(),
      serviceLock.tryLock()
    else { return }
    defer { serviceLock.unlock() }
    contentLock.withLock {
      last.earlier = nil
      last.member.earlier = nil
    }
  }

  /// A slice of giving entries their slots after a loss of power. True: there is more.
  private func rebuild(_ store: LogStore, at moment: Moment) throws(Failure) -> Bool {
    guard store.isRebuilding, sweepLock.tryLock() else { return false }
    defer { sweepLock.unlock() }
    return try store.rebuild(&store.rebuilding, at: moment)
  }

  /// Called before what has to meet every entry.
  func endRebuild(of store: LogStore) throws(Failure) {
    let moment = Moment.at(clock.latestTime)
    while store.isRebuilding {
      sweepLock.lock()
      defer { sweepLock.unlock() }
      _ = try store.rebuild(&store.rebuilding, at: moment)
    }
  }

  var isRecovering: Bool { live?.isRebuilding ?? false }

  private static let pauseBetweenCheckpoints: Int64 = 30_000_000_000

  /// Writes a checkpoint if it is time for one.
  private func writeCheckpoint(_ store: LogStore) throws(Failure) {
    let isDue =
      store.isDurable
      ? store.isCheckpointDue
      : store.isAheadOfCheckpoint
        && store.isCheckpointOlder(than: LogStorage.pauseBetweenCheckpoints)
    if isDue { try store.writeCheckpointIfThere() }
  }

  private static let pauseBetweenLooks: Int64 = 10_000_000_000

  /// Notes that this process is alone, if the others have gone. A process that has forked does not
  /// look: its child has copies in memory, and is no member before its handler of the fork has run.
  private func lookForOthers(_ store: LogStore) {
    let now = Clock.read(CLOCK_MONOTONIC)
    guard now >= nextCount.load(ordering: .relaxed) else { return }
    nextCount.store(now + LogStorage.pauseBetweenLooks, ordering: .relaxed)
    withContent {
      lookForLost(store, at: now)
      guard store.marks.hasOthers, !store.member.isCommon, store.member.tryOpening() else { return }
      if store.member.isAlone() {
        shared.noteAlone()
        store.reachAlone()
      }
      store.member.endOpening()
    }
  }

  /// The number of pages of slots that a slice of a walk visits.
  private static let pagesInSlice = 8

  /// A slice of a walk over all entries, which removes the expired ones. A walk begins when the
  /// first entry may have expired. True if there is more to do at once.
  private func sweepExpired(_ store: LogStore, at moment: Moment) throws(Failure) -> Bool {
    guard sweepLock.tryLock() else { return false }
    defer { sweepLock.unlock() }
    // An entry that has no slot yet is not met.
    if store.isRebuilding { return false }
    let monotonic = Clock.read(CLOCK_MONOTONIC)
    if store.sweep.place == nil {
      // Under a host's clock the host asks for maintenance, and counts have to be exact: no pause.
      guard store.mayHaveExpired(at: moment.time),
        clock.isHosts || monotonic >= store.sweep.pauseEnd,
        let number = try store.beginWalk(at: monotonic, isUrgent: clock.isHosts)
      else { return false }
      store.sweep.begin(number, at: monotonic)
    } else {
      store.continueWalk(at: monotonic)
    }
    guard var place = store.sweep.place else { return false }
    var found = WalkPage()
    for _ in 0..<LogStorage.pagesInSlice {
      guard try store.step(&place, into: &found) else {
        try store.endWalk(store.sweep.number, earliest: store.sweep.earliest)
        store.sweep.end(at: Clock.read(CLOCK_MONOTONIC), leavesEnded: store.agesActOnTrim)
        return false
      }
      try removeExpired(among: found, from: store, at: moment)
    }
    store.sweep.place = place
    return true
  }

  /// Removes the entries of a page that have expired, also by what the tiers above know.
  private func removeExpired(
    among found: borrowing WalkPage, from store: LogStore, at moment: Moment
  ) throws(Failure) {
    let (now, ages) = (moment.time, store.ages)
    // Where ages act in trims alone, entries stay that have ended for other processes.
    let least = ages.actOnTrim ? 0 : Record.sum(now, 1)
    var victims = GrowingArray<LogAddress>()
    for entry in found.entries.elements where entry.record.mayExpire(under: ages) {
      if entry.record.isExpired(at: now, under: ages) {
        if ages.mayIdle(own: entry.record.timeToIdle) {
          askAbove(found.key(of: entry), entry.record)
        }
        try victims.append(entry.address)
      }
      // An expired entry counts too: the tier above may have kept it alive.
      store.sweep.earliest = min(
        store.sweep.earliest, max(least, entry.record.end(at: now, under: ages.strict)))
    }
    if victims.isEmpty { return }
    _ = try store.locked { () throws(Failure) in
      store.lose(victims, 0..<victims.count, at: moment) { _, record in
        record.isExpired(at: now, under: ages)
      }
    }
  }

  /// Gives a segment, or as much in content files, back to the file system if that has less free
  /// space than the limits ask for.
  private func keepFree(_ store: LogStore, at moment: Moment) throws(Failure) -> Bool {
    // What waits to be given back is not free yet.
    guard !store.hasWaitingPlaces, store.segmentCount > 2 || store.files > 0,
      store.missingFree() > 0
    else { return false }
    let target = max(store.leastTaken, store.taken(without: UInt64(store.segmentSize)))
    return try store.locked { () throws(Failure) in
      store.makeRoom(at: moment.time) { store.taken > target }
    }
  }

  /// The time for which no segment has begun before what is dead is given back: puts that go on use
  /// it again.
  private static let pauseBeforeGivingBack: Int64 = 10_000_000_000

  /// Gives back segments that are dead, beyond what the next puts need.
  private func giveBackDead(of store: LogStore, at moment: Moment) throws(Failure) -> Bool {
    guard store.hasDispensable else { return false }
    let now = Clock.read(CLOCK_MONOTONIC)
    let next = store.words.load(IndexAt.next)
    if next != quietNext.load(ordering: .relaxed) {
      quietNext.store(next, ordering: .relaxed)
      quietSince.store(now, ordering: .relaxed)
    }
    guard now - quietSince.load(ordering: .relaxed) >= LogStorage.pauseBeforeGivingBack else {
      return false
    }
    return try store.locked { () throws(Failure) in
      defer { quietNext.store(store.words.load(IndexAt.next), ordering: .relaxed) }
      return store.giveBackDead(at: moment.time)
    }
  }

  // MARK: check

  func check(isQuick: Bool, at moment: Moment) throws(Failure) -> CheckReport {
    var report = CheckReport()
    _ = isUp || reopen()
    let store = try serving()
    try endRebuild(of: store)
    let sums = try store.verifyIndex()
    report.manifest = sums.damaged + sums.manifest
    report.counters = sums.counters
    // The pages of slots may have been lost.
    try endRebuild(of: store)
    // Of a value whose file cannot be read nothing is known. The check goes on behind it.
    var unread: Failure?
    var place = LogPlace()
    var found = WalkPage()
    while try store.step(&place, into: &found) {
      guard isUp else { throw service.failure }
      let ages = store.ages
      for entry in found.entries.elements {
        if entry.record.isExpired(at: moment.time, under: ages) { continue }
        do throws(Failure) {
          switch try store.inspect(found.key(of: entry), readsValues: !isQuick) {
          case .some(true):
            report.entries += 1
            if !isQuick { report.bytes += UInt64(entry.record.size) }
          case .some(false): report.damaged += 1
          case nil: break
          }
        } catch {
          unread = error
        }
      }
      doOwedWork(waits: true)
    }
    report.orphans = sweepAllFiles(store)
    doOwedWork(waits: true)
    if let unread { throw unread }
    return report
  }
}

extension Record {
  /// The time at which the entry expires unless it is read before; `never` if it does not expire.
  func end(at now: Int64, under ages: Ages) -> Int64 {
    min(endOfLife(at: now, under: ages), endOfIdle(at: now, under: ages))
  }
}
