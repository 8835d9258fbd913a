/// The memory tier's answer to pressure that the host tells of.
struct Pressure: Equatable {
  /// The numbers of HUTCH_SHRINK_*, but for the default's.
  enum Response: UInt32 {
    case empty = 1
    case lowWater = 2
    case expired = 3
  }

  var onMemoryWarning = Response.empty
  var onBackground = Response.empty
  /// Percent of the cost limit that `lowWater` leaves.
  var lowWater: UInt64 = 50

  func changed(_ change: Cache.OptionChange) -> Pressure {
    Pressure(
      onMemoryWarning: change.onMemoryWarning ?? onMemoryWarning,
      onBackground: change.onBackground ?? onBackground, lowWater: change.lowWater ?? lowWater)
  }
}

extension Cache {
  enum Notification {
    case memoryWarning, enteredBackground
  }

  /// Tells the listener, then shrinks the memory tier as the options say.
  func notify(_ notification: Notification, in scope: Tiers) {
    let pressure = parts.limitsLock.withLock { self.pressure }
    let response: Pressure.Response
    switch notification {
    case .memoryWarning:
      tell(.memoryWarning, tiers(of: scope))
      response = pressure.onMemoryWarning
    case .enteredBackground:
      tell(.enteredBackground, tiers(of: scope))
      response = pressure.onBackground
    }
    guard scope != .disk else { return }
    let moment = clock.moment()
    switch response {
    case .empty:
      emptyMemory(at: moment)
    case .lowWater:
      _ = memory.trim(TrimSpec(kind: .expired), at: moment) { _, _ in true }
      let limit = parts.limitsLock.withLock { memoryLimits.cost }
      // Without a limit, of what there is.
      let whole = limit == 0 ? memory.cost : limit
      let water = pressure.lowWater
      let left = whole / 100 * water + whole % 100 * water / 100
      _ = memory.trim(TrimSpec(kind: .toCost, amount: left), at: moment) { _, _ in helpWriteBack() }
    case .expired:
      _ = memory.trim(TrimSpec(kind: .expired), at: moment) { _, _ in true }
    }
    events.deliver()
  }
}
