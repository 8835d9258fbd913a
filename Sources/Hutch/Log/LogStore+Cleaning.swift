import CSystem

// Cleaning makes room, an entry of a stream's oldest segment at a time. The lock is held.

/// What one call of `LogStore.clean` has come to.
enum Cleaned {
  /// The next entry has been passed, moved or removed.
  case cleaned
  /// The oldest segment has no entry left.
  case atEnd
}

extension LogStore {
  /// Makes room for an entry of that many units, and for one more entry in the count if it is new.
  /// `isRecord`: it is one of the store's own records, and no entry. `isClean`: `cleanAhead` has
  /// been called for it. True: entries may have been moved or evicted.
  @inline(__always)
  func makeRoom(
    _ units: UInt64, isNew: Bool, isRecord: Bool = false, isClean: Bool = false, at moment: Moment
  ) throws(Failure) -> Bool {
    let limit = words.load(IndexAt.limits + 8)
    if room(.new) >= units && !(isNew && limit != 0 && count >= limit)
      && (isClean || !hasToClean(cleanedFrom))
    {
      return false
    }
    return try makeRoomSlowly(units, isNew ? limit : 0, isRecord, at: moment.time)
  }

  /// Whether the log may not grow, or need not. `from`: `cleanedFrom`.
  @inline(__always)
  private func hasToClean(_ from: Int) -> Bool { segmentCount >= from || canReuse }

  /// Cleans for an entry of so many bytes. True: no more is to be cleaned, unless a segment has to
  /// be begun for the entry. For an entry of a page or more nothing is evicted ahead: it may be too
  /// large to be stored.
  @inline(__always)
  func cleanAhead(_ bytes: Int, at moment: Moment) -> Bool {
    let from = cleanedFrom
    guard hasToClean(from) else { return true }
    if bytes >= LogPages.pageSize && segmentCount >= max(from, 2) { return false }
    keepPace(LogFormat.units(bytes), from, at: moment.time)
    // 0: the bytes of the entries are limited too.
    return from > 0
  }

  @inline(never)
  private func makeRoomSlowly(
    _ units: UInt64, _ limit: UInt64, _ isRecord: Bool, at now: Int64
  ) throws(Failure) -> Bool {
    while room(.new) < units { try roll(isRecord: isRecord, at: now) }
    keepPace(units, cleanedFrom, at: now)
    // What lowered limits have made too many goes in slices (`setLimits`), and little of it here.
    var steps = LogStore.stepsOfSlice
    if limit != 0 {
      evict(reserving: units, at: now) {
        if count > limit { steps -= 1 }
        return count >= limit && steps > 0
      }
    }
    if isTight && !isRecord {
      let most = words.load(IndexAt.limits)
      let bytes = units &* UInt64(LogFormat.unit)
      evict(reserving: units, at: now) {
        if live > most { steps -= 1 }
        return live &+ bytes > most && steps > 0
      }
    }
    return true
  }

  private static let stepsOfSlice = 512

  /// Makes room for a content file within the limit, and leaves `units` in the active segment free.
  /// True: entries may have been moved or evicted.
  func makeRoom(
    forFile charge: UInt64, reserving units: UInt64, at now: Int64
  ) throws(Failure) -> Bool {
    let limit = words.load(IndexAt.limits)
    guard limit != 0, taken &+ charge > limit else { return false }
    while taken &+ charge > limit {
      if clean(reserving: units, at: now) == .cleaned { continue }
      guard giveUpSegment() else {
        throw Failure(.noSpace, "a value's file does not fit beside the log's least size")
      }
    }
    return true
  }

  /// Evicts for as long as `isNeeded`, and leaves `units` in the active segment free. Where nothing
  /// is left in the only segment of kept entries, it is given up, and new entries go.
  private func evict(reserving units: UInt64, at now: Int64, while isNeeded: () -> Bool) {
    while isNeeded() {
      if clean(reserving: units, at: now) == .cleaned { continue }
      if !release(asSpare: !hasSpare) && !giveUpSegment() { break }
    }
  }

  /// One slice of making room: a few entries of the oldest segments, for as long as `isNeeded`.
  /// False: it is not any more, or nothing is left.
  func makeRoom(at now: Int64, while isNeeded: () -> Bool) -> Bool {
    for _ in 0..<LogStore.stepsOfSlice {
      guard isNeeded() else { return false }
      if hasSpare {
        giveUpSpare()
      } else if clean(at: now) == .atEnd && !giveUpSegment() {
        return false
      }
    }
    return isNeeded()
  }

  /// A step towards a segment less. The entries that the next call of `clean` would look at have
  /// come to their end.
  private func giveUpSegment() -> Bool {
    if hasSpare {
      giveUpSpare()
      return true
    }
    if release(asSpare: false) { return true }
    // New entries in their only segment may be left, and are cleaned once nothing is kept.
    return victim(keepsAll: false, of: allowedSegments) == .kept && (try? releaseKept()) != nil
  }

