/// The plain structs of the header that the engine uses as they are. Only this file below the
/// boundary (ABI) names them; a file that uses their fields must import the header too. The engine
/// does not set struct_size, which belongs to the host.

internal import CHutch

/// The counters and sums of a tier.
typealias TierStats = hutch_tier_stats
/// The findings of a check. `manifest` counts the errors in the store's index of its entries.
typealias CheckReport = hutch_check_report
/// How far a copy has come.
typealias CopyReport = hutch_copy_report

extension TierStats {
  init(isUp: Bool) {
    self.init()
    self.isUp = isUp
  }

  /// True if the tier is in service. A tier that does not exist has no state.
  var isUp: Bool {
    get { state == UInt32(HUTCH_STATE_UP) }
    set { state = UInt32(newValue ? HUTCH_STATE_UP : HUTCH_STATE_DOWN) }
  }
}

extension CheckReport {
  /// True if the check has found nothing wrong.
  var isSound: Bool { damaged == 0 && orphans == 0 && counters == 0 && manifest == 0 }
}
