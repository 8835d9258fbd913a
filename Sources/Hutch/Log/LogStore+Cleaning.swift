import CSystem

// Cleaning makes room, an entry of the oldest segment at a time. The lock is held.

enum Cleaned {
  case cleaned
  /// The oldest segment has no entry left.
  case atEnd
}

extension LogStore {
  /// Makes room for an entry of that many units, and for one more entry in the count if it is new.
  /// True: entries may have been moved or evicted.
  @inline(__always)
  func makeRoom(_ units: UInt64, isNew: Bool, at moment: Moment) throws(Failure) -> Bool {
    let limit = words.load(IndexAt.limits + 8)
    if hasRoom(units) && !(isNew && limit != 0 && count >= limit)
      && segmentCount < allowedSegments
    {
      return false
    }
    return try makeRoomSlowly(units, isNew ? limit : 0, at: moment.time)
  }

  @inline(never)
  private func makeRoomSlowly(_ units: UInt64, _ limit: UInt64, at now: Int64) throws(Failure)
    -> Bool
  {
    while !hasRoom(units) { try roll(at: now) }
    if segmentCount >= allowedSegments { keepPace(units, at: now) }
    if limit != 0 { evict(to: limit - 1, reserving: units, at: now) }
    return true
  }

  /// Makes room for a content file within the limit. True: entries may have been moved or evicted.
  func makeRoom(forFile charge: UInt64, at now: Int64) throws(Failure) -> Bool {
    let limit = words.load(IndexAt.limits)
    guard limit != 0, taken &+ charge > limit else { return false }
    while taken &+ charge > limit {
      if clean(reserving: 0, at: now) == .cleaned { continue }
      guard segmentCount > 0, words.load(IndexAt.oldest) != active else {
        throw Failure(.noSpace, "a value's file does not fit beside the log's least size")
      }
      retire()
    }
    return true
  }

  /// Evicts until there are no more entries than that.
  func evict(to count: UInt64, reserving units: UInt64 = 0, at now: Int64) {
    while self.count > count {
      if clean(reserving: units, at: now) == .cleaned { continue }
      if segmentCount == 0 || words.load(IndexAt.oldest) == active { break }
      retire()
    }
  }

  /// Cleans the oldest segment up to the share of it that is full of the active one, and a
  /// little more: it is clean before the active one is full.
  private func keepPace(_ units: UInt64, at now: Int64) {
    guard let active, words.load(IndexAt.oldest) != active else { return }
    // Content files that go leave room for a segment more.
    while segmentCount >= allowedSegments {
      let filled = words.load(IndexAt.head) &+ units &- start(of: active)
      let cleaned = words.load(IndexAt.cleaning) &- start(of: words.load(IndexAt.oldest))
      if cleaned >= filled + filled >> 4 || clean(reserving: units, at: now) == .atEnd { return }
    }
  }

  /// Cleans the next entry of the oldest segment. A dead entry is passed, and an expired one is
  /// removed. An entry that was read since it was appended is appended once more, if there is room
  /// for it beside `units` and such entries have not used up their share. Any other entry is
  /// evicted.
  func clean(reserving units: UInt64, at now: Int64) -> Cleaned {
    let position = words.load(IndexAt.cleaning)
    let number = words.load(IndexAt.oldest)
    let end = number == active ? words.load(IndexAt.head) : start(of: number &+ 1)
    guard position >= start(of: number), position < end, let seat = seat(of: position),
      let entry = entry(seat, position), position &+ entry.units <= end, entry.keySize > 0
    else { return .atEnd }
    let next = position &+ entry.units
    let hash = position == ahead.position ? ahead.hash : hash.entry(entry.key)
    prefetchCleaning(of: next, before: end, seat)
    guard !entry.isRecord, let (slot, page) = slot(of: entry, hash) else {
      words.store(IndexAt.cleaning, next)
      return .cleaned
    }
    let word = SlotWord(SharedWords.load(slot))
    let ages = ages
    if (!entry.fields.isEmpty || ages.any) && entry.record.isExpired(at: now, under: ages) {
      lose(slot, page, entry, .expired, cleaned: next)
    } else if word.isUsed && mayMove(entry, reserving: units) {
      move(entry, slot, hash, cleaned: next)
    } else if entry.address == replaced {
      drop(slot, page, entry, cleaned: next)
    } else {
      lose(slot, page, entry, .evicted, cleaned: next)
    }
    return .cleaned
  }

  /// Prefetches what the next calls of `clean` will read: the buckets of the next entry's slot, and
  /// the entry behind it.
  @inline(__always)
  private func prefetchCleaning(of position: LogAddress, before end: LogAddress, _ seat: SeatWord) {
    guard position < end, let entry = entry(seat, position), position &+ entry.units <= end else {
      return
    }
    let hash = hash.entry(entry.key)
    ahead = (position, hash)
    prefetch(hash)
    let second = entry.start + Int(entry.units) * LogFormat.unit
    hutch_prefetch(second)
    hutch_prefetch(second + LogPages.lineSize)
  }

  /// Removes an entry that no caller has asked to remove, and tells the observer.
  func lose(
    _ slot: UnsafeMutableRawPointer, _ page: SlotPage, _ entry: LogEntry.Head, _ cause: DropCause,
    cleaned: LogAddress? = nil
  ) {
    switch cause {
    case .evicted: counters.evictions.count()
    case .expired: counters.expirations.count()
    case .damaged, .barred: counters.damaged.count()
    }
    if let observer {
      observer.storeDrops(entry.key, entry.version, cause)
      owed.add(entry.key, entry.version)
    }
    drop(slot, page, entry, cleaned: cleaned)
  }

  /// Cleans a few entries of the oldest segments, for as long as `isNeeded` returns true. False: it
  /// returns false now, or no entry is left.
  func makeRoom(at now: Int64, while isNeeded: () -> Bool) -> Bool {
    for _ in 0..<512 {
      guard isNeeded() else { return false }
      if clean(reserving: 0, at: now) == .cleaned { continue }
      if segmentCount == 0 || words.load(IndexAt.oldest) == active { return false }
      retire()
    }
    return isNeeded()
  }

  private func mayMove(_ entry: LogEntry.Head, reserving units: UInt64) -> Bool {
    hasRoom(units &+ entry.units)
      && words.load(IndexAt.moved) &+ entry.units <= segmentUnits * 2 / 3
  }

  private func move(
    _ entry: LogEntry.Head, _ slot: UnsafeMutableRawPointer, _ hash: UInt64,
    cleaned: LogAddress
  ) {
    let address = words.load(IndexAt.head)
    guard let seat = seat(of: address) else { return }
    LogEntry.copy(entry, to: memory(seat, address), address)
    var redo = RedoRecord(words)
    redo.set(slot - words.base, SlotWord(hash, address).bits)
    redo.set(IndexAt.head, address &+ entry.units)
    redo.set(IndexAt.moved, words.load(IndexAt.moved) &+ entry.units)
    redo.set(IndexAt.cleaning, cleaned)
    redo.commit()
    if entry.address == replaced { replaced = address }
  }
}
