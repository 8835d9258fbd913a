import Synchronization

/// Writes. Each is committed at once, under its key's stripe.
extension LogStorage {
  func prefetch(_ hash: UInt64) {
    guard let store = uncounted else { return }
    store._withUnsafeGuaranteedRef { if $0.hasHashOfTiers { $0.prefetch(hash) } }
  }

  var takesBytes: Bool { true }

  /// Waits for the directory's lock if another process has it. Fails with `busy` if that process is
  /// stopped.
  func write(_ write: inout StoreWrite) {
    // After an eviction reads see another state of the key than a loss of power may leave.
    if write.need == .ifPending, let key = write.entry?.key, !isBarred(Bytes(key), write.hash),
      !(uncounted?._withUnsafeGuaranteedRef { $0.needsRecord } ?? false)
    {
      return
    }
    lookIfDue()
    guard let store = uncounted else { return endUndone(&write, for: service.failure) }
    store._withUnsafeGuaranteedRef { self.write(&write, to: $0) }
  }

  @inline(__always)
  private func write(_ write: inout StoreWrite, to store: LogStore) {
    let moment = Moment.at(write.time)
    do throws(Failure) {
      try dropBars()
      switch write.kind {
      case .clear:
        write.result.existed = store.count > 0
        try store.clear()
      case .put, .remove, .touch:
        try carryOut(&write, store, at: moment)
      }
      if store.isDurable { leaveTicket(&write, store) }
    } catch {
      counters.failures.count()
      endUndone(&write, for: error)
    }
  }

  var removesAtOnce: Bool {
    guard let store = uncounted, !hasBars.load(ordering: .acquiring) else { return false }
    return store._withUnsafeGuaranteedRef { !$0.isDurable }
  }

  func removeAtOnce(
    _ key: Bytes, _ hash: UInt64, version: UInt64, isThere: Bool, copy: StoreWrite.Copy?,
    at time: Int64
  ) -> StoreWrite.Result {
    var log = LogWrite(.remove, key, hash)
    log.copy = copy
    log.isOfExisting = !isThere
    return carryOutAtOnce(&log, version, at: time)
  }

  @inline(__always)
  func putsAtOnce(_ size: Int) -> Bool { removesAtOnce && !keepsInFile(size) }

  func putAtOnce(
    _ key: Bytes, _ hash: UInt64, _ record: Record, _ value: Bytes, at time: Int64
  ) -> StoreWrite.Result {
    var log = LogWrite(.put, key, hash)
    log.times = record
    log.value = value
    log.wantsMark = false
    return carryOutAtOnce(&log, record.version, at: time)
  }

  /// `log`: a write with the hash of the tiers above.
  private func carryOutAtOnce(
    _ log: inout LogWrite, _ version: UInt64, at time: Int64
  ) -> StoreWrite.Result {
    lookIfDue()
    let (key, hash) = (log.key, log.hash)
    var result = StoreWrite.Result()
    guard let store = uncounted else {
      result.fail(for: service.failure)
      bar(key, hash)
      return result
    }
    store._withUnsafeGuaranteedRef { store in
      log.hash = own(hash, key, in: store)
      store.write(&log, at: Moment.at(time)) { done in
        observer?.storeCommits(key, hash, version, done.mark)
      }
      result.outcome = log.outcome
      result.existed = log.existed
      result.existing = log.existing
      result.failure = log.failure
      // Another process has made the directory durable meanwhile.
      if log.failure == nil && store.isDurable {
        do throws(Failure) { try settle(store) } catch { result.failure = error }
      }
    }
    if result.failure != nil {
      if log.outcome != .noSpace { result.outcome = .failed }
      noteFailure(of: log, hash)
    }
    return result
  }

  /// `hash`: the key's, of the tiers above.
  @inline(never)
  private func noteFailure(of log: LogWrite, _ hash: UInt64) {
    if log.kind != .remove && log.outcome == .noSpace {
      counters.refusals.count()
    } else {
      counters.failures.count()
      if !LogStorage.leaves(log.kind == .touch, log.condition) { bar(log.key, hash) }
    }
  }

  /// Whether a write that has failed, and was not carried out, leaves the entry that is there: a
  /// touch, and a write whose condition is a caller's, which has not been decided.
  private static func leaves(_ isTouch: Bool, _ condition: WriteCondition) -> Bool {
    isTouch || condition.isOfCaller
  }

  private func carryOut(
    _ write: inout StoreWrite, _ store: LogStore, at moment: Moment
  ) throws(Failure) {
    guard let entry = write.entry else { return }
    let key = Bytes(entry.key)
    let kind: LogWrite.Kind =
      switch write.kind {
      case .put: (write.form?.refusal ?? TierOutcome.none) == TierOutcome.none ? .put : .remove
      case .touch: .touch
      case .remove, .clear: .remove
      }
    var log = LogWrite(kind, key, own(write.hash, key, in: store))
    log.counterHash = write.hash
    log.condition = write.condition
    log.copy = write.copy
    log.isOfRefusal = write.kind == .put
    let file = kind == .put ? write.form?.file : nil
    if kind == .put {
      log.entry = entry
      log.value = write.form?.bytes
      log.times.accessed = write.accessed
    }
    if let file {
      // The store has moved since the content file was written.
      guard file.directory === store.directory else { throw service.failure }
      log.file = LogFile(name: file.name, size: file.size, checksum: file.checksum)
    }
    if kind == .touch { log.times = entry.record }
    // Not of a put that is refused, whose condition the store decides all the same.
    if write.kind == .remove && write.condition.kind == .absent { log.isOfExisting = true }
    let (hash, version) = (write.hash, write.version)
    store.write(&log, at: moment) { done in
      if !done.isUnmet {
        observer?.storeCommits(
          key, hash, kind == .touch ? done.existing : version, done.mark)
      }
    }
    if log.outcome == .stored { file?.land() }
    write.result.existed = log.existed
    write.result.existing = log.existing
    write.result.isUnmet = log.isUnmet
    write.result.mark = log.isUnmet ? 1 : log.mark
    write.result.failure = log.failure
    write.result.outcome = kind == .put && !log.isUnmet ? log.outcome : .none
    if let form = write.form, form.refusal != .none, !log.isUnmet {
      if form.failure != nil { counters.failures.count() }
      if form.refusal != .failed { counters.refusals.count() }
      write.result.outcome = form.refusal
      if log.failure == nil { write.result.failure = form.failure }
    }
    if log.failure != nil { noteFailure(of: log, write.hash) }
  }

  /// A write that was not carried out.
  private func endUndone(_ write: inout StoreWrite, for reason: Failure) {
    write.result.fail(for: reason)
    if !LogStorage.leaves(write.kind == .touch, write.condition) { bar(write) }
  }

  /// A write that was carried out, perhaps.
  func endFailed(_ write: inout StoreWrite, for reason: Failure) {
    write.result.fail(for: reason)
    bar(write)
  }

  @inline(never)
  private func bar(_ write: borrowing StoreWrite) {
    // A clear has no key: every key is barred.
    bar((write.entry?.key).map { Bytes($0) }, write.hash)
  }
}

extension StoreWrite.Result {
  fileprivate mutating func fail(for reason: Failure) {
    failure = reason
    outcome = .failed
  }
}
