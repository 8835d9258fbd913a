/// The part of trims under locks, a slice at a time: the decisions are in MemoryTier+Trims.swift.

/// How far a walk over all shards has come. It takes a slice of each shard in turn, so a thread
/// that waits for the lock of one has it while the walk is in the others.
struct TrimWalk {
  private(set) var shard = 0
  /// Of each shard (`ShardPosition.mostShards`) a hash within it: the entries before it have been
  /// seen. All ones: all have.
  private var positions = InlineArray<256, UInt64>(repeating: 0)
  private(set) var isAtEnd = false

  /// Where the walk is in its shard.
  fileprivate var position: UInt64 { positions[shard] }

  /// Goes to the next shard that has entries to see. The number of shards may have grown.
  fileprivate mutating func step(to next: UInt64?, shards: Int) {
    positions[shard] = next ?? .max
    for _ in 0..<shards {
      shard = (shard + 1) & (shards - 1)
      if position != .max { return }
    }
    isAtEnd = true
  }
}

extension Shard {
  /// By which a trim of this kind chooses: the higher, the sooner the entry goes.
  func rank(_ word: Word, _ kind: TrimSpec.Kind, at moment: Moment) -> UInt64 {
    let block = word.block
    switch kind {
    case .expired:
      guard word.isTimed else { return 0 }
      let now = moment.time
      return record(block, at: now).isExpired(at: now, under: ages.strict) ? 1 : 0
    case .largestFirst: return MemoryTier.charge(of: block)
    case .leastRecent, .idleFor, .accessedBefore:
      return TrimSpec.rank(ofTime: accessed(block, at: moment.time))
    case .leastFrequent: return ~policy.uses(Slot(block.slot), word, entries)
    case .writtenBefore, .olderThan: return TrimSpec.rank(ofTime: block.created)
    case .largerThan: return block.isObject ? 0 : UInt64(block.size)
    case .toCost, .toCount: return 0
    }
  }

  /// Evicts in the policy's order until no more than this is held in the tier, or the
  /// departures are full; false if nothing is left to go.
  mutating func trim(
    cost: UInt64, count: UInt64, at moment: Moment, _ budget: borrowing Budget,
    into departures: inout Departures
  ) -> Bool {
    while budget.cost > cost || budget.count > count {
      if departures.isFull { return true }
      guard let victim = policy.victim(sparing: .none, entries, nil) else { return false }
      evict(victim, .trimmed, at: moment, budget, into: &departures)
    }
    return true
  }
}

extension TrimSpec {
  /// Earlier times rank higher.
  static func rank(ofTime time: Int64) -> UInt64 { ~(UInt64(bitPattern: time) ^ 1 << 63) }
}

extension MemoryTier {
  /// Lines of the table under one hold of a lock: a trim reads each entry's block.
  private static var linesOfSlice: Int { 8 }

  func survey(
    _ walk: inout TrimWalk, _ kind: TrimSpec.Kind, at moment: Moment, _ survey: TrimSurvey
  ) {
    let next = visitLines(of: walk.shard, from: walk.position, most: MemoryTier.linesOfSlice) {
      shard, hash in
      shard.entries.table.visitLine(at: hash) { place in
        let word = place.pointee
        survey.add(shard.rank(word, kind, at: moment), MemoryTier.charge(of: word.block))
      }
    }
    walk.step(to: next, shards: shardCount)
  }

  func trim(
    _ walk: inout TrimWalk, _ kind: TrimSpec.Kind, from rank: UInt64, downTo cost: UInt64,
    at moment: Moment
  ) -> UInt64 {
    var departures = makeDepartures()
    let next = visitLines(of: walk.shard, from: walk.position, most: MemoryTier.linesOfSlice) {
      shard, hash in
      if kind == .expired && shard.timed.value == 0 { return nil }
      if departures.isFull { return hash }
      return shard.removeLine(
        at: hash, kind == .expired ? .expired : .trimmed, at: moment, budget, downTo: cost,
        into: &departures
      ) { shard, word in shard.rank(word, kind, at: moment) >= rank }
    }
    let removed = UInt64(departures.count)
    deliver(&departures)
    walk.step(to: next, shards: shardCount)
    return removed
  }

  func trim(
    _ walk: inout TrimWalk, cost: UInt64, count: UInt64, at moment: Moment
  ) -> UInt64 {
    var departures = makeDepartures()
    _ = withSlice(of: walk.shard) { shard in
      shard.trim(cost: cost, count: count, at: moment, budget, into: &departures)
    }
    let removed = UInt64(departures.count)
    deliver(&departures)
    // In turn, so that all shards give alike.
    walk.step(to: nil, shards: shardCount)
    return removed
  }
}
