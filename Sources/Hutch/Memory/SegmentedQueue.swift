import CSystem

/// One structure that is many policies: a first-in-first-out window, a main queue with a hand
/// that gives used entries another round (CLOCK), ghosts of what left by the window, and a
/// frequency sketch. A mode is a setting of its parameters, so it can be changed at any time
/// and the queues drift to their new shape. Close relatives are 2Q, S3-FIFO and W-TinyLFU.
struct Mode {
  /// The fate of an entry that leaves a full window with fewer than two uses.
  enum WindowExit: UInt32 {
    /// With one use it goes through the window again, else it is evicted.
    case again
    case evict
    /// It competes with the main queue's candidate by frequency.
    case duel
  }

  /// All of it, since every put hands it on several times: the window's share in the lowest 10
  /// bits, then 2 of the exit, a bit for each of the rest, and from bit 16 on the number.
  private let bits: UInt32

  private init(
    _ number: UInt32, window: UInt32, exit: WindowExit, trustsGhosts: Bool = false,
    isClock: Bool = false, levels: Bool = true
  ) {
    bits =
      window | exit.rawValue << 10 | (trustsGhosts ? 1 << 12 : 0) | (isClock ? 1 << 13 : 0)
      | (levels ? 1 << 14 : 0) | number << 16
  }

  /// Among the modes.
  @inline(__always) var number: Int { Int(bits &>> 16) }
  /// The window's share in 1/1000.
  @inline(__always) var window: UInt { UInt(bits & 1023) }
  @inline(__always)
  var exit: WindowExit { WindowExit(rawValue: bits &>> 10 & 3).unsafelyUnwrapped }
  /// A remembered key goes to the main queue without being compared.
  @inline(__always) var trustsGhosts: Bool { bits & 1 << 12 != 0 }
  /// No window: a plain CLOCK with one bit.
  @inline(__always) var isClock: Bool { bits & 1 << 13 != 0 }
  /// Where costs count, the main queue goes by cost per use, else by cost.
  @inline(__always) var levels: Bool { bits & 1 << 14 != 0 }

  var comparesFrequencies: Bool {
    switch exit {
    case .duel: true
    default: !trustsGhosts && !isClock
    }
  }

  static let count = 6
  /// The first to be followed: where nothing is known yet, and where costs count. On the reference
  /// traces the narrow window loses the least before the contest has found the right one.
  static let first = 3
  static let firstByCost = 2
  /// Nearly a plain queue, for entries that are read once and never again: another mode keeps them
  /// after their read. Elsewhere it seems to be the best at times, and is far behind soon after. So
  /// it leads only where it has many hits more: one of its shadow counts so much.
  static let queue = 5
  static let worthOfQueueHit = 0.6

  /// The modes differ on purpose: each is good where the others are bad.
  static func number(_ n: Int) -> Mode {
    switch n {
    case 0: Mode(0, window: 300, exit: .again)
    case 1: Mode(1, window: 30, exit: .evict, trustsGhosts: true)
    case 2: Mode(2, window: 50, exit: .duel, levels: false)
    case 3: Mode(3, window: 10, exit: .evict)
    case 4: Mode(4, window: 0, exit: .evict, isClock: true)
    default: Mode(UInt32(queue), window: 900, exit: .evict, trustsGhosts: true)
    }
  }
}

/// Where costs differ and the limit is one of cost, both queues go by age and cost
/// (CostLists.swift), and frequencies are compared per cost. Where they do not, each queue is one
/// list.
struct SegmentedQueue: ~Copyable {
  private(set) var window = CostLists()
  private(set) var main = CostLists()
  /// Where the next entry goes.
  private var goesToMain = false
  /// Grows by one with each new key.
  private var now: UInt32 = 0
  /// Whether costs count.
  var weighs = false
  /// The main queue's candidate that keys were refused for last, and how many in a row.
  private var incumbent = Slot.none
  private var refusals: UInt32 = 0

  /// However many entries have been used, one put looks at so many at most.
  private static let mostSteps = 64
  private static let mostRefusals: UInt32 = 6

