/// Trims: removals that a call of the host asks for (`hutch_trim`), of any store.
///
/// A trim is a user of the seam's primitives. `walk` shows entries with no lock held; `remove`
/// removes those of them that have not changed, in slices of one lock or one transaction. Where a
/// store finds entries in another way than by a walk, it says so: `removeExpired` by an index of
/// ends, `makeRoom` by its own order of eviction, `reclaim` of space that no entry takes up.
///
/// Slices. Between two slices other calls run, and `goOn` is called with no lock held. A slice lets
/// the writers that wait go first. A kill between two slices leaves what the slices before it have
/// committed.
///
/// A trim looks at the entries that are there when its walk comes to them. An entry that is
/// written, touched, moved or read while the trim is under way may be spared.
final class StorageTrim {
  /// The number removed so far, and in all (0: not known). False stops the trim.
  typealias Progress = (_ removed: UInt64, _ total: UInt64) -> Bool

  /// The entries that have been removed; also if the trim fails.
  private(set) var removed: UInt64 = 0

  private let storage: any Storage
  private let observer: any StorageObserver
  private let moment: Moment
  private let rule: TrimRule
  /// The number of entries to remove; 0: not known.
  private var total: UInt64 = 0
  /// A removal has found its goal reached: what is put behind that is no reason for another one.
  private var isReached = false

  init(
    _ spec: TrimSpec, of storage: any Storage, for observer: any StorageObserver, at moment: Moment
  ) {
    self.storage = storage
    self.observer = observer
    self.moment = moment
    rule = TrimRule(
      spec, at: moment.time, under: storage.ages.strict,
      storage.optionsInForce.policy ?? .adaptive)
  }

  func run(_ goOn: Progress) throws(Failure) {
    switch rule.spec.kind {
    case .expired: _ = try removeExpired(to: nil, goOn)
    case .toCost, .toCount: try trimByPolicy(goOn)
    case .largestFirst, .leastRecent, .leastFrequent:
      guard try !fitsOnceReclaimed(goOn) else { return }
      try trimByRank(goOn)
    default: _ = try filter(to: nil, goOn)
    }
  }

  private func goesOn(_ goOn: Progress) -> Bool {
    goOn(removed, total == 0 ? 0 : max(removed, total))
  }

  private static let victimsInSlice = 128
  /// A store may round the time of an access up, by no more than this.
  private static let accessStep: Int64 = 1_000_000

  /// Removes the victims in slices, as far as `isWanted` wants them as they are now. False: the
  /// trim is to stop.
  private func remove(
    _ victims: borrowing GrowingArray<Int64>, to goal: TrimGoal?, _ goOn: Progress,
    if isWanted: (Int, Record) -> Bool
  ) throws(Failure) -> Bool {
    var start = 0
    while start < victims.count {
      let end = min(start + StorageTrim.victimsInSlice, victims.count)
      let slice = try storage.remove(victims, start..<end, to: goal, at: moment, if: isWanted)
      removed += slice.removed
      guard goesOn(goOn) else { return false }
      if !slice.hasMore {
        isReached = true
        break
      }
      start = end
    }
    return true
  }

  /// Learns when the tiers above have last read an entry. True: later than the store knew.
  private func askAbove(_ key: Bytes, _ record: inout Record) -> Bool {
    guard let time = observer.lastAccess(of: key, record.version),
      time > record.accessed
    else {
      return false
    }
    storage.noteAccess(key, storage.hash.entry(key), at: time)
    record.accessed = time
    return true
  }

  // MARK: kinds

  /// Removes the entries that the rule wants, or those that have expired if there is a goal. False:
  /// the trim is to stop.
  ///
  /// The removals themselves may move entries that the walk has found, as a log's cleaner does. So
  /// the walk is repeated until it has removed all that it found of the time before the trim.
  private func filter(to goal: TrimGoal?, _ goOn: Progress) throws(Failure) -> Bool {
    let rule = rule
    func isWanted(_ record: Record) -> Bool {
      goal == nil ? rule.wants(record) : record.isExpired(at: rule.now, under: rule.ages)
    }
    // Rounds that remove nothing: every victim was read or moved meanwhile.
    var idle = 0
    while idle < 3 {
      let before = removed
      var found: UInt64 = 0
      var place = WalkPlace()
      while !place.isAtEnd {
        if let goal, goal.excess(of: try storage.occupancy()) <= 0 { return true }
        var victims = GrowingArray<Int64>()
        found += try step(
          &place, asking: goal != nil || rule.goesByAccess, addingTo: &victims, if: isWanted)
        let goesOn =
          victims.isEmpty
          ? goesOn(goOn) : try remove(victims, to: goal, goOn, if: { isWanted($1) })
        if !goesOn { return false }
      }
      if removed - before >= found { break }
      idle = removed == before ? idle + 1 : 0
    }
    return true
  }

