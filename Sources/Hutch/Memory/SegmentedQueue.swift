/// One structure that is many policies: a first-in-first-out window, a main queue with a hand
/// that gives used entries another round (CLOCK), ghosts of what left by the window, and a
/// frequency sketch. A mode is a setting of its parameters, so it can be changed at any time
/// and the queues drift to their new shape. Close relatives are 2Q, S3-FIFO and W-TinyLFU.
struct Mode {
  /// What becomes of an entry that leaves a full window with fewer than two uses.
  enum WindowExit {
    /// With one use it goes through the window again, else it is evicted.
    case again
    case evict
    /// It competes with the main queue's candidate by frequency.
    case duel
  }

  /// The window's share in 1/1000.
  let window: Int
  let exit: WindowExit
  /// A remembered key goes to the main queue without being compared.
  let trustsGhosts: Bool
  /// No window: a plain CLOCK with one bit.
  let isClock: Bool

  static let count = 5

  /// The modes differ on purpose: each is good where the others are bad.
  static func number(_ n: Int) -> Mode {
    switch n {
    case 0: Mode(window: 300, exit: .again, trustsGhosts: false, isClock: false)
    case 1: Mode(window: 30, exit: .evict, trustsGhosts: true, isClock: false)
    case 2: Mode(window: 50, exit: .duel, trustsGhosts: false, isClock: false)
    case 3: Mode(window: 10, exit: .evict, trustsGhosts: false, isClock: false)
    default: Mode(window: 0, exit: .evict, trustsGhosts: false, isClock: true)
    }
  }
}

/// What a segmented queue knows of its entries.
protocol QueueStore: LinkStore, ~Copyable {
  /// Whether this is the cache itself, whose events the sketch counts, or a shadow of it.
  static var counts: Bool { get }
  /// The key in the sketch.
  func key(_ slot: Slot) -> UInt32
  /// The key among the ghosts.
  func ghost(_ slot: Slot) -> UInt32
  func uses(_ slot: Slot) -> UInt64
  func isMain(_ slot: Slot) -> Bool
  func set(_ slot: Slot, uses: UInt64)
  func set(_ slot: Slot, isMain: Bool)
}

struct SegmentedQueue {
  private(set) var window = SlotList()
  private(set) var main = SlotList()
  /// Where the next entry goes.
  private var goesToMain = false

  /// However many entries have been used, one put looks at so many at most.
  private static let mostSteps = 64

  var count: Int { window.count + main.count }

  // MARK: a new key

  /// Decides where it goes. `isFull`: something has to go for it.
  mutating func prepare<Store: QueueStore & ~Copyable>(
    _ key: UInt32, ghost: UInt32, isFull: Bool, _ mode: Mode, _ sketch: borrowing FrequencySketch,
    _ ghosts: inout Ghosts, _ store: borrowing Store
  ) {
    if Store.counts { sketch.increment(key) }
    let isKnown = ghosts.contains(ghost)
    goesToMain = mode.isClock || isKnown
    if isKnown && isFull && !mode.isClock && !mode.trustsGhosts,
      let candidate = mainCandidate(mode, sparing: .none, sketch, store)
    {
      goesToMain = sketch.estimate(key) > sketch.estimate(store.key(candidate))
    }
    if isKnown && goesToMain { ghosts.remove(ghost) }
  }

  /// Puts it where it was decided; it has no uses yet.
  mutating func admit<Store: QueueStore & ~Copyable>(
    _ slot: Slot, _ mode: Mode, _ store: borrowing Store
  ) {
    if goesToMain {
      pushMain(slot, store)
    } else {
      window.push(slot, store)
    }
    goesToMain = false
    // While the cache fills, this is what fills the main queue; later it narrows a window that
    // is too wide for the mode.
    if !mode.isClock && window.count > target(mode, of: count),
      let first = window.first(sparing: slot, store)
    {
      window.remove(first, store)
      // A line more, of an entry that nobody asked for; to let it keep its uses loses a thousandth
      // of the hits on the reference traces.
      store.set(first, uses: 0)
      pushMain(first, store)
    }
  }

  /// Takes over an entry as it was.
  mutating func adopt<Store: QueueStore & ~Copyable>(
    _ slot: Slot, isMain: Bool, _ store: borrowing Store
  ) {
    if isMain { main.push(slot, store) } else { window.push(slot, store) }
  }

