/// The events that the cache tells its listener. Without a listener a write asks once, and does
/// nothing else of this.
extension Cache {
  // MARK: before a write, with no lock held

  /// Says that a put is about to be made.
  func tellWillAdd(
    _ entry: UnownedBlock, _ hash: UInt64, hasValue: Bool = true, in scope: Tiers
  ) {
    guard events.wants(.willAdd) else { return }
    events.announce(
      Event(
        .willAdd, .none, entry.retained(), hasValue: hasValue, tiers: tiers(of: scope),
        lane: Stripes.index(of: hash)))
  }

  /// Says that an entry is about to be removed, if there is one, from the tiers that have it, and
  /// returns it; nil also if the listener does not want the event.
  @discardableResult
  func tellWillRemove(_ key: Bytes, _ hash: UInt64, in scope: Tiers) -> Block? {
    guard events.wants(.willRemove), let old = (try? peek(key, in: scope)) ?? nil else {
      return nil
    }
    let told = old.unowned.retained()
    let moment = clock.current
    // A removal from the store takes memory's copy along.
    var tiers = memory.has(key, hash, at: moment) ? Tiers.memory : Tiers()
    if scope != .memory, storage != nil,
      let stored = try? withStorage({ (storage) throws(Failure) in
        try infoBelow(key, hash, at: moment, storage) != nil
      }), stored
    {
      tiers.insert(.disk)
    }
    if tiers.isEmpty { tiers = self.tiers(of: scope) }
    events.announce(
      Event(
        .willRemove, .removed, old, hasValue: true, tiers: tiers, lane: Stripes.index(of: hash)))
    return told
  }

  func tiers(of scope: Tiers) -> Tiers {
    storage == nil && scope == .whole ? .memory : scope
  }

  // MARK: a write

  /// For a put or a removal, whose stripe is held. `new`: what is put; `old`: what the store was
  /// seen to have. Nil: there is no listener.
  func postPending(
    _ key: Bytes, _ hash: UInt64, adding new: UnownedBlock?, hasValue newHasValue: Bool = true,
    replacing old: UnownedBlock?, at moment: Moment
  ) -> Events.Pending? {
    var kinds = events.kindsOfEntries
    // A removal has reported it before.
    if new == nil { kinds &= ~Event.Kind.willRemove.rawValue }
    guard kinds != 0 else { return nil }
    assert(storage == nil || ThreadState.isInside)
    var gone: Events.Pending.Side?
    var stored: Record?
    if kinds & Event.Kind.removals != 0 {
      // In the order in which an entry goes down: no look misses one that goes meanwhile.
      let resident = memory.peek(key, hash, at: moment)
      stored = storage.flatMap { (try? infoBelow(key, hash, at: moment, $0)) ?? nil }
      gone = leaving(key, resident, stored, old, new == nil ? .removed : .replaced)
    }
    var added: Events.Pending.Side?
    if let new, kinds & Event.Kind.didAdd.rawValue != 0 {
      added = Events.Pending.Side(
        entry: new.retained().leak(), hasValue: newHasValue, cause: .none)
    }
    // A removal comes after all that happens to the entry by itself.
    let pending = Events.Pending(
      removing: gone, adding: added,
      version: new?.version ?? (gone?.entry.version ?? 0) &+ 1, kinds: kinds,
      lane: Stripes.index(of: hash))
    pending.wasOnDisk = stored != nil
    if pending.isPosted { events.post(pending, isReady: false) }
    return pending
  }

  /// The entry that a write is about to remove or replace: memory's, or else the store's, whose
  /// value is known if it is the one of `old`. Nil: there is none.
  private func leaving(
    _ key: Bytes, _ resident: consuming Block?, _ stored: Record?, _ old: UnownedBlock?,
    _ cause: Event.Cause
  ) -> Events.Pending.Side? {
    var block = resident
    var hasValue = true
    if block == nil, let stored {
      hasValue = old?.version == stored.version
      block = hasValue ? old?.retained() : try? Block.allocate(key: key, record: Record())
      if !hasValue { block.unowned?.version = stored.version }
    }
    guard let block else { return nil }
    return Events.Pending.Side(entry: block.leak(), hasValue: hasValue, cause: cause)
  }

  /// Memory has carried out a write. `had`: the version of the entry that it had of the key, or 0.
  /// Where processes share, that may have been a copy that counted no more, or an older entry than
  /// that of a write which is not decided yet, or whose decision memory has yet to carry out: it is
  /// told at once, before that write is. A dirty entry that `postPending` saw in memory may have
  /// gone into the queue since. `replaced`: the version that the store found, if it has decided;
  /// nil: the write's part in memory came first. The stripe is held.
  func noteCarriedOut(
    _ pending: Events.Pending?, had: UInt64, replaced: UInt64? = nil, _ key: Bytes, _ hash: UInt64,
    at moment: Moment
  ) {
    guard let pending else { return }
    let isSeen = had != 0 && had == pending.goneVersion
    pending.wasInMemory =
      isSeen && had == replaced ?? had
      && order.newestUndecided(Stripes.index(of: hash)) == nil
    if had != 0 && !pending.wasInMemory {
      let cause = isSeen ? pending.goneCause : .replaced
      tellGone(key, hash, had, cause, .memory, isAnnounced: cause == .removed)
    }
    guard had == 0, pending.removes, !pending.wasOnDisk, writeBack.mayHaveDirty, let storage
    else { return }
    let below = (try? infoBelow(key, hash, at: moment, storage)) ?? nil
    pending.wasOnDisk = below != nil
  }