  var count: Int { window.count &+ main.count }

  // MARK: a new key

  /// Decides where it goes. `isFull`: something has to go for it. The sketch has counted the
  /// access.
  @_optimize(speed)
  mutating func prepare(
    _ key: UInt32, ghost: UInt32, costClass: UInt32, isFull: Bool, _ mode: Mode,
    _ sketch: borrowing FrequencySketch, _ ghosts: inout Ghosts, _ entries: borrowing Entries
  ) {
    now &+= 1
    let isKnown = ghosts.contains(ghost)
    goesToMain = mode.isClock || isKnown
    if isKnown && isFull && !mode.isClock && !mode.trustsGhosts,
      let candidate = mainCandidate(mode, sparing: .none, sketch, entries, nil)
    {
      // In a loop all keys have the same frequency. The sketch has counted the request for this
      // key; that for the candidate is still to come, unless more new keys have come since its last
      // than there are entries.
      let slot = candidate.slot
      let isDue = !weighs && !isOlder(1)
      let (ours, theirs) = compare(
        sketch.estimate(key), costClass, sketch.estimate(entries.key(slot)) &+ (isDue ? 1 : 0),
        entries.link(slot).pointee.costClass)
      // It has uses where the hand has taken all the steps that it may.
      goesToMain =
        candidate.place.pointee.uses == 0 && (ours > theirs || (!weighs && yields(slot)))
    }
    if isKnown && goesToMain { ghosts.remove(ghost) }
  }

  /// Whether so many times as many new keys as there are entries have come since the main queue's
  /// oldest did.
  private func isOlder(_ factor: Float) -> Bool { main.age(at: now) >= factor * Float(count) }

  /// True if a candidate of the main queue is evicted whatever the sketch says. Its frequency may
  /// be out of date: it has not been used while 2.1 times as many new keys came as there are
  /// entries, so for longer than keys are remembered (Ghosts.swift), and a few keys that came again
  /// were refused for it. One candidate goes at a time, since in a loop that is too large most
  /// entries are as old. Where costs count, age counts already.
  @inline(never)
  private mutating func yields(_ candidate: Slot) -> Bool {
    if candidate != incumbent {
      incumbent = candidate
      refusals = 0
    }
    if !isOlder(2.1) { return false }
    refusals += 1
    if refusals < SegmentedQueue.mostRefusals { return false }
    refusals = 0
    return true
  }

  /// Two frequencies, each times the other's cost if costs count.
  @inline(never)
  private mutating func compare(
    _ ours: UInt64, _ ourClass: UInt32, _ theirs: UInt64, _ theirClass: UInt32
  ) -> (Float, Float) {
    if !weighs || ourClass == theirClass { return (Float(ours), Float(theirs)) }
    return (
      Float(ours) * CostLists.weight(theirClass), Float(theirs) * CostLists.weight(ourClass)
    )
  }

  /// Puts it where it was decided; it has no uses yet.
  @_optimize(speed)
  mutating func admit(
    _ slot: Slot, costClass: UInt32, _ mode: Mode, _ sketch: borrowing FrequencySketch,
    _ entries: borrowing Entries
  ) {
    if goesToMain {
      entries.link(slot).pointee.tag(costClass: costClass, level: 0)
      pushMain(slot, mode, sketch, entries)
    } else {
      window.pushAtOnce(slot, costClass: costClass, at: now, entries)
    }
    goesToMain = false
    // While the cache fills, this is what fills the main queue; later it narrows a window that
    // is too wide for the mode.
    if !mode.isClock && window.count > target(mode, of: count),
      let first = window.first(sparing: slot, at: now, weighs: weighs, entries)
    {
      // It keeps its uses: to clear them would cost a line more, of an entry that no call asked
      // for, and a trim by frequency would know nothing of them.
      moveToMain(first, mode, sketch, entries)
    }
  }

  /// Takes over an entry as it was.
  mutating func adopt(
    _ slot: Slot, isMain: Bool, _ entries: borrowing Entries
  ) {
    if isMain {
      main.push(slot, at: now, entries)
    } else {
      window.push(slot, at: now, entries)
    }
  }

