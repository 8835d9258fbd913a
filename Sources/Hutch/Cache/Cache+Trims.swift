/// Trims: of a tier, or of each by itself.
extension Cache {
  /// Removes what the spec says from each tier in scope. Returns the sum; `removed` has it also
  /// where the store fails. `goOn` is called with no lock held; false stops.
  func trim(
    _ spec: TrimSpec, in scope: Tiers, removed: inout UInt64, goOn: (UInt64, UInt64) -> Bool
  ) throws(Failure) {
    let moment = clock.current
    var isStopped = false
    var before: UInt64 = 0
    func report(_ count: UInt64, _ total: UInt64) -> Bool {
      let (all, overflow) = before.addingReportingOverflow(total)
      _ = helpWriteBack()
      if !goOn(before &+ count, total == 0 || overflow ? 0 : all) { isStopped = true }
      return !isStopped
    }
    if scope != .disk {
      before = memory.trim(spec, at: moment, goOn: report)
      // No other call has to come for that.
      events.deliver()
    }
    removed = before
    guard storage != nil, scope != .memory, !isStopped else { return }
    try withStorage { (storage) throws(Failure) in
      writeBack.write(storage)
      let trim = StorageTrim(spec, of: storage, for: self, at: moment)
      defer { removed &+= trim.removed }
      try trim.run {
        life.gate.giveWay()
        return report($0, $1)
      }
    }
  }

  // MARK: check

  /// Looks through what the store has, and repairs.
  func check(isQuick: Bool, in scope: Tiers) throws(Failure) -> CheckReport {
    guard scope != .memory else { throw Failure(.unsupported, "the memory tier cannot be checked") }
    let moment = clock.current
    return try withStorage { (storage) throws(Failure) in
      try storage.check(isQuick: isQuick, at: moment)
    }
  }
}