  /// A removal has taken memory's copy. The copy is told at once, and so before any newer write of
  /// the key, if the event of the removal has not got it: the copy did not count at that moment, as
  /// a commit was under way. `isNewest`: false if a newer entry, which the store has yet to decide,
  /// may be in the lane already.
  @inline(never)
  func noteTaken(_ copy: UnownedBlock?, by pending: Events.Pending?, isNewest: Bool = true) {
    guard let copy, let pending else { return }
    pending.wasInMemory = isNewest && copy.version == pending.goneVersion
    if pending.wasInMemory { return }
    events.postRemoval(
      copy.retained(), hasValue: true, .removed, .memory, pending.lane, isAnnounced: true)
  }

  /// Whether the commit of a write has removed from the store what the write's event says, or may
  /// have. The commit may have removed another entry, or one where the event has none. Where
  /// processes share, it is another process's, or that of a write which was not decided yet when
  /// this one was submitted. Or the entry had expired by then, and a read that had begun before has
  /// put its end off. Such an entry is told by itself.
  func hasLeftDisk(
    _ pending: Events.Pending?, _ write: borrowing StoreWrite, _ cause: Event.Cause
  ) -> Bool {
    let result = write.result
    if result.isUnmet { return false }
    guard let pending, result.existed, result.existing != 0,
      result.existing != pending.goneVersion, let key = write.entry?.key
    else { return result.existed || result.failure != nil }
    tellGone(key, write.hash, result.existing, cause)
    return false
  }

  /// Memory drops its copy of an entry, which the store keeps, or another process has removed. The
  /// stripe is held.
  func dropCopy(_ key: Bytes, _ hash: UInt64, at moment: Moment) {
    guard let copy = memory.remove(key, hash, at: moment), events.wantsEntries else { return }
    events.postRemoval(copy, hasValue: true, .evicted, .memory, Stripes.index(of: hash))
  }

  /// As above, for a touch of the store's entry. The touch is an access: the entry may live by the
  /// reads of the copy alone.
  @inline(never)
  func dropCopy(
    _ key: Bytes, _ hash: UInt64, touchedAt moment: Moment, _ storage: any Storage
  ) {
    storage.noteAccess(key, hash, at: moment.time)
    dropCopy(key, hash, at: moment)
  }

  // MARK: what happens by itself

  /// To be called before the first listener.
  func watchMemory() {
    let identity = self.identity
    memory.watch.set { block, cause in
      guard let cause = Event.Cause(cause) else { return }
      Unmanaged<Cache>.fromOpaque(identity)._withUnsafeGuaranteedRef { $0.tellLeft(block, cause) }
    }
  }

  /// Makes `listener` the cache's listener; nil: it has none.
  func listen(_ listener: Listener?) {
    events.listen(listener) { kinds in
      memory.watch.isOn = kinds & Event.Kind.removals != 0
    }
  }

  /// An entry has left the memory tier. A lock of the tier is held, so that events have the
  /// order of what happened.
  func tellLeft(_ entry: UnownedBlock, _ cause: Event.Cause) {
    // A host's object says it by its release.
    if entry.isObject { return }
    let lane = Stripes.index(of: memory.hash(entry.key))
    events.postRemoval(entry.retained(), hasValue: true, cause, .memory, lane)
  }

  /// An entry has left the store, which holds a lock of its own: a newer write may have been
  /// submitted since, but is not yet committed.
  func tellDropped(_ key: Bytes, _ version: UInt64, _ cause: DropCause) {
    if let cause = Event.Cause(cause) { tellGone(key, memory.hash(key), version, cause) }
  }

  func tellGone(
    _ key: Bytes, _ hash: UInt64, _ version: UInt64, _ cause: Event.Cause, _ tiers: Tiers = .disk,
    isAnnounced: Bool = false
  ) {
    guard events.wantsEntries, let block = try? Block.allocate(key: key, record: Record()) else {
      return
    }
    block.unowned.version = version
    events.postRemoval(
      block, hasValue: false, cause, tiers, Stripes.index(of: hash), isAnnounced: isAnnounced)
  }

  /// Something that concerns no entry. Told before it returns.
  func tell(_ kind: Event.Kind, _ tiers: Tiers) {
    if events.wants(kind) { events.announce(Event(kind, tiers: tiers)) }
  }

  /// The state of a tier has changed. Told when the caller's locks are released.
  func post(_ kind: Event.Kind, _ tiers: Tiers, status: Status) {
    guard events.wants(kind) else { return }
    let event = Event(kind, tiers: tiers)
    event.status = status
    events.post(event)
  }
}

extension Event.Cause {
  /// Nil: a put replaced the block, which says so itself.
  fileprivate init?(_ cause: DepartureCause) {
    switch cause {
    case .replaced: return nil
    case .evicted, .trimmed: self = .evicted
    case .expired: self = .expired
    case .cleared: self = .cleared
    }
  }

  /// Nil: the write that failed has said so.
  fileprivate init?(_ cause: DropCause) {
    switch cause {
    case .barred: return nil
    case .evicted: self = .evicted
    case .expired: self = .expired
    case .damaged: self = .damaged
    }
  }
}