  /// Cleans as much as is appended, in both streams: where one of them comes to the end of its
  /// segment, there is a spare one. Of what is missing, a put makes up no more than a few times
  /// its own size. `from`: `cleanedFrom`.
  private func keepPace(_ units: UInt64, _ from: Int, at now: Int64) {
    let from = max(from, 2)
    guard segmentCount >= from else { return reuse(units, at: now) }
    let keepsAll = words.load(IndexAt.limits) == 0
    let hasKept = hasTwoStreams(of: from)
    var steps = 8 + units
    while segmentCount >= from && steps > 0 {
      let room = room(.new) &+ (hasKept ? self.room(.kept) : segmentUnits)
      let filled = segmentUnits &* 2 &- min(room, segmentUnits &* 2) &+ units
      let free = (hasSpare ? segmentUnits : 0) &+ cleaned(.new) &+ cleaned(.kept)
      if free >= filled { return }
      if clean(reserving: units, at: now, of: from, keepsAll: keepsAll) == .atEnd
        && !release(asSpare: segmentCount <= from)
      {
        return
      }
      steps -= 1
    }
  }

  /// Cleans the next entry of an oldest segment. A dead entry is passed, and an expired one is
  /// removed. A copy of an entry that is to be kept is appended to the kept entries, if there is
  /// room for it and the cleaner has not used up its share. Any other entry is evicted. `keepsAll`:
  /// every entry is to be kept, and none is evicted. `units`: the room that new entries need beside
  /// a copy. `allowed`: how many segments there may be.
  func clean(
    reserving units: UInt64 = 0, at now: Int64, of allowed: Int? = nil, keepsAll: Bool = false
  ) -> Cleaned {
    clean(
      victim(keepsAll: keepsAll, of: allowed ?? allowedSegments), reserving: units, at: now,
      keepsAll: keepsAll, isShare: !keepsAll, mayGrow: keepsAll)
  }

  /// As above, of one stream. `isShare`: copies count for the cleaner's share. `mayGrow`: a segment
  /// may be added for copies, beyond the limit.
  func clean(
    _ stream: LogStream, reserving units: UInt64, at now: Int64, keepsAll: Bool, isShare: Bool,
    mayGrow: Bool
  ) -> Cleaned {
    if segmentCount(stream) == 0 { return .atEnd }
    let position = words.load(stream.cleaning)
    let number = words.load(stream.oldest)
    let isActive = number == active(stream)
    if isRebuilding && hasSlots(number, stream) { giveUpRebuilding() }
    if keepsAll && isActive { return .atEnd }
    if !isActive && liveUnits(number) == 0 && !isRebuilding {
      // Nothing has to be looked at.
      words.store(stream.cleaning, start(of: number &+ 1))
      return .atEnd
    }
    let end = isActive ? words.load(stream.head) : start(of: number &+ 1)
    guard position >= start(of: number), position < end, let seat = seat(of: position),
      let entry = entry(seat, position), position &+ entry.units <= end,
      entry.keySize > 0
    else {
      if isActive { return .atEnd }
      // Where slots name more of the segment, this is no end but damage.
      let isEnd = position >= end || liveUnits(number) == 0 || isRebuilding
      let next = isEnd ? nil : named(after: position, before: end)
      words.store(stream.cleaning, next ?? start(of: number &+ 1))
      return next == nil ? .atEnd : .cleaned
    }
    let trailer = stream == .kept && !entry.isRecord ? LogEntry.trailerUnits : 0
    let next = (stream, position &+ entry.units &+ trailer)
    let hash = position == ahead.position ? ahead.hash : hash.entry(entry.key)
    prefetchCleaning(of: next.1, before: end, seat)
    guard !entry.isRecord, let (slot, page) = slot(of: entry, hash) else {
      words.store(stream.cleaning, next.1)
      return .cleaned
    }
    let uses = SlotWord(SharedWords.load(slot)).uses
    let ages = ages
    if (!entry.fields.isEmpty || ages.any) && entry.address != replaced
      && hasEnded(entry, at: now, under: ages)
    {
      lose(slot, page, entry, .expired, cleaned: next)
    } else if !isShare || mayMove(entry.units), keepsAll || isToStay(entry, uses, stream),
      let target = target(
        entry.units &+ LogEntry.trailerUnits, reserving: units, mayGrow: mayGrow)
    {
      let uses = policy == .lfu ? max(uses, 1) - 1 : 0
      move(entry, slot, hash, uses, to: target, cleaned: next, isShare: isShare)
    } else if keepsAll {
      return .atEnd
    } else if entry.address == replaced {
      drop(slot, page, entry, cleaned: next)
    } else {
      lose(slot, page, entry, .evicted, cleaned: next)
    }
    return .cleaned
  }

  /// The first entry in a range that a slot names, for lack of one from which its place follows:
  /// damage costs no entry behind it. An entry before it that a slot names is lost.
  @inline(never)
  private func named(after position: LogAddress, before end: LogAddress) -> LogAddress? {
    var first = end
    eachPage { page in
      for i in 0..<LogPages.slots {
        let word = SlotWord(SharedWords.load(page.base + i * 8))
        if word.names, word.address > position { first = min(first, word.address) }
      }
    }
    return first == end ? nil : first
  }

