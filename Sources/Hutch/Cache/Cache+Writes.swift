import Synchronization

/// Writes but for puts: remove and pop, touch, increment, clear.
extension Cache {
  /// Submits a write whose version is drawn and whose stripe is held, lets the stripe go and
  /// waits for the commit.
  func commit(
    _ write: StorageWrite, to storage: any Storage, at moment: Moment, unlocking stripe: Int
  ) {
    submit(write, to: storage, at: moment, unlocking: stripe)
    storage.complete(write)
    stripes.end(stripe)
  }

  // MARK: remove, pop

  /// Removes the entry; false: there was none.
  func remove(_ key: Bytes, in scope: Scope) throws(Failure) -> Bool {
    if storage == nil || scope == .memory {
      return removeFromMemory(key, memory.hash(key), at: clock.moment()) != nil
    }
    return try withStorage { (storage) throws(Failure) in
      try finish(
        submitRemoval(key, at: clock.moment(), in: scope, wantsValue: false, to: storage),
        in: storage)
    }
  }

  /// Removes the entry and returns its value; nil: there was none.
  func pop(_ key: Bytes, in scope: Scope) throws(Failure) -> Block? {
    if storage == nil || scope == .memory {
      return removeFromMemory(key, memory.hash(key), at: clock.moment())
    }
    return try withStorage { (storage) throws(Failure) in
      while true {
        let removal = submitRemoval(
          key, at: clock.moment(), in: scope, wantsValue: true, to: storage)
        if try finish(removal, in: storage) { return removal.value?.take() }
        // Where processes share, another one may have put a newer value.
        if removal.write?.existing ?? 0 == 0 { return nil }
      }
    }
  }

  /// Of a cache in memory, or of the memory tier alone. A store keeps its entry, whose idle
  /// time goes on from here.
  func removeFromMemory(_ key: Bytes, _ hash: UInt64, at moment: Moment) -> Block? {
    if storage != nil && mayHaveDirty {
      // Only a copy goes.
      while true {
        let version = writeDown(key, hash, at: moment)
        if version == 0 { return nil }
        if let block = removeFromMemory(key, hash, at: moment, .ifVersion(version)) { return block }
      }
    }
    return removeFromMemory(key, hash, at: moment, .always)
  }

  private func removeFromMemory(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, _ condition: RemoveCondition
  ) -> Block? {
    if storage == nil && tasks.hasKeyedWrites { tasks.overtake(hash) }
    if let storage, let accessed = memory.info(key, hash, at: moment)?.accessed {
      storage.noteAccess(key, at: accessed)
    }
    guard events.wantsEntries else {
      let stripe = holdForLoads(hash)
      defer { letGo(stripe) }
      noteWrite(hash)
      return memory.remove(key, hash, at: moment, condition: condition)
    }
    tellWillRemove(key, hash, in: .memory)
    let stripe = Stripes.index(of: hash)
    stripes.lock(stripe)
    noteWrite(hash)
    let owed = oweEvents(key, hash, adding: nil, replacing: nil, at: moment)
    let block = memory.remove(key, hash, at: moment, condition: condition)
    stripes.unlock(stripe)
    owed?.wasInMemory = block != nil
    if let owed { settle(owed, leftDisk: false, storedIn: Event.Tiers()) }
    return block
  }

  /// As a task: unless a later write of the key has been done.
  func remove(
    _ key: Bytes, in scope: Scope, by task: TaskPointer
  ) throws(Failure) -> Status {
    let hash = memory.hash(key)
    let moment = clock.moment()
    guard storage == nil || scope == .memory else {
      return try withStorage { (storage) throws(Failure) in
        let removal = submitRemoval(
          key, at: moment, in: scope, wantsValue: false, by: task, to: storage)
        if removal.isSuperseded { return .superseded }
        return try finish(removal, in: storage) ? .done : .notFound
      }
    }
    let tells = events.wantsEntries
    if tells { tellWillRemove(key, hash, in: .memory) }
    let stripe = Stripes.index(of: hash)
    // The entry that goes is the one that was there before the question.
    while true {
      if storage != nil && mayHaveDirty { _ = writeDown(key, hash, at: moment) }
      stripes.lock(stripe)
      let current = memory.info(key, hash, at: moment)?.version
      let isOvertaken = tasks.isOvertaken(task)
      guard !isOvertaken, let current else {
        stripes.unlock(stripe)
        return isOvertaken ? .superseded : .notFound
      }
      let owed = tells ? oweEvents(key, hash, adding: nil, replacing: nil, at: moment) : nil
      let isGone =
        memory.remove(key, hash, at: moment, condition: .ifVersion(current)) != nil
      stripes.unlock(stripe)
      owed?.wasInMemory = isGone
      if let owed { settle(owed, leftDisk: false, storedIn: Event.Tiers()) }
      if isGone { return .done }
    }
  }

