import Synchronization

/// The limits as they are now, without a lock: a caller that reads two of them during a change
/// may see an old one and a new one.
final class LiveLimits {
  private let cost = Atomic<UInt64>(0)
  private let count = Atomic<UInt64>(0)
  private let maxEntry = Atomic<UInt64>(0)
  private let timeToLive = Atomic<Int64>(0)
  private let timeToIdle = Atomic<Int64>(0)
  private let minFree = Atomic<UInt64>(0)
  /// This process's, while the limits are the directory's.
  private let agesActOnTrim: Bool

  init(_ limits: TierLimits) {
    agesActOnTrim = limits.ages.actOnTrim
    set(limits)
  }

  func set(_ limits: TierLimits) {
    cost.store(limits.cost, ordering: .relaxed)
    count.store(limits.count, ordering: .relaxed)
    maxEntry.store(limits.maxEntry, ordering: .relaxed)
    timeToLive.store(limits.ages.timeToLive, ordering: .relaxed)
    timeToIdle.store(limits.ages.timeToIdle, ordering: .relaxed)
    minFree.store(limits.minFree, ordering: .relaxed)
  }

  var ages: Ages {
    Ages(
      timeToLive: timeToLive.load(ordering: .relaxed),
      timeToIdle: timeToIdle.load(ordering: .relaxed), actOnTrim: agesActOnTrim)
  }

  var current: TierLimits {
    TierLimits(
      cost: cost.load(ordering: .relaxed), count: count.load(ordering: .relaxed),
      maxEntry: maxEntry.load(ordering: .relaxed), ages: ages,
      minFree: minFree.load(ordering: .relaxed))
  }
}