  /// The entry goes. Whether its slot is free; if not, `takeFreed` will give it.
  @inline(__always)
  mutating func forget(
    _ slot: Slot, isMain: Bool, _ entries: borrowing Entries
  ) -> Bool {
    isMain ? main.remove(slot, entries) : window.remove(slot, entries)
  }

  /// See CostLists.
  @inline(__always)
  mutating func takeFreed(_ entries: borrowing Entries) -> Slot? {
    window.takeFreed(entries) ?? main.takeFreed(entries)
  }

  @inline(__always)
  private func target(_ mode: Mode, of count: Int) -> Int {
    max(1, Int(bitPattern: (UInt(bitPattern: count) &* mode.window &+ 500) / 1000))
  }

  /// A slot that the window has given as its first.
  @inline(never)
  private mutating func moveToMain(
    _ slot: Slot, _ mode: Mode, _ sketch: borrowing FrequencySketch, _ entries: borrowing Entries
  ) {
    window.popAtOnce(slot, entries)
    pushMain(slot, mode, sketch, entries)
  }

  @inline(__always)
  private mutating func pushMain(
    _ slot: Slot, _ mode: Mode, _ sketch: borrowing FrequencySketch, _ entries: borrowing Entries
  ) {
    entries.slab.setMain(slot, true)
    if _slowPath(weighs) {
      setLevel(slot, mode, sketch, entries)
      main.push(slot, at: now, entries)
    } else {
      main.pushAtOnce(slot, costClass: entries.link(slot).pointee.costClass, at: now, entries)
    }
  }

  /// Where costs count: a level for each doubling of uses, which counts as much as a halving of
  /// cost.
  @inline(never)
  private mutating func setLevel(
    _ slot: Slot, _ mode: Mode, _ sketch: borrowing FrequencySketch, _ entries: borrowing Entries
  ) {
    let link = entries.link(slot)
    var level: UInt32 = 0
    if mode.levels {
      // 0...15: at most 3.
      let uses = UInt32(truncatingIfNeeded: sketch.estimate(entries.key(slot)))
      level = 31 &- UInt32((uses | 1).leadingZeroBitCount)
    }
    link.pointee.tag(costClass: link.pointee.costClass, level: level)
  }

  /// Another round in the main queue.
  @inline(never)
  private mutating func renewMain(
    _ slot: Slot, _ mode: Mode, _ sketch: borrowing FrequencySketch, _ entries: borrowing Entries
  ) {
    main.pop(slot, entries)
    if weighs { setLevel(slot, mode, sketch, entries) }
    main.push(slot, at: now, entries)
  }

  // MARK: an eviction

  /// The main queue's next to go: the first that the hand finds without uses, each of which
  /// it takes and counts in the sketch. It stays at the head.
  @inline(never)
  private mutating func mainCandidate(
    _ mode: Mode, sparing spared: Slot, _ sketch: borrowing FrequencySketch,
    _ entries: borrowing Entries, _ ahead: UnsafeMutablePointer<LookAhead>?
  ) -> Victim? {
    var steps = 0
    while let head = main.first(sparing: spared, at: now, weighs: weighs, entries) {
      steps += 1
      if _slowPath(ahead != nil) { ahead?.pointee.prefetch(after: head, sketch, entries) }
      let place = entries.place(of: head)
      let uses = place.pointee.uses
      if uses == 0 || steps > SegmentedQueue.mostSteps {
        // The block is read when the entry goes.
        hutch_prefetch(place.pointee.block0)
        return Victim(slot: head, place: place)
      }
      if entries.countsAccesses { sketch.increment(entries.key(head)) }
      entries.set(place, uses: mode.isClock ? 0 : uses - 1)
      renewMain(head, mode, sketch, entries)
    }
    return nil
  }

