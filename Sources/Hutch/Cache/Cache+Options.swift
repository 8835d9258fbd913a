/// The options of an open cache: those in force, and the change of those that can be changed.
extension Cache {
  /// What a caller has set, in an opening or later; nil: as it is.
  struct OptionChange {
    var policy: EvictionPolicy?
    var diskPolicy: EvictionPolicy?
    var onMemoryWarning: Pressure.Response?
    var onBackground: Pressure.Response?
    var lowWater: UInt64?
    var workers: Int?
  }

  /// Fails with nothing changed, unless memory ends while the policy changes.
  func change(_ change: OptionChange) throws(Failure) {
    if change.workers != nil {
      guard parts.hosts == nil else {
        throw Failure(.unsupported, "the cache's tasks run on a queue of the host's")
      }
      guard tasks.hasThreads else {
        throw Failure(.unsupported, "a cache without threads has no workers")
      }
    }
    if let policy = change.diskPolicy {
      guard storage != nil else {
        throw Failure(.unsupported, "a cache in memory has no disk tier")
      }
      try withStorage { $0.setPolicy(policy) }
    }
    let moment = clock.current
    defer { events.deliver() }
    try parts.limitsChange.withLock { () throws(Failure) in
      if let policy = change.policy { try memory.setPolicy(policy, at: moment) }
      parts.limitsLock.withLock {
        memoryPolicy = change.policy ?? memoryPolicy
        pressure = pressure.changed(change)
      }
      if let workers = change.workers { tasks.setWidth(workers) }
    }
  }
}