  mutating func forget<Store: QueueStore & ~Copyable>(
    _ slot: Slot, isMain: Bool, _ store: borrowing Store
  ) {
    if isMain { main.remove(slot, store) } else { window.remove(slot, store) }
  }

  private func target(_ mode: Mode, of count: Int) -> Int {
    max(1, (count * mode.window + 500) / 1000)
  }

  private mutating func pushMain<Store: QueueStore & ~Copyable>(
    _ slot: Slot, _ store: borrowing Store
  ) {
    store.set(slot, isMain: true)
    main.push(slot, store)
  }

  // MARK: an eviction

  /// The main queue's next to go: the first that the hand finds without uses, each of which
  /// it takes and counts in the sketch. It stays at the head.
  private mutating func mainCandidate<Store: QueueStore & ~Copyable>(
    _ mode: Mode, sparing spared: Slot, _ sketch: borrowing FrequencySketch,
    _ store: borrowing Store
  ) -> Slot? {
    var steps = 0
    while !main.isEmpty {
      let head = main.oldest
      steps += 1
      if head == spared {
        if main.count == 1 { return nil }
      } else {
        let uses = store.uses(head)
        if uses == 0 || steps > SegmentedQueue.mostSteps { return head }
        if Store.counts { sketch.increment(store.key(head)) }
        store.set(head, uses: mode.isClock ? 0 : uses - 1)
      }
      main.renew(head, store)
    }
    return nil
  }

  /// The entry to go; nil: there is none but the spared one.
  mutating func victim<Store: QueueStore & ~Copyable>(
    _ mode: Mode, sparing spared: Slot, _ sketch: borrowing FrequencySketch,
    _ ghosts: inout Ghosts, _ store: borrowing Store
  ) -> Slot? {
    let coming = goesToMain || !spared.isNone ? 0 : 1
    let target = target(mode, of: count)
    var steps = 0
    while true {
      steps += 1
      let isMainsTurn =
        window.isEmpty || (!mode.isClock && window.count + coming <= target && !main.isEmpty)
      guard !isMainsTurn, let head = window.first(sparing: spared, store) else {
        guard let slot = mainCandidate(mode, sparing: spared, sketch, store) else {
          // All that is left is in the window.
          guard let slot = window.first(sparing: spared, store) else { return nil }
          return slot
        }
        if mode.isClock { ghosts.insert(store.ghost(slot)) }
        return slot
      }
      if mode.isClock {
        // A window that another mode has left goes over to the main queue, one by one.
        window.remove(head, store)
        pushMain(head, store)
        let slot = mainCandidate(mode, sparing: spared, sketch, store) ?? head
        ghosts.insert(store.ghost(slot))
        return slot
      }
      let uses = store.uses(head)
      if Store.counts { for _ in 0..<uses { sketch.increment(store.key(head)) } }
      if uses >= 2 {
        window.remove(head, store)
        store.set(head, uses: 0)
        pushMain(head, store)
        if let slot = mainCandidate(mode, sparing: spared, sketch, store) { return slot }
        continue
      }
      switch mode.exit {
      case .again where uses == 1 && steps < SegmentedQueue.mostSteps:
        store.set(head, uses: 0)
        window.renew(head, store)
        continue
      case .duel:
        if let rival = mainCandidate(mode, sparing: spared, sketch, store) {
          let ours = sketch.estimate(store.key(head))
          let theirs = sketch.estimate(store.key(rival))
          if ours > theirs || (ours == theirs && uses > 0) {
            window.remove(head, store)
            store.set(head, uses: 0)
            pushMain(head, store)
            return rival
          }
        }
      default: break
      }
      ghosts.insert(store.ghost(head))
      return head
    }
  }

  /// From the first to go on, about.
  func forEach<Store: QueueStore & ~Copyable>(_ store: borrowing Store, _ body: (Slot) -> Void) {
    window.forEach(store, body)
    main.forEach(store, body)
  }

  // MARK: for tests

  func violation<Store: QueueStore & ~Copyable>(_ store: borrowing Store) -> StaticString? {
    if let found = window.violation(store) ?? main.violation(store) { return found }
    var found: StaticString?
    window.forEach(store) { if store.isMain($0) { found = "a window entry is marked as main" } }
    main.forEach(store) { if !store.isMain($0) { found = "a main entry is not marked" } }
    return found
  }
}