  /// A removal that has been submitted, or had nothing to remove, or failed at once.
  struct SubmittedRemoval {
    fileprivate var write: StorageWrite?
    fileprivate var stripe = 0
    fileprivate var value: Holder?
    fileprivate var reason: Reason?
    /// Memory alone had it. Only known where processes share, or if it was dirty.
    fileprivate var wasUnbacked = false
    /// Where processes share: the number of the copy that memory had. Odd: none.
    fileprivate var mark: UInt32 = 1
    fileprivate(set) var owed: OwedEvents?
    /// A later write has been done.
    fileprivate(set) var isSuperseded = false
  }

  /// The first half of a removal in a cache with a store: everything but the wait for the
  /// commit. `finish` is owed.
  func submitRemoval(
    _ key: Bytes, at moment: Moment, in scope: Scope, wantsValue: Bool,
    by task: TaskPointer? = nil, to storage: any Storage
  ) -> SubmittedRemoval {
    var removal = SubmittedRemoval()
    let hash = memory.hash(key)
    let stripe = Stripes.index(of: hash)
    var told = tellWillRemove(key, hash, in: scope)
    do throws(Failure) {
      let write = StorageWrite(.remove, try Block.allocate(key: key, record: Record()))
      var old: Block?
      while true {
        // Before the stripe is taken: it may be large, and a codec of the host's be called.
        if wantsValue || events.wants(.didRemove) {
          do throws(Failure) {
            let seen = told.unowned?.version
            if !wantsValue, let seen,
              try currentVersion(key, hash, at: moment, in: scope) == seen
            {
              old = told.take()
            } else {
              old = try current(
                key, hash, at: moment, in: scope, isAccess: wantsValue, of: storage)
            }
          } catch {
            if wantsValue { throw error }
          }
          if wantsValue && old == nil {
            noteVainRemoval(hash)
            return removal
          }
        }
        stripes.lock(stripe)
        noteWrite(hash)
        do throws(Failure) {
          let version = try currentVersion(key, hash, at: moment, in: scope)
          if let task, tasks.isOvertaken(task) {
            stripes.unlock(stripe)
            removal.isSuperseded = true
            return removal
          }
          if task == nil && tasks.hasKeyedWrites { tasks.overtake(hash) }
          // A key that is nowhere costs no commit. A store that is down cannot tell, and must not
          // have the entry when it comes back.
          if version == 0 && (wantsValue || storage.stats.isUp) {
            if let coherence, scope == .whole {
              coherence.dropCopies(hash)
              _ = memory.remove(key, hash, at: moment)
            }
            stripes.unlock(stripe)
            return removal
          }
          if !wantsValue || old.unowned?.version == version {
            if coherence != nil {
              let stored = try storage.info(key, at: moment)
              removal.wasUnbacked = scope == .whole && stored == nil
              if removal.wasUnbacked && version != 0
                && memory.peekDuringCommit(key, hash, at: moment) == nil
              {
                // Another removal was committed between the two looks.
                stripes.unlock(stripe)
                continue
              }
              if removal.wasUnbacked && wantsValue && storage.isUndecided(key) {
                stripes.unlock(stripe)
                storage.awaitDecision(key)
                continue
              }
              if wantsValue && !removal.wasUnbacked { write.condition = .version(version) }
            }
            break
          }
          stripes.unlock(stripe)
        } catch {
          // What could not be looked at may be an entry: its removal bars it.
          if !wantsValue { break }
          stripes.unlock(stripe)
          throw error
        }
      }
      write.version = versions.draw()
      removal.owed = oweEvents(key, hash, adding: nil, replacing: old.unowned, at: moment)
      let copy = memory.remove(key, hash, at: moment)
      removal.owed?.wasInMemory = copy != nil
      if scope == .whole, coherence != nil, let copy = copy.unowned { removal.mark = copy.mark }
      if wantsValue, let old { removal.value = Holder(old) }
      if scope == .whole, copy.unowned?.isDirty ?? false {
        // Beneath a dirty entry the store has nothing.
        stripes.bump(stripe)
        stripes.unlock(stripe)
        removal.wasUnbacked = true
        return removal
      }
      submit(write, to: storage, at: moment, unlocking: stripe)
      removal.write = write
      removal.stripe = stripe
    } catch {
      removal.reason = Reason(error)
    }
    return removal
  }