  /// One step of a walk: adds the entries that are wanted. Returns how many of them were written
  /// before the trim. `asks`: the tiers above know of reads that count.
  private func step(
    _ place: inout WalkPlace, asking asks: Bool, addingTo victims: inout GrowingArray<Int64>,
    if isWanted: (Record) -> Bool
  ) throws(Failure) -> UInt64 {
    var found: UInt64 = 0
    var failure: Failure?
    try storage.walk(&place, at: nil) { key, entry in
      var record = entry.record
      guard failure == nil, isWanted(record),
        !(asks && askAbove(key, &record)) || isWanted(record)
      else { return }
      if record.created <= rule.now { found += 1 }
      do throws(Failure) { try victims.append(entry.id) } catch { failure = error }
    }
    if let failure { throw failure }
    return found
  }

  /// Removes what has expired, until the goal is reached: by the store's index of ends, and by a
  /// walk where the store asks for one. False: the trim is to stop.
  private func removeExpired(to goal: TrimGoal?, _ goOn: Progress) throws(Failure) -> Bool {
    // Ages that act on trims alone are in no index.
    var mustWalk = storage.ages.actOnTrim
    while true {
      let slice = try storage.removeExpired(to: goal, at: moment)
      removed += slice.removed
      mustWalk = mustWalk || slice.mustWalk
      // No index: the walk is the first slice.
      if slice.mustWalk && !slice.hasMore && slice.removed == 0 { break }
      guard goesOn(goOn) else { return false }
      if !slice.hasMore { break }
    }
    return mustWalk ? try filter(to: goal, goOn) : true
  }

  /// As room is made for the limits. Expired entries go before live ones.
  private func trimByPolicy(_ goOn: Progress) throws(Failure) {
    let goal = rule.goal
    guard try !fitsOnceReclaimed(goOn) else { return }
    let excess = goal.excess(of: try storage.occupancy())
    if goal.countsEntries { total = UInt64(max(0, excess)) }
    if excess > 0 {
      guard try removeExpired(to: goal, goOn) else { return }
      while true {
        guard let slice = try storage.makeRoom(to: goal, at: moment) else {
          return try trimByRank(goOn)
        }
        removed += slice.removed
        guard goesOn(goOn) else { return }
        if !slice.hasMore { break }
      }
    }
    _ = try fitsOnceReclaimed(goOn)
  }

  /// Removes the entries that come first by rank until the goal is reached.
  private func trimByRank(_ goOn: Progress) throws(Failure) {
    let (goal, rule) = (rule.goal, rule)
    // As many rounds as take away everything, and some for what is read, moved or put meanwhile.
    for _ in 0..<24 where !isReached {
      let occupancy = try storage.occupancy()
      let excess = goal.excess(of: occupancy)
      guard excess > 0 else { break }
      // Some more than are needed: for what is put until the end of the round, and in place of
      // what is read. They stay where the goal is reached without them.
      let all = goal.countsEntries ? occupancy.count : occupancy.charge
      var candidates = TrimScan(
        needing: Record.sum(excess, Int64(clamping: all / 16)),
        of: Int64(clamping: occupancy.count))
      var place = WalkPlace()
      while !place.isAtEnd {
        var failure: Failure?
        try storage.walk(&place, at: nil) { key, entry in
          guard failure == nil, candidates.wants(rule.item(entry)) else { return }
          var entry = entry
          // An access makes an entry go later, so only one that is a candidate is asked about.
          if rule.goesByAccess, askAbove(key, &entry.record) { entry.uses &+= 1 }
          do throws(Failure) { try candidates.offer(rule.item(entry)) } catch { failure = error }
        }
        if let failure { throw failure }
        guard goesOn(goOn) else { return }
      }
      guard candidates.count > 0 else { break }
      candidates.sort()
      var victims = GrowingArray<Int64>()
      for i in 0..<candidates.count { try victims.append(candidates[i].tag) }
      let goesOn = try remove(victims, to: goal, goOn) { index, record in
        // An entry that was read since the walk has another rank.
        let known: Int64 =
          switch rule.rank {
          case .size, .write: Int64.max
          case .uses: candidates[index].second
          case .access: candidates[index].first
          }
        return Record.difference(record.accessed, StorageTrim.accessStep) <= known
      }
      guard goesOn else { return }
    }
    _ = try fitsOnceReclaimed(goOn)
  }

