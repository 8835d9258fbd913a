/// What a trim removes, from one tier or from both. Each tier reports what it removed, and stops as
/// soon as it may.
struct TrimSpec {
  enum Kind: UInt32 {
    /// Expired entries: counts are exact afterwards.
    case expired = 1
    /// To `amount` bytes charged, in the order in which the tier's policy evicts.
    case toCost = 2
    /// To `amount` entries, in the same order.
    case toCount = 3
    /// To `amount` bytes charged, the largest entries first.
    case largestFirst = 4
    /// To `amount` bytes charged, those with the oldest last access first.
    case leastRecent = 5
    /// To `amount` bytes charged, those with the fewest accesses first.
    case leastFrequent = 6
    /// Entries written (or touched) before the time of day `time`.
    case writtenBefore = 7
    /// Entries written (or touched) longer ago than the duration `time`.
    case olderThan = 8
    /// Entries whose last access is longer ago than the duration `time`.
    case idleFor = 9
    /// Entries whose value has more than `amount` bytes.
    case largerThan = 10
    /// Entries whose last access is before the time of day `time`.
    case accessedBefore = 11
  }

  var kind: Kind
  /// Bytes or entries; unused if only a time counts.
  var amount: UInt64 = 0
  /// Unix nanoseconds, or a duration; unused if only an amount counts.
  var time: Int64 = 0
}