  /// The entry to go; nil: there is none but the spared one.
  @_optimize(speed)
  mutating func victim(
    _ mode: Mode, sparing spared: Slot, _ sketch: borrowing FrequencySketch,
    _ ghosts: inout Ghosts, _ entries: borrowing Entries, _ ahead: UnsafeMutablePointer<LookAhead>?
  ) -> Victim? {
    let coming = goesToMain || !spared.isNone ? 0 : 1
    let target = target(mode, of: count)
    var steps = 0
    while true {
      steps += 1
      let isMainsTurn =
        window.isEmpty || (!mode.isClock && window.count &+ coming <= target && !main.isEmpty)
      guard !isMainsTurn,
        let head = window.first(sparing: spared, at: now, weighs: weighs, entries)
      else {
        guard let candidate = mainCandidate(mode, sparing: spared, sketch, entries, ahead) else {
          // All that is left is in the window.
          let head = window.first(sparing: spared, at: now, weighs: weighs, entries)
          return head.map { Victim(slot: $0, place: entries.place(of: $0)) }
        }
        if mode.isClock { ghosts.insert(entries.ghost(candidate.slot)) }
        return candidate
      }
      if _slowPath(ahead != nil) { ahead?.pointee.prefetch(after: head, sketch, ghosts, entries) }
      let place = entries.place(of: head)
      if mode.isClock {
        // A window that another mode has left goes over to the main queue, one by one.
        moveToMain(head, mode, sketch, entries)
        let candidate =
          mainCandidate(mode, sparing: spared, sketch, entries, ahead)
          ?? Victim(slot: head, place: place)
        ghosts.insert(entries.ghost(candidate.slot))
        return candidate
      }
      let uses = entries.uses(place)
      if uses != 0 && entries.countsAccesses {
        for _ in 0..<uses { sketch.increment(entries.key(head)) }
      }
      if uses >= 2 {
        promote(head, at: place, mode, sketch, entries)
        if let candidate = mainCandidate(mode, sparing: spared, sketch, entries, ahead) {
          return candidate
        }
        continue
      }
      switch mode.exit {
      case .again where uses == 1 && steps < SegmentedQueue.mostSteps:
        entries.set(place, uses: 0)
        window.pop(head, entries)
        window.push(head, at: now, entries)
        continue
      case .duel:
        if let rival = mainCandidate(mode, sparing: spared, sketch, entries, ahead),
          isWorthMore(head, than: rival.slot, isUsed: uses > 0, sketch, entries)
        {
          promote(head, at: place, mode, sketch, entries)
          return rival
        }
      default: break
      }
      ghosts.insert(entries.ghost(head))
      return Victim(slot: head, place: place)
    }
  }

  /// Moves the window's first entry to the main queue.
  @inline(__always)
  private mutating func promote(
    _ head: Slot, at place: Table.Place, _ mode: Mode, _ sketch: borrowing FrequencySketch,
    _ entries: borrowing Entries
  ) {
    entries.set(place, uses: 0)
    moveToMain(head, mode, sketch, entries)
  }

  /// Whether the window's first entry stays, rather than the main queue's candidate.
  @inline(__always)
  private mutating func isWorthMore(
    _ head: Slot, than rival: Slot, isUsed: Bool, _ sketch: borrowing FrequencySketch,
    _ entries: borrowing Entries
  ) -> Bool {
    let (worth, rivals) = compare(
      sketch.estimate(entries.key(head)), entries.link(head).pointee.costClass,
      sketch.estimate(entries.key(rival)), entries.link(rival).pointee.costClass)
    return worth > rivals || (worth == rivals && isUsed)
  }

  /// From the first to go on, about.
  func forEach(_ entries: borrowing Entries, _ body: (Slot) -> Void) {
    window.forEach(entries, body)
    main.forEach(entries, body)
  }

  // MARK: for tests

  func violation(_ entries: borrowing Entries) -> StaticString? {
    if let found = window.violation(entries) ?? main.violation(entries) { return found }
    var found: StaticString?
    window.forEach(entries) { if entries.isMain($0) { found = "a window entry counts as main" } }
    main.forEach(entries) {
      if !entries.isMain($0) { found = "a main entry does not count as main" }
    }
    return found
  }
}
