import Synchronization

/// Changes of the limits, which are the directory's, and of the policy, which is this process's.
extension DiskTier {
  func setPolicy(_ policy: EvictionPolicy) {
    committer.livePolicy.store(policy.ofRows.rawValue, ordering: .relaxed)
  }

  func setLimits(_ limits: TierLimits, at moment: Moment) throws(Failure) {
    committer.withTurn {
      committer.liveLimits.set(limits)
      attachment.hasLimits = true
    }
    if limits.ages.any { committer.idle.note(Int64.min) }
    var hasMore = true
    while hasMore {
      try committer.withTurn { () throws(Failure) in
        try committer.checkService()
        committer.latestTime = moment.time
        // The turn has set those of the manifest.
        committer.liveLimits.set(limits)
        try committer.transact { (transaction: inout Transaction) throws(Failure) in
          transaction.hasChanged = true
          try transaction.manifest.write(limits)
          hasMore = try self.committer.evictor.makeFit(
            &transaction, &self.committer.sweeper, sparing: transaction.manifest.lastID,
            to: SpaceLedger(limits), most: 256)
        }
      }
    }
    while committer.withTurn({ isUp && committer.keepFree() }) {}
  }
}