  /// The second half: waits for the commit. False: there was no entry.
  func finish(
    _ removal: SubmittedRemoval, in storage: any Storage, waits: Bool = true
  ) throws(Failure) -> Bool {
    if let reason = removal.reason { throw reason.failure }
    guard let write = removal.write else {
      if let owed = removal.owed {
        settle(owed, leftDisk: false, storedIn: Event.Tiers(), waits: waits)
      }
      return removal.wasUnbacked
    }
    storage.complete(write)
    stripes.end(removal.stripe)
    if let owed = removal.owed {
      settle(
        owed, leftDisk: write.existed || write.failure != nil, storedIn: Event.Tiers(),
        waits: waits)
    }
    if let failure = write.failure { throw failure }
    if coherence == nil || removal.wasUnbacked { return true }
    // Another process may have removed it first. If the store has evicted it, memory had it.
    return write.existed && !write.isUnmet
      || (write.existing == 0 && removal.mark == write.markBefore)
  }

  /// The value as it is now, for a call that uses the store; no promotion.
  func current(
    _ key: Bytes, _ hash: UInt64, at moment: Moment, in scope: Scope, isAccess: Bool,
    of storage: any Storage
  ) throws(Failure) -> Block? {
    let stripe = Stripes.index(of: hash)
    while true {
      let mark = stripes.mark(stripe)
      if scope == .whole, let block = memory.peek(key, hash, at: moment) { return block }
      if stripes.hasWaited(stripe, for: mark) { continue }
      let shared = coherence?.mark(hash)
      let block = try storage.get(key, at: moment, isAccess: isAccess)
      if block != nil || scope == .disk { return block }
      if let shared {
        var hasChanged = false
        if let block = stillInMemory(key, hash, shared, at: moment, &hasChanged) { return block }
        if hasChanged { continue }
      }
      if !hasMoved(stripe, since: mark) { return nil }
    }
  }

  // MARK: touch

  /// Sets the times of an entry anew. False: there is none.
  func touch(
    _ key: Bytes, timeToLive: Int64, timeToIdle: Int64, in scope: Scope
  ) throws(Failure) -> Bool {
    let moment = clock.moment()
    let hash = memory.hash(key)
    let touched = { (record: Record) in
      record.touched(at: moment.time, timeToLive: timeToLive, timeToIdle: timeToIdle)
    }
    if storage == nil || scope == .memory {
      // The record is part of an immutable block: a touch makes a new one, for the same
      // version, and begins again if another write came between.
      let stripe = Stripes.index(of: hash)
      while true {
        // Whether an entry is dirty changes under its stripe, or with its end here.
        if storage != nil { stripes.lock(stripe) }
        defer { if storage != nil { stripes.unlock(stripe) } }
        guard let block = memory.peek(key, hash, at: moment) else { return false }
        let version = block.unowned.version
        // Whether the store has it too is a question for the store only.
        let isBacked = try storage?.info(key, at: moment)?.version == version
        let result = try memory.put(
          try block.unowned.copied(with: touched(block.unowned.record)), hash, at: moment,
          condition: .ifVersion(version), isBacked: isBacked)
        if result.outcome == .stored || result.outcome == .tooLarge { return true }
      }
    }
    return try withStorage { (storage) throws(Failure) in
      if coherence != nil {
        return try touchShared(
          key, hash, timeToLive: timeToLive, timeToIdle: timeToIdle, at: moment, in: scope,
          storage)
      }
      let write = StorageWrite(.touch, try Block.allocate(key: key, record: Record()))
      let stripe = Stripes.index(of: hash)
      while true {
        stripes.lock(stripe)
        if let done = try touchDirty(key, hash, touched, at: moment, in: scope, storage) {
          if done { return true }
        } else {
          break
        }
      }
      do throws(Failure) {
        let resident = memory.peek(key, hash, at: moment)
        let isResident = resident != nil
        if let resident {
          if scope == .disk {
            if try storage.info(key, at: moment) != nil {
              _ = memory.remove(key, hash, at: moment)
            }
          } else {
            let version = resident.unowned.version
            write.record = touched(resident.unowned.record)
            let stored = try storage.info(key, at: moment)
            _ = try memory.put(
              try resident.unowned.copied(with: write.record), hash, at: moment,
              condition: .ifVersion(version), isBacked: stored?.version == version)
          }
        }
        if !isResident || scope == .disk {
          guard let stored = try storage.info(key, at: moment) else {
            stripes.unlock(stripe)
            return false
          }
          write.record = touched(stored)
        }
      } catch {
        stripes.unlock(stripe)
        throw error
      }
      write.version = versions.draw()
      commit(write, to: storage, at: moment, unlocking: stripe)
      if let failure = write.failure { throw failure }
      return true
    }
  }