  /// Whether an entry has expired, also by what the tier above knows of its reads.
  @inline(never)
  func hasEnded(_ entry: LogEntry.Head, at now: Int64, under ages: Ages) -> Bool {
    var record = entry.record
    let known = record.accessed
    let hasEnded = record.isExpired(at: now, under: ages, entry.key, asking: observer)
    if record.accessed > known { entry.noteAccess(at: record.accessed, isIdling: true) }
    return hasEnded
  }

  /// The segment that a copy of so many units is appended to; nil: there is no room. `mayGrow`: a
  /// segment may be added for it.
  private func target(_ units: UInt64, reserving: UInt64, mayGrow: Bool) -> SeatWord? {
    guard keptTarget == .kept else {
      return room(.new) >= units &+ reserving ? try? seatOfHead(.new) : nil
    }
    if room(.kept) >= units, let seat = try? seatOfHead(.kept) { return seat }
    guard hasSpare || mayGrow || segmentCount < allowedSegments, (try? begin(.kept)) != nil,
      room(.kept) >= units
    else { return nil }
    return try? seatOfHead(.kept)
  }

  /// Whether the policy keeps an entry that the cleaner has come to.
  ///
  ///     adaptive  as in S3-FIFO (Yang et al., SOSP 2023): a new entry that was read twice, a kept
  ///               one that was read since
  ///     LRU       any entry that was read since it was appended: CLOCK (Corbató 1968)
  ///     LFU       the same, and a copy begins with one read less than it had: generalized CLOCK
  ///               (Smith 1978)
  ///     FIFO      none
  private func isToStay(_ entry: LogEntry.Head, _ uses: UInt64, _ stream: LogStream) -> Bool {
    switch policy {
    case .fifo: false
    case .lru, .lfu: uses > 0 || hasUsed(entry, isOften: false)
    case .adaptive:
      uses >= (stream == .new ? SlotWord.mostUses : 1) || hasUsed(entry, isOften: true)
    }
  }

  @inline(__always) var policy: EvictionPolicy { EvictionPolicy(livePolicy) }

  /// Whether reads of the entry were answered above: they set no use bit.
  private func hasUsed(_ entry: LogEntry.Head, isOften: Bool) -> Bool {
    guard let observer else { return false }
    return observer.hasUsed(entry.key, entry.version, isOften: isOften)
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

  /// Removes an entry that no caller has asked to remove, and tells the observer. A new entry that
  /// the cleaner evicts leaves its ghost. `isCounted`: the loss has been counted.
  func lose(
    _ slot: UnsafeMutableRawPointer, _ page: SlotPage, _ entry: LogEntry.Head, _ cause: DropCause,
    cleaned: (LogStream, LogAddress)? = nil, isCounted: Bool = false
  ) {
    switch cause {
    case _ where isCounted: break
    case .evicted: counters.evictions.countLocked()
    case .expired: counters.expirations.count()
    case .damaged, .barred: counters.damaged.count()
    }
    if let observer {
      observer.storeDrops(entry.key, entry.version, cause)
      owed.add(entry.key, entry.version)
    }
    if cleaned == nil {
      return loseRecorded(slot, page, entry, cause)
    }
    let hasGhost = cause == .evicted && cleaned?.0 == .new && policy == .adaptive
    drop(slot, page, entry, cleaned: cleaned, leavesGhost: hasGhost)
  }

  /// Removes an entry that the cleaner has not come to. A recovery would find it again, and after
  /// an eviction it must not: the entry may have gone for its tag or its key. While the index is
  /// being rebuilt, an older entry must not get the slot.
  private func loseRecorded(
    _ slot: UnsafeMutableRawPointer, _ page: SlotPage, _ entry: LogEntry.Head, _ cause: DropCause
  ) {
    if cause == .evicted || isRebuilding {
      removeRecorded(entry, at: Moment.at(latestTime))
      guard SlotWord(SharedWords.load(slot)).address == entry.address else { return }
      // Its key is damaged.
      if isRebuilding { giveUpRebuilding() }
    }
    drop(slot, page, entry)
    // It may be of ages that the directory has no more when the log is read again.
    if cause == .expired { hide(entry) }
  }

  private func move(
    _ entry: LogEntry.Head, _ slot: UnsafeMutableRawPointer, _ hash: UInt64, _ uses: UInt64,
    to seat: SeatWord, cleaned: (LogStream, LogAddress), isShare: Bool
  ) {
    let target: LogStream = seat.isKept ? .kept : .new
    let address = words.load(target.head)
    let units = copy(entry, of: cleaned.0, to: seat, address)
    var redo = RedoRecord(words)
    redo.setInPlace(slot - words.base, SlotWord(hash, address, uses: uses).bits)
    redo.setInPlace(target.head, address &+ units)
    if isShare { redo.setInPlace(IndexAt.moved, words.load(IndexAt.moved) &+ units) }
    redo.setInPlace(cleaned.0.cleaning, cleaned.1)
    setLive(
      &redo, adding: entry.units, at: address, taking: entry.units, at: entry.address)
    redo.commit()
    if entry.address == replaced { replaced = address }
  }
}
