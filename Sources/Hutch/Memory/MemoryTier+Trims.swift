import CSystem

/// Trims of the memory tier. Every kind removes the entries whose rank (Shard.rank) is high
/// enough. Where a cost is to be reached the rank from which entries go is found first, by
/// walks that only read: sums of charges by rank, in ever narrower ranges, so that no trim
/// needs memory by the number of entries. Nothing is held from one slice of a walk to the next.
extension MemoryTier {
  /// Removes what the spec says, and stops as soon as it may. Returns how many went. `goOn` is
  /// called with no lock held between slices, with how many have gone and how many will, or 0
  /// where that is not known; false stops the trim.
  func trim(
    _ spec: TrimSpec, at moment: Moment, goOn: (UInt64, UInt64) -> Bool
  ) -> UInt64 {
    withoutActuallyEscaping(goOn) { goOn in
      let trim = Trim(self, spec, moment, goOn)
      trim.run()
      return trim.removed
    }
  }
}

/// One trim on its way.
private final class Trim {
  private let tier: MemoryTier
  private let spec: TrimSpec
  private let moment: Moment
  private let asked: (UInt64, UInt64) -> Bool
  private(set) var removed: UInt64 = 0
  /// How many will go; 0: not known.
  private var total: UInt64 = 0
  private var isStopped = false

  init(
    _ tier: MemoryTier, _ spec: TrimSpec, _ moment: Moment,
    _ asked: @escaping (UInt64, UInt64) -> Bool
  ) {
    self.tier = tier
    self.spec = spec
    self.moment = moment
    self.asked = asked
  }

  func run() {
    switch spec.kind {
    case .expired: remove(.expired, from: 1)
    case .toCost: evict(toCost: spec.amount, count: .max)
    case .toCount: evict(toCost: .max, count: spec.amount)
    case .largestFirst, .leastRecent, .leastFrequent: removeHighest(toCost: spec.amount)
    case .largerThan: remove(spec.kind, above: spec.amount)
    case .writtenBefore, .accessedBefore:
      remove(spec.kind, above: TrimSpec.rank(ofTime: spec.time))
    case .olderThan, .idleFor:
      let time = Record.difference(moment.time, spec.time)
      remove(spec.kind, above: TrimSpec.rank(ofTime: time))
    }
    if removed > 0 && !isStopped {
      tier.shrink()
      tier.tighten {
        pause()
        return !isStopped
      }
    }
  }

  /// After each slice.
  private func pause() {
    if !asked(removed, total == 0 ? 0 : max(removed, total)) { isStopped = true }
  }

  private func remove(_ kind: TrimSpec.Kind, above rank: UInt64, toCost cost: UInt64 = 0) {
    if rank < .max { remove(kind, from: rank + 1, toCost: cost) }
  }

  /// Removes the entries of this rank and above, but none once no more than `cost` is held.
  private func remove(_ kind: TrimSpec.Kind, from rank: UInt64, toCost cost: UInt64 = 0) {
    var walk = TrimWalk()
    while !isStopped && !walk.isAtEnd && (cost == 0 || tier.cost > cost) {
      removed += tier.trim(&walk, kind, from: rank, downTo: cost, at: moment)
      pause()
    }
  }

  /// In the order in which the policy evicts entries, after the expired ones.
  private func evict(toCost cost: UInt64, count: UInt64) {
    if tier.hasExpiring && (tier.cost > cost || tier.count > count) {
      remove(.expired, from: 1)
    }
    let held = tier.count
    // Other calls may put as fast as this one evicts: no more goes than was there.
    let most = removed &+ held
    if held > count { total = held - count }
    var walk = TrimWalk()
    var before = removed
    while !isStopped && removed < most && (tier.cost > cost || tier.count > count) {
      removed += tier.trim(&walk, cost: cost, count: count, at: moment)
      pause()
      if walk.isAtEnd {
        // Others have reserved what is above, and hold no entries for it yet.
        if removed == before { return }
        before = removed
        walk = TrimWalk()
      }
    }
  }

  private func removeHighest(toCost cost: UInt64) {
    if tier.cost <= cost { return }
    // An expired entry is no entry any more.
    remove(.expired, from: 1)
    // Once, unless others put meanwhile.
    for _ in 0..<4 {
      // Read once: others remove meanwhile.
      let held = tier.cost
      guard held > cost, let survey = TrimSurvey(), let rank = threshold(held - cost, survey)
      else { break }
      // All that are above it before any that are at it.
      remove(spec.kind, above: rank, toCost: cost)
      remove(spec.kind, from: rank, toCost: cost)
    }
    evict(toCost: cost, count: .max)
  }

  /// The rank down to which entries have to go so that `excess` goes with them. Nil: stopped.
  private func threshold(_ excess: UInt64, _ survey: TrimSurvey) -> UInt64? {
    var excess = excess
    while true {
      var walk = TrimWalk()
      while !walk.isAtEnd {
        tier.survey(&walk, spec.kind, at: moment, survey)
        pause()
        if isStopped { return nil }
      }
      if let rank = survey.narrow(&excess) { return rank }
    }
  }
}

/// Charges by rank, within a range of ranks.
final class TrimSurvey {
  private struct Bin {
    var cost: UInt64
    var least: UInt64
    var most: UInt64
  }

  private static var binCount: Int { 256 }
  private let bins: UnsafeMutablePointer<Bin>
  private var first: UInt64 = 0
  private var last = UInt64.max
  private var width = UInt64.max / 256 + 1

  /// Nil: no memory.
  init?() {
    do throws(Failure) {
      bins = try Allocation.array(Bin.self, TrimSurvey.binCount)
    } catch {
      return nil
    }
  }

  deinit { free(bins) }

  func add(_ rank: UInt64, _ charge: UInt64) {
    guard rank >= first, rank <= last else { return }
    let bin = bins + Int((rank - first) / width)
    if bin.pointee.cost == 0 { bin.pointee = Bin(cost: 0, least: rank, most: rank) }
    bin.pointee.cost &+= charge
    bin.pointee.least = min(bin.pointee.least, rank)
    bin.pointee.most = max(bin.pointee.most, rank)
  }

  /// Goes on with the bin in which the highest ranks have come to `excess`, which is then what
  /// remains of it; or if all of that bin are of one rank, returns it.
  func narrow(_ excess: inout UInt64) -> UInt64? {
    var chosen: Bin?
    for i in (0..<TrimSurvey.binCount).reversed() where bins[i].cost > 0 {
      chosen = bins[i]
      if bins[i].cost >= excess { break }
      excess -= bins[i].cost
    }
    // Nothing in the range: the entries that were there have gone meanwhile.
    guard let chosen else { return first }
    if chosen.least == chosen.most { return chosen.least }
    first = chosen.least
    last = chosen.most
    width = (last - first) / UInt64(TrimSurvey.binCount) + 1
    memset(bins, 0, TrimSurvey.binCount * MemoryLayout<Bin>.stride)
    return nil
  }
}
