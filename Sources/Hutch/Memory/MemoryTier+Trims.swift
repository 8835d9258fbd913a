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
    switch spec.kind {
    case .expired: return remove(spec.kind, from: 1, at: moment, goOn)
    case .toCost: return evict(toCost: spec.amount, count: .max, at: moment, goOn)
    case .toCount: return evict(toCost: .max, count: spec.amount, at: moment, goOn)
    case .largestFirst, .leastRecent, .leastFrequent:
      return removeHighest(spec.kind, toCost: spec.amount, at: moment, goOn)
    case .largerThan:
      if spec.amount == .max { return 0 }
      return remove(spec.kind, from: spec.amount + 1, at: moment, goOn)
    case .writtenBefore: return remove(spec.kind, before: spec.time, at: moment, goOn)
    case .olderThan, .idleFor:
      return remove(
        spec.kind, before: Record.difference(moment.time, spec.time), at: moment, goOn)
    }
  }

  private func remove(
    _ kind: TrimSpec.Kind, before time: Int64, at moment: Moment, _ goOn: (UInt64, UInt64) -> Bool
  ) -> UInt64 {
    let rank = TrimSpec.rank(ofTime: time)
    if rank == .max { return 0 }
    return remove(kind, from: rank + 1, at: moment, goOn)
  }

  /// Removes the entries of this rank and above, but none once no more than `cost` is held.
  private func remove(
    _ kind: TrimSpec.Kind, from rank: UInt64, toCost cost: UInt64 = 0, before: UInt64 = 0,
    at moment: Moment, _ goOn: (UInt64, UInt64) -> Bool
  ) -> UInt64 {
    var removed: UInt64 = 0
    var walk = TrimWalk()
    while !walk.isAtEnd && (cost == 0 || self.cost > cost) {
      removed += shards.trim(&walk, kind, from: rank, downTo: cost, at: moment)
      if !goOn(before + removed, 0) { break }
    }
    return removed
  }

  /// In the order in which the policy gives entries up.
  private func evict(
    toCost cost: UInt64, count: UInt64, at moment: Moment, _ goOn: (UInt64, UInt64) -> Bool
  ) -> UInt64 {
    let held = self.count
    let total = held > count ? held - count : 0
    var removed: UInt64 = 0
    // Others may put as fast as we evict: no more goes than was there.
    while removed < held && (self.cost > cost || self.count > count) {
      let before = removed
      var walk = TrimWalk()
      while !walk.isAtEnd && removed < held && (self.cost > cost || self.count > count) {
        removed += shards.trim(&walk, cost: cost, count: count, at: moment)
        if !goOn(removed, total == 0 ? 0 : max(removed, total)) { return removed }
      }
      // Others have reserved what is above, and hold no entries for it yet.
      if removed == before { break }
    }
    return removed
  }

  private func removeHighest(
    _ kind: TrimSpec.Kind, toCost cost: UInt64, at moment: Moment,
    _ asked: (UInt64, UInt64) -> Bool
  ) -> UInt64 {
    if self.cost <= cost { return 0 }
    var isStopped = false
    func goOn(_ removed: UInt64, _ total: UInt64) -> Bool {
      if !asked(removed, total) { isStopped = true }
      return !isStopped
    }
    // What has expired is no entry any more.
    var removed = remove(.expired, from: 1, at: moment, goOn)
    // Once, unless others put meanwhile.
    for _ in 0..<4 where self.cost > cost && !isStopped {
      guard let survey = TrimSurvey() else { break }
      guard
        let rank = threshold(
          kind, excess: self.cost - cost, at: moment, survey, { goOn(removed, 0) })
      else { break }
      // All that are above it before any that are at it.
      if rank < .max {
        removed += remove(kind, from: rank + 1, toCost: cost, before: removed, at: moment, goOn)
      }
      if isStopped { break }
      removed += remove(kind, from: rank, toCost: cost, before: removed, at: moment, goOn)
    }
    if isStopped || self.cost <= cost { return removed }
    let before = removed
    return before
      + evict(toCost: cost, count: .max, at: moment) { more, _ in goOn(before + more, 0) }
  }

  /// The rank down to which entries have to go so that `excess` goes with them. Nil: stopped.
  private func threshold(
    _ kind: TrimSpec.Kind, excess: UInt64, at moment: Moment, _ survey: TrimSurvey,
    _ goOn: () -> Bool
  ) -> UInt64? {
    var excess = excess
    while true {
      var walk = TrimWalk()
      while !walk.isAtEnd {
        shards.survey(&walk, kind, at: moment, survey)
        if !goOn() { return nil }
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
    bin.pointee.cost = bin.pointee.cost.addingReportingOverflow(charge).partialValue
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
    // Nothing in the range: what was there has gone meanwhile.
    guard let chosen else { return first }
    if chosen.least == chosen.most { return chosen.least }
    first = chosen.least
    last = chosen.most
    width = (last - first) / UInt64(TrimSurvey.binCount) + 1
    memset(bins, 0, TrimSurvey.binCount * MemoryLayout<Bin>.stride)
    return nil
  }
}