  /// Reclaims space that no entry takes up, if the goal is in bytes: it goes before entries do.
  /// True if that is enough, or if the trim is to stop.
  private func fitsOnceReclaimed(_ goOn: Progress) throws(Failure) -> Bool {
    let goal = rule.goal
    if goal.countsEntries { return false }
    var tries = 0
    while true {
      switch try storage.reclaim(to: goal, at: moment) {
      case .enough: return true
      case .nothing: return false
      case .some: break
      case .blocked:
        tries += 1
        if tries > 8 { return false }
      }
      if !goesOn(goOn) { return true }
    }
  }
}

/// The part of a trim's spec that is about single entries: which ones it wants, or their rank.
struct TrimRule {
  /// What a trim by rank goes by.
  enum Rank {
    case size, access, uses, write
  }

  let spec: TrimSpec
  let now: Int64
  let ages: Ages
  let rank: Rank

  /// `policy`: the store's, for a trim to an amount.
  init(_ spec: TrimSpec, at now: Int64, under ages: Ages, _ policy: EvictionPolicy) {
    self.spec = spec
    self.now = now
    self.ages = ages
    rank =
      switch spec.kind {
      case .largestFirst: .size
      case .leastFrequent: .uses
      case .toCost, .toCount:
        switch policy {
        case .fifo: .write
        case .lfu: .uses
        case .lru, .adaptive: .access
        }
      default: .access
      }
  }

  /// True if the time of an entry's last read matters, so that the tiers above have to be asked.
  var goesByAccess: Bool {
    switch spec.kind {
    case .writtenBefore, .olderThan, .largerThan: false
    default: rank == .access || rank == .uses
    }
  }

  /// The goal of a trim to an amount.
  var goal: TrimGoal { TrimGoal(amount: spec.amount, countsEntries: spec.kind == .toCount) }

  /// True if a filter removes the entry. A time in the future, after the wall clock was set back,
  /// counts as now.
  func wants(_ record: Record) -> Bool {
    switch spec.kind {
    case .expired: record.isExpired(at: now, under: ages)
    case .writtenBefore: min(record.created, now) < spec.time
    case .olderThan: min(record.created, now) < Record.difference(now, spec.time)
    case .idleFor:
      min(max(record.accessed, record.created), now) < Record.difference(now, spec.time)
    case .accessedBefore: min(max(record.accessed, record.created), now) < spec.time
    case .largerThan: UInt64(record.valueSize) > spec.amount
    default: false
    }
  }

  /// The entry with its rank in a trim by rank: the lower rank goes first.
  func item(_ entry: WalkedEntry) -> RankedHeap.Item {
    let rank: (Int64, Int64) =
      switch self.rank {
      case .size: (-entry.charge, entry.id)
      case .access: (entry.record.accessed, entry.id)
      case .uses: (entry.uses, entry.record.accessed)
      case .write: (entry.record.created, entry.id)
      }
    return RankedHeap.Item(
      first: rank.0, second: rank.1, tag: entry.id, weight: goal.countsEntries ? 1 : entry.charge)
  }
}

/// The amount that may stay: entries, or else bytes.
struct TrimGoal {
  let amount: UInt64
  let countsEntries: Bool

  /// The number of entries or bytes that are too many; not above 0: the goal is reached.
  @inline(never)
  func excess(of occupancy: Occupancy) -> Int64 {
    Record.difference(
      Int64(clamping: countsEntries ? occupancy.count : occupancy.charge), Int64(clamping: amount))
  }
}
