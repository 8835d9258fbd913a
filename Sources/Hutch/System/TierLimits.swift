/// The limits of one tier, as hutch_tier_limits has them. 0: no limit.
struct TierLimits: Equatable {
  /// Bytes charged.
  var cost: UInt64 = 0
  /// Entries.
  var count: UInt64 = 0
  /// The largest charge of one entry; `quarter`: a quarter of `cost`.
  var maxEntry: UInt64 = 0
  var ages = Ages()
  /// Bytes that stay free on the file system; the disk tier's.
  var minFree: UInt64 = 0

  static let quarter = UInt64.max

  /// The largest charge that the tier takes, whichever limit says so.
  var largestCharge: UInt64 {
    let largest = cost == 0 ? UInt64.max : cost
    switch maxEntry {
    case 0: return largest
    case TierLimits.quarter: return cost == 0 ? UInt64.max : max(1, cost / 4)
    default: return min(maxEntry, largest)
    }
  }

  static let defaultMemory = TierLimits(cost: 64 << 20, maxEntry: quarter)
  static let defaultDisk = TierLimits(
    cost: 50_000_000, maxEntry: quarter, ages: Ages(timeToLive: 30 * 86_400_000_000_000))

  static func == (a: TierLimits, b: TierLimits) -> Bool {
    a.cost == b.cost && a.count == b.count && a.maxEntry == b.maxEntry && a.ages == b.ages
      && a.minFree == b.minFree
  }
}

/// What a tier did and holds, as hutch_tier_stats has it.
struct TierStats {
  var isUp = true
  var count: UInt64 = 0
  var cost: UInt64 = 0
  var hits: UInt64 = 0
  var misses: UInt64 = 0
  var puts: UInt64 = 0
  var removals: UInt64 = 0
  var evictions: UInt64 = 0
  var expirations: UInt64 = 0
  var refusals: UInt64 = 0
  var failures: UInt64 = 0
  var damaged: UInt64 = 0
  var replacements: UInt64 = 0
  var trims: UInt64 = 0
  var heldCount: UInt64 = 0
  var heldBytes: UInt64 = 0
}

/// What one tier made of a put: the numbers of HUTCH_OUTCOME_*.
enum TierOutcome: UInt32 {
  case none = 0
  case stored = 1
  case tooLarge = 2
  case noSpace = 3
  case failed = 4
  case removed = 5
  case deferred = 6
}
