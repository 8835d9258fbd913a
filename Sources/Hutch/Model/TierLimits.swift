/// The limits of one tier, as hutch_tier_limits has them. 0: no limit.
struct TierLimits: Equatable {
  /// Bytes charged.
  var cost: UInt64 = 0
  /// Entries.
  var count: UInt64 = 0
  /// The largest charge of one entry; `quarter`: a quarter of `cost`.
  var maxEntry: UInt64 = 0
  var ages = Ages()
  /// Bytes to keep free on the file system; for the disk tier.
  var minFree: UInt64 = 0

  static let quarter = UInt64.max

  /// The largest charge that the tier accepts under all of its limits.
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
}

/// The limits that a caller has set. One that is not set stays as it is; at an opening it is the
/// one of the directory, or else the library's default.
struct LimitFields: OptionSet {
  let rawValue: UInt8

  static let cost = LimitFields(rawValue: 1)
  static let count = LimitFields(rawValue: 2)
  static let maxEntry = LimitFields(rawValue: 4)
  static let timeToLive = LimitFields(rawValue: 8)
  static let timeToIdle = LimitFields(rawValue: 16)
  static let minFree = LimitFields(rawValue: 32)
  static let all = LimitFields(rawValue: 63)
}

extension TierLimits {
  /// The limits as numbers, in the order of LimitFields: what a store keeps of them.
  typealias Words = InlineArray<6, UInt64>

  init(_ words: Words) {
    self.init(
      cost: words[0], count: words[1], maxEntry: words[2],
      ages: Ages(timeToLive: Int64(bitPattern: words[3]), timeToIdle: Int64(bitPattern: words[4])),
      minFree: words[5])
  }

  var words: Words {
    [
      cost, count, maxEntry, UInt64(bitPattern: ages.timeToLive),
      UInt64(bitPattern: ages.timeToIdle), minFree,
    ]
  }

  /// These limits, with the fields that a caller has set taken from `other`.
  @inline(never)
  func changed(_ fields: LimitFields, to other: TierLimits) -> TierLimits {
    var words = self.words
    let wanted = other.words
    for i in words.indices where fields.rawValue & 1 << UInt8(i) != 0 { words[i] = wanted[i] }
    var limits = TierLimits(words)
    limits.ages.actOnTrim = ages.actOnTrim
    return limits
  }
}

/// The outcome of a put in one tier: the numbers of HUTCH_OUTCOME_*.
enum TierOutcome: UInt32 {
  case none = 0
  case stored = 1
  case tooLarge = 2
  case noSpace = 3
  case failed = 4
  case removed = 5
  case deferred = 6

  var isRefusal: Bool { self == .tooLarge || self == .noSpace || self == .failed }

  /// Of a tier that a failure has kept from its part of a put.
  @inline(__always)
  init(of failure: Failure) { self = failure.status == .noSpace ? .noSpace : .failed }
}