  // MARK: increment

  /// Adds to the counter under `key`; the sum goes to `sum`.
  func increment(
    _ key: Bytes, by delta: Int64, initial: Int64, _ spec: PutSpec, in scope: Scope,
    sum: inout Int64
  ) throws(Failure) -> PutResult {
    let hash = memory.hash(key)
    while true {
      let moment = clock.moment()
      var old = initial
      var record = Record()
      var condition = PutCondition.ifAbsent
      let held = try peek(key, in: scope)
      let current = held.unowned
      if let current {
        guard current.size == 8 else {
          throw Failure(.wrongType, "the value is not a counter: it has not 8 bytes")
        }
        old = Int64(littleEndian: current.value.baseAddress!.load(as: Int64.self))
        record = current.record
        condition = .ifVersion(record.version)
        record.version = 0
      } else {
        record = spec.record(at: moment)
      }
      let (new, overflow) = old.addingReportingOverflow(delta)
      guard !overflow else { throw Failure(.overflow, "the counter's sum does not fit") }
      let block = try withUnsafeBytes(of: new.littleEndian) { (value) throws(Failure) -> Block in
        try Block.copying(
          key: key, value: value,
          extended: current.map { Bytes($0.extendedData) } ?? spec.extended,
          record: record, wantsChecksum: storage != nil)
      }
      let result = try put(
        block, hash, at: moment, if: condition, in: scope,
        storing: try target(of: spec.writePolicy, in: scope))
      switch result.status {
      case .exists, .notFound, .conflict: continue
      default:
        sum = new
        return result
      }
    }
  }

  // MARK: clear

  func clear(in scope: Scope) throws(Failure) {
    clearBegins(in: scope)
    try clearTiers(in: scope)
    clearEnds(in: scope)
  }

  /// Tells the listener.
  func clearBegins(in scope: Scope) { tell(.willClear, tiers(of: scope)) }

  func clearEnds(in scope: Scope) {
    events.deliver()
    tell(.didClear, tiers(of: scope))
  }

  private func clearTiers(in scope: Scope) throws(Failure) {
    if storage == nil || scope == .memory {
      if storage == nil && tasks.hasKeyedWrites { tasks.overtakeAll() }
      noteClearOfMemory()
      emptyMemory(at: clock.moment())
      return
    }
    try withStorage { (storage) throws(Failure) in
      try finishClear(submitClear(at: clock.moment(), in: scope, to: storage), in: scope, storage)
    }
  }

  /// The first half of a clear in a cache with a store. `finishClear` is owed.
  func submitClear(
    at moment: Moment, in scope: Scope, to storage: any Storage
  ) -> StorageWrite {
    let write = StorageWrite(.clear, nil)
    write.isOfAllTiers = scope == .whole
    for stripe in 0..<Stripes.count { stripes.lock(stripe) }
    if tasks.hasKeyedWrites { tasks.overtakeAll() }
    loads.noteClear()
    write.version = versions.draw()
    if scope == .whole {
      clearedVersion.store(write.version, ordering: .relaxed)
    } else {
      storeClearedVersion.store(write.version, ordering: .relaxed)
    }
    write.time = moment.time
    for stripe in 0..<Stripes.count { stripes.begin(stripe) }
    storage.submit(write)
    for stripe in (0..<Stripes.count).reversed() { stripes.unlock(stripe) }
    return write
  }

  /// The second half: what is older goes from memory, where newer puts may be already. Nothing
  /// is promoted meanwhile.
  func finishClear(
    _ write: StorageWrite, in scope: Scope, _ storage: any Storage
  ) throws(Failure) {
    memory.clear(upTo: write.version, keepingUnbacked: scope == .disk, at: clock.moment())
    storage.complete(write)
    for stripe in 0..<Stripes.count { stripes.end(stripe) }
    if let failure = write.failure { throw failure }
  }
}

/// A block that travels in a tuple, which cannot hold what cannot be copied.
final class Holder {
  private var block: Block?
  let version: UInt64

  init(_ block: consuming Block) {
    version = block.unowned.version
    self.block = consume block
  }

  func take() -> Block? { block.take() }
}

extension UnownedBlock {
  /// A block with the same key, value and extended data and another record.
  func copied(with record: Record) throws(Failure) -> Block {
    let block = try Block.copying(
      key: key, value: Bytes(value), extended: Bytes(extendedData), record: record)
    block.unowned.mark = mark
    block.unowned.setDirty(isDirty)
    return block
  }
}
